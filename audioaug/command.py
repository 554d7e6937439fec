"""Command: run a command of click; every error becomes one sentence on stderr and an exit code."""

import errno
import os
import sys
from collections.abc import Sequence

import click

from audioaug.errors import AudioaugError, UsageError, in_one_line
from audioaug.process import escape_unencodable, skip_last_collection

UNWRITABLE = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EFBIG, errno.EDQUOT)
"""Errors of writing to stdout; those of writing to another file are caught where that is opened."""


def run(command: click.Command, arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code.

    Args:
        command: what to run.
        arguments: of the command line; those of this process if ``None``.
    """
    skip_last_collection()
    escape_unencodable()
    try:
        code = _run(command, arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which Python flushes again at exit
        if error.errno != errno.EPIPE:  # as after `| head`
            print(f"error: Cannot write to standard output: {error.strerror}.", file=sys.stderr)
        return 1
    return code


def _run(command: click.Command, arguments: Sequence[str] | None) -> int:
    try:
        _check_current_folder()
        command.main(args=arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AudioaugError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:
        print(": ".join(["interrupted", *stop.args]), file=sys.stderr)
        exec("")  # `python -m` ends by SIGINT if the last exec was interrupted, as in many imports
        return 130
    except BaseException as error:  # such as a panic of a library in Rust, or pytest.exit
        if isinstance(error, Exception | SystemExit):
            raise
        print(f"error: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _check_current_folder() -> None:
    """Raise ``UsageError`` if the current folder has been deleted: MKL then ends Python when torch is imported."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"Cannot use the current folder: {error.strerror}.", "Change to one that exists.") from None
