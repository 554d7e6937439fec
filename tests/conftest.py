"""The demo audio, for all tests; and one thread for torch, since on busy cores its threads wait for each other."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def demo() -> Path:
    """The folder of the demo audio: speech, noise, rooms; 16 kHz mono."""
    return Path(__file__).parents[1] / "datasets" / "demo"
