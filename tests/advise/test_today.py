from dataclasses import replace
from functools import partial

import pytest

from audioaug.advise.today import FEWEST_STEPS, TELLING_STEPS, _is_over
from audioaug.errors import MeasurementError
from audioaug.records import Cell, Timing
from tests.decide.planted import blocks


def waiting(steps: int, ms: float, share: float):
    """Return so many steps that wait for this share of their time."""
    return replace(blocks("today", [ms] * steps), wait=Timing((ms * share / 1e3,) * steps))


@pytest.mark.parametrize(
    ("alone", "workers", "share", "ms", "steps"),
    [
        (True, 0, 0.5, 50, FEWEST_STEPS),  # there is waiting: the race is to measure it
        (False, 0, 0.0, 50, FEWEST_STEPS),  # another plan is to race too
        (False, 4, 0.0, 50, 8),
        (True, 0, 0.01, 50, TELLING_STEPS),
        (True, 0, 0.01, 10, 100),  # a second of them
    ],
)
def test_a_pilot_goes_on_where_it_may_be_all_there_is(alone, workers, share, ms, steps) -> None:
    is_over = partial(_is_over, alone, workers)
    assert is_over(waiting(steps, ms, share)) and not is_over(waiting(steps - 1, ms, share))


def test_a_pilot_times_each_step_until_it_is_over_and_says_why_training_failed(racer_with) -> None:
    cell, seen = Cell("cpu", 1), []
    racer = racer_with(seen.append)
    found = racer.pilot(cell, 60.0, lambda found: len(found.step.seconds) == 5)
    assert found.cell == cell.name and found.steps_per_block == 1
    assert len(found.step.seconds) == len(found.wait.seconds) == 5
    assert len(seen) == 6  # a first one, which is not timed
    assert racer.usage.cpu_per_step(cell.name) is not None

    def fails_the_third_time(batch) -> None:
        seen.append(batch)
        if len(seen) == 9:
            raise ValueError("no more")

    with pytest.raises(MeasurementError, match=r"Training failed .*ValueError: no more"):
        racer_with(fails_the_third_time).pilot(cell, 60.0, lambda _: False)
