"""Real speech for the builds."""

from pathlib import Path

import numpy as np
import pytest
import torch

from audioaug import ops
from audioaug.audio.files import read_audio
from audioaug.core import Chain

RATE = 16000
LONG = Path(__file__).parents[3] / "datasets" / "demo" / "long"
DEMO = LONG.parent


@pytest.fixture(scope="session")
def _speech():
    return np.concatenate([read_audio(str(path), RATE, start=0.5, seconds=1.0) for path in sorted(LONG.glob("*.flac"))])


@pytest.fixture
def speech(_speech):
    """Eight different seconds of speech, (8, 16000), as numpy."""
    return _speech.copy()


@pytest.fixture
def batch(_speech):
    """The same as a batch of tensors, (8, 1, 16000)."""
    return torch.from_numpy(_speech.copy())[:, None]


@pytest.fixture(scope="session")
def exact_chain():
    """Six nodes whose builds promise to be equal sample for sample."""
    return Chain(
        [
            ops.Gain(p=0.7),
            ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), min_snr_db=0.0, p=0.8),
            ops.OneOf([ops.LowPassFilter(p=1.0), ops.Compose([ops.Reverse(), ops.Shift()], shuffle=True)], p=0.9),
            ops.ApplyImpulseResponse(ir_path=str(DEMO / "rooms"), p=0.6),
            ops.TimeMask(p=0.7),
            ops.SomeOf((1, 2), [ops.Normalize(p=0.8), ops.PolarityInversion(p=0.8), ops.Clip(a_max=0.3, p=0.8)]),
        ],
        sample_rate=RATE,
    )
