"""How good is the advice? Beside an exhaustive race of every cell, and on planted faults with a known answer.

    python scripts/bench_advisor.py --seconds 112 --json result.json    80 minutes on 2 cores, alone on the machine
    python scripts/bench_advisor.py --seconds 112 --json result.json    goes on where it was interrupted
    python scripts/bench_advisor.py --only planted --seconds 8          the faults alone: 7 minutes
    python scripts/bench_advisor.py --load result.json

Three models, three chains, short and long ragged clips, three formats to decode; some thirty faults; and a plan that
races itself.
"""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import click
import psutil
import torch
from advisor_bench import showing
from advisor_bench.planted import FAULTS
from advisor_bench.records import Result
from advisor_bench.truth import judge, race_with_itself
from advisor_bench.workloads import REAL, Workload
from rich.console import Console

from audioaug.errors import AudioaugError, UsageError
from audioaug.loader.processes import torch_threads
from audioaug.measure import host_facts
from audioaug.process import keep_freed_memory
from audioaug.records import read_record, write_record
from audioaug.units import format_seconds

WIDTH = 170
SMOKE = "planted: a slow op with a fast twin"
RACED = "cnn, light chain, short clips"
SELF = "a plan against itself"
SELF_SECONDS = 1.5
FAULT_SECONDS = 8.0


@dataclass(frozen=True)
class Options:
    """What to judge: names (or parts of them), the advisor's seconds, the truth's, races of a plan with itself.

    ``smoke``: the truth of planted faults too, with few workers.
    """

    only: tuple[str, ...]
    seconds: float
    truth_seconds: float
    self_races: int
    smoke: bool = False


def run(options: Options, result: Result) -> Iterator[Result]:
    """Judge what has not been judged yet; yield the result so far after each workload.

    This process keeps the memory that it frees, as workers do. Otherwise the system clears 12,000 pages for each step
    of the raw-waveform network on long clips: a fifth of its time, and, beside workers that ask for pages too, anything
    from 85 to 150 ms for the same step.
    """
    keep_freed_memory()
    waiting = [it for it in _chosen(options.only) if it.name not in {row.name for row in result.rows}]
    cost = {it.name: _expected_seconds(it, options) for it in waiting}
    races = 0 if options.only and not any(part in SELF for part in options.only) else options.self_races
    races -= len(result.self_races)
    left, pace, begin, done = sum(cost.values()) + max(0, races) * (SELF_SECONDS + 0.5), 1.0, time.monotonic(), 0.0
    for workload in waiting:
        _say(f"{workload.name} ... (some {format_seconds(pace * (left - done))} left)")
        seconds = options.seconds if workload.truth else min(options.seconds, FAULT_SECONDS)
        if options.smoke:
            workload = replace(workload, truth=True, workers=(0, 1))
        row = judge(workload, seconds, options.truth_seconds)
        done += cost[workload.name]
        pace = (time.monotonic() - begin) / done
        result = replace(result, rows=(*result.rows, row), load=max(result.load, psutil.getloadavg()[0]))
        yield result
    if races > 0:
        _say(f"{SELF} ... (some {format_seconds(pace * (left - done))} left)")
        yield from _against_itself(result, races, FAULTS[SMOKE] if options.smoke else REAL[RACED])


def _against_itself(result: Result, races: int, workload: Workload) -> Iterator[Result]:
    with workload.build() as target, torch_threads(1):
        for number in range(len(result.self_races), len(result.self_races) + races):
            found = race_with_itself(target, number, SELF_SECONDS)
            result = replace(result, self_races=(*result.self_races, found))
            yield result


def _chosen(only: Sequence[str]) -> list[Workload]:
    everything = {**REAL, **FAULTS}
    found = [it for name, it in everything.items() if not only or any(part in name for part in only)]
    if not found and not any(part in SELF for part in only):
        raise UsageError(f"There is no workload like {', '.join(only)}.", f"Known: {'; '.join(everything)}.")
    return found


def _expected_seconds(workload: Workload, options: Options) -> float:
    """Return about how long a workload takes: the truth is raced in heats and in a final."""
    return (
        options.seconds + 3.8 * options.truth_seconds if workload.truth else min(options.seconds, FAULT_SECONDS) + 4.0
    )


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@click.command(help=(__doc__ or "").partition("\n\n")[0], context_settings={"max_content_width": 100})
@click.option("--only", default="", metavar="A,B", help="Only workloads with this in their names. [default: all]")
@click.option(
    "--seconds", default=20.0, show_default=True, type=click.FloatRange(1), help="For each advice (faults: 8)."
)
@click.option(
    "--truth-seconds", default=60.0, show_default=True, type=click.FloatRange(1), help="To race the best cells."
)
@click.option("--self-races", default=40, show_default=True, type=click.IntRange(0), help="Of a plan against itself.")
@click.option("--smoke", is_flag=True, help="One workload for a moment: does it run?")
@click.option("--json", "json_", metavar="FILE", help="Write results as they come; what is in it is not done again.")
@click.option("--load", metavar="FILE", help="Show the JSON of an earlier run instead of measuring.")
def main(
    only: str, seconds: float, truth_seconds: float, self_races: int, smoke: bool, json_: str | None, load: str | None
) -> None:
    """Judge or load, then print."""
    warnings.filterwarnings("ignore", module="audiomentations|librosa|torch_audiomentations|julius|torchaudio|torch")
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    options = Options(names, seconds, truth_seconds, self_races)
    if smoke:
        options = Options((SMOKE, SELF), 2.0, 2.0, 1, smoke=True)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        result = Result(host_facts(torch.device("cpu")), now, options.seconds)
        if load or (json_ and Path(json_).exists()):
            result = read_record(str(load or json_), Result)
        for grown in () if load else run(options, result):
            result = grown
            if json_:
                write_record(result, json_)
        showing.show(result, Console(width=None if sys.stdout.isatty() else WIDTH))
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
