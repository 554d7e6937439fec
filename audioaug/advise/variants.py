"""Variants (``--also bf16,batch_size=64,captured,spawn``): what a step costs in other ways than the plan's."""

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from audioaug.advise.arms import cell_at, open_loader
from audioaug.advise.bench import Bench
from audioaug.advise.pieces import step_behind, whole_part
from audioaug.advise.start_methods import METHODS, StartMethod
from audioaug.advise.target import in_one_line
from audioaug.errors import UsageError, did_you_mean
from audioaug.records import DeviceEngine, Precision, Timing, Variant
from audioaug.units import Seconds

PRECISIONS: tuple[Precision, ...] = typing.get_args(Precision)
ENGINES: tuple[DeviceEngine, ...] = ("captured", "compiled")
BATCHES = 2
"""Batches of another size that are loaded."""

NOW, BEHIND = "now", "behind our ops"


@dataclass(frozen=True)
class Wanted:
    """A row that was asked for: another precision, batch size, device engine, or way to start workers."""

    name: str
    precision: Precision | None = None
    batch_size: int | None = None
    engine: DeviceEngine | None = None
    start_method: StartMethod | None = None

    @property
    def beside(self) -> str:
        """What it is compared with: the step alone, or behind our ops."""
        return NOW if self.engine is None else BEHIND


def parse_also(text: str) -> tuple[Wanted, ...]:
    """Read ``bf16,batch_size=64,captured``; raise ``UsageError`` for what is neither."""
    return tuple(_wanted(part) for part in filter(None, (part.strip() for part in text.split(","))))


def measure_also(bench: Bench, wanted: Sequence[Wanted], seconds: Seconds) -> tuple[Variant, ...]:
    """Time the training step on batches that lie on the device, as it is and in each way that was asked for."""
    target = bench.target
    works: dict[str, Callable[[], object]] = {NOW: bench.step()}
    failed = dict[str, str]()
    ours = [Wanted(BEHIND, engine="batched")] if any(one.engine for one in wanted) else []
    for one in (*ours, *wanted):
        try:
            works[one.name] = _step(bench, one)
            works[one.name]()
        except Exception as error:
            works.pop(one.name, None)
            failed[one.name] = in_one_line(error, target.path)
    times = bench.interleave(works, seconds)
    return tuple(_variant(one, target.batch_size, times, failed.get(one.name, "")) for one in wanted)


def _wanted(part: str) -> Wanted:
    name, _, value = part.partition("=")
    for precision in PRECISIONS:
        if part == precision:
            return Wanted(part, precision=precision)
    for engine in ENGINES:
        if part == engine:
            return Wanted(f"device_engine={engine!r}", engine=engine)
    for method in METHODS:
        if part == method:
            return Wanted(f"workers by {part}", start_method=method)
    if name != "batch_size":
        raise UsageError(
            f"--also knows no {part!r}.", did_you_mean(name, (*PRECISIONS, *ENGINES, *METHODS, "batch_size"))
        )
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--also {part}: batch_size must be a whole number of at least 1.")
    return Wanted(f"batch size {value}", batch_size=int(value))


def _step(bench: Bench, wanted: Wanted) -> Callable[[], object]:
    target = bench.target
    if wanted.precision is not None:
        if target.own_step is not None:
            raise UsageError("`train_step` chooses the precision itself.", "Change it there.")
        return replace(bench, target=replace(target, precision=wanted.precision)).step()
    if wanted.engine is not None:
        return _step_behind(bench, wanted.engine)
    other = replace(target, batch_size=wanted.batch_size or target.batch_size)
    feeder = iter(open_loader(other, cell_at(target.chain, target.chain.worker_until, workers=0)))
    return Bench(other, bench.clock, list(islice(feeder, BATCHES))).step()


def _step_behind(bench: Bench, engine: DeviceEngine) -> Callable[[], object]:
    if bench.target.pad:
        raise UsageError("Batches are padded, and their step alone cannot tell the new lengths.")
    if bench.target.least_cut == len(bench.target.chain):
        raise UsageError("Nothing of this chain can run on the device.")
    return step_behind(bench.target, whole_part(bench.target, bench.wave, engine), bench.typical)


def _variant(wanted: Wanted, batch_size: int, times: dict[str, Timing], reason: str) -> Variant:
    size = wanted.batch_size or batch_size
    now, found = times.get(wanted.beside, times[NOW]), times.get(wanted.name)
    known = Variant(wanted.name, size, now.ms, batch_size, reason=reason, changes_training=wanted.engine is None)
    return known if found is None else replace(known, step_ms=found.ms, ci_ms=found.ci_ms)
