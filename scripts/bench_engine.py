"""How fast is the batched engine? Beside torch-audiomentations and audiomentations, op by op and for three chains.

    python scripts/bench_engine.py                              a few minutes on a CPU
    python scripts/bench_engine.py --device cuda --batch 128 --json result.json --chart result.png
    python scripts/bench_engine.py --ops Gain,Shift --no-chains
    python scripts/bench_engine.py --load result.json

All engines take turns on the same batch of real speech with the same number of threads. Everything is always applied
(p = 1).
"""

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import click
import psutil
import torch
from engine_bench import engines, fitting, measuring, showing, workers, wrapper
from engine_bench.records import OURS, RECORDED, Result, Row, Size
from rich.console import Console

from audioaug.advise.progress import Progress
from audioaug.core import Op
from audioaug.errors import AudioaugError, UsageError, did_you_mean
from audioaug.loader.prefetch import as_device
from audioaug.measure import host_facts
from audioaug.records import DeviceEngine, read_record, write_record

WIDTH = 170
SWEEP = {"batch": (8, 32, 128, 256), "seconds": (1.0, 10.0, 30.0), "sample_rate": (16000, 48000)}
"""What ``--sweep`` measures the chains with besides, and ops that are named, one at a time."""


@dataclass(frozen=True)
class Options:
    """What to measure, and for how long."""

    size: Size
    device: torch.device
    ops: tuple[str, ...]
    chains: bool
    sweep: bool
    seconds: float
    rounds: int
    most_seconds: float = 120.0
    also: tuple[DeviceEngine, ...] = ()
    """At the size that is asked for, not at others of a sweep: compiling takes tens of seconds for each layout."""


def run(options: Options, progress: Progress) -> Iterator[Result]:
    """Measure; yield the result so far after each step."""
    torch.set_num_threads(options.size.threads)
    speed = measuring.copy_speed(options.device)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    result = Result(host_facts(options.device), now, speed)
    for name, work, size, seconds in _everything(options):
        with progress.stage(f"{name}, {size}", seconds):
            known = [row for row in result.rows if row.name == name]
            reason = fitting.why_not(name, size, options.device, known, options.most_seconds, options.rounds)
            if reason:
                row = Row(name, isinstance(work, engines.Chain), size, reasons={OURS: reason})
            else:
                also = options.also if size == options.size else ()
                row = measuring.measure(name, work, size, options.device, speed, seconds, options.rounds, also)
        load = max(result.load, psutil.getloadavg()[0])
        result = replace(result, rows=(*result.rows, row), load=load)
        yield result
    if options.chains:
        yield from _growth_workers_wrapper(options, result, progress)


def _everything(options: Options) -> Iterator[tuple[str, Op | engines.Chain, Size, float]]:
    """Yield ops, then chains, each with its size and how long to time it; other sizes of ops only if they are named."""
    for size in _sizes(options) if options.ops else [options.size]:
        for name, op in engines.declared_ops(list(options.ops), size.sample_rate).items():
            yield name, op, size, options.seconds
    for size in _sizes(options) if options.chains else ():
        for name, chain in engines.declared_chains(size.sample_rate).items():
            yield name, chain, size, 3 * options.seconds


def _sizes(options: Options) -> list[Size]:
    """Return the size that was asked for and, in a sweep, others that differ from it in one number."""
    swept = [replace(options.size, **{what: value}) for what, values in SWEEP.items() for value in values]
    return list(dict.fromkeys([options.size, *(swept if options.sweep else ())]))


def _growth_workers_wrapper(options: Options, result: Result, progress: Progress) -> Iterator[Result]:
    chains = engines.declared_chains(options.size.sample_rate)
    for name, chain in chains.items():
        with progress.stage(f"{name}: how its time grows", 3 * options.seconds):
            fit = measuring.exponents(name, chain, options.device, 3 * options.seconds, min(options.rounds, 3))
        result = replace(result, exponents=(*result.exponents, fit))
        yield result
    with progress.stage("speech in workers", 3 * options.seconds):
        pair = workers.worker_engines(chains["speech"], options.size, 3 * options.seconds, options.rounds)
    result = replace(result, workers=pair)
    yield result
    with progress.stage("what an op costs the host", 3 * options.seconds):
        cost = wrapper.wrapper(options.size, options.device, 3 * options.seconds, options.rounds)
    yield replace(result, wrapper=cost)


def _recorded(also: str) -> tuple[DeviceEngine, ...]:
    names = tuple(name.strip() for name in also.split(",") if name.strip())
    for name in names:
        if name not in RECORDED:
            raise UsageError(f"--also knows no {name!r}.", did_you_mean(name, RECORDED))
    return tuple(engine for engine in RECORDED if engine in names)


@click.command(help=(__doc__ or "").partition("\n\n")[0], context_settings={"max_content_width": 100})
@click.option("--device", default="cpu", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--batch", default=32, show_default=True, type=click.IntRange(2), help="Clips in a batch.")
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.25), help="Length of a clip.")
@click.option("--sample-rate", default=16000, show_default=True, type=click.IntRange(8000), help="In Hz.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1), help="Threads for each engine.")
@click.option("--ops", default="", metavar="A,B", help="Only these ops. [default: all]")
@click.option("--chains/--no-chains", default=True, show_default=True, help="Chains, growth, worker engines, wrapper.")
@click.option("--sweep", is_flag=True, help="Also batches of 8 to 256, 1 to 30 s, 16 and 48 kHz: chains, ops named.")
@click.option("--most-seconds", default=120.0, show_default=True, help="Leave out what would take longer than that.")
@click.option("--also", default="", metavar="A,B", help="Also chains as cuda_graph, torch_compile, at one size.")
@click.option("--seconds-per-op", default=1.5, show_default=True, type=click.FloatRange(0), help="Chains: three times.")
@click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(1), help="At least, however long they take."
)
@click.option("--json", "json_", metavar="FILE", help="Write the results as JSON, while they come.")
@click.option("--chart", metavar="FILE", help="Draw the ratios (PNG, SVG or PDF).")
@click.option("--load", metavar="FILE", help="Show the JSON of an earlier run instead of measuring.")
def main(
    device: str,
    batch: int,
    seconds: float,
    sample_rate: int,
    threads: int,
    ops: str,
    chains: bool,
    sweep: bool,
    most_seconds: float,
    also: str,
    seconds_per_op: float,
    rounds: int,
    json_: str | None,
    chart: str | None,
    load: str | None,
) -> None:
    """Measure or load, then print."""
    warnings.filterwarnings("ignore", module="audiomentations|librosa|torch_audiomentations|julius|torchaudio")
    names = tuple(name.strip() for name in ops.split(",") if name.strip())
    size = Size(batch, seconds, sample_rate, threads)
    try:
        if load:
            result = read_record(load, Result)
        else:
            options = Options(
                size, as_device(device), names, chains, sweep, seconds_per_op, rounds, most_seconds, _recorded(also)
            )
            with Progress() as progress:
                for result in run(options, progress):
                    if json_:
                        write_record(result, json_)
        showing.show(result, Console(width=None if sys.stdout.isatty() else WIDTH))
        if chart:
            showing.draw(result, chart)
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
