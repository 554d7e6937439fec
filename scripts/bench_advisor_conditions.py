"""Conditions under which a workload is judged: other programs, constantly or in turns, and a bad number of threads."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from audioaug.loader.processes import torch_threads
from audioaug.measure import usable_cores

HOG = """
import os, sys, time
busy, idle, watched = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
while True:
    os.kill(watched, 0)
    end = time.monotonic() + busy
    while time.monotonic() < end: pass
    time.sleep(idle)
"""
"""A program that keeps a core busy in turns. It ends by the exception when the process that it watches has ended."""


@contextmanager
def hogs(count: int, busy: float = 1.0, idle: float = 0.0) -> Iterator[None]:
    """Run programs that use a core for ``busy`` seconds, then none for ``idle`` seconds, until the end of the block.

    A shell that has ended started them: they are not our children.
    """
    arguments = [sys.executable, "-c", HOG, str(busy), str(idle), str(os.getpid())]
    start = ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *arguments]
    running = [int(subprocess.run(start, capture_output=True, check=True).stdout) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def bad_threads(usual: int) -> AbstractContextManager[None]:
    """Set torch to a bad number of threads: one where more are usual, else twice the cores."""
    return torch_threads(1 if usual > 1 else 2 * int(usable_cores()))


CONDITIONS: Mapping[str, Callable[[int], AbstractContextManager[None]]] = {
    "quiet": lambda threads: nullcontext(),
    "busy": lambda threads: hogs(1),
    "comes and goes": lambda threads: hogs(1, busy=5.0, idle=5.0),
    "threads": bad_threads,
}
"""What holds while a workload is judged, by name; each is given the workload's usual number of torch threads."""
