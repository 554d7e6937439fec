"""The model files and the planted time of the advisor's unit tests."""

from tests.unit.advise.conftest import (  # noqa: F401
    advise,
    clean_imports,
    here,
    model,
    planted_time,
    racer_with,
    report,
)
