"""What do actors of Ray Data cost against workers of a DataLoader, and does the prediction for them hold?

    python scripts/bench_ray.py                                   some minutes, a table on stdout
    python scripts/bench_ray.py --json datasets/profiles/ray_cpu_2_cores.json

The advisor measures the stages of a training whose step sleeps, which leaves the cores to the workers as a GPU would,
and how fast this machine receives batches. Then 1 and 2 workers of a ``Loader`` and 1 and 2 actors feed that training,
in turn. The prediction for actors is that of ``--what-if remote=N``.

Actors are on this machine: they share its cores with the training and with Ray itself, as those on other nodes do not.
So up to 4 actors that sleep, in place of augmenting, feed it as well: what the simulated cluster says of them.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import click
import numpy as np
import torch
from compact_records import write_compact
from models import keyword_cnn as example

import audioaug
from audioaug.advise import recommend
from audioaug.decide.cluster import Cluster, simulate_cluster
from audioaug.decide.remote import Remote
from audioaug.integrations.ray import Augment, batches
from audioaug.records import HostFacts, Plan, ReceiveRate, Timing

BATCH, STEP_SECONDS = 32, 0.005
WARM_UP, BATCHES = 80, 80
"""Batches before the clock starts, until all actors run, and those that are timed."""

WORKERS, SLEEPERS = (1, 2), (1, 2, 3, 4)
SLEEP_SECONDS = 0.1
"""What an actor that sleeps takes for a batch."""

ALLOWED = 0.15
"""Largest relative error of the prediction."""


@dataclass(frozen=True)
class Row:
    """Milliseconds a step with this many workers or actors, over rounds; what was predicted for actors."""

    feeder: str
    workers: int
    step_ms: float
    ci_ms: tuple[float, float]
    predicted_ms: float | None = None

    @property
    def error(self) -> float | None:
        """How far the prediction is from the measurement, relative to it."""
        return None if self.predicted_ms is None else self.predicted_ms / self.step_ms - 1


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


def read(row: dict[str, Any], data: Numbers) -> dict[str, Any]:
    """Read an example, in a process of Ray's."""
    wave, label = data[row["number"]]
    return {"audio": wave, "label": label, "key": row["number"]}


def step_seconds(feeder: Iterator[Any]) -> float:
    """Train with the sleeping step; return the seconds a step, without those at the start."""
    for _ in range(WARM_UP):
        next(feeder)
    begin, count = time.perf_counter(), 0
    for batch in feeder:
        sleepy(None, batch, None)  # type: ignore[arg-type]
        count += 1
    return (time.perf_counter() - begin) / count


def by_loader(data: Numbers, plan: Plan) -> float:
    """Return the seconds a step with workers of a Loader."""
    return step_seconds(iter(audioaug.Loader(data, example.augment, plan, batch_size=BATCH, device="cpu")))


def by_ray(data: Numbers, plan: Plan) -> float:
    """Return the seconds a step with actors."""
    return fed_by_actors(numbers(data).map(read, fn_kwargs={"data": data}), example.augment, plan, Augment)


class Sleeper(Augment):
    """Takes its time, on no core, for silence."""

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return a batch of silence."""
        time.sleep(SLEEP_SECONDS)
        samples = round(example.clip_seconds * example.sample_rate)
        silence = np.zeros((len(batch["number"]), 1, samples), np.float32)
        return super().__call__({"audio": silence, "key": batch["number"]})


def by_sleepers(data: Numbers, workers: int) -> float:
    """Return the seconds a step with actors that sleep."""
    chain = audioaug.Chain([], example.sample_rate)
    return fed_by_actors(numbers(data), chain, Plan(num_workers=workers), Sleeper)


def numbers(data: Numbers) -> Any:
    """Return the examples' numbers as a dataset of Ray Data."""
    import ray

    return ray.data.from_items([{"number": k} for k in range(len(data))], override_num_blocks=len(data) // BATCH)


def fed_by_actors(ds: Any, chain: audioaug.Chain, plan: Plan, worker: type[Augment]) -> float:
    """Return the seconds a step with as many actors as the plan has workers."""
    import ray

    actors, how = ray.data.ActorPoolStrategy(size=plan.num_workers), {"chain": chain, "plan": plan}
    ds = ds.map_batches(worker, fn_constructor_kwargs=how, batch_size=BATCH, compute=actors)
    return step_seconds(iter(batches(ds, chain, plan, batch_size=BATCH, device="cpu")))


def simulated(workers: int, remote: Remote) -> float:
    """Return the milliseconds a step that the simulated cluster predicts for sleeping actors."""
    receive_ms, send_ms = float(remote.stages.receive_remote[0]), float(remote.stages.send_remote[0])
    batch_ms, step_ms = 1e3 * SLEEP_SECONDS + send_ms, 1e3 * STEP_SECONDS + receive_ms
    cluster = Cluster(workers, batch_ms, step_ms, receive_ms)
    return simulate_cluster(cluster).step_ms


def measure(rounds: int, budget: float) -> Result:
    """Measure stages and rates, predict, and let loaders and actors take turns."""
    import ray

    data, how = Numbers(), {"batch_size": BATCH, "train_step": sleepy, "workers": [0, *WORKERS]}
    report = recommend(example.build_model(), example.augment, data, budget=budget, remote=max(WORKERS), **how)
    remote = Remote(report)
    if not remote.splits:
        raise click.ClickException(f"The advisor measured no stages: {report.verdict}")
    steps = {count: remote.step(count) for count in WORKERS}
    plans = {
        count: Plan(cut=step.split.cut, worker_engine=step.split.engine, num_workers=count)
        for count, step in steps.items()
    }
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    ways = {
        "Loader": lambda count: by_loader(data, plans[count]),
        "Ray": lambda count: by_ray(data, plans[count]),
        "Ray, sleeping": lambda count: by_sleepers(data, count),
    }
    predicted = {("Ray", count): step.ms for count, step in steps.items()}
    predicted |= {("Ray, sleeping", count): simulated(count, remote) for count in SLEEPERS}
    times = {key: list[float]() for key in [*(("Loader", count) for count in WORKERS), *predicted]}
    for _ in range(rounds):
        for (name, count), found in times.items():
            found.append(ways[name](count))
            click.echo(f"{name}, {count}: {1e3 * found[-1]:.1f} ms a step", err=True)
    timings = {key: Timing(tuple(found)) for key, found in times.items()}
    rows = tuple(Row(*key, timing.ms, timing.ci_ms, predicted.get(key)) for key, timing in timings.items())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Result(report.host, now, report.signals.batch_bytes or 0, report.receive_rates, rows)


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
