"""How fast is the batched engine? Beside torch-audiomentations and audiomentations, op by op and for three chains.

    python scripts/bench_engine.py                              a few minutes on a CPU
    python scripts/bench_engine.py --device cuda --batch 128 --json result.json
    python scripts/bench_engine.py --ops Gain,Shift --no-chains
    python scripts/bench_engine.py --load result.json

All engines take turns on the same batch of real speech with the same number of threads. Everything is always applied
(p = 1).
"""

import math
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import click
import numpy as np
import psutil
import torch
from bench_engine_records import (
    DEVICE_PART,
    LEAST,
    LIBRARY_OUR_DRAWS,
    NATIVE,
    OURS,
    RECORDED,
    REFERENCE,
    TORCHAUDIO,
    Asked,
    Exponents,
    Result,
    Row,
    Size,
)
from bench_engine_report import terminal
from bench_engine_work import (
    CHANNELS,
    Work,
    by_torchaudio,
    declared_chains,
    declared_ops,
    device_part,
    least,
    library_our_draws,
    native,
    ours,
    recorded,
    reference,
    speech,
    why_not_library,
    worker_engines,
    wrapper,
)
from compact_records import write_compact
from rich.console import Console
from rich.markdown import Markdown

from audioaug import Chain
from audioaug.advise.progress import Progress
from audioaug.advise.settings import demo_chain
from audioaug.core import Op, why_not_on_device
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.errors import AudioaugError, UsageError, did_you_mean
from audioaug.loader.prefetch import as_device
from audioaug.measure import Clock, clock_for, host_facts, interleave, peak_extra_bytes, repeat, trace
from audioaug.measure.repeat import seconds_per_call
from audioaug.records import DeviceEngine, Timing, read_record
from audioaug.units import format_bytes, format_seconds

# Which sizes fit

MOST_BATCHES = 80
"""The most memory that any engine may need, in batches: ours needs 50 for music (by operations), others more."""

CALLS_BESIDE = 8
"""How often each engine is called besides the rounds: warm-up, kernels, memory, where time goes."""


def why_not(name: str, size: Size, device: torch.device, known: list[Row], seconds: float, rounds: int) -> str:
    """Return why a chain is not measured at a size, or an empty string.

    Args:
        name: of the chain.
        size: of the batch.
        device: where the engines run.
        known: what was measured of it at other sizes; of the nearest, times are taken to grow with the samples.
        seconds: that it may take.
        rounds: that it gets at least.
    """
    needs, free = MOST_BATCHES * 4 * size.batch * size.samples, free_bytes(device)
    if needs > free:
        return f"{name}, {size}: may need {format_bytes(needs)} of memory, and {format_bytes(free)} are free."
    measured = [row for row in known if row.times]
    nearest = min(measured, key=lambda row: abs(math.log(_samples(size) / _samples(row.size))), default=None)
    takes = expected_seconds(nearest, size, rounds) if nearest else 0.0
    if takes > seconds:
        return f"{name}, {size}: would take {format_seconds(takes)}, more than {format_seconds(seconds)}."
    return ""


def expected_seconds(row: Row, size: Size, rounds: int) -> float:
    """Return how long a row of another size takes, by this one; engines with a graph are not measured there."""
    beside = {REFERENCE, *RECORDED.values()}
    one = sum(timing.median for engine, timing in row.times.items() if engine not in beside)
    return (rounds + CALLS_BESIDE) * one * _samples(size) / _samples(row.size)


def free_bytes(device: torch.device) -> int:
    """Return how much memory is free there."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def _samples(size: Size) -> int:
    return size.batch * size.samples


# Measuring

COPIED_BYTES = {"cpu": 2**26, "cuda": 2**30}
REFERENCE_SECONDS = 0.2
"""How long the reference may take for the clips that it is timed with: some of the batch, at least one."""

CLEARLY = 1.3
"""A way that takes this many times as long as another is the slower one."""

GROWTH = {
    "cpu": {"batch": (32, 64, 128), "seconds": (4, 8, 16), "ops": (1, 2, 3)},
    "cuda": {"batch": (32, 64, 128, 256), "seconds": (4, 8, 16, 30), "ops": (1, 2, 4)},
}
"""How many clips, how long, and how many times each op: the others are the first of theirs meanwhile.

Other devices get the sizes of a CPU.
"""


def copy_speed(device: torch.device) -> float:
    """Return bytes read and written a second when a large tensor is copied."""
    source = torch.ones(COPIED_BYTES.get(device.type, 2**26) // 4, device=device)
    target = torch.empty_like(source)
    timing = repeat(lambda: target.copy_(source), clock_for(device), seconds=2.0, at_most=30)
    return 2 * source.numel() * 4 / timing.median


def measure(
    name: str,
    work: Op | Chain,
    size: Size,
    device: torch.device,
    copy_speed: float,
    seconds: float,
    rounds: int,
    also: Sequence[DeviceEngine] = (),
) -> Row:
    """Time an op or a chain with every engine that has it, in turn, for about ``seconds``.

    Args:
        name: what to call it.
        work: an op, or a chain.
        size: of the batch.
        device: where the engines run (but for the reference).
        copy_speed: bytes a second, see ``copy_speed``.
        seconds: about how long to time them.
        rounds: how often at least.
        also: engines with a graph, for a chain.
    """
    is_chain = isinstance(work, Chain)
    chain = work if isinstance(work, Chain) else Chain([work], size.sample_rate)
    row = Row(name, is_chain, size)
    if reason := _why_not(chain):
        return replace(row, reasons={OURS: reason})
    x_BCT, clock = speech(size, CHANNELS.get(name, 1)).to(device), clock_for(device)
    works, reasons = _works(chain, x_BCT)
    _drop_slower_way(works, clock)
    moved = 4 * (x_BCT.numel() + _result(works[OURS]).numel())
    try:
        works[REFERENCE], share = _reference(chain, [clip.numpy() for clip in x_BCT.cpu().squeeze(1)])
    except AudioaugError as error:
        reasons[REFERENCE] = str(error)
    if work_of_torchaudio := by_torchaudio(chain, x_BCT):
        works[TORCHAUDIO] = work_of_torchaudio
    if asked_of_all := least(chain.ops, x_BCT):
        works[LEAST] = asked_of_all
    replayed = {}
    for engine in also if is_chain else ():
        works[RECORDED[engine]], replayed[RECORDED[engine]] = recorded(chain, x_BCT, engine)
    times = interleave(works, clock, seconds=seconds, at_least=rounds)
    if REFERENCE in times:
        factor = 1 / share / size.threads
        times[REFERENCE] = Timing(tuple(entry * factor for entry in times[REFERENCE].seconds))
    row = replace(row, times=times, reasons=reasons, floor_seconds=moved / copy_speed, replayed=replayed)
    asked = {engine: _asked(works[engine], device) for engine in (DEVICE_PART, row.rival) if engine}
    return replace(row, asked=asked, hottest=_hottest(works[DEVICE_PART], device))


def _why_not(chain: Chain) -> str:
    return next((reason for op in chain.ops if (reason := why_not_on_device(op))), "")


def _works(chain: Chain, x_BCT: torch.Tensor) -> tuple[dict[str, Work], dict[str, str]]:
    """Return engines that run, by name, and why the others do not."""
    works: dict[str, Work] = {}
    reasons: dict[str, str] = {}
    makers = {OURS: ours, DEVICE_PART: device_part, LIBRARY_OUR_DRAWS: library_our_draws, NATIVE: native}
    for name, make in makers.items():
        reason = why_unavailable() or why_not_library(chain) if name in (LIBRARY_OUR_DRAWS, NATIVE) else ""
        try:
            if not reason:
                work = make(chain, x_BCT)
                work()
                works[name] = work
        except Exception as error:  # anything the other library raises; ours must not
            if name in (OURS, DEVICE_PART):
                raise
            reason = f"{type(error).__name__}: {error}"
        if reason:
            reasons[name] = reason
    return works, reasons


def _drop_slower_way(works: dict[str, Work], clock: Clock) -> None:
    """Drop the way to use torch-audiomentations that is clearly slower, by one call of each: the faster one counts."""
    seconds = {way: seconds_per_call(works[way], clock, 1) for way in (LIBRARY_OUR_DRAWS, NATIVE) if way in works}
    for way, took in seconds.items():
        if took > CLEARLY * min(seconds.values()):
            del works[way]


def _reference(chain: Chain, clips: list[np.ndarray]) -> tuple[Work, float]:
    """Return audiomentations on some of the clips, and which share of them that is."""
    one = reference(chain, clips[:1])
    one()
    begin = time.perf_counter()
    one()
    took = time.perf_counter() - begin
    count = max(1, min(len(clips), int(REFERENCE_SECONDS / took)))
    return reference(chain, clips[:count]), count / len(clips)


def _asked(work: Work, device: torch.device) -> Asked:
    found = trace(work, device)
    return Asked(found.kernels, found.waits, peak_extra_bytes(work, device))


def _result(work: Work) -> torch.Tensor:
    result = work()
    assert isinstance(result, torch.Tensor)
    return result


def _hottest(work: Work, device: torch.device, most: int = 5) -> tuple[tuple[str, float], ...]:
    """Return the operators that most of the time goes to, each with its share."""
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, activity.CUDA] if device.type == "cuda" else [activity.CPU]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=activities) as profile:
            work()
    times = {
        event.key: event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total
        for event in profile.key_averages()
    }
    total = sum(times.values()) or 1.0
    return tuple((name, times[name] / total) for name in sorted(times, key=lambda name: -times[name])[:most])


# How it grows


def exponents(name: str, chain: Chain, device: torch.device, seconds: float, rounds: int) -> Exponents:
    """Fit how the time of our engine grows with each of batch, clip length and number of ops."""
    points = sizes_that_grow(device)
    works: dict[str, Work] = {}
    for what, values in points.items():
        for value in values:
            at = {**{other: points[other][0] for other in points}, what: value}
            x_BCT = speech(Size(at["batch"], at["seconds"], chain.sample_rate, 0)).to(device)
            longer = Chain([op for op in chain.ops for _ in range(at["ops"])], chain.sample_rate)
            works[f"{what} {value}"] = ours(longer, x_BCT)
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return Exponents(name, **{what: _slope(values, what, times) for what, values in points.items()})


def sizes_that_grow(device: torch.device) -> dict[str, tuple[int, ...]]:
    """Return the sizes that a chain is timed at on a device, see ``GROWTH``."""
    return GROWTH.get(device.type, GROWTH["cpu"])


def _slope(values: Sequence[float], what: str, times: dict[str, Timing]) -> float:
    seconds = [times[f"{what} {value}"].median for value in values]
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


# The benchmark

WIDTH = 170
SWEEP = {"batch": (8, 32, 128, 256), "seconds": (1.0, 10.0, 30.0), "sample_rate": (16000, 48000)}
"""What ``--sweep`` measures the chains with besides, and ops that are named, one at a time."""


@dataclass(frozen=True)
class Options:
    """What to measure, and for how long."""

    size: Size
    device: torch.device
    ops: tuple[str, ...]
    chains: bool
    sweep: bool
    seconds: float
    rounds: int
    most_seconds: float = 120.0
    also: tuple[DeviceEngine, ...] = ()
    """At the size that is asked for, not at others of a sweep: compiling takes tens of seconds for each layout."""


def run(options: Options, progress: Progress) -> Iterator[Result]:
    """Measure; yield the result so far after each step."""
    torch.set_num_threads(options.size.threads)
    speed = copy_speed(options.device)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    result = Result(host_facts(options.device), now, speed)
    for name, work, size, seconds in _everything(options):
        with progress.stage(f"{name}, {size}", seconds):
            known = [row for row in result.rows if row.name == name]
            reason = why_not(name, size, options.device, known, options.most_seconds, options.rounds)
            if reason:
                row = Row(name, isinstance(work, Chain), size, reasons={OURS: reason})
            else:
                also = options.also if size == options.size else ()
                row = measure(name, work, size, options.device, speed, seconds, options.rounds, also)
        load = max(result.load, psutil.getloadavg()[0])
        result = replace(result, rows=(*result.rows, row), load=load)
        yield result
    if options.chains:
        yield from _growth_workers_wrapper(options, result, progress)


def _everything(options: Options) -> Iterator[tuple[str, Op | Chain, Size, float]]:
    """Yield ops, then chains, each with its size and how long to time it; other sizes of ops only if they are named."""
    for size in _sizes(options) if options.ops else [options.size]:
        for name, op in declared_ops(list(options.ops), size.sample_rate).items():
            yield name, op, size, options.seconds
    for size in _sizes(options) if options.chains else ():
        for name, chain in declared_chains(size.sample_rate).items():
            yield name, chain, size, 3 * options.seconds


def _sizes(options: Options) -> list[Size]:
    """Return the size that was asked for and, in a sweep, others that differ from it in one number."""
    swept = [replace(options.size, **{what: value}) for what, values in SWEEP.items() for value in values]
    return list(dict.fromkeys([options.size, *(swept if options.sweep else ())]))


def _growth_workers_wrapper(options: Options, result: Result, progress: Progress) -> Iterator[Result]:
    chains = declared_chains(options.size.sample_rate)
    for name, chain in chains.items():
        with progress.stage(f"{name}: how its time grows", 3 * options.seconds):
            fit = exponents(name, chain, options.device, 3 * options.seconds, min(options.rounds, 3))
        result = replace(result, exponents=(*result.exponents, fit))
        yield result
    for name, chain in {**chains, "demo": demo_chain(options.size.sample_rate)}.items():
        with progress.stage(f"{name} in workers", 8 * options.seconds):  # each turn starts workers
            pair = worker_engines(name, chain, options.size, 8 * options.seconds, options.rounds)
        result = replace(result, workers=(*result.workers, pair))
        yield result
    with progress.stage("what an op costs the host", 3 * options.seconds):
        cost = wrapper(options.size, options.device, 3 * options.seconds, options.rounds)
    yield replace(result, wrapper=cost)


def _recorded(also: str) -> tuple[DeviceEngine, ...]:
    names = tuple(name.strip() for name in also.split(",") if name.strip())
    for name in names:
        if name not in RECORDED:
            raise UsageError(f"--also knows no {name!r}.", did_you_mean(name, RECORDED))
    return tuple(engine for engine in RECORDED if engine in names)


@click.command(help=(__doc__ or "").partition("\n\n")[0], context_settings={"max_content_width": 100})
@click.option("--device", default="cpu", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--batch", default=32, show_default=True, type=click.IntRange(2), help="Clips in a batch.")
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.25), help="Length of a clip.")
@click.option("--sample-rate", default=16000, show_default=True, type=click.IntRange(8000), help="In Hz.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1), help="Threads for each engine.")
@click.option("--ops", default="", metavar="A,B", help="Only these ops. [default: all]")
@click.option("--chains/--no-chains", default=True, show_default=True, help="Chains, growth, worker engines, wrapper.")
@click.option("--sweep", is_flag=True, help="Also batches of 8 to 256, 1 to 30 s, 16 and 48 kHz: chains, ops named.")
@click.option("--most-seconds", default=120.0, show_default=True, help="Leave out what would take longer than that.")
@click.option("--also", default="", metavar="A,B", help="Also chains as cuda_graph, torch_compile, at one size.")
@click.option("--seconds-per-op", default=1.5, show_default=True, type=click.FloatRange(0), help="Chains: three times.")
@click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(1), help="At least, however long they take."
)
@click.option("--json", "json_", metavar="FILE", help="Write the results as JSON, while they come.")
@click.option("--load", metavar="FILE", help="Show the JSON of an earlier run instead of measuring.")
def main(
    device: str,
    batch: int,
    seconds: float,
    sample_rate: int,
    threads: int,
    ops: str,
    chains: bool,
    sweep: bool,
    most_seconds: float,
    also: str,
    seconds_per_op: float,
    rounds: int,
    json_: str | None,
    load: str | None,
) -> None:
    """Measure or load, then print."""
    warnings.filterwarnings("ignore", module="audiomentations|librosa|torch_audiomentations|julius|torchaudio")
    names = tuple(name.strip() for name in ops.split(",") if name.strip())
    size = Size(batch, seconds, sample_rate, threads)
    try:
        if load:
            result = read_record(load, Result)
        else:
            options = Options(
                size, as_device(device), names, chains, sweep, seconds_per_op, rounds, most_seconds, _recorded(also)
            )
            with Progress() as progress:
                for result in run(options, progress):
                    if json_:
                        write_compact(result, json_)
        Console(width=None if sys.stdout.isatty() else WIDTH).print(Markdown(terminal(result)))
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
