"""How good is the advice? Judged by plain training, on quiet and busy machines, and on planted faults.

    python scripts/bench_advisor.py --repeat 4 --json result.json       5 hours on 2 cores, alone on the machine
    python scripts/bench_advisor.py --repeat 4 --json result.json       continues where it was interrupted
    python scripts/bench_advisor.py --quick --json quick.json           3 hours: the same for `--quick`, each run once
    python scripts/bench_advisor.py --only ecapa,busy                   one workload under one condition
    python scripts/bench_advisor.py --only planted --seconds 8          the faults alone: 7 minutes
    python scripts/bench_advisor.py --load result.json

Fourteen workloads, each alone on the machine, beside a busy process, beside one that comes and goes, and with a bad
number of torch threads; some thirty faults; and a plan that races itself.
"""

import multiprocessing
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
from bench_advisor_conditions import CONDITIONS
from bench_advisor_judge import Training, contenders, regret, shares, train
from bench_advisor_records import TOO_BUSY, Predicted, Repeat, Result, Row, SelfRace, show
from bench_advisor_workloads import CONDITIONED, FAULTS, REAL, REPEATED, Workload, under
from compact_records import write_compact
from rich.console import Console

from audioaug.advise import DEFAULT_BUDGET, QUICK_BUDGET, survey
from audioaug.advise.progress import Progress
from audioaug.advise.racing import Racer
from audioaug.advise.training_job import TrainingJob
from audioaug.decide.race import paired_ratio, ties, typical_seconds
from audioaug.decide.recommend import is_impossible
from audioaug.errors import AudioaugError, UsageError
from audioaug.loader.processes import torch_threads
from audioaug.measure import clock_for, host_facts
from audioaug.process import keep_freed_memory
from audioaug.records import Candidate, Report, read_record
from audioaug.units import format_seconds


def judge(workload: Workload, seconds: float, judge_seconds: float, runs: int = 1) -> Row:
    """Run the advisor (``runs`` times), then, if ``truth``, train by its candidates; both under the condition."""
    empty = Row(
        workload.name, 0.0, "", "", (), answers=workload.answers, first=workload.first, condition=workload.condition
    )
    condition = CONDITIONS[workload.condition](workload.threads)
    try:
        with workload.build() as target, torch_threads(workload.threads), condition:
            report, took = _advice(target, workload, seconds)
            others = [_advice(target, workload, seconds)[0] for _ in range(runs - 1)]
            row = replace(_row(empty, report, took), budget=seconds, repeats=tuple(map(_repeat, others)))
            return _judged(row, target, [report, *others], judge_seconds) if workload.truth else row
    except AudioaugError as error:
        return replace(empty, failed=str(error))
    except OSError as error:  # a quota, say, that this machine does not let us plant
        return replace(empty, skipped=str(error))


def race_with_itself(target: TrainingJob, seed: int, seconds: float) -> SelfRace:
    """Race today's plan against the same plan under another name."""
    clock = clock_for(target.device)
    racer = Racer(target, clock, budget=20.0, notice=lambda *_: None)
    today = Candidate("cpu", len(target.chain), num_workers=target.num_workers)
    pair = [today, replace(today, threads=torch.get_num_threads())]  # which it has anyway
    pair = pair[:: -1 if seed % 2 else 1]
    found = racer.run(pair, {candidate.name: 0.01 for candidate in pair}, seconds, tick=lambda *_: None)
    one, other = (found[candidate.name] for candidate in sorted(pair, key=lambda candidate: candidate.threads is None))
    rounds = min(len(one.step.seconds), len(other.step.seconds))
    return SelfRace(rounds, paired_ratio(one, other).value, won=len(ties(found)) < 2)


def _advice(target: TrainingJob, workload: Workload, seconds: float) -> tuple[Report, float]:
    begin = time.monotonic()
    asked = survey.Survey(target, survey.Options(seconds, workload.workers), Progress(quiet=True), lambda report: None)
    report = asked.run()
    return report, time.monotonic() - begin


def _repeat(report: Report) -> Repeat:
    return Repeat(report.best.name, report.verdict)


def _row(empty: Row, report: Report, took: float) -> Row:
    advice = report.recommendation
    assert advice is not None and report.current is not None
    return replace(
        empty,
        advisor_seconds=took,
        verdict=report.verdict,
        cause=report.cause,
        said=tuple(notice.id for notice in report.notices),
        sentence=advice.because,
        advice=advice.name,
        today_ms=report.current.measured_ms,
        impossible=_impossible(report),
    )


def _judged(row: Row, target: TrainingJob, reports: Sequence[Report], seconds: float) -> Row:
    """Return the row with what training says of the advice, and of that of further runs."""
    report, today = reports[0], reports[0].current
    assert today is not None and today.measured_ms
    candidates, changes = contenders(report)
    candidates = list({it.name: it for it in (*candidates, *(other.best for other in reports[1:]))}.values())
    training = Training(
        target.model, target.optimizer, target.chain, target.dataset, target.batch_size, target.pad, target.own_step
    )
    found = train(training, candidates, today.measured_ms / 1e3, seconds)
    best, lost = regret(found, row.advice)
    ms = {name: 1e3 * step for name, step in typical_seconds(found).items()}
    drift = ms[today.name] / today.measured_ms
    predicted = (it for it in report.candidates if it.status == "predicted" and it.name in ms)
    return replace(
        row,
        best=best,
        today_ms=ms[today.name],
        advice_ms=ms[row.advice],
        best_ms=ms[best],
        regret=lost,
        true_ms=ms,
        shares=shares(ms, today.name, row.advice, changes),
        predicted=tuple(
            Predicted(it.name, it.predicted_ms, it.predicted_ci_ms, ms[it.name] / drift)
            for it in predicted
            if it.predicted_ms is not None and it.predicted_ci_ms is not None
        ),
    )


def _impossible(report: Report) -> tuple[str, ...]:
    """Return the candidates below the ceiling that are recommended, or that no notice names."""
    warned = " ".join(notice.text for notice in report.notices if notice.id == "impossible_result")
    too_busy = report.verdict.startswith(TOO_BUSY)  # which says why
    return tuple(
        each.name
        for each in report.known_candidates
        if is_impossible(report, each) and (each.name not in warned or (each.name == report.best.name and not too_busy))
    )


WIDTH = 170
SMOKE = "planted: a slow op with a fast twin"
RACED = "cnn, light chain, short clips"
SELF = "a plan against itself"
SELF_SECONDS = 1.5
FAULT_SECONDS = 8.0


@dataclass(frozen=True)
class Options:
    """What to judge: conditions, parts of names, the advisor's seconds, the judge's, races of a plan with itself.

    ``runs`` of the advisor on repeated workloads; ``smoke``: planted faults are judged too, with few workers.
    """

    only: tuple[str, ...]
    seconds: float
    judge_seconds: float
    self_races: int
    runs: int = 1
    smoke: bool = False


def run(options: Options, result: Result) -> Iterator[Result]:
    """Judge what has not been judged yet; yield the result so far after each workload.

    This process keeps the memory that it frees, as workers do. Otherwise the system clears 12,000 pages for each step
    of the raw-waveform network on long clips: a fifth of its time, and, beside workers that ask for pages too, anything
    from 85 to 150 ms for the same step.
    """
    keep_freed_memory()
    waiting = [it for it in _chosen(options) if it.name not in {row.name for row in result.rows}]
    cost = {it.name: _expected_seconds(it, options) for it in waiting}
    races = 0 if options.only and not any(part in SELF for part in options.only) else options.self_races
    races -= len(result.self_races)
    left, pace, begin, done = sum(cost.values()) + max(0, races) * (SELF_SECONDS + 0.5), 1.0, time.monotonic(), 0.0
    for workload in waiting:
        _say(f"{workload.name} ... (some {format_seconds(pace * (left - done))} left)")
        seconds = options.seconds if workload.truth else min(options.seconds, FAULT_SECONDS)
        row = judge(workload, seconds, options.judge_seconds, _runs(workload, options))
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


def _chosen(options: Options) -> list[Workload]:
    """Return the workloads that ``--only`` selects: those with one of its names, under one of its conditions."""
    if options.smoke:
        quick = replace(FAULTS[SMOKE], truth=True, workers=(0, 1))
        return [quick, under("busy", quick)]
    conditions = [part for part in options.only if part in CONDITIONS]
    names = [part for part in options.only if part not in CONDITIONS]
    everything = CONDITIONED if conditions else {**CONDITIONED, **FAULTS}
    found = [
        it
        for name, it in everything.items()
        if (not conditions or it.condition in conditions) and (not names or any(part in name for part in names))
    ]
    if not found and not any(part in SELF for part in options.only):
        known = "; ".join((*CONDITIONS, *REAL, *FAULTS))
        raise UsageError(f"There is no workload like {', '.join(options.only)}.", f"Known: {known}.")
    return found


def _runs(workload: Workload, options: Options) -> int:
    return options.runs if workload.name.startswith(REPEATED) else 1


def _expected_seconds(workload: Workload, options: Options) -> float:
    """Return about how long a workload takes."""
    if not workload.truth:
        return min(options.seconds, FAULT_SECONDS) + 4.0
    return _runs(workload, options) * options.seconds + 1.5 * options.judge_seconds


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@click.command(help=(__doc__ or "").partition("\n\n")[0], context_settings={"max_content_width": 100})
@click.option(
    "--only", default="", metavar="A,B", help="Only these conditions, and workloads with this in their names."
)
@click.option(
    "--seconds",
    default=DEFAULT_BUDGET,
    show_default=True,
    type=click.FloatRange(1),
    help=f"For each advice (faults: {FAULT_SECONDS:g}).",
)
@click.option("--quick", is_flag=True, help=f"{QUICK_BUDGET:g} seconds for each advice, and the goals for that.")
@click.option("--judge-seconds", default=60.0, show_default=True, type=click.FloatRange(1), help="To judge an advice.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Runs of the advisor on some.")
@click.option("--self-races", default=40, show_default=True, type=click.IntRange(0), help="Of a plan against itself.")
@click.option("--smoke", is_flag=True, help="One workload for a moment: does it run?")
@click.option("--json", "json_", metavar="FILE", help="Write results as they come; its rows are not measured again.")
@click.option("--load", metavar="FILE", help="Show the JSON of an earlier run instead of measuring.")
def main(
    only: str,
    seconds: float,
    quick: bool,
    judge_seconds: float,
    repeat: int,
    self_races: int,
    smoke: bool,
    json_: str | None,
    load: str | None,
) -> None:
    """Judge or load, then print."""
    multiprocessing.set_start_method("fork")  # which, unlike the default from Python 3.14 on, sends any dataset
    warnings.filterwarnings("ignore", module="audiomentations|librosa|torch_audiomentations|julius|torchaudio|torch")
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    options = Options(names, QUICK_BUDGET if quick else seconds, judge_seconds, self_races, repeat)
    if smoke:
        options = Options((SMOKE, SELF), 4.0, 2.0, 1, smoke=True)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        result = Result(host_facts(torch.device("cpu")), now, options.seconds, quick=quick)
        if load or (json_ and Path(json_).exists()):
            result = read_record(str(load or json_), Result)
            if not load and result.quick != quick:
                raise UsageError(f"{json_} was written with{'' if result.quick else 'out'} --quick: use another file.")
        for grown in () if load else run(options, result):
            result = grown
            if json_:
                write_compact(result, json_)
        show(result, Console(width=None if sys.stdout.isatty() else WIDTH))
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
