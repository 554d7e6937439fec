"""The demo audio, for all tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def demo() -> Path:
    """The folder of the demo audio: speech, noise, rooms; 16 kHz mono."""
    return Path(__file__).parents[1] / "datasets" / "demo"
