"""Lockstep: the ranks of this machine do at the same time what rank 0 measures.

Rank 0 announces each batch that it takes and each training step, does the same itself, and waits for the others, as
ranks wait for each other's gradients in training. So all ranks make the same number of steps, which collectives need,
with batches of loaders of their own, and compete for cores, memory and disks as in training. If rank 0 times a loader
without training, the loaders of the others run at the same time, each at its own pace. They wait while rank 0 does
anything else: single ops, the device part of a batch, copies, reading single examples.

An announcement costs 0.13 ms (two ranks on two virtual cores); a step with its batch takes two.
"""

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch

from audioaug.errors import AudioaugError, MeasurementError, first_line
from audioaug.measure.clock import WallClock
from audioaug.measure.loader import Drain
from audioaug.measure.ranks import PATIENCE, Link, link_to_rank_0, links_of_rank_0


@contextmanager
def leading(count: int | None = None, command: Sequence[str] = ()) -> "Iterator[Leader | None]":
    """Lead the other ranks in this block; yield ``None`` if this process trains alone. See ``links_of_rank_0``.

    Raises:
        MeasurementError: a rank has not connected in time, or ended in the block.
        UsageError: ranks of several machines, or ``count`` within torchrun.
    """
    with links_of_rank_0(count, command) as links:
        leader = Leader(links) if links else None
        try:
            yield leader
        except AudioaugError:
            if leader is not None:
                leader.check()  # the cause of what failed here
            raise


class Leader:
    """Rank 0, which leads the others over these links."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._numbers = itertools.count()
        self._dropped: list[int] = []
        self._known: dict[int, tuple[int, weakref.ref[Any]]] = {}

    def check(self) -> None:
        """Raise ``MeasurementError`` if a rank has ended."""
        for link in self._links:
            link.check()

    def wait(self) -> None:
        """Wait until the other ranks have done their work; raise the error of one that failed."""
        for answer in [link.receive(PATIENCE) for link in self._links]:
            if answer is not None:
                raise answer

    @contextmanager
    def together(self, name: str, *arguments: Any) -> Iterator[None]:
        """Let the other ranks do the same as this block, and wait for them.

        Raises:
            MeasurementError: a rank has ended, or failed where this one did not.
        """
        self.check()
        self._send(name, arguments)
        try:
            yield
        except Exception:
            for link in self._links:
                link.receive(PATIENCE)
            raise
        self.wait()

    def step(self, wave: torch.Tensor, **changes: Any) -> AbstractContextManager[None]:
        """Let the other ranks train on the batch that they took when this one did, or on their last one.

        Args:
            wave: the audio of the batch.
            changes: fields of the job that differ from the other ranks'.
        """
        number, known = self._known.get(id(wave), (None, None))
        is_same = known is not None and known() is wave
        return self.together("step", number if is_same else None, changes)

    def loader(self, loader: Any, wave_of: Callable[[Any], torch.Tensor], *opened: Any) -> "LedLoader":
        """Return a stand-in for a loader, after the other ranks have opened theirs.

        Args:
            loader: of this rank.
            wave_of: returns the audio of a batch.
            opened: how the others open theirs: a function of (job, ...), its other arguments, and changes of the job.
        """
        number = next(self._numbers)
        with self.together("open", number, *opened):
            return LedLoader(self, loader, number, wave_of)

    def take(self, feeder: Iterator[Any], number: int, wave_of: Callable[[Any], torch.Tensor]) -> Any:
        """Return a loader's next batch; the other ranks take theirs, and keep it for as long as this one is alive."""
        batch_number = next(self._numbers)
        with self.together("take", number, batch_number):
            batch = next(feeder)
        wave = wave_of(batch)
        key = id(wave)

        def forget(ref: Any) -> None:
            if self._known.get(key, (None, None))[1] is ref:
                del self._known[key]
            self._dropped.append(batch_number)

        self._known[key] = batch_number, weakref.ref(wave, forget)
        return batch

    def drop(self, number: int) -> None:
        """Let the other ranks close a loader before they do anything else."""
        self._dropped.append(number)  # may be called by the garbage collector, in the middle of anything

    def end(self, result: Any) -> None:
        """Let the other ranks end with this result; this one continues alone."""
        self._send("end", (result,))
        for link in self._links:
            link.close()
        self._links = ()

    def _send(self, name: str, arguments: tuple[Any, ...]) -> None:
        dropped, self._dropped = self._dropped, []
        for link in self._links:
            link.send((torch.get_num_threads(), dropped, name, arguments))


class LedLoader:
    """A loader of rank 0, while the other ranks use theirs in the same way. Iterate over it once."""

    def __init__(self, leader: Leader, loader: Any, number: int, wave_of: Callable[[Any], torch.Tensor]) -> None:
        self._leader, self._loader, self._number, self._wave_of = leader, loader, number, wave_of
        self._feeder: Iterator[Any] = iter(())
        weakref.finalize(self, leader.drop, number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        self._feeder = iter(self._loader)
        return self

    def __next__(self) -> Any:
        return self._leader.take(self._feeder, self._number, self._wave_of)

    def worker_batches(self, epoch: int = 0) -> Iterator[Any]:
        """Yield what workers send in an epoch; the workers of other ranks run at full speed meanwhile."""
        with self._leader.together("drain", self._number, epoch):
            pass
        yield from self._loader.worker_batches(epoch)


@contextmanager
def following() -> "Iterator[Follower]":
    """Connect this rank to rank 0, which receives the error if the block raises one of ours."""
    with link_to_rank_0() as link:
        yield Follower(link)


class Follower:
    """A rank that does what rank 0 announces."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._job: Any = None
        self._latest: Any = None
        self._kept: dict[int, Any] = {}  # loaders and batches
        self._feeders: dict[int, Iterator[Any]] = {}
        self._drains: dict[int, Drain] = {}

    def follow(self, job: Any) -> Any:
        """Train a job of this rank as rank 0 announces until it ends, and return its result.

        Args:
            job: a dataclass with ``step``, which trains on a batch.

        Raises:
            MeasurementError: rank 0 has ended.
        """
        self._job = job
        self._link.send(None)
        try:
            while True:
                threads, dropped, name, arguments = self._link.receive()
                if name == "end":
                    return arguments[0]
                for number in dropped:
                    self._drop(number)
                if threads != torch.get_num_threads():
                    torch.set_num_threads(threads)
                self._link.send(self._answer(name, arguments))
        finally:
            for number in tuple(self._drains):
                self._drop(number)

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> AudioaugError | None:
        """Do what rank 0 does; return why that failed."""
        works: dict[str, Callable[..., None]] = {
            "open": self._open,
            "take": self._take,
            "drain": self._drain,
            "step": self._step,
        }
        try:
            works[name](*arguments)
        except StopIteration:  # rank 0 notices the end of its own data
            return None
        except AudioaugError as error:
            return MeasurementError(error.message, error.next_step)
        except Exception as error:
            return MeasurementError(f"{type(error).__name__}: {first_line(error)}.")
        return None

    def _open(self, number: int, function: Callable[..., Any], arguments: tuple[Any, ...], changes: Any) -> None:
        self._kept[number] = function(replace(self._job, **changes), *arguments)

    def _take(self, loader: int, number: int) -> None:
        if loader not in self._feeders:
            self._feeders[loader] = iter(self._kept[loader])
        self._kept[number] = self._latest = next(self._feeders[loader])

    def _drain(self, loader: int, epoch: int) -> None:
        self._stop(loader)
        self._drains[loader] = Drain(self._kept[loader].worker_batches(epoch), WallClock())
        self._drains[loader].__enter__()

    def _step(self, batch: int | None, changes: Any) -> None:
        replace(self._job, **changes).step(self._latest if batch is None else self._kept[batch])

    def _stop(self, loader: int) -> None:
        if drain := self._drains.pop(loader, None):
            with suppress(Exception):  # rank 0 reports what fails in its own loader
                drain.__exit__(None, None, None)

    def _drop(self, number: int) -> None:
        self._stop(number)
        self._feeders.pop(number, None)
        self._kept.pop(number, None)
