"""Variants (``--also bf16,batch_size=64``): what a step costs in ways that change training itself."""

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from audioaug.advise.arms import cell_at, open_loader
from audioaug.advise.bench import Bench
from audioaug.advise.target import in_one_line
from audioaug.errors import UsageError, did_you_mean
from audioaug.records import Precision, Timing, Variant
from audioaug.units import Seconds

PRECISIONS: tuple[Precision, ...] = typing.get_args(Precision)
BATCHES = 2
"""Batches of another size that are loaded."""

NOW = "now"


@dataclass(frozen=True)
class Wanted:
    """A row that was asked for: another precision, or another batch size."""

    name: str
    precision: Precision | None = None
    batch_size: int | None = None


def parse_also(text: str) -> tuple[Wanted, ...]:
    """Read ``bf16,batch_size=64``; raise ``UsageError`` for what is neither."""
    return tuple(_wanted(part) for part in filter(None, (part.strip() for part in text.split(","))))


def measure_also(bench: Bench, wanted: Sequence[Wanted], seconds: Seconds) -> tuple[Variant, ...]:
    """Time the training step on batches that lie on the device, as it is and in each way that was asked for."""
    target = bench.target
    works: dict[str, Callable[[], object]] = {NOW: bench.step()}
    failed = dict[str, str]()
    for one in wanted:
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
    if name != "batch_size":
        raise UsageError(f"--also knows no {part!r}.", did_you_mean(name, (*PRECISIONS, "batch_size")))
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--also {part}: batch_size must be a whole number of at least 1.")
    return Wanted(f"batch size {value}", batch_size=int(value))


def _step(bench: Bench, wanted: Wanted) -> Callable[[], object]:
    target = bench.target
    if wanted.precision is not None:
        if target.own_step is not None:
            raise UsageError("`train_step` chooses the precision itself.", "Change it there.")
        return replace(bench, target=replace(target, precision=wanted.precision)).step()
    other = replace(target, batch_size=wanted.batch_size or target.batch_size)
    feeder = iter(open_loader(other, cell_at(target.chain, target.chain.worker_until, workers=0)))
    return Bench(other, bench.clock, list(islice(feeder, BATCHES))).step()


def _variant(wanted: Wanted, batch_size: int, times: dict[str, Timing], reason: str) -> Variant:
    size = wanted.batch_size or batch_size
    now, found = times[NOW], times.get(wanted.name)
    if found is None:
        return Variant(wanted.name, size, now.ms, batch_size, reason=reason)
    return Variant(wanted.name, size, now.ms, batch_size, found.ms, found.ci_ms)
