"""The simulated cluster: no batch is lost or taken twice, and no step is faster than each of its bounds."""

import time
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug.decide.cluster import Cluster, deliver, simulate_cluster
from audioaug.decide.simulate import Noise, simulate

TAIL = (1.0,) * 19 + (11.0,)
"""One batch in twenty takes 11 times as long."""

always = settings(max_examples=60, derandomize=True, deadline=None)
times = st.floats(0.1, 100)
few = st.integers(1, 12)
batches = st.lists(times, min_size=1, max_size=60)


@st.composite
def clusters(draw) -> Cluster:
    """Any cluster, with slow and lost workers; at least one is left."""
    workers = draw(few)
    lost = draw(st.lists(st.floats(0, 300), max_size=workers - 1))
    slow = draw(st.integers(0, workers))
    receive = draw(st.floats(0, 20))
    return Cluster(workers, draw(times), draw(times), receive, draw(st.integers(0, 4)), slow, 3.0, tuple(lost))


@given(clusters(), batches, times)
@always
def test_every_batch_is_delivered_exactly_once_whatever_is_lost(cluster, batch_N, step) -> None:
    deliveries, made_again = deliver(cluster, batch_N, [step] * len(batch_N))
    assert Counter(it.batch for it in deliveries) == dict.fromkeys(range(len(batch_N)), 1)
    assert made_again <= len(cluster.lost_ms)


@given(clusters(), batches, times)
@always
def test_training_receives_and_trains_one_batch_at_a_time(cluster, batch_N, step) -> None:
    taken = [it.taken_ms for it in deliver(cluster, batch_N, [step] * len(batch_N))[0]]
    gaps = [later - earlier for earlier, later in pairwise(taken)]
    assert all(gap >= max(step, cluster.receive_ms) * (1 - 1e-9) - 1e-9 for gap in gaps)


@given(few, st.integers(0, 4), batches, times, st.floats(0, 20))
@always
def test_more_workers_never_deliver_later(workers, prefetch, batch_N, step, receive) -> None:
    taken = [
        [it.taken_ms for it in deliver(Cluster(count, 1, 1, receive, prefetch), batch_N, [step] * len(batch_N))[0]]
        for count in (workers, workers + 1)
    ]
    assert all(more <= fewer + 1e-6 for fewer, more in zip(*taken, strict=True))


@given(few, times, times, times)
@always
def test_without_variance_the_slowest_of_the_three_sets_the_pace(workers, batch, step, receive) -> None:
    run = simulate_cluster(Cluster(workers, batch, step, receive))
    bounds = {"workers": batch / workers, "receiving": receive, "training": step}
    assert run.step_ms == pytest.approx(max(bounds.values()), rel=1e-3)
    assert bounds[run.bottleneck] == pytest.approx(max(bounds.values()))
    assert run.busy == pytest.approx(batch / workers / run.step_ms, rel=2e-3) and run.made_again == 0


@given(clusters())
@settings(max_examples=20, derandomize=True, deadline=None)
def test_variance_never_makes_a_step_faster_than_its_bounds(cluster) -> None:
    run = simulate_cluster(cluster, (0.5, 1.0, 1.5), TAIL)
    bound = max(cluster.batch_ms / cluster.workers, cluster.receive_ms, cluster.step_ms)
    assert run.step_ms >= bound * (1 - 0.03)  # a batch more or less for each worker, and a part of a round of samples


def test_one_worker_is_serial() -> None:
    """12 ms for a batch, 1 ms to receive it, steps of 5 ms: the next batch begins when this one is finished."""
    taken = [it.taken_ms for it in deliver(Cluster(1, 12, 5, 1), [12.0] * 5, [5.0] * 5)[0]]
    assert taken == [13.0, 25.0, 37.0, 49.0, 61.0]


def test_without_prefetching_the_next_batch_begins_when_one_is_taken() -> None:
    taken = [it.taken_ms for it in deliver(Cluster(1, 12, 5, 1, prefetch=0), [12.0] * 4, [5.0] * 4)[0]]
    assert taken == [13.0, 26.0, 39.0, 52.0]


def test_the_batch_of_a_lost_worker_is_made_again_by_the_next_free_one() -> None:
    """Two workers, half a batch apart; the second is lost at 15 ms with batch 1, which began at 0 and ends at 20."""
    cluster = Cluster(2, 20, 1, lost_ms=(15.0,))
    deliveries, made_again = deliver(cluster, [20.0] * 4, [1.0] * 4)
    assert [(it.batch, it.taken_ms) for it in deliveries] == [(0, 10.0), (2, 30.0), (1, 50.0), (3, 70.0)]
    assert made_again == 1


def test_a_worker_that_has_nothing_left_takes_the_batch_of_a_lost_one() -> None:
    deliveries, made_again = deliver(Cluster(2, 20, 1, lost_ms=(15.0,)), [20.0] * 2, [1.0] * 2)
    assert [(it.batch, it.taken_ms) for it in deliveries] == [(0, 10.0), (1, 35.0)] and made_again == 1


def test_a_lost_worker_that_waits_loses_no_work() -> None:
    """Training takes 100 ms; the second worker waits for a place among the batches when it is lost."""
    deliveries, made_again = deliver(Cluster(2, 10, 100, prefetch=0, lost_ms=(50.0,)), [10.0] * 4, [100.0] * 4)
    assert sorted(it.batch for it in deliveries) == [0, 1, 2, 3] and made_again == 0


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_after_a_loss_the_others_deliver(lost) -> None:
    run = simulate_cluster(Cluster(8, 80, 1, lost_ms=(80.0,) * lost))
    assert run.step_ms == pytest.approx(80 / (8 - lost), rel=2e-3) and run.busy == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("slow", [0, 1, 4, 8])
def test_slow_workers_deliver_less(slow) -> None:
    """Each worker delivers a batch every 80 ms, a slow one every 240 ms."""
    run = simulate_cluster(Cluster(8, 80, 1, slow=slow, slow_factor=3.0))
    assert run.step_ms == pytest.approx(1 / ((8 - slow) / 80 + slow / 240), rel=5e-3)
    assert 10 * (1 - 1e-9) <= run.step_ms <= 30 * (1 + 1e-9)


def test_slow_batches_stall_workers_that_are_only_just_fast_enough() -> None:
    just, ample = (simulate_cluster(Cluster(4, batch, 10), (), TAIL).step_ms for batch in (39.0, 4.0))
    assert just > 10.2 and ample == pytest.approx(10, rel=0.01)


def test_more_prefetched_batches_outlast_a_slow_one() -> None:
    found = [simulate_cluster(Cluster(4, 36, 10, prefetch=count), (), TAIL).step_ms for count in (0, 2, 8, 40)]
    assert found == sorted(found, reverse=True) and found[0] > 1.02 * found[-1]


def test_one_worker_stalls_as_that_of_a_data_loader_does() -> None:
    """With one worker both simulators keep the order; three batches are begun ahead."""
    noise = Noise((1.0, 1.0), TAIL, 8, steps=4000)
    step, batch = (np.full((1, 8), ms) for ms in (10.0, 9.0))
    other = simulate(step, batch, np.array([1]), np.array([3]), noise).mean()
    runs = [simulate_cluster(Cluster(1, 9, 10), (), TAIL, seed).step_ms for seed in range(8)]
    assert other > 11.5 and np.mean(runs) == pytest.approx(other, rel=0.02)


def test_a_seed_gives_the_same_run_again_and_another_one_does_not() -> None:
    runs = [simulate_cluster(Cluster(4, 39, 10), TAIL, TAIL, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] and runs[0].step_ms != runs[2].step_ms


def test_ten_thousand_workers_are_simulated_in_seconds() -> None:
    began = time.process_time()
    run = simulate_cluster(Cluster(10_000, 1000, 0.05, 0.02, slow=500, lost_ms=(1000.0,) * 500), TAIL, TAIL)
    assert time.process_time() - began < 10
    assert run.bottleneck == "workers" and run.made_again == 500
    assert run.step_ms == pytest.approx(1000 / (9000 + 500 / 2), rel=0.03)
