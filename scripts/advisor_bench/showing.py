"""Tables and sentences of a benchmark of the advisor."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from advisor_bench.records import Result, Row, middle, percentile
from audioaug.units import format_ms, format_percent, format_seconds, plural, significant

COLUMNS = ("workload", "today", "advice", "best", "regret %", "interval", "cells", "error %", "s", "first cause")


def show(result: Result, console: Console) -> None:
    """Print everything."""
    host = result.host
    console.print(f"{host.device_name}, {host.usable_cores:g} cores, torch {host.versions.get('torch')}")
    real, planted = ([row for row in result.rows if bool(row.answers) is kind] for kind in (False, True))
    if real:
        console.print(_regrets(real))
    if planted:
        console.print(_causes(planted))
    for line in summary(result):
        console.print(line, markup=False, highlight=False)


def summary(result: Result) -> Iterable[str]:
    """Yield the sentences, losses included."""
    regrets, errors = result.regrets, [one.error for one in result.predictions]
    if regrets:
        yield (
            f"Regret over {plural(len(regrets), 'workload')}: median {format_percent(middle(regrets))}, worst "
            f"{format_percent(max(regrets))}."
        )
    if errors:
        covered = sum(one.covered for one in result.predictions) / len(errors)
        yield (
            f"Prediction error over {plural(len(errors), 'cell')} that the advisor did not race: median "
            f"{format_percent(middle(errors))}, 90th percentile {format_percent(percentile(errors, 0.9))}; "
            f"{format_percent(covered)} lie within their interval."
        )
        again = [share for row in result.rows for share in row.again]
        yield (
            f"What it raced, measured again for the truth: median {format_percent(middle(again))}, 90th percentile "
            f"{format_percent(percentile(again, 0.9))} off. No prediction can be nearer than that."
        )
        drifts = [drift for row in result.rows for drift in row.drifts]
        if drifts:
            yield (
                f"Between advice and truth the machine drifted: steps took {min(drifts):.2f} to {max(drifts):.2f} "
                f"times as long, {middle(drifts):.2f} in the middle. That is taken out, by what both measured."
            )
    answered = result.answered
    if answered:
        right = sum(bool(row.right) for row in answered)
        yield f"First cause: {right} of {len(answered)} planted faults right ({format_percent(right / len(answered))})."
        for row in answered:
            if not row.right:
                yield f"  wrong: {row.name}: {row.failed or row.cause}, not {' or '.join(row.answers)}. {row.sentence}"
    if result.self_races:
        won = sum(race.won for race in result.self_races)
        races = plural(len(result.self_races), "race")
        yield f"A plan against itself: {won} false winners in {races} ({format_percent(won / len(result.self_races))})."
    times = [row.advisor_seconds for row in result.rows if row.advisor_seconds]
    if times:
        yield f"The advisor took {format_seconds(middle(times))} (median), at most {format_seconds(max(times))}."
    yield from (f"skipped: {row.name}: {row.skipped}" for row in result.rows if row.skipped)
    if result.load > result.host.usable_cores + 1:
        yield f"Others used the cores too (load {result.load:.1f}): run this alone."


def _regrets(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("workload", "first cause") else "right")
    for row in rows:
        table.add_row(*regret_cells(row))
    return table


def regret_cells(row: Row) -> list[str]:
    """Return a real workload as the columns show it: times of a step in ms, the regret with its interval."""
    if row.failed:
        return [row.name, "failed", *[""] * 7, row.failed]
    regret, errors = row.regret, [one.error for one in row.predicted]
    return [
        row.name,
        *(format_ms(ms) if ms else "-" for ms in (row.today_ms, row.advice_ms, row.best_ms)),
        "-" if regret is None else f"{100 * (regret.value - 1):.1f}",
        "" if regret is None else f"{100 * (regret.low - 1):.0f}..{100 * (regret.high - 1):.0f}",
        str(len(row.true_ms or ())),
        f"{100 * middle(errors):.0f}" if errors else "-",
        significant(row.advisor_seconds, 2),
        row.cause,
    ]


def _causes(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in ("fault", "planted", "found", "", "s"):
        table.add_column(name, justify="right" if name == "s" else "left")
    for row in rows:
        mark = "-" if row.right is None else "right" if row.right else "[red]WRONG[/red]"
        answer = " or ".join(row.answers) + ("" if row.first else " (told beside)")
        found = row.skipped or row.failed or row.cause
        table.add_row(row.name.removeprefix("planted: "), answer, found, mark, significant(row.advisor_seconds, 2))
    return table
