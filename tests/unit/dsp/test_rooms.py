"""Responses of rooms: by loops and by operations those of pyroomacoustics' shoe boxes, and of scipy's filters.

Its boxes place images by a formula: ours are 4 to 10 times closer to them than to the rooms of walls that
audiomentations builds (1e-5 of the peak in place of 8e-5, at 6 orders and 16 kHz).
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyroomacoustics
import pytest
import scipy.signal
import torch

from audioaug.dsp import rooms as dsp_rooms
from audioaug.dsp.dispatch import backend
from audioaug.dsp.rooms import TAPS, Rooms, _high_passed, responses
from audioaug.dsp.rooms.plan import WIDTH_STEP, _highpass, images, lengths, offsets, plan
from audioaug.measure import peak_extra_bytes

RATE = 16000
ORDERS = np.asarray([0, 1, 2, 3, 5, 5])
TOLERANCE = 1e-4
"""At 16 kHz or less; the library rounds times to float32, which counts more at higher rates. 5e-5 was measured."""


def boxes(count: int, seed: int = 0, absorption: tuple[float, float] = (0.05, 0.6)) -> dict[str, Any]:
    """Return rooms of many sizes, with a source and a microphone anywhere in each."""
    rng = np.random.default_rng(seed)
    size_B3 = rng.uniform(2.0, 6.0, (count, 3))
    source_B3, microphone_B3 = (size_B3 * rng.uniform(0.05, 0.95, (count, 3)) for _ in range(2))
    return {
        "size_B3": size_B3,
        "source_B3": source_B3,
        "microphone_B3": microphone_B3,
        "absorption_B": rng.uniform(*absorption, count),
        "order_B": np.resize(ORDERS, count),
    }


def by_library(
    sample_rate: int, size_B3: Any, source_B3: Any, microphone_B3: Any, absorption_B: Any, order_B: Any
) -> Any:
    found = []
    for size, source, microphone, absorption, order in zip(size_B3, source_B3, microphone_B3, absorption_B, order_B):
        wall = pyroomacoustics.Material(float(absorption))
        room = pyroomacoustics.ShoeBox(size, sample_rate, materials=wall, max_order=int(order), air_absorption=True)
        room.add_source(source)
        room.add_microphone(microphone)
        room.compute_rir()
        found.append(room.rir[0][0])
    return found


def on_device(rooms: Rooms) -> Rooms:
    """Return the numbers as tensors, as the engine brings them to the device."""
    whole = "length", "bank", "images"
    return replace(
        rooms,
        **{
            each.name: torch.from_numpy(np.asarray(getattr(rooms, each.name), np.int64 if each.name in whole else "f"))
            for each in fields(rooms)
            if each.name != "sizes"
        },
    )


def simulate(numbers: dict[str, Any], sample_rate: int = RATE) -> torch.Tensor:
    return responses(on_device(plan(**numbers, sample_rate=sample_rate)), sample_rate)


def error(y_BW: torch.Tensor, expected: list[np.ndarray]) -> float:
    """Return the largest error, over each response's peak; what is past its end counts, too."""
    padded = [np.pad(each, (0, y_BW.shape[1] - len(each))) for each in expected]
    return max(float(np.abs(y - e).max() / np.abs(e).max()) for y, e in zip(y_BW.numpy(), padded))


@pytest.mark.parametrize("way", ["auto", "torch"])
@pytest.mark.parametrize("sample_rate", [4000, 8000, 16000, 22050, 44100, 48000, 96000])
def test_a_batch_of_rooms_is_that_of_the_library(sample_rate: int, way: str) -> None:
    numbers = boxes(12)
    with backend(way):
        y_BW = simulate(numbers, sample_rate)
    expected = by_library(sample_rate, **numbers)
    assert lengths(
        *(numbers[name] for name in ("size_B3", "source_B3", "microphone_B3", "order_B")), sample_rate
    ).tolist() == [len(each) for each in expected]
    assert error(y_BW, expected) <= TOLERANCE * max(1.0, sample_rate / RATE)


def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = boxes(6)
    expected = by_library(RATE, **numbers)
    assert error(simulate(numbers), expected) <= TOLERANCE
    monkeypatch.setattr(dsp_rooms, "SPEED_OF_SOUND", 343.02)
    assert error(simulate(numbers), expected) > 5 * TOLERANCE


def test_loops_and_operations_are_the_same() -> None:
    numbers = boxes(18, seed=1)
    y_BW = simulate(numbers)
    with backend("torch"):
        assert (simulate(numbers) - y_BW).abs().max() <= 2e-5 * y_BW.abs().max()


@pytest.mark.parametrize("most", [1, 6 * TAPS * 7 * 100, 10**9])
def test_images_are_added_up_in_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, parts, honest = boxes(6), list[int](), torch.Tensor.index_add_
    with backend("torch"):
        expected = simulate(numbers)
        monkeypatch.setattr(dsp_rooms, "MOST_VALUES", most)
        monkeypatch.setattr(
            torch.Tensor, "index_add_", lambda self, *more: parts.append(more[2].numel()) or honest(self, *more)
        )
        found = simulate(numbers)
    count = images(5).shape[1]
    assert max(parts) <= max(most, 6 * TAPS * 7) and sum(parts) == 6 * TAPS * 7 * count
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-5 * float(expected.max()))


def test_memory_for_many_images_is_bounded() -> None:
    """Of 32 rooms with 2625 images; without parts it needs 0.6 GB."""
    numbers = {**boxes(32), "order_B": np.full(32, 12)}
    rooms = on_device(plan(**numbers, sample_rate=RATE))
    with backend("torch"):
        assert peak_extra_bytes(lambda: responses(rooms, RATE), torch.device("cpu")) < 3.5 * 64 * 2**20
    assert peak_extra_bytes(lambda: responses(rooms, RATE), torch.device("cpu")) < 64 * 2**20


def test_a_room_of_a_lower_order_than_others_is_as_if_alone() -> None:
    numbers = boxes(6, seed=2)
    together = simulate(numbers)
    for row in range(6):
        alone = simulate({name: values[row : row + 1] for name, values in numbers.items()})
        width = min(alone.shape[1], together.shape[1])
        torch.testing.assert_close(together[row, :width], alone[0, :width], rtol=0.0, atol=1e-6 * float(alone.max()))


# Images


@pytest.mark.parametrize(("order", "count"), [(0, 1), (1, 7), (2, 25), (3, 63), (6, 377), (12, 2625)])
def test_images_are_all_of_up_to_that_many_reflections(order: int, count: int) -> None:
    found = images(order)
    assert found.shape == (4, count) and len(np.unique(found[:3], axis=1).T) == count
    axes = found[:3] - order - (2 * order + 1) * np.arange(3)[:, None]
    np.testing.assert_array_equal(np.abs(axes).sum(axis=0), found[3])
    assert found[3].max() == order and (np.diff(found[3]) >= 0).all()


def test_the_farthest_image_is_found_among_those_with_all_reflections() -> None:
    numbers = boxes(60, seed=3)
    places = [numbers[name] for name in ("size_B3", "source_B3", "microphone_B3")]
    found = lengths(*places, numbers["order_B"], RATE)
    for row, order in enumerate(numbers["order_B"].tolist()):
        offset_3Q = offsets(*(each[row : row + 1] for each in places), order)[0]
        farthest = np.sqrt(np.square(offset_3Q.ravel()[images(order)[:3]]).sum(axis=0)).max()
        assert found[row] == int(np.ceil((farthest / 343.0 + 40 / RATE) * RATE + 41)) + 1


# The high-pass


@pytest.mark.parametrize("sample_rate", [8000, 44100])
def test_the_highpass_is_that_of_scipy_for_rows_of_any_length(sample_rate: int) -> None:
    length_B = torch.tensor([84, 85, 200, 1000, WIDTH_STEP - 18])
    x_BW = torch.randn(5, WIDTH_STEP, generator=torch.Generator().manual_seed(0)) + 1.0  # also past their ends
    highpass = torch.from_numpy(_highpass(sample_rate, WIDTH_STEP)).view(2, -1)
    found = _high_passed(x_BW, torch.complex(*highpass), length_B)
    sections = pyroomacoustics.utilities.design_highpass_filter_sos(
        sample_rate, 10.0, n=2, rp=5.0, rs=60.0, type="butter"
    )
    for x_W, y_W, length in zip(x_BW, found, length_B.tolist()):
        expected = scipy.signal.sosfiltfilt(sections, x_W[:length].double().numpy())
        np.testing.assert_allclose(y_W[:length].numpy(), expected, atol=1e-5 * np.abs(expected).max())
        assert not y_W[length:].any()
