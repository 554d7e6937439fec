"""Ray tracing in boxes: energies are those of pyroomacoustics' rays, and impulses those that it makes of energies."""

import itertools
import platform
from typing import Any

import numpy as np
import pyroomacoustics
import pytest
import torch
from pyroomacoustics.simulation.rt import compute_rt_rir, poisson_sequence

from audioaug.dsp import rooms as dsp_rooms
from audioaug.dsp.dispatch import backend
from audioaug.dsp.rooms import Late, rays
from audioaug.dsp.rooms.plan import plan_late
from tests.unit.dsp import test_rooms

RATE, STEP = 16000, 64
METRES = 343.0 * STEP / RATE


def boxes(count: int, seed: int = 0, absorption: tuple[float, float] = (0.1, 0.6)) -> dict[str, Any]:
    """Return rooms of many sizes, with a source and a microphone anywhere in each; of low orders."""
    return {**test_rooms.boxes(count, seed, absorption), "order_B": np.resize([0, 1, 3], count)}


def traced(
    numbers: dict[str, Any], count: int, radius: float, least: float, seconds: float, normals_B23: Any = None
) -> np.ndarray:
    """Return the energies of all rooms by our rays; normals are those of the library's boxes if none are given."""
    normals_B23 = np.ones((len(numbers["size_B3"]), 2, 3)) if normals_B23 is None else normals_B23
    places = [*list(numbers.values())[:4], normals_B23]
    rooms = (torch.from_numpy(each.astype(np.float32)) for each in places)
    limits = radius, least, 343.0 * seconds, METRES, int(seconds / STEP * RATE) + 30
    return rays.trace(rays._directions(count), *rooms, torch.from_numpy(numbers["order_B"]), *limits).numpy()


def by_library(numbers: dict[str, Any], count: int, radius: float, least: float, seconds: float) -> list[Any]:
    """Return pyroomacoustics' rooms after it has traced rays."""
    found = []
    for size, source, microphone, absorption, order in zip(*numbers.values()):
        wall = pyroomacoustics.Material(float(absorption))
        room = pyroomacoustics.ShoeBox(size, RATE, materials=wall, max_order=int(order), ray_tracing=True)
        room.set_ray_tracing(n_rays=count, receiver_radius=radius, energy_thres=least, time_thres=seconds)
        room.add_source(source)
        room.add_microphone(microphone)
        room.image_source_model()
        room.ray_tracing()
        found.append(room)
    return found


LIMITS = {
    "many rays": (5000, 0.5, 1e-5, 10.0),
    "few rays that go far": (50, 0.3, 1e-9, 10.0),
    "rays that end early": (1000, 0.5, 1e-9, 0.05),
    "a large radius": (1000, 2.0, 1e-3, 10.0),
}


@pytest.mark.parametrize("way", ["auto", "torch"])
@pytest.mark.parametrize("name", LIMITS)
def test_energies_are_those_of_the_library(name: str, way: str) -> None:
    numbers, limits = boxes(9), LIMITS[name]
    with backend(way):
        energy_BH = traced(numbers, *limits)
    for energy_H, room in zip(energy_BH, by_library(numbers, *limits), strict=True):
        expected_H = np.zeros_like(energy_H)
        theirs_H = room.rt_histograms[0][0][0][0][: len(expected_H)]
        expected_H[: len(theirs_H)] = theirs_H
        assert np.flatnonzero(energy_H).tolist() == np.flatnonzero(expected_H).tolist()
        off_H = np.abs(energy_H - expected_H)
        assert np.median(off_H[expected_H > 0] / expected_H[expected_H > 0]) < 1e-5
        assert off_H.sum() < 1e-3 * expected_H.sum()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the library rounds otherwise there")
@pytest.mark.parametrize("way", ["auto", "torch"])
def test_rays_are_those_of_the_library_to_the_last_reflection(way: str) -> None:
    """Of rooms whose walls it makes from corners, as audiomentations does, where rays go on for long."""
    for seed in range(4):
        numbers = {**boxes(1, seed=seed, absorption=(0.08, 0.1)), "order_B": np.asarray([1])}
        (x, y, z), source, microphone, absorption, _ = (values[0] for values in numbers.values())
        wall = pyroomacoustics.Material(float(absorption))
        room = pyroomacoustics.Room.from_corners(
            [[0, 0, x, x], [0, y, y, 0]], fs=RATE, materials=wall, max_order=1, ray_tracing=True, air_absorption=True
        )
        room.set_ray_tracing(n_rays=2000, receiver_radius=0.5, energy_thres=1e-5)
        room.extrude(z, materials=wall)
        room.add_source(source)
        room.add_microphone(microphone)
        room.image_source_model()
        room.ray_tracing()
        with backend(way):
            energy_H = traced(numbers, 2000, 0.5, 1e-5, 10.0, rays._walls(np.asarray([x, y, z])).normals_23[None])[0]
        expected_H = room.rt_histograms[0][0][0][0]
        off_H = np.abs(energy_H[: len(expected_H)] - expected_H) > 1e-5 * expected_H
        assert off_H.sum() <= 10  # of one ray that meets two walls in an edge


def test_walls_that_reflect_all_leave_the_time_as_the_limit() -> None:
    numbers, limits = boxes(3, absorption=(0.0, 0.0)), (200, 0.5, 1e-5, 0.3)
    theirs = [room.rt_histograms[0][0][0][0] for room in by_library(numbers, *limits)]
    for way in ("auto", "torch"):
        with backend(way):
            for energy_H, expected_H in zip(traced(numbers, *limits), theirs):
                assert abs(energy_H.sum() / expected_H.sum() - 1) < 1e-3


def test_loops_and_operations_are_the_same() -> None:
    numbers = boxes(5, seed=1)
    found = traced(numbers, 1000, 0.5, 1e-5, 10.0)
    with backend("torch"):
        np.testing.assert_allclose(traced(numbers, 1000, 0.5, 1e-5, 10.0), found, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("fault", ["absorption_B", "microphone_B3", "order_B"])
def test_a_planted_fault_is_seen(fault: str) -> None:
    numbers, limits = boxes(3), LIMITS["many rays"]
    wrong = traced({**numbers, fault: numbers[fault] + (1 if fault == "order_B" else 0.002)}, *limits)
    for energy_H, right_H in zip(wrong, traced(numbers, *limits)):
        assert np.abs(energy_H - right_H).sum() > 1e-3 * right_H.sum()


# Impulses


@pytest.mark.parametrize("volume", [8.0, 50.0, 3000.0])
def test_impulses_come_when_they_do_in_the_library(volume: float) -> None:
    for key, first in itertools.product(range(4), (0.0005, 0.02)):
        generator = rays._generator(key, 0)
        time_M = rays._times(generator, np.float32(volume), first, 0.7)
        pyroomacoustics.random.seed(numpy=key, libroom=0)
        expected_M = poisson_sequence(np.float32(volume), 0.7, 343.0, t0=first)[1]
        np.testing.assert_allclose(time_M, expected_M, rtol=1e-12)


def late_by_library(energy_H: np.ndarray, room: Any, first: float, key: int) -> np.ndarray:
    """Return what pyroomacoustics makes of energies over time in a room."""
    pyroomacoustics.random.seed(numpy=key, libroom=0)
    pyroomacoustics.random.get_rng().uniform(size=rays.PLACED)
    omnidirectional = {"response": np.ones(1), "is_impulse_response": False}
    found = compute_rt_rir(
        *(first, [energy_H[None]], omnidirectional, STEP / RATE, STEP, np.float32(40.0), 81, 343.0, RATE),
        room.octave_bands,
        room.air_absorption,
    )
    return np.asarray(found)


def late(energies: list[np.ndarray]) -> tuple[np.ndarray, Late]:
    """Return what we make of energies over time, of 30 m long responses, and the numbers for it."""
    impulses = [rays._impulses(each, np.float32(40.0), 0.002, key, RATE, STEP) for key, each in enumerate(energies)]
    found = plan_late(impulses, np.full(len(impulses), 500), RATE)
    tensors = {
        name: torch.from_numpy(
            np.asarray(getattr(found, name), np.int64 if name in ("ends", "bank", "length") else "f")
        )
        for name in ("impulses", "ends", "bank", "bands", "highpass", "length")
    }
    decay_K = torch.from_numpy(-0.5 * np.asarray(box().air_absorption, np.float32))
    return dsp_rooms._dampened(Late(**tensors, width=found.width), decay_K, 343.0 / RATE).numpy(), found


def box() -> Any:
    return pyroomacoustics.ShoeBox([4.0, 5.0, 2.0], RATE, air_absorption=True, ray_tracing=True)


ENERGIES = {
    "a decay": np.exp(-np.arange(200) / 30),
    "a gap": np.where(np.arange(90) % 40 < 20, 1.0, 0.0),
    "zeros at the end": np.r_[np.ones(40), np.zeros(60)],
    "two bins": np.r_[1.0, 0.5, np.zeros(20)],
}


@pytest.mark.parametrize("way", ["auto", "torch"])
def test_what_is_made_of_energies_is_what_the_library_makes(way: str) -> None:
    with backend(way):
        sound_BV, numbers = late(list(ENERGIES.values()))
    for row, (name, energy_H) in enumerate(ENERGIES.items()):
        expected_T = late_by_library(energy_H, box(), 0.002, key=row)
        length = len(expected_T)
        assert numbers.length[row] == max(500, length), name
        off = np.abs(sound_BV[row, :length] - expected_T).max() / np.abs(expected_T).max()
        assert off < 2e-5 and not sound_BV[row, length:].any(), name


def test_no_ray_that_comes_past_leaves_the_images_alone() -> None:
    numbers = plan_late([rays._impulses(np.zeros(50), np.float32(40.0), 0.002, 0, RATE, STEP)], np.asarray([500]), RATE)
    assert numbers.length.tolist() == [500] and numbers.ends.tolist() == [0] and not numbers.impulses.any()


@pytest.mark.parametrize(("radius", "step"), [(0.5, 64), (0.3, 64), (0.5, 176)])
def test_as_many_rays_as_a_room_needs_are_as_many_as_in_the_library(radius: float, step: int) -> None:
    """The library counts them before the room has a height."""
    size_B3 = boxes(200, seed=4)["size_B3"]
    found = rays._numbers(size_B3, radius, 343.0 * step / 44100)
    for (x, y, _), count in zip(size_B3.tolist(), found.tolist()):
        floor = pyroomacoustics.Room.from_corners([[0, 0, x, x], [0, y, y, 0]], fs=44100)
        floor.set_ray_tracing(receiver_radius=radius, hist_bin_size=step / 44100 * 1.0001)
        assert count == floor.rt_args["n_rays"]


def test_a_volume_is_that_of_the_library() -> None:
    for size_3 in boxes(50, seed=5)["size_B3"]:
        x, y, z = size_3.tolist()
        room = pyroomacoustics.Room.from_corners([[0, 0, x, x], [0, y, y, 0]], fs=RATE)
        room.extrude(z)
        assert rays._walls(size_3).volume == room.get_volume()
