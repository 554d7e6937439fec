"""From torch's default DataLoader to the recommended plan, knob by knob and together, on this machine.

    python scripts/experiment_knobs.py                          about three minutes, report on stdout
    python scripts/experiment_knobs.py --quick --json result.json
    python scripts/experiment_knobs.py --load result.json

A small keyword spotter is trained, with a chain whose augmentation is the bottleneck. The plan is the advisor's. Every
way to feed the training is raced against the default, in turn and in pairs; a ladder turns one knob after the other
until the default has become the plan. ``notebooks/03_working_together.ipynb`` draws what this measures.
"""

import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import yaml
from experiment_shared import (
    MODEL,
    ROOT,
    Claim,
    Finding,
    Say,
    Setup,
    Speed,
    candidate_setup,
    experiment,
    graded,
    judge,
    machine,
    perform,
    quiet,
    race_setups,
    speed,
    timed,
    times,
    to_lines,
)
from threadpoolctl import threadpool_limits
from torch.utils.data import DataLoader, Dataset

from audioaug import Chain, Monitor
from audioaug.advise.candidates import EndlessBatches, cached_batches
from audioaug.advise.model_file import load_training_job
from audioaug.advise.progress import Progress
from audioaug.advise.survey import Options, Survey
from audioaug.advise.training_job import TrainingJob
from audioaug.decide.recommend import allocation
from audioaug.decide.shortlist import placement_of
from audioaug.errors import AudioaugWarning
from audioaug.loader.examples import get_wave
from audioaug.loader.prefetch import as_device, to_device
from audioaug.loader.processes import torch_threads
from audioaug.measure import Clock, clock_for, host_facts, interleave, measure_transfer, peak_extra_bytes, repeat
from audioaug.records import (
    USAGE_TARGETS,
    Allocation,
    Candidate,
    Ceiling,
    HostFacts,
    Interval,
    Measurement,
    Report,
    Window,
)
from audioaug.units import format_bytes, format_percent, format_seconds, plural, significant

# Records


@dataclass(frozen=True)
class Size:
    """How much to measure, in seconds, rounds, examples of a batch, and bytes."""

    batch: int
    advise_seconds: float
    race_seconds: float
    rounds: int
    block_seconds: float
    watch_seconds: float
    step_seconds: float
    file_bytes: int
    workers: tuple[int, int]


QUICK = Size(4, 2, 1, 3, 0.1, 1.0, 0.5, 2**24, (1, 2))
FULL = Size(32, 30, 60, 5, 0.4, 6, 4, 2**29, (4, 8))


@dataclass(frozen=True)
class Rung:
    """The ladder from the default to the plan so far: its speed beside the default, and this knob's share of it all."""

    knob: str
    setting: str
    speed: Speed
    share: float
    allocation: Allocation


@dataclass(frozen=True)
class StepCost:
    """The model's own step, one way: its time, and its peak memory."""

    name: str
    ms: float
    ci_ms: Interval
    peak_bytes: int


@dataclass(frozen=True)
class Level:
    """One level of the memory hierarchy: bytes a second that were read there; ``None`` where it is not here."""

    name: str
    claimed: str
    bytes_per_second: float | None
    how: str


@dataclass(frozen=True)
class Knobs:
    """All that was measured.

    ``starts_seconds`` are those of an epoch, by whether its workers are persistent; ``copies_ms`` and ``reads_ms`` are
    for a batch; ``overlap`` is one worker beside none, ``more_workers`` eight beside four (quick: two beside one).
    """

    host: HostFacts
    chain: tuple[str, ...]
    model: str
    batch: int
    plan: Candidate
    ceiling_ms: float
    default: Allocation
    ladder: tuple[Rung, ...] = ()
    alone: tuple[Speed, ...] = ()
    steps: tuple[StepCost, ...] = ()
    starts_seconds: dict[str, float] | None = None
    steps_per_epoch: int = 0
    copies_ms: dict[str, float] | None = None
    levels: tuple[Level, ...] = ()
    reads_ms: dict[str, float] | None = None
    overlap: Speed | None = None
    more_workers: Speed | None = None
    windows: dict[str, tuple[Window, ...]] | None = None
    claims: tuple[Claim, ...] = ()
    schema_version: int = 1

    @property
    def together(self) -> Speed:
        """The recommended plan beside the default, which is also the result where no knob is to be changed."""
        if self.ladder:
            return self.ladder[-1].speed
        ms = self.default.total_ms
        return Speed("default DataLoader", ms, (ms, ms), self.batch / ms * 1e3)

    def share_words(self, rung: Rung) -> str:
        """Write a knob's share; where the whole is not clearly a gain, there is nothing to share."""
        return format_percent(rung.share) if self.together.clearly_faster else "-"

    def knob(self, name: str) -> Speed:
        """Return what a knob does alone."""
        return next(speed for speed in self.alone if speed.name == name)

    def step(self, name: str) -> StepCost:
        """Return what a way to take the step costs."""
        return next(cost for cost in self.steps if cost.name == name)


# Ways to feed the training

CHAIN = ROOT / "scripts/chains/speech.yaml"
DEFAULT = "default DataLoader"
DEMO = ROOT / "datasets/demo"


def declared_chain(path: Path) -> Chain:
    """Return a chain that is declared with the demo's files, wherever the process was started."""
    return Chain.from_dict(yaml.safe_load(path.read_text().replace("datasets/demo/", f"{DEMO}/")))


class Augmented(Dataset[Any]):
    """A dataset of mono clips (1, T) that are augmented where they are read, as most people do it."""

    def __init__(self, dataset: Any, augment: Callable[..., Any], sample_rate: int) -> None:
        self.dataset, self.augment, self.sample_rate = dataset, augment, sample_rate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        wave_CT, *rest = self.dataset[index]
        return self.augment(wave_CT[0], self.sample_rate)[None], *rest


def augmented(target: TrainingJob) -> Augmented:
    """Return the target's dataset with audiomentations in it."""
    return Augmented(target.dataset, target.chain.to_audiomentations(), int(target.chain.sample_rate))


def torch_setup(name: str, target: TrainingJob, **knobs: Any) -> Setup:
    """Return torch's DataLoader, default but for these knobs, as a setup."""
    queued = (knobs.get("prefetch_factor") or 2) * knobs.get("num_workers", 0) + 2
    return Setup(name, partial(_torch_batches, target, knobs), target.step, target.batch_size, queued)


def _torch_batches(target: TrainingJob, knobs: dict[str, Any]) -> Iterator[Any]:
    batches = EndlessBatches(len(target.dataset), target.batch_size)
    for batch in DataLoader(augmented(target), batch_sampler=batches, **knobs):
        yield to_device(batch, target.device)


def settings_alone(target: TrainingJob, plan: Candidate) -> list[Setup]:
    """Return each knob changed alone (``prefetch_factor`` beside as many workers as the plan has)."""
    default = Candidate("cpu", len(target.chain))
    workers = max(1, plan.num_workers)
    large, halved = replace(target, batch_size=2 * target.batch_size), replace(target, precision="bf16")
    setups = [
        torch_setup("num_workers", target, num_workers=workers),
        torch_setup("prefetch_factor", target, num_workers=workers, prefetch_factor=4),
        candidate_setup("audioaug.Loader, same settings", target, default),
        candidate_setup("worker engine", target, replace(default, worker_engine="batched")),
        candidate_setup("placement", target, Candidate("gpu", target.chain.device_from)),
        replace(torch_setup("threads", target), threads=1),
        torch_setup("batch size, twice", large),
        replace(torch_setup("mixed precision", target), step=halved.step),
    ]
    if target.device.type == "cuda":
        setups.append(torch_setup("pin_memory", target, num_workers=workers, pin_memory=True))
    return setups


def base_of(setup: Setup) -> str:
    """Return which setup one is compared with: the default, or the one that differs in this knob alone."""
    return "num_workers" if setup.name in ("prefetch_factor", "pin_memory") else DEFAULT


def ceiling_setup(target: TrainingJob, batches: list[Any]) -> Setup:
    """Return training on batches that already lie on the device, as a setup."""

    def feed() -> Iterator[Any]:
        while True:
            yield from batches

    return Setup("ceiling", feed, target.step, target.batch_size)


# The ladder

KNOBS = {
    "num_workers": ("num_workers",),
    "prefetch_factor": ("prefetch_factor",),
    "worker engine": ("worker_engine",),
    "placement": ("cut", "device_engine"),
    "threads": ("threads",),
    "pin_memory": ("pin_memory",),
}
"""The knobs in the order in which they are changed, and the fields of a candidate that each sets."""


def ladder(default: Candidate, plan: Candidate, ops: int) -> list[tuple[str, Candidate]]:
    """Return the knobs in which two candidates for ``ops`` ops differ, each with all earlier ones changed too."""
    rungs, candidate = list[tuple[str, Candidate]](), default
    for knob, fields in KNOBS.items():
        changed = replace(candidate, **{name: getattr(plan, name) for name in fields})
        changed = replace(changed, placement=placement_of(changed.cut, ops))
        if changed != candidate:
            rungs.append((knob, changed))
        candidate = changed
    return rungs


def setting(knob: str, candidate: Candidate) -> str:
    """Return in words what a knob is set to."""
    words = {
        "num_workers": plural(candidate.num_workers, "worker"),
        "prefetch_factor": f"{candidate.prefetch_factor} batches a worker",
        "worker engine": f"{candidate.worker_engine} ops in the workers",
        "placement": {"cpu": "all in the loader", "gpu": "all on the device", "split": f"split at {candidate.cut}"}[
            candidate.placement
        ],
        "threads": f"{plural(candidate.threads or 0, 'thread')} of torch beside the workers",
        "pin_memory": "page-locked" if candidate.pin_memory else "pageable",
    }
    return words[knob]


def shares(times: Sequence[float]) -> list[float]:
    """Return each rung's share of the whole gain, which sum to 1: its factor's logarithm over that of them all.

    Args:
        times: throughput after each rung, over that before the first.
    """
    whole = math.log(times[-1])
    factors = [after / before for before, after in zip((1.0, *times[:-1]), times, strict=True)]
    return [math.log(factor) / whole if whole else 0.0 for factor in factors]


# The model's own step

SMALL, LARGE = 32, 128
"""Examples of a batch, and of an effective batch that is accumulated from such."""

ACCUMULATED = f"{LARGE}, accumulated from {SMALL}"


def step_costs(target: TrainingJob, batch: Any, clock: Clock, seconds: float) -> tuple[StepCost, ...]:
    """Time steps on batches of 32 (both precisions) and 128 (whole, accumulated); measure what memory each needs."""
    small, large = resized(batch, SMALL), resized(batch, LARGE)
    works: dict[str, Callable[[], object]] = {
        "fp32": partial(target.step, small),
        "bf16": partial(replace(target, precision="bf16").step, small),
        str(LARGE): partial(target.step, large),
        ACCUMULATED: partial(accumulate, target, [small] * (LARGE // SMALL)),
    }
    times = interleave(works, clock, seconds=seconds, at_least=3)
    peaks = {name: peak_extra_bytes(work, target.device) for name, work in works.items()}
    return tuple(StepCost(name, timing.ms, timing.ci_ms, peaks[name]) for name, timing in times.items())


def accumulate(target: TrainingJob, batches: list[Any]) -> None:
    """Train one step on several batches, one after the other: the gradient is their mean."""
    target.optimizer.zero_grad(set_to_none=True)
    for batch in batches:
        loss = target.loss(target.model(get_wave(batch)), batch)
        (loss / len(batches)).backward()
    target.optimizer.step()


def resized(batch: Any, examples: int) -> Any:
    """Return a batch of ``examples`` examples, made of those of this one."""
    if isinstance(batch, torch.Tensor):
        return batch[torch.arange(examples, device=batch.device) % len(batch)]
    return type(batch)(resized(part, examples) for part in batch)


# The start of an epoch

PERSISTENT, FRESH = "persistent", "started anew"


def epoch_starts(target: TrainingJob, workers: int, epochs: int) -> dict[str, float]:
    """Return the seconds until an epoch's first batch, the first epoch left out, both kinds in turn."""
    loaders = {
        name: DataLoader(
            augmented(target), target.batch_size, num_workers=workers, persistent_workers=name == PERSISTENT
        )
        for name in (PERSISTENT, FRESH)
    }
    taken: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(1 + epochs):
        for name, loader in loaders.items():
            begin = time.perf_counter()
            batches = iter(loader)
            next(batches)
            taken[name].append(time.perf_counter() - begin)
            for _ in batches:  # or the workers would still be busy with this epoch
                pass
    return {name: median(seconds[1:]) for name, seconds in taken.items()}


# Use of the machine

LOOKS = 8


def watch(setup: Setup, device: torch.device, seconds: float) -> tuple[Window, ...]:
    """Train for ``seconds`` and return the windows, the start left out."""
    feeder = setup.feed()
    with torch_threads(setup.threads or torch.get_num_threads()), warnings.catch_warnings():
        for _ in range(setup.queued):
            setup.step(next(feeder))
        end = time.monotonic() + seconds
        warnings.simplefilter("ignore", AudioaugWarning)  # that the bottleneck moved; the windows say so, too
        with Monitor(feeder, device=device, live=False, every=seconds / LOOKS) as monitor:
            for batch in monitor:
                setup.step(batch)
                if time.monotonic() > end:
                    break
    return tuple(monitor.windows)


# Levels of memory

IN_CACHE, IN_RAM = 2**17, 2**28
"""Bytes: of two arrays that fit into a core's second-level cache, and of one that fits into no cache."""

BLOCK = 2**23
SECONDS = 0.5


def levels(device: torch.device, file_bytes: int) -> tuple[Level, ...]:
    """Measure every level that is there."""
    disk, cached = _file_speeds(file_bytes)
    return (
        Level("CPU cache", "1 TB/s", _cache_speed(), "a dot product of two arrays of 128 KiB, one core"),
        Level("VRAM", "1000 GB/s", _vram_speed(device), "a copy of 256 MiB, read and written"),
        Level("RAM", "50 GB/s", _ram_speed(), "a copy of 256 MiB, read and written, all cores"),
        Level("to the GPU", "", _copy_speed(device), "a copy of 256 MiB from page-locked memory"),
        Level("file in RAM", "", cached, "a file read for the second time (page cache)"),
        Level("disk", "3 GB/s (SSD)", disk, "the file after the page cache dropped it"),
        Level("HDD", "100 MB/s", None, "not looked for: what the temporary folder lies on is the disk above"),
    )


def reads(target: TrainingJob, batch_on_device: Any, seconds: float) -> dict[str, float]:
    """Return the milliseconds that it takes to have a batch of audio, by where it is kept."""
    indices = range(target.batch_size)
    in_ram = get_wave(batch_on_device).cpu()
    works: dict[str, Callable[[], object]] = {
        "decoded from files": lambda: torch.stack([torch.as_tensor(target.dataset[index][0]) for index in indices]),
        "in RAM": lambda: torch.stack([in_ram[index] for index in indices]).to(target.device),
    }
    if target.device.type != "cpu":
        on_device = get_wave(batch_on_device)
        order = torch.arange(target.batch_size, device=target.device)
        works["on the device"] = lambda: on_device[order]
    times = interleave(works, clock_for(target.device), seconds=seconds)
    return {name: timing.ms for name, timing in times.items()}


def _rate(moved: int, work: Callable[[], object], device: torch.device) -> float:
    return moved / repeat(work, clock_for(device), seconds=SECONDS, at_most=50).median


def _cache_speed() -> float:
    one, other = np.ones(IN_CACHE // 4, np.float32), np.ones(IN_CACHE // 4, np.float32)
    with threadpool_limits(1):
        return _rate(2 * IN_CACHE, lambda: np.dot(one, other), torch.device("cpu"))


def _ram_speed() -> float:
    return _copy_within(torch.device("cpu"))


def _vram_speed(device: torch.device) -> float | None:
    return None if device.type == "cpu" else _copy_within(device)


def _copy_within(device: torch.device) -> float:
    source = torch.ones(IN_RAM // 4, device=device)
    target = torch.empty_like(source)
    return _rate(2 * IN_RAM, lambda: target.copy_(source), device)


def _copy_speed(device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    pinned = torch.ones(IN_RAM // 4).pin_memory()
    return _rate(IN_RAM, lambda: pinned.to(device, non_blocking=True), device)


def _file_speeds(size: int) -> tuple[float | None, float]:
    """Return how fast a file is read from its disk (``None`` where the page cache cannot be avoided), and again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "block")
        with path.open("wb") as file:
            for _ in range(size // BLOCK):
                file.write(os.urandom(BLOCK))
            file.flush()
            os.fsync(file.fileno())
        if not hasattr(os, "posix_fadvise"):
            return None, _read(path)
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        first = _read(path)
        again = _read(path)
        return (first if first < 0.7 * again else None), again


def _read(path: Path) -> float:
    buffer = bytearray(BLOCK)
    begin = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return path.stat().st_size / (time.perf_counter() - begin)


# Claims

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

PUBLISHED = {**USAGE_TARGETS, "ram_percent": (40.0, 60.0)}
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
        f"128 in four times 32: {format_bytes(accumulated.peak_bytes)} at most; 32 alone "
        f"{format_bytes(small.peak_bytes)}, 128 in one step {format_bytes(large.peak_bytes)}. It takes "
        f"{accumulated.ms / large.ms:.2f} x the time of 128 in one step."
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


# Text


def to_text(knobs: Knobs) -> str:
    """Lay the results out in lines."""
    default = knobs.default
    rows = [
        machine(knobs.host),
        f"{knobs.model}, batches of {knobs.batch}, {' > '.join(knobs.chain)}",
        "",
        f"From the default DataLoader ({default.total_ms:.0f} ms a step; the model alone {knobs.ceiling_ms:.0f} ms) "
        f"to the recommended plan: {times(knobs.together.times, knobs.together.times_ci)}",
    ]
    for rung in knobs.ladder:
        rows.append(f"  + {rung.knob:31} {_speed(rung.speed)}  {knobs.share_words(rung):>6} of the gain")
    rows += ["", "Each knob alone, beside the same without it"]
    rows += [f"  {speed.name:33} {_speed(speed)}" for speed in knobs.alone]
    rows += ["", "The model's own step (ms), and its peak memory"]
    rows += [f"  {c.name:33} {timed(c.ms, c.ci_ms):28} {format_bytes(c.peak_bytes)}" for c in knobs.steps]
    rows += ["", "Reading speed of each level of memory"]
    for level in knobs.levels:
        rate = format_rate(level.bytes_per_second) if level.bytes_per_second else "not here"
        rows.append(f"  {level.name:12} {rate:10} claimed {level.claimed or '-':14} {level.how}")
    for name, windows in (knobs.windows or {}).items():
        seen = {what: mean_of(windows, f"{what}_percent") for what in ("gpu", "cpu", "ram")}
        use = ", ".join(f"{what.upper()} {value:.0f} %" for what, value in seen.items() if value is not None)
        rows.append(f"Use while training, {name}: {use}")
    return "\n".join(rows + to_lines(knobs.claims))


def _speed(speed: Speed) -> str:
    return f"{timed(speed.step_ms, speed.ci_ms):28} {times(speed.times, speed.times_ci)}"


# The experiment


def run(size: Size, device: torch.device, say: Say = quiet) -> Knobs:
    """Measure everything."""
    target = load_training_job(str(MODEL), device, batch_size=size.batch)
    target = replace(target, chain=declared_chain(CHAIN))
    say("the advisor: which plan?")
    report = Survey(target, Options(size.advise_seconds), Progress(quiet=True), lambda _: None).run()
    assert report.recommendation is not None
    plan = Candidate(**{name: getattr(report.recommendation, name) for name in Candidate.__dataclass_fields__})
    say("a race of all knobs, alone and one after the other")
    batches, _ = cached_batches(target, plan)
    knobs = _raced(target, report, plan, batches, size)
    say("workers: none and one, four and eight")
    knobs = replace(knobs, **_workers(target, size))
    say("the model's own step")
    clock = clock_for(device)
    knobs = replace(
        knobs,
        steps=step_costs(target, batches[0], clock, size.step_seconds),
        copies_ms={
            name: timing.ms
            for name, timing in measure_transfer(get_wave(batches[0]).cpu(), device, clock, seconds=1.0).items()
        },
        starts_seconds=epoch_starts(target, max(1, plan.num_workers), size.rounds),
        steps_per_epoch=len(target.dataset) // target.batch_size,
    )
    say("the levels of memory")
    knobs = replace(knobs, levels=levels(device, size.file_bytes), reads_ms=reads(target, batches[0], 1.0))
    say("use of the machine while training")
    setups = {"default": torch_setup("default", target), "recommended": candidate_setup("recommended", target, plan)}
    knobs = replace(knobs, windows={name: watch(setup, device, size.watch_seconds) for name, setup in setups.items()})
    return replace(knobs, claims=claims(knobs))


def _raced(target: TrainingJob, report: Report, plan: Candidate, batches: list[Any], size: Size) -> Knobs:
    """Race the default, the ceiling, each knob alone and each rung of the ladder."""
    default = Candidate("cpu", len(target.chain))
    base, ceiling = torch_setup(DEFAULT, target), ceiling_setup(target, batches)
    alone, rungs = settings_alone(target, plan), ladder(default, plan, len(target.chain))
    climbed = [candidate_setup(candidate.name, target, candidate) for _, candidate in rungs]
    found = race_setups(
        [base, ceiling, *alone, *climbed], clock_for(target.device), size.race_seconds, size.block_seconds, size.rounds
    )
    setups = {setup.name: setup for setup in (base, *alone)}
    speeds = [speed(setup, base, found) for setup in climbed]
    parts = shares([one.times for one in speeds]) if speeds else []
    report = replace(report, ceiling=_ceiling(found["ceiling"], target))
    return Knobs(
        host=host_facts(target.device),
        chain=tuple(op.name for op in target.chain.ops),
        model=target.name,
        batch=target.batch_size,
        plan=plan,
        ceiling_ms=found["ceiling"].step.ms,
        default=_allocated(report, default, found[base.name]),
        ladder=tuple(
            Rung(knob, setting(knob, candidate), one, part, _allocated(report, candidate, found[candidate.name]))
            for (knob, candidate), one, part in zip(rungs, speeds, parts, strict=True)
        ),
        alone=tuple(speed(setup, setups[base_of(setup)], found) for setup in alone),
    )


def _ceiling(found: Measurement, target: TrainingJob) -> Ceiling:
    return Ceiling(found.step.ms, found.step.ci_ms, target.batch_size / found.step.median)


def _allocated(report: Report, candidate: Candidate, found: Measurement) -> Any:
    return allocation(report, replace(candidate, measured_ms=found.step.ms, measured_ci_ms=found.step.ci_ms))


def _workers(target: TrainingJob, size: Size) -> dict[str, Any]:
    """Race torch's DataLoader with none and one worker, and with few and twice as many, in pairs."""
    counts = {0, 1, *size.workers}
    setups: dict[int, Setup] = {n: torch_setup(plural(n, "worker"), target, num_workers=n) for n in counts}
    clock, found = clock_for(target.device), dict[str, Measurement]()
    fewer, more = size.workers
    for pair in ((0, 1), size.workers):
        found |= race_setups([setups[n] for n in pair], clock, size.race_seconds / 5, size.block_seconds, size.rounds)
    return {"overlap": speed(setups[1], setups[0], found), "more_workers": speed(setups[more], setups[fewer], found)}


@experiment(__doc__)
def main(quick: bool, device: str, json_: str | None, load: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Knobs, lambda say: run(size, as_device(device), say), to_text, json_, load)


if __name__ == "__main__":
    main()
