"""RoomSimulator without ray tracing: image sources simulated on the device are those of pyroomacoustics.

A response is compared as a whole, up to a share of its peak, and then by what is heard: when the direct sound comes and
how loud it is, early reflections, and how long the room reverberates. pyroomacoustics places images in float32; what it
is off by, and with it every bound here, grows with the order and the sample rate.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import pyroomacoustics
import pytest
import torch

from audioaug import build_device, ops
from audioaug.core import BatchInfo, Chain
from audioaug.dsp.rooms import Rooms
from audioaug.ops import room_simulator
from audioaug.ops.room_simulator import simulated
from audioaug.verify import material
from audioaug.verify.contracts import check
from audioaug.verify.replay import replay

RATE = 16000
STATED = ops.RoomSimulator.contract
FAR = {"min_mic_distance": 1.0, "max_mic_distance": 3.0}


def declared(**changes: Any) -> ops.RoomSimulator:
    return ops.RoomSimulator(p=1.0, use_ray_tracing=False, **changes)


def both(op: ops.RoomSimulator, count: int, rate: int = RATE, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return responses as the device and as the library simulates them: what becomes of a click."""
    chain = Chain([op], rate)
    draws = chain.draw(range(count), seed=seed)
    y_BCT, length_B = build_device(chain)(torch.ones(count, 1, 1), draws=draws, return_lengths=True)
    pairs = []
    for row, (y_T, length) in enumerate(zip(y_BCT[:, 0].double().numpy(), length_B.tolist())):
        theirs = op._room({name: draws[f"0:{name}"][row] for name in op.distributions()}, rate).response
        assert length == len(theirs), row
        pairs.append((y_T[:length], theirs))
    return pairs


def error(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


# The response as a whole

CASES: dict[str, tuple[dict[str, Any], int, float]] = {
    "direct sound": ({"max_order": 0}, RATE, 2.5e-5),
    "order 1": ({}, RATE, 3e-5),
    "order 3": ({"max_order": 3}, RATE, 6e-5),
    "order 6": ({"max_order": 6}, RATE, 1.5e-4),
    "order 3 at 8 kHz": ({"max_order": 3}, 8000, 4e-5),
    "order 3 at 44.1 kHz": ({"max_order": 3}, 44100, 1.5e-4),
    "order 2 at 48 kHz": ({"max_order": 2}, 48000, 1.5e-4),
    "from a reverberation time": ({"calculation_mode": "rt60", "max_order": 3}, RATE, 6e-5),
    "a far microphone": ({"max_order": 3, **FAR}, RATE, 3e-4),
    "nothing reflected": ({"max_order": 2, "min_absorption_value": 1.0, "max_absorption_value": 1.0}, RATE, 2.5e-5),
    "all reflected": ({"max_order": 3, "min_absorption_value": 0.0, "max_absorption_value": 0.0}, RATE, 1e-4),
}
"""Arguments, the sample rate, and the largest error; about twice as much as was measured with 24 rooms."""


@pytest.mark.parametrize("name", CASES)
def test_responses_are_those_of_the_library(name: str) -> None:
    changes, rate, most = CASES[name]
    found = both(declared(**changes), 8, rate)
    assert max(error(*pair) for pair in found) <= most


PLANTED: dict[str, dict[str, Any]] = {
    "one order less": {"max_order": 2},
    "walls that absorb 1 % more": {"min_absorption_value": 0.085, "max_absorption_value": 0.41},
    "a room 1 cm wider": {"min_size_x": 3.61, "max_size_x": 5.61},
    "a microphone 1 mm farther": {"min_mic_distance": 0.151, "max_mic_distance": 0.351},
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_fails_the_contract(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, clips = declared(max_order=3, leave_length_unchanged=True), material.signals(RATE)
    assert check(op.contract, *replay(op, clips, RATE)).status == "passed"
    wrong, honest = dataclasses.replace(op, **PLANTED[fault]), ops.RoomSimulator.resolve
    monkeypatch.setattr(ops.RoomSimulator, "resolve", lambda self, draw, batch: honest(wrong, draw, batch))
    assert check(op.contract, *replay(op, clips, RATE)).status == "failed"


def no_air(rooms: Rooms) -> Rooms:
    return dataclasses.replace(rooms, decay=torch.zeros_like(rooms.decay))


def no_highpass(rooms: Rooms) -> Rooms:
    real, imaginary = rooms.highpass.view(2, -1)
    return dataclasses.replace(
        rooms, highpass=torch.stack([torch.full_like(real, 0.5 / rooms.sizes[2]), torch.zeros_like(imaginary)])
    )


def bands_in_another_order(rooms: Rooms) -> Rooms:
    return dataclasses.replace(rooms, bands=rooms.bands.view(-1, rooms.sizes[1], rooms.sizes[2] + 1).roll(1, 1))


@pytest.mark.parametrize("fault", [no_air, no_highpass, bands_in_another_order])
def test_a_planted_fault_in_the_filters_is_seen(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op, honest = declared(max_order=3), room_simulator.responses
    monkeypatch.setattr(room_simulator, "responses", lambda rooms, *more: honest(fault(rooms), *more))
    assert max(error(*pair) for pair in both(op, 4)) > 2 * CASES["order 3"][2]


# What is heard


def apex(response: np.ndarray) -> tuple[float, float]:
    """Return when the largest sample is, in samples, and how high, by a parabola through its neighbours."""
    place = int(np.abs(response).argmax())
    before, at, after = np.abs(response[place - 1 : place + 2])
    off = 0.5 * (before - after) / (before - 2 * at + after)
    return place + off, at - 0.25 * (before - after) * off


def test_direct_sound_comes_when_and_as_loud_as_in_the_library() -> None:
    for ours, theirs in both(declared(max_order=3), 16):
        (time, level), (expected_time, expected_level) = apex(ours), apex(theirs)
        assert abs(time - expected_time) < 1e-3  # samples
        assert abs(20 * math.log10(level / expected_level)) < 1e-3  # dB


def test_early_reflections_differ_by_minus_70_db() -> None:
    """Of their own energy: the direct sound, which is 20 dB louder, is taken away."""
    reflections = zip(both(declared(max_order=3), 16), both(declared(max_order=0), 16), strict=True)
    for (ours, theirs), (our_direct, their_direct) in reflections:
        ours[: len(our_direct)] -= our_direct
        theirs[: len(their_direct)] -= their_direct
        early = slice(0, 40 + int(0.02 * RATE))
        off, energy = np.square(ours - theirs)[early].sum(), np.square(theirs)[early].sum()
        assert energy > 0 and 10 * math.log10(off / energy) < -70


def test_reverberation_lasts_as_long_as_in_the_library() -> None:
    """By Schroeder's backward integration, from -5 to -25 dB, of 12 orders of reflections."""
    for ours, theirs in both(declared(max_order=12, min_absorption_value=0.3), 2):
        seconds = [pyroomacoustics.experimental.measure_rt60(each, RATE, decay_db=20) for each in (ours, theirs)]
        assert 0.05 < seconds[1] < 1.0 and seconds[0] == pytest.approx(seconds[1], rel=1e-3)


# The parameters


@pytest.mark.parametrize("mode", ["absorption", "rt60"])
def test_parameters_are_those_of_the_library(mode: Any) -> None:
    op = declared(calculation_mode=mode, max_mic_distance=3.0, max_order=2)
    draws = Chain([op], RATE).draw(range(40))
    draw = {name: draws[f"0:{name}"] for name in op.distributions()}
    found = op.parameters(draw)
    for row in range(40):
        expected = op._room({name: values[row] for name, values in draw.items()}, RATE).parameters
        assert found.keys() == expected.keys()
        assert {name: values[row] for name, values in found.items()} == pytest.approx(expected, rel=1e-13, abs=1e-15)


def test_the_order_is_no_more_than_a_reverberation_time_needs() -> None:
    op = declared(calculation_mode="rt60", max_order=60)
    draws = Chain([op], RATE).draw(range(200))
    found = op.parameters({name: draws[f"0:{name}"] for name in op.distributions()})
    sizes = np.stack([found[f"size_{axis}"] for axis in "xyz"], axis=1)
    expected = [pyroomacoustics.inverse_sabine(*each)[1] for each in zip(found["target_rt60"], sizes)]
    assert found["max_order"].tolist() == np.minimum(expected, 60).tolist() and len({*expected}) > 20


# Where it runs


def test_no_room_is_simulated_on_the_host() -> None:
    simulated.cache_clear()
    chain = Chain([declared(max_order=3)], RATE)
    build_device(chain)(torch.ones(8, 1, 500), draws=chain.draw(range(8)))
    assert simulated.cache_info().misses == 0
    build_device(Chain([declared(padding=0.0)], RATE))(torch.ones(8, 1, 500), draws=chain.draw(range(8)))
    assert simulated.cache_info().misses == 8


LEVEL = {"min_mic_elevation": 0.0, "max_mic_elevation": 0.0}
AHEAD = {"min_mic_azimuth": math.pi / 2, "max_mic_azimuth": math.pi / 2}
ABOVE = {"min_mic_elevation": math.pi / 2, "max_mic_elevation": math.pi / 2}


@pytest.mark.parametrize(
    ("changes", "is_on_host"),
    [
        ({}, False),
        (LEVEL, False),
        (AHEAD, False),
        ({"min_mic_distance": 0.01}, False),
        ({**LEVEL, **AHEAD}, True),
        (ABOVE, True),
        ({"padding": 0.0}, True),
        ({"min_mic_distance": 0.0}, True),
    ],
    ids=str,
)
def test_where_the_library_counts_images_twice_it_simulates_them(changes: dict[str, Any], is_on_host: bool) -> None:
    op = declared(max_order=2, **changes)
    assert op.is_simulated_on_host == is_on_host
    clips = [clip for clip in material.signals(RATE) if clip.shape[1] < 9000]
    assert check(STATED, *replay(op, clips, RATE)).status == "passed"


def test_the_library_counts_some_images_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason why: without the exception, the device would differ from it."""
    monkeypatch.setattr(room_simulator, "_is_in_line", lambda op: False)
    assert max(error(*pair) for pair in both(declared(max_order=2, **ABOVE), 4)) > 0.01


# Batches


def test_a_gradient_flows_through_the_response() -> None:
    chain = Chain([declared(max_order=2)], RATE)
    draws, x_BCT = chain.draw(range(3)), torch.randn(3, 2, 300, generator=torch.Generator().manual_seed(0))
    module = build_device(chain)
    y_BCT, length_B = module(x_BCT.requires_grad_(), draws=draws, return_lengths=True)
    weight_BCT = torch.randn(y_BCT.shape, generator=torch.Generator().manual_seed(1))
    y_BCT.mul(weight_BCT).sum().backward()
    taps_B1N = module(torch.ones(3, 1, 1), draws=draws).numpy()
    for row, length in enumerate(length_B.tolist()):
        gradient = [
            np.correlate(w[:length], taps_B1N[row, 0, : length - 299], "valid") for w in weight_BCT[row].numpy()
        ]
        np.testing.assert_allclose(x_BCT.grad[row].numpy(), gradient, atol=2e-5 * np.abs(gradient).max())


def test_a_room_does_not_depend_on_its_batch() -> None:
    chain = Chain([declared(max_order=3)], RATE)
    draws, module = chain.draw(range(6)), build_device(chain)
    together, length_B = module(torch.ones(6, 1, 1), draws=draws, return_lengths=True)
    for row in range(6):
        alone = module(torch.ones(1, 1, 1), draws=draws[row : row + 1])[0]
        assert alone.shape[1] == length_B[row]
        torch.testing.assert_close(together[row, :, : alone.shape[1]], alone, rtol=0.0, atol=1e-6 * float(alone.max()))


def test_empty_and_short_clips_of_a_padded_batch() -> None:
    chain = Chain([declared()], RATE)
    draws, module, x_BCT = chain.draw(range(3)), build_device(chain), torch.ones(3, 1, 500)
    x_BCT[1], x_BCT[2, :, 7:] = 0.0, 0.0
    taps_B = [len(theirs) for _, theirs in both(declared(), 3)]
    y_BCT, length_B = module(x_BCT, lengths=[500, 0, 7], draws=draws, return_lengths=True)
    assert length_B.tolist() == [499 + taps_B[0], 0, 6 + taps_B[2]]
    assert not y_BCT[1].any() and not y_BCT[2, :, int(length_B[2]) :].any()


def test_preparing_a_batch_sends_few_numbers() -> None:
    """Far fewer than the responses of the batch itself, which ray tracing sends."""
    op = declared(max_order=3)
    chain = Chain([op], RATE)
    draws = chain.draw(range(64))
    draw = {name: draws[f"0:{name}"] for name in op.distributions()}
    [rooms] = op.resolve(draw, BatchInfo(RATE, np.full(64, 1000)))["rooms"]
    sent = sum(np.size(value) for value in vars(rooms).values())
    assert sent < 64 * rooms.sizes[2]
