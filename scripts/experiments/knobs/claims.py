"""What is said about making CPU, RAM and GPU work together, and what was found about each."""

from audioaug.records import TARGETS, Window
from audioaug.units import format_bytes, format_percent, format_seconds, plural, significant
from experiments.claims import Claim, Finding, graded, judge
from experiments.knobs.model_step import ACCUMULATED, LARGE
from experiments.knobs.records import Knobs
from experiments.knobs.starting import FRESH, PERSISTENT
from experiments.races import Speed
from experiments.showing import times

SAYS = {
    "B1": "A typical step is 60 % data loading and 40 % GPU.",
    "B2": "num_workers from 4 to 8 gives 20 to 40 %.",
    "B3": "Pinned memory with non_blocking=True makes transfers 10 to 30 % faster.",
    "B4": "Mixed precision makes training 30 to 50 % faster at half the memory.",
    "B5": "Gradient accumulation gives an effective batch of 128 in the memory of 32.",
    "B6": "Overlapping CPU and GPU work gives 50 to 80 %.",
    "B7": "All together give 2.4 to 3.2 times the throughput (2.5 to 7 images/s).",
    "B8": "Aim at GPU 95 to 100 %, CPU 60 to 80 %, RAM 40 to 60 %.",
    "B9": "The knobs are num_workers, pin_memory, prefetch_factor, persistent_workers, batch size, mixed precision and "
    "accumulation steps.",
    "B10": "Memory is a ladder: CPU cache ~1 TB/s, VRAM ~1000 GB/s, RAM ~50 GB/s, SSD ~3 GB/s, HDD ~100 MB/s.",
    "B11": "Keep hot data in VRAM, warm data in RAM, cold data on SSD.",
}
NO_GPU = "No GPU here."
CLAIMED = {"CPU cache": 1e12, "VRAM": 1e12, "RAM": 50e9, "disk": 3e9}
"""Bytes a second."""

PUBLISHED = {**TARGETS, "ram_percent": (40.0, 60.0)}
"""The bands of the claim. The monitor's own leaves out that RAM should be full."""


def claims(knobs: Knobs) -> tuple[Claim, ...]:
    """Put each claim beside what was measured here."""
    findings = {
        "B1": _typical_step(knobs),
        "B2": _gains(knobs.more_workers, 1.2),
        "B3": _pinned(knobs),
        "B4": _mixed_precision(knobs),
        "B5": _accumulation(knobs),
        "B6": _gains(knobs.overlap, 1.5),
        "B7": _together(knobs),
        "B8": _targets(knobs),
        "B9": _each_knob(knobs),
        "B10": _hierarchy(knobs),
        "B11": _hot_and_cold(knobs),
    }
    return judge(SAYS, findings)


def _typical_step(knobs: Knobs) -> Finding:
    share = knobs.default.wait_ms / knobs.default.total_ms
    found = (
        f"Default DataLoader: {format_percent(share)} of {significant(knobs.default.total_ms, 3)} ms is loading, "
        f"augmentation included, {format_percent(1 - share)} the model on {knobs.host.device}."
    )
    return found, "yes" if abs(share - 0.6) <= 0.1 else "no"


def _gains(speed: Speed | None, least: float) -> Finding:
    """Judge a gain: it is there if it is large enough, and clearly a gain at all."""
    if speed is None:
        return "Not measured.", "not tested"
    large = speed.times >= least
    return f"{speed.name} over {speed.of}: {times(speed.times, speed.times_ci)}.", graded(
        large, large and speed.clearly_faster
    )


def _pinned(knobs: Knobs) -> Finding:
    if not knobs.copies_ms or "pinned" not in knobs.copies_ms:
        return f"{NO_GPU} Nothing is copied: batches stay where workers put them.", "not tested"
    gain = knobs.copies_ms["pageable"] / knobs.copies_ms["pinned"]
    copies = ", ".join(f"{name} {significant(ms, 3)} ms" for name, ms in knobs.copies_ms.items())
    return f"A batch's copy: {copies}: {gain:.2f} x.", graded(gain >= 1.1)


def _mixed_precision(knobs: Knobs) -> Finding:
    full, half = knobs.step("fp32"), knobs.step("bf16")
    faster, smaller = full.ms / half.ms, half.peak_bytes / full.peak_bytes
    training = knobs.knob("mixed precision")
    found = (
        f"bf16 over fp32 on {knobs.host.device}: {faster:.2f} x the speed, {format_percent(smaller)} of the memory. "
        f"Training by the default DataLoader, with all that it waits for: {times(training.times, training.times_ci)}."
    )
    return found, graded(faster >= 1.3, smaller <= 0.6)


def _accumulation(knobs: Knobs) -> Finding:
    small, large, accumulated = knobs.step("fp32"), knobs.step(str(LARGE)), knobs.step(ACCUMULATED)
    found = (
        f"128 in four times 32: {format_bytes(accumulated.peak_bytes)} at most at once; 32 alone "
        f"{format_bytes(small.peak_bytes)}, 128 at once {format_bytes(large.peak_bytes)}. It takes "
        f"{accumulated.ms / large.ms:.2f} x the time of 128 at once."
    )
    return found, graded(accumulated.peak_bytes <= 1.2 * small.peak_bytes)


def _together(knobs: Knobs) -> Finding:
    speed = knobs.together
    before = knobs.batch / knobs.default.total_ms * 1e3
    found = (
        f"{times(speed.times, speed.times_ci)} from the default DataLoader to: {knobs.plan.name} "
        f"({before:.0f} to {speed.clips_per_second:.0f} clips/s)."
    )
    return found, graded(speed.times >= 2.4, speed.times_ci[0] >= 2.4)


def _targets(knobs: Knobs) -> Finding:
    if not knobs.windows:
        return "Not measured.", "not tested"
    seen, inside = [], []
    for name, (low, high) in PUBLISHED.items():
        after = mean_of(knobs.windows["recommended"], name)
        before = mean_of(knobs.windows["default"], name)
        if after is None or before is None:
            continue
        seen.append(f"{name.partition('_')[0].upper()} {before:.0f} % before, {after:.0f} % after")
        inside.append(low <= after <= high)
    found = f"{'; '.join(seen)}. {'' if knobs.host.has_gpu else NO_GPU + ' '}"
    faster = f"Throughput is what counts: {times(knobs.together.times, knobs.together.times_ci)}."
    return found + faster, graded(*inside)


def mean_of(windows: tuple[Window, ...], name: str) -> float | None:
    """Return the mean of one number of a monitor's windows; ``None`` where it cannot be known here."""
    values = [value for window in windows if (value := getattr(window, name)) is not None]
    return sum(values) / len(values) if values else None


def _each_knob(knobs: Knobs) -> Finding:
    named = ("num_workers", "pin_memory", "prefetch_factor", "batch size, twice", "mixed precision")
    speeds = [speed for speed in knobs.alone if speed.name in named]
    found = "; ".join(f"{speed.name} {times(speed.times, speed.times_ci)}" for speed in speeds)
    starts = knobs.starts_seconds or {}
    if starts:
        found += (
            f"; the first batch of an epoch comes after {format_seconds(starts[PERSISTENT])} with persistent workers, "
            f"{format_seconds(starts[FRESH])} without (an epoch has {plural(knobs.steps_per_epoch, 'step')})"
        )
    others = ("worker engine", "placement", "threads")
    more = "; ".join(f"{s.name} {times(s.times, s.times_ci)}" for s in knobs.alone if s.name in others)
    found += f". Knobs that it does not name: {more}."
    return found, graded(*(speed.clearly_faster for speed in speeds))


def _hierarchy(knobs: Knobs) -> Finding:
    here = {level.name: level.bytes_per_second for level in knobs.levels if level.bytes_per_second}
    found = ", ".join(f"{name} {format_rate(rate)}" for name, rate in here.items())
    near = [CLAIMED[name] / 2 <= rate <= 2 * CLAIMED[name] for name, rate in here.items() if name in CLAIMED]
    return f"{found}; the cache is one core's. (Holds: within a factor of 2.)", graded(*near)


def format_rate(bytes_per_second: float) -> str:
    """Format bytes a second in the unit of the claims."""
    return f"{significant(bytes_per_second / 1e9, 2)} GB/s"


def _hot_and_cold(knobs: Knobs) -> Finding:
    reads = knobs.reads_ms or {}
    if not reads:
        return "Not measured.", "not tested"
    found = ", ".join(f"{name} {significant(ms, 2)} ms" for name, ms in reads.items())
    ordered = list(reads.values())
    verdict = graded(ordered == sorted(ordered, reverse=True))
    gpu = "" if knobs.host.has_gpu else f" {NO_GPU}"
    return f"A batch of {knobs.batch} clips: {found}.{gpu}", verdict
