"""Writing: write files atomically, read regular files, and where the cache is."""

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from audioaug.errors import OutputError, UsageError

TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
"""Errors of the system that no file is at fault for: the process, or the system, has too many open files."""


def read_file(path: str | Path) -> bytes:
    """Return the content of a regular file; a pipe or a device could block, or never end.

    Raises:
        OSError: it cannot be read; ``strerror`` says why.
    """
    check_regular(path)
    return Path(path).read_bytes()


def read_input(path: str | Path) -> bytes:
    """Return the content of a regular file that the user names; raise ``UsageError`` if it cannot be read."""
    try:
        return read_file(path)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from None


def cache_file(name: str) -> Path | None:
    """Return a path in ``$XDG_CACHE_HOME/audioaug`` or ``~/.cache/audioaug``; ``None`` without a home folder."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache") / "audioaug" / name
    except RuntimeError:
        return None


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal with colours and a cursor to move, unlike ``TERM=dumb``.

    Python has ``None`` for a stream that was closed before it started.
    """
    return stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def keep_in_cache(text: str, file: Path | None) -> None:
    """Write a ``cache_file``, if there is one; a folder that cannot be written to is left alone."""
    if file is not None:
        with suppress(OSError, OutputError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(text, file)


def check_regular(path: str | Path) -> None:
    """Raise ``OSError`` unless the path names a regular file or a folder."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "Not a regular file")


def write_file(text: str, path: str | Path) -> None:
    """Write a file atomically: if it is interrupted, the path holds either the old or the new content.

    A link is followed to its target. Two cases are not atomic: a file in a folder without write permission is
    overwritten in place, and anything but a regular file, such as a terminal, is written to directly.

    Raises:
        OutputError: it cannot be written.
    """
    content = text.encode("utf-8", "backslashreplace")  # file names need not be UTF-8
    try:
        mode = _mode(path)
        if mode is None or stat.S_ISREG(mode):
            _replace(Path(os.path.realpath(path)), content, mode)
        else:
            Path(path).write_bytes(content)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.") from None


def is_replaceable(path: str | Path) -> bool:
    """Return whether the file can be written again: unless it exists and is a pipe or a device, which append."""
    mode = _mode(path)
    return mode is None or stat.S_ISREG(mode)


def check_writable(path: str | Path) -> None:
    """Raise ``OutputError`` unless the file can be written; its content is kept, and no new file is left behind."""
    try:
        mode = _mode(path)
        if mode is not None and stat.S_ISFIFO(mode):  # opened twice, it would end after the first time
            return
        with Path(path).open("a", encoding="utf-8"):
            pass
        if mode is None:
            os.unlink(os.path.realpath(path))
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name a file in a folder that exists.") from None


def _mode(path: str | Path) -> int | None:
    """Return the type and permissions of the file; ``None`` if it does not exist."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _replace(file: Path, content: bytes, mode: int | None) -> None:
    # unpredictable, so that no other process can have created it
    new = file.with_name(f".audioaug-{secrets.token_hex(8)}.new")
    try:
        with new.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            new.chmod(stat.S_IMODE(mode))
        new.replace(file)
    except PermissionError:  # no new file in this folder, but the file itself may be writable
        file.write_bytes(content)
    finally:
        new.unlink(missing_ok=True)
