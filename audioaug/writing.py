"""Writing: a file is there as a whole, the old one or the new one, whatever interrupts it."""

import os
from pathlib import Path

from audioaug.errors import OutputError


def write_file(text: str, path: str | Path) -> None:
    """Write a file at once: an interruption leaves the old one or the new one, whole.

    Raises:
        OutputError: it cannot be written.
    """
    file = Path(path)
    try:
        if file.exists() and not file.is_file():  # such as a terminal
            file.write_text(text, encoding="utf-8")
        else:
            _replace(file.resolve(), text)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.") from None


def _replace(file: Path, text: str) -> None:
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        if file.exists():
            new.chmod(file.stat().st_mode)
        new.replace(file)
    except PermissionError:  # of the folder; the file itself may be another matter
        file.write_text(text, encoding="utf-8")
    finally:
        new.unlink(missing_ok=True)
