"""RoomSimulator with ray tracing: responses are those of pyroomacoustics, ray by ray and impulse by impulse.

Both round every step of a ray in the same way. One ray in ten thousand differs, which meets two walls in an edge; and
where the library was compiled for ARM, one in a thousand.
"""

from typing import Any

import numpy as np
import pytest
import torch

from audioaug import build_device, ops
from audioaug.core import Chain
from audioaug.dsp.rooms import rays
from audioaug.errors import ChainError
from audioaug.ops import room_simulator
from audioaug.verify import material
from audioaug.verify.contracts import check
from audioaug.verify.replay import replay
from tests.contract.ops.test_room_images import both, error

RATE = 16000

CASES: dict[str, tuple[dict[str, Any], int, float]] = {
    "default": ({}, RATE, 1e-4),
    "order 3": ({"max_order": 3}, RATE, 2e-4),
    "8 kHz": ({}, 8000, 1e-4),
    "44.1 kHz": ({}, 44100, 2e-4),
    "from a reverberation time": ({"calculation_mode": "rt60"}, RATE, 1e-4),
    "a far microphone": ({"max_order": 4, "min_mic_distance": 1.0, "max_mic_distance": 3.0}, RATE, 6e-4),
    "direct sound far away": ({"max_order": 0, "min_mic_distance": 2.0, "max_mic_distance": 3.0}, RATE, 2e-4),
    "as many rays as needed": ({"ray_tracing_options": {"receiver_radius": 0.3}}, RATE, 1e-4),
    "bins of 10 ms": ({"ray_tracing_options": {"n_rays": 1000, "hist_bin_size": 0.01}}, RATE, 1e-4),
    "rays that end early": ({"ray_tracing_options": {"n_rays": 1000, "time_thres": 0.1}}, RATE, 1e-4),
    "nothing reflected": ({"min_absorption_value": 1.0, "max_absorption_value": 1.0}, RATE, 5e-5),
}
"""Arguments, the sample rate, and the largest error; 6e-5 of the peak was measured with 60 rooms by default."""


@pytest.mark.parametrize("name", CASES)
def test_responses_are_those_of_the_library(name: str) -> None:
    changes, rate, most = CASES[name]
    assert max(error(*pair) for pair in both(ops.RoomSimulator(p=1.0, **changes), 6, rate)) <= most


TAILS = rays.tails
FAULTS: dict[str, Any] = {
    "no rays": lambda *numbers: [np.zeros(0) for _ in numbers[0]],
    "impulses of another key": lambda *numbers: TAILS(*numbers[:5], numbers[5] + 1, *numbers[6:]),
    "a tail that is 0.5 dB too loud": lambda *numbers: [10 ** (0.5 / 20) * tail_T for tail_T in TAILS(*numbers)],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_the_contract(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = ops.RoomSimulator(p=1.0, max_order=0, leave_length_unchanged=True)
    clips = material.signals(RATE)
    assert check(op.contract, *replay(op, clips, RATE)).status == "passed"
    monkeypatch.setattr(room_simulator, "tails", FAULTS[fault])
    assert check(op.contract, *replay(op, clips, RATE)).status == "failed"


def test_a_batch_is_its_rooms_one_by_one() -> None:
    chain = Chain([ops.RoomSimulator(p=1.0)], RATE)
    build, draws = build_device(chain), chain.draw(range(5))
    x_BCT = torch.randn(5, 1, 4000, generator=torch.Generator().manual_seed(0))
    together, length_B = build(x_BCT, draws=draws, return_lengths=True)
    for row in range(5):
        alone = build(x_BCT[row : row + 1], draws=chain.draw([row]))
        torch.testing.assert_close(together[row, :, : int(length_B[row])], alone[0], rtol=0.0, atol=1e-5)


def test_bins_of_less_than_two_samples_are_refused() -> None:
    chain = Chain([ops.RoomSimulator(p=1.0, ray_tracing_options={"hist_bin_size": 1e-4})], RATE)
    sentence = (
        r"^RoomSimulator: hist_bin_size is 0\.0001 s, but it must be 2 samples or more: 0\.00013 s at 16000 Hz\.$"
    )
    with pytest.raises(ChainError, match=sentence):
        build_device(chain)(torch.ones(1, 1, 100))
