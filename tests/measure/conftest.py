"""The planted clock of these tests: nothing here sleeps."""

import pytest

from audioaug.measure import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    """Give a clock that stands still until it is advanced."""
    return FakeClock()
