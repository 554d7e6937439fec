"""Frozen results that pass between rooms: measured here, decided on there, rendered elsewhere.

A record holds plain values only, so it survives JSON and can be shown again years later (``--load``). Times in
``Timing`` are raw and in seconds; everything named ``*_ms`` is derived for people. ``None`` means "not measured".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from audioaug.errors import PlanError, UsageError, did_you_mean
from audioaug.units import plural
from audioaug.writing import read_file, write_file

SCHEMA_VERSION = 2

Placement = Literal["cpu", "gpu", "split"]
WorkerEngine = Literal["audiomentations", "batched"]
DeviceEngine = Literal["batched", "cuda_graph", "torch_compile", "torch-audiomentations"]
"""Where several are as fast, the first of them is advised: the simplest, then those with the same effects."""

GRAPH_ENGINES: tuple[DeviceEngine, ...] = ("cuda_graph", "torch_compile")
"""Engines that record what our ops make the device do, and repeat it."""

Precision = Literal["fp32", "bf16", "fp16"]
AugmentForm = Literal["demo", "chain", "op", "ops", "audiomentations", "yaml"]
CandidateStatus = Literal["raced", "predicted", "infeasible"]
Location = Literal["worker", "device", "transfer", "model"]
"""Where a stage runs: in a DataLoader worker, on the device, between them, or as the training step itself."""

START_METHODS = ("fork", "spawn", "forkserver")

PLAN_LIMITS = {"cut": (0, 10_000), "num_workers": (0, 1024), "prefetch_factor": (1, 1024), "threads": (1, 1024)}
"""The smallest and the largest number. Those that cannot be 0 may be ``None``: torch's default."""

ABOVE_0 = ("step_ms", "alone_ms", "batch_size", "torch_threads")
"""What a report divides by."""

KEPT_SAMPLES = 64
"""So many repetitions of a stage stay in a report."""

Interval = tuple[float, float]
Record = TypeVar("Record")


@dataclass(frozen=True)
class HostFacts:
    """What this machine is and what this process may use of it.

    ``usable_cores`` is what it is allowed to use, ``effective_cores`` how many times the work of one core they did
    together when that was measured.
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
        """The cores to reckon with: those that were measured, else those that may be used."""
        return self.usable_cores if self.effective_cores is None else min(self.usable_cores, self.effective_cores)

    @property
    def has_gpu(self) -> bool:
        """Whether the model trains on something else than the CPU that the workers use."""
        return not self.device.startswith("cpu")


@dataclass(frozen=True)
class Timing:
    """Repeated times of one thing. ``seconds``: one entry a repetition, each already divided by the steps in it."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle time, in seconds."""
        ordered = sorted(self.seconds)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    @property
    def interval(self) -> Interval:
        """A 95 % interval of the median, in seconds, from order statistics: no shape of the noise is assumed."""
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
        """The last repetitions, as many as are worth keeping, in milliseconds."""
        return tuple(round(seconds * 1e3, 4) for seconds in self.seconds[-KEPT_SAMPLES:])


@dataclass(frozen=True)
class StageCost:
    """What one stage costs alone, warm, for one batch. ``op`` is its place in the chain, from 0.

    ``samples_ms`` are the repetitions that it was found from; those of one place in it were made in one round.
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
    """One way to run the chain, with what is predicted and what was measured of it. Step times in milliseconds.

    ``predicted_ci_ms`` is a 90 % interval; once there were races, predictions of the others were corrected by them
    (``decide.refine``). ``bound_by`` names the stage that sets the predicted pace: "loader" (the workers), "device"
    (the model with what runs beside it in the training process) or "cores" (both, on the CPU).
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
        """What this candidate is, in words: ``split at 3, 2 workers``. Two candidates of the same name are the same."""
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
    def queue(self) -> int:
        """How many batches its workers may have ready."""
        return (self.prefetch_factor or 2) * self.num_workers


@dataclass(frozen=True)
class Recommendation(Candidate):
    """The candidate to use, the names of those it cannot be told apart from, and the sentence that says why.

    ``margin``: the share of a step below which differences did not count.
    """

    tie_with: tuple[str, ...] = ()
    because: str = ""
    margin: float = 0.03


@dataclass(frozen=True)
class Measurement:
    """The raw race results of one candidate: seconds a step, one entry a block, and what else was seen meanwhile."""

    candidate: str
    step: Timing
    wait: Timing
    steps_per_block: int


@dataclass(frozen=True)
class Allocation:
    """Where one training step's time goes, in milliseconds."""

    model_ms: float
    augment_ms: float
    wait_ms: float

    @property
    def total_ms(self) -> float:
        """The whole step."""
        return self.model_ms + self.augment_ms + self.wait_ms


@dataclass(frozen=True)
class LoaderCost:
    """How fast the loader alone delivers: milliseconds a batch with so many workers and the chain cut there.

    It is a mean, since slow batches are what a loader is slow by. Without workers each entry of ``samples_ms`` is one
    batch, else some batches on average. ``receive_ms``: of the training process's own time, to take a batch from them.
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
    """Several batched ops of the chain as they are built, neighbours fused: milliseconds for a batch.

    ``where`` "worker": those before the cut, on one thread; "device": those from the cut on, on so many ``threads`` of
    the training process. ``both_ms``: a training step on what comes out of it, copy included, and ``step_ms`` one alone
    in the same rounds, where that was measured: what both together are more than each alone is what sharing costs.
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
    """Training steps on cached batches beside workers that never stop and whose batches are thrown away.

    ``alone_ms`` and ``step_ms``: a step without and beside them; ``batch_ms``: between two of their batches meanwhile.
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
class Ceiling:
    """Training speed on batches that are already on the device, on so many threads of torch (0: as many as it has)."""

    step_ms: float
    ci_ms: Interval
    clips_per_second: float
    threads: int = 0
    samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class ChainFacts:
    """The chain as it was measured: op names in order, its declaration and its hash.

    ``fused``: from where to where (exclusive) neighbours are one pass of our engine, unless a cut comes between them.
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
                f"but they must be in order, from 0 to its {plural(len(self.ops), 'op')}."
            )

    @property
    def cuts(self) -> range:
        """Where the chain can be cut; a ``worker_until`` of ``None`` stands for its end."""
        return range(self.device_from, 1 + (len(self.ops) if self.worker_until is None else self.worker_until))


@dataclass(frozen=True)
class LoaderSetup:
    """What the Loader that was raced was given besides a plan: what the code to paste is made of.

    ``augment``: what the chain was made of: a ``Chain``, one op or several, transforms of audiomentations, or a YAML
    file; ``augment_name`` is its variable, or the file; ``allow_code``: the file may name code. ``dataset_path``: the
    folder or manifest of an ``AudioFolder``; empty for a dataset object. The demo's chain and data stand for the user's
    own. The others are Loader's arguments; of ``collate_fn`` and ``targets`` only whether the model file defines them.
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


@dataclass(frozen=True)
class Workload:
    """What was trained on what, and where each part came from (the model file, the command line, the demo data).

    ``clip_seconds``: the longest clip of those that were looked at, ``shortest_seconds`` the shortest, where they
    differ. ``clips`` is ``None`` for a stream, which has no length.
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
    """The training step with another precision or batch size, and as it is. ``step_ms`` is ``None`` for a reason.

    One with another device engine does not change training: both steps are then those of a batch that is augmented on
    the device before. Nor do workers that are started in another way: both are then steps of the plan, and the first
    batch comes ``start_seconds`` after its start, instead of ``now_start_seconds``.
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
    """Something the reader should know; ``id`` is stable (ADVISOR.md lists the causes), ``text`` is one sentence."""

    id: str
    text: str


@dataclass(frozen=True)
class Examples:
    """Some examples, drawn from the seed, each read and augmented alone, one entry an example.

    ``first_ms`` is reading it for the first time, ``again_ms`` at once again, ``cpu_ms`` what of that ran on a core,
    ``augment_ms`` what a worker does to it, ``samples`` its length. The first entries are the probe: what
    all stages of a worker are timed with.
    """

    first_ms: tuple[float, ...]
    again_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]
    augment_ms: tuple[float, ...]
    samples: tuple[int, ...]


@dataclass(frozen=True)
class Signals:
    """What was seen beside the times of steps and stages: what a diagnosis reads. ``None`` or empty: not measured.

    Of the machine while today's configuration ran: of the ``watched_cores`` that this process may run on, those that
    other programs used (``foreign_cores``), that the hypervisor took (``stolen_cores``), and that ours were ready to
    use and did not get (``wanted_cores``); the share of the time in which a CPU quota stopped us (``throttled``).

    Of today's configuration: the share of a step that Python's garbage collector took (``gc_share``), batches that lay
    ready on average, what a batch holds, how long workers take to start and from one epoch to the next, what one of
    them keeps in memory for itself and by how much that grows with every batch it makes.

    Of the training step: what the host waits for in it, the shapes of its batches, how long it took on each shape for
    the first time and again, and, on the CPU, how many fresh pages it asks for and the share of its CPU time that the
    kernel takes (``page_faults``, ``kernel_share``). ``refused`` is a limit that kept today's workers from being run.
    """

    examples: Examples | None = None
    watched_cores: int | None = None
    foreign_cores: float | None = None
    stolen_cores: float | None = None
    wanted_cores: float | None = None
    throttled: float | None = None
    gc_share: float | None = None
    ready: float | None = None
    batch_bytes: int | None = None
    batch_tensors: int | None = None
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
    """What the advisor writes and the loader reads: one integer ``cut`` and the knobs around it.

    Args:
        cut: ops 1..cut run in the DataLoader workers, the rest on the device.
        worker_engine: how the first part runs: ``"audiomentations"`` (clip by clip) or ``"batched"`` (our ops, on the
            collated batch, one thread a worker; ops without a batched build, and those before them, run clip by clip).
        device_engine: how the rest runs: ``"batched"`` (our ops), ``"torch-audiomentations"``, ``"cuda_graph"`` (our
            ops, replayed as CUDA graphs) or ``"torch_compile"`` (our ops, by ``torch.compile``).
        num_workers: DataLoader workers; 0 loads in the training process.
        prefetch_factor: batches each worker prepares ahead; ``None`` is torch's default (2).
        pin_memory: copy batches through page-locked memory; ``None`` does so on CUDA. Elsewhere nothing is pinned.
        threads: of torch in the training process while the Loader is iterated over; ``None`` leaves them as they are.
            Without a GPU, threads that share cores with workers wait for each other most of the time.
        persistent_workers: keep the workers alive between epochs.
        start_method: ``"fork"``, ``"spawn"``, ``"forkserver"`` or ``None`` for Python's default.
        precision: what the advice was measured with; the loader does not use it.
        chain_hash: the chain this plan was made for; empty fits any chain.

    Raises:
        PlanError: a number is out of range, or there is no such start method.
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
                raise PlanError(f"Plan: {name} is {shown}, but it must be a whole number from {least} to {most}.")
        if self.start_method not in (None, *START_METHODS):
            raise PlanError(
                f"Plan: there is no start method {self.start_method!r}.",
                did_you_mean(str(self.start_method), START_METHODS),
            )

    def save(self, path: str | Path) -> None:
        """Write this plan as JSON."""
        write_record(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read a plan that ``save`` or the advisor wrote; raise ``UsageError``, naming the file, if it is no plan."""
        return read_record(path, cls)


SHARED_FIELDS = tuple(field.name for field in fields(Plan) if field.name in {field.name for field in fields(Candidate)})
"""The fields that a plan and the candidate it runs have in common."""


def plan_of(candidate: Candidate, chain_hash: str = "", precision: Precision = "fp32") -> Plan:
    """Return the plan that runs a candidate of that chain."""
    knobs = {name: getattr(candidate, name) for name in SHARED_FIELDS}
    return Plan(**knobs, chain_hash=chain_hash, precision=precision)


@dataclass(frozen=True)
class Report:
    """Everything one run of the advisor found. ``complete`` is false when it was interrupted or failed half-way."""

    host: HostFacts
    chain: ChainFacts
    workload: Workload
    schema_version: int = SCHEMA_VERSION
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


@dataclass(frozen=True)
class Window:
    """What a monitor saw in some consecutive training steps, some seconds long. ``None``: cannot be known here.

    ``seconds`` and ``step`` count from the start of the run to the end of the window. ``ready`` is how many batches lay
    ready when one was asked for, on average. CPU use is a share of the cores that this process may use, for each
    worker a share of one core. ``message`` is set when the bottleneck has moved.
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
        """The share of a step that was spent waiting for data."""
        return self.wait_ms / self.step_ms if self.step_ms > 0 else 0.0


@dataclass(frozen=True)
class MonitoredRun:
    """What a monitor is told and finds out before the first step: the first line of its log."""

    host: HostFacts
    schema_version: int = SCHEMA_VERSION
    ceiling_ms: float | None = None
    capacity: int | None = None


USAGE_TARGETS = {"gpu_percent": (95.0, 100.0), "cpu_percent": (60.0, 80.0), "ram_percent": (0.0, 80.0)}
"""Where the use of GPU, CPU and RAM should be while training, in percent: the bands that a monitor draws."""

BOTTLENECKS = {
    "": "not settled yet",
    "model_bound": "the model's own step",
    "main_thread_bound": "the training process, which loads, copies or augments between its steps",
    "cores_full": "the cores",
    "too_few_workers": "the workers",
    "fetch_bound": "reading the data",
}
"""What can hold a monitored run up: stable ids, and words for them."""


def to_json(record: Any) -> str:
    """Write any record as indented JSON, ``schema_version`` first where it has one."""
    content = msgspec.to_builtins(record)
    if "schema_version" in content:
        content = {"schema_version": content.pop("schema_version"), **content}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def from_json(text: str | bytes, kind: type[Record]) -> Record:
    """Read a record of that kind; raise ``UsageError`` where the text is not one. A plan may have no other fields."""
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
    """Raise ``UsageError`` for a plan given as a report, or the reverse, and for a field that a plan does not have."""
    known = {each: {field.name for field in fields(each)} for each in (Plan, Report)}
    other, advice = (
        (Report, "python -m audioaug.advise --load FILE shows it, and --plan FILE beside it writes its plan.")
        if kind is Plan
        else (Plan, "python -m audioaug.advise --verify FILE measures it.")
    )
    if len(content.keys() & known[other]) > len(content.keys() & known[kind]):
        raise UsageError(f"This is a {other.__name__.lower()}, not a {kind.__name__.lower()}.", advice)
    if kind is Plan and (unknown := sorted(content.keys() - known[Plan])):
        raise UsageError(f"A plan has no field {unknown[0]!r}.", did_you_mean(unknown[0], known[Plan]))


def _check_numbers(content: Any, above_0: Sequence[str], name: str = "") -> None:
    """Raise ``UsageError`` for a number, at any depth, that is too large, or named among ``above_0`` and not that."""
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
    """Write a record as JSON to a file; raise ``OutputError`` where that cannot be."""
    write_file(to_json(record) + "\n", path)


def read_record(path: str | Path, kind: type[Record]) -> Record:
    """Read a record from a JSON file; raise ``UsageError`` naming the file where that cannot be."""
    try:
        text = read_file(path)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from None
    try:
        return from_json(text, kind)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.next_step) from None
