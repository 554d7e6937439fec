"""Processes: which of those that train together this is (distributed data parallel training)."""

import os
import warnings

import torch.distributed

from audioaug.errors import AudioaugWarning


def rank_and_size() -> tuple[int, int]:
    """Return which process of how many this is: (0, 1) if it trains alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def share_of(workers: int) -> int:
    """Return how many of a machine's workers each of its processes may have, the same for all: at least one, if any."""
    return max(1, workers // local_size()) if workers else 0


def local_size() -> int:
    """Return how many processes train on this machine.

    torchrun says so in ``LOCAL_WORLD_SIZE``. Other launchers, such as Lightning's own, do not; but processes that meet
    at this machine's own address are all here.
    """
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    if told.isdecimal() and int(told):
        return int(told)
    return rank_and_size()[1] if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost") else 1


def warn_of_the_same_examples(stacklevel: int) -> None:
    """Warn that every process would read all examples, if there are several."""
    processes = rank_and_size()[1]
    if processes > 1:
        warnings.warn(
            f"{processes} processes train together, and without a sampler each of them reads every example, augmented "
            "the same way. Give Loader sampler=DistributedSampler(dataset).",
            AudioaugWarning,
            stacklevel=stacklevel + 1,
        )
