"""Private parts of libraries: one module has them all, the installed versions have them, and none is required."""

import ast
import multiprocessing
import os
import pickle
import queue
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

import audioaug
from audioaug import Chain, Loader, Plan, internals, ops
from audioaug.internals import INTERNALS
from audioaug.loader import failures_of_workers

PACKAGE = Path(audioaug.__file__).parent
PUBLIC = {"_asdict", "_exit", "_fields", "_replace"}
"""Public methods of named tuples, and `os._exit`."""
NOT_IN_TRITON_3_0 = {"triton.runtime.cache.triton_key", "triton.compiler.CompiledKernel.run"}
"""Triton 3.0 is that of torch 2.4."""


@pytest.fixture(scope="module")
def running():
    """The iterator of a DataLoader with a worker."""
    loader = DataLoader(range(4), num_workers=1)  # type: ignore[arg-type]
    iterator = iter(loader)
    yield iterator
    internals.end_workers(iterator)


def not_yet():
    """Return the names of the parts that the installed versions do not have yet."""
    try:
        return NOT_IN_TRITON_3_0 if version("triton").startswith("3.0.") else set()
    except PackageNotFoundError:
        return set()


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: internal.name)
def test_installed_versions_have_each_private_part(internal, running):
    assert internal.exists(running) != (internal.name in not_yet()), internal.fallback


def test_missing_private_parts_are_listed(monkeypatch, running):
    assert {internal.name for internal in internals.missing_internals(running)} == not_yet()
    missing = [each.name for each in internals.missing_internals(object()) if each.name not in not_yet()]
    assert [name.rpartition(".")[2] for name in missing] == ["_shutdown_workers", "_recv_bytes", "_task_info"]


def private_names(file: Path) -> set[str]:
    """Return the private names of other modules and objects that a file's code uses."""
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("audioaug"):
            found |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {part for alias in node.names for part in alias.name.split(".")}
        elif isinstance(node, ast.Attribute) and not is_ours(node.value):
            found.add(node.attr)
    return {name for name in found - PUBLIC if name.startswith("_") and not name.startswith("__")}


def defined_names(file: Path) -> set[str]:
    """Return the names that a file defines: functions, classes, and what it assigns to."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    kinds = ast.FunctionDef, ast.ClassDef
    return {node.name for node in nodes if isinstance(node, kinds)} | {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in nodes
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store)
    }


def is_ours(owner: ast.expr) -> bool:
    """Return whether the owner of an attribute is an object of audioaug itself."""
    root = owner
    while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in ("self", "cls", "super")


def test_no_other_module_uses_a_private_name():
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "internals.py"]
    ours = set[str]().union(*map(defined_names, files))
    assert not {(file.name, name) for file in files for name in private_names(file) - ours}


def test_planted_private_name_is_found(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text("import torch\nfrom torch._dynamo import reset\nloader = torch.utils.data\nloader._secret()\n")
    assert private_names(planted) == {"_dynamo", "_secret"}


class Bare:
    """An object without any private part."""


def test_loader_works_without_private_parts_of_data_loader(monkeypatch):
    monkeypatch.setattr(internals, "_is_of_torch", lambda iterator: False)
    monkeypatch.setattr(failures_of_workers, "end_workers", lambda iterator: None)
    chain, plan = Chain([ops.Gain(p=1.0)], sample_rate=16000), Plan(cut=1, num_workers=1)
    loader = Loader([torch.ones(9)] * 4, chain, plan, batch_size=2, device="cpu")
    assert len(list(loader)) == 2 and loader.ready is None and loader.workers == frozenset()


@pytest.mark.parametrize("size", [1, 100, 20_000, 2_000_000])
def test_messages_arrive_as_they_were_sent(size):
    messages = internals.receive_whole_messages(multiprocessing.Queue())
    sent = [bytes(size), b"last"]
    for each in sent:
        messages.put(each)
    assert [messages.get(timeout=60) for _ in sent] == sent
    messages.put("without a timeout")
    assert messages.get() == "without a timeout"


@pytest.mark.parametrize("is_long", [False, True])
def test_half_a_message_has_not_arrived(is_long):
    received = internals.receive_whole_messages(multiprocessing.Queue())
    content = pickle.dumps("whole")
    size = (-1).to_bytes(4, "big", signed=True) + len(content).to_bytes(8, "big")  # as that of 2 GiB and more
    message = (size if is_long else len(content).to_bytes(4, "big")) + content
    received._sem.acquire()
    for part in (message[:3], message[3:7], message[7:-1]):
        os.write(received._writer.fileno(), part)
        with pytest.raises(queue.Empty):
            received.get(timeout=0.01)
    os.write(received._writer.fileno(), message[-1:])
    assert received.get(timeout=0.01) == "whole"


def test_other_iterators_have_no_workers():
    assert internals.worker_processes(Bare()) == () and internals.worker_pids(Bare()) is None
    assert internals.batches_ready(Bare()) is None
    internals.end_workers(Bare())


def test_calling_frame_is_that_of_the_caller():
    frame = internals.calling_frame(0)
    assert frame is not None and frame.f_code.co_name == "test_calling_frame_is_that_of_the_caller"


@pytest.mark.parametrize("before", ["a generator", None])
def test_room_generator_is_restored(before):
    with internals.keep_room_generator(generator := SimpleNamespace(_rng=before)):
        generator._rng = "seeded"
    assert generator._rng is before
