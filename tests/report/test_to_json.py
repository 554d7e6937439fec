"""The JSON twin: the record, whole."""

import json

from audioaug.records import Report, from_json
from audioaug.report.to_json import render


def test_the_record_comes_back_whole(report):
    assert from_json(render(report), Report) == report


def test_schema_version_comes_first(race):
    content = json.loads(render(race))
    assert next(iter(content)) == "schema_version"
    assert content["verdict"] == race.verdict
