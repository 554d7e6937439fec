"""Stream: the draws of examples that no key names, new ones at every call, in every module, worker and process."""

import functools
import hashlib
import itertools
import multiprocessing
import os
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from audioaug.core import Draws
from audioaug.core.chain import integer
from audioaug.dsp.dispatch import is_compiling
from audioaug.engine.locks import lock_of_process
from audioaug.errors import UsageError
from audioaug.internals import is_in_backward, is_vectorized

AHEAD = 8
"""Calls that are drawn for together, which takes little longer than for one."""

_NUMBERS = itertools.count()


class Declaration(Protocol):
    """What draws are made for, such as a chain."""

    def draw(self, keys: NDArray[np.int64], epoch: int = 0, seed: int = 0) -> Draws:
        """Return the draws of these examples."""


class DrawStream:
    """Draws for one example after the other. Global random state is read, never changed.

    Its seed follows from torch's initial seed, or from ``seed`` in its place; from the seed of the DataLoader worker
    that it is used in, or the name of the process; and from its number among the streams of this process that
    have no ``seed``. When one of them changes, the stream restarts. The rank is added at each call, so that all ranks
    can resume from one checkpoint, each with its own draws.

    Args:
        chain: the declaration.
        seed: in place of torch's initial seed.

    Raises:
        UsageError: the seed is not an integer.
    """

    def __init__(self, chain: Declaration, seed: int | None) -> None:
        self.chain, self.seed = chain, None if seed is None else integer("seed", seed)
        self.number = next(_NUMBERS) if seed is None else None
        self.drawn = 0
        self._base = 0
        self._sender: str | None = None  # the rank of the process that pickled it for a worker which knows none
        self._source: tuple[Any, ...] = ()
        self._epoch = 0
        self._ahead, self._ahead_of = chain.draw(np.arange(0)), (0, 0)

    def draw(self, count: int, epoch: int = 0) -> Draws:
        """Return the draws of the next ``count`` examples; another epoch than before restarts it, with other draws.

        Threads that share a stream, as those of ``torch.nn.DataParallel`` do, get different draws.

        Raises:
            UsageError: the epoch is not an integer, or new draws would be wrong here: in an activation checkpoint that
                runs again, in ``torch.vmap``, or while a module is exported.
        """
        _check_newness()
        with lock_of_process("stream"):
            return self._draw(count, epoch)

    def _draw(self, count: int, epoch: int) -> Draws:
        self._restart_if_reseeded()
        if epoch != self._epoch:
            self._epoch, self.drawn = integer("epoch", epoch), 0
        of_epoch = (self._epoch,) if self._epoch else ()
        seed, (ahead_seed, start) = _digest(self._base, _rank(), *of_epoch), self._ahead_of
        first = self.drawn - start
        if seed != ahead_seed or not 0 <= first <= len(self._ahead) - count:
            first, self._ahead_of = 0, (seed, self.drawn)
            self._ahead = self.chain.draw(np.arange(self.drawn, self.drawn + AHEAD * count), seed=seed)
        self.drawn += count
        return self._ahead[first : first + count]

    def state(self) -> torch.Tensor:
        """Return what ``load`` needs, in any process and with any seed, to continue with the next example.

        Two integers, as a tensor, which every format of checkpoints can hold: of the stream, and of the examples drawn.
        """
        self._restart_if_reseeded()
        return torch.tensor([self._base, self.drawn])

    def load(self, state: torch.Tensor) -> None:
        """Continue where ``state`` was taken, until torch's initial seed changes from what it is now."""
        self._source, (self._base, self.drawn) = self._current_source(), state.tolist()

    def _restart_if_reseeded(self) -> None:
        source = self._current_source()
        if source != self._source:
            self._source, self._base, self.drawn = source, _digest(*source), 0

    def _current_source(self) -> tuple[Any, ...]:
        worker = get_worker_info()
        place = multiprocessing.current_process().name if worker is None else (worker.seed, self._sender)
        return torch.initial_seed() if self.seed is None else self.seed, place, self.number

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sender": _rank()}


def _check_newness() -> None:
    """Raise ``UsageError`` where new draws would be old ones, or the old ones are needed."""
    if is_in_backward():
        raise UsageError(
            "The module runs again while gradients are computed (activation checkpointing), where new draws would "
            "differ from those of the forward pass.",
            "Give it key=, or leave it out of the checkpointed part of the model.",
        )
    if is_vectorized():
        raise UsageError(
            "torch.vmap calls the module once for all its examples, which would get the same draws.",
            "Give it key=, or call it on the whole batch, outside of vmap.",
        )
    if is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise UsageError(
            "A module in training mode cannot be exported: the draws of this one call would become constants.",
            "Call eval() of the model first.",
        )


def _rank() -> str:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return str(torch.distributed.get_rank())
    return os.environ.get("RANK", "0")


@functools.lru_cache(maxsize=16, typed=True)
def _digest(*parts: Any) -> int:
    """Return 64 bits, signed, that depend on all parts: the same in every process and version."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little", signed=True)
