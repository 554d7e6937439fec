import time
from itertools import count, repeat

import pytest

from audioaug.measure import WallClock, measure_steal
from audioaug.measure.steal import Drain


def planted(seconds):
    """A feeder that takes so long for each batch, during which a core is free."""
    for number in count():
        time.sleep(seconds)
        yield number


def test_both_paces_are_found() -> None:
    found = measure_steal(
        lambda: time.sleep(0.004), planted(0.011), WallClock(), seconds=0.3, discard=2, block_steps=2, block_batches=3
    )
    assert 0.004 <= found.step.median < 0.011 <= found.batch.median < 0.03
    assert len(found.step.seconds) >= 3 and len(found.batch.seconds) >= 3


def test_what_lies_ready_is_not_timed() -> None:
    def ready_at_first():
        yield from repeat(0, 50)
        yield from planted(0.01)

    found = measure_steal(lambda: time.sleep(0.001), ready_at_first(), WallClock(), seconds=0.1, discard=50)
    assert found.batch.median >= 0.01


def test_enough_is_made_however_long_it_takes() -> None:
    found = measure_steal(lambda: time.sleep(0.002), planted(0.01), WallClock(), seconds=0.0, discard=1, at_least=4)
    assert len(found.step.seconds) >= 4 and len(found.batch.seconds) >= 4


def test_what_the_feeder_raises_is_raised_here() -> None:
    def breaks():
        yield 1
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        measure_steal(lambda: None, breaks(), WallClock(), seconds=0.1, discard=5)


def test_nothing_is_taken_once_it_is_left() -> None:
    feeder = planted(0.001)
    with Drain(feeder, WallClock()) as drain:
        while len(drain.arrivals) < 3:
            time.sleep(0.001)
    taken = len(drain.arrivals)
    time.sleep(0.01)
    assert len(drain.arrivals) == taken == next(feeder)
