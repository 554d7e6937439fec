"""Commands: run one of click's; every error is one sentence on stderr, and an exit code."""

import atexit
import gc
import sys
from collections.abc import Sequence

import click

from audioaug.errors import AudioaugError


def run(command: click.Command, arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code.

    Args:
        command: what to run; the help and its errors name it as the program was called.
        arguments: of the command line; this process's own if ``None``.
    """
    atexit.register(gc.freeze)  # or Python looks through all of torch and librosa once more before it ends: a second
    try:
        command.main(args=arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AudioaugError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:
        print(": ".join(["interrupted", *stop.args]), file=sys.stderr)
        return 130
    return 0
