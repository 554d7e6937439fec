"""What if: predictions for another machine, model or dataset, and measured variants, in words."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

from audioaug.decide.predict import loader_ms, mean_ms, predict, threads_beside, worker_engines
from audioaug.decide.recommend import NEVER_RECOMMENDED
from audioaug.decide.refine import refined
from audioaug.decide.remote import MOST_REMOTE, remote_sentences
from audioaug.decide.shortlist import placement_of
from audioaug.decide.stages import Stages
from audioaug.errors import UsageError, did_you_mean
from audioaug.records import (
    Candidate,
    Ceiling,
    Interval,
    LoaderCost,
    Location,
    PartCost,
    ReceiveRate,
    Report,
    StageCost,
    Variant,
)
from audioaug.units import format_interval, format_ms, format_percent, format_rate, format_seconds, plural

NUMBERS = (
    "cores",
    "step_ms",
    "batch_size",
    "clips",
    "ranks",
    "remote",
    "receive",
    "core_price",
    "machine_price",
)
MOST_COUNTED = {"ranks": 64, "remote": MOST_REMOTE}
"""Values that are counts, and the largest of each."""

NEEDED = {"receive": "remote", "core_price": "remote", "machine_price": "core_price"}
"""Values that have an effect only with another."""

PROFILE = "gpu"
MOST_WORKERS = 64
Cost = TypeVar("Cost", StageCost, LoaderCost, PartCost)
CLOSE = 1.03
LONGEST_STEP_MS = 100_000.0


def parse(text: str) -> tuple[dict[str, float], str]:
    """Parse ``cores=16,step_ms=12,gpu=FILE`` into numbers and the file of a profile ("" for none).

    Raises:
        UsageError: a name is unknown, a value is out of range, or it has no effect without another.
    """
    values, profile = dict[str, float](), ""
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if name == PROFILE and value:
            profile = value
        elif name in NUMBERS:
            values[name] = _number(name, value)
        elif name == PROFILE:
            raise UsageError(
                "--what-if gpu= needs a file: the --json report of an advisor run on the machine with that GPU."
            )
        else:
            raise UsageError(f"Unknown --what-if {name!r}.", did_you_mean(name, (*NUMBERS, PROFILE)))
    for name, other in NEEDED.items():
        if name in values and other not in values:
            raise UsageError(f"--what-if {name}= has no effect without {other}=.", f"Add {other}=N.")
    return values, profile


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < math.inf:
        raise UsageError(f"--what-if {name}={value}: must be a finite number above 0.")
    if name in MOST_COUNTED and not (number.is_integer() and number <= MOST_COUNTED[name]):
        raise UsageError(f"--what-if {name}={value}: must be an integer from 1 to {MOST_COUNTED[name]:,}.")
    return number


def what_if(report: Report, values: Mapping[str, float], profile: Report | None = None) -> tuple[str, ...]:
    """Predict the best candidate of each placement with some facts changed, with 90 % intervals.

    Args:
        report: what was measured here.
        values: ``cores``; ``step_ms`` of the model alone, for the measured batch or the given ``batch_size``; ``clips``
            of the dataset, which only affects an epoch; ``ranks`` that train on this machine, with a device each;
            ``remote`` workers on other nodes, in place of this machine's, with ``receive``, the MB/s that this machine
            receives, and the prices of an hour, ``core_price`` of each of them and ``machine_price`` of this machine.
        profile: a report of the same chain and model on a machine with another device, which replaces this device.

    Raises:
        UsageError: the profile has another chain or model, or no stages.
    """
    here = report if profile is None else _with_device(report, profile)
    machine = changed(here, values)
    numbers = [f"{name} = {value:.10g}" for name, value in values.items()]
    asked = ", ".join([*numbers, *([] if profile is None else [f"the model on {_device_name(profile)}"])])
    candidates = best_of_each_placement(machine)
    (times,) = times_elsewhere(here, [machine], candidates)
    best = sorted(((times[it.name], it) for it in candidates if it.name in times), key=lambda pair: pair[0])
    if "remote" in values:
        return remote_sentences(machine, values, asked, best[0][0] if best else None)
    if not best:
        return (f"With {asked}: no prediction, since not every stage was measured.",)
    lines = [
        f"With {asked}, {candidate.name} would take {_spread(machine, candidate, ms)} (predicted)."
        for ms, candidate in best
    ]
    if "clips" in values:
        lines.append(_epoch(machine, best[0][1], best[0][0], values["clips"]))
    if "ranks" in values:
        lines += _rank_limit(changed(here, {name: value for name, value in values.items() if name != "ranks"}))
    return (*lines, *(crossovers(machine) if profile is not None else ()))


def times_elsewhere(
    report: Report, machines: Sequence[Report], more: Iterable[Candidate] = ()
) -> list[dict[str, float]]:
    """Return the step times of the report's candidates, and of ``more``, on changed machines, in milliseconds, by name.

    A time is the candidate's own, measured if possible, else predicted and corrected by those that were, multiplied by
    how much longer the formulas expect it to take there, and at least the model's step. On an unchanged machine it is
    the candidate's own. Candidates that cannot be predicted are left out.
    """
    own = {it.name: it for it in report.known_candidates if it.status != "infeasible" and it.known_ms is not None}
    new = {it.name: it for it in more if it.name not in own}
    corrected = refined(replace(report, candidates=(*report.candidates, *new.values())))
    candidates = own | {it.name: it for it in corrected if it.name in new}
    usual = _expected(report, candidates)
    found = []
    for machine in machines:
        least = 0.0 if machine == report or machine.ceiling is None else machine.ceiling.step_ms
        expected = _expected(machine, candidates)
        known = ((name, it.known_ms, usual[name], expected[name]) for name, it in candidates.items())
        found.append({name: max(least, ms * there / here) for name, ms, here, there in known if ms and here and there})
    return found


def _expected(report: Report, candidates: Mapping[str, Candidate]) -> dict[str, float | None]:
    stages = Stages(report, replicates=1)
    return {name: mean_ms(stages, candidate) for name, candidate in candidates.items()}


def _spread(report: Report, candidate: Candidate, ms: float) -> str:
    """Format a step time with the interval of its prediction: ``12.0 ms a step (11.0 .. 13.5)``."""
    found = predict(report, candidate)
    if found is None:
        return f"{format_ms(ms)} a step"
    low, high = (bound * ms / found.ms for bound in found.ci_ms)
    return f"{format_ms(ms)} a step ({format_interval(low, high)})"


def _epoch(report: Report, candidate: Candidate, ms: float, clips: float) -> str:
    """Describe the time of an epoch of this many clips, and the overhead of starting the workers."""
    seconds = clips / report.workload.batch_size * ms / 1e3
    first = [cost.first_batch_seconds for cost in report.loader_costs if cost.num_workers]
    start = max(first, default=0.0) if candidate.num_workers else 0.0
    took = f"An epoch of {plural(round(clips), 'clip')} would take {format_seconds(seconds)}"
    words = f"{took} with {candidate.name} (predicted)"
    if not start:
        return f"{words}."
    return f"{words}; restarting its workers every epoch would add {format_percent(start / seconds)}."


def _device_name(profile: Report) -> str:
    return profile.host.device_name or profile.host.device


def _with_device(report: Report, profile: Report) -> Report:
    """Return the report with everything that runs on the device replaced by another machine's profile."""
    if profile.chain.hash != report.chain.hash or profile.workload.model != report.workload.model:
        raise UsageError(
            f"--what-if gpu: the profile is of {profile.workload.model} with the chain {profile.chain.hash}, but this "
            f"report is of {report.workload.model} with {report.chain.hash}.",
            "Run the advisor with this model and --augment on the other machine, with --json.",
        )
    theirs = _with_batch(profile, report.workload.batch_size)
    if theirs.ceiling is None or not any(stage.where == "device" for stage in theirs.stages):
        raise UsageError("--what-if gpu: the profile has no stages; its run ended before they were measured.")
    host = theirs.host
    device = replace(report.host, device=host.device, device_name=host.device_name, vram_bytes=host.vram_bytes)
    mine = tuple(stage for stage in report.stages if stage.where == "worker")
    return replace(
        report,
        host=replace(device, torch_threads=host.torch_threads),
        ceiling=theirs.ceiling,
        stages=(*mine, *(stage for stage in theirs.stages if stage.where in ("device", "transfer", "model"))),
        parts=(*_parts(report, "worker"), *_parts(theirs, "device")),
        contention=(),
        candidates=(),
        current=None,
        recommendation=None,
    )


def _parts(report: Report, where: Location) -> Iterable[PartCost]:
    return (part for part in report.parts if part.where == where)


def changed(report: Report, values: Mapping[str, float]) -> Report:
    """Return the report with these facts changed; ``step_ms`` applies to the changed batch size."""
    if "batch_size" in values:
        report = _with_batch(report, values["batch_size"])
    if "cores" in values:
        report = _with_cores(report, values["cores"])
    if "ranks" in values:
        report = _with_ranks(report, int(values["ranks"]))
    if "step_ms" in values and report.ceiling is not None:
        report = replace(report, ceiling=_ceiling(report.ceiling, values["step_ms"]))
    if "receive" in values:
        rate = values["receive"]
        report = replace(report, receive_rates=(ReceiveRate(1, rate, (rate, rate)),))
    return report


def best_of_each_placement(report: Report) -> list[Candidate]:
    """Return the best candidate of each placement by the formulas alone."""
    if report.ceiling is None:
        return []
    best = _best(report)
    return [candidate for _, candidate in best.values()]


def _with_batch(report: Report, batch_size: float) -> Report:
    """Scale every time, and the size of a batch, in proportion to the number of examples."""
    factor = batch_size / report.workload.batch_size
    size = report.signals.batch_bytes
    signals = replace(report.signals, batch_bytes=size and round(size * factor))
    work = replace(report.workload, batch_size=max(1, round(batch_size)))
    return replace(_scaled(report, factor), workload=work, signals=signals)


def _scaled(report: Report, factor: float) -> Report:
    """Multiply every time for a batch."""

    def scaled(cost: Cost) -> Cost:
        interval = None if cost.ci_ms is None else (cost.ci_ms[0] * factor, cost.ci_ms[1] * factor)
        ms = None if cost.ms_per_batch is None else cost.ms_per_batch * factor
        return replace(cost, ms_per_batch=ms, ci_ms=interval)

    def part(cost: PartCost) -> PartCost:
        step, both = (None if ms is None else ms * factor for ms in (cost.step_ms, cost.both_ms))
        return replace(scaled(cost), step_ms=step, both_ms=both)

    return replace(
        report,
        stages=tuple(map(scaled, report.stages)),
        loader_costs=tuple(map(scaled, report.loader_costs)),
        parts=tuple(map(part, report.parts)),
        contention=tuple(
            replace(it, alone_ms=it.alone_ms * factor, step_ms=it.step_ms * factor, batch_ms=it.batch_ms * factor)
            for it in report.contention
        ),
        ceiling=report.ceiling and _ceiling(report.ceiling, report.ceiling.step_ms * factor),
    )


def crossovers(report: Report) -> tuple[str, ...]:
    """Describe from how many cores, and from which model step, the whole chain in workers is fast enough (predicted).

    Only with a GPU: on the CPU everything shares the cores.
    """
    if report.ceiling is None or not report.host.has_gpu:
        return ()
    return (*_core_crossover(report), *_step_crossover(report))


def _core_crossover(report: Report) -> Iterable[str]:
    machines = ((cores, _with_cores(report, float(cores))) for cores in range(1, MOST_WORKERS + 1))
    cores = next((cores for cores, machine in machines if _loader_keeps_up(machine)), None)
    if cores is None:
        return (
            f"Running the whole chain in the loader would be slower on any machine with up to {MOST_WORKERS} cores "
            "(predicted).",
        )
    return (
        f"Running the whole chain in the loader would be as fast as any placement with {cores} or more cores "
        "(predicted).",
    )


def _step_crossover(report: Report) -> Iterable[str]:
    """Find the model step by bisection: a slower model leaves more time to the workers."""
    assert report.ceiling is not None

    def keeps_up(step_ms: float) -> bool:
        assert report.ceiling is not None
        return _loader_keeps_up(replace(report, ceiling=_ceiling(report.ceiling, step_ms)))

    now = report.ceiling.step_ms
    if keeps_up(now):
        return (
            f"Running the whole chain in the loader is as fast as any placement with this model's {format_ms(now)} "
            "step (predicted).",
        )
    step_ms = _least(keeps_up, now, LONGEST_STEP_MS)
    if step_ms is None:
        return ()
    return (
        "Running the whole chain in the loader would be as fast as any placement with a model step of "
        f"{format_ms(step_ms)} or more (predicted).",
    )


def _least(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return the smallest number for which a monotonic condition holds, to 1 %."""
    if not holds(high):
        return None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _loader_keeps_up(machine: Report) -> bool:
    """Return whether the whole chain in workers is about as fast as any placement."""
    best = _best(machine)
    others = [ms for kind, (ms, _) in best.items() if kind != "cpu"]
    return "cpu" in best and bool(others) and best["cpu"][0] <= CLOSE * min(others)


def _with_cores(report: Report, cores: float) -> Report:
    """Return the report for another number of cores; a part of one core is a slower core.

    Measured contention is dropped: it only applies to this machine's cores. Step times with threads are unchanged.
    """
    now = report.host.usable_cores
    if cores == now:
        return report
    slower = _scaled(report, min(1.0, now) / min(1.0, cores))
    if report.host.has_gpu:  # which is as fast as before
        others = tuple(stage for stage in report.stages if stage.where != "worker")
        workers = tuple(stage for stage in slower.stages if stage.where == "worker")
        parts = (*_parts(slower, "worker"), *_parts(report, "device"))
        slower = replace(slower, ceiling=report.ceiling, stages=(*workers, *others), parts=parts)
    host = replace(report.host, usable_cores=max(1.0, cores), effective_cores=None)
    return replace(slower, host=host, contention=())


def _with_ranks(report: Report, ranks: int) -> Report:
    """Return the report for another number of ranks on this machine, which share its cores."""
    report = _with_cores(report, report.host.usable_cores * report.host.local_ranks / ranks)
    return replace(report, host=replace(report.host, local_ranks=ranks))


def _rank_limit(report: Report) -> Iterable[str]:
    """Describe from how many ranks on training waits for data at every cut; only with a GPU, as in ``crossovers``."""
    stages, threads = Stages(report, replicates=1), report.host.torch_threads
    steps = [stages.device(cut, "batched", threads) for cut in report.chain.cuts]
    known = [float(step[0]) for step in steps if step is not None]
    if not known or not report.host.has_gpu:
        return
    counts = range(1, MOST_COUNTED["ranks"] + 1)
    times = ((ranks, min(ms for ms, _ in _best(_with_ranks(report, ranks)).values())) for ranks in counts)
    ranks = next((ranks for ranks, ms in times if ms > CLOSE * min(known)), 0)
    if not ranks:
        yield f"Loading would not be the bottleneck with up to {MOST_COUNTED['ranks']} ranks (predicted)."
    elif ranks == 1:
        yield "Loading would be the bottleneck even with 1 rank (predicted)."
    else:
        cores = report.host.usable_cores * report.host.local_ranks / ranks
        yield f"Loading would be the bottleneck with {ranks} or more ranks, at {cores:.2g} cores each (predicted)."


def _best(report: Report) -> dict[str, tuple[float, Candidate]]:
    """Return the best candidate of each placement with its mean step time."""
    stages, ops = Stages(report, replicates=1), len(report.chain.ops)
    most_workers = max(1, int(min(MOST_WORKERS, report.host.usable_cores)))
    found: dict[str, list[tuple[float, Candidate]]] = {}
    for cut in report.chain.cuts:
        kind = placement_of(cut, ops)
        for engine, workers in product(worker_engines(report, cut, stages), range(most_workers + 1)):
            if not workers and engine != "audiomentations":
                continue
            candidate = Candidate(kind, cut, engine, num_workers=workers, threads=threads_beside(report, workers))
            ms = mean_ms(stages, candidate)
            if ms is not None:
                found.setdefault(kind, []).append((ms, candidate))
    return {
        kind: min(candidates, key=lambda it: (round(it[0], 2), it[1].num_workers)) for kind, candidates in found.items()
    }


def _ceiling(ceiling: Ceiling, step_ms: float) -> Ceiling:
    factor = step_ms / ceiling.step_ms
    low, high = ceiling.ci_ms
    return replace(
        ceiling,
        step_ms=step_ms,
        ci_ms=(low * factor, high * factor),
        clips_per_second=ceiling.clips_per_second / factor,
    )


def variant_sentences(report: Report) -> tuple[str, ...]:
    """Describe the measurement of each variant, and whether loading would keep up with it."""
    return tuple(_sentence(report, variant) for variant in report.variants)


def _sentence(report: Report, variant: Variant) -> str:
    if variant.step_ms is None or variant.ci_ms is None:
        return f"{variant.name} was not measured: {variant.reason}"
    if variant.start_seconds is not None and variant.now_start_seconds is not None:
        return (
            f"{variant.name}: a step takes {format_ms(variant.step_ms)} ({format_interval(*variant.ci_ms)}) instead of "
            f"{format_ms(variant.now_ms)}; the first batch comes after {format_seconds(variant.start_seconds)} instead "
            f"of {format_seconds(variant.now_start_seconds)} (measured)."
        )
    if not variant.changes_training:
        return _engine_sentence(report, variant, variant.step_ms, variant.ci_ms)
    now, then = variant.now_batch / variant.now_ms, variant.batch_size / variant.step_ms
    return (
        f"{variant.name} (it changes training): the model's step takes {format_ms(variant.step_ms)} "
        f"({format_interval(*variant.ci_ms)}) instead of {format_ms(variant.now_ms)}, {format_rate(1e3 * then)} "
        f"instead of {format_rate(1e3 * now)}, {then / now:.2f}x (measured).{_loading(report, variant)}"
    )


def _engine_sentence(report: Report, variant: Variant, step_ms: float, ci_ms: Interval) -> str:
    plan = report.recommendation
    found = (
        f"{variant.name}: a step takes {format_ms(step_ms)} ({format_interval(*ci_ms)}) instead of "
        f"{format_ms(variant.now_ms)} with plain batched ops (measured)"
    )
    if any(variant.name == f"device_engine={engine!r}" for engine in NEVER_RECOMMENDED):
        return f"{found}. Its audio differs from that of audiomentations, so it is never recommended."
    wins = plan is not None and variant.name == f"device_engine={plan.device_engine!r}"
    return f"{found}: {'it is in the plan' if wins else 'it is not faster here'}."


def _loading(report: Report, variant: Variant) -> str:
    """Describe whether the recommended loader would keep up (predicted); an empty string if it would."""
    assert variant.step_ms is not None
    candidate = report.recommendation or report.current
    loader = loader_ms(report, candidate) if candidate is not None and report.loader_costs else None
    if candidate is None or loader is None or not candidate.num_workers:
        return ""
    needs = loader[1] * variant.batch_size / variant.now_batch
    if needs <= variant.step_ms:
        return ""
    return f" Loading ({candidate.name}) would then be the bottleneck, with {format_ms(needs)} a batch (predicted)."
