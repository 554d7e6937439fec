"""Records: the frozen results of measurements and decisions, and their JSON.

A record holds plain values only, so it can be saved and shown again later (``--load``). Times in ``Timing`` are raw and
in seconds; everything named ``*_ms`` is derived. ``None`` means "not measured".
"""

import html
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from audioaug.errors import PlanError, UsageError, did_you_mean
from audioaug.units import plural
from audioaug.writing import read_input, write_file

SCHEMA_VERSION = 2

Placement = Literal["cpu", "gpu", "split"]
WorkerEngine = Literal["audiomentations", "batched"]
DeviceEngine = Literal["batched", "cuda_graph", "torch_compile", "torch-audiomentations"]
"""In order of preference if equally fast: the simplest first."""

GRAPH_ENGINES: tuple[DeviceEngine, ...] = ("cuda_graph", "torch_compile")
"""Engines that capture our ops as graphs and replay them."""

Precision = Literal["fp32", "bf16", "fp16"]
AugmentForm = Literal["demo", "chain", "op", "ops", "audiomentations", "yaml"]
CandidateStatus = Literal["raced", "predicted", "infeasible"]
Location = Literal["worker", "device", "transfer", "model", "comparison"]
"""Where a stage runs: in a DataLoader worker, on the device, between them, or as the training step itself.

"comparison": outside of training, another way to do what a worker does (``engine`` names it).
"""

START_METHODS = ("fork", "spawn", "forkserver")

PLAN_LIMITS = {"cut": (0, 10_000), "num_workers": (0, 1024), "prefetch_factor": (1, 1024), "threads": (1, 1024)}
"""Smallest and largest values. Settings that cannot be 0 may be ``None``: torch's default."""

ABOVE_0 = ("step_ms", "alone_ms", "batch_size", "torch_threads", "mb_per_second")
"""Fields that a report divides by."""

KEPT_SAMPLES = 64
"""Most repetitions of a stage that a report keeps."""

Interval = tuple[float, float]
Record = TypeVar("Record")


@dataclass(frozen=True)
class HostFacts:
    """The machine, and what this process may use of it.

    ``local_ranks``: processes that train together on it, of which this is one. ``usable_cores``: cores that each of
    them may use; ``effective_cores``: their measured throughput relative to one core.
    """

    platform: str
    cpu: str
    logical_cores: int
    usable_cores: float
    ram_bytes: int
    ram_available_bytes: int
    shm_bytes: int | None
    open_files: int | None
    device: str
    device_name: str
    vram_bytes: int | None
    start_method: str
    torch_threads: int
    local_ranks: int = 1
    effective_cores: float | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def cores(self) -> float:
        """The effective cores if measured, else the usable ones."""
        return self.usable_cores if self.effective_cores is None else min(self.usable_cores, self.effective_cores)

    @property
    def has_gpu(self) -> bool:
        """Whether the model trains on another device than the CPU."""
        return not self.device.startswith("cpu")


@dataclass(frozen=True)
class Timing:
    """Repeated timings. ``seconds``: one entry a repetition, in seconds a step."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        ordered = sorted(self.seconds)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    @property
    def interval(self) -> Interval:
        """A 95 % interval of the median, in seconds, from order statistics (distribution-free)."""
        ordered = sorted(self.seconds)
        reach = math.ceil(1.96 * math.sqrt(len(ordered)) / 2)
        middle = (len(ordered) - 1) / 2
        return ordered[max(0, math.floor(middle - reach))], ordered[min(len(ordered) - 1, math.ceil(middle + reach))]

    @property
    def ms(self) -> float:
        """The median in milliseconds."""
        return self.median * 1e3

    @property
    def ci_ms(self) -> Interval:
        """The interval in milliseconds."""
        low, high = self.interval
        return low * 1e3, high * 1e3

    @property
    def mean_ms(self) -> float:
        """The mean in milliseconds."""
        return 1e3 * sum(self.seconds) / len(self.seconds)

    @property
    def samples_ms(self) -> tuple[float, ...]:
        """The last repetitions, at most ``KEPT_SAMPLES``, in milliseconds."""
        return tuple(round(seconds * 1e3, 4) for seconds in self.seconds[-KEPT_SAMPLES:])


@dataclass(frozen=True)
class StageCost:
    """The cost of one stage alone, warm, for one batch. ``op``: its position in the chain, from 0.

    ``samples_ms``: the repetitions; entry i of all stages is from the same round.
    """

    name: str
    where: Location
    ms_per_batch: float | None
    ci_ms: Interval | None = None
    op: int | None = None
    engine: str = ""
    reason: str = ""
    samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """One way to run the chain (cut, engines, workers, threads, pinning), with its prediction and measurement.

    Step times are in milliseconds. ``predicted_ci_ms`` is a 90 % interval; predictions are corrected by races
    (``decide.refine``). ``bound_by``: the predicted bottleneck: "loader" (the workers), "device" (the training process)
    or "cores" (both, on the CPU).
    """

    placement: Placement
    cut: int
    worker_engine: WorkerEngine = "audiomentations"
    device_engine: DeviceEngine = "batched"
    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    threads: int | None = None
    persistent_workers: bool = True
    start_method: str | None = None
    predicted_ms: float | None = None
    predicted_ci_ms: Interval | None = None
    bound_by: str = ""
    measured_ms: float | None = None
    measured_ci_ms: Interval | None = None
    clips_per_second: float | None = None
    stall: float | None = None
    vram_bytes: int | None = None
    cpu_seconds_per_step: float | None = None
    status: CandidateStatus = "predicted"
    reason: str = ""

    @property
    def name(self) -> str:
        """A unique description: ``split at 3, 2 workers``. Candidates of the same name are equal."""
        where = {"cpu": "all in the loader", "gpu": "all on the device", "split": f"split at {self.cut}"}[
            self.placement
        ]
        special = {
            f" ({self.device_engine})": self.placement != "cpu" and self.device_engine != "batched",
            f" ({self.worker_engine} workers)": self.placement != "gpu" and self.worker_engine != "audiomentations",
            f", {plural(self.num_workers, 'worker')}": True,
            f", prefetch {self.prefetch_factor}": self.num_workers > 0 and self.prefetch_factor not in (None, 2),
            ", pinned": self.pin_memory is True,
            f", {plural(self.threads or 0, 'thread')}": self.threads is not None,
            f", {self.start_method}": self.num_workers > 0 and self.start_method is not None,
        }
        return where + "".join(words for words, holds in special.items() if holds)

    @property
    def known_ms(self) -> float | None:
        """Its measured step time, else its predicted one."""
        return self.predicted_ms if self.measured_ms is None else self.measured_ms

    @property
    def queue(self) -> int:
        """The most batches that its workers may have queued."""
        return (self.prefetch_factor or 2) * self.num_workers


@dataclass(frozen=True)
class Recommendation(Candidate):
    """The candidate to use, the names of its ties, and the cause in words.

    ``margin``: differences below this share were ignored.
    """

    tie_with: tuple[str, ...] = ()
    because: str = ""
    margin: float = 0.03


@dataclass(frozen=True)
class Measurement:
    """The raw race results of one candidate: seconds a step and seconds waited, one entry a block."""

    candidate: str
    step: Timing
    wait: Timing
    steps_per_block: int


@dataclass(frozen=True)
class Allocation:
    """Where one training step's time goes, in milliseconds.

    ``wait_ms``: the training loop blocks on the next batch. ``contention_ms``: what the step takes beyond the model and
    the augmentation without waiting, since workers, threads or other programs compete for cores.
    """

    model_ms: float
    augment_ms: float
    wait_ms: float
    contention_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """The whole step."""
        return self.model_ms + self.augment_ms + self.wait_ms + self.contention_ms


@dataclass(frozen=True)
class LoaderCost:
    """The rate of a loader alone: mean milliseconds a batch with this cut and number of workers.

    Each entry of ``samples_ms`` is one batch without workers, else the mean of a block. ``receive_ms``: the training
    process's time to receive a batch.
    """

    cut: int
    num_workers: int
    ms_per_batch: float
    ci_ms: Interval
    first_batch_seconds: float = 0.0
    worker_engine: WorkerEngine = "audiomentations"
    samples_ms: tuple[float, ...] = ()
    receive_ms: float = 0.0


@dataclass(frozen=True)
class PartCost:
    """Several batched ops as built, neighbours fused: milliseconds for a batch.

    ``where`` "worker": the ops before the cut, on one thread; "device": the ops after the cut, with ``threads`` threads
    of the training process. ``both_ms``: a training step with this part and the copy; ``step_ms``: a step alone in the
    same rounds. Their difference beyond ``ms_per_batch`` is the cost of sharing the device.
    """

    where: Location
    cut: int
    threads: int
    ms_per_batch: float
    ci_ms: Interval
    samples_ms: tuple[float, ...] = ()
    step_ms: float | None = None
    both_ms: float | None = None


@dataclass(frozen=True)
class ContentionCost:
    """Contention: training steps on cached batches beside workers at full speed, whose batches are dropped.

    ``alone_ms`` and ``step_ms``: a step without and beside them; ``batch_ms``: time between two of their batches.
    """

    cut: int
    worker_engine: WorkerEngine
    num_workers: int
    threads: int
    alone_ms: float
    step_ms: float
    batch_ms: float
    step_samples_ms: tuple[float, ...] = ()
    batch_samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class ReceiveRate:
    """How fast this machine receives batches from other nodes, over this many connections.

    ``mb_per_second``: 10^6 bytes a second, with a 95 % interval.
    """

    connections: int
    mb_per_second: float
    ci: Interval


@dataclass(frozen=True)
class Ceiling:
    """Training speed on batches cached on the device, with ``threads`` torch threads (0: torch's default)."""

    step_ms: float
    ci_ms: Interval
    clips_per_second: float
    threads: int = 0
    samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class ChainFacts:
    """The measured chain: op names in order, declaration and hash.

    ``fused``: ranges (end exclusive) of ops that our engine fuses, unless a cut separates them.
    """

    ops: tuple[str, ...]
    sample_rate: int
    hash: str
    declaration: dict[str, Any] = field(default_factory=dict)
    device_from: int = 0
    device_from_reason: str = ""
    worker_until: int | None = None
    worker_until_reason: str = ""
    fused: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.device_from < self.cuts.stop <= len(self.ops) + 1:
            raise UsageError(
                f"The chain's device_from is {self.device_from} and its worker_until {self.worker_until}, "
                f"but it must be ordered and between 0 and {len(self.ops)}."
            )

    @property
    def cuts(self) -> range:
        """The possible cuts; a ``worker_until`` of ``None`` means the end of the chain."""
        return range(self.device_from, 1 + (len(self.ops) if self.worker_until is None else self.worker_until))


@dataclass(frozen=True)
class LoaderSetup:
    """Arguments of the raced Loader other than the plan, for the code to paste.

    ``augment``: the form of the declared chain (a ``Chain``, one op or several, audiomentations transforms, or YAML);
    ``augment_name``: its variable or file; ``allow_code``: whether the file may import code. ``dataset_path``: folder
    or manifest of an ``AudioFolder``; empty for a dataset object. The others are Loader's arguments; ``collate_fn``,
    ``targets`` only state whether they are used. ``on_error`` is "skip" if the race met unreadable examples.
    """

    augment: AugmentForm = "demo"
    augment_name: str = "augment"
    dataset_path: str = ""
    allow_code: bool = False
    is_stream: bool = False
    audio_key: str | int | None = None
    pad: bool = False
    lengths: str | int | None = None
    collate_fn: bool = False
    targets: bool = False
    on_error: Literal["raise", "skip"] = "raise"


@dataclass(frozen=True)
class Workload:
    """The model, its data, and the source of each part (model file, command line, demo data).

    ``clip_seconds``: the longest clip inspected; ``shortest_seconds``: the shortest, if they differ. ``clips`` is
    ``None`` for a stream of unknown length.
    """

    model: str
    parameters: int
    batch_size: int
    clip_seconds: float
    sample_rate: int
    precision: Precision
    dataset: str
    clips: int | None
    sources: dict[str, str] = field(default_factory=dict)
    shortest_seconds: float | None = None
    setup: LoaderSetup = field(default_factory=LoaderSetup)


@dataclass(frozen=True)
class Variant:
    """The training step with one setting changed, and unchanged (``now_*``). ``step_ms`` is ``None`` with a ``reason``.

    Another precision or batch size changes training. Another device engine does not: both steps then include
    augmentation on the device. Nor does another start method: both are steps of the plan, and ``start_seconds`` and
    ``now_start_seconds`` are the times to the first batch.
    """

    name: str
    batch_size: int
    now_ms: float
    now_batch: int
    step_ms: float | None = None
    ci_ms: Interval | None = None
    reason: str = ""
    changes_training: bool = True
    start_seconds: float | None = None
    now_start_seconds: float | None = None


@dataclass(frozen=True)
class Notice:
    """A notice for the reader: a stable ``id`` and one or more sentences."""

    id: str
    text: str


@dataclass(frozen=True)
class Examples:
    """Sampled examples, read and augmented one by one; one entry an example.

    ``first_ms``: the first read; ``again_ms``: a second read; ``cpu_ms``: its CPU time; ``augment_ms``: augmentation in
    a worker; ``samples``: its length. The stages of a worker are timed with the first entries.
    """

    first_ms: tuple[float, ...]
    again_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]
    augment_ms: tuple[float, ...]
    samples: tuple[int, ...]


@dataclass(frozen=True)
class Signals:
    """Signals for the diagnosis, other than step and stage times. ``None`` or empty: not measured.

    Machine, while today's configuration ran: of the ``watched_cores`` in this process's affinity, those that other
    programs used (``foreign_cores``), that the hypervisor took (``stolen_cores``), and that we waited for
    (``wanted_cores``); the share of time throttled by a CPU quota (``throttled``). ``foreign_share``: the share of the
    watched cores that other programs used and the hypervisor took, over the whole survey.

    Today's configuration: the share of a step spent in Python's garbage collector (``gc_share``), queued batches on
    average, the size of a batch, the types in it that cannot be pinned (``unpinned_types``), the time to start workers
    and between epochs, a worker's own memory and its growth per batch.

    Training step: calls that synchronize, the shapes of its batches, its time on a new shape and again, and, on the
    CPU, page faults and the kernel's share of CPU time (``page_faults``, ``kernel_share``). ``refused``: a limit that
    prevented today's workers from running.
    """

    examples: Examples | None = None
    watched_cores: int | None = None
    foreign_cores: float | None = None
    stolen_cores: float | None = None
    wanted_cores: float | None = None
    throttled: float | None = None
    foreign_share: float | None = None
    gc_share: float | None = None
    ready: float | None = None
    batch_bytes: int | None = None
    batch_tensors: int | None = None
    unpinned_types: tuple[str, ...] = ()
    receive_ms: float | None = None
    start_seconds: float | None = None
    epoch_gap_ms: float | None = None
    worker_bytes: int | None = None
    worker_growth_bytes: float | None = None
    step_waits: tuple[str, ...] = ()
    batch_shapes: int | None = None
    first_step_ms: float | None = None
    again_step_ms: float | None = None
    page_faults: float | None = None
    kernel_share: float | None = None
    threads_alive: tuple[str, ...] = ()
    refused: "Notice | None" = None


@dataclass(frozen=True)
class Plan:
    """A plan that the advisor writes and the Loader reads: the cut, the engines and the loader's settings.

    Args:
        cut: ops 1..cut run in the DataLoader workers, the others on the device.
        worker_engine: ``"audiomentations"`` (clip by clip) or ``"batched"`` (our ops on the collated batch, one thread
            a worker; ops without a batched build, and those before them, run clip by clip).
        device_engine: ``"batched"`` (our ops), ``"torch-audiomentations"``, ``"cuda_graph"`` (our ops, replayed as CUDA
            graphs) or ``"torch_compile"`` (our ops, by ``torch.compile``).
        num_workers: DataLoader workers; 0 loads in the training process. Several ranks (processes that train together)
            on one machine share them.
        prefetch_factor: batches that each worker prefetches; ``None`` is torch's default (2).
        pin_memory: copy batches through pinned memory; ``None`` does so on CUDA. Other devices never use it.
        threads: torch threads of the training process while the Loader is iterated; ``None`` leaves them unchanged.
            Without a GPU, threads compete with workers for cores.
        persistent_workers: keep the workers alive between epochs.
        start_method: ``"fork"``, ``"spawn"``, ``"forkserver"`` or ``None`` for Python's default.
        precision: the precision of the measurements; the Loader does not use it.
        chain_hash: hash of the chain that this plan was made for; empty matches any chain.

    Raises:
        PlanError: a number is out of range, or the start method is unknown.
    """

    cut: int = 0
    worker_engine: WorkerEngine = "audiomentations"
    device_engine: DeviceEngine = "batched"
    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    threads: int | None = None
    persistent_workers: bool = True
    start_method: str | None = None
    precision: Precision = "fp32"
    chain_hash: str = ""
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        for name, (least, most) in PLAN_LIMITS.items():
            value = getattr(self, name)
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not (whole and least <= value <= most) and not (value is None and least):
                shown = f"{value!r:.40}"
                raise PlanError(f"Plan: {name} is {shown}, but it must be an integer from {least} to {most}.")
        if self.start_method not in (None, *START_METHODS):
            raise PlanError(
                f"Plan: unknown start method {self.start_method!r}.",
                did_you_mean(str(self.start_method), START_METHODS),
            )

    def save(self, path: str | Path) -> None:
        """Write this plan as JSON."""
        write_record(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read a plan that ``save`` or the advisor wrote; raise ``UsageError``, naming the file, otherwise."""
        return read_record(path, cls)


SHARED_FIELDS = tuple(field.name for field in fields(Plan) if field.name in {field.name for field in fields(Candidate)})
"""The fields that a plan and a candidate have in common."""


def plan_of(candidate: Candidate, chain_hash: str = "", precision: Precision = "fp32", ranks: int = 1) -> Plan:
    """Return the plan of a candidate for this chain.

    A candidate has the workers of one rank, a plan those of all ranks of a machine.
    """
    knobs = {name: getattr(candidate, name) for name in SHARED_FIELDS}
    knobs["num_workers"] *= ranks
    return Plan(**knobs, chain_hash=chain_hash, precision=precision)


@dataclass(frozen=True)
class Report:
    """The results of one run of the advisor. ``complete`` is false if it was interrupted or failed.

    ``date``: when the run began, as ISO 8601 in UTC; empty if unknown.
    """

    host: HostFacts
    chain: ChainFacts
    workload: Workload
    schema_version: int = SCHEMA_VERSION
    date: str = ""
    complete: bool = False
    verdict: str = ""
    cause: str = ""
    ceiling: Ceiling | None = None
    stages: tuple[StageCost, ...] = ()
    loader_costs: tuple[LoaderCost, ...] = ()
    parts: tuple[PartCost, ...] = ()
    contention: tuple[ContentionCost, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    current: Candidate | None = None
    recommendation: Recommendation | None = None
    before: Allocation | None = None
    after: Allocation | None = None
    cost_seconds: float = 0.0
    break_even_steps: int | None = None
    what_if: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    signals: Signals = field(default_factory=Signals)
    variants: tuple[Variant, ...] = ()
    receive_rates: tuple[ReceiveRate, ...] = ()

    @property
    def best_receive_rate(self) -> ReceiveRate | None:
        """The highest rate of receiving; ``None`` if none was measured."""
        return max(self.receive_rates, key=lambda rate: rate.mb_per_second, default=None)

    @property
    def known_candidates(self) -> list[Candidate]:
        """All candidates, the recommended and current ones included; measured ones replace equal predicted ones."""
        candidates: dict[str, Candidate] = {}
        for candidate in (*self.candidates, self.recommendation, self.current):
            if candidate is not None:
                known = candidates.setdefault(candidate.name, candidate)
                if known.measured_ms is None and candidate.measured_ms is not None:
                    candidates[candidate.name] = candidate
        return list(candidates.values())

    @property
    def best(self) -> Recommendation:
        """The recommended candidate; raise ``UsageError`` if the run was interrupted before there was one."""
        if self.recommendation is None:
            raise UsageError("This report has no recommendation: its run did not finish.", "Run the advisor again.")
        return self.recommendation

    @property
    def plan(self) -> Plan:
        """The recommended plan, for ``audioaug.Loader``; raise ``UsageError`` if the run did not finish."""
        return plan_of(self.best, self.chain.hash, self.workload.precision, self.host.local_ranks)

    def save(self, path: str | Path) -> None:
        """Write this report as JSON."""
        write_record(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a report that ``save`` or the advisor wrote; raise ``UsageError``, naming the file, otherwise."""
        return read_record(path, cls)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as one web page that needs no network, and write it to ``path``, if given."""
        # A report shows itself, which its renderers cannot do for it: they are imported when they are needed.
        from audioaug.decide.sliders import grid
        from audioaug.report import to_html

        page = to_html.render(self, grid(self) if self.complete else None)
        if path is not None:
            write_file(page, path)
        return page

    def __str__(self) -> str:
        """The report as text, 100 characters wide."""
        from audioaug.report import to_text

        return to_text.render(self)

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks. Its links to its own sections must not lead to the notebook's page."""
        page = html.escape(self.to_html().replace("<head>", '<head><base href="about:srcdoc">', 1))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 1px solid #888"></iframe>'


@dataclass(frozen=True)
class Window:
    """A monitor's record of some consecutive training steps, about a second long. ``None``: not available.

    ``seconds`` and ``step`` count from the start of the run to the end of the window. ``ready``: queued batches on
    average. CPU use is a share of the cores that this process may use; a worker's, of one core. ``message`` is set when
    the bottleneck has changed.
    """

    seconds: float
    step: int
    steps: int
    step_ms: float
    wait_ms: float
    clips_per_second: float | None = None
    ceiling_share: float | None = None
    ready: float | None = None
    cpu_percent: float | None = None
    worker_percent: tuple[float, ...] = ()
    ram_bytes: int | None = None
    ram_percent: float | None = None
    shm_bytes: int | None = None
    gpu_percent: float | None = None
    vram_bytes: int | None = None
    bottleneck: str = ""
    message: str = ""

    @property
    def stall(self) -> float:
        """The share of a step spent waiting for data."""
        return self.wait_ms / self.step_ms if self.step_ms > 0 else 0.0


@dataclass(frozen=True)
class MonitoredRun:
    """The first line of a monitor's log: the machine and the ceiling."""

    host: HostFacts
    schema_version: int = SCHEMA_VERSION
    ceiling_ms: float | None = None
    capacity: int | None = None


USAGE_TARGETS = {"gpu_percent": (95.0, 100.0), "cpu_percent": (60.0, 80.0), "ram_percent": (0.0, 80.0)}
"""Target ranges for the use of GPU, CPU and RAM during training, in percent."""

BOTTLENECKS = {
    "": "not determined yet",
    "model_bound": "the model's own step",
    "main_thread_bound": "the training process, which loads, copies or augments between steps",
    "cores_full": "the cores",
    "too_few_workers": "the workers",
    "fetch_bound": "reading the data",
}
"""Bottlenecks of a monitored run: stable ids and descriptions."""


def waiting_share(windows: Sequence[Window]) -> float:
    """Return the share of the time of these windows that was spent waiting for data."""
    return sum(it.steps * it.wait_ms for it in windows) / max(1e-9, sum(it.steps * it.step_ms for it in windows))


def main_bottleneck(windows: Sequence[Window]) -> str:
    """Return the id of the bottleneck that lasted longest; empty if none was determined."""
    lasted = defaultdict[str, float](float)
    for window in windows:
        lasted[window.bottleneck] += window.steps * window.step_ms
    return max((name for name in lasted if name and lasted[name]), default="", key=lambda name: lasted[name])


def to_json(record: Any) -> str:
    """Serialize a record as indented JSON, ``schema_version`` first if it has one."""
    content = msgspec.to_builtins(record)
    if "schema_version" in content:
        content = {"schema_version": content.pop("schema_version"), **content}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def from_json(text: str | bytes, kind: type[Record]) -> Record:
    """Parse a record of this kind; raise ``UsageError`` if the text is not one. Unknown fields of a plan are errors."""
    try:
        content = msgspec.json.decode(text)
        if isinstance(content, dict):
            _check_version(content, kind)
            if kind in (Plan, Report):
                _check_fields(content, kind)
        _check_numbers(content, ABOVE_0 if kind is Report else ())
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"This is not the JSON of a {kind.__name__}: {error}.") from None


def _check_version(content: Mapping[str, Any], kind: type[Any]) -> None:
    """Raise ``UsageError`` for a record of another schema version, whose fields have other names or meanings."""
    current = getattr(kind, "schema_version", SCHEMA_VERSION)
    version = content.get("schema_version", current)
    if isinstance(version, int) and version != current:
        raise UsageError(
            f"This {kind.__name__} has schema version {version}, but this audioaug reads version {current}.",
            "Update audioaug." if version > current else "Run the advisor again to write a new one.",
        )


def _check_fields(content: Mapping[str, Any], kind: type[Any]) -> None:
    """Raise ``UsageError`` for a plan passed as a report, or the reverse, and for an unknown field of a plan."""
    known = {each: {field.name for field in fields(each)} for each in (Plan, Report)}
    other, advice = (
        (Report, "audioaug advise --load FILE shows it, and --plan FILE with it writes its plan.")
        if kind is Plan
        else (Plan, "audioaug advise --verify FILE measures it.")
    )
    if len(content.keys() & known[other]) > len(content.keys() & known[kind]):
        raise UsageError(f"This is a {other.__name__.lower()}, not a {kind.__name__.lower()}.", advice)
    if kind is Plan and (unknown := sorted(content.keys() - known[Plan])):
        raise UsageError(f"Unknown field {unknown[0]!r} in a plan.", did_you_mean(unknown[0], known[Plan]))


def _check_numbers(content: Any, above_0: Sequence[str], name: str = "") -> None:
    """Raise ``UsageError`` for a number that is too large, at any depth, or not positive but listed in ``above_0``."""
    if isinstance(content, dict):
        for key, value in content.items():
            _check_numbers(value, above_0, key)
    elif isinstance(content, list):
        for value in content:
            _check_numbers(value, above_0, name)
    elif isinstance(content, int | float):
        if abs(content) >= 2**63:
            raise UsageError(f"{name} is {content!r:.40}, but it must be below 2**63.")
        if name in above_0 and content <= 0:
            raise UsageError(f"{name} is {content}, but it must be above 0.")


def write_record(record: Any, path: str | Path) -> None:
    """Write a record to a JSON file; raise ``OutputError`` if that fails."""
    write_file(to_json(record) + "\n", path)


def read_record(path: str | Path, kind: type[Record]) -> Record:
    """Read a record from a JSON file; raise ``UsageError``, naming the file, if that fails."""
    text = read_input(path)
    try:
        return from_json(text, kind)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.next_step) from None
