"""``audioaug``, or ``python -m audioaug``: the commands advise, verify, doctor, monitor and compare.

The module of a command is imported when the command is named; none of them imports torch for its ``--help``.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from audioaug import __version__
from audioaug.command import run

COMMANDS = {
    "advise": "audioaug.advise.__main__:advise",
    "verify": "audioaug.verify.__main__:main",
    "doctor": "audioaug.doctor:main",
    "monitor": "audioaug.monitor:monitor",
    "compare": "audioaug.compare:compare",
}
"""Where each command is defined; ``python -m audioaug.NAME`` is the same as ``audioaug NAME``."""


class Commands(click.Group):
    """A group that imports a command when it is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; ``None`` if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=Commands)
@click.version_option(__version__)
def commands() -> None:
    """Find out where audio augmentation should run, check that its builds are equivalent, and watch a training run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; every error is one sentence on stderr."""
    return run(commands, arguments)


if __name__ == "__main__":
    sys.exit(main())
