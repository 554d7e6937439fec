"""Reports with planted costs, whose loader and step times follow by arithmetic."""

from collections.abc import Sequence
from dataclasses import replace

from audioaug.records import (
    Candidate,
    Ceiling,
    ChainFacts,
    HostFacts,
    LoaderCost,
    Measurement,
    Plan,
    Report,
    StageCost,
    Timing,
    Workload,
)

GPU = HostFacts(
    platform="Linux",
    cpu="planted",
    logical_cores=8,
    usable_cores=8.0,
    ram_bytes=1 << 36,
    ram_available_bytes=1 << 36,
    shm_bytes=None,
    open_files=None,
    device="cuda",
    device_name="planted",
    vram_bytes=1 << 36,
    start_method="fork",
    torch_threads=1,
)
CPU = replace(GPU, device="cpu", device_name="", vram_bytes=None)
WORK = Workload("m.py", 7, 32, 1.0, 16000, "fp32", "planted", 100)
DECODE, COLLATE = 4.0, 1.0
EVERY_KNOB = Plan(
    cut=2,
    worker_engine="batched",
    device_engine="cuda_graph",
    num_workers=3,
    prefetch_factor=5,
    pin_memory=True,
    threads=7,
    persistent_workers=False,
    start_method="spawn",
    precision="bf16",
    chain_hash="0123456789abcdef",
)
"""A plan none of whose fields is a default."""


def around(ms):
    """A time with an interval of 10 % to both sides."""
    return ms, (0.9 * ms, 1.1 * ms)


def crowding(workers):
    """How much slower each of several workers is than one alone."""
    return 1 + 0.05 * (workers - 1) if workers else 1.0


def planted_report(
    worker: Sequence[float] = (2.0, 8.0, 1.0),
    device: Sequence[float | None] = (0.1, 0.5, 0.2),
    model: float = 10.0,
    host: HostFacts = GPU,
    workers: Sequence[int] = (0, 1, 2, 4, 8),
    device_from: int = 0,
    decode: float = DECODE,
    collate: float = COLLATE,
    stock: Sequence[float | None] = (),
    batched: Sequence[float | None] = (),
) -> Report:
    """A report with these costs in ms for a batch: of each op in a worker and on the device, and of a model step.

    ``batched`` is our engine in a worker, ``stock`` the other one on the device.
    """
    names = tuple(f"Op{place}" for place in range(len(worker)))
    stages = [StageCost("decode", "worker", *around(decode)), StageCost("collate", "worker", *around(collate))]
    stages += [StageCost(names[op], "worker", *around(ms), op, "audiomentations") for op, ms in enumerate(worker)]
    for where, engine, costs in (
        ("worker", "batched", batched),
        ("device", "batched", device),
        ("device", "torch-audiomentations", stock),
    ):
        stages += [
            StageCost(names[op], where, *around(ms), op, engine) for op, ms in enumerate(costs) if ms is not None
        ]
    loaders = []
    for cut in sorted({device_from, len(worker)}):
        batch = decode + collate + sum(worker[:cut])
        loaders += [LoaderCost(cut, w, *around(batch * crowding(w) / max(w, 1))) for w in workers]
    return Report(
        host=host,
        chain=ChainFacts(names, 16000, "hash", device_from=device_from, device_from_reason="Op0: it has a codec"),
        workload=WORK,
        ceiling=Ceiling(*around(model), 32e3 / model),
        stages=tuple(stages),
        loader_costs=tuple(loaders),
    )


def candidate(cut, workers=0, ops=3, **more):
    """A candidate of a three-op chain."""
    return Candidate("cpu" if cut == ops else "gpu" if cut == 0 else "split", cut, num_workers=workers, **more)


def raced(cut, workers, ms, **more):
    """A raced candidate with this step time."""
    return candidate(cut, workers, measured_ms=ms, measured_ci_ms=(0.99 * ms, 1.01 * ms), status="raced", **more)


def blocks(name, milliseconds):
    """A measurement with one block for each of these step times."""
    return Measurement(name, Timing(tuple(ms / 1e3 for ms in milliseconds)), Timing((0.0,) * len(milliseconds)), 20)


def steady(candidates, rounds=6):
    """Races of candidates whose blocks vary by about 0.1 % around their measured time."""
    wiggle = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0)
    return {it.name: blocks(it.name, [it.measured_ms * wiggle[r % 6] for r in range(rounds)]) for it in candidates}
