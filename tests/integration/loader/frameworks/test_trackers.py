"""Trackers have the numbers of a monitor with what docs/how-to/trackers.md says, without a network or a server."""

import csv
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audioaug import Loader
from audioaug.loader import monitor as monitor_module
from audioaug.measure import FakeClock
from tests.integration.loader.frameworks.how_to import CHAIN, run, speech

NUMBERS = {"steps": 10.0, "step_ms": 2000.0, "wait_share": 0.0, "bottleneck/model_bound": 0.8}
"""Of two epochs of five steps; a bottleneck is known from the third step on."""


@pytest.fixture
def yours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page takes for granted: a loader, and a step. It takes two seconds, so each step is a window."""
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    clock = FakeClock()
    monkeypatch.setattr(monitor_module, "WallClock", lambda: clock)
    return {"loader": Loader(speech(), CHAIN, batch_size=8, device="cpu"), "train": lambda batch: clock.advance(2.0)}


def assert_numbers(found: dict[str, float]) -> None:
    assert {name: found[name] for name in NUMBERS} == pytest.approx(NUMBERS)


def wandb_records(file: Path) -> Iterator[Any]:
    """Yield the records of an offline run: each is one or several chunks, with a header of 7 bytes, as the file is."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, record = file.read_bytes(), 7, b""
    assert data.startswith(b":W&B") and len(data) < 2**15  # one block
    while place < len(data):
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        place += 7 + length
        record += data[place - length : place]
        if kind in (1, 4):  # all of a record, or its last chunk
            yield Record.FromString(record)
            record = b""


def test_wandb_offline_has_the_numbers(yours, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run("trackers", 0, yours)
    wandb.teardown()  # ends its process
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    records = list(wandb_records(file))
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    assert [(row["_step"], row["steps"]) for row in rows] == [(0, 5), (1, 10)]
    assert_numbers(rows[-1])
    summary = {item.key: json.loads(item.value_json) for record in records for item in record.summary.update}
    assert_numbers(summary)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # mlflow's own uses of sqlalchemy
def test_mlflow_has_the_numbers(yours):
    mlflow = pytest.importorskip("mlflow")
    run("trackers", 1, yours)
    found = mlflow.last_active_run()
    assert_numbers(found.data.metrics)
    history = mlflow.MlflowClient().get_metric_history(found.info.run_id, "steps")
    assert [(point.step, point.value) for point in history] == [(0, 5), (1, 10), (2, 10)]


def test_csv_has_the_numbers(yours, tmp_path):
    run("trackers", 2, yours)
    with (tmp_path / "summary.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["name", "value"]
    assert_numbers({name: float(value) for name, value in rows})
