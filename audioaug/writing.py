"""Files: read a regular file, and write one atomically."""

import errno
import os
import secrets
import stat
from pathlib import Path

from audioaug.errors import OutputError


def read_file(path: str | Path) -> bytes:
    """Return the content of a regular file: a pipe or a device could block for ever, or never end.

    Raises:
        OSError: it cannot be read; ``strerror`` says why.
    """
    check_regular(path)
    return Path(path).read_bytes()


def check_regular(path: str | Path) -> None:
    """Raise ``OSError`` if the path names something else than a file or a folder, such as a pipe, or nothing at all."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "Not a regular file")


def write_file(text: str, path: str | Path) -> None:
    """Write a file atomically: whatever interrupts it, the path holds the old content or the new one, whole.

    A link is followed to the file that it names. What is no regular file, such as a terminal, is written to directly.

    Raises:
        OutputError: it cannot be written.
    """
    content = text.encode("utf-8", "backslashreplace")  # file names may be no UTF-8
    try:
        mode = _mode(path)
        if mode is None or stat.S_ISREG(mode):
            _replace(Path(os.path.realpath(path)), content, mode)
        else:
            Path(path).write_bytes(content)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.") from None


def check_writable(path: str | Path) -> None:
    """Raise ``OutputError`` unless the file can be written; what it holds stays, and nothing is left behind."""
    try:
        existed = _mode(path) is not None
        with Path(path).open("a", encoding="utf-8"):
            pass
        if not existed:
            os.unlink(os.path.realpath(path))
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name a file in a folder that exists.") from None


def _mode(path: str | Path) -> int | None:
    """Return the type and permissions of the file; ``None`` if there is none."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _replace(file: Path, content: bytes, mode: int | None) -> None:
    new = file.with_name(f".audioaug-{secrets.token_hex(8)}.new")  # which no other process can have planted
    try:
        with new.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            new.chmod(stat.S_IMODE(mode))
        new.replace(file)
    except PermissionError:  # of the folder; the file itself may be writable
        file.write_bytes(content)
    finally:
        new.unlink(missing_ok=True)
