"""Commands: run one of click's; every error is one sentence on stderr, and an exit code."""

import sys
from collections.abc import Sequence

import click

from audioaug.errors import AudioaugError


def run(command: click.Command, arguments: Sequence[str] | None, name: str, interrupted: str = "interrupted") -> int:
    """Run a command and return its exit code.

    Args:
        command: what to run.
        arguments: of the command line; this process's own if ``None``.
        name: what the help calls it.
        interrupted: what is said after Ctrl-C.
    """
    try:
        command.main(args=arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AudioaugError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print(interrupted, file=sys.stderr)
        return 130
    return 0
