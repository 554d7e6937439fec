"""A loader alone, and beside training steps."""

import time
from collections.abc import Iterator
from itertools import count
from itertools import repeat as endlessly

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from audioaug.errors import MeasurementError
from audioaug.measure import FakeClock, WallClock, measure_contention, measure_loader
from audioaug.measure.loader import Drain


def feed(clock: FakeClock, costs: Iterator[float]) -> Iterator[float]:
    for cost in costs:
        clock.advance(cost)
        yield cost


def prefetched(clock: FakeClock) -> Iterator[float]:
    """Take 3 s to start, then deliver four queued batches in no time, then one every 0.5 s."""
    yield from feed(clock, iter([3.0, 0.0, 0.0, 0.0]))
    yield from feed(clock, endlessly(0.5))


def test_start_and_rate_are_separate(clock: FakeClock) -> None:
    rate = measure_loader(prefetched(clock), clock, seconds=13, discard=4)
    assert rate.first_batch_seconds == 3.0
    assert rate.per_batch.seconds == (0.5,) * 5  # 3 s to start, 5 blocks of 2 s


def test_queued_batches_would_count_as_speed_without_discarding(clock: FakeClock) -> None:
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


def test_cpu_seconds_are_those_of_one_batch(clock: FakeClock, monkeypatch) -> None:
    monkeypatch.setattr("audioaug.measure.loader.thread_time", iter([2.0, 5.0]).__next__)
    rate = measure_loader(feed(clock, endlessly(1.0)), clock, seconds=0, discard=1, block_batches=4, at_least=12)
    assert rate.cpu_seconds == pytest.approx(3.0 / 12)


@pytest.mark.parametrize("length", [0, 1, 5])
def test_too_short_a_loader_is_an_error(clock: FakeClock, length: int) -> None:
    with pytest.raises(MeasurementError, match=f"ended after {length} batches, but 6 are needed"):
        measure_loader(feed(clock, iter([1.0] * length)), clock, seconds=10, discard=2)


def test_a_real_loader() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(64, 16)), batch_size=4, num_workers=0)
    rate = measure_loader(loader, WallClock(), seconds=1e6, discard=2)
    assert len(rate.per_batch.seconds) == 3  # 16 batches less 2, in blocks of 4
    assert rate.first_batch_seconds > 0 and min(rate.per_batch.seconds) > 0


class PlantedDrain:
    """Batches by planted time: ``ready`` immediately, then one every ``seconds``."""

    ended = False

    def __init__(self, feeder, clock) -> None:
        self.clock, (self.ready, self.seconds) = clock, feeder

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    @property
    def arrivals(self):
        made = int(self.clock.now() / self.seconds + 1e-6)
        return [0.0] * self.ready + [self.seconds * number for number in range(1, made + 1)]


@pytest.fixture
def measured(monkeypatch, clock: FakeClock):
    """Measure a step and a feeder of planted times, in seconds, on one clock."""
    monkeypatch.setattr("audioaug.measure.loader.Drain", PlantedDrain)

    def measure(step, batch, ready=0, **options):
        return measure_contention(lambda: clock.advance(step), (ready, batch), clock, **options)

    return measure


def test_both_paces_are_found(measured) -> None:
    found = measured(0.004, 0.011, seconds=0.3, discard=2, block_steps=2, block_batches=3)
    assert len(found.step.seconds) > 30 and found.step.seconds == pytest.approx([0.004] * len(found.step.seconds))
    assert len(found.batch.seconds) > 7 and found.batch.seconds == pytest.approx([0.011] * len(found.batch.seconds))


def test_queued_batches_of_a_loader_are_not_timed(measured) -> None:
    found = measured(0.001, 0.01, ready=50, seconds=0.1, discard=50)
    assert found.batch.seconds == pytest.approx([0.01] * len(found.batch.seconds))


def test_enough_is_made_however_long_it_takes(measured) -> None:
    found = measured(0.002, 0.01, seconds=0.0, discard=1, at_least=4)
    assert len(found.step.seconds) >= 4 and len(found.batch.seconds) >= 4


def test_a_real_feeder_and_step() -> None:
    found = measure_contention(lambda: time.sleep(0.001), count(), WallClock(), seconds=0.0, discard=3, at_least=4)
    assert len(found.step.seconds) >= 4 and len(found.batch.seconds) >= 4 and min(found.step.seconds) >= 0.001


def test_exceptions_of_the_feeder_are_raised() -> None:
    def breaks():
        yield 1
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        measure_contention(lambda: None, breaks(), WallClock(), seconds=0.1, discard=5)


def test_no_batch_is_taken_after_the_context() -> None:
    feeder = count()
    with Drain(feeder, WallClock()) as drain:
        while len(drain.arrivals) < 3:
            time.sleep(0.001)
    taken = len(drain.arrivals)
    time.sleep(0.01)
    assert len(drain.arrivals) == taken == next(feeder)
