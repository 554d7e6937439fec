"""Failures of workers: one that dies, or cannot send a batch, becomes one clear error, and leaves nothing behind."""

import copy
import multiprocessing.connection
import re
import signal
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from typing import Any

import torch

from audioaug.errors import WorkerError, modules_of, text_of
from audioaug.internals import (
    end_workers,
    receive_whole_messages,
    report_worker_deaths,
    worker_processes,
)
from audioaug.loader.failures_of_resources import (
    MORE_SHARED_MEMORY,
    SHARED_MEMORY,
    open_files_error,
    shared_memory_error,
)
from audioaug.process import call_after_workers, continue_at_exit, explain_worker_deaths

CAUSES: dict[int, str] = {
    signal.SIGKILL: "Most likely the system was out of memory (see dmesg): use fewer workers, smaller batches or a "
    "smaller prefetch_factor.",
    signal.SIGBUS: f"Most likely {SHARED_MEMORY}, through which workers send batches, is full. {MORE_SHARED_MEMORY}",
    signal.SIGSEGV: "A native library crashed, perhaps an audio decoder: num_workers=0 and python -X faulthandler show "
    "where.",
    signal.SIGABRT: "A native library aborted: num_workers=0 and python -X faulthandler show where.",
    signal.SIGTERM: "Another process, such as a job scheduler, terminated it.",
}
EXITED = re.compile(r"DataLoader worker \(pid\(s\) ([\d, ]+)\) exited unexpectedly")
"""What torch says of workers that ended, whatever their exit code."""
UNKNOWN_CAUSE = "Try num_workers=0, which may show why."
UNCAUGHT = (
    "An error that is printed above is the cause. If it is about bootstrapping: a worker that is not forked imports "
    'the script, so put the training under `if __name__ == "__main__":`.'
)

_iterators: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Iterators of DataLoaders with workers, whose deaths are explained."""


def expect_deaths() -> None:
    """Let torch report the death of a worker from now on, explained if its iterator is one of ``watch_workers``.

    To be called before workers are started: torch begins to report just before it fills their queues.
    """
    report_worker_deaths()
    explain_worker_deaths(lambda: next(filter(None, map(worker_death, tuple(_iterators))), None))


def watch_workers(iterator: Any) -> None:
    """Explain deaths of the workers of a DataLoader's iterator, also if torch reports them during a training step.

    Workers that are stopped when Python exits cannot keep it from exiting; those that it ends leave no shared memory.
    """
    _iterators.add(iterator)
    continue_at_exit(worker_processes(iterator))
    call_after_workers(_clean_up_at_exit)


@contextmanager
def worker_errors(iterator: Any) -> Iterator[None]:
    """Turn errors of torch about a dead worker of this iterator, or full shared memory, into a ``WorkerError``."""
    try:
        yield
    except WorkerError:
        raise
    except (RuntimeError, OSError, EOFError) as error:
        try:
            death = worker_death(iterator, patience=2.0 if isinstance(error, ConnectionError | EOFError) else 0.0)
        except WorkerError as raised_by_handler:  # torch was notified of the death in this moment
            death = raised_by_handler
        explained = (
            death
            or shared_memory_error(error)
            or open_files_error(error)
            or _early_end(error)
            or _broken_connection(error, iterator)
        )
        if explained is None:
            raise
        raise explained from None


def _early_end(error: Exception) -> WorkerError | None:
    """Return an error for a worker that torch misses although it ended with exit code 0, as after ``os._exit(0)``."""
    found = EXITED.match(text_of(error))
    return found and WorkerError(f"A worker (pid {found[1]}) ended before its work was done.", UNKNOWN_CAUSE)


def _broken_connection(error: Exception, iterator: Any) -> WorkerError | None:
    """Return an error for a connection that a worker closed: while it started, or instead of sending a batch.

    Without an iterator, workers are being started.
    """
    in_connection = modules_of(error)[-1].startswith(("multiprocessing.", "torch.multiprocessing."))
    if not isinstance(error, EOFError | ConnectionError) or not in_connection:
        return None
    if iterator is None:
        return WorkerError("A worker ended while it was started.", UNCAUGHT)
    if not worker_processes(iterator):
        return None
    return WorkerError(
        "A worker could not hand over a batch.",
        "Its error is printed above. Most likely the worker has too many open files: close those that the dataset "
        "opens, or raise the limit (ulimit -n 65536).",
    )


class PipeEvent:
    """An event that processes share, without a lock: it is set when there is something in a pipe.

    torch asks workers to end by a ``multiprocessing.Event``, and each looks at it for every batch. If one is killed
    while it does, the lock of that event stays held, and torch waits forever.
    """

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def set(self) -> None:
        """Set the event."""
        self._writer.send_bytes(b"set")  # nothing receives it

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._reader.poll()


def worker_context(start_method: str | None) -> BaseContext:
    """Return the context for a DataLoader whose workers may be killed at any time.

    Args:
        start_method: of ``Plan``; ``None`` is Python's default.
    """
    context = copy.copy(multiprocessing.get_context(start_method))
    make_queue = context.Queue
    context.Queue = lambda maxsize=0: receive_whole_messages(make_queue(maxsize))  # type: ignore[method-assign]
    context.Event = PipeEvent  # type: ignore[assignment, method-assign]
    return context


def has_dead_worker(iterator: Any) -> bool:
    """Return whether a worker of an iterator has ended, even if with exit code 0."""
    return any(worker.exitcode is not None for worker in worker_processes(iterator))


def worker_death(iterator: Any, patience: float = 0.0) -> WorkerError | None:
    """Return an error for the first dead worker of an iterator, if one is dead within ``patience`` seconds.

    A worker that is killed while it hands over a batch breaks the connection a moment before it is dead.
    """
    workers = worker_processes(iterator)
    if patience and workers:
        ended = multiprocessing.connection.wait([worker.sentinel for worker in workers], patience)
        for worker in workers:
            worker.join(patience if worker.sentinel in ended else 0.0)
    return next((_death_error(worker.pid, worker.exitcode) for worker in workers if worker.exitcode), None)


def _death_error(pid: int, exit_code: int) -> WorkerError:
    if exit_code > 0:
        cause = UNCAUGHT if exit_code == 1 else UNKNOWN_CAUSE
        return WorkerError(f"A worker (pid {pid}) ended with exit code {exit_code}.", cause)
    name = signal.Signals(-exit_code).name
    return WorkerError(f"A worker (pid {pid}) was killed by {name}.", CAUSES.get(-exit_code, UNKNOWN_CAUSE))


def end_and_clean_up(iterator: Any) -> None:
    """End all workers of an iterator, and remove the shared memory of batches that a dead one had not handed over.

    Left to the garbage collector, torch may wait 5 s for each worker if one is dead. If Ctrl-C interrupts it while it
    waits for workers, it terminates them, whatever they are doing.
    """
    workers = worker_processes(iterator)
    try:
        end_workers(iterator)
    finally:
        for worker in workers:
            worker.join(1.0)  # not longer: SIGTERM does not end a stopped one
        remove_shared_memory(workers)


def _clean_up_at_exit() -> None:
    for iterator in tuple(_iterators):
        remove_shared_memory(worker_processes(iterator))


def remove_shared_memory(workers: Iterable[Any]) -> None:
    """Remove the shared memory that workers which have ended had created and not yet handed over.

    Containers that share /dev/shm may have processes with the same ids: a live one removes its files right away, or
    keeps them by the other strategy.
    """
    left = [file for worker in workers for file in SHARED_MEMORY.glob(f"torch_{worker.pid}_*")]
    if left and torch.multiprocessing.get_sharing_strategy() == "file_descriptor":
        time.sleep(0.05)
        for file in left:
            file.unlink(missing_ok=True)
