"""Buckets: batches of examples of similar length, in an order of their own in every epoch.

Shapes: N examples, S steps.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler, Subset

from audioaug.batching import NUM_BUCKETS, Lengths, expected_padding, make_buckets, sorted_padding
from audioaug.core import Key, key_numbers
from audioaug.core.draws import uniforms
from audioaug.errors import DataError, UsageError
from audioaug.loader.processes import rank_and_size
from audioaug.units import plural

EXAMPLES, STEPS = 2**31 + 2, 2**31 + 3
"""Positions past those of any chain: that of the order in a bucket, and that of the order of steps."""

STEPS_IN_BUCKET = 4
"""Fewest steps in a bucket, on average, unless a number of buckets is given."""

ACCEPTED = "Give an array of numbers of shape (N,), an AudioFolder, or a Subset of one."

CHUNK = 2**15
"""Examples whose random numbers are drawn together: their intermediate results fit into a core's cache."""


class HasLengths(Protocol):
    """A dataset that knows the lengths of its examples, such as ``AudioFolder``."""

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of each example, (N,)."""


KnownLengths: TypeAlias = ArrayLike | HasLengths


class BucketBatchSampler(Sampler[list[int]]):
    """Put examples of similar length into one batch, so that little of it is padding.

    Examples are sorted by length and cut into buckets, narrow ones where lengths are frequent. In each epoch those of a
    bucket are shuffled and cut into batches, and the batches of all buckets are shuffled. Both orders are a pure
    function of seed, epoch and the example's key, by default its index. For ``Loader(batch_sampler=..., pad=True)``
    or torch's DataLoader; the Loader's ``set_epoch`` sets its epoch, too.

    In training with several processes, all have the same number of batches, and the batches of one step come from one
    bucket, so that no process waits for one with far longer clips. If the examples that are left for the last step are
    fewer than the processes, some of the shortest bucket are repeated, at most one for each process but one. No other
    example is repeated in an epoch.

    Args:
        lengths: the length of each example, (N,), in samples or seconds; or a dataset that knows them, such as
            ``AudioFolder``, whose ``lengths()`` are in samples, or a ``Subset`` of one.
        batch_size: the most examples in a batch.
        max_batch_length: the most that a padded batch may have, its number of examples times the longest, in the
            unit of ``lengths``. Buckets of shorter examples have larger batches. At least one of both is required.
        shuffle: ``False`` for the same batches in every epoch, the longest first.
        seed: of the order; the same in all processes.
        drop_last: leave out the last step of the shortest bucket, in all processes, if any of its batches would have
            fewer examples than the others of this bucket. Which examples those are changes with the epoch.
        num_buckets: the most buckets. More give less padding, but examples of a small bucket meet in every epoch. By
            default 30, or with ``shuffle`` fewer, if there would be less than four batches in a bucket on average.
        keys: what identifies each example, so that the order does not depend on its index (``core.keys`` says how it
            is hashed). Examples that share a key keep their relative order.
        num_replicas: processes that train together; by default those of ``torch.distributed``.
        rank: of this process, from 0; by default that in ``torch.distributed``.

    Raises:
        DataError: lengths are empty, not above 0, or of another shape or type; or keys do not match them.
        UsageError: an example is longer than ``max_batch_length``, so that no batch can hold it; or an argument is
            missing or out of range.

    Reference: length bucketing as in ``DynamicBucketingSampler`` of lhotse and ``DynamicBatchSampler`` of SpeechBrain.

    Examples:
        >>> from audioaug import BucketBatchSampler
        >>> sampler = BucketBatchSampler([5, 1, 4, 1, 5, 4], max_batch_length=10, shuffle=False)
        >>> list(sampler), sampler.padding
        ([[0, 4], [2, 5], [1, 3]], 0.0)
    """

    def __init__(
        self,
        lengths: KnownLengths,
        batch_size: int | None = None,
        max_batch_length: float | None = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        num_buckets: int | None = None,
        keys: Sequence[Key] | NDArray[np.int64] | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        _check_limits(batch_size, max_batch_length, num_buckets)
        self.rank, self.num_replicas = _checked_rank(rank, num_replicas)
        self.batch_size = None if batch_size is None else int(batch_size)
        self.shuffle, self.seed, self.drop_last = shuffle, int(seed), drop_last
        self.epoch = 0
        length_N = _checked_lengths(lengths)
        most = num_buckets or _default_buckets(length_N, batch_size, max_batch_length, self.num_replicas, shuffle)
        key_N = None if keys is None else _checked_keys(keys, len(length_N))
        self._buckets = make_buckets(length_N, batch_size, max_batch_length, most, self.num_replicas, key_N)
        self._key_N = None if key_N is None else key_N[self._buckets.order_N]
        self._steps_S2 = self._buckets.steps(drop_last)
        if not len(self._steps_S2):
            raise UsageError(
                f"{plural(len(length_N), 'example')} cannot fill a batch of {self._buckets.batch_sizes[0]} on "
                f"{plural(self.num_replicas, 'rank')}, and drop_last=True leaves out incomplete ones.",
                "Use drop_last=False or smaller batches.",
            )
        padding = expected_padding if shuffle else sorted_padding
        self.padding = padding(length_N, self._buckets)
        """The expected share of padding in an epoch, 0 to 1."""
        limits = (self.batch_size, max_batch_length and float(max_batch_length), num_buckets and int(num_buckets))
        options = (*limits, self.seed, bool(shuffle), bool(drop_last))
        self._order_name = f"BucketBatchSampler({_digest(length_N, key_N, options)})"

    @property
    def num_examples(self) -> int:
        """How many examples there are, those of all processes together."""
        return len(self._buckets.order_N)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. ``Loader.set_epoch`` does it."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of this process in an epoch: the same in every epoch and process."""
        return len(self._steps_S2)

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches(self.epoch)

    def _batches(self, epoch: int) -> Iterator[list[int]]:
        order_N = self._buckets.with_repeats(self._order(epoch))
        steps_S2 = self._steps_S2
        if self.shuffle:
            steps_S2 = steps_S2[np.argsort(self._uniforms(epoch, np.arange(len(self)), STEPS), kind="stable")]
        for first, count in steps_S2:
            yield order_N[self._buckets.batch((int(first), int(count)), self.rank)].tolist()

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """Return the indices of all examples, bucket after bucket, shuffled in each."""
        order_N, bounds = self._buckets.order_N, self._buckets.bounds
        if not self.shuffle:
            return order_N
        key_N = order_N if self._key_N is None else self._key_N
        shuffled_N = np.empty_like(order_N)
        for start, end in pairwise(bounds):
            place_n = np.argsort(self._uniforms(epoch, key_N[start:end], EXAMPLES), kind="stable")
            shuffled_N[start:end] = order_N[start:end][place_n]
        return shuffled_N

    def _uniforms(self, epoch: int, number_n: NDArray[np.int64], position: int) -> NDArray[np.float64]:
        """Return one number in [0, 1) for each, drawn in parts: together, they would need a hundred bytes each."""
        parts = [number_n[start : start + CHUNK] for start in range(0, len(number_n), CHUNK)]
        return np.concatenate([uniforms(self.seed, epoch, part, [position], [0])[:, 0] for part in parts])

    def layout(self) -> dict[str, Any]:
        """Return what the meaning of a position in an epoch depends on, for the state of a ``Loader``.

        Another number of ranks has other steps, in which the batches that are done are no whole number of steps; so
        only a run with the same number resumes in the middle of an epoch.
        """
        size, ranks = self.batch_size, self.num_replicas
        return {"batches": len(self), "batch_size": size, "ranks": ranks, "examples": None, "order": self._order_name}

    def check(self, dataset: Any) -> None:
        """Raise ``UsageError`` unless there is a length for each example of a dataset."""
        if len(dataset) != self.num_examples:
            raise UsageError(
                f"BucketBatchSampler has {plural(self.num_examples, 'length')}, but the dataset has "
                f"{plural(len(dataset), 'example')}.",
                "Give it the length of each example, in their order.",
            )


def _check_limits(batch_size: int | None, max_batch_length: float | None, num_buckets: int | None) -> None:
    if batch_size is None and max_batch_length is None:
        raise UsageError("BucketBatchSampler needs batch_size, max_batch_length or both.")
    for name, value in (("batch_size", batch_size), ("num_buckets", num_buckets)):
        if value is not None and (not isinstance(value, int | np.integer) or value < 1):
            raise UsageError(f"Expected {name} to be an integer of at least 1, got {value!r}.")
    if max_batch_length is not None and not 0 < max_batch_length < math.inf:
        raise UsageError(f"Expected max_batch_length to be a finite number above 0, got {max_batch_length!r}.")


def _default_buckets(
    length_N: Lengths, batch_size: int | None, max_batch_length: float | None, ranks: int, shuffle: bool
) -> int:
    """Return the number of buckets with which the examples of one meet others in every epoch."""
    batches = max(
        len(length_N) / batch_size if batch_size is not None else 0.0,
        float(length_N.sum()) / max_batch_length if max_batch_length is not None else 0.0,
    )
    return max(1, min(NUM_BUCKETS, int(batches / ranks / STEPS_IN_BUCKET))) if shuffle else NUM_BUCKETS


def _checked_rank(rank: int | None, num_replicas: int | None) -> tuple[int, int]:
    default_rank, default_replicas = rank_and_size()
    rank = default_rank if rank is None else rank
    num_replicas = default_replicas if num_replicas is None else num_replicas
    if not 0 <= rank < num_replicas:
        raise UsageError(
            f"Expected rank to be from 0 to num_replicas - 1, got rank={rank} and num_replicas={num_replicas}."
        )
    return rank, num_replicas


def _checked_lengths(lengths: Any) -> Lengths:
    """Return lengths as int64 or float64, (N,)."""
    found = _as_array(lengths)
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iuf":
        raise DataError(f"Expected one length for each example, got {found.dtype} of shape {found.shape}.", ACCEPTED)
    if not (valid_N := (found > 0) & (found < math.inf)).all():
        place = int(np.argmin(valid_N))
        raise DataError(f"Expected finite lengths above 0, but that of example {place} is {found[place]}.")
    return found.astype(np.float64) if found.dtype.kind == "f" else found.astype(np.int64)


def _as_array(lengths: Any) -> NDArray[Any]:
    """Return lengths as an array. A dataset that does not know them is refused: to iterate over it would read it."""
    if isinstance(lengths, Subset):
        return _as_array(lengths.dataset)[np.asarray(lengths.indices, dtype=np.int64)]
    if callable(getattr(lengths, "lengths", None)):
        lengths = lengths.lengths()
    if isinstance(lengths, torch.Tensor):
        lengths = lengths.cpu()
    if not hasattr(lengths, "__array__") and (isinstance(lengths, str | bytes) or not isinstance(lengths, Sequence)):
        raise DataError(f"Expected one length for each example, got {type(lengths).__name__}.", ACCEPTED)
    try:
        return np.asarray(lengths)
    except ValueError:
        raise DataError("Expected one length for each example, got sequences of several sizes.", ACCEPTED) from None


def _checked_keys(keys: Any, count: int) -> NDArray[np.int64]:
    number_N = key_numbers(keys)
    if len(number_N) != count:
        raise DataError(f"There are {plural(count, 'length')}, but {plural(len(number_N), 'key')}.")
    return number_N


def _digest(length_N: Lengths, key_N: NDArray[np.int64] | None, options: tuple[Any, ...]) -> str:
    """Return a short hash of all that the order depends on, but for the ranks."""
    digest = hashlib.blake2b(repr(options).encode(), digest_size=8)
    digest.update(length_N.tobytes())
    if key_N is not None:
        digest.update(key_N.tobytes())
    return digest.hexdigest()
