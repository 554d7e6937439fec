"""Measure engines on one batch: times in turn, then kernels, waits and memory, and where the time goes."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from audioaug import Chain
from audioaug.core import Op, why_not_on_device
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.errors import AudioaugError
from audioaug.measure import Clock, clock_for, interleave, peak_extra_bytes, repeat, trace
from audioaug.measure.repeat import seconds_per_call
from audioaug.records import DeviceEngine, Timing
from engine_bench import engines
from engine_bench.engines import Work
from engine_bench.least import least
from engine_bench.records import (
    DEVICE_PART,
    LEAST,
    LIBRARY_OUR_DRAWS,
    NATIVE,
    OURS,
    RECORDED,
    REFERENCE,
    Asked,
    Exponents,
    Row,
    Size,
)

COPIED_BYTES = {"cpu": 2**26, "cuda": 2**30}
REFERENCE_SECONDS = 0.2
"""How long the reference may take for the clips that it is timed with: some of the batch, at least one."""

CLEARLY = 1.3
"""A way that takes so many times as long as another is not the faster one."""

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
    """Time an op or a chain with every engine that has it, in turn, for about so many seconds.

    Args:
        name: what to call it.
        work: an op, or a chain.
        size: of the batch.
        device: where the engines run (but for the reference).
        copy_speed: bytes a second, see ``copy_speed``.
        seconds: about how long to time them.
        rounds: how often at least.
        also: engines that record, for a chain.
    """
    is_chain = isinstance(work, Chain)
    chain = work if isinstance(work, Chain) else Chain([work], size.sample_rate)
    row = Row(name, is_chain, size)
    if reason := _why_not(chain):
        return replace(row, reasons={OURS: reason})
    x_BCT, clock = engines.speech(size, engines.CHANNELS.get(name, 1)).to(device), clock_for(device)
    works, reasons = _works(chain, x_BCT)
    _drop_slower_way(works, clock)
    moved = 4 * (x_BCT.numel() + _result(works[OURS]).numel())
    try:
        works[REFERENCE], share = _reference(chain, [clip.numpy() for clip in x_BCT.cpu().squeeze(1)])
    except AudioaugError as error:
        reasons[REFERENCE] = str(error)
    if asked_of_all := least(chain.ops, x_BCT):
        works[LEAST] = asked_of_all
    replayed = {}
    for engine in also if is_chain else ():
        works[RECORDED[engine]], replayed[RECORDED[engine]] = engines.recorded(chain, x_BCT, engine)
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
    makers = {
        OURS: engines.ours,
        DEVICE_PART: engines.device_part,
        LIBRARY_OUR_DRAWS: engines.library_our_draws,
        NATIVE: engines.native,
    }
    for name, make in makers.items():
        reason = why_unavailable() or engines.why_not_library(chain) if name in (LIBRARY_OUR_DRAWS, NATIVE) else ""
        try:
            if not reason:
                work = make(chain, x_BCT)
                work()
                works[name] = work
        except Exception as error:  # whatever the other library raises; ours must not
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
    one = engines.reference(chain, clips[:1])
    one()
    begin = time.perf_counter()
    one()
    took = time.perf_counter() - begin
    count = max(1, min(len(clips), int(REFERENCE_SECONDS / took)))
    return engines.reference(chain, clips[:count]), count / len(clips)


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
            x_BCT = engines.speech(Size(at["batch"], at["seconds"], chain.sample_rate, 0)).to(device)
            longer = Chain([op for op in chain.ops for _ in range(at["ops"])], chain.sample_rate)
            works[f"{what} {value}"] = engines.ours(longer, x_BCT)
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return Exponents(name, **{what: _slope(values, what, times) for what, values in points.items()})


def sizes_that_grow(device: torch.device) -> dict[str, tuple[int, ...]]:
    """Return the sizes that a chain is timed at on a device, see ``GROWTH``."""
    return GROWTH.get(device.type, GROWTH["cpu"])


def _slope(values: Sequence[float], what: str, times: dict[str, Timing]) -> float:
    seconds = [times[f"{what} {value}"].median for value in values]
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])
