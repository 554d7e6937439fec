"""Where one curve of times overtakes another, with an interval. Nothing here is measured."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audioaug.records import Timing
from experiments.crossover.records import CPU, GPU, Crossing

RESAMPLINGS = 500


def crossing(sizes: Sequence[float], cpu: Sequence[Timing], gpu: Sequence[Timing], seed: int = 0) -> Crossing:
    """Return from which size on the GPU is faster for good, between sizes by straight lines on log axes.

    The interval is a bootstrap's: the rounds of every point are drawn anew, 500 times. Where one is ahead at all sizes
    in a resampling, that counts as a crossing at the nearest of them.

    Args:
        sizes: rising.
        cpu, gpu: the times at each size.
    """
    middle = np.array([np.log(c.median / g.median) for c, g in zip(cpu, gpu, strict=True)])
    log_sizes = np.log(np.asarray(sizes, float))
    if (middle <= 0).all() or (middle > 0).all():
        return Crossing(None, None, GPU if middle[0] > 0 else CPU)
    rng = np.random.default_rng(seed)
    resampled = [_crossing(log_sizes, _gains(rng, cpu, gpu)) for _ in range(RESAMPLINGS)]
    low, high = np.exp(np.percentile(resampled, (2.5, 97.5)))
    return Crossing(float(np.exp(_crossing(log_sizes, middle))), (float(low), float(high)), GPU)


def _gains(rng: np.random.Generator, cpu: Sequence[Timing], gpu: Sequence[Timing]) -> NDArray[np.float64]:
    def median(timing: Timing) -> float:
        return float(np.median(rng.choice(timing.seconds, len(timing.seconds))))

    return np.array([np.log(median(c) / median(g)) for c, g in zip(cpu, gpu, strict=True)])


def _crossing(log_sizes: NDArray[np.float64], gain: NDArray[np.float64]) -> float:
    """Return the place of the last change from the CPU to the GPU; an end where there is none."""
    behind = np.flatnonzero(gain <= 0)
    if not len(behind):
        return float(log_sizes[0])
    last = int(behind[-1])
    if last == len(gain) - 1:
        return float(log_sizes[-1])
    share = -gain[last] / (gain[last + 1] - gain[last])
    return float(log_sizes[last] + share * (log_sizes[last + 1] - log_sizes[last]))
