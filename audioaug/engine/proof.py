"""Proof: before loops or kernels serve an op on a machine, they run on a small batch beside their torch definitions.

Those that fail, or give something else, are switched off with a warning, and torch operations run. What has passed is
kept in a file, for this device, its driver, and the versions of all that compiles. Code of users is not called.

Shapes: B examples, C channels, T samples.
"""

import functools
import hashlib
import platform
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

import msgspec
import torch

from audioaug.compilers import missing_for_c
from audioaug.core import Chain, Op, always, is_ours
from audioaug.dsp import dispatch
from audioaug.dsp.precompile import precompile
from audioaug.engine.locks import lock_of_process
from audioaug.errors import AudioaugWarning, first_line
from audioaug.writing import cache_file, keep_in_cache, read_file

EXAMPLES, SAMPLES = 2, 12000
"""Of the small batch."""

MOST_OF_PEAK = 1e-4
"""By how much an implementation may differ from its definition, as a share of the peak: rounding is 2e-5 at most."""

DRIVER = Path("/proc/driver/nvidia/version")

Run: TypeAlias = Callable[[Chain, torch.Tensor], torch.Tensor]
"""Applies a chain to a batch (B, C, T)."""

_passed: set[tuple[str, str]] = set()
"""Machines and chains of one op, of this process."""


@dataclass(frozen=True)
class Proof:
    """What came of an op: its fast implementations, and what is wrong with some of them.

    ``ran`` is false if the op cannot run on the small batch at all, or differs from itself.
    """

    used: tuple[str, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()
    ran: bool = True


def prove(ops: Iterable[Op], sample_rate: int, device: torch.device, channels: int, run: Run) -> None:
    """Prove these ops on a device, for mono or more channels, unless that was done; warn of what is switched off.

    One thread at a time: implementations are switched off for all threads, so that of two proofs one could compare
    torch operations with themselves.
    """
    chains = [Chain([always(op)], sample_rate) for op in ops if is_ours(op)]
    with lock_of_process("proof"):
        _prove(chains, device, channels, run)


def _prove(chains: Iterable[Chain], device: torch.device, channels: int, run: Run) -> None:
    machine, shape = _machine(device), (EXAMPLES, channels, SAMPLES)
    waiting = {name: chain for chain in chains if (machine, name := f"{chain.hash} {channels}") not in _passed}
    if not waiting:
        return
    kind = dispatch.FASTEST.get(device.type, "torch")
    is_kept = kind != "kernel" or not missing_for_c()  # without, kernels run from Triton's cache, which may be cleared
    if is_kept:
        _passed.update((machine, name) for name in _load().get(machine, ()))
    unproven = {name: chain for name, chain in waiting.items() if (machine, name) not in _passed}
    if unproven and kind == "kernel":
        precompile((partial(run, chain, _small_batch(shape)) for chain in unproven.values()), device)
    new = [name for name, chain in unproven.items() if _passes(chain, shape, device, run)]
    _passed.update((machine, name) for name in waiting)
    if new and is_kept and not dispatch.switched_off(kind):  # with others switched off, less was proven
        _save(machine, new)


TRUSTED = {"cpu", "cuda"}
"""Devices on which torch has every operation that ops need; on others (mps, say) some are missing."""


def unsupported(ops: Iterable[Op], sample_rate: int, device: torch.device, channels: int, run: Run) -> dict[str, str]:
    """Return which ops do not do on the device what they do on the CPU, by their names, each with what is wrong."""
    x_BCT, found = _small_batch((EXAMPLES, channels, SAMPLES)), dict[str, str]()
    for op in ops:
        chain = Chain([always(op)], sample_rate)
        try:
            wanted = run(chain, x_BCT)
        except Exception:  # of the op, which reports it when it runs
            continue
        if wrong := _difference(lambda: run(chain, x_BCT.to(device)).cpu(), wanted)[1]:  # noqa: B023
            found[op.name] = wrong
    for name, wrong in found.items():
        warnings.warn(f"{name} runs on the CPU: on {device} it {wrong}.", AudioaugWarning, stacklevel=2)
    return found


def _small_batch(shape: tuple[int, int, int]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(0), device="cpu") * 0.1


def _passes(chain: Chain, shape: tuple[int, int, int], device: torch.device, run: Run) -> bool:
    found = check(chain, shape, device, run)
    for name, reason in found.wrong:
        warnings.warn(
            f"{name} is switched off on {device}: its compiled form {reason}. Torch operations run in its place. "
            "audioaug doctor --self-test tries all of them.",
            AudioaugWarning,
            stacklevel=2,
        )
    return found.ran and not found.wrong


def check(chain: Chain, shape: tuple[int, int, int], device: torch.device, run: Run) -> Proof:
    """Run a chain on a batch (B, C, T) with and without compiled implementations; switch off those that are wrong."""
    x_BCT = _small_batch(shape).to(device)
    with dispatch.backend("torch"):
        try:
            wanted = run(chain, x_BCT)
        except Exception:  # of the op, which reports it when it runs
            return Proof(ran=False)
    used, wrong = set[str](), dict[str, str]()
    while True:  # a definition may use other implementations
        try:
            ran, reason = _difference(lambda: run(chain, x_BCT), wanted)
            used.update(primitive.name for primitive, _ in ran)
            if not reason or not ran:
                return Proof(tuple(sorted(used)), tuple(wrong.items()), ran=not reason)
            guilty = _guilty(chain, x_BCT, run, wanted, ran, reason)
        except torch.cuda.OutOfMemoryError:  # which says nothing about them
            return Proof(tuple(sorted(used)), tuple(wrong.items()), ran=False)
        for compiled, why in guilty.items():
            dispatch.switch_off(compiled)
            wrong[compiled[0].name] = why


def _guilty(
    chain: Chain, x_BCT: torch.Tensor, run: Run, wanted: torch.Tensor, used: Iterable[dispatch.Compiled], reason: str
) -> dict[dispatch.Compiled, str]:
    """Return which of the loops and kernels that ran are wrong on their own, and why; all of them if none is."""
    found = dict[dispatch.Compiled, str]()
    for compiled in {*used}:
        with dispatch.without({*used} - {compiled}):
            if alone := _difference(lambda: run(chain, x_BCT), wanted)[1]:
                found[compiled] = alone
    return found or dict.fromkeys(used, reason)


def _difference(work: Callable[[], torch.Tensor], wanted: torch.Tensor) -> tuple[list[dispatch.Compiled], str]:
    """Return the loops and kernels that ran, and what is wrong; an empty string if nothing is."""
    with dispatch.used() as used:
        try:
            found = work()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            return used, f"raises {type(error).__name__} ({first_line(error)})"
    if found.shape != wanted.shape:
        return used, f"gives {found.shape[-1]} samples instead of {wanted.shape[-1]}"
    peak = float(wanted.abs().max()) or 1.0
    difference = float((found - wanted).abs().max()) / peak
    return used, "" if difference <= MOST_OF_PEAK else f"differs by {difference:.2g} of the peak"


# What is known of this machine


def _machine(device: torch.device) -> str:
    """Return a name for the device, its driver, and the versions of all that compiles."""
    is_cuda = device.type == "cuda"
    parts = [torch.cuda.get_device_name(device), _driver()] if is_cuda else [device.type, platform.machine()]
    parts.append(dispatch.FASTEST.get(device.type, "torch"))
    return " | ".join([*parts, *(f"{name} {_version(name)}" for name in ("torch", "triton", "numba")), _sources()])


def _driver() -> str:
    with suppress(OSError):
        return DRIVER.read_text().partition("\n")[0]
    return str(torch.version.cuda)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


@functools.cache
def _sources() -> str:
    """Return what changes with the files that declare implementations."""
    folder = Path(dispatch.__file__).parents[1]
    files = sorted(file for part in ("dsp", "ops") for file in (folder / part).rglob("*.py"))
    known = [(file.name, (found := file.stat()).st_size, found.st_mtime_ns) for file in files]
    return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest()


def _load() -> dict[str, list[str]]:
    with suppress(OSError, msgspec.DecodeError):
        if (file := cache_file("proofs.json")) is not None:
            return msgspec.json.decode(read_file(file), type=dict[str, list[str]])
    return {}


def _save(machine: str, names: Iterable[str]) -> None:
    """Add what has passed; only this machine is kept."""
    passed = sorted({*_load().get(machine, ()), *names})
    keep_in_cache(msgspec.json.encode({machine: passed}).decode(), cache_file("proofs.json"))
