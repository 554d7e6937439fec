"""RoomSimulator: the reference's own rooms for our draws, the same in any process, and nothing left behind."""

import contextlib
import importlib.metadata
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import audiomentations
import numpy as np
import pyroomacoustics
import pytest

from audioaug import build_cpu, build_device, ops
from audioaug.core import Chain, arguments
from audioaug.errors import ChainError
from audioaug.ops import room_simulator
from audioaug.ops.room_simulator import SHARES, simulated
from audioaug.verify import material
from audioaug.verify.replay import replay

RATE = 16000
FEW_RAYS = {"n_rays": 100, "receiver_radius": 0.5, "energy_thres": 1e-3}
QUICK = ops.RoomSimulator(p=1.0, ray_tracing_options=FEW_RAYS)


@pytest.fixture(autouse=True)
def fresh_rooms() -> None:
    simulated.cache_clear()


def by_the_library(chain: Chain, samples: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Let the library itself draw, simulate and convolve, from random numbers that are those of our draw."""
    draws = chain.draw([0])
    numbers = iter([float(draws[f"0:{name}_share"][0]) for name in SHARES])
    drawn = SimpleNamespace(uniform=lambda low, high: low + next(numbers) * (high - low))
    monkeypatch.setattr("audiomentations.augmentations.room_simulator.random", drawn)
    key = int(draws["0:rays_key"][0])
    pyroomacoustics.random.seed(numpy=key, libroom=key)
    transform = audiomentations.RoomSimulator(**arguments(chain.ops[0]))
    result = transform(samples, RATE)
    monkeypatch.undo()
    return result


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_ray_tracing": False, "max_order": 3},
        {"calculation_mode": "rt60", "leave_length_unchanged": True},
        {"min_size_x": 3.6, "max_size_x": 3.6, "min_mic_distance": 3.0, "max_mic_distance": 4.0, "padding": 0.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("channels", [1, 2])
def test_result_equals_the_library_with_the_same_numbers(
    changes: dict[str, Any], channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain([ops.RoomSimulator(p=1.0, **{"ray_tracing_options": FEW_RAYS, **changes})], RATE)
    samples = material.signals(RATE, channels)[0]
    samples = samples if channels > 1 else samples[0]
    expected = by_the_library(chain, samples, monkeypatch)
    np.testing.assert_array_equal(build_cpu(chain)(samples, key=0), expected)


def response(key: int = 3, op: ops.RoomSimulator = QUICK) -> np.ndarray:
    params = {**{f"{name}_share": 0.5 for name in SHARES}, "rays_key": float(key)}
    return op._room(params, RATE).response


def test_the_same_draw_gives_the_same_response_in_any_process() -> None:
    here = response().tobytes().hex()
    code = "from tests.contract.ops.test_room_simulator import response; print(response().tobytes().hex())"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here


def test_rays_depend_only_on_the_key() -> None:
    first = response()
    for seed in (1, 2):
        simulated.cache_clear()
        pyroomacoustics.random.seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        np.testing.assert_array_equal(response(), first)
    assert not np.array_equal(response(key=4)[:2000], first[:2000])


def test_without_the_seed_it_would_not_be_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_simulator, "_seeded", lambda key: contextlib.nullcontext())
    first = response()
    simulated.cache_clear()
    assert not np.array_equal(response()[:2000], first[:2000])


def test_it_leaves_the_random_generators_alone() -> None:
    pyroomacoustics.random.seed(numpy=5, libroom=5)
    expected = pyroomacoustics.random.get_rng().uniform(size=4)
    pyroomacoustics.random.seed(numpy=5, libroom=5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    response()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert pyroomacoustics.random.get_rng().uniform(size=4).tolist() == expected.tolist()


def test_a_replay_pays_once() -> None:
    chain = Chain([QUICK, ops.RoomSimulator(p=1.0, ray_tracing_options=FEW_RAYS, leave_length_unchanged=True)], RATE)
    replay(chain.ops[0], material.signals(RATE), RATE)
    assert simulated.cache_info().misses == 8
    replay(chain.ops[1], material.signals(RATE, 2), RATE)
    assert simulated.cache_info().misses == 8


def test_clips_get_longer_by_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain([QUICK], RATE)
    clips = [clip for clip in material.signals(RATE) if clip.shape[1] > 1000]
    built = replay(chain, clips, RATE).built
    params = QUICK.resolve(
        {name: chain.draw(range(len(clips)))[f"0:{name}"] for name in chain.nodes[0].distributions},
        room_simulator.BatchInfo(RATE, np.asarray([clip.shape[1] for clip in clips])),
    )
    assert [clip.shape[1] for clip in built] == params["length_out"].tolist()
    assert all(wet.shape[1] > dry.shape[1] for wet, dry in zip(built, clips))


def test_an_empty_clip_stays_empty() -> None:
    import torch

    y_BCT, length_B = build_device(Chain([QUICK], RATE))(torch.ones(2, 1, 500), lengths=[500, 0], return_lengths=True)
    assert length_B[1] == 0 and not y_BCT[1].any() and length_B[0] > 500


def test_missing_pyroomacoustics_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ChainError, match=r"^RoomSimulator needs pyroomacoustics, which is not installed\. Run: pip"):
        Chain([ops.RoomSimulator()], RATE)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.9.0")
    with pytest.raises(ChainError, match=r"needs pyroomacoustics 0\.10 or later, .* not 0\.9\.0\. Run: pip"):
        Chain([ops.RoomSimulator()], RATE)


def test_pyroomacoustics_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, audioaug; audioaug.Chain([audioaug.ops.RoomSimulator()], 16000).draw([0]);"
        "print('pyroomacoustics' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"padding": 2.4}, "min_size_z is 2.4, but it must be greater than padding."),
        ({"min_size_y": 0.1}, "min_size_y is 0.1, but it must be greater than padding."),
        ({"min_source_x": 3.6, "max_source_x": 3.7}, "min_source_x is 3.6, but it must be less than min_size_x."),
        ({"min_source_z": -1.0, "max_source_z": 0.0}, "max_source_z is 0, but it must be greater than 0."),
        ({"padding": -0.1}, "padding is -0.1, but it must be at least 0."),
        ({"max_absorption_value": 1.1}, "max_absorption_value is 1.1, but it must be between 0 and 1."),
        ({"max_order": -1}, "max_order is -1, but it must be at least 0."),
        (
            {"calculation_mode": "rt60", "min_target_rt60": 0.1},
            "min_target_rt60 is 0.1, but the largest room has 0.105 s or more. "
            "Make max_size_x, max_size_y or max_size_z smaller, or the time longer.",
        ),
        ({"ray_tracing_options": {"rays": 5}}, "there is no ray_tracing_options 'rays'. Did you mean n_rays?"),
        ({"ray_tracing_options": {"n_rays": 0}}, "n_rays is 0, but it must be a number greater than 0."),
        ({"ray_tracing_options": {"n_rays": 10.5}}, "n_rays is 10.5, but it must be a whole number."),
        ({"ray_tracing_options": [3]}, "ray_tracing_options is [3], but it must be a mapping."),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_room_that_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ChainError) as caught:
        ops.RoomSimulator(**changes)
    assert str(caught.value) == f"RoomSimulator: {sentence}"


def test_the_shortest_reverberation_time_is_the_library_s() -> None:
    op = ops.RoomSimulator()
    room = np.asarray([op.max_size_x, op.max_size_y, op.max_size_z])
    low, high = 0.01, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        try:
            pyroomacoustics.inverse_sabine(middle, room)
            high = middle
        except ValueError:
            low = middle
    assert ops.RoomSimulator(calculation_mode="rt60", min_target_rt60=high * 1.0001)
    with pytest.raises(ChainError):
        ops.RoomSimulator(calculation_mode="rt60", min_target_rt60=low * 0.9999)


def test_rooms_at_the_limits_can_be_simulated() -> None:
    tight = {"min_source_x": 3.5, "max_source_x": 3.55, "padding": 2.3, "use_ray_tracing": False}
    chain = Chain([ops.RoomSimulator(p=1.0, **tight)], RATE)
    clips = material.signals(RATE)
    assert all(np.isfinite(clip).all() for clip in replay(chain, clips, RATE).reference)


def test_options_that_are_the_default_ones_come_back_as_none() -> None:
    chain = Chain([ops.RoomSimulator(), QUICK], RATE)
    assert Chain.from_audiomentations(chain.to_audiomentations(), RATE) == chain
