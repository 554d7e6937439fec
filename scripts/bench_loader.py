"""Does Loader hide its work behind the training step, and does it cost anything itself? Measured on this machine.

    python scripts/bench_loader.py                                a minute or two, a table on stdout
    python scripts/bench_loader.py --device cuda --workers 8 --json datasets/profiles/loader_cuda.json

* overlap: a step as long as the loader alone takes for a batch; both together should take little more than the longer
  of the two. Without a GPU the step sleeps, which leaves the cores to the workers as a GPU would.
* by hand: torch's DataLoader around the same worker part and module, without a step: Loader should be as fast.

All candidates take turns, in blocks; queued batches are not timed; ratios are paired by rounds.
"""

import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click
import torch
from compact_records import write_compact
from models import keyword_cnn as example
from torch.utils.data import DataLoader

import audioaug
from audioaug.advise.candidates import EndlessBatches
from audioaug.decide.race import Ratio, paired_ratio
from audioaug.loader.prefetch import as_device
from audioaug.measure import clock_for, host_facts
from audioaug.records import Measurement, Timing

OVERLAP, BY_HAND = 1.1, 1.02
"""Limits: both together over the longer one, and Loader over the hand-written loader."""

SPIN = 10**7
"""Clock cycles of the GPU, to find out how long they take."""

Step = Callable[[Any], object]


class Clips:
    """The demo speech after the worker part of a chain, with each example's number: a dataset written by hand."""

    def __init__(self, folder: audioaug.AudioFolder, worker: Any) -> None:
        self.folder, self.worker = folder, worker

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        wave, label = self.folder[index]
        return self.worker(wave, key=index), label, index


class Bench:
    """The setups on one device, with ``workers`` workers each."""

    def __init__(self, device: torch.device, workers: int, batch: int) -> None:
        self.device, self.workers, self.batch, self.clock = device, workers, batch, clock_for(device)
        self.folder = audioaug.AudioFolder(example.dataset, example.sample_rate, example.clip_seconds)
        self.order = EndlessBatches(len(self.folder), batch)

    def plan(self, cut: int) -> audioaug.Plan:
        return audioaug.Plan(cut=cut, num_workers=self.workers, pin_memory=self.device.type == "cuda")

    def loader(self, cut: int) -> Iterator[Any]:
        return iter(
            audioaug.Loader(self.folder, example.augment, self.plan(cut), batch_sampler=self.order, device=self.device)
        )

    def by_hand(self, cut: int) -> Iterator[Any]:
        worker, module = audioaug.split(example.augment, self.plan(cut))
        batches = DataLoader(
            Clips(self.folder, worker),
            batch_sampler=self.order,
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=one_thread,
        )
        return audioaug.prefetch(batches, self.device, module, key=2)

    def step(self, seconds: float) -> Step:
        """Return a step that keeps the device busy for ``seconds``."""
        if self.device.type != "cuda":
            return lambda batch: time.sleep(seconds)
        took = self.seconds_a_step(iter([None] * 4), lambda _: torch.cuda._sleep(SPIN), discard=1, steps=3)
        cycles = round(SPIN * seconds / took)
        return lambda batch: torch.cuda._sleep(cycles)

    def seconds_a_step(self, batches: Iterator[Any], step: Step, discard: int, steps: int) -> float:
        for _ in range(discard):
            step(next(batches))
        self.clock.synchronize()
        start = self.clock.now()
        for _ in range(steps):
            step(next(batches))
        self.clock.synchronize()
        return (self.clock.now() - start) / steps

    def in_turns(self, setups: Mapping[str, tuple[Iterator[Any], Step]], rounds: int) -> dict[str, Measurement]:
        """Return the step times of each setup, one a round; the first round is a warm-up."""
        queued = 2 * self.workers + 2
        steps = math.ceil(6 / self.workers) * self.workers  # workers that started together deliver together
        times: dict[str, list[float]] = {name: [] for name in setups}
        draw = random.Random(0)
        for turn in range(rounds + 1):
            for name in draw.sample(list(setups), len(setups)):
                seconds = self.seconds_a_step(*setups[name], discard=queued, steps=steps)
                times[name] += [seconds] if turn else []
        return {name: Measurement(name, Timing(tuple(each)), Timing(()), steps) for name, each in times.items()}


def one_thread(_: int) -> None:
    torch.set_num_threads(1)


def nothing(_: object) -> None:
    """No training at all."""


def longer(one: Measurement, other: Measurement) -> Measurement:
    pairs = zip(one.step.seconds, other.step.seconds, strict=True)
    return Measurement("the longer", Timing(tuple(map(max, pairs))), Timing(()), one.steps_per_block)


def overlap(bench: Bench, cut: int, rounds: int) -> tuple[Ratio, dict[str, Measurement]]:
    """Return how much longer both together take than the longer one, and all three."""
    alone = bench.loader(cut)
    pace = bench.seconds_a_step(alone, nothing, discard=2 * bench.workers + 2, steps=8 * bench.workers)
    step, ready = bench.step(pace), iter(lambda: None, 0)
    setups = {"loader": (alone, nothing), "step": (ready, step), "both": (bench.loader(cut), step)}
    found = bench.in_turns(setups, rounds)
    return paired_ratio(found["both"], longer(found["loader"], found["step"])), found


def by_hand(bench: Bench, cut: int, rounds: int) -> tuple[Ratio, dict[str, Measurement]]:
    """Return how much longer Loader takes for a batch than a DataLoader and the module, and both."""
    setups = {"Loader": (bench.loader(cut), nothing), "by hand": (bench.by_hand(cut), nothing)}
    found = bench.in_turns(setups, rounds)
    return paired_ratio(found["Loader"], found["by hand"]), found


def show(title: str, limit: float, ratio: Ratio, found: Mapping[str, Measurement]) -> dict[str, Any]:
    times = ", ".join(f"{name} {each.step.ms:.1f}" for name, each in found.items())
    verdict = "holds" if ratio.value <= limit else "does not hold"
    print(f"{title:<34} {ratio.value:.3f} ({ratio.low:.3f} .. {ratio.high:.3f}), at most {limit}: {verdict}")
    print(f"    ms a batch: {times}")
    seconds = {name: each.step.seconds for name, each in found.items()}
    return {"title": title, "ratio": asdict(ratio), "limit": limit, "seconds": seconds}


@click.command(context_settings={"max_content_width": 100})
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Of each loader.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Examples in a batch.")
@click.option("--rounds", type=click.IntRange(2), default=15, show_default=True, help="Blocks of each candidate.")
@click.option("--json", "json_", metavar="FILE", help="Write the result as JSON.")
def main(device: str, workers: int, batch: int, rounds: int, json_: str | None) -> None:
    """Measure how well Loader overlaps with a step, and what it costs beside a DataLoader."""
    torch.set_num_threads(1)
    bench, ops = Bench(as_device(device), workers, batch), len(example.augment)
    results = []
    cuts = {"all in the workers": ops} | ({"all on the GPU": 0} if bench.device.type == "cuda" else {})
    for name, cut in cuts.items():
        results.append(show(f"overlap, {name}", OVERLAP, *overlap(bench, cut, rounds)))
    for name, cut in {"all in the workers": ops, "split": ops // 2, "all on the device": 0}.items():
        results.append(show(f"by hand, {name}", BY_HAND, *by_hand(bench, cut, rounds)))
    if json_:
        content = {"host": asdict(host_facts(bench.device)), "workers": workers, "batch": batch, "results": results}
        write_compact(content, json_)
    sys.exit(any(each["ratio"]["value"] > each["limit"] for each in results))


if __name__ == "__main__":
    main()
