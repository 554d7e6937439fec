"""Cluster: simulate training that workers on other nodes feed, batch by batch; thousands of them, some slow or lost.

A free worker makes the next batch, unless ``workers + prefetch`` batches were begun that training has not taken yet
(backpressure). Finished batches are received one after the other over one link, and taken in that order. The batch of a
lost worker is made again by the next free one.

``simulate`` is torch's DataLoader instead: batch i belongs to worker i mod w, and batches are taken in their order.

Shapes: N batches.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

import numpy as np

from audioaug.decide.simulate import sampled

Bottleneck = Literal["workers", "receiving", "training"]

FILLING = 50
"""Steps at the start that are ignored while queues fill; at least one for each worker."""

STEPS = 4_000
"""Steps that are averaged; at least two for each worker."""


@dataclass(frozen=True)
class Cluster:
    """Workers on other nodes, and the training that takes their batches. Times are in milliseconds for a batch.

    Args:
        workers: number of workers.
        batch_ms: a worker's mean time.
        step_ms: the training's mean time.
        receive_ms: time on the link between them.
        prefetch: batches that may be begun beyond one for each worker.
        slow: workers that take ``slow_factor`` times as long.
        slow_factor: how much longer those take.
        lost_ms: when workers are lost, an entry for each of them; fewer than ``workers``.
    """

    workers: int
    batch_ms: float
    step_ms: float
    receive_ms: float = 0.0
    prefetch: int = 2
    slow: int = 0
    slow_factor: float = 2.0
    lost_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class ClusterRun:
    """What was simulated: the mean step, its bottleneck (what is busiest), and how busy the remaining workers are.

    ``made_again``: batches that lost workers had begun.
    """

    step_ms: float
    bottleneck: Bottleneck
    busy: float
    made_again: int


class Delivery(NamedTuple):
    """A batch that training has taken: its number, when, and how long its worker took."""

    batch: int
    taken_ms: float
    worker_ms: float


def simulate_cluster(
    cluster: Cluster, step_samples: tuple[float, ...] = (), batch_samples: tuple[float, ...] = (), seed: int = 0
) -> ClusterRun:
    """Return the mean step of a long run.

    Args:
        cluster: what to simulate.
        step_samples: times of single steps, in any unit; fewer than two give no variance.
        batch_samples: one worker's times for single batches.
        seed: random seed.
    """
    first, steps = max(FILLING, cluster.workers), max(STEPS, 2 * cluster.workers)
    count, rng = first + steps + cluster.workers + cluster.prefetch, np.random.default_rng(seed)
    batch_N, step_N = (sampled(samples, (count,), rng) for samples in (batch_samples, step_samples))
    # Of the batches that are being made at some moment, more are slow ones, which take longer.
    batch_N[: cluster.workers] = rng.choice(batch_N, cluster.workers, p=batch_N / batch_N.sum())
    deliveries, made_again = deliver(
        cluster, (cluster.batch_ms * batch_N).tolist(), (cluster.step_ms * step_N).tolist()
    )
    counted = deliveries[first : first + steps]  # before the workers run out of batches
    step_ms = (counted[-1].taken_ms - deliveries[first - 1].taken_ms) / steps
    made_ms = math.fsum(it.worker_ms for it in counted) / steps / (cluster.workers - len(cluster.lost_ms))
    busy: dict[Bottleneck, float] = {"workers": made_ms, "receiving": cluster.receive_ms, "training": cluster.step_ms}
    bottleneck = max(busy, key=lambda name: busy[name])
    return ClusterRun(step_ms, bottleneck, min(1.0, made_ms / step_ms), made_again)


def deliver(cluster: Cluster, batch_N: Sequence[float], step_N: Sequence[float]) -> tuple[list[Delivery], int]:
    """Return the batches in the order in which training takes them, and how many were made again.

    Args:
        cluster: what to simulate; its mean times are not used.
        batch_N: how long each batch takes a worker that is not slow.
        step_N: how long each step takes, in the order of steps.
    """
    workers, most = cluster.workers, cluster.workers + cluster.prefetch
    factor = [cluster.slow_factor] * cluster.slow + [1.0] * (workers - cluster.slow)
    lost = [math.inf] * (workers - len(cluster.lost_ms)) + list(cluster.lost_ms)

    def begin(worker: int, batch: int, at_ms: float, share: float = 1.0) -> tuple[float, int, int, float]:
        """Return the event that ends it: when, its worker and number, and when it began."""
        return min(at_ms + share * factor[worker] * batch_N[batch], lost[worker]), worker, batch, at_ms

    # At the start each worker has made a part of its batch, as later in the run.
    begun = min(workers, len(batch_N))
    events = [begin(worker, worker, 0.0, (worker + 1) / workers) for worker in range(begun)]
    heapify(events)
    unmade, idle, deliveries, made_again = deque[tuple[int, float]](), list[int](), list[Delivery](), 0
    received_ms = trained_ms = 0.0
    while events:
        now_ms, worker, batch, began_ms = heappop(events)
        if now_ms >= lost[worker]:
            made_again += began_ms < now_ms
            unmade.append((batch, max(now_ms, began_ms)))
            free = next((it for it in idle if lost[it] > now_ms), None)
            if free is None:
                continue
            idle.remove(free)
            worker = free
        else:
            received_ms = max(now_ms, received_ms) + cluster.receive_ms
            taken_ms = max(received_ms, trained_ms)
            trained_ms = taken_ms + step_N[len(deliveries)]
            deliveries.append(Delivery(batch, taken_ms, factor[worker] * batch_N[batch]))
        if unmade:
            batch, at_ms = unmade.popleft()
            heappush(events, begin(worker, batch, max(now_ms, at_ms)))
        elif begun < len(batch_N):
            at_ms = now_ms if begun < most else max(now_ms, deliveries[begun - most].taken_ms)
            heappush(events, begin(worker, begun, at_ms))
            begun += 1
        else:
            idle.append(worker)
    return deliveries, made_again
