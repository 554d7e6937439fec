"""Command: run a command of click; every error becomes one sentence on stderr and an exit code."""

import sys
from collections.abc import Sequence

import click

from audioaug.errors import AudioaugError
from audioaug.process import skip_last_collection


def run(command: click.Command, arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code.

    Args:
        command: what to run.
        arguments: of the command line; those of this process if ``None``.
    """
    skip_last_collection()
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
