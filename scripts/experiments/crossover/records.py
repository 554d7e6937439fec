"""What was measured about the crossover, as plain values."""

from dataclasses import dataclass, field

from audioaug.records import HostFacts, Interval, Timing
from experiments.claims import Claim

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
    """A network of so many layers: seconds an epoch of ten batches, by device."""

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
