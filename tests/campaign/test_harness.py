"""The campaign itself: faults follow from seed and number, and each verdict is seen to be violated if it is."""

import json
from pathlib import Path
from typing import Any

import fault_tables
import pytest

from tests.campaign.__main__ import ROOT, campaign, run_and_log
from tests.campaign.case import LOADERS
from tests.campaign.faults import KINDS, draw
from tests.campaign.kinds import load

load(planted=True)
PLANTED = [each for name, each in KINDS.items() if name.startswith("planted")]
REAL = [each for name, each in KINDS.items() if not name.startswith("planted")]
EXPECTED = {
    "planted hang": ("hang", ""),
    "planted traceback": ("traceback", "KeyError: 'planted'"),
    "planted traceback on stderr": ("traceback", "Traceback (most recent call last)"),
    "planted sentence": ("sentence", "clip 7.wav"),
    "planted process": ("left behind", "sleep 600"),
    "planted orphan": ("left behind", "process"),
    "planted file": ("left behind", "temporary left"),
    "planted open file": ("left behind", "/dev/null"),
    "planted thread": ("left behind", "thread"),
    "planted shared memory": ("left behind", "shared memory planted"),
    "planted lost example": ("lost or twice", "of 12"),
    "planted double example": ("lost or twice", "delivered"),
    "planted exit code": ("exit code", "7"),
    "planted next run": ("next run", "of 12"),
    "planted program": ("exit code", "0"),
}


@pytest.fixture(scope="module")
def planted() -> dict[str, dict[str, Any]]:
    """The records of one fault of each planted kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMPAIGN_LEFT_SECONDS", "1")
        found = {each["kind"]: each for each in campaign(0, PLANTED, iter(range(len(PLANTED))), 1, 200)}
    assert sorted(found) == sorted(EXPECTED)
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_a_planted_violation_is_reported(name, planted):
    (violation, *_) = planted[name]["violations"]
    verdict, seen = EXPECTED[name]
    assert violation["verdict"] == verdict and seen in violation["seen"]


def test_faults_follow_from_seed_and_number():
    drawn = [draw(3, number, REAL) for number in range(400)]
    assert drawn == [draw(3, number, REAL) for number in range(400)]
    assert drawn[200:] != [draw(4, number, REAL) for number in range(200, 400)]
    assert [each.kind for each in drawn[: len(REAL)]] == [each.name for each in REAL]
    assert all(json.loads(json.dumps(each.values)) == each.values for each in drawn)


def test_there_are_kinds_enough_for_every_target():
    assert len(REAL) >= 25
    targets = {target for each in REAL for target in each.targets}
    assert {*LOADERS, "scripts/train.py", "advise"} <= targets
    assert sum(each.peer for each in REAL) >= 5


def test_table_counts_what_was_tried(tmp_path, monkeypatch):
    results = [
        {"kind": "a|b", "seconds": 1.0, "ended": "delivered", "violations": []},
        {"kind": "a|b", "seconds": 2.0, "ended": "", "violations": [{"verdict": "hang", "seen": ""}]},
    ]
    about = {"minutes": 5.0, "jobs": 2, "seed": 0, "torch": "2", "date": "2030-01-01"}
    record = fault_tables.summary(results, about)
    assert "| a\\|b | 2 | delivered 1, violation 1 | hang 1 |" in fault_tables.table(record)
    assert fault_tables.table(record).startswith("2 faults of 1 kinds in 5 minutes with 2 jobs, seed 0, torch 2, 2030")
    monkeypatch.setattr(fault_tables, "RECORD", tmp_path / "none.json")
    assert "make campaign" in fault_tables.recorded()
    monkeypatch.setattr(fault_tables, "RECORD", tmp_path / "r.json")
    (tmp_path / "r.json").write_text(json.dumps({**record, "peer": record}))
    assert "torch's DataLoader alone" in fault_tables.recorded()


def test_docs_page_asks_for_the_table():
    assert "<!-- generated: faults -->" in (ROOT / "docs/faults.md").read_text()


@pytest.mark.timeout(900)
def test_sample_has_no_violations(tmp_path, capsys):
    """Two minutes of a campaign: each kind at least once, if the machine is quick enough."""
    pytest.importorskip("tensorboard")
    log = tmp_path / "log.jsonl"
    kinds = [each for each in REAL if each.name != "Ray actor fails"]  # a cluster needs the machine for itself
    found = run_and_log(0, kinds, iter(range(10**6)), 2, 2.0, False, log)
    lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
    violated = [each for each in lines if each["violations"]]
    assert not violated, json.dumps(violated, indent=1)
    assert sum(each["tried"] for each in found["kinds"].values()) == len(lines) > 25
