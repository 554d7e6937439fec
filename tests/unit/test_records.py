"""Records: what passes between rooms survives JSON, and a file that is not one is reported by name."""

import dataclasses
import json
import math
import types
import typing
from typing import Any, Literal

import numpy as np
import pytest

from audioaug import Chain, ops, records
from audioaug.advise.candidates import candidate_of
from audioaug.errors import OutputError, PlanError, UsageError
from audioaug.records import (
    SCHEMA_VERSION,
    Candidate,
    HostFacts,
    Plan,
    Recommendation,
    Report,
    Timing,
    from_json,
    plan_of,
    read_record,
    to_json,
    write_record,
)
from tests.helpers.planted_reports import EVERY_KNOB

RECORDS = [
    value
    for value in vars(records).values()
    if dataclasses.is_dataclass(value) and value.__module__ == records.__name__
]
EVERY_RECORD = pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)


VALID = {
    "cut": 3,
    "num_workers": 4,
    "prefetch_factor": 3,
    "threads": 2,
    "start_method": "spawn",
    "device_from": 1,
    "worker_until": 2,
}
"""What not every number or text will do for."""


def sample(hint: Any, full: bool) -> Any:
    """Make a value of a type: with everything filled in, or as empty as it can be."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        wanted = [field for field in dataclasses.fields(hint) if full or field.default is dataclasses.MISSING]
        values = {field.name: sample(hints[field.name], full) for field in wanted if field.name != "schema_version"}
        return hint(**values | {name: value for name, value in VALID.items() if name in values and full})
    if origin is Literal:
        return arguments[-1 if full else 0]
    if origin in (typing.Union, types.UnionType):
        return sample(next(kind for kind in arguments if kind is not type(None)), full) if full else None
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(sample(arguments[0], full) for _ in range(2 * full))
        return tuple(sample(kind, full) for kind in arguments)
    if origin is dict:
        return {"torch": "2.11.0", "Grüße": "é"} if full else {}
    return {int: 2**40, float: 0.1, str: "a \"quoted\" 'tie'\n±", bool: True}[hint]


@EVERY_RECORD
@pytest.mark.parametrize("full", [False, True], ids=["as empty as can be", "full"])
def test_every_record_survives_json(kind, full):
    record = sample(kind, full)
    text = to_json(record)
    assert from_json(text, kind) == from_json(text.encode(), kind) == record
    assert set(json.loads(text)) == {field.name for field in dataclasses.fields(kind)}


def test_the_samples_reach_optional_and_nested_fields():
    empty, full = sample(Report, False), sample(Report, True)
    assert empty.recommendation is None and empty.candidates == ()
    assert isinstance(full.recommendation, Recommendation) and full.recommendation.predicted_ci_ms == (0.1, 0.1)
    assert len(full.candidates) == 2 and isinstance(full.measurements[0].step, Timing)


@EVERY_RECORD
def test_records_are_frozen(kind):
    record = sample(kind, True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(kind)[0].name, 3)


@pytest.mark.parametrize("kind", [kind for kind in RECORDS if hasattr(kind, "schema_version")])
def test_the_schema_version_comes_first_and_a_newer_one_is_refused(kind):
    text = to_json(sample(kind, True))
    content = json.loads(text)
    assert next(iter(content)) == "schema_version" and content["schema_version"] == SCHEMA_VERSION
    content["schema_version"] = SCHEMA_VERSION + 1
    with pytest.raises(UsageError) as caught:
        from_json(json.dumps(content), kind)
    assert f"schema version {SCHEMA_VERSION + 1}, but this audioaug reads version {SCHEMA_VERSION}" in str(caught.value)
    assert str(caught.value).endswith("Update audioaug.")


@pytest.mark.parametrize("kind", [Plan, Report])
def test_an_older_schema_version_is_refused_with_the_next_step(tmp_path, kind):
    content = json.loads(to_json(sample(kind, True))) | {"schema_version": 1}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError) as caught:
        read_record(path, kind)
    assert str(caught.value) == (
        f"{path}: This {kind.__name__} has schema version 1, but this audioaug reads version 2. "
        "Run the advisor again to write a new one."
    )


def test_a_plan_and_a_report_have_a_schema_version():
    assert Plan().schema_version == sample(Report, False).schema_version == SCHEMA_VERSION


def test_json_is_indented_and_ends_with_a_newline_in_files(tmp_path):
    write_record(Plan(cut=3), tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    assert text.startswith('{\n  "schema_version": 2,\n  "cut": 3,') and text.endswith("}\n")


def test_a_plan_survives_its_file(tmp_path):
    plan = Plan(cut=3, num_workers=4, prefetch_factor=8, pin_memory=True, start_method="spawn", chain_hash="ab" * 8)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan == Plan.load(str(tmp_path / "plan.json"))
    Plan().save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").pin_memory is None


@pytest.mark.parametrize("pinned", [None, False, True])
def test_whether_memory_is_pinned_survives_a_candidate(pinned):
    chain = Chain([ops.Gain()], sample_rate=16000)
    assert plan_of(candidate_of(Plan(cut=1, pin_memory=pinned), chain)).pin_memory is pinned


def test_every_field_of_a_plan_survives_a_candidate():
    plan = dataclasses.replace(EVERY_KNOB, cut=1, pin_memory=False, chain_hash="ab" * 8)
    usual = [
        field.name for field in dataclasses.fields(Plan) if getattr(plan, field.name) == getattr(Plan(), field.name)
    ]
    assert usual == ["schema_version"]
    candidate = candidate_of(plan, Chain([ops.Gain()], sample_rate=16000))
    assert plan_of(candidate, plan.chain_hash, plan.precision) == plan


GARBAGE = {
    "nothing": b"",
    "half of one": to_json(Plan()).encode()[:50],
    "no text": bytes(range(256)),
    "a list": b"[1, 2]",
    "null": b"null",
    "a wrong type": b'{"cut": "three"}',
    "a wrong option": b'{"device_engine": "magic"}',
    "a fraction": b'{"cut": 1.5}',
    "negative": b'{"cut": -1}',
    "negative workers": b'{"num_workers": -2}',
    "yaml": b"cut: 3\n",
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_a_usage_error_that_names_the_file(content, tmp_path):
    path = tmp_path / "myplan.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        Plan.load(path)
    assert str(caught.value).startswith(f"{path}: ") and caught.value.exit_code == 2


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match=rf"Cannot read {path}: "):
            read_record(path, Report)
    for path in (tmp_path / "none" / "plan.json", tmp_path):
        with pytest.raises(OutputError, match=rf"Cannot write {path}: "):
            Plan().save(path)


def test_a_report_is_not_accepted_as_a_plan():
    with pytest.raises(UsageError, match="This is a plan, not a report"):
        from_json(to_json(Plan()), Report)


def test_fields_of_a_later_minor_version_are_ignored():
    content = json.loads(to_json(sample(Report, True)))
    assert from_json(json.dumps(content | {"colour": "blue"}), Report) == sample(Report, True)


@pytest.mark.parametrize("name", ["cut", "num_workers"])
def test_negative_numbers_in_a_plan(name):
    with pytest.raises(PlanError, match=f"Plan: {name} is -1, but it must be an integer from 0 to"):
        Plan(**{name: -1})


@pytest.mark.parametrize("name", ["prefetch_factor", "threads"])
def test_missing_values_in_a_plan(name):
    with pytest.raises(PlanError, match=f"Plan: {name} is 0, but it must be an integer from 1 to 1024"):
        Plan(**{name: 0})


@pytest.mark.parametrize("name", records.PLAN_LIMITS)
def test_the_limits_of_a_plan_are_valid_values(name):
    least, most = records.PLAN_LIMITS[name]
    assert [getattr(Plan(**{name: value}), name) for value in (least, most)] == [least, most]
    with pytest.raises(PlanError, match=f"Plan: {name} is {most + 1}, but"):
        Plan(**{name: most + 1})


@pytest.mark.parametrize(
    ("seconds", "median", "interval"),
    [
        ((3.0,), 3.0, (3.0, 3.0)),
        ((4.0, 2.0), 3.0, (2.0, 4.0)),
        ((9.0, 1.0, 2.0), 2.0, (1.0, 9.0)),
        ((4.0, 1.0, 3.0, 2.0), 2.5, (1.0, 4.0)),
        (tuple(float(second) for second in reversed(range(101))), 50.0, (40.0, 60.0)),
        ((0.5,) * 7, 0.5, (0.5, 0.5)),
    ],
)
def test_median_and_interval_on_known_numbers(seconds, median, interval):
    timing = Timing(seconds)
    assert (timing.median, timing.interval) == (median, interval)
    assert timing.ms == pytest.approx(median * 1e3)
    assert timing.ci_ms == pytest.approx((interval[0] * 1e3, interval[1] * 1e3))


def test_a_report_keeps_the_last_repetitions():
    timing = Timing(tuple(0.001 * place for place in range(records.KEPT_SAMPLES + 3)))
    assert timing.samples_ms == pytest.approx([3.0 + place for place in range(records.KEPT_SAMPLES)])


def test_one_outlier_moves_neither_median_nor_interval():
    times = [1.0 + 0.001 * place for place in range(21)]
    calm, wild = Timing(tuple(times)), Timing((*times[:-1], 1000.0))
    assert calm.median == wild.median and calm.interval == wild.interval


def test_the_interval_narrows_with_more_repetitions():
    samples = np.random.default_rng(0).normal(size=(300, 100)).tolist()
    widths = [np.mean([np.ptp(Timing(tuple(times[:count])).interval) for times in samples]) for count in (10, 25, 100)]
    assert widths[0] > 1.5 * widths[1] > 2 * widths[2]


@pytest.mark.parametrize("count", [10, 25, 60])
def test_the_interval_holds_the_true_median_19_times_in_20(count):
    samples = np.random.default_rng(count).lognormal(size=(2000, count))  # true median 1; skewed, as times are
    intervals = [Timing(tuple(times)).interval for times in samples.tolist()]
    share = np.mean([low <= 1.0 <= high for low, high in intervals])
    assert share > 0.945
    assert all(
        low <= Timing(tuple(times)).median <= high for times, (low, high) in zip(samples[:50].tolist(), intervals)
    )


def test_candidate_names_are_unique():
    candidates = [
        Candidate("cpu", 3, num_workers=1),
        Candidate("cpu", 3, num_workers=2),
        Candidate("cpu", 3, num_workers=2, pin_memory=True),
        Candidate("gpu", 0),
        Candidate("gpu", 0, device_engine="torch-audiomentations"),
        Candidate("split", 2, num_workers=2),
        Candidate("split", 1, num_workers=2),
        Candidate("split", 1, "batched", num_workers=2),
        Candidate("split", 1, "batched", "torch-audiomentations", num_workers=2),
        Candidate("cpu", 3, "batched", num_workers=2),
        Candidate("cpu", 3, num_workers=2, prefetch_factor=4),
        Candidate("cpu", 3, num_workers=2, start_method="spawn"),
        Candidate("cpu", 3, num_workers=2, threads=1),
        Candidate("cpu", 3, num_workers=2, threads=2),
    ]
    names = [candidate.name for candidate in candidates]
    assert len(set(names)) == len(names)
    assert names[0].endswith("1 worker") and names[1].endswith("2 workers")
    assert "split at 2" in names[5] and "torch-audiomentations" in names[4]
    assert names[-1] == "all in the loader, 2 workers, 2 threads"
    assert names[7] == "split at 1 (batched workers), 2 workers"
    assert Candidate("gpu", 0, "batched").name == Candidate("gpu", 0).name  # nothing runs in its workers


@pytest.mark.parametrize(("device", "has_gpu"), [("cpu", False), ("cuda", True), ("cuda:1", True), ("mps", True)])
def test_a_host_with_a_gpu(device, has_gpu):
    assert dataclasses.replace(sample(HostFacts, True), device=device).has_gpu is has_gpu


@pytest.mark.parametrize(("effective", "cores"), [(None, 2.0), (1.5, 1.5), (3.0, 2.0)])
def test_the_cores_of_a_host_are_at_most_the_usable_ones(effective, cores):
    host = dataclasses.replace(sample(HostFacts, True), usable_cores=2.0, effective_cores=effective)
    assert host.cores == cores


def test_an_allocation_adds_up():
    assert math.isclose(records.Allocation(1.0, 2.0, 0.5).total_ms, 3.5)
