"""Compact records: as the records before, a row a line, and short."""

import json

from click.testing import CliRunner
from compact_records import compact, main

from audioaug.records import Timing, read_record, write_record


def test_a_record_keeps_its_fields_a_row_a_line_and_rounds_numbers() -> None:
    content = {
        "schema_version": 1,
        "name": "é",
        "rows": [{"ms": 1.23456789012, "n": 123456789}, {"ms": 1e-9}],
        "no": [],
    }
    lines = compact(json.dumps(content)).splitlines()
    assert lines[3:7] == ['"rows": [', '{"ms":1.234568,"n":123456789},', '{"ms":1e-09}', "],"]
    expected = {**content, "rows": [{"ms": 1.234568, "n": 123456789}, {"ms": 1e-9}]}
    assert json.loads("\n".join(lines)) == expected


def test_a_compacted_file_is_read_as_before_and_stays_as_it_is(tmp_path) -> None:
    path = tmp_path / "record.json"
    write_record(Timing((0.125, 0.5)), path)
    for _ in range(2):
        assert CliRunner().invoke(main, [str(path)]).exit_code == 0
        assert read_record(path, Timing) == Timing((0.125, 0.5))
        assert path.read_text().count("\n") == 6
