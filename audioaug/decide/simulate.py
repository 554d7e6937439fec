"""Simulate: training steps fed by workers, batch by batch, so that variance becomes stalls and prefetching has a price.

It is torch's DataLoader as a recursion. Batch i is made by worker i mod w, which may begin once it is done with its
last one and once batch i - w * prefetch has been taken (then its indices are sent); batches are taken in order, one
when the step before it is done. Everything only ever waits, so what takes longer never ends earlier.

Shapes: K candidates, R replicates, N steps, W workers (the most of any candidate).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 200
"""Long enough for the rare slow batches, short enough to simulate all candidates in a second."""

FILLING = 50
"""The steps at the start that do not count: until then queues fill."""


def simulate(
    step_KR: Array, batch_KR: Array, workers_K: NDArray[np.int64], prefetch_K: NDArray[np.int64], noise: "Noise"
) -> Array:
    """Return the mean time from step to step.

    Args:
        step_KR: what the training process needs for a batch once it has one, on average.
        batch_KR: between two batches of all workers together if nothing holds them up, on average.
        workers_K: how many they are, at least 1.
        prefetch_K: batches that each of them prepares ahead.
        noise: how far single steps and batches are from the average.

    Shape:
        returns (K, R), in the unit of what was given.
    """
    candidates, steps = np.arange(len(workers_K)), len(noise.step_NR)
    if noise.is_empty:
        return np.maximum(step_KR, batch_KR)
    taken_NKR = np.zeros((steps, *step_KR.shape))
    done_KR, began_KR = np.zeros(step_KR.shape), np.zeros(step_KR.shape)
    own_KR = batch_KR * workers_K[:, None]
    free_KWR = batch_KR[:, None] * np.arange(int(workers_K.max(initial=1)))[:, None]  # they do not begin in step
    for index in range(steps):
        worker_K, before_K = index % workers_K, index - workers_K * prefetch_K
        sent_KR = np.where(before_K[:, None] >= 0, taken_NKR[np.maximum(before_K, 0), candidates], 0.0)
        ready_KR = np.maximum(free_KWR[candidates, worker_K], sent_KR) + own_KR * noise.batch_NR[index]
        free_KWR[candidates, worker_K] = ready_KR
        taken_NKR[index] = np.maximum(done_KR, ready_KR)
        done_KR = taken_NKR[index] + step_KR * noise.step_NR[index]
        if index == min(FILLING, steps // 2) - 1:
            began_KR = done_KR
    return (done_KR - began_KR) / (steps - min(FILLING, steps // 2))


class Noise:
    """How far each step and each batch is from the average, drawn from samples; the same for all candidates.

    Args:
        step_samples: times of single steps, in any unit. Fewer than two are no noise.
        batch_samples: times that one worker took for single batches.
        replicates: how often to draw all of it.
        steps: how many of each.
        seed: of the draws.
    """

    def __init__(
        self,
        step_samples: tuple[float, ...],
        batch_samples: tuple[float, ...],
        replicates: int,
        steps: int = STEPS,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.is_empty = len(step_samples) < 2 and len(batch_samples) < 2
        self.step_NR = _sampled(step_samples, (steps, replicates), rng)
        self.batch_NR = _sampled(batch_samples, (steps, replicates), rng)


def _sampled(samples: tuple[float, ...], shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Draw from the samples; each column is 1 on average, so that noise alone makes nothing slower or faster."""
    if len(samples) < 2:
        return np.ones(shape)
    sampled_NR = rng.choice(np.asarray(samples, dtype=np.float64), shape)
    return np.asarray(sampled_NR / sampled_NR.mean(axis=0))
