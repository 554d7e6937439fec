"""Dataset check: does a dataset repeat its own random numbers, or its examples, across workers and epochs?

A DataLoader seeds ``random``, numpy's and torch's global generators anew in each worker and epoch. A generator of the
dataset's own, such as ``numpy.random.default_rng()`` in ``__init__``, is copied into every worker, and again at every
epoch: each then draws the same. That goes unnoticed, since the audio still differs from one example to the next.
"""

import hashlib
import itertools
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from audioaug.errors import DataError
from audioaug.loader.pipeline import check_dataset
from audioaug.loader.sampling import is_stream

EXAMPLES = 48
"""Examples that each worker reads."""
WORKERS = 2
CHANCE = 1e-3
"""Random examples that are all the same are a repeat, unless that had at least this probability."""

Verdict = Literal["ok", "repeats", "unclear"]


@dataclass(frozen=True)
class Observation:
    """What one comparison showed, in a sentence; if something repeats, also what to do."""

    verdict: Verdict
    sentence: str
    next_step: str = ""


NEXT_STEP = (
    "Draw from torch, random or numpy's global generator, make the generator in each worker (worker_init_fn), or leave "
    "what is random to a chain, whose draws follow from seed, epoch and key."
)
"""For a dataset that repeats its random numbers."""


def find_repeats(dataset: Any, examples: int = EXAMPLES) -> list[Observation]:
    """Read some examples in the main process and in two workers, in two epochs, and compare them.

    Args:
        dataset: map-style, or iterable.
        examples: how many each worker reads.

    Raises:
        DataError: it is no dataset, or empty. What the dataset raises is raised.
    """
    check_dataset(dataset)
    stream = is_stream(dataset)
    count = examples if stream else min(examples, len(dataset))
    alone = [_read_here(dataset, count, stream) for _ in range(2)]
    if not alone[0]:
        raise DataError("The dataset is empty.")
    differing = sum(first != second for first, second in zip(*alone)) / len(alone[0])
    (first, other), (later, _) = (_read_in_workers(dataset, count, epoch) for epoch in range(2))
    found = [_shares(first, other)] if stream else []
    if not differing:
        same = f"The {len(alone[0])} examples that were read twice are the same both times"
        return [*found, Observation("ok", f"{same}: the dataset draws nothing that could repeat.")]
    if not stream:
        found.append(_compared(first, other, differing, "in both workers", "Workers draw the same numbers"))
    found.append(_compared(first, later, differing, "in two epochs", "Every epoch draws the same numbers again"))
    return found


def _compared(first: list[str], second: list[str], differing: float, where: str, wrong: str) -> Observation:
    """Say whether examples are the same in two reads, of which usually that share differs."""
    pairs = list(zip(first, second))
    equal = sum(one == other for one, other in pairs)
    if equal < len(pairs):
        return Observation("ok", f"{len(pairs) - equal} of {len(pairs)} examples differ {where}, as random ones do.")
    if (1 - differing) ** len(pairs) > CHANCE:
        return Observation(
            "unclear", f"All {len(pairs)} examples are the same {where}, but few are random: that may be chance."
        )
    return Observation(
        "repeats",
        f"{wrong}: all {len(pairs)} examples are the same {where}, though {differing:.0%} of them differ when they are "
        "read twice in one process.",
        NEXT_STEP,
    )


def _shares(first: list[str], other: list[str]) -> Observation:
    """Say whether workers of a stream read the same examples."""
    common = len({*first} & {*other})
    if common * 2 < len({*first}):
        return Observation("ok", f"The workers read different examples ({common} of {len(first)} are the same).")
    return Observation(
        "repeats",
        f"Workers read the same examples: {common} of {len(first)} are the same.",
        "Let each read its share (torch.utils.data.get_worker_info).",
    )


def _read_here(dataset: Any, count: int, stream: bool) -> list[str]:
    read = itertools.islice(iter(dataset), count) if stream else (dataset[index] for index in range(count))
    return [_digest(example) for example in read]


class _Read(Dataset[tuple[int, str]]):
    """Reads a map-style dataset: the worker's number and a digest of each example."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> tuple[int, str]:
        return _worker(), _digest(self.dataset[index])


class _Stream(IterableDataset[tuple[int, str]]):
    """The same for an iterable dataset."""

    def __init__(self, dataset: Any, count: int) -> None:
        self.dataset, self.count = dataset, count

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return ((_worker(), _digest(example)) for example in itertools.islice(iter(self.dataset), self.count))


def _worker() -> int:
    worker = get_worker_info()
    assert worker is not None
    return worker.id


def _read_in_workers(dataset: Any, count: int, epoch: int) -> tuple[list[str], list[str]]:
    """Return the digests of what each of two new workers reads; of a map-style dataset the same examples."""
    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    where: dict[str, Any] = {"num_workers": WORKERS, "batch_size": None}
    if is_stream(dataset):
        loader = DataLoader(_Stream(dataset, count), **where)
    else:  # workers take turns
        order = [index for index in range(count) for _ in range(WORKERS)]
        loader = DataLoader(_Read(dataset), sampler=order, **where)
    digests: tuple[list[str], list[str]] = [], []
    for worker, digest in loader:
        digests[worker].append(digest)
    return digests


def _digest(example: Any) -> str:
    """Return a digest of all that an example holds."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in _parts(example):
        hashed.update(part)
    return hashed.hexdigest()


def _parts(content: Any) -> Iterator[bytes]:
    if isinstance(content, torch.Tensor):
        content = content.detach().cpu().numpy()
    if isinstance(content, np.ndarray) and content.dtype != object:
        yield f"{content.dtype}{content.shape}".encode()
        yield np.ascontiguousarray(content).tobytes()
    elif isinstance(content, Mapping | list | tuple):
        for part in content.items() if isinstance(content, Mapping) else content:
            yield from _parts(part)
    else:
        yield pickle.dumps(content)
