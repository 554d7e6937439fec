"""Batching: examples of similar length in one batch, in batches of at most a padded length. Arithmetic without torch.

``BucketBatchSampler`` makes its batches by this, and the advisor computes by it what they would save.

Shapes: N examples, S steps.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audioaug.errors import UsageError
from audioaug.units import plural

Lengths = NDArray[np.int64] | NDArray[np.float64]

NUM_BUCKETS = 30
"""Enough that padding is a few percent of speech, few enough that batches are mixed anew in every epoch."""

BINS = 256
"""Of the histogram of lengths that buckets are chosen by."""

ENOUGH = 2**16
"""Lengths of a bucket to compute an expected length from: with more, it takes memory and hardly changes."""


@dataclass(frozen=True, eq=False)
class Buckets:
    """Examples sorted by length, the longest first, and cut into buckets.

    A step takes one batch for each rank, all from one bucket and of its batch size. Each bucket is a whole number of
    steps, except the last one, with the shortest examples: its last step may be incomplete.

    Args:
        order_N: the index of each example, the longest first.
        bounds: bucket k holds ``order_N[bounds[k]:bounds[k + 1]]``.
        batch_sizes: of each bucket.
        ranks: processes that train together.
    """

    order_N: NDArray[np.int64]
    bounds: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    ranks: int

    @property
    def left_over(self) -> int:
        """How many examples are left for the last step if it is incomplete, else 0."""
        return (self.bounds[-1] - self.bounds[-2]) % (self.batch_sizes[-1] * self.ranks)

    def steps(self, drop_last: bool = False) -> NDArray[np.int64]:
        """Return the steps of an epoch, bucket after bucket: where each starts in the order, and its examples, (S, 2).

        An incomplete step is left out with ``drop_last``. Otherwise it has at least one example for each rank, which
        may be more than are left.
        """
        parts = []
        for start, end, size in zip(self.bounds, self.bounds[1:], self.batch_sizes):
            first_S = np.arange(start, end, size * self.ranks)
            parts.append(np.stack([first_S, np.minimum(size * self.ranks, end - first_S)], axis=1))
        steps_S2 = np.concatenate(parts)
        if self.left_over:
            steps_S2[-1, 1] = max(self.left_over, self.ranks)
        return steps_S2[:-1] if self.left_over and drop_last else steps_S2

    def batch(self, step: tuple[int, int], rank: int) -> slice:
        """Return which part of the order is the batch of a rank in a step: parts differ by at most one example."""
        first, count = step
        return slice(first + count * rank // self.ranks, first + count * (rank + 1) // self.ranks)

    def with_repeats(self, order_N: NDArray[np.int64]) -> NDArray[np.int64]:
        """Append to an order what its last step lacks: examples of the last bucket again, from its first on."""
        start, end = self.bounds[-2:]
        lacking = self.ranks - self.left_over if 0 < self.left_over < self.ranks else 0
        return np.append(order_N, order_N[start + np.arange(lacking) % (end - start)]) if lacking else order_N


def make_buckets(
    length_N: Lengths,
    batch_size: int | None = None,
    max_batch_length: float | None = None,
    num_buckets: int = NUM_BUCKETS,
    ranks: int = 1,
    tie_N: NDArray[np.int64] | None = None,
) -> Buckets:
    """Cut examples, sorted by length, into buckets: narrow ones where lengths are frequent, wide ones elsewhere.

    A bucket's batch size is the largest with which a batch of its longest examples fits.

    Args:
        length_N: the length of each example, at least 0, in any unit.
        batch_size: the most examples in a batch.
        max_batch_length: the most that examples times the longest may be, in the same unit. One of both is required.
        num_buckets: the most buckets.
        ranks: processes that train together.
        tie_N: what sorts examples of one length; by default their index.

    Raises:
        UsageError: an example is longer than ``max_batch_length``.
    """
    if max_batch_length is not None and (too_long := int(np.count_nonzero(length_N > max_batch_length))):
        raise UsageError(
            f"{too_long} of {plural(len(length_N), 'example')} {'is' if too_long == 1 else 'are'} longer than "
            f"max_batch_length={max_batch_length:g}; the longest has {length_N.max():g}.",
            "Raise max_batch_length, or leave out or cut long examples.",
        )
    order_N = np.argsort(-length_N, kind="stable") if tie_N is None else np.lexsort((tie_N, -length_N))
    length_N = length_N[order_N]
    bounds, batch_sizes, count = [0], list[int](), len(length_N)
    for end in (*_ends(length_N, num_buckets), count):
        if end > (start := bounds[-1]):
            batch_sizes.append(_batch_size(float(length_N[start]), count, batch_size, max_batch_length))
            step = batch_sizes[-1] * ranks
            bounds.append(min(count, start + -(-(end - start) // step) * step))
    return Buckets(order_N, tuple(bounds), tuple(batch_sizes), ranks)


def _ends(length_N: Lengths, num_buckets: int) -> list[int]:
    """Return where all buckets but the last end, if they need not hold whole steps; ``length_N`` is sorted downwards.

    Of n examples in a bucket of width w, each is padded by about w / 2, so buckets pad by the sum of n * w. With the
    density of lengths f, n is f * w, and the sum of f * w ** 2 is least for a given number if w is in proportion to
    f ** -0.5: each bucket gets the same share of the integral of f ** 0.5, here over a histogram.
    """
    edges = np.linspace(float(length_N[0]), float(length_N[-1]), BINS + 1)
    above = _longer_than(edges, length_N)
    above[0], above[-1] = 0, len(length_N)
    integral = np.concatenate([[0.0], np.cumsum(np.sqrt(np.diff(above)))])
    limits = np.interp(np.arange(1, num_buckets) / num_buckets * integral[-1], integral, edges)
    return [int(end) for end in _longer_than(limits, length_N)]


def _longer_than(limits: NDArray[np.float64], length_N: Lengths) -> NDArray[np.int64]:
    """Return how many lengths, sorted downwards, are above each limit."""
    return len(length_N) - np.searchsorted(length_N[::-1], limits, side="right")


def _batch_size(longest: float, count: int, batch_size: int | None, max_batch_length: float | None) -> int:
    """Return how many examples, none longer than this one, fit into a batch."""
    limits = [count] if batch_size is None else [batch_size]
    if max_batch_length is not None and longest > 0:
        limits.append(int(max_batch_length // longest))
    return min(limits)


def expected_padding(length_N: Lengths, buckets: Buckets) -> float:
    """Return the expected share of padding in an epoch whose batches are drawn at random from each bucket.

    The longest of ``size`` of a bucket's ``n`` examples, without repetition, is at most the k-th shortest with
    probability C(k, size) / C(n, size).
    """
    audio = padded = 0.0
    for start, end, size in zip(buckets.bounds, buckets.bounds[1:], buckets.batch_sizes):
        length_n = length_N[buckets.order_N[start:end]][::-1].astype(np.float64)
        steps, rest = divmod(end - start, size * buckets.ranks)
        counts = {size: steps * buckets.ranks}
        for rank in range(buckets.ranks if rest else 0):
            last = buckets.batch((0, max(rest, buckets.ranks)), rank)
            part = last.stop - last.start
            counts[part] = counts.get(part, 0) + 1
        padded += sum(batches * part * _longest_of(length_n, part) for part, batches in counts.items() if batches)
        audio += sum(batches * part for part, batches in counts.items()) * float(length_n.mean())
    return max(0.0, 1.0 - audio / padded) if padded else 0.0


def sorted_padding(length_N: Lengths, buckets: Buckets) -> float:
    """Return the share of padding in an epoch whose batches are cut from the sorted order."""
    length_N = length_N[buckets.with_repeats(buckets.order_N)]
    total_N = np.concatenate([[0.0], np.cumsum(length_N, dtype=np.float64)])
    first_S, count_S = buckets.steps().T
    audio = padded = 0.0
    for rank in range(buckets.ranks):
        start_S, end_S = (first_S + count_S * place // buckets.ranks for place in (rank, rank + 1))
        audio += float((total_N[end_S] - total_N[start_S]).sum())
        padded += float(((end_S - start_S) * length_N[start_S]).sum())
    return max(0.0, 1.0 - audio / padded) if padded else 0.0


def _longest_of(length_n: NDArray[np.float64], size: int) -> float:
    """Return the expected longest of ``size`` lengths, drawn without repetition from these, sorted upwards.

    Of very many, every second or third, and so on, are enough.
    """
    step = max(1, len(length_n) // max(ENOUGH, 8 * size))
    length_n = length_n[step // 2 :: step]
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, len(length_n) + 1)))])
    most_k = np.zeros(len(length_n) + 1)
    most_k[size:] = np.exp(
        log_factorial[size:]
        - log_factorial[: len(length_n) + 1 - size]
        - log_factorial[-1]
        + log_factorial[len(length_n) - size]
    )
    return float(np.diff(most_k) @ length_n)
