"""Loaders with planted paces, and one real DataLoader."""

from collections.abc import Iterator
from itertools import repeat as endlessly

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from audioaug.errors import MeasurementError
from audioaug.measure import FakeClock, WallClock, measure_loader


def feed(clock: FakeClock, costs: Iterator[float]) -> Iterator[float]:
    for cost in costs:
        clock.advance(cost)
        yield cost


def prefetched(clock: FakeClock) -> Iterator[float]:
    """Take 3 s to start, then sell a stock of four for nothing, then 0.5 s a batch."""
    yield from feed(clock, iter([3.0, 0.0, 0.0, 0.0]))
    yield from feed(clock, endlessly(0.5))


def test_start_up_and_pace_are_told_apart(clock: FakeClock) -> None:
    rate = measure_loader(prefetched(clock), clock, seconds=13, discard=4)
    assert rate.first_batch_seconds == 3.0
    assert rate.per_batch.seconds == (0.5,) * 5  # 3 s to start, 5 blocks of 2 s


def test_stock_would_be_sold_as_speed_without_discarding(clock: FakeClock) -> None:
    rate = measure_loader(prefetched(clock), clock, seconds=0, discard=0)
    assert min(rate.per_batch.seconds) < 0.5


def test_start_of_the_iterator_belongs_to_the_first_batch(clock: FakeClock) -> None:
    class Loader:
        def __iter__(self) -> Iterator[float]:
            clock.advance(2.0)  # workers are started here
            return feed(clock, endlessly(0.5))

    assert measure_loader(Loader(), clock, seconds=0, discard=1).first_batch_seconds == 2.5


def test_bursts_average_out_in_blocks(clock: FakeClock) -> None:
    def bursts() -> Iterator[float]:
        while True:
            yield from feed(clock, iter([2.0, 0.0, 0.0, 0.0]))

    assert set(measure_loader(bursts(), clock, seconds=0, discard=4).per_batch.seconds) == {0.5}


@pytest.mark.parametrize(("at_least", "blocks"), [(8, 2), (9, 3), (1, 1)])
def test_least_batches_in_whole_blocks(clock: FakeClock, at_least: int, blocks: int) -> None:
    rate = measure_loader(feed(clock, endlessly(1.0)), clock, seconds=0, discard=1, at_least=at_least)
    assert len(rate.per_batch.seconds) == blocks


def test_an_epoch_that_ends_keeps_its_whole_blocks(clock: FakeClock) -> None:
    rate = measure_loader(feed(clock, iter([1.0] * 11)), clock, seconds=1e9, discard=1)
    assert rate.per_batch.seconds == (1.0, 1.0)


@pytest.mark.parametrize("length", [0, 1, 5])
def test_too_short_a_loader_is_an_error(clock: FakeClock, length: int) -> None:
    with pytest.raises(MeasurementError, match=f"ended after {length} batches, but 6 are needed"):
        measure_loader(feed(clock, iter([1.0] * length)), clock, seconds=10, discard=2)


def test_a_real_loader() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(64, 16)), batch_size=4, num_workers=0)
    rate = measure_loader(loader, WallClock(), seconds=1e6, discard=2)
    assert len(rate.per_batch.seconds) == 3  # 16 batches less 2, in blocks of 4
    assert rate.first_batch_seconds > 0 and min(rate.per_batch.seconds) > 0
