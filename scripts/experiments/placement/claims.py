"""The claims of the audiomentations guide "CPU vs. GPU", and what was found about each."""

import pickle
import subprocess
import sys
import warnings
from math import inf
from typing import Any

from audioaug import Chain, ops
from audioaug.core import why_not_on_device
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.records import Cell
from audioaug.units import format_bytes, format_interval, format_ms, format_percent, plural, significant
from experiments.claims import Claim, Finding, judge
from experiments.placement.records import Experiment, Point, clearly_faster, measured

FILTERS_AND_ROOMS = ("ApplyImpulseResponse", "LowPassFilter", "HighPassFilter", "BandPassFilter", "BandStopFilter")
STALLED = 0.05
"""A step that waits for data for more than this share of it is stalled."""

SAYS = {
    "A1": "A CPU-only library in several workers is often fast enough to keep the GPU busy.",
    "A2": "Augmentation on the CPU uses no VRAM.",
    "A3": "CPU libraries have more transforms; Mp3Compression has no GPU version.",
    "A4": "A CPU-only library is not tied to one tensor library.",
    "A5": "Augmenting on the GPU is faster when the model does not fill the GPU.",
    "A6": "The GPU gains most on convolution: room reverb, filters.",
    "A7": "Augmenting on the GPU removes a data loading bottleneck.",
    "A8": "It depends: find your bottleneck.",
}
"""What the guide says."""


def claims(experiment: Experiment, chain: Chain) -> tuple[Claim, ...]:
    """Put each claim of the guide beside what was measured here."""
    findings = {
        "A1": _keeps_busy(experiment),
        "A2": _no_vram(experiment),
        "A3": _more_transforms(),
        "A4": _no_tensor_library(chain),
        "A5": _faster_for_small_models(experiment),
        "A6": _most_of_all_convolution(experiment),
        "A7": _removes_bottleneck(experiment),
        "A8": _depends(experiment),
    }
    return judge(SAYS, findings)


def _about_gpu(experiment: Experiment, found: str, holds: str) -> Finding:
    """Return a finding about a GPU; say so where none was there to test it."""
    return found if experiment.report.host.has_gpu else f"On the CPU in a GPU's place. {found}", holds


def _keeps_busy(experiment: Experiment) -> Finding:
    points = [point for point in experiment.points if point.repeats == min(p.repeats for p in experiment.points)]
    stalls = [point.stall(point.of("cpu")) for point in points]
    waits = ", ".join(f"{format_percent(s)} of a step ({model_name(p)})" for s, p in zip(stalls, points, strict=True))
    busy = sum(stall <= STALLED for stall in stalls)
    holds = "yes" if busy == len(stalls) else "in part" if busy else "no"
    return _about_gpu(
        experiment,
        f"Whole chain in the loader, {_counts(experiment)}: {waits} is more than the model needs.",
        holds,
    )


def _no_vram(experiment: Experiment) -> Finding:
    point = experiment.points[0]
    cpu, gpu = point.of("cpu"), point.of("gpu")
    seconds = f"CPU time a step: {_cpu_ms(cpu)} with the chain in the loader, {_cpu_ms(gpu)} with it on the device."
    if cpu.vram_bytes is None or gpu.vram_bytes is None:
        return (f"No GPU here, so no VRAM to see. {seconds}", "not tested")
    more = gpu.vram_bytes - cpu.vram_bytes
    found = f"Peak {format_bytes(cpu.vram_bytes)} against {format_bytes(gpu.vram_bytes)} on the device. {seconds}"
    return found, "yes" if more >= 0 else "no"


def _cpu_ms(cell: Cell) -> str:
    return format_ms((cell.cpu_seconds_per_step or 0.0) * 1e3)


def _more_transforms() -> Finding:
    import audiomentations
    from audiomentations.core.transforms_interface import BaseWaveformTransform as OnCpu

    theirs = _count(audiomentations, OnCpu)
    device = "not installed"
    if not why_unavailable():
        import torch_audiomentations
        from torch_audiomentations.core.transforms_interface import BaseWaveformTransform as OnDevice

        device = str(_count(torch_audiomentations, OnDevice) - 1)  # without Identity
    reason = why_not_on_device(ops.Mp3Compression())
    return (
        f"audiomentations has {theirs}, torch-audiomentations {device}. {reason}",
        "yes" if device.isdigit() and theirs > int(device) else "not tested",
    )


def _count(library: Any, base: type) -> int:
    return len({c for c in vars(library).values() if isinstance(c, type) and issubclass(c, base) and c is not base})


WITHOUT_TORCH = """
import pickle, sys
import numpy as np
augment = pickle.load(sys.stdin.buffer)
samples = augment(np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32), 16000)
print(type(samples).__name__, "with torch" if "torch" in sys.modules else "without torch")
"""


def _no_tensor_library(chain: Chain) -> Finding:
    with warnings.catch_warnings():  # it says that a cache is not pickled
        warnings.simplefilter("ignore")
        content = pickle.dumps(chain.to_audiomentations())
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_TORCH]
    result = subprocess.run(command, input=content, capture_output=True, check=True)
    found = result.stdout.decode().strip()
    return (
        f"chain.to_audiomentations() in a process of its own: numpy in, {found}.",
        "yes" if found == "ndarray without torch" else "no",
    )


def _faster_for_small_models(experiment: Experiment) -> Finding:
    least = min(point.repeats for point in experiment.points)
    points = sorted((p for p in experiment.points if p.repeats == least), key=lambda point: point.width)
    pairs = [(point.of("gpu"), point.of("cpu")) for point in points]
    gains = [measured(cpu) / measured(gpu) for gpu, cpu in pairs]
    found = ", ".join(f"{gain:.2f} x ({model_name(point)})" for gain, point in zip(gains, points, strict=True))
    clear = [clearly_faster(gpu, cpu) for gpu, cpu in pairs]
    holds = "yes" if clear[0] and gains[0] > gains[-1] else "in part" if any(clear) else "no"
    holds = holds if len(points) > 1 else "not tested"
    return _about_gpu(
        experiment,
        f"Speed of the device build over the loader, each with {_counts(experiment)}: {found}.",
        holds,
    )


def _most_of_all_convolution(experiment: Experiment) -> Finding:
    stages = {(s.engine, s.op): s for s in experiment.report.stages if s.op is not None}
    gains = {
        stage.name: (stage.ms_per_batch or 0.0) / (stages["batched", op].ms_per_batch or inf)
        for (engine, op), stage in stages.items()
        if engine == "audiomentations" and ("batched", op) in stages
    }
    ranked = sorted(gains, key=gains.__getitem__, reverse=True)
    named = [name for name in ranked if name in FILTERS_AND_ROOMS]
    ahead = sum(name in FILTERS_AND_ROOMS for name in ranked[: len(named)])
    holds = "yes" if ahead == len(named) and gains[named[-1]] > 1 else "in part" if gains[named[0]] > 1 else "no"
    lengths = "; ".join(
        f"{significant(c.response_seconds, 2)} s response: {c.worker_ms / c.device_ms:.2f} x"
        for c in (experiment.convolutions[0], experiment.convolutions[-1])
    )
    return _about_gpu(
        experiment,
        "One worker's time over the device's: "
        + ", ".join(f"{name} {gains[name]:.2f} x" for name in ranked)
        + f". Convolution alone: {lengths}.",
        holds,
    )


def _removes_bottleneck(experiment: Experiment) -> Finding:
    point = max(experiment.points, key=lambda point: (point.repeats, -point.width))
    cpu, gpu = point.of("cpu"), point.of("gpu")
    before, after = point.stall(cpu), point.stall(gpu)
    found = (
        f"Chain {plural(point.repeats, 'time')} over, {model_name(point)}: {format_percent(before)} of a step beyond "
        f"the model's own with the chain in the loader ({_spread(cpu)}), {format_percent(after)} with it on the device "
        f"({_spread(gpu)})."
    )
    holds = "yes" if after <= STALLED < before else "in part" if clearly_faster(gpu, cpu) else "no"
    return _about_gpu(experiment, found, holds)


def _depends(experiment: Experiment) -> Finding:
    wins = dict.fromkeys(("in the loader", "split", "on the device"), 0)
    names = {"cpu": "in the loader", "split": "split", "gpu": "on the device"}
    for point in experiment.points:
        wins[names[min(point.cells, key=measured).placement]] += 1
    found = ", ".join(f"{name} {count}" for name, count in wins.items())
    many = len(experiment.points) > 1
    holds = "not tested" if not many else "yes" if sum(count > 0 for count in wins.values()) > 1 else "no"
    return (
        f"Fastest at {plural(len(experiment.points), 'point')}: {found}.",
        holds,
    )


def model_name(point: Point) -> str:
    """Name a model by its size."""
    return f"{significant(point.parameters, 2)} parameters"


def _counts(experiment: Experiment) -> str:
    counts = sorted({cell.num_workers for point in experiment.points for cell in point.cells})
    return f"the best of {' or '.join(map(str, counts))} workers"


def _spread(cell: Cell) -> str:
    low, high = cell.measured_ci_ms or (inf, inf)
    return f"{format_ms(measured(cell))}, {format_interval(low, high)}"
