"""What a benchmark of the engine found, as Markdown: a chart and a table a question, losses and all.

The documentation shows it for each recorded machine, the terminal without the charts.
"""

import re
from collections.abc import Callable, Iterable
from math import inf, isnan
from pathlib import Path

import docs_charts
from bench_engine_records import (
    DEVICE_PART,
    LEAST,
    LIBRARY_OUR_DRAWS,
    NATIVE,
    OURS,
    REFERENCE,
    TORCHAUDIO,
    WORKERS_GOALS,
    WRAPPER_GOAL,
    OpCost,
    Result,
    Row,
    Size,
    geometric_mean,
    spread,
)
from docs_tables import PROFILES, machine, markdown_table

from audioaug.records import Timing, read_record
from audioaug.units import format_bytes, plural, significant

PEERS = (NATIVE, REFERENCE, TORCHAUDIO)
COLUMNS = (
    "ours ms",
    "± %",
    "device ms",
    "us a clip",
    "clips/s",
    "t-a ms",
    "± %",
    "by",
    "t-a/ours",
    "am ms",
    "am/ours",
    "x least",
    "x floor",
    "kernels",
    "waits",
    "memory",
)
LEGEND = {
    "ours": "audioaug's module(x), draws and preparation included",
    "device": "ours without them, as it is in training with workers",
    "t-a": "torch-audiomentations, the faster of its own use ('itself') and of its transforms with our draws ('draws');"
    " noise and rooms in memory",
    "am": "audiomentations for one clip on one core, times the clips, over the threads",
    "±": "half the interquartile range",
    "x least": "over what it asks of any engine made of torch's operations: an FFT and back for a filter, normal"
    " numbers for noise, a short-time FFT and back for a vocoder, a copy for all else",
    "x floor": "over reading and writing the batch once",
    "kernels, waits": "of ours (as on a device that has no loops) / of t-a (waits: what makes the host wait for a GPU)",
    "memory": "extra at the peak, in batches: of ours / of t-a",
}
"""What the columns mean."""


def benchmarks() -> str:
    """Return every recorded benchmark of the engine."""
    return "\n".join(benchmark(path) for path in sorted(PROFILES.glob("engine_*.json")))


def benchmark(path: Path) -> str:
    """Return what one record holds, question by question."""
    return report(read_record(path, Result), f"; recorded in `datasets/profiles/{path.name}`")


def terminal(result: Result) -> str:
    """Return the same for a terminal, which shows no charts."""
    text = re.sub(r"<figure.*?</figure>\n", "", report(result))
    return re.sub(
        r"^ {4}", "", re.sub(r'^\?\?\? note "(.*)"$', r"#### \1", text, flags=re.MULTILINE), flags=re.MULTILINE
    )


def report(result: Result, where: str = "") -> str:
    """Return what was measured; ``where`` says where it is kept."""
    versions = result.host.versions
    libraries = ", ".join(
        f"{name} {versions[name]}" for name in ("torch", "audiomentations", "torch-audiomentations") if name in versions
    )
    size = result.rows[0].size
    parts = [
        f"## {machine(result.host)}\n\nMeasured on {result.date[:10]} with {libraries}; batches of {size}, unless a "
        f"table says otherwise{where}.\n",
        _disturbed(result),
        f"### How fast is it against each library?\n\n{_against_peers(result)}",
        f"### How near is it to the limit?\n\n{_limit(result)}",
        f"### How does the cost grow?\n\n{_growth(result)}",
        f"### What do we lose?\n\n{_losses(result)}",
        f"### What do workers and the engine itself cost?\n\n{_workers(result)}{_wrapper(result)}",
        f"### All figures\n\n{_all_figures(result)}",
    ]
    return "\n".join(part for part in parts if part)


def _disturbed(result: Result) -> str:
    return (
        f"**Other programs used the cores too** (load {result.load:.1f} on {result.host.usable_cores:g}). Engines with "
        "several threads, which wait for each other, suffer more from that than audiomentations, which has one.\n"
        if result.disturbed
        else ""
    )


# Questions


def _against_peers(result: Result) -> str:
    rows = [row for row in sorted(result.asked_for, key=order) if OURS in row.times]
    reasons = [row.reasons[OURS].rstrip(".") for row in result.rows if OURS in row.reasons]
    missing = " ".join(f"Not measured: {reason}." for reason in reasons)
    if not rows:
        return f"{missing}\n"
    ratios = {name(row): {peer: ratio for peer in PEERS if (ratio := over(row, peer))} for row in rows}
    means = " ".join(
        f"Over the {plural(len(found), 'transform')} that {peer} has too, audioaug is "
        f"{faster(geometric_mean(found))} in the geometric mean."
        for peer in PEERS
        if (found := result.ratios(peer))
    )
    shown = [peer for peer in PEERS if peer != TORCHAUDIO or result.ratios(peer)]
    table = [[name(row), _ms(row, OURS), *(cell for peer in shown for cell in _beside(row, peer))] for row in rows]
    header = ["", "audioaug ms", *(title for peer in shown for title in (f"{peer} ms", "factor"))]
    chart = docs_charts.dots(
        "How many times as long other libraries take",
        "times as long as audioaug: right of 1, audioaug is faster",
        ratios,
    )
    return f"{means} {missing}\n\n{chart}\n{markdown_table(header, table)}"


def _limit(result: Result) -> str:
    rows = [row for row in result.asked_for if LEAST in row.times and OURS in row.times]
    if not rows:
        return "Not measured.\n"
    rows.sort(key=lambda row: -row.times[OURS].median / row.times[LEAST].median)
    shares = {row.name: row.times[OURS].median / row.times[LEAST].median for row in rows}
    chart = docs_charts.dots(
        "How many times as long as the limit audioaug takes",
        "times as long as the limit",
        {name(row): {"audioaug": shares[row.name]} for row in rows},
    )
    table = [
        [name(row), _ms(row, OURS), _ms(row, LEAST), significant(shares[row.name], 3), _floor(row)] for row in rows
    ]
    asked = LEGEND["x least"].partition(": ")[2]
    bounds = result.bounds
    bound = (
        f" An engine at the limit would be {significant(geometric_mean(bounds), 3)}x faster than {NATIVE}."
        if bounds
        else ""
    )
    return (
        f"The limit is what the transform asks of any engine made of torch's operations: {asked}. A compiled loop may "
        f"need less: below 1.{bound}\n\n{chart}\n"
        + markdown_table(["", "audioaug ms", "limit ms", "over the limit", "over copying the batch"], table)
    )


def _growth(result: Result) -> str:
    chains = [row for row in result.rows if row.is_chain and OURS in row.times]
    usual, charts = result.rows[0].size, []
    axes: dict[str, Callable[[Size], float]] = {
        "clips in a batch": lambda s: s.batch,
        "seconds a clip": lambda s: s.seconds,
    }
    for across, value in axes.items():
        others = [other for other in axes.values() if other is not value]
        series: dict[str, dict[float, float]] = {}
        for row in chains:
            same = row.size.sample_rate == usual.sample_rate and all(o(row.size) == o(usual) for o in others)
            if same:
                series.setdefault(row.name, {})[value(row.size)] = row.times[OURS].ms
        if any(len(points) > 1 for points in series.values()):
            charts.append(docs_charts.lines(f"Time of the chains by {across}", across, "ms", series))
    header = ["chain", "batch", "ms", "us a clip", "clips/s", "memory beside the batch", "in batches"]
    table = [
        [
            row.name,
            str(row.size),
            _ms(row, OURS),
            significant(row.times[OURS].median / row.size.batch * 1e6, 3),
            f"{row.size.batch / row.times[OURS].median:,.0f}",
            format_bytes(row.asked[DEVICE_PART].peak_bytes),
            f"{row.asked[DEVICE_PART].peak_bytes / row.batch_bytes:.1f}",
        ]
        for row in chains
    ]
    if not chains:
        return "Not measured.\n"
    fits = "; ".join(
        f"*{fit.chain}*: batch ^ {fit.batch:.2f}, length ^ {fit.seconds:.2f}, number of ops ^ {fit.ops:.2f}"
        for fit in result.exponents
    )
    return f"{f'Time grows as {fits}.' if fits else ''}\n\n{''.join(charts)}\n{markdown_table(header, table)}"


def _losses(result: Result) -> str:
    lost = [(ratio, row, peer) for peer in PEERS for row in result.asked_for if (ratio := over(row, peer) or 1.0) < 1]
    lost.sort(key=lambda entry: entry[0])
    if not lost:
        return "No library is faster than audioaug at anything measured here.\n"
    chart = docs_charts.dots(
        "Where another library is faster",
        "times as long as audioaug: left of 1, audioaug is slower",
        {f"{name(row)}": {peer: ratio} for ratio, row, peer in lost},
    )
    table = [[name(row), peer, _ms(row, OURS), *_beside(row, peer)] for _, row, peer in lost]
    return f"{chart}\n{markdown_table(['', 'faster', 'audioaug ms', 'its ms', 'ratio'], table)}"


def _workers(result: Result) -> str:
    if not result.workers:
        return ""
    batch, where = result.rows[0].size.batch, plural(result.workers[0].workers, "DataLoader worker")
    table = []
    for found in result.workers:
        turns, goal = found.ratios, WORKERS_GOALS[found.chain]
        met = f"at least {goal:g}: {'met' if found.ratio >= goal else 'missed'}"
        ratio = f"{found.ratio:.2f} ({min(turns):.2f} to {max(turns):.2f} in {plural(len(turns), 'turn')})"
        both = [f"{batch / timing.median:,.0f}" for timing in (found.batched, found.audiomentations)]
        table.append([found.chain, significant(found.batched.ms, 3), *both, ratio, met])
    header = ["chain", "ms a batch", "clips/s", "audiomentations clips/s", "times faster", "goal"]
    figures = markdown_table(header, table)
    return f"Whole chains in {where}: the batched worker engine beside audiomentations.\n\n{figures}\n"


def _wrapper(result: Result) -> str:
    found = result.wrapper
    if found is None:
        return ""

    def cost(examples: str, each: OpCost) -> list[str]:
        return [examples, _us(each.whole), _percent(each.whole), _us(each.draw), _us(each.prepare), _us(each.run)]

    table = [cost("all examples get it", found.all_examples), cost("half of them get it", found.half_of_them)]
    expensive = sorted(found.prepare_seconds.items(), key=lambda item: -item[1])[:5]
    prepared = ", ".join(f"{op} {significant(seconds * 1e6, 3)} us" for op, seconds in expensive)
    met = "met" if found.most_seconds < WRAPPER_GOAL else "missed"
    return (
        f"One more op costs the host, a batch, whatever it computes (the goal of less than {WRAPPER_GOAL * 1e6:g} us "
        f"is {met}); preparing a batch takes longest for {prepared}:\n\n"
        + markdown_table(["", "us", "± %", "draw", "prepare", "run"], table)
    )


def _all_figures(result: Result) -> str:
    """Return all columns for every size, folded away."""
    tables = []
    for size in dict.fromkeys(row.size for row in result.rows):
        rows = [row for row in result.rows if row.size == size]
        for title, some in (
            ("Transforms", [r for r in rows if not r.is_chain]),
            ("Chains", [r for r in rows if r.is_chain]),
        ):
            tables += [_folded(f"{title}: {size}", _rows(some))] if some else []
    replayed = [
        [engine, row.name, str(row.size), _ms(row, engine), f"{row.over_ours(engine, DEVICE_PART):.2f}", f"{share:.0%}"]
        for row in result.rows
        for engine, share in row.replayed.items()
    ]
    if replayed:
        header = ["engine", "chain", "batch", "ms", "times as long as without", "batches replayed from a graph"]
        tables.append(_folded("Device engines with a graph", markdown_table(header, replayed)))
    slowest = sorted((row for row in result.rows if row.hottest and not row.is_chain), key=order)[:8]
    spent = [
        [row.name, ", ".join(f"{op.removeprefix('aten::')} {share:.0%}" for op, share in row.hottest)]
        for row in slowest
    ]
    tables.append(_folded("Where the time of the slowest goes", markdown_table(["", "torch operations"], spent)))
    return "\n".join(tables)


def _folded(title: str, content: str) -> str:
    return f'??? note "{title}"\n\n' + "".join(f"    {line}\n" for line in content.splitlines())


def _rows(rows: list[Row]) -> str:
    """Return the full table."""
    header = ["", *COLUMNS]
    return markdown_table(header, [[r.name, *cells(r)] for r in sorted(rows, key=order)])


def legend() -> str:
    """Return what the columns of the full tables mean."""
    return "".join(f"- *{column}*: {meaning}.\n" for column, meaning in LEGEND.items())


def others() -> str:
    """Name the records that this page does not show."""
    names: Iterable[str] = sorted(
        path.name for path in PROFILES.iterdir() if not path.name.startswith(("verify_", "engine_"))
    )
    return "".join(f"- `datasets/profiles/{each}`\n" for each in names) or "None at present.\n"


# Cells


def order(row: Row) -> tuple[float, float]:
    """Sort losses to the top, then what only we have by how it compares with audiomentations."""
    return row.over_ours(row.rival) or inf, row.over_ours(REFERENCE) or inf


def cells(row: Row) -> list[str]:
    """Return what ``COLUMNS`` say, losses in bold; a dash where nothing was measured."""
    if OURS not in row.times:
        return ["-"]
    ours, rival = row.times[OURS], row.rival
    asked, theirs = row.asked[DEVICE_PART], row.asked.get(rival or "")
    return [
        _ms(row, OURS),
        _percent(ours),
        _ms(row, DEVICE_PART),
        significant(ours.median / row.size.batch * 1e6, 3),
        f"{row.size.batch / ours.median:,.0f}",
        _ms(row, rival) if rival else "-",
        _percent(row.times[rival]) if rival else "",
        {LIBRARY_OUR_DRAWS: "draws", NATIVE: "itself"}.get(rival or "", ""),
        _ratio(row.over_ours(rival)),
        _ms(row, REFERENCE) if REFERENCE in row.times else "-",
        _ratio(row.over_ours(REFERENCE)),
        significant(ours.median / row.times[LEAST].median, 3) if LEAST in row.times else "-",
        significant(ours.median / row.floor_seconds, 3),
        str(asked.kernels) + (f" / {theirs.kernels}" if theirs else ""),
        str(len(asked.waits)) + (f" / {len(theirs.waits)}" if theirs else ""),
        f"{asked.peak_bytes / row.batch_bytes:.1f}"
        + (f" / {theirs.peak_bytes / row.batch_bytes:.1f}" if theirs else ""),
    ]


def name(row: Row) -> str:
    """Return what a row is called; a chain says that it is one."""
    return f"{row.name} (chain)" if row.is_chain else row.name


def over(row: Row, peer: str) -> float | None:
    """Return how many times as long a peer takes, torch-audiomentations in the faster of its two ways."""
    return row.over_ours(row.rival if peer == NATIVE else peer)


def faster(ratio: float) -> str:
    """Return a ratio of times as a factor, in words."""
    return f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"


def _beside(row: Row, peer: str) -> list[str]:
    engine, ratio = row.rival if peer == NATIVE else peer, over(row, peer)
    if engine is None or ratio is None:
        return ["-", "-"]
    return [_ms(row, engine), _ratio(ratio)]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"**{value:.2f}**" if value < 1 else f"{value:.2f}"


def _percent(timing: Timing) -> str:
    return "-" if isnan(spread(timing)) else f"{100 * spread(timing):.0f}"


def _ms(row: Row, engine: str) -> str:
    return significant(row.times[engine].ms, 3)


def _us(timing: Timing) -> str:
    return significant(timing.median * 1e6, 3)


def _floor(row: Row) -> str:
    return significant(row.times[OURS].median / row.floor_seconds, 3)


TABLES: dict[str, Callable[[], str]] = {"benchmarks": benchmarks, "benchmarks legend": legend, "other records": others}
"""By the name that a page asks for it with."""
