"""How fast does a small network train on each device, and what raises its throughput? Published claims, measured here.

    python scripts/experiment_throughput.py --trace trace.json      about a minute, report on stdout
    python scripts/experiment_throughput.py --quick --json result.json
    python scripts/experiment_throughput.py --load result.json

A fully connected network (1000 -> 512 -> 256 -> 2) with Adam on 10,000 random examples, 10 full-batch epochs: in fp32
and mixed precision, in smaller batches, through DataLoaders, over processes with torchrun. The trace opens at
ui.perfetto.dev. ``notebooks/04_when_does_a_gpu_pay.ipynb`` draws what this measures.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import click
import torch
from experiment_crossover import step_of
from experiment_shared import (
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
    times,
    to_lines,
)
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

from audioaug.decide.race import Ratio, paired_ratio
from audioaug.errors import MeasurementError
from audioaug.loader.prefetch import as_device
from audioaug.measure import clock_for, host_facts, interleave
from audioaug.records import HostFacts, Interval, Measurement, Timing, from_json, to_json
from audioaug.units import format_bytes, format_interval, format_percent, format_seconds, significant

# Records

EPOCHS = 10
"""As many as the published example trains for."""


@dataclass(frozen=True)
class Size:
    """How much to measure: examples, batch sizes, and seconds for each part; ``rounds`` of each at least."""

    examples: int
    batches: tuple[int, ...]
    seconds: float
    rounds: int


QUICK = Size(256, (32, 256), 1, 3)
FULL = Size(10_000, (100, 1_000, 10_000), 15, 5)


@dataclass(frozen=True)
class Way:
    """One way to train: seconds an epoch of ``examples`` examples."""

    name: str
    examples: int
    epoch: Timing

    @property
    def examples_per_second(self) -> float:
        """The throughput."""
        return self.examples / self.epoch.median

    @property
    def time_to_train(self) -> float:
        """Seconds for all epochs."""
        return EPOCHS * self.epoch.median

    @property
    def time_to_train_ci(self) -> Interval:
        """The 95 % interval of that."""
        low, high = self.epoch.interval
        return EPOCHS * low, EPOCHS * high

    def over(self, other: "Way") -> Ratio:
        """Return how many times the other's throughput this has, by rounds that both ran in."""
        ours, theirs = (Measurement(way.name, way.epoch, Timing(()), 1) for way in (self, other))
        return paired_ratio(theirs, ours)


@dataclass(frozen=True)
class Operator:
    """An operator of torch and its share of the time of an epoch."""

    name: str
    calls: int
    share: float


@dataclass(frozen=True)
class Choice:
    """A kind of work, the device that it is said to belong on, and seconds on each device."""

    work: str
    said: str
    times: dict[str, Timing]

    @property
    def fastest(self) -> str:
        """The device whose interval lies below all others', or "either"; "" where there is only one."""
        if len(self.times) < 2:
            return ""
        first, second = sorted(self.times, key=lambda device: self.times[device].median)[:2]
        return first if self.times[first].interval[1] < self.times[second].interval[0] else "either"


@dataclass(frozen=True)
class Throughput:
    """All that was measured. Names of ways begin with the device: ``cpu fp32``."""

    host: HostFacts
    examples: int
    precisions: tuple[Way, ...] = ()
    batches: tuple[Way, ...] = ()
    loading: tuple[Way, ...] = ()
    operators: tuple[Operator, ...] = ()
    traced_seconds: float = 0.0
    processes: dict[int, Timing] | None = None
    processes_on: str = ""
    choices: tuple[Choice, ...] = ()
    claims: tuple[Claim, ...] = ()
    schema_version: int = 1

    def way(self, name: str) -> Way | None:
        """Return what a way of that name costs, if it was tried."""
        ways = (*self.precisions, *self.batches, *self.loading)
        return next((way for way in ways if way.name == name), None)


# The network

FEATURES = 1000
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

Data = tuple[torch.Tensor, torch.Tensor]


def data(examples: int) -> Data:
    """Return random examples (N, F) and labels (N)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(examples, FEATURES, generator=generator), torch.randint(2, (examples,), generator=generator)


def network() -> nn.Module:
    """Return 1000 -> 512 -> 256 -> 2."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 2))


class Trainer:
    """The network, Adam and a precision on a device. Takes one step on a batch."""

    def __init__(self, device: torch.device, precision: str = "fp32") -> None:
        self.device, self.precision = device, precision
        self.model = network().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def step(self, x_BF: torch.Tensor, label_B: torch.Tensor) -> None:
        """Train on a batch that lies on the device."""
        with torch.autocast(self.device.type, DTYPES.get(self.precision), enabled=self.precision in DTYPES):
            loss = cross_entropy(self.model(x_BF), label_B)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def epoch(self, batches: Iterable[Data]) -> None:
        """Train on batches that lie anywhere."""
        for x_BF, label_B in batches:
            self.step(x_BF.to(self.device, non_blocking=True), label_B.to(self.device, non_blocking=True))


def resident(device: torch.device, examples: int, batch: int) -> list[Data]:
    """Return the data in batches that lie on the device."""
    x_NF, label_N = (part.to(device) for part in data(examples))
    return list(zip(x_NF.split(batch), label_N.split(batch), strict=True))


def full_batch_epoch(device: torch.device, precision: str, examples: int) -> Callable[[], None]:
    """Return one epoch that is one step on all examples."""
    return partial(Trainer(device, precision).epoch, resident(device, examples, examples))


def timed_ways(
    works: dict[str, Callable[[], None]], examples: int, device: torch.device, seconds: float, rounds: int
) -> tuple[Way, ...]:
    """Time epochs of several ways in turn."""
    times = interleave(works, clock_for(device), seconds=seconds, at_least=rounds)
    return tuple(Way(name, examples, timing) for name, timing in times.items())


def precisions(devices: list[torch.device], examples: int, seconds: float, rounds: int) -> tuple[Way, ...]:
    """Time full-batch epochs on every device in every precision it trains in."""
    works = {
        f"{device.type} {precision}": full_batch_epoch(device, precision, examples)
        for device in devices
        for precision in ("fp32", "bf16", *(["fp16"] if device.type == "cuda" else []))
    }
    return timed_ways(works, examples, devices[-1], seconds, rounds)


def batch_sizes(
    device: torch.device, sizes: tuple[int, ...], examples: int, seconds: float, rounds: int
) -> tuple[Way, ...]:
    """Time epochs in batches of each size, all of them on the device."""
    works = {f"batches of {size:,}": partial(Trainer(device).epoch, resident(device, examples, size)) for size in sizes}
    return timed_ways(works, examples, device, seconds, rounds)


# Loading

LOADED, AHEAD = "DataLoader, no worker", "DataLoader, 1 worker"
COPIED, STREAMED = "copied before each step", "copied on a stream beside"


def ways_to_load(device: torch.device, batch: int, examples: int, seconds: float, rounds: int) -> tuple[Way, ...]:
    """Time epochs in batches of that size, loaded in each way that this device has."""
    dataset = TensorDataset(*data(examples))
    works: dict[str, Callable[[], None]] = {
        "slices in memory": partial(Trainer(device).epoch, resident(device, examples, batch)),
        LOADED: partial(Trainer(device).epoch, DataLoader(dataset, batch)),
        AHEAD: partial(Trainer(device).epoch, DataLoader(dataset, batch, num_workers=1, persistent_workers=True)),
    }
    if device.type == "cuda":
        pinned = [(x_BF.pin_memory(), label_B.pin_memory()) for x_BF, label_B in resident(CPU, examples, batch)]
        works[COPIED] = partial(Trainer(device).epoch, pinned)
        works[STREAMED] = partial(_streamed_epoch, Trainer(device), pinned)
    return timed_ways(works, examples, device, seconds, rounds)


CPU = torch.device("cpu")


def _streamed_epoch(trainer: Trainer, pinned: list[Data]) -> None:
    trainer.epoch(_streamed(pinned, trainer.device))


def _streamed(pinned: list[Data], device: torch.device) -> Iterator[Data]:
    """Yield batches that were copied while the step before was trained."""
    side, training = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    waiting: list[tuple[torch.Tensor, ...]] = []
    for batch in pinned:
        with torch.cuda.stream(side):
            copied = tuple(part.to(device, non_blocking=True) for part in batch)
        while waiting:
            yield waiting.pop()
        training.wait_stream(side)
        for part in copied:
            part.record_stream(training)
        waiting.append(copied)
    yield from waiting


# Processes

MOST_PROCESSES, TIMEOUT_SECONDS = 8, 300
TEAM_DEVICE = "AUDIOAUG_SCALE_ON"
"""The environment variable that makes this file a process of torchrun, on "cpu" or "cuda"."""


def usable_gpus(device: torch.device) -> int:
    """Return how many GPUs can share the work; none where there is only one."""
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    return gpus if gpus > 1 else 0


def over_processes(device: torch.device, cores: float, size: Size) -> dict[int, Timing]:
    """Return seconds an epoch by the number of processes, of which each has its share of the examples and one thread.

    Raises:
        MeasurementError: torchrun failed.
    """
    gpus = usable_gpus(device)
    processes = min(MOST_PROCESSES, gpus or max(2, int(cores)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "times.json")
        worker = [__file__, str(size.examples), str(size.rounds), str(path)]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environ = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", TEAM_DEVICE: "cuda" if gpus else "cpu"}
        done = subprocess.run(
            [*torchrun, *worker], env=os.environ | environ, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise MeasurementError(f"Training over {processes} processes failed: {last}")
        return from_json(path.read_bytes(), dict[int, Timing])


class Team:
    """The first ``members`` processes, which train together, each on its share of the examples."""

    def __init__(self, members: int, examples: int, rank: int, device: torch.device) -> None:
        self.members, self.group, self.inside = members, distributed.new_group(range(members)), rank < members
        if self.inside:
            self.part = [part.to(device).chunk(members)[rank] for part in data(examples)]
            self.model = DistributedDataParallel(network().to(device), process_group=self.group)
            self.optimizer = torch.optim.Adam(self.model.parameters())

    def epoch(self) -> None:
        """Train one full-batch step together."""
        x_BF, label_B = self.part
        loss = cross_entropy(self.model(x_BF), label_B)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def counts(processes: int) -> list[int]:
    """Return 1, 2, 4 ... and all of them."""
    return sorted({2**k for k in range(processes.bit_length()) if 2**k <= processes} | {processes})


def train_in_teams(examples: int, rounds: int, path: str) -> None:
    """Train in turn by one, two, four ... processes of torchrun; the first of them writes the times."""
    on_gpu = os.environ[TEAM_DEVICE] == "cuda"
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    torch.set_num_threads(1)
    clock = clock_for(device)
    teams = [Team(members, examples, rank, device) for members in counts(processes)]
    times: dict[int, list[float]] = {team.members: [] for team in teams}
    for turn in range(1 + rounds):
        for team in teams:
            distributed.barrier()  # those outside wait at the next one
            if team.inside:
                clock.synchronize()
                begin = clock.now()
                team.epoch()
                clock.synchronize()
                times[team.members] += [clock.now() - begin] if turn else []  # the first is warm-up
    distributed.barrier()
    if rank == 0:
        Path(path).write_text(to_json({members: Timing(tuple(seconds)) for members, seconds in times.items()}))
    distributed.destroy_process_group()


# Kinds of work

Work = Callable[[], object]

TURNS = 50


def works(device: torch.device, examples: int) -> dict[str, tuple[str, Work]]:
    """Return each kind of work on a device, with where it is said to belong."""
    one = torch.randn(1, FEATURES, device=device)
    model = network().to(device).eval()
    small = partial(Trainer(device).epoch, resident(device, 100, 100))
    return {
        "small: the network's answer for one example": ("cpu", partial(_answer, model, one)),
        "small: a step on 100 examples": ("cpu", small),
        f"branching: {TURNS} steps, each decided by the last": ("cpu", partial(_branch, one)),
        f"large: a step on {examples:,} examples": ("gpu", full_batch_epoch(device, "fp32", examples)),
        "audio: keyword_cnn.py, a step on 32 clips of 1 s": ("gpu", step_of(1.0, 32, device)),
    }


def choices(devices: list[torch.device], examples: int, seconds: float, rounds: int) -> tuple[Choice, ...]:
    """Time every kind of work on every device, in turn."""
    by_device = {"gpu" if device.type != "cpu" else "cpu": works(device, examples) for device in devices}
    together = {f"{name}|{work}": run for name, some in by_device.items() for work, (_, run) in some.items()}
    times = interleave(together, clock_for(devices[-1]), seconds=seconds, at_least=rounds)
    return tuple(
        Choice(work, said, {name: times[f"{name}|{work}"] for name in by_device})
        for work, (said, _) in by_device["cpu"].items()
    )


def _answer(model: torch.nn.Module, one: torch.Tensor) -> float:
    with torch.no_grad():
        return float(model(one)[0, 0])


def _branch(one: torch.Tensor) -> torch.Tensor:
    """Halve or double, as the sum says: the host has to know it before the next one."""
    for _ in range(TURNS):
        one = one * 0.5 if float(one.abs().sum()) > FEATURES else one * 2.0
    return one


# A profiler's trace

MOST_OPERATORS = 6


def trace_epoch(
    epoch: Callable[[], None], device: torch.device, path: str | None
) -> tuple[tuple[Operator, ...], float]:
    """Profile an epoch, warm, and write its trace where asked to; return the slowest operators and the seconds."""
    epoch()
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that its events are cleared at the end
        begin = time.perf_counter()
        with profile(activities=activities) as found:
            epoch()
            if on_gpu:
                torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
        if path:
            found.export_chrome_trace(path)
        events = found.key_averages()
    times = {e.key: (e.self_device_time_total if on_gpu else e.self_cpu_time_total, e.count) for e in events}
    total = sum(spent for spent, _ in times.values()) or 1.0
    slowest = sorted(times, key=lambda name: -times[name][0])[:MOST_OPERATORS]
    return tuple(Operator(name, times[name][1], times[name][0] / total) for name in slowest), seconds


# Claims

SAYS = {
    "C1": "A small fully connected net (1000 -> 512 -> 256 -> 2, Adam, 10,000 random examples, 10 full-batch epochs) "
    "trains faster on a GPU.",
    "C2": "Throughput and time-to-train are the measures.",
    "C3": "Mixed precision raises throughput.",
    "C4": "Larger batches raise throughput.",
    "C5": "Asynchronous loading raises throughput.",
    "C6": "CUDA streams raise throughput.",
    "C7": "Profiling raises throughput.",
    "C8": "Several GPUs and clusters scale it.",
    "C9": "CPUs remain right for small, branching or memory-poor work.",
}
NO_GPU = "No GPU here."
MORE = 1.05
"""A throughput that is raised by less is not raised."""


def claims(found: Throughput) -> tuple[Claim, ...]:
    """Put each claim beside what was measured here."""
    findings = {
        "C1": _faster_on_gpu(found),
        "C2": _measures(found),
        "C3": _mixed_precision(found),
        "C4": _larger_batches(found),
        "C5": _raised(found, AHEAD, LOADED),
        "C6": _raised(found, STREAMED, COPIED),
        "C7": _profiling(found),
        "C8": _scaling(found),
        "C9": _choices(found),
    }
    return judge(SAYS, findings)


def describe(way: Way) -> str:
    """Return a way's throughput and its time to train, in words."""
    return f"{way.examples_per_second:,.0f} examples/s, {format_seconds(way.time_to_train)} for {EPOCHS} epochs"


def _faster_on_gpu(found: Throughput) -> Finding:
    cpu, gpu = found.way("cpu fp32"), found.way("cuda fp32")
    assert cpu is not None
    if gpu is None:
        return f"{NO_GPU} CPU: {describe(cpu)}.", "not tested"
    return f"GPU: {describe(gpu)}; CPU: {describe(cpu)}: {_words(gpu.over(cpu))}.", graded(_raises(gpu.over(cpu)))


def _measures(found: Throughput) -> Finding:
    said = "; ".join(f"{way.name} {describe(way)}" for way in found.precisions)
    by_rate = sorted(found.precisions, key=lambda way: -way.examples_per_second)
    by_time = sorted(found.precisions, key=lambda way: way.time_to_train)
    verdict = graded(by_rate == by_time)
    return (
        f"{said}. At one batch size the order is the same; how well it then answers is another measure.",
        verdict,
    )


def _mixed_precision(found: Throughput) -> Finding:
    pairs = [(way, found.way(f"{way.name.split()[0]} fp32")) for way in found.precisions if "fp32" not in way.name]
    gains = {way.name: way.over(full) for way, full in pairs if full is not None}
    words = ", ".join(f"{name} over fp32: {_words(gain)}" for name, gain in gains.items())
    return f"{words}.", graded(*map(_raises, gains.values()))


def _larger_batches(found: Throughput) -> Finding:
    words = ", ".join(f"{way.name}: {way.examples_per_second:,.0f} examples/s" for way in found.batches)
    gains = [_raises(after.over(before)) for before, after in pairwise(found.batches)]
    return f"{words}.", graded(*gains)


def _raised(found: Throughput, name: str, without: str) -> Finding:
    way, other = found.way(name), found.way(without)
    if way is None or other is None:
        return f"{NO_GPU} There is nothing to copy.", "not tested"
    gain = way.over(other)
    words = f"{name}, over {without}: {_words(gain)} (tensors in memory; experiment B has a loader with work to do)."
    return words, graded(_raises(gain))


def _words(gain: Ratio) -> str:
    return times(gain.value, (gain.low, gain.high))


def _raises(gain: Ratio) -> bool:
    return gain.value > MORE and gain.low > 1


def _profiling(found: Throughput) -> Finding:
    slowest = ", ".join(f"{o.name.removeprefix('aten::')} {format_percent(o.share)}" for o in found.operators[:3])
    full = found.way(f"{'cuda' if found.host.has_gpu else 'cpu'} fp32")
    assert full is not None
    slower = found.traced_seconds / full.epoch.median
    words = f"It raises nothing by itself (an epoch takes {slower:.2f} x as long), but says where time goes: {slowest}."
    return words, "in part"


def _scaling(found: Throughput) -> Finding:
    epochs = found.processes or {}
    if len(epochs) < 2:
        return "Not measured.", "not tested"
    gains = {count: epochs[1].median / timing.median for count, timing in epochs.items()}
    words = ", ".join(f"{count} together {gain:.2f} x" for count, gain in gains.items())
    most = max(gains)
    return f"torchrun, {found.processes_on}: {words}.", graded(gains[most] > MORE, gains[most] > 0.7 * most)


def _choices(found: Throughput) -> Finding:
    memory = f"RAM {format_bytes(found.host.ram_bytes)}"
    memory += f", VRAM {format_bytes(found.host.vram_bytes)}" if found.host.vram_bytes else ""
    said = [choice for choice in found.choices if choice.said == "cpu"]
    words = "; ".join(f"{choice.work}: {choice_words(choice)}" for choice in said)
    if not found.host.has_gpu:
        return f"{NO_GPU} {words}. {memory}.", "not tested"
    return f"{words}. {memory}.", graded(*(choice.fastest in ("cpu", "either") for choice in said))


def choice_words(choice: Choice) -> str:
    """Return what a kind of work takes on each device, in words."""
    return ", ".join(f"{device.upper()} {significant(timing.ms, 2)} ms" for device, timing in choice.times.items())


# Text


def to_text(found: Throughput) -> str:
    """Lay the results out in lines."""
    rows = [machine(found.host)]
    for title, ways in (
        (f"1000 -> 512 -> 256 -> 2, {found.examples:,} examples, full batch", found.precisions),
        ("Batch sizes", found.batches),
        ("Loading", found.loading),
    ):
        rows += ["", f"{title}: examples/s, seconds for {EPOCHS} epochs (95 % interval)", *map(_way, ways)]
    rows += ["", "Where the time of a full-batch epoch goes"]
    rows += [f"  {o.name:32} {format_percent(o.share):>6} in {o.calls} calls" for o in found.operators]
    rows += ["", "Over processes (torchrun): ms an epoch"]
    rows += [f"  {count:2} {timed(timing.ms, timing.ci_ms)}" for count, timing in (found.processes or {}).items()]
    rows += ["", "When to choose which (ms)"]
    for choice in found.choices:
        times = "   ".join(f"{device.upper()} {timed(t.ms, t.ci_ms)}" for device, t in choice.times.items())
        rows.append(f"  {choice.work:52} {times:34} {choice.fastest or 'only one device here'}")
    return "\n".join(rows + to_lines(found.claims))


def _way(way: Way) -> str:
    seconds = f"{significant(way.time_to_train, 3)} ({format_interval(*way.time_to_train_ci)})"
    return f"  {way.name:32} {way.examples_per_second:>12,.0f}   {seconds}"


# The experiment


def run(size: Size, device: torch.device, trace: str | None = None, say: Say = quiet) -> Throughput:
    """Measure everything."""
    devices = [torch.device("cpu"), *([device] if device.type != "cpu" else [])]
    found = Throughput(host_facts(device), size.examples)
    say("both precisions")
    found = replace(found, precisions=precisions(devices, size.examples, size.seconds, size.rounds))
    say("batch sizes")
    found = replace(found, batches=batch_sizes(device, size.batches, size.examples, size.seconds / 2, size.rounds))
    say("loading")
    found = replace(found, loading=ways_to_load(device, size.batches[0], size.examples, size.seconds / 2, size.rounds))
    say("a profiler's trace")
    operators, seconds = trace_epoch(full_batch_epoch(device, "fp32", size.examples), device, trace)
    say("over processes")
    cores = found.host.usable_cores
    on = "a GPU for each process" if usable_gpus(device) else f"a thread for each process, on {cores:g} cores"
    found = replace(found, processes=over_processes(device, cores, size), processes_on=on)
    say("kinds of work")
    table = choices(devices, size.examples, size.seconds / 2, size.rounds)
    found = replace(found, operators=operators, traced_seconds=seconds, choices=table)
    return replace(found, claims=claims(found))


@experiment(__doc__)
@click.option("--trace", metavar="FILE", help="Write the profiler's trace of an epoch.")
def main(quick: bool, device: str, json_: str | None, load: str | None, trace: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Throughput, lambda say: run(size, as_device(device), trace, say), to_text, json_, load, also=trace)


if __name__ == "__main__":
    train_in_teams(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]) if TEAM_DEVICE in os.environ else main()
