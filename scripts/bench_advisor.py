"""How good is the advice? Beside an exhaustive race of every candidate, and on planted faults with a known answer.

    python scripts/bench_advisor.py --seconds 112 --json result.json    80 minutes on 2 cores, alone on the machine
    python scripts/bench_advisor.py --seconds 112 --json result.json    continues where it was interrupted
    python scripts/bench_advisor.py --only planted --seconds 8          the faults alone: 7 minutes
    python scripts/bench_advisor.py --load result.json

Three models, three chains, short and long ragged clips, three formats to decode; some thirty faults; and a plan that
races itself.
"""

import math
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

import click
import psutil
import torch
from bench_advisor_records import Predicted, Regret, Result, Row, SelfRace, show
from bench_advisor_workloads import FAULTS, REAL, Workload
from compact_records import write_compact
from rich.console import Console

from audioaug.advise import survey
from audioaug.advise.candidates import queued_batches
from audioaug.advise.progress import Progress
from audioaug.advise.racing import FINALISTS, Racer
from audioaug.advise.training_job import TrainingJob
from audioaug.decide.race import leader, paired_ratio, ties, typical_seconds
from audioaug.errors import AudioaugError, UsageError
from audioaug.loader.processes import torch_threads
from audioaug.measure import clock_for, host_facts
from audioaug.process import keep_freed_memory
from audioaug.records import Candidate, Measurement, Report, Timing, read_record
from audioaug.units import format_seconds

# The truth

TOGETHER = 16
"""Candidates in one race, today's among them."""

CLOSE = 1.15
"""Candidates within this much of the best are raced to the end."""

ROUNDS, FEWEST_ROUNDS, BLOCK = 6, 3, 0.5
"""Of each candidate (fewer, where all candidates take longer than ``CANDIDATES_SECONDS``), and a block's seconds."""

CANDIDATES_SECONDS = 240.0

RAGGED_STEPS = 8
"""In a block, at least, where batches are of many lengths."""

UNHURRIED = 100.0
"""Seconds of a budget that makes no block shorter."""


def judge(workload: Workload, seconds: float, truth_seconds: float) -> Row:
    """Run the advisor, then (if ``truth``) race every candidate, and return both results."""
    try:
        with workload.build() as target, torch_threads(workload.threads):
            report, took = _advice(target, workload, seconds)
            row = _row(workload, report, took)
            return _with_truth(row, target, report, truth_seconds) if workload.truth else row
    except AudioaugError as error:
        return Row(workload.name, 0.0, "", "", (), answers=workload.answers, first=workload.first, failed=str(error))
    except OSError as error:  # a quota, say, that this machine does not let us plant
        return Row(workload.name, 0.0, "", "", (), answers=workload.answers, skipped=str(error))


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


def _row(workload: Workload, report: Report, took: float) -> Row:
    advice = report.recommendation
    assert advice is not None and report.current is not None
    return Row(
        name=workload.name,
        advisor_seconds=took,
        verdict=report.verdict,
        cause=report.cause,
        said=tuple(notice.id for notice in report.notices),
        sentence=advice.because,
        answers=workload.answers,
        first=workload.first,
        advice=advice.name,
        today_ms=report.current.measured_ms,
    )


def _with_truth(row: Row, target: TrainingJob, report: Report, seconds: float) -> Row:
    assert report.recommendation is not None and report.current is not None
    candidates = {candidate.name: candidate for candidate in report.candidates if candidate.status != "infeasible"}
    today, advice = report.current, candidates.get(report.recommendation.name, report.current)
    every = {**candidates, today.name: today}
    racer = Racer(target, clock_for(target.device), UNHURRIED, notice=lambda *_: None, seed=1)  # other batches
    guess = {
        name: (candidate.measured_ms or candidate.predicted_ms or today.measured_ms or 100.0) / 1e3
        for name, candidate in every.items()
    }
    block = max(BLOCK, RAGGED_STEPS * guess[today.name] if target.pad else 0.0)
    times, drifts, again = _all_candidates(racer, every, today, guess, block)
    best = min(times, key=lambda name: times[name])
    close = [name for name in sorted(times, key=lambda name: times[name]) if times[name] <= CLOSE * times[best]]
    finalists = [candidates.get(name, today) for name in dict.fromkeys([advice.name, *close[: FINALISTS - 1]])]
    found = racer.run(finalists, guess, seconds, tick=lambda *_: None) if len(finalists) > 1 else {}
    winner, regret = _regret(found, advice.name)
    final = _ms(found) if found else times
    unraced = [
        candidate for candidate in candidates.values() if candidate.status == "predicted" and candidate.name in times
    ]
    return replace(
        row,
        best=winner,
        advice_ms=final.get(advice.name),
        best_ms=final.get(winner),
        regret=regret,
        true_ms=times,
        predicted=tuple(
            Predicted(candidate.name, candidate.predicted_ms, candidate.predicted_ci_ms, times[candidate.name])
            for candidate in unraced
            if candidate.predicted_ms is not None and candidate.predicted_ci_ms is not None
        ),
        again=again,
        drifts=drifts,
    )


def _all_candidates(
    racer: Racer, candidates: Mapping[str, Candidate], today: Candidate, guess: Mapping[str, float], block: float
) -> tuple[dict[str, float], tuple[float, ...], tuple[float, ...]]:
    """Return every candidate's milliseconds a step as at the time of the advice, and a row's ``drifts`` and ``again``.

    Every screening has today's candidate and its share of those that the advisor raced: their times scale the
    screening to the advisor's.
    """
    known = {name: candidate.measured_ms for name, candidate in candidates.items() if candidate.measured_ms}
    others = sorted(
        (candidate for name, candidate in candidates.items() if name != today.name),
        key=lambda candidate: candidate.name not in known,
    )
    screenings = math.ceil(len(others) / (TOGETHER - 1))
    a_round = sum(
        block + guess[name] * (queued_batches(candidate) + candidate.queue) for name, candidate in candidates.items()
    )
    rounds = min(ROUNDS, max(FEWEST_ROUNDS, int(CANDIDATES_SECONDS / a_round)))
    times, drifts, again = dict[str, float](), list[float](), list[float]()
    for number in range(screenings):
        found = racer.screen([today, *others[number::screenings]], guess, lambda *_: None, rounds, block)
        here = _ms(found)
        both = {name: here[name] / known[name] for name in here if name in known}
        drift = median(both.values()) if both else 1.0
        times |= {name: ms / drift for name, ms in here.items()}
        drifts.append(drift)
        again += [abs(drift / share - 1) for share in both.values()]
    return times, tuple(drifts), tuple(again)


def _ms(found: Mapping[str, Measurement]) -> dict[str, float]:
    """Return what a step of each takes, in milliseconds."""
    return {name: 1e3 * seconds for name, seconds in typical_seconds(found).items()}


def _regret(found: Mapping[str, Measurement], advice: str) -> tuple[str, Regret]:
    """Compare the advice with the best, in each round with what was best in the others of every second round.

    A candidate that is chosen for being fast in a round was also lucky in that round, which must not count.
    """
    if advice not in found:
        return advice, Regret(1.0, 1.0, 1.0)
    rounds = len(found[advice].step.seconds)
    stayed = {name: one for name, one in found.items() if len(one.step.seconds) == rounds}
    best = [leader({name: _part(one, start) for name, one in stayed.items()}) for start in (1, 0)]
    rival = Timing(tuple(stayed[best[number % 2]].step.seconds[number] for number in range(rounds)))
    ratio = paired_ratio(found[advice], replace(found[advice], step=rival))
    return leader(stayed), Regret(ratio.value, ratio.low, ratio.high)


def _part(measurement: Measurement, start: int) -> Measurement:
    return replace(measurement, step=Timing(measurement.step.seconds[start::2] or measurement.step.seconds))


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
    """Return about how long a workload takes: the truth is raced in screenings and in a final."""
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
    "--truth-seconds", default=60.0, show_default=True, type=click.FloatRange(1), help="To race the best candidates."
)
@click.option("--self-races", default=40, show_default=True, type=click.IntRange(0), help="Of a plan against itself.")
@click.option("--smoke", is_flag=True, help="One workload for a moment: does it run?")
@click.option("--json", "json_", metavar="FILE", help="Write results as they come; its rows are not measured again.")
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
                write_compact(result, json_)
        show(result, Console(width=None if sys.stdout.isatty() else WIDTH))
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
