"""A handmade report of the report's unit tests."""

from tests.unit.report.conftest import race  # noqa: F401
