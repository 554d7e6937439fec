"""Failures: an op that raises, an example that cannot be read or a worker that dies becomes one clear error."""

import copy
import errno
import multiprocessing.connection
import re
import shutil
import signal
import time
import traceback
import typing
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Literal

import torch

from audioaug.core import Draws, Key
from audioaug.engine import Preparer, WorkerChain
from audioaug.errors import (
    AudioaugError,
    AudioaugWarning,
    DataError,
    OpError,
    UsageError,
    WorkerError,
    first_line,
    printable_lines,
)
from audioaug.internals import (
    calling_frame,
    end_workers,
    receive_whole_messages,
    report_worker_deaths,
    worker_processes,
)
from audioaug.measure.host import most_open_files
from audioaug.process import call_after_workers, continue_at_exit, explain_worker_deaths

# An op raises an exception

LISTED = 8
"""At most this many examples of a batch are listed in an error."""

DEVICE_FAILED = ("CUDA error", "Triton Error [CUDA]", "cuFFT error")
"""Texts of errors after which every later call on the device fails too."""


@contextmanager
def op_errors(worker: WorkerChain, key: Key, epoch: int) -> Iterator[None]:
    """Turn an exception of an op on one example into an ``OpError``; a ``DataError`` gets the example's key."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"Augmenting example {key!r}: {error.message}", error.next_step) from None
    except AudioaugError:
        raise
    except Exception as error:
        raise OpError(
            f"Example {key!r} of epoch {epoch}: {_running_op(worker)} raised {_summary(error)}.",
            f"To reproduce it: audioaug.build_cpu(chain, {worker.cut}, seed={worker.seed})(samples, key={key!r}, "
            f"epoch={epoch}), with this example's samples.",
        ) from error


@contextmanager
def batch_op_errors(
    ops: Preparer, keys: Sequence[Key], epoch: int, seed: int, run_alone: Callable[[int, Draws], object]
) -> Iterator[None]:
    """Turn an exception of an op on a batch into an ``OpError``; our own errors pass unchanged.

    Args:
        ops: the part of the chain that runs.
        keys: of the examples.
        epoch: of the draws.
        seed: of the draws.
        run_alone: runs the same ops on one example, given its row and its draws. It finds the first example that fails
            on its own; if none does, the error names the whole batch. Not called when memory is short, or the device
            has failed.
    """
    try:
        yield
    except AudioaugError:
        raise
    except Exception as error:
        raise _batch_op_error(ops, keys, epoch, seed, run_alone, error) from error


def _batch_op_error(
    ops: Preparer,
    keys: Sequence[Key],
    epoch: int,
    seed: int,
    run_alone: Callable[[int, Draws], object],
    error: Exception,
) -> OpError:
    name = " + ".join(node.op.name for node in ops.running) or "the device part"
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        traceback.clear_frames(error.__traceback__)  # which hold the tensors that filled it
        return OpError(
            f"{name} needs more memory for a batch of {len(keys)} than there is: {first_line(error)}.",
            "Use smaller batches, or run it in workers (a plan with a larger cut).",
        )
    for row, key in enumerate([] if any(text in str(error) for text in DEVICE_FAILED) else keys):
        draws = ops.chain.draw([key], epoch, seed)
        try:
            run_alone(row, draws)
        except Exception as error_alone:
            return OpError(
                f"Example {key!r} of epoch {epoch}, in a batch of {len(keys)}: {_applied_ops(ops, draws) or name} "
                f"raised {_summary(error_alone)}.",
                f"To reproduce it: {_reproducing_call(ops, key, epoch, seed)}, with this example's samples.",
            )
    more = f" and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
    return OpError(
        f"Examples {', '.join(map(repr, keys[:LISTED]))}{more} of epoch {epoch}, as a batch: {name} raised "
        f"{_summary(error)}, but on none of them alone.",
        f"Their draws: chain.draw({list(keys)}, epoch={epoch}, seed={seed}).",
    )


def _applied_ops(ops: Preparer, draws: Draws) -> str:
    """Name the running ops that these draws apply to their one example, each with its draw."""
    names = []
    for node in ops.running:
        if draws[f"{node.path}:apply"][0]:
            values = [f"{name}={draws[f'{node.path}:{name}'][0].item()!r}" for name in node.distributions]
            names.append(f"{node.op.name} with {', '.join(values)}" if values else node.op.name)
    return " + ".join(names)


def _reproducing_call(ops: Preparer, key: Key, epoch: int, seed: int) -> str:
    """Return the line of code that runs this part of the chain on one example, after the part before it."""
    before = f"audioaug.build_cpu(chain, {ops.start}, seed={seed})(samples, key={key!r}, epoch={epoch})"
    stop = "" if ops.stop is None else f", stop={ops.stop}"
    engine = "" if ops.fused else ", engine='torch-audiomentations'"
    module = f"audioaug.build_device(chain, {ops.start}{engine}, seed={seed}{stop})"
    return f"{module}(torch.from_numpy({before})[None], draws=chain.draw([{key!r}], {epoch}, {seed}))"


def _running_op(worker: WorkerChain) -> str:
    assert worker.running is not None
    op, draw = worker.running
    values = ", ".join(f"{name}={value[0].item()!r}" for name, value in draw.items())
    return f"{op.name} with {values}" if values else op.name


def _summary(error: Exception) -> str:
    """Return type, message and line of an exception: a worker's traceback does not reach the training process."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} ({first_line(error)}; {frame.filename}, line {frame.lineno})"


# An example cannot be read

OnError = Literal["skip", "replace", "raise"]
"""What happens when an example cannot be read."""

DECODERS = ("soundfile", "torchcodec", "torchaudio._backend", "torchaudio.io")
"""The modules whose RuntimeErrors say that a file cannot be decoded."""

TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
"""Errors of the system that no file is at fault for: the process, or the system, has too many open files."""


def is_unreadable(error: BaseException | None) -> bool:
    """Return whether an exception means that an example cannot be decoded, rather than a mistake in the user's code.

    That is a ``DataError``, an ``OSError``, or a ``RuntimeError`` of soundfile, torchcodec or torchaudio: of a type of
    theirs, raised by them, or raised from such an error.
    """
    if isinstance(error, DataError | OSError):
        return getattr(error, "errno", None) not in TOO_MANY_FILES
    if not isinstance(error, RuntimeError):
        return False
    innermost = next((name for name in reversed(_modules_of(error)) if not name.startswith("torch.")), "")
    modules = type(error).__module__, innermost
    from_decoder = any(f"{module}.".startswith(f"{decoder}.") for module in modules for decoder in DECODERS)
    return from_decoder or is_unreadable(error.__cause__)


def _modules_of(error: BaseException) -> list[str]:
    """Return the modules that an exception has passed through, the innermost last."""
    return [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]


def torchcodec_error(error: Exception) -> UsageError | None:
    """Return a clear error if an exception means that torchcodec is missing or cannot be loaded; else ``None``."""
    missing = isinstance(error, ImportError) and "torchcodec" in str(error).lower()
    unloadable = isinstance(error, RuntimeError) and "Could not load libtorchcodec" in str(error)
    if not (missing or unloadable):
        return None
    return UsageError(
        "Reading an example needs torchcodec, which cannot be used here "
        f"({type(error).__name__}: {first_line(error)}).",
        "Install torchcodec and FFmpeg, or let the Loader decode with soundfile: for a Hugging Face dataset, "
        "cast_column('audio', Audio(decode=False)).",
    )


class SkippedExamples:
    """Counts examples that were left out or replaced, and warns of the first.

    Raises:
        UsageError: there is no such ``on_error``.
    """

    def __init__(self, on_error: OnError) -> None:
        if on_error not in typing.get_args(OnError):
            raise UsageError(f"Expected on_error to be 'skip', 'replace' or 'raise', got {on_error!r}.")
        self.on_error, self.count, self.last = on_error, 0, ""

    def add(self, reasons: Sequence[str]) -> None:
        """Count examples, given a sentence on each; warn of the first at the user's loop over the batches."""
        if reasons and not self.count:
            outcome = "It was replaced by another example" if self.on_error == "replace" else "It was left out"
            warnings.warn(
                f"{reasons[0]} {outcome} (on_error={self.on_error!r}); Loader.skipped counts such examples.",
                AudioaugWarning,
                stacklevel=user_stacklevel(),
            )
        self.count += len(reasons)
        self.last = printable_lines(reasons[-1]) if reasons else self.last

    def __str__(self) -> str:
        if not self.count:
            return "Every example could be read."
        outcome = "replaced" if self.on_error == "replace" else "left out"
        subject = (
            "1 example could not be read and was"
            if self.count == 1
            else (f"{self.count} examples could not be read and were")
        )
        return f"{subject} {outcome}. The last one: {self.last}"


def user_stacklevel() -> int:
    """Return the ``stacklevel`` with which a warning of the calling function names the user's line."""
    frame = calling_frame(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("audioaug."):
        frame, level = frame.f_back, level + 1
    return level


# A worker dies

SHARED_MEMORY = Path("/dev/shm")
"""Where torch's workers allocate batches, on Linux, as ``torch_PID_...``."""

MORE_SHARED_MEMORY = "Make it larger (docker run --shm-size=8g), or use fewer workers or a smaller prefetch_factor."
LESS_MEMORY = "Use fewer workers, smaller batches or a smaller prefetch_factor, or raise the limit (ulimit -v)."

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
NO_FILE_LEFT = re.compile(
    r"shared memory object .*Too many open files|Too many open files\. Communication|received \d+ items of ancdata"
)
"""What torch says in a worker and in the training process, and Python there, if a batch cannot be opened."""
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


def shared_memory_error(error: Exception) -> WorkerError | None:
    """Return a clear error if a batch does not fit in shared memory, or in the memory of this process; else ``None``.

    The file that torch could not fill or map, and leaves behind, is removed.
    """
    is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    is_full = is_full or "unable to allocate shared memory" in str(error)
    lacks_memory = re.search(r"unable to mmap \d+ bytes from file", str(error))
    if not is_full and not lacks_memory:
        return None
    if file := re.search(r"<(/torch_\w+)>", str(error)):
        SHARED_MEMORY.joinpath(file[1][1:]).unlink(missing_ok=True)
    if lacks_memory:
        return WorkerError("Too little memory is left for a batch that a worker sends.", LESS_MEMORY)
    room = ""
    if SHARED_MEMORY.exists():
        usage = shutil.disk_usage(SHARED_MEMORY)
        room = f" ({usage.free / 2**20:.1f} of {usage.total / 2**20:.1f} MiB are free)"
    return WorkerError(f"Shared memory, {SHARED_MEMORY}, is full: a batch does not fit{room}.", MORE_SHARED_MEMORY)


def open_files_error(error: Exception) -> WorkerError | None:
    """Return a clear error if torch or multiprocessing cannot open a pipe or a batch; ``None`` for any other."""
    in_libraries = _innermost_module(error).startswith(("torch.", "multiprocessing."))
    here = isinstance(error, OSError) and error.errno in TOO_MANY_FILES and in_libraries
    if not here and not NO_FILE_LEFT.search(str(error)):
        return None
    return WorkerError(
        "There are too many open files: a worker needs a few in the training process, and each tensor of a batch one; "
        f"the limit is {most_open_files()}.",
        "Raise the limit (ulimit -n 65536), keep fewer batches, or use fewer workers.",
    )


def _innermost_module(error: Exception) -> str:
    """Return the name of the module that raised an error."""
    return (_modules_of(error) or [""])[-1]


def _early_end(error: Exception) -> WorkerError | None:
    """Return an error for a worker that torch misses although it ended with exit code 0, as after ``os._exit(0)``."""
    found = EXITED.match(str(error))
    return found and WorkerError(f"A worker (pid {found[1]}) ended before its work was done.", UNKNOWN_CAUSE)


def _broken_connection(error: Exception, iterator: Any) -> WorkerError | None:
    """Return an error for a connection that a worker closed: while it started, or instead of sending a batch.

    Without an iterator, workers are being started.
    """
    in_connection = _innermost_module(error).startswith(("multiprocessing.", "torch.multiprocessing."))
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
