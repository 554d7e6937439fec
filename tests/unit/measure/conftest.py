"""The fake clock of these tests; nothing sleeps."""

import pytest

from audioaug.measure import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that only moves when it is advanced."""
    return FakeClock()
