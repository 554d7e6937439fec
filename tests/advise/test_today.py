from dataclasses import replace
from functools import partial

import pytest

from audioaug.advise.bench import Bench
from audioaug.advise.racing import CEILING
from audioaug.advise.today import FEWEST_STEPS, TELLING_STEPS, _is_over, _raced
from audioaug.errors import MeasurementError
from audioaug.records import Candidate, Measurement, Timing
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


@pytest.mark.parametrize(
    ("waits", "did"),
    [
        ([[0.01] * 20], [4.0]),
        ([[0.01] * 19 + [0.3], [0.01] * 9], [4.0, 2.0]),  # another program had its moment
        ([[0.01] * 19 + [0.3], [0.01] * 8 + [0.3]], [4.0, 2.0, "race"]),  # not beyond doubt
        ([[0.5] * 3], [4.0, "race"]),
    ],
)
def test_hardly_any_waiting_gets_a_second_look_where_one_step_of_the_first_hides_it(racer_with, waits, did) -> None:
    candidate, seen, racer = Candidate("cpu", 1), [], racer_with(lambda batch: None)

    def pilot(candidate, seconds, is_over):
        shares = waits[len(seen)]
        seen.append(seconds)
        return Measurement(candidate.name, Timing((0.05,) * len(shares)), Timing(tuple(0.05 * it for it in shares)), 1)

    def run(candidates, expected, seconds, tick, cached):
        seen.append("race")
        return {}

    racer.pilot, racer.run = pilot, run
    found = _raced(Bench(racer.job, racer.clock), [candidate], racer, 8.0, tick=lambda: None)
    assert seen == did
    assert set(found) == (set() if "race" in did else {candidate.name, CEILING})


def test_a_pilot_times_each_step_until_it_is_over_and_says_why_training_failed(racer_with) -> None:
    candidate, seen = Candidate("cpu", 1), []
    racer = racer_with(seen.append)
    found = racer.pilot(candidate, 60.0, lambda found: len(found.step.seconds) == 5)
    assert found.candidate == candidate.name and found.steps_per_block == 1
    assert len(found.step.seconds) == len(found.wait.seconds) == 5
    assert len(seen) == 6  # a first one, which is not timed
    assert racer.usage.cpu_per_step(candidate.name) is not None

    def fails_the_third_time(batch) -> None:
        seen.append(batch)
        if len(seen) == 9:
            raise ValueError("no more")

    with pytest.raises(MeasurementError, match=r"Training failed .*ValueError: no more"):
        racer_with(fails_the_third_time).pilot(candidate, 60.0, lambda _: False)
