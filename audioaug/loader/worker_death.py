"""Worker death: a worker that is killed becomes one clear error, wherever the training process is by then."""

import contextlib
import multiprocessing.connection
import multiprocessing.util
import signal
import threading
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from audioaug.errors import WorkerError
from audioaug.internals import current_iterator, drop_iterator, end_workers, worker_processes
from audioaug.loader.sending import MAKE_ROOM, SHARED_MEMORY, no_room

CAUSES: dict[int, str] = {
    signal.SIGKILL: "Most likely the system was out of memory (dmesg tells): use fewer workers, smaller batches or a "
    "smaller prefetch_factor.",
    signal.SIGBUS: f"Most likely {SHARED_MEMORY} is full, through which workers send batches. {MAKE_ROOM}",
    signal.SIGSEGV: "A native library crashed, perhaps the decoder of audio files: num_workers=0 and python -X "
    "faulthandler show where.",
    signal.SIGABRT: "A native library gave up: num_workers=0 and python -X faulthandler show where.",
    signal.SIGTERM: "Something outside asked it to end, such as a job scheduler or a user.",
}
UNKNOWN = "Try num_workers=0, which may show why."

_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The iterators of DataLoaders, which know their workers."""

_explains = False
"""Whether the signal handler is in place."""


def watched(loader: "DataLoader[Any]") -> tuple[Iterator[Any], "weakref.ref[Any]"]:
    """Start iterating over a DataLoader; a killed worker is a ``WorkerError``, and the next time there are new ones.

    Also return torch's own iterator, as long as there is one.
    """
    if _death(kept := current_iterator(loader)):
        _end(loader, kept)
    multiprocessing.util.get_temp_dir()  # workers use ours; a killed one could not remove its own
    with _explained(kept):
        iterator = iter(loader)
    if loader.num_workers:
        _watched.add(iterator)
        _explain_signals()
    return _guarded(loader, iterator), weakref.ref(iterator)


def _guarded(loader: "DataLoader[Any]", iterator: Iterator[Any]) -> Iterator[Any]:
    failed = False

    def noted(message: Any) -> Any:
        nonlocal failed
        failed = isinstance(message, WorkerError)
        return message

    try:
        with _explained(iterator):
            yield from map(noted, iterator)
    finally:
        if failed or _death(iterator):  # where shared memory is full, it is for the other workers too
            _end(loader, iterator)


def _end(loader: "DataLoader[Any]", iterator: Any) -> None:
    """End all workers. Left to the garbage collector, torch may wait 5 s for each where one is dead."""
    drop_iterator(loader)
    end_workers(iterator)
    for worker in worker_processes(iterator):
        _remove_shared_memory(worker.pid)


def _remove_shared_memory(pid: int) -> None:
    """Remove what a worker had allocated for a batch but not yet unlinked when it ended."""
    for file in SHARED_MEMORY.glob(f"torch_{pid}_*"):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(iterator: Any) -> Iterator[None]:
    try:
        yield
    except WorkerError:
        raise
    except (RuntimeError, OSError, EOFError) as error:
        try:
            death = _death(iterator, patience=2.0 if isinstance(error, ConnectionError | EOFError) else 0.0)
        except WorkerError as just_now:  # torch was told of it
            death = just_now
        told = death or no_room(error)
        if told is None:
            raise
        raise told from None


def _explain_signals() -> None:
    """Explain what torch raises when it is told of a dead child: in the main thread, anywhere in a training step."""
    global _explains
    handler = signal.getsignal(signal.SIGCHLD)
    if _explains or not callable(handler) or threading.current_thread() is not threading.main_thread():
        return

    def explain(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except RuntimeError:
            for iterator in _watched:
                if death := _death(iterator):
                    raise death from None
            raise

    signal.signal(signal.SIGCHLD, explain)
    _explains = True


def _death(iterator: Any, patience: float = 0.0) -> WorkerError | None:
    """Return what to say of the first dead worker, if there is one within ``patience`` seconds.

    A worker that is killed while it hands over a batch breaks the connection a moment before it is dead.
    """
    workers = worker_processes(iterator)
    if patience and workers:
        dying = multiprocessing.connection.wait([worker.sentinel for worker in workers], patience)
        for worker in workers:
            worker.join(patience if worker.sentinel in dying else 0.0)
    return next((_error(worker.pid, worker.exitcode) for worker in workers if worker.exitcode), None)


def _error(pid: int, exit_code: int) -> WorkerError:
    if exit_code > 0:
        return WorkerError(f"A worker (pid {pid}) ended with exit code {exit_code}.", UNKNOWN)
    name = signal.Signals(-exit_code).name
    return WorkerError(f"A worker (pid {pid}) was killed by {name}.", CAUSES.get(-exit_code, UNKNOWN))
