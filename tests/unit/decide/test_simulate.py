import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug.decide.simulate import Noise, simulate

TAIL = (1.0,) * 19 + (11.0,)
"""One batch in twenty takes 11x as long."""

STEADY, SLOW_ONES = Noise((1.0, 1.0), (1.0, 1.0), 3), Noise((1.0, 1.0), TAIL, 32, steps=400)
EXACT = 1e-9


def step_ms(step, batch, workers, prefetch=2, noise=STEADY) -> float:
    """The simulated mean step of one candidate."""
    replicates = noise.step_NR.shape[1]
    wide = [np.full((1, replicates), float(value)) for value in (step, batch)]
    return float(simulate(*wide, np.array([workers]), np.array([prefetch]), noise).mean())


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("batch", [2.0, 9.0, 10.0, 11.0, 50.0])
def test_without_variance_the_slower_end_sets_the_pace(workers, batch) -> None:
    assert step_ms(10.0, batch, workers) == pytest.approx(max(10.0, batch), rel=1e-6)


def test_no_samples_are_no_variance() -> None:
    nothing = Noise((), (), 3)
    assert nothing.is_empty and not STEADY.is_empty
    assert step_ms(10.0, 7.0, 2, noise=nothing) == 10.0


def test_slow_batches_stall_a_loader_that_is_only_just_fast_enough() -> None:
    just, ample = (step_ms(10.0, batch, 2, noise=SLOW_ONES) for batch in (9.0, 1.0))
    assert just > 11.0  # 1.5 times the average, so that queues run empty
    assert ample == pytest.approx(10.0, rel=0.01)


def test_a_deeper_queue_outlasts_a_slow_batch() -> None:
    times = [step_ms(10.0, 6.0, 2, prefetch, SLOW_ONES) for prefetch in (1, 2, 4, 16)]
    assert times == sorted(times, reverse=True) and times[0] > 1.05 * times[-1]


def test_no_queue_makes_a_slow_loader_fast() -> None:
    assert 30.0 <= step_ms(10.0, 30.0, 2, 16, SLOW_ONES) < 33.0  # one worker may get more of the slow ones


def test_a_worker_is_not_sent_more_than_its_queue_holds() -> None:
    """With one worker that prefetches one batch, each batch but the first is begun when the one before is taken."""
    noise = Noise((0.0, 1.0), (1.0, 1.0), 1, steps=100)
    steps = 8.0 * noise.step_NR[:, 0]
    expected = np.maximum(steps, 5.0)[50:].mean()  # a step, or the batch that was begun as it was
    assert step_ms(8.0, 5.0, 1, 1, noise) == pytest.approx(expected, rel=0.03)


times = st.floats(0.1, 100)


@given(times, times, st.integers(1, 6), st.integers(1, 8), st.floats(1, 5))
@settings(max_examples=40, derandomize=True)
def test_longer_times_never_end_earlier(step, batch, workers, prefetch, factor) -> None:
    noise = Noise((1.0, 2.0, 1.5), TAIL, 4)
    before = step_ms(step, batch, workers, prefetch, noise)
    assert before >= max(step, batch) * (1 - 0.6)  # the slow ones are rare
    assert step_ms(step * factor, batch, workers, prefetch, noise) >= before * (1 - 0.02)
    assert step_ms(step, batch * factor, workers, prefetch, noise) >= before * (1 - 0.02)


def test_candidates_do_not_disturb_each_other() -> None:
    candidates = [(10.0, 9.0, 1, 2), (3.0, 8.0, 5, 4), (20.0, 1.0, 2, 1)]
    step, batch = (np.array([[candidate[place]] * 32 for candidate in candidates]) for place in (0, 1))
    workers, prefetch = (np.array([candidate[place] for candidate in candidates]) for place in (2, 3))
    together = simulate(step, batch, workers, prefetch, SLOW_ONES).mean(axis=1)
    assert together == pytest.approx([step_ms(*candidate, SLOW_ONES) for candidate in candidates])
