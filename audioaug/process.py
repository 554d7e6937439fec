"""Process-wide changes: every signal handler, hook and allocator setting of audioaug, and one switch for all.

With ``AUDIOAUG_PATCHES=off`` (or ``0``) in the environment none of them is made: everything runs as it would with plain
Python and torch. ``name``: what is changed, what for, and when it is undone.

In the training process:

- ``explain_worker_deaths``: torch's handler of SIGCHLD is wrapped, so that the error names the signal that killed a
  worker and its likely cause, and does not interrupt what would leave a lock or a file. Stays.
- ``listen_for_interrupts``: ``sys.unraisablehook`` is wrapped, so that a Ctrl-C that Python drops while it deletes an
  object ends training at the next batch. Stays; everything else goes to the hook before it.
- ``keep_some_freed_memory``: glibc keeps up to 64 MiB of freed memory for the next batch. Stays.
- ``continue_at_exit``: workers that are stopped (SIGSTOP) when Python exits are continued, so that they end.
- ``call_after_workers``: shared memory of workers that Python ends when it exits is removed once they have ended.
- ``hold_interrupts``: SIGINT is blocked in the calling thread while workers are started, and delivered afterwards.
- ``hold_collection``: garbage is not collected while workers are started: before a worker's first line, that could end
  the workers of another Loader.
- ``share_temporary_folder``: workers share the temporary folder of multiprocessing, which is removed even if one is
  killed. Removed when Python exits.

In each worker, which ends with them:

- ``start_worker``: Ctrl-C is ignored, threads that lose the connection end without a traceback, torch, OpenMP and BLAS
  get one thread, objects copied by the fork are exempt from garbage collection, and freed memory is kept. A thread
  waits for the training process to end, and then ends the worker.

In each rank that follows rank 0 of an ``audioaug advise``, which ends with it:

- ``leave_interrupts_to_rank_0``: Ctrl-C is ignored; rank 0 ends the others.

While a command runs:

- ``Interrupt``: the handler of SIGINT and ``sys.unraisablehook`` are replaced. Undone when the block is left.
- ``skip_last_collection``: objects are exempt from the garbage collection at exit, unless Triton is imported. The
  process ends.
- ``escape_unencodable``: what is printed may contain characters that the encoding of stdout lacks. The process ends.

Not covered by the switch, because a result depends on it or it is undone after each use:

- torch's number of threads, during an iteration by a plan's ``threads`` (``loader/processes.py``), and in the commands
  ``verify`` and ``advise``;
- the threads of compiled loops, which run in torch's own OpenMP, called through ctypes (``dsp/loops.py``);
- global random generators, seeded for one call of a reference transform and restored (``engine/cpu.py``);
- Python's random generator, restored after imports that draw from it (``keep_random_state``).

Private attributes of torch are only read; two methods of a DataLoader's own queues are replaced, in the process that
receives from them (``internals.py``).
"""

import atexit
import codecs
import contextlib
import ctypes
import functools
import gc
import io
import json
import multiprocessing.queues
import multiprocessing.util
import os
import platform
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

from audioaug.errors import WorkerError

SWITCH = "AUDIOAUG_PATCHES"

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt`` in glibc's malloc.h."""

LATE = 5.0
"""Seconds after which a dropped Ctrl-C does not end a loop that begins then, such as that of the next notebook cell."""

LARGEST_THRESHOLD = 2**31 - 1

LARGEST_KEPT_BLOCK = 2**25 - 2**14
"""Bytes: glibc serves blocks of up to 32 MiB from memory that it keeps."""

_wrapped_sigchld = False
_postponed_death = False
_listening = threading.Event()
_collects = False
"""In a worker that was forked: whether the training process collects garbage."""
_interrupted_at: float | None = None
_stoppable: "weakref.WeakSet[Any]" = weakref.WeakSet()


def patches_enabled() -> bool:
    """Return whether process-wide changes may be made: unless ``AUDIOAUG_PATCHES`` is ``off`` or ``0``."""
    return os.environ.get(SWITCH, "").strip().lower() not in ("0", "off", "false", "no")


def explain_worker_deaths(find_death: Callable[[], Exception | None]) -> None:
    """Replace the error that torch's SIGCHLD handler raises by the one that ``find_death`` returns, if it returns one.

    torch's handler raises in the main thread, anywhere in a training step. In ``put`` of a queue to a worker, where
    it could leave a lock taken or a thread that nothing ends, and in ``tempfile``, which torch calls when a connection
    breaks, the error is postponed until ``raise_postponed_death``.
    """
    global _wrapped_sigchld
    handler = signal.getsignal(signal.SIGCHLD)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if _wrapped_sigchld or not patches_enabled() or not callable(handler) or not in_main_thread:
        return

    def explain(number: int, frame: FrameType | None) -> None:
        global _postponed_death
        if _must_finish(frame):
            _postponed_death = True
            return
        try:
            handler(number, frame)
        except RuntimeError:
            if death := find_death():
                raise death from None
            raise

    signal.signal(signal.SIGCHLD, explain)
    _wrapped_sigchld = True


def _must_finish(frame: FrameType | None) -> bool:
    put = multiprocessing.queues.Queue.put.__code__
    while frame is not None and frame.f_code is not put and frame.f_globals.get("__name__") != "tempfile":
        frame = frame.f_back
    return frame is not None


def raise_postponed_death() -> None:
    """Raise the error about a dead worker that was postponed, if there is one."""
    global _postponed_death
    if _postponed_death and threading.current_thread() is threading.main_thread():
        _postponed_death = False
        signal.raise_signal(signal.SIGCHLD)


def listen_for_interrupts(is_known: Callable[[Any], bool] = lambda unraisable: False) -> None:
    """Note each ``KeyboardInterrupt`` that Python drops from now on.

    Python cannot raise while it deletes an object: it calls ``sys.unraisablehook`` and continues. Such objects are
    deleted with every batch that comes from a worker. The death of a worker is not printed either: torch finds it again
    when it waits for the batch. What ``is_known`` returns true for is not printed: its cause is raised elsewhere.

    To be called when a loop over batches begins: an older Ctrl-C was meant for another loop, and is forgotten.
    """
    global _interrupted_at
    if _interrupted_at is not None and time.monotonic() - _interrupted_at > LATE:
        _interrupted_at = None
    if _listening.is_set() or not patches_enabled():
        return
    _listening.set()
    previous = sys.unraisablehook

    def note(unraisable: Any) -> None:
        global _interrupted_at
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _interrupted_at = time.monotonic()
        elif not isinstance(unraisable.exc_value, WorkerError) and not is_known(unraisable):
            previous(unraisable)

    sys.unraisablehook = note


def raise_dropped_interrupt(error: BaseException | None = None) -> None:
    """Raise ``KeyboardInterrupt`` in the main thread if Python has dropped one, or if an error has taken its place.

    What a signal handler of torch raises about a worker that Ctrl-C ended, too, can come while that is on its way.
    """
    global _interrupted_at
    if error is not None and isinstance(error.__context__, KeyboardInterrupt):
        raise KeyboardInterrupt from None
    if _interrupted_at is not None and threading.current_thread() is threading.main_thread():
        _interrupted_at = None
        raise KeyboardInterrupt


class Interrupt:
    """Context in which Ctrl-C raises ``KeyboardInterrupt`` in this process only, and ``check`` raises it again.

    Python drops what is raised while it forks a process or deletes an object, and prints a traceback instead. Workers
    that have just been forked would each print one, too.
    """

    def __init__(self) -> None:
        self._pid, self._pressed = os.getpid(), False
        self._handler: Any = None
        self._hook: Any = None

    def __enter__(self) -> "Interrupt":
        if patches_enabled():
            if threading.current_thread() is threading.main_thread():
                self._handler = signal.signal(signal.SIGINT, self._on_signal)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        return self

    def __exit__(self, *_: object) -> None:
        if self._hook is not None:
            sys.unraisablehook = self._hook
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed."""
        if self._pressed:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self._pressed = True
            raise KeyboardInterrupt

    def _on_unraisable(self, unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)


def start_worker(worker_id: int) -> None:
    """Set up a DataLoader worker: its ``worker_init_fn``.

    Garbage that a fork has copied is left to the training process: it may hold another Loader, whose workers would be
    ended.
    """
    if not patches_enabled():
        return
    gc.freeze()
    if _collects:
        gc.enable()
    import torch
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training process ends its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which hold_interrupts has blocked
    sys.excepthook = _print_unless_disconnected
    threadpool_limits(1)
    torch.set_num_threads(1)
    keep_freed_memory()
    _end_with_parent()


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let a Ctrl-C wait in this thread until workers have been started: a worker cannot ignore it from its first line.

    Workers inherit that it is blocked, until ``start_worker`` ignores it.
    """
    if not patches_enabled():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def hold_collection() -> Iterator[None]:
    """Let garbage wait until workers have been started; they inherit that, until ``start_worker`` exempts it."""
    global _collects
    if not patches_enabled() or not gc.isenabled():
        yield
        return
    gc.disable()
    _collects = True
    try:
        yield
    finally:
        _collects = False
        gc.enable()


def _end_with_parent() -> None:
    """End this worker when the training process ends.

    torch's own workers stay if they were started by a fork server, or if what they send does not fit into a pipe.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


def leave_interrupts_to_rank_0() -> None:
    """Ignore Ctrl-C in a rank that follows rank 0, which ends the others."""
    if patches_enabled():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _print_unless_disconnected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception, unless the training process has closed the connection, as it does after Ctrl-C."""
    if not isinstance(error, ConnectionError):
        sys.__excepthook__(kind, error, trace)


def keep_freed_memory() -> bool:
    """Let this process keep all memory that it frees; return whether that was possible (glibc can).

    For workers, whose peak does not grow. Memory from the system costs a page fault for each 4 KiB: measured on ten
    ops, a third of their time.
    """
    if platform.libc_ver()[0] != "glibc" or not patches_enabled():
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(parameter, LARGEST_THRESHOLD) == 1 for parameter in (TRIM_THRESHOLD, MMAP_THRESHOLD))


@functools.cache
def keep_some_freed_memory() -> None:
    """Let this process keep up to 64 MiB of the memory that it frees; limits that the user has set stay.

    glibc returns free memory at the end of its heap to the system if that is more than twice the largest block, of at
    most 32 MiB, that was allocated on its own and freed. So such a block is allocated and freed here, untouched. Other
    allocators are not affected.
    """
    if patches_enabled():
        import torch

        torch.empty(LARGEST_KEPT_BLOCK, dtype=torch.uint8)


def share_temporary_folder() -> None:
    """Create the temporary folder of multiprocessing, so that workers started later use it too."""
    if patches_enabled():
        multiprocessing.util.get_temp_dir()


def continue_at_exit(workers: Iterable[Any]) -> None:
    """Continue these worker processes if they are stopped when Python exits.

    A stopped process does not end by SIGTERM, and multiprocessing waits for each of its processes without a limit.
    """
    if patches_enabled():
        _stoppable.update(workers)
        atexit.unregister(_continue_workers)
        atexit.register(_continue_workers, os.getpid())


def _continue_workers(parent: int) -> None:
    for worker in tuple(_stoppable) if os.getpid() == parent else ():  # not in a copy of this process
        with contextlib.suppress(ProcessLookupError, ValueError):  # the latter: it has been closed
            if worker.exitcode is None:
                os.kill(worker.pid, signal.SIGCONT)


def call_after_workers(function: Callable[[], object]) -> None:
    """Let a function be called when Python exits, after multiprocessing has ended the workers that are left."""
    if patches_enabled():
        _call_after_workers(function, os.getpid())


@functools.cache
def _call_after_workers(function: Callable[[], object], parent: int) -> None:  # once in each process
    multiprocessing.util.Finalize(None, function, exitpriority=-1)


def skip_last_collection() -> None:
    """Spare Python the garbage collection at exit, which takes about a second once torch and librosa are imported."""
    if patches_enabled():
        atexit.register(_keep_all_objects)


def _keep_all_objects() -> None:
    if "triton" not in sys.modules:  # whose version 3.9 prints a page about its own objects that are left at the end
        gc.freeze()


def escape_unencodable() -> None:
    """Print characters that the encoding of stdout lacks as JSON escapes, and lines of tables as hyphens."""
    codecs.register_error("audioaug", _escape)
    if patches_enabled() and isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(OSError, ValueError):  # it is closed, or its file is another one now
            sys.stdout.reconfigure(errors="audioaug")


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    plain = {"\N{BOX DRAWINGS LIGHT HORIZONTAL}": "-", "\N{HORIZONTAL ELLIPSIS}": "."}
    lacking = error.object[error.start : error.end]
    return "".join(plain.get(each, json.dumps(each)[1:-1]) for each in lacking), error.end


@contextlib.contextmanager
def keep_random_state() -> Iterator[None]:
    """Restore Python's random generator afterwards: importing rich draws from it, and parts of librosa import that."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)
