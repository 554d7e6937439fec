"""What does audioaug.Monitor cost? Measured three ways, on this machine.

    python scripts/bench_monitor.py                     half a minute, a table on stdout
    python scripts/bench_monitor.py --json result.json

* a step: the time to take a batch that is there, between training steps, monitored and not: what each step pays;
* a look: what closing a window takes, with a log, a page and the terminal view on: paid about once a second;
* all of it: training steps of a small network, monitored and not, in turns: the ratio of their times with its spread.
"""

import contextlib
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import torch
from compact_records import write_compact

from audioaug import Monitor
from audioaug.loader.prefetch import as_device
from audioaug.records import Timing
from audioaug.units import format_percent


class Forever:
    """One batch, again and again."""

    def __init__(self, batch: object) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[object]:
        while True:
            yield self.batch


def training_step(device: torch.device, width: int) -> Callable[[object], object]:
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch: object) -> object:
        optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        return optimizer.step()

    return step


def seconds_a_step(
    batches: Iterator[object], step: Callable[[object], object], steps: int, device: torch.device
) -> float:
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    finish()
    start = time.perf_counter()
    for _ in range(steps):
        step(next(batches))
    finish()
    return (time.perf_counter() - start) / steps


def in_turns(
    setups: Iterable[Iterator[object]], step: Callable[[object], object], steps: int, rounds: int, device: torch.device
) -> list[tuple[float, float]]:
    setups = list(setups)
    for setup in setups:
        seconds_a_step(setup, step, steps, device)  # warm
    found = []
    for turn in range(rounds):  # who is first changes, so that going first is no advantage
        order = (0, 1) if turn % 2 else (1, 0)
        times = {place: seconds_a_step(setups[place], step, steps, device) for place in order}
        found.append((times[0], times[1]))
    return found


def microseconds_a_batch(
    plain: Iterator[object], watched: Iterator[object], step: Callable[[object], object], rounds: int
) -> float:
    """Between training steps, since code is slower when other work has had the caches."""
    extra = []
    for _ in range(rounds):
        start = time.perf_counter()
        batch = next(plain)
        took = time.perf_counter() - start
        step(batch)
        start = time.perf_counter()
        batch = next(watched)
        extra.append(time.perf_counter() - start - took)
        step(batch)
    return statistics.median(extra) * 1e6


def measure(device: torch.device, rounds: int, width: int, rows: int) -> dict[str, float]:
    batch = torch.randn(rows, width, device=device)
    step = training_step(device, width)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        settings = {"device": device, "log": Path(folder, "log"), "html": Path(folder, "page"), "live": True}
        with Monitor(Forever(batch), **settings) as watched:
            pairs = in_turns((iter(Forever(batch)), iter(watched)), step, 10, rounds, device)
        with Monitor(Forever(batch), every=1e9, live=False, device=device) as silent:
            step_us = microseconds_a_batch(iter(Forever(batch)), iter(silent), step, rounds)
    ratios = Timing(tuple(monitored / plain for plain, monitored in pairs))
    look = watched.cost_seconds / max(1, len(watched.windows))
    training_ms = statistics.median(plain for plain, _ in pairs) * 1e3
    return {
        "step_ms": training_ms,
        "per_step_us": step_us,
        "look_ms": look * 1e3,
        "looks": len(watched.windows),
        "share": step_us / 1e3 / training_ms + min(1 / 250, look),
        "ratio": ratios.median,
        "ratio_low": ratios.interval[0],
        "ratio_high": ratios.interval[1],
    }


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--rounds", default=300, show_default=True, help="Pairs of blocks of 10 steps.")
@click.option("--width", default=512, show_default=True, help="Of the network's layers.")
@click.option("--rows", default=128, show_default=True, help="Examples in a batch.")
@click.option("--json", "json_", metavar="FILE", help="Write the result as JSON.")
def main(device: str, rounds: int, width: int, rows: int, json_: str | None) -> None:
    """Measure what a monitor adds to training steps."""
    torch.set_num_threads(1)
    found = measure(as_device(device), rounds, width, rows)
    print(f"a step without it         {found['step_ms']:.2f} ms")
    print(f"a step's share            {found['per_step_us']:.1f} us")
    print(f"a look                    {found['look_ms']:.2f} ms ({found['looks']:.0f} seen)")
    print(f"both together             {format_percent(found['share'])} of the step")
    print(f"monitored / plain         {found['ratio']:.4f} ({found['ratio_low']:.4f} .. {found['ratio_high']:.4f})")
    if json_:
        write_compact(found, json_)
    sys.exit(found["share"] >= 0.01)


if __name__ == "__main__":
    main()
