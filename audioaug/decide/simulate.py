"""Simulate training steps fed by workers, batch by batch: the stalls due to variance, and the effect of prefetching.

This is torch's DataLoader as a recursion. Batch i is made by worker i mod w, which starts when it has finished its
previous batch and batch i - w * prefetch has been taken (its indices are sent then). Batches are taken in order, each
after the previous step. The result is monotonic in all times.

Shapes: K candidates, R replicates, N steps, W workers (the most of any candidate).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 200
"""Long enough for rare slow batches, short enough to simulate all candidates in a second."""

FILLING = 50
"""Steps at the start that are ignored while queues fill."""


def simulate(
    step_KR: Array, batch_KR: Array, workers_K: NDArray[np.int64], prefetch_K: NDArray[np.int64], noise: "Noise"
) -> Array:
    """Return the mean time of a step.

    Args:
        step_KR: mean time of the training process for a batch.
        batch_KR: mean time between two batches of all workers together, if they never wait.
        workers_K: number of workers, at least 1.
        prefetch_K: batches that each worker prefetches.
        noise: relative times of single steps and batches.

    Shape:
        returns (K, R), in the unit of the inputs.
    """
    candidates, steps = np.arange(len(workers_K)), len(noise.step_NR)
    if noise.is_empty:
        return np.maximum(step_KR, batch_KR)
    taken_NKR = np.zeros((steps, *step_KR.shape))
    done_KR, began_KR = np.zeros(step_KR.shape), np.zeros(step_KR.shape)
    own_KR = batch_KR * workers_K[:, None]
    free_KWR = batch_KR[:, None] * np.arange(int(workers_K.max(initial=1)))[:, None]  # staggered start
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
    """Relative times of steps and batches, resampled from measurements; the same for all candidates.

    Args:
        step_samples: times of single steps, in any unit; fewer than two give no noise.
        batch_samples: one worker's times for single batches.
        replicates: number of independent replicates.
        steps: steps and batches of a replicate.
        seed: random seed.
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
        self.step_NR = sampled(step_samples, (steps, replicates), rng)
        self.batch_NR = sampled(batch_samples, (steps, replicates), rng)


def sampled(samples: tuple[float, ...], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Resample with replacement, relative to the mean; each column has mean 1: noise does not change the average.

    Fewer than two samples have no noise.
    """
    if len(samples) < 2:
        return np.ones(shape)
    sampled_NR = rng.choice(np.asarray(samples, dtype=np.float64), shape)
    return np.asarray(sampled_NR / sampled_NR.mean(axis=0))
