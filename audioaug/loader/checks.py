"""Checks: what is no dataset, and options of a Loader that exclude each other, told before anything starts."""

from typing import Any

from torch.utils.data import DataLoader

from audioaug.errors import DataError, UsageError
from audioaug.loader.stream import is_stream


def check_dataset(dataset: Any) -> None:
    """Raise ``DataError`` if this is no dataset, or an empty one."""
    if hasattr(dataset, "__next__"):
        raise DataError(
            f"{type(dataset).__name__} is an iterator, which has nothing left after one epoch.",
            "Give Loader a dataset with __getitem__ and __len__, or an IterableDataset.",
        )
    pipeline = getattr(dataset, "pipeline", None)  # a WebLoader hides its DataLoader there
    if any(isinstance(part, DataLoader) for part in (dataset, *(pipeline if isinstance(pipeline, list) else ()))):
        raise DataError(
            f"{type(dataset).__name__} is a loader, which gives batches: Loader takes the dataset in it.",
            "Give Loader the dataset and what it needs to batch it: batch_size, sampler, collate_fn.",
        )
    if is_stream(dataset):
        return
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise DataError(
            f"{type(dataset).__name__} is no dataset: Loader needs one with __getitem__ and __len__, or an __iter__."
        )
    if not len(dataset):
        raise DataError("The dataset is empty.")


def check_order(dataset: Any, shuffle: bool, sampler: Any, batch_sampler: Any) -> None:
    """Raise ``UsageError`` if there is more than one order, or a stream is given any."""
    given = shuffle + (sampler is not None) + (batch_sampler is not None)
    if given > 1:
        raise UsageError("Loader takes only one of shuffle, sampler and batch_sampler.")
    if given and is_stream(dataset):
        raise UsageError(
            f"{type(dataset).__name__} is a stream, which has an order of its own: Loader takes no shuffle, sampler or "
            "batch_sampler for it.",
            "Shuffle in the dataset.",
        )
