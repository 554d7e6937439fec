"""The bounds between the bottlenecks of a monitored run."""

from dataclasses import replace

import pytest

from audioaug.decide.bottleneck import BUSY_PERCENT, FULL_PERCENT, READY, SETTLED, WAITING, Bottlenecks, bottleneck
from audioaug.records import Window

WAITS = Window(
    seconds=1.0, step=9, steps=9, step_ms=100.0, wait_ms=60.0, ready=0.0, cpu_percent=40.0, worker_percent=(10.0, 20.0)
)


def waiting(share: float) -> Window:
    return replace(WAITS, wait_ms=100.0 * share)


@pytest.mark.parametrize(
    ("at", "below", "reached", "not_reached"),
    [
        (waiting(WAITING), waiting(WAITING + 0.001), "model_bound", "fetch_bound"),
        (replace(WAITS, ready=READY), replace(WAITS, ready=READY - 0.1), "main_thread_bound", "fetch_bound"),
        (
            replace(WAITS, cpu_percent=FULL_PERCENT),
            replace(WAITS, cpu_percent=FULL_PERCENT - 0.1),
            "cores_full",
            "fetch_bound",
        ),
        (
            replace(WAITS, worker_percent=(BUSY_PERCENT - 9, BUSY_PERCENT + 9)),
            replace(WAITS, worker_percent=(BUSY_PERCENT - 9, BUSY_PERCENT + 8)),
            "too_few_workers",
            "fetch_bound",
        ),
    ],
)
def test_a_bound_itself_counts_as_reached(at, below, reached, not_reached) -> None:
    assert (bottleneck(at), bottleneck(below)) == (reached, not_reached)


def test_a_bottleneck_is_established_by_consecutive_windows() -> None:
    following = Bottlenecks()
    for _ in range(SETTLED - 1):
        following.follow(WAITS)
    assert following.settled == ""
    following.follow(WAITS)
    assert following.settled == "fetch_bound"
