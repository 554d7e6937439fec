"""The command line that all experiments share: sizes, device, JSON, progress on stderr, one sentence for an error."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from audioaug.errors import AudioaugError, OutputError
from audioaug.records import read_record, write_record

Say = Callable[[str], None]
"""Takes what is being measured now."""

Record = TypeVar("Record")


def quiet(_: str) -> None:
    """Say nothing."""


def experiment(doc: str | None) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function of ``quick``, ``device``, ``json_`` and ``load``; its help is the first line."""

    def decorate(function: Callable[..., None]) -> click.Command:
        for option in reversed(_OPTIONS):
            function = option(function)
        first = (doc or "").partition("\n\n")[0]
        return click.command(help=first, context_settings={"max_content_width": 100})(function)

    return decorate


_OPTIONS = (
    click.option("--quick", is_flag=True, help="Measure less, and less surely."),
    click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."),
    click.option("--json", "json_", metavar="FILE", help="Write the results as JSON."),
    click.option("--load", metavar="FILE", help="Show the JSON of an earlier run instead of measuring."),
)


def perform(
    kind: type[Record],
    measure: Callable[[Say], Record],
    to_text: Callable[[Record], str],
    json_: str | None,
    load: str | None,
    also: str | None = None,
) -> None:
    """Measure or load, write, print. Ends the process with the error's exit code, or 130 where it was interrupted.

    Args:
        kind: of the record that is measured.
        measure: does it, and says how far it is.
        to_text: lays a record out for the terminal.
        json_: a file for the record.
        load: a file to read it from instead.
        also: a file that ``measure`` will write.
    """
    warnings.filterwarnings("ignore", module="audiomentations|librosa|torch_audiomentations|julius|torchaudio")
    warnings.filterwarnings("ignore", message="This DataLoader will create", module="torch")
    try:
        for path in filter(None, (json_, also)):
            _open_for_writing(path)  # before minutes are spent
        found = read_record(load, kind) if load else measure(_tell)
        if json_:
            write_record(found, json_)
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise SystemExit(130) from None
    click.echo(to_text(found))


def _tell(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def _open_for_writing(path: str) -> None:
    try:
        with Path(path).open("a"):
            pass
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name a file in a folder that exists.") from None
