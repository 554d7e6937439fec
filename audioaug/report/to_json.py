"""The report for machines."""

from audioaug.records import Report, to_json


def render(report: Report) -> str:
    """The record itself: ``records.from_json(text, Report)`` gives it back."""
    return to_json(report)
