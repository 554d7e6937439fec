"""Sampling: which examples make up the next batch, and how far a run has got.

``EpochSampler`` is the source of batches for a map-style dataset, ``Stream`` for an iterable one. ``Position`` is the
state that a checkpoint keeps.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, cycle, islice
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, SequentialSampler, get_worker_info

from audioaug.core import Key, key_numbers
from audioaug.core.fields import real_number
from audioaug.errors import AudioaugError, AudioaugWarning, DataError, UsageError, in_one_line
from audioaug.loader.buckets import BucketBatchSampler
from audioaug.loader.failures_of_examples import is_unreadable, torchcodec_error
from audioaug.loader.processes import rank_and_size
from audioaug.loader.worker import EpochIndex, Fetched, Fetcher


class Position(NamedTuple):
    """Progress of a run: ``batch`` batches of ``epoch`` are done, including those without a usable example.

    Before them, the first ``offset`` examples of the epoch's order were done, with another number of ranks or another
    batch size; so all ranks together have done ``offset + batch * batch_size * ranks`` examples.
    """

    epoch: int = 0
    batch: int = 0
    offset: int = 0


def position_from(state: Mapping[str, Any], seed: int, layout: Mapping[str, Any]) -> Position:
    """Return the position in a checkpoint, counted in batches of this layout.

    The checkpoint of an earlier version has no ``offset``, and nothing of the layout but ``batches``.

    Raises:
        UsageError: a Loader with this seed and layout cannot resume there.
    """
    check_state(state, ("epoch", "batch", "seed", "batches"), "a Loader")
    if state["seed"] != seed:
        raise UsageError(
            f"The state is of a Loader with seed {state['seed']}, but this one has seed {seed}.",
            "Give Loader the same seed.",
        )
    position = Position(*(_whole_number(state, name, 0) for name in Position._fields))
    changed = [name for name in layout if name in state and state[name] != layout[name]]
    if not changed or not any(position[1:]):
        return position
    if layout["examples"] and all(state.get(name) == layout[name] for name in ("examples", "order")):
        sizes = _whole_number(state, "batch_size", 1) * _whole_number(state, "ranks", 1)
        done = position.offset + position.batch * sizes
        batch, offset = divmod(min(done, layout["examples"]), layout["batch_size"] * layout["ranks"])
        return Position(position.epoch, batch, offset)
    was, now = (", ".join(f"{name}={one[name]!r}" for name in changed) for one in (state, layout))
    if "ranks" in changed and state.get("order") == layout["order"] is not None:
        now += ", and with that BucketBatchSampler makes other batches"
    raise UsageError(
        f"The state is in the middle of an epoch with {was}, but this Loader has {now}.",
        "Use the same dataset, sampler, batch size and number of processes, or start the next epoch with set_epoch. "
        "Batch size and number of processes may change only with DistributedSampler, shuffle or no sampler.",
    )


def check_state(state: Any, names: Sequence[str], owner: str) -> None:
    """Raise ``UsageError`` unless the state is a mapping with these names."""
    if not isinstance(state, Mapping) or not state.keys() >= set(names):
        found = ", ".join(map(repr, state)) or "no keys" if isinstance(state, Mapping) else f"a {type(state).__name__}"
        expected = f"{', '.join(names[:-1])} and {names[-1]}"
        raise UsageError(f"Expected the state of {owner}, with {expected}, got {found}.")


def _whole_number(state: Mapping[str, Any], name: str, least: int) -> int:
    """Return a number of a state, ``least`` if it has none; raise ``UsageError`` if it is out of range."""
    value = state.get(name, least)
    if not least <= real_number(value) < 2**63 or not real_number(value).is_integer():
        raise UsageError(f"The state of a Loader has {name}={value!r}, but expected a whole number from {least}.")
    return int(value)


class EpochSlice(NamedTuple):
    """Batches of one epoch, from ``start`` on: at most ``limit`` of them, or all that are left.

    ``continues``: the previous slice of the same epoch ended at ``start``, so the order of the examples is kept.
    """

    start: Position
    limit: int | None = None
    continues: bool = False


class Occurrences:
    """Counts how often each example has occurred in an epoch: one byte an example, and an entry for each repeated one.

    Examples past the first ``MOST_SEEN`` get an entry each: a dataset that computes its examples may be any length.
    """

    MOST_SEEN = 2**27

    def __init__(self, examples: int) -> None:
        self._seen, self._again = bytearray(min(examples, self.MOST_SEEN)), Counter[int]()

    def before(self, index: int) -> int:
        """Return how often the example came before this time."""
        is_known = 0 <= index < len(self._seen)
        if is_known and not self._seen[index]:
            self._seen[index] = 1
            return 0
        self._again[index] += 1
        return self._again[index] - (not is_known)


class EpochSampler:
    """Turns the lists of indices of a batch sampler into lists of ``EpochIndex``.

    With the epoch in each, workers that live through several epochs need not be notified. The batch sampler is iterated
    over once an epoch, even if several slices of it are taken, by different DataLoaders.

    Args:
        batches: the batch sampler.
        examples: number of examples in the dataset.
        shuffle: whether its sampler is the Loader's own, which yields the same order in the same epoch of every run.
    """

    def __init__(self, batches: Iterable[Sequence[int]], examples: int, shuffle: bool = False) -> None:
        self.batches: Any = batches
        self._examples = examples
        self._part = EpochSlice(Position())
        self._order: Iterator[list[EpochIndex]] = iter(())
        self._sampler: Any = getattr(batches, "sampler", None)
        self._order_name = _name_of_order(self._sampler, shuffle) if type(batches) is BatchSampler else None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs, which begins with an iteration of its own."""
        return {**self.__dict__, "_order": iter(())}

    def select(self, part: EpochSlice) -> int:
        """Choose what the next iteration yields; return how many earlier batches it repeats first: none."""
        self._part = part
        if not part.continues:
            samplers: list[Any] = [self.batches, self._sampler]
            for sampler in samplers:
                if hasattr(sampler, "set_epoch"):  # DistributedSampler and the like
                    sampler.set_epoch(part.start.epoch)
            batches, done = (self._rest(part.start), 0) if part.start.offset else (self.batches, part.start.batch)
            self._order = islice(map(self._numbering(part.start.epoch), batches), done, None)
        return 0

    def _numbering(self, epoch: int) -> Callable[[Sequence[int]], list[EpochIndex]]:
        before = Occurrences(self._examples).before
        return lambda indices: [(epoch, index, before(index)) for index in map(int, indices)]

    def __iter__(self) -> Iterator[list[EpochIndex]]:
        return islice(self._order, self._part.limit)

    def __len__(self) -> int:
        return len(self.batches)

    def layout(self) -> dict[str, Any]:
        """Return what the meaning of a position depends on.

        ``order`` names the order of the ``examples`` of all ranks together; both are ``None`` if only a run with the
        same batches can resume it.
        """
        if isinstance(self.batches, BucketBatchSampler):
            return self.batches.layout()
        sampler, known = self._sampler, self._order_name is not None
        return {
            "batches": length_if_known(self),
            "batch_size": getattr(self.batches, "batch_size", None),
            "ranks": getattr(sampler, "num_replicas", 1) if known else rank_and_size()[1],
            "examples": len(getattr(sampler, "dataset", sampler)) if known else None,
            "order": self._order_name,
        }

    def batches_after(self, examples: int) -> int:
        """Return the number of batches in an epoch without the first examples of its order."""
        return _quotient(self._share_after(examples), self.batches.batch_size, self.batches.drop_last)

    def _share_after(self, examples: int) -> int:
        layout = self.layout()
        return _quotient(layout["examples"] - examples, layout["ranks"], getattr(self._sampler, "drop_last", False))

    def _rest(self, start: Position) -> Iterator[Sequence[int]]:
        """Yield this rank's batches of the rest of an order, dealt out in turn, as ``DistributedSampler`` does it.

        To give all ranks equally many, that repeats the first examples of the order, or drops the last ones.
        """
        order = sampler = self._sampler
        ranks, rank = self.layout()["ranks"], 0
        if isinstance(sampler, DistributedSampler):
            order, rank = DistributedSampler(sampler.dataset, 1, 0, sampler.shuffle, sampler.seed), sampler.rank
            order.set_epoch(start.epoch)
        first = start.offset + start.batch * self.batches.batch_size * ranks
        share = islice(cycle(order), first + rank, first + self._share_after(first) * ranks, ranks)
        yield from BatchSampler(share, self.batches.batch_size, self.batches.drop_last)


def _name_of_order(sampler: Any, shuffle: bool) -> str | None:
    """Return a name for the order that all ranks share; ``None`` if another run could not produce it again."""
    if type(sampler) is DistributedSampler and sampler.shuffle:
        return f"DistributedSampler(seed={sampler.seed})"
    if type(sampler) in (DistributedSampler, SequentialSampler):
        return "sequential"
    return "shuffle" if shuffle else None


def _quotient(examples: int, parts: int, drop_last: bool) -> int:
    return examples // parts if drop_last else -(-examples // parts)


def length_if_known(source: Any) -> int | None:
    """Return the length of a dataset, or of a sampler of batches; ``None`` for a stream, or what else has none."""
    try:
        return len(source)
    except TypeError:
        return None


def is_stream(dataset: Any) -> bool:
    """Return whether a dataset can only be iterated over."""
    iterable = isinstance(dataset, IterableDataset)  # torch's has a __getitem__, which only raises
    return iterable or (hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__"))


class Stream(IterableDataset["Fetched | AudioaugError"]):
    """An iterable dataset as the DataLoader sees it: each worker reads, augments and batches its own share.

    As always in torch, the dataset itself has to give each worker (``get_worker_info``) and each process of distributed
    training a different share. The index of an example, from which its draws follow unless it has a key, is

        ``shard + shards * n``

    for the n-th example, from 0, that a worker reads; with R processes of W workers each (at least one), worker w of
    process r is shard r * W + w of R * W. If the dataset deals its examples out in turn, as in ``islice(examples,
    shard, None, shards)``, this is the position in the whole stream, and the audio does not depend on the number of
    workers or processes. If it deals out whole files, indices are still unique in an epoch, but which example has which
    depends on the number of workers and processes, as the shares do: with a key they do not matter.

    Args:
        fetcher: of the dataset, which may have ``set_epoch``: it is called in each worker.
        batch_size: of the batches that each worker makes.
        drop_last: whether each worker leaves out a last batch with fewer examples.
        persistent: whether workers live through several epochs, so that the epoch must be shared with them.
    """

    def __init__(self, fetcher: Fetcher, batch_size: int, drop_last: bool, persistent: bool) -> None:
        self.dataset, self.fetcher = fetcher.dataset, fetcher
        self.batch_size, self.drop_last = batch_size, drop_last
        self.rank, self.processes = 0, 1
        self._epoch: Any = torch.zeros(1, dtype=torch.int64) if persistent else [0]
        self._share_epoch()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._share_epoch()

    def _share_epoch(self) -> None:
        """Share the epoch with workers to come, if they are to live through several."""
        if isinstance(self._epoch, torch.Tensor):
            self._epoch.share_memory_()

    def select(self, part: EpochSlice) -> int:
        """Choose the epoch of the next iteration; return how many earlier batches it repeats first: all of them.

        A stream must be read again from its beginning. A slice of one has no limit.
        """
        self._epoch[0] = part.start.epoch
        self.rank, self.processes = rank_and_size()
        return part.start.batch

    def __iter__(self) -> Iterator["Fetched | AudioaugError"]:
        epoch = int(self._epoch[0])
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        indices, examples = self._indices(), iter(self.dataset)
        while True:
            try:
                batch = dict(zip(islice(indices, self.batch_size), examples))  # indices first: they have no end
            except Exception as error:
                error = torchcodec_error(error) or error
                if self.fetcher.on_error != "raise" and is_unreadable(error):
                    yield _stream_error(error)
                elif isinstance(error, AudioaugError):
                    yield error
                else:
                    raise
                return
            if len(batch) < (self.batch_size if self.drop_last else 1):
                return
            yield self.fetcher.fetch([(epoch, index, 0) for index in batch], batch, list(batch))

    def _indices(self) -> Iterator[int]:
        worker = get_worker_info()
        worker_id, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return count(self.rank * workers + worker_id, self.processes * workers)

    def __len__(self) -> int:
        return _quotient(len(self.dataset), self.batch_size, self.drop_last)

    def layout(self) -> dict[str, Any]:
        """Return what the meaning of a position depends on, as ``EpochSampler.layout`` does."""
        size, ranks = self.batch_size, rank_and_size()[1]
        return {"batches": length_if_known(self), "batch_size": size, "ranks": ranks, "examples": None, "order": None}


def _stream_error(error: Exception) -> DataError:
    return DataError(
        f"The dataset is iterable and cannot be read further: {in_one_line(error)}",
        "Leave out broken examples in the dataset.",
    )


class Repeats:
    """Counts the examples of an epoch whose key an earlier one had, and warns of the first. Eight bytes an example."""

    LOOKS_AT = 1024
    """Examples after which they are counted first; then at twice as many, and so on."""

    def __init__(self) -> None:
        self.count, self._warned = 0, False
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Start with the first example that is read of an epoch."""
        self.count, self._epoch, self._due = 0, epoch, self.LOOKS_AT
        self._parts, self._examples = list[NDArray[np.int64]](), 0

    def add(self, keys: Sequence[Key] | NDArray[np.int64]) -> None:
        """Note the keys of a batch, or their numbers."""
        self._parts.append(key_numbers(keys))
        self._examples += len(keys)
        if self._examples >= self._due:
            self._due *= 2
            self.count_all()

    def count_all(self) -> None:
        """Count up to here."""
        if not self._parts:
            return
        self._parts = [np.unique(np.concatenate(self._parts))]
        self.count = self._examples - len(self._parts[0])
        if self.count and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.count} of the first {self._examples} examples of epoch {self._epoch} have the key of an "
                "earlier one, and so its draws. Give each example a key of its own; if the sampler, or "
                "on_error='replace', repeats examples, leave key out.",
                AudioaugWarning,
                stacklevel=2,
            )


def refuse_collating(*_: Any) -> NoReturn:
    """Raise ``UsageError``: a DataLoader made of a Loader's attributes would not augment."""
    raise UsageError(
        "A DataLoader made of a Loader's dataset, sampler and collate_fn would not augment.",
        "To resume in the middle of an epoch, give the Loader its state (load_state_dict); "
        "docs/how-to/huggingface.md has the lines for Trainer.",
    )


class BatchSamplerView:
    """The ``batch_sampler`` attribute of a Loader, for frameworks: the number of batches, and ``set_epoch``.

    Args:
        count: returns the number of batches.
        set_epoch: sets the Loader's next epoch.
    """

    def __init__(self, count: Callable[[], int], set_epoch: Callable[[int], None]) -> None:
        self._count, self.set_epoch = count, set_epoch

    @property
    def sampler(self) -> "BatchSamplerView":
        """Itself: frameworks call ``set_epoch`` of a batch sampler's sampler."""
        return self

    def __len__(self) -> int:
        return self._count()

    def __iter__(self) -> Iterator[list[int]]:
        refuse_collating()
