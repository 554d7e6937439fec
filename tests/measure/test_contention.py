"""How training and a loader slow each other down: the arithmetic on planted times, the thread that takes batches."""

import time
from itertools import count

import pytest

from audioaug.measure import FakeClock, WallClock, contention, measure_contention
from audioaug.measure.contention import Drain


class PlantedDrain:
    """Arrivals by planted time: ``ready`` batches at once, then one every ``seconds``."""

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
    monkeypatch.setattr(contention, "Drain", PlantedDrain)

    def measure(step, batch, ready=0, **options):
        return measure_contention(lambda: clock.advance(step), (ready, batch), clock, **options)

    return measure


def test_both_paces_are_found(measured) -> None:
    found = measured(0.004, 0.011, seconds=0.3, discard=2, block_steps=2, block_batches=3)
    assert len(found.step.seconds) > 30 and found.step.seconds == pytest.approx([0.004] * len(found.step.seconds))
    assert len(found.batch.seconds) > 7 and found.batch.seconds == pytest.approx([0.011] * len(found.batch.seconds))


def test_batches_that_were_ready_are_not_timed(measured) -> None:
    found = measured(0.001, 0.01, ready=50, seconds=0.1, discard=50)
    assert found.batch.seconds == pytest.approx([0.01] * len(found.batch.seconds))


def test_enough_is_made_however_long_it_takes(measured) -> None:
    found = measured(0.002, 0.01, seconds=0.0, discard=1, at_least=4)
    assert len(found.step.seconds) >= 4 and len(found.batch.seconds) >= 4


def test_a_real_feeder_and_step() -> None:
    found = measure_contention(lambda: time.sleep(0.001), count(), WallClock(), seconds=0.0, discard=3, at_least=4)
    assert len(found.step.seconds) >= 4 and len(found.batch.seconds) >= 4 and min(found.step.seconds) >= 0.001


def test_what_the_feeder_raises_is_raised_here() -> None:
    def breaks():
        yield 1
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        measure_contention(lambda: None, breaks(), WallClock(), seconds=0.1, discard=5)


def test_nothing_is_taken_once_it_is_left() -> None:
    feeder = count()
    with Drain(feeder, WallClock()) as drain:
        while len(drain.arrivals) < 3:
            time.sleep(0.001)
    taken = len(drain.arrivals)
    time.sleep(0.01)
    assert len(drain.arrivals) == taken == next(feeder)
