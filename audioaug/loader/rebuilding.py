"""Rebuilding: frameworks take a DataLoader apart and make another of its parts. One made of a Loader's is an error."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from audioaug.errors import UsageError


def refuse_rebuilding(*_: Any) -> NoReturn:
    """Raise ``UsageError``: a DataLoader made of a Loader's parts does not augment."""
    raise UsageError(
        "A DataLoader made of the parts of a Loader would not augment: a Loader cannot be taken apart.",
        "To continue in the middle of an epoch, give the Loader its state (load_state_dict); "
        "docs/how-to/huggingface.md has the lines for Trainer.",
    )


class Batches:
    """The ``batch_sampler`` of a Loader: how many batches an epoch has, and where frameworks set the epoch.

    Args:
        count: returns the number of batches.
        set_epoch: sets the Loader's next epoch.
    """

    def __init__(self, count: Callable[[], int], set_epoch: Callable[[int], None]) -> None:
        self._count, self.set_epoch = count, set_epoch

    @property
    def sampler(self) -> "Batches":
        """Itself: frameworks call ``set_epoch`` of a batch sampler's sampler."""
        return self

    def __len__(self) -> int:
        return self._count()

    def __iter__(self) -> Iterator[list[int]]:
        refuse_rebuilding()
