"""From how many parameters on does a GPU pay for training? A published sweep again, and the same for audio.

    python scripts/experiment_crossover.py                          about a minute, report on stdout
    python scripts/experiment_crossover.py --quick --json result.json
    python scripts/experiment_crossover.py --load result.json

The sweep: 1,000 points in the unit square, inside or outside a circle; ReLU networks whose widths double from layer to
layer; SGD, batches of 100, 100 epochs. Without a GPU the CPU's curve is measured, and the GPU's taken from a profile
recorded on another machine (``datasets/profiles/crossover_*.json``), where there is one.
``notebooks/04_when_does_a_gpu_pay.ipynb`` draws what this measures.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import torch
from experiment_shared import (
    MODEL,
    ROOT,
    Claim,
    Finding,
    Say,
    experiment,
    graded,
    judge,
    machine,
    perform,
    quiet,
    timed,
    to_lines,
)
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from audioaug.advise.model_file import load_module
from audioaug.loader.prefetch import as_device
from audioaug.measure import clock_for, host_facts, interleave
from audioaug.records import HostFacts, Interval, Timing, read_record
from audioaug.units import format_interval, format_percent, format_seconds, significant

# Records

EPOCHS = 100
"""As many as the published sweep trains for; each takes as long as any other."""

CPU, GPU = "cpu", "gpu"


@dataclass(frozen=True)
class Size:
    """How much to measure: layers, clip lengths, batch sizes, seconds for each sweep, and a net trained to the end."""

    layers: tuple[int, ...]
    clip_seconds: tuple[float, ...]
    batches: tuple[int, ...]
    seconds: float
    rounds: int
    trained: int
    epochs: int


QUICK = Size((2, 4, 6), (0.5, 1.0), (1, 4), 2, 3, 3, 5)
FULL = Size(tuple(range(2, 13)), (0.5, 2.0, 8.0), (1, 8, 64), 25, 5, 10, EPOCHS)


@dataclass(frozen=True)
class Net:
    """A network of ``layers`` layers: seconds an epoch of ten batches, by device."""

    layers: int
    parameters: int
    epoch: dict[str, Timing]

    def total_seconds(self, device: str) -> float:
        """Return what all epochs take."""
        return EPOCHS * self.epoch[device].median

    def total_interval(self, device: str) -> Interval:
        """Return the 95 % interval of that."""
        low, high = self.epoch[device].interval
        return EPOCHS * low, EPOCHS * high


@dataclass(frozen=True)
class Trained:
    """A net that was trained to the end: what it took, and which share of the points it then put on the right side."""

    layers: int
    epochs: int
    seconds: float
    expected_seconds: float
    accuracy: float


@dataclass(frozen=True)
class AudioPoint:
    """The example model's training step on clips of a length in batches of a size: seconds, by device."""

    clip_seconds: float
    batch: int
    step: dict[str, Timing]

    @property
    def audio_seconds(self) -> float:
        """Seconds of audio in a batch."""
        return self.clip_seconds * self.batch


@dataclass(frozen=True)
class Crossing:
    """Where the GPU overtakes the CPU: a size, with a 95 % interval; ``None`` where one is ahead at all sizes."""

    at: float | None
    interval: Interval | None
    ahead: str = ""


@dataclass(frozen=True)
class Crossover:
    """All that was measured. ``gpu`` names the GPU; ``recorded`` says that its times are another machine's."""

    host: HostFacts
    gpu: str = ""
    recorded: bool = False
    nets: tuple[Net, ...] = ()
    trained: Trained | None = None
    crossing: Crossing | None = None
    audio: tuple[AudioPoint, ...] = ()
    audio_crossing: Crossing | None = None
    claims: tuple[Claim, ...] = field(default=())
    schema_version: int = 1


# Points in a circle

POINTS, BATCH, LEARNING_RATE = 1000, 100, 0.1
RADIUS = math.sqrt(1 / (2 * math.pi))
"""Of the circle around the origin, whose area is 1/2: half of the unit square around it."""


def circle(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return standardised points (N, 2) of the unit square around the origin, and whether each is inside (N)."""
    points_N2 = torch.rand(POINTS, 2, generator=torch.Generator().manual_seed(seed)) - 0.5
    inside_N = (points_N2.norm(dim=1) < RADIUS).long()
    return (points_N2 - points_N2.mean(0)) / points_N2.std(0), inside_N


def network(layers: int) -> nn.Sequential:
    """Return a ReLU network 2 -> 4 -> 8 -> ... -> 2 with ``layers`` linear layers."""
    torch.manual_seed(0)
    widths = [2**k for k in range(1, layers + 1)]
    hidden = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], 2))


def parameters(model: nn.Module) -> int:
    """Return how many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def epoch_of(model: nn.Module, device: torch.device) -> Callable[[], None]:
    """Return one epoch of training on a device, in batches; the points lie there already."""
    model.to(device)
    points_N2, inside_N = (part.to(device) for part in circle())
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def epoch() -> None:
        for chosen_B in torch.randperm(POINTS).to(device).split(BATCH):
            loss = cross_entropy(model(points_N2[chosen_B]), inside_N[chosen_B])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    return epoch


def sweep_nets(layers: tuple[int, ...], device: torch.device, seconds: float, rounds: int) -> tuple[Net, ...]:
    """Time an epoch of every network, on the CPU and on the GPU if there is one, all in turn."""
    devices = {CPU: torch.device("cpu")} | ({GPU: device} if device.type != "cpu" else {})
    works = {f"{name} {count}": epoch_of(network(count), where) for count in layers for name, where in devices.items()}
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return tuple(
        Net(count, parameters(network(count)), {name: times[f"{name} {count}"] for name in devices}) for count in layers
    )


def train(net: Net, device: torch.device, epochs: int) -> Trained:
    """Train a network to the end; return what that took beside what its epochs predict."""
    model, clock = network(net.layers), clock_for(device)
    epoch = epoch_of(model, device)
    clock.synchronize()
    begin = clock.now()
    for _ in range(epochs):
        epoch()
    clock.synchronize()
    seconds = clock.now() - begin
    points_N2, inside_N = (part.to(device) for part in circle())
    accuracy = (model(points_N2).argmax(1) == inside_N).float().mean().item()
    expected = epochs * net.epoch[CPU if device.type == "cpu" else GPU].median
    return Trained(net.layers, epochs, seconds, expected, accuracy)


# The example model on audio


def sweep_audio(
    clip_seconds: tuple[float, ...], batches: tuple[int, ...], device: torch.device, seconds: float, rounds: int
) -> tuple[AudioPoint, ...]:
    """Time steps on clips that lie where the model is, on the CPU and on the GPU if there is one, all in turn."""
    devices = {CPU: torch.device("cpu")} | ({GPU: device} if device.type != "cpu" else {})
    sizes = list(product(clip_seconds, batches))
    works = {f"{name} {size}": step_of(*size, where) for size in sizes for name, where in devices.items()}
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return tuple(AudioPoint(*size, {name: times[f"{name} {size}"] for name in devices}) for size in sizes)


def step_of(clip_seconds: float, batch: int, device: torch.device) -> Callable[[], None]:
    """Return a training step of the example model on one batch, (B, 1, T)."""
    module = load_module(str(MODEL))
    model = module.build_model().to(device)
    x_BCT = torch.randn(batch, 1, round(clip_seconds * module.sample_rate), device=device)
    label_B = torch.zeros(batch, dtype=torch.long, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        loss = cross_entropy(model(x_BCT), label_B)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


# Where the curves cross

RESAMPLINGS = 500


def crossing(sizes: Sequence[float], cpu: Sequence[Timing], gpu: Sequence[Timing], seed: int = 0) -> Crossing:
    """Return from which size on the GPU is faster for good, between sizes by straight lines on log axes.

    The interval is a bootstrap's: the rounds of every point are drawn anew, 500 times. Where one is ahead at all sizes
    in a resampling, that counts as a crossing at the nearest of them.

    Args:
        sizes: rising.
        cpu, gpu: the times at each size.
    """
    middle = np.array([np.log(c.median / g.median) for c, g in zip(cpu, gpu, strict=True)])
    log_sizes = np.log(np.asarray(sizes, float))
    if (middle <= 0).all() or (middle > 0).all():
        return Crossing(None, None, GPU if middle[0] > 0 else CPU)
    rng = np.random.default_rng(seed)
    resampled = [_crossing(log_sizes, _gains(rng, cpu, gpu)) for _ in range(RESAMPLINGS)]
    low, high = np.exp(np.percentile(resampled, (2.5, 97.5)))
    return Crossing(float(np.exp(_crossing(log_sizes, middle))), (float(low), float(high)), GPU)


def _gains(rng: np.random.Generator, cpu: Sequence[Timing], gpu: Sequence[Timing]) -> NDArray[np.float64]:
    def median(timing: Timing) -> float:
        return float(np.median(rng.choice(timing.seconds, len(timing.seconds))))

    return np.array([np.log(median(c) / median(g)) for c, g in zip(cpu, gpu, strict=True)])


def _crossing(log_sizes: NDArray[np.float64], gain: NDArray[np.float64]) -> float:
    """Return the place of the last change from the CPU to the GPU; an end where there is none."""
    slower = np.flatnonzero(gain <= 0)
    if not len(slower):
        return float(log_sizes[0])
    last = int(slower[-1])
    if last == len(gain) - 1:
        return float(log_sizes[-1])
    share = -gain[last] / (gain[last + 1] - gain[last])
    return float(log_sizes[last] + share * (log_sizes[last + 1] - log_sizes[last]))


# A GPU that was recorded on another machine

PROFILES = ROOT / "datasets/profiles"
PATTERN = "crossover_*.json"
"""What ``experiment_crossover.py --json datasets/profiles/crossover_NAME.json`` leaves on a machine with a GPU."""


def with_recorded(found: Crossover, folder: Path = PROFILES) -> Crossover:
    """Return what was found with the times of a recorded GPU beside it, where there is a record of one."""
    for path in sorted(folder.glob(PATTERN)):
        record = read_record(path, Crossover)
        if record.gpu and not record.recorded:
            return _joined(found, record)
    return found


def _joined(found: Crossover, record: Crossover) -> Crossover:
    epochs = {net.layers: net.epoch[GPU] for net in record.nets}
    steps = {(point.clip_seconds, point.batch): point.step[GPU] for point in record.audio}
    nets = [replace(n, epoch={**n.epoch, GPU: epochs[n.layers]}) if n.layers in epochs else n for n in found.nets]
    audio = [
        replace(p, step={**p.step, GPU: steps[key]}) if (key := (p.clip_seconds, p.batch)) in steps else p
        for p in found.audio
    ]
    return replace(found, gpu=record.gpu, recorded=True, nets=tuple(nets), audio=tuple(audio))


# Claims

SAYS = {"D1": "The GPU overtakes the CPU at about 700,000 parameters (10 layers)."}
CLAIMED, FACTOR = 7e5, 2.0
"""A crossing within this factor of the claimed one is "about" there."""

NO_GPU = "No GPU here, and no recorded profile of one in datasets/profiles: there is no GPU curve."


def claims(found: Crossover) -> tuple[Claim, ...]:
    """Put the claim beside what was measured here."""
    return judge(SAYS, {"D1": _overtakes(found)})


def _overtakes(found: Crossover) -> Finding:
    curve = ", ".join(
        f"{format_seconds(net.total_seconds(CPU))} for {significant(net.parameters, 2)} parameters"
        for net in found.nets[:: max(1, len(found.nets) // 4)]
    )
    cpu = f"The CPU's 100 epochs take {curve}."
    if found.crossing is None:
        return f"{NO_GPU} {cpu}", "not tested"
    at = found.crossing.at
    holds = graded(at is not None and CLAIMED / FACTOR <= at <= CLAIMED * FACTOR)
    return f"{crossing_words(found.crossing, 'parameters')} {gpu_words(found)} {cpu}", holds


def gpu_words(found: Crossover) -> str:
    """Return which GPU that was, and whether it was here."""
    return f"({found.gpu}, recorded on another machine.)" if found.recorded else f"({found.gpu}.)"


def crossing_words(crossing: Crossing, what: str) -> str:
    """Return in words where the GPU overtakes the CPU."""
    if crossing.at is None or crossing.interval is None:
        return f"The {'GPU' if crossing.ahead == GPU else 'CPU'} is ahead at every size."
    return f"The GPU overtakes at {significant(crossing.at, 2)} {what} ({format_interval(*crossing.interval, 2)})."


# Text


def to_text(found: Crossover) -> str:
    """Lay the results out in lines."""
    rows = [machine(found.host), gpu_words(found) if found.gpu else NO_GPU, ""]
    rows += ["Points in a circle: seconds for 100 epochs (100 x the median epoch, 95 % interval)"]
    for net in found.nets:
        times = "   ".join(
            f"{device.upper()} {significant(net.total_seconds(device), 3):>6} "
            f"({format_interval(*net.total_interval(device))})"
            for device in net.epoch
        )
        rows.append(f"  {net.layers:2} layers {net.parameters:>12,} parameters   {times}")
    if found.trained:
        one = found.trained
        rows.append(
            f"  {one.layers} layers trained for {one.epochs} epochs: {format_seconds(one.seconds)} "
            f"({format_seconds(one.expected_seconds)} by its epochs), "
            f"{format_percent(one.accuracy)} of the points right"
        )
    if found.crossing:
        rows.append(f"  {crossing_words(found.crossing, 'parameters')}")
    rows += ["", "keyword_cnn.py: a training step (ms, 95 % interval)"]
    for point in found.audio:
        times = "   ".join(f"{device.upper()} {timed(t.ms, t.ci_ms)}" for device, t in point.step.items())
        rows.append(f"  {point.batch:3} clips of {point.clip_seconds:g} s   {times}")
    if found.audio_crossing:
        rows.append(f"  {crossing_words(found.audio_crossing, 'seconds of audio a batch')}")
    return "\n".join(rows + to_lines(found.claims))


# The experiment


def run(size: Size, device: torch.device, say: Say = quiet) -> Crossover:
    """Measure everything."""
    host = host_facts(device)
    say("points in a circle")
    nets = sweep_nets(size.layers, device, size.seconds, size.rounds)
    say("one network to the end")
    chosen = min(nets, key=lambda net: abs(net.layers - size.trained))
    trained = train(chosen, device, size.epochs)
    say("the audio model")
    points = sweep_audio(size.clip_seconds, size.batches, device, size.seconds, size.rounds)
    found = Crossover(host, host.device_name if host.has_gpu else "", nets=nets, trained=trained, audio=points)
    return judged(found if host.has_gpu else with_recorded(found))


def judged(found: Crossover) -> Crossover:
    """Add where the curves cross, where there are two, and the claim."""
    nets = [net for net in found.nets if GPU in net.epoch]
    points = sorted((p for p in found.audio if GPU in p.step), key=lambda point: point.audio_seconds)
    if nets:
        times = ([net.epoch[device] for net in nets] for device in (CPU, GPU))
        found = replace(found, crossing=crossing([net.parameters for net in nets], *times))
    if points:
        times = ([point.step[device] for point in points] for device in (CPU, GPU))
        found = replace(found, audio_crossing=crossing([point.audio_seconds for point in points], *times))
    return replace(found, claims=claims(found))


@experiment(__doc__)
def main(quick: bool, device: str, json_: str | None, load: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Crossover, lambda say: run(size, as_device(device), say), to_text, json_, load)


if __name__ == "__main__":
    main()
