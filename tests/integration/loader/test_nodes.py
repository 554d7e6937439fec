"""Processes on several nodes see together what a single one would, also if their number changes in mid-epoch."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DistributedSampler

from audioaug import Loader, Plan
from tests.integration.loader.material import Words, assert_same_audio, by_index, exact_chain, run_programs
from tests.integration.loader.nodes_run import CUT, DONE, EXAMPLES, SEED, key_of

LIMIT = 200
"""Seconds that a run of all nodes may take; about 25 where nothing else runs."""

pytestmark = pytest.mark.timeout(3 * LIMIT)


def free_port() -> int:
    """Return a port of the loopback interface that nothing uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run_nodes(
    processes: Sequence[int],
    out: Path,
    hosts: Sequence[Sequence[str]] = ((), ()),
    address: str = "127.0.0.1",
    **environment: str,
) -> None:
    """Run torchrun once for each node, with these numbers of processes; ``hosts`` run a program on each."""
    common = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(processes)}", "--rdzv-backend=static"]
    common.append(f"--rdzv-endpoint={address}:{free_port()}")
    program = ["-m", "tests.integration.loader.nodes_run", str(out)]
    commands = [
        [*host, *common, f"--node-rank={node}", f"--nproc-per-node={count}", *program]
        for node, (count, host) in enumerate(zip(processes, hosts, strict=True))
    ]
    run_programs(commands, LIMIT, **environment)


def seen(out: Path, name: str, ranks: int) -> dict[int, np.ndarray]:
    """Return the audio that all ranks saw, by index. Only examples that fill up the last round are seen twice."""
    runs = [dict(np.load(out / f"{name} {rank}.npz")) for rank in range(ranks)]
    assert len({len(run) for run in runs}) == 1
    both = {int(index): wave for run in runs for index, wave in run.items()}
    assert sum(map(len, runs)) - len(both) < ranks
    return both


def alone(epoch: int, cut: int = CUT, key: bool = True) -> dict[int, np.ndarray]:
    loader = Loader(
        Words(EXAMPLES),
        exact_chain(),
        Plan(cut=cut),
        batch_size=4,
        device="cpu",
        seed=SEED,
        key=key_of if key else None,
    )
    loader.set_epoch(epoch)
    return by_index(loader)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where two nodes of two processes each leave what they saw, and their state in the middle of epoch 1."""
    out = tmp_path_factory.mktemp("nodes")
    run_nodes([2, 2], out)
    return out


def test_union_of_nodes_matches_single_process(out):
    assert_same_audio(seen(out, "index", 4), alone(0, key=False), 5e-5)


def test_in_workers_union_of_nodes_is_bit_for_bit_the_same(out):
    assert_same_audio(seen(out, "key", 4), alone(0, cut=len(exact_chain())), 0)


def test_one_process_resumes_what_four_have_left(out):
    sampler = DistributedSampler(Words(EXAMPLES), 1, 0, seed=1)
    loader = Loader(
        Words(EXAMPLES),
        exact_chain(),
        Plan(cut=CUT),
        batch_size=5,
        sampler=sampler,
        device="cpu",
        seed=SEED,
        key=key_of,
    )
    loader.load_state_dict(json.loads((out / "state.json").read_text()))
    first, rest = seen(out, "first", 4), by_index(loader)
    assert len(first) == 4 * 2 * DONE and not set(first) & set(rest)
    assert_same_audio(first | rest, alone(1), 5e-5)
    assert_same_audio(by_index(loader), alone(2), 5e-5)


def test_three_processes_resume_what_four_have_left(out, tmp_path):
    (tmp_path / "state.json").write_text((out / "state.json").read_text())
    run_nodes([2, 1], tmp_path)
    first, rest = seen(out, "first", 4), seen(tmp_path, "rest", 3)
    assert not set(first) & set(rest)
    assert_same_audio(first | rest, alone(1), 5e-5)
    assert_same_audio(seen(tmp_path, "next", 3), alone(2), 5e-5)
    assert json.loads((tmp_path / "state.json").read_text())["epoch"] == 3


@pytest.fixture
def hosts() -> Iterator[list[list[str]]]:
    """Make two network namespaces with a cable between them; yield the commands that run a program in each."""
    names = [f"audioaug-{os.getpid()}-{node}" for node in range(2)]
    if not shutil.which("ip") or subprocess.run(["ip", "netns", "add", names[0]], capture_output=True).returncode:
        pytest.skip("No network namespace can be made here.")
    try:
        first, second = names
        for command in (
            f"netns add {second}",
            f"link add cable netns {first} type veth peer name cable netns {second}",
            *(f"-n {name} addr add 10.77.0.{node}/24 dev cable" for node, name in enumerate(names, 1)),
            *(f"-n {name} link set {device} up" for name in names for device in ("lo", "cable")),
        ):
            subprocess.run(["ip", *command.split()], check=True)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.slow
def test_union_of_nodes_with_a_network_each_matches_single_process(hosts, tmp_path):
    run_nodes([2, 2], tmp_path, hosts, address="10.77.0.1", GLOO_SOCKET_IFNAME="cable")
    assert_same_audio(seen(tmp_path, "index", 4), alone(0, key=False), 5e-5)
    assert_same_audio(seen(tmp_path, "key", 4), alone(0, cut=len(exact_chain())), 0)
