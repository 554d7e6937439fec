"""Today: what the user does now, raced against batches that already lie on the device, and what is seen beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from audioaug.advise.arms import cell_at, open_loader
from audioaug.advise.bench import Bench
from audioaug.advise.limits import needs_of
from audioaug.advise.racing import CEILING, Racer
from audioaug.advise.signals import look_at_step, look_beside
from audioaug.advise.worker_counts import WorkerCounts
from audioaug.decide.diagnose import NOT_THE_BOTTLENECK
from audioaug.decide.race import in_the_middle
from audioaug.decide.recommend import may_leave, without_waiting
from audioaug.measure import Watch
from audioaug.records import Ceiling, Cell, Measurement, Notice, Signals
from audioaug.units import Seconds

FEWEST_STEPS = 3
"""That tell how long one takes."""

TELLING_STEPS, TELLING_SECONDS = 24, 1.0
"""That tell a wait of 1 % of a step from one of 2 %, on a machine where one of ten waits three times as long."""

LOOKS = (0.5, 0.25)
"""Of the time for today's configuration, for pilots: one step of twenty that others disturb hides that hardly any of
them wait, and looking once more costs less than all the stages that follow."""

LOOKING = 0.016
"""Of the budget, for what examples and workers tell."""


@dataclass(frozen=True)
class Today:
    """What was found: by name what the race measured, of it the cell and the ceiling; signals; what workers need."""

    cell: Cell
    ceiling: Ceiling
    measurements: dict[str, Measurement]
    signals: Signals
    counts: WorkerCounts


def measure_today(
    bench: Bench,
    cell: Cell,
    counts: WorkerCounts,
    racer: Racer,
    seconds: Seconds,
    tick: Callable[..., None],
    beside: Sequence[Cell] = (),
) -> Today:
    """Race this cell, with fewer workers if there is no room for all of them, the ceiling, and others beside them."""
    target = bench.target
    target.try_step(bench.batches[0])
    signals = look_at_step(bench, seconds / 20)
    message = next(open_loader(target, replace(cell, num_workers=0)).worker_batches())
    counts = replace(counts, needs=needs_of(target, message, counts.host.start_method))
    signals = replace(signals, batch_bytes=counts.needs.batch_bytes, batch_tensors=counts.needs.batch_tensors)
    cell, refused = _within_limits(bench, cell, counts)
    watch = Watch(bench.clock)
    arms = [cell, *(other for other in beside if other.name != cell.name)]
    result = _raced(bench, arms, racer, seconds, tick)
    signals = _with_race(replace(signals, refused=refused), watch, racer, result[cell.name])
    signals = look_beside(bench, cell, message, signals, LOOKING * racer.budget)
    step_ms, ci_ms = in_the_middle(CEILING, result)
    rate, samples_ms = 1e3 * target.batch_size / step_ms, result[CEILING].step.samples_ms
    ceiling = Ceiling(step_ms, ci_ms, rate, counts.host.torch_threads, samples_ms)
    counts = replace(counts, today=cell.num_workers)
    return Today(racer.measured(cell, result), ceiling, result, signals, counts)


def _within_limits(bench: Bench, cell: Cell, counts: WorkerCounts) -> tuple[Cell, Notice | None]:
    """Return the cell with as many workers as there is room for, and the limit where these are fewer."""
    limit = counts.why_no_more()
    if limit is None or cell.num_workers <= counts.most:
        return cell, None
    text = f"{limit.text} What you do today was measured with so many instead of {cell.num_workers}."
    return cell_at(bench.target.chain, cell.cut, counts.most), Notice(limit.id, text)


def _raced(
    bench: Bench, arms: Sequence[Cell], racer: Racer, seconds: Seconds, tick: Callable[..., None]
) -> dict[str, Measurement]:
    """Measure the arms and the ceiling beside each other; of one step if it is all there is, and hardly any waiting."""
    first = arms[0]
    alone = len(arms) == 1 and first.num_workers == 0 and bench.target.device.type == "cpu"
    for look in LOOKS:
        found = racer.pilot(first, look * seconds, partial(_is_over, alone, first.num_workers))
        model = without_waiting(found, CEILING)
        if not (alone and _hardly_waits(found)):
            break
        if may_leave(found, model):
            return {first.name: found, CEILING: model}
    expected = {arm.name: fmean(found.step.seconds) for arm in arms} | {CEILING: fmean(model.step.seconds)}
    return racer.run(arms, expected, seconds / 2, tick, cached=bench.batches)


def _is_over(alone: bool, workers: int, found: Measurement) -> bool:
    """Return whether a pilot has shown enough: more is asked of one that may be all there is, with hardly any waiting.

    Workers that started together deliver together, and only the mean of such steps tells how long one takes.
    """
    steps = len(found.step.seconds)
    if alone and _hardly_waits(found):
        return steps >= TELLING_STEPS and sum(found.step.seconds) >= TELLING_SECONDS
    return steps >= max(FEWEST_STEPS, 2 * workers)


def _hardly_waits(found: Measurement) -> bool:
    return found.wait.median <= NOT_THE_BOTTLENECK * found.step.median


def _with_race(signals: Signals, watch: Watch, racer: Racer, today: Measurement) -> Signals:
    """Return the signals with what was seen while today's configuration was raced."""
    others, usage, name = watch.others(), racer.usage, today.cell
    return replace(
        signals,
        watched_cores=others.cores,
        foreign_cores=others.foreign_cores,
        stolen_cores=others.stolen_cores,
        wanted_cores=others.wanted_cores,
        throttled=others.throttled,
        gc_share=(usage.gc_per_step(name) or 0.0) / today.step.median,
        ready=usage.ready(name),
    )
