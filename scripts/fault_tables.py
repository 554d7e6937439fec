"""The tables of the fault campaign (``make campaign``), as Markdown, from the record of a run."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parents[1] / "datasets/profiles/campaign.json"
HOW_TO = (
    'There is no recorded run yet. `make campaign CAMPAIGN="--record datasets/profiles/campaign.json"` makes one in '
    "an hour.\n"
)
MOST_ENDS = 4
"""Of each kind, the table names this many ways to end, the most frequent ones."""


def summary(results: Iterable[Mapping[str, Any]], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a run: what it was, and for each kind how often it was tried and how that ended."""
    kinds: dict[str, dict[str, Any]] = {}
    for result in results:
        kind = kinds.setdefault(result["kind"], {"tried": 0, "seconds": 0.0, "ended": {}, "violations": {}})
        kind["tried"] += 1
        kind["seconds"] = round(kind["seconds"] + result["seconds"], 3)
        ended = result["ended"] or "violation"
        kind["ended"][ended] = kind["ended"].get(ended, 0) + 1
        for violation in result["violations"]:
            kind["violations"][violation["verdict"]] = kind["violations"].get(violation["verdict"], 0) + 1
    return {**about, "kinds": kinds}


def table(record: Mapping[str, Any]) -> str:
    """Return a line for each kind of fault, and a sentence about the run."""
    kinds = record["kinds"]
    tried = sum(each["tried"] for each in kinds.values())
    violated = sum(sum(each["violations"].values()) for each in kinds.values())
    header = "| fault | tried | how it ended | violations |\n|---|---|---|---|\n"
    return (
        f"{tried} faults of {len(kinds)} kinds in {record['minutes']:.0f} minutes with {record['jobs']} jobs, seed "
        f"{record['seed']}, torch {record['torch']}, {record['date']}: {violated or 'no'} violations.\n\n"
        + header
        + "".join(_row(name, each) for name, each in sorted(kinds.items()))
    )


def _row(name: str, kind: Mapping[str, Any]) -> str:
    ends = Counter(kind["ended"]).most_common()
    words = [f"{end} {count}" for end, count in ends[:MOST_ENDS]]
    others = sum(count for _, count in ends[MOST_ENDS:])
    words += [f"otherwise {others}"] if others else []
    violations = ", ".join(f"{verdict} {count}" for verdict, count in kind["violations"].items())
    cells = name, str(kind["tried"]), ", ".join(words), violations or "none"
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def recorded() -> str:
    """Return the tables of the recorded run, and of plain torch under the same faults; how to make one otherwise."""
    if not RECORD.exists():
        return HOW_TO
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    peer = record.get("peer")
    beside = f"\n## torch's DataLoader alone\n\n{table(peer)}" if peer else ""
    return f"Recorded in `datasets/profiles/{RECORD.name}`.\n\n" + table(record) + beside
