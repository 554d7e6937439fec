"""The stopping rule: budget, least, most, and no round that will not fit."""

import pytest

from audioaug.measure import FakeClock
from audioaug.measure.rounds import ENOUGH, rounds


def made(clock: FakeClock, cost: float, **limits: float) -> list[int]:
    indices = []
    for index in rounds(clock, **limits):
        indices.append(index)
        clock.advance(cost)
    return indices


@pytest.mark.parametrize(
    ("cost", "limits", "expected"),
    [
        (1.0, {"deadline": 4.0}, 4),
        (1.0, {"deadline": 4.5}, 4),  # half a round is not started
        (1.0, {"deadline": 4.0, "at_most": 2}, 2),
        (1.0, {"deadline": 0.0, "at_least": 3}, 3),  # the least is made however long it takes
        (1.0, {"deadline": 0.0, "at_least": 3, "at_most": 2}, 2),
        (0.0, {"deadline": 4.0}, ENOUGH),  # what costs nothing ends too
        (1.0, {"deadline": -1.0, "at_least": 0}, 0),
    ],
)
def test_number_of_rounds(clock: FakeClock, cost: float, limits: dict[str, float], expected: int) -> None:
    assert made(clock, cost, **limits) == list(range(expected))
