"""What do actors of Ray Data cost against workers of a DataLoader, and does the prediction for them hold?

    python scripts/bench_ray.py                                   some minutes, a table on stdout
    python scripts/bench_ray.py --json datasets/profiles/ray_cpu_2_cores.json

In each round, the advisor measures the stages of a training whose step sleeps, which leaves the cores to the workers as
a GPU would, and how fast this machine receives batches. Then 1 and 2 workers of a ``Loader`` and 1 and 2 actors feed
that training, each with the whole chain: without a GPU, what is left of it would take cores as well. The prediction for
actors is that of ``--what-if remote=N`` for this cut.

Actors are on this machine: they share its cores with the training and with Ray itself, as those on other nodes do not.
So the prediction is never below what these cores need for a batch: the time of as many workers of the ``Loader``, and
the processor time of Ray, which is measured while 1 to 4 actors sleep in place of augmenting. These have a prediction,
too: what the simulated cluster says of them.
"""

import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import median
from typing import Any

import click
import numpy as np
import psutil
import torch
from compact_records import write_compact
from models import keyword_cnn as example

import audioaug
from audioaug.advise import recommend
from audioaug.decide.cluster import Cluster, simulate_cluster
from audioaug.decide.remote import Remote
from audioaug.integrations.ray import Augment, batches
from audioaug.measure.receive import IN_FLIGHT
from audioaug.records import HostFacts, Plan, ReceiveRate, Report, Timing

BATCH, STEP_SECONDS = 32, 0.005
WARM_UP, BATCHES = 80, 80
"""Batches before the clock starts, until all actors run, and those that are timed."""

WORKERS, SLEEPERS = (1, 2), (1, 2, 3, 4)
SLEEP_SECONDS = 0.1
"""What an actor that sleeps takes for a batch."""

ALLOWED = 0.15
"""Largest relative error of the prediction."""

Times = dict[tuple[str, int], list[float]]
"""Milliseconds a step, a round each, by what feeds it and how many workers it has."""


@dataclass(frozen=True)
class Row:
    """Milliseconds a step with this many workers or actors, over rounds; what was predicted for actors.

    ``error``: how far the prediction is from the measurement of its round, relative to it; the median.
    """

    feeder: str
    workers: int
    step_ms: float
    ci_ms: tuple[float, float]
    predicted_ms: float | None = None
    error: float | None = None
    errors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Result:
    """All rows, and how fast this machine receives batches, of ``batch_bytes``."""

    host: HostFacts
    date: str
    batch_bytes: int
    receive_rates: tuple[ReceiveRate, ...]
    rows: tuple[Row, ...]
    schema_version: int = 1


def sleepy(model: torch.nn.Module, batch: Any, optimizer: Any) -> None:
    """Take as long as a GPU's step, on no core."""
    time.sleep(STEP_SECONDS)


class Numbers:
    """As many examples as a run takes: the demo speech again and again."""

    def __init__(self) -> None:
        self.folder = audioaug.AudioFolder(example.dataset, example.sample_rate, example.clip_seconds)

    def __len__(self) -> int:
        return (WARM_UP + BATCHES) * BATCH

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.folder[number % len(self.folder)]


@dataclass(frozen=True)
class Took:
    """Milliseconds a step, and those of all processors together."""

    step_ms: float
    cpu_ms: float


def timed(feeder: Iterator[Any]) -> Took:
    """Train with the sleeping step; return what a step took, without those at the start."""
    for _ in range(WARM_UP):
        next(feeder)
    begin, cpu_begin, count = time.perf_counter(), cpu_seconds(), 0
    for batch in feeder:
        sleepy(None, batch, None)  # type: ignore[arg-type]
        count += 1
        if count == BATCHES // 2:  # an actor that is done ends, and its processor time is lost
            cpu_end = cpu_seconds()
    return Took(1e3 * (time.perf_counter() - begin) / count, 1e3 * (cpu_end - cpu_begin) / (BATCHES // 2))


def cpu_seconds() -> float:
    """Return the processor time of this process and of all that it has started."""
    me = psutil.Process()
    times = (process.cpu_times() for process in [me, *me.children(recursive=True)])
    return sum(time.user + time.system for time in times)


def by_loader(data: Numbers, plan: Plan) -> Took:
    """Return what a step takes with workers of a Loader."""
    return timed(iter(audioaug.Loader(data, example.augment, plan, batch_size=BATCH, device="cpu")))


class Reader(Augment):
    """Reads the examples that it augments."""

    def __init__(self, chain: audioaug.Chain, plan: Plan, read_from: Numbers) -> None:
        super().__init__(chain, plan)
        self.data = read_from

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return the batch of these numbers."""
        waves, labels = zip(*(self.data[int(number)] for number in batch["number"]), strict=True)
        return super().__call__({"audio": np.stack(waves), "label": np.array(labels), "key": batch["number"]})


def by_ray(data: Numbers, plan: Plan) -> Took:
    """Return what a step takes with actors."""
    return fed_by_actors(data, example.augment, plan, Reader, read_from=data)


class Sleeper(Augment):
    """Takes its time, on no core, for silence."""

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return a batch of silence."""
        time.sleep(SLEEP_SECONDS)
        samples = round(example.clip_seconds * example.sample_rate)
        silence = np.zeros((len(batch["number"]), 1, samples), np.float32)
        return super().__call__({"audio": silence, "key": batch["number"]})


def by_sleepers(data: Numbers, workers: int) -> Took:
    """Return what a step takes with actors that sleep."""
    chain = audioaug.Chain([], example.sample_rate)
    return fed_by_actors(data, chain, Plan(num_workers=workers), Sleeper)


def fed_by_actors(data: Numbers, chain: audioaug.Chain, plan: Plan, worker: type[Augment], **how: Any) -> Took:
    """Return what a step takes with as many actors as the plan has workers."""
    import ray

    ds = ray.data.from_items([{"number": k} for k in range(len(data))], override_num_blocks=len(data) // BATCH)
    ds = ds.map_batches(
        worker,
        fn_constructor_kwargs={"chain": chain, "plan": plan, **how},
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=plan.num_workers, max_tasks_in_flight_per_actor=IN_FLIGHT),
    )
    return timed(iter(batches(ds, chain, plan, batch_size=BATCH, device="cpu")))


def simulated(workers: int, remote: Remote) -> float:
    """Return the milliseconds a step that the simulated cluster predicts for sleeping actors."""
    receive_ms, send_ms = float(remote.stages.receive_remote[0]), float(remote.stages.send_remote[0])
    batch_ms, step_ms = 1e3 * SLEEP_SECONDS + send_ms, 1e3 * STEP_SECONDS + receive_ms
    cluster = Cluster(workers, batch_ms, step_ms, receive_ms)
    return simulate_cluster(cluster).step_ms


def shared_cores(host: HostFacts, workers: int, loader_ms: float, asleep: Collection[Took]) -> float:
    """Return the milliseconds that a batch keeps this machine's cores busy, with Ray.

    Workers take what as many of the ``Loader`` take, which share the cores already. Ray takes processor time for each
    batch, and all the time: both from actors that sleep for longer or shorter.
    """
    always, each_ms = np.polyfit([took.step_ms for took in asleep], [took.cpu_ms for took in asleep], 1)
    click.echo(f"Ray takes {each_ms:.1f} ms a batch and {always:.0%} of a core", err=True)
    return float((workers * loader_ms + each_ms) / (host.usable_cores - always))


def measure(rounds: int, budget: float) -> Result:
    """Measure stages and rates, predict, and let loaders and actors feed a training, in each round."""
    import ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    measured, predicted, data = Times(), Times(), Numbers()
    for _ in range(rounds):
        report = advised(data, budget)
        remote = Remote(report)
        remote.splits = [split for split in remote.splits if split.cut == len(report.chain.ops)]
        for key, (predicted_ms, step_ms) in one_round(data, remote).items():
            measured.setdefault(key, []).append(step_ms)
            if predicted_ms is not None:
                predicted.setdefault(key, []).append(predicted_ms)
    rows = tuple(row(key, found, predicted.get(key, [])) for key, found in measured.items())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Result(report.host, now, report.signals.batch_bytes or 0, report.receive_rates, rows)


def advised(data: Numbers, budget: float) -> Report:
    """Return the advisor's report, with the stages."""
    how: dict[str, Any] = {"batch_size": BATCH, "train_step": sleepy, "workers": [0, *WORKERS]}
    report = recommend(example.build_model(), example.augment, data, budget=budget, remote=max(WORKERS), **how)
    if not Remote(report).splits:
        raise click.ClickException(f"The advisor measured no stages: {report.verdict}")
    return report


def one_round(data: Numbers, remote: Remote) -> dict[tuple[str, int], tuple[float | None, float]]:
    """Return milliseconds a step, predicted and measured, by what feeds the training and how many workers it has."""
    found = dict[tuple[str, int], tuple[float | None, float]]()

    def add(feeder: str, workers: int, predicted_ms: float | None, took: Took) -> None:
        found[feeder, workers] = predicted_ms, took.step_ms
        words = "" if predicted_ms is None else f", {predicted_ms:.1f} predicted"
        click.echo(f"{feeder}, {workers}: {took.step_ms:.1f} ms a step{words}", err=True)

    asleep = {count: by_sleepers(data, count) for count in SLEEPERS}
    for count, took in asleep.items():
        add("Ray, sleeping", count, simulated(count, remote), took)
    for count in WORKERS:
        step = remote.step(count)
        plan = Plan(cut=step.split.cut, worker_engine=step.split.engine, num_workers=count)
        loader = by_loader(data, plan)
        add("Loader", count, None, loader)
        busy_ms = shared_cores(remote.report.host, count, loader.step_ms, asleep.values())
        add("Ray", count, max(step.ms, busy_ms), by_ray(data, plan))
    return found


def row(key: tuple[str, int], measured: list[float], predicted: list[float]) -> Row:
    """Return what the rounds say of a feeder."""
    timing = Timing(tuple(ms / 1e3 for ms in measured))
    if not predicted:
        return Row(*key, timing.ms, timing.ci_ms)
    errors = tuple(expected / found - 1 for expected, found in zip(predicted, measured, strict=True))
    return Row(*key, timing.ms, timing.ci_ms, median(predicted), median(errors), errors)


def lines(result: Result) -> Iterator[str]:
    """Yield the table and what it says."""
    yield f"{'fed by':20} {'ms a step':>10} {'95 % interval':>16} {'predicted':>10} {'error':>7}"
    for row in result.rows:
        words = "" if row.error is None else f" {row.predicted_ms:10.1f} {row.error:+7.0%}"
        low, high = row.ci_ms
        yield f"{row.feeder + ', ' + str(row.workers):20} {row.step_ms:10.1f} {f'{low:.1f} .. {high:.1f}':>16}{words}"
    for rate in result.receive_rates:
        low, high = rate.ci
        yield f"Received over {rate.connections}: {rate.mb_per_second:.0f} MB/s ({low:.0f} .. {high:.0f})."
    worst = max(abs(row.error) for row in result.rows if row.error is not None)
    met = "met" if worst <= ALLOWED else "MISSED"
    yield f"Largest error of a prediction: {worst:.0%} (goal at most {ALLOWED:.0%}: {met})."


@click.command(help=(__doc__ or "").partition("\n\n")[0], context_settings={"max_content_width": 100})
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--budget", default=40.0, show_default=True, type=click.FloatRange(2), help="Seconds for the advisor.")
@click.option("--json", "json_", metavar="FILE", help="Write the result.")
def main(rounds: int, budget: float, json_: str | None) -> None:
    result = measure(rounds, budget)
    for line in lines(result):
        print(line)
    if json_:
        write_compact(result, json_)


if __name__ == "__main__":
    sys.exit(main())
