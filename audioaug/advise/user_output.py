"""User output: what a model file, a dataset or a library prints while the advisor runs goes to stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def printed_to_stderr() -> Iterator[None]:
    """Send what is printed to stderr, since stdout is for the report.

    This holds for this process and those that it starts meanwhile, and for output that does not come from Python.
    """
    sys.stdout.flush()
    with redirect_stdout(sys.stderr), _file_descriptor(1, replacement=2):
        yield


@contextmanager
def _file_descriptor(number: int, replacement: int) -> Iterator[None]:
    """Let a file descriptor be a copy of another one; where either is closed, leave it as it is."""
    try:
        saved = os.dup(number)
        os.dup2(replacement, number)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
        os.dup2(saved, number)
        os.close(saved)
