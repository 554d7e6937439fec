"""Files are written atomically."""

import io
import os
from pathlib import Path

import pytest

from audioaug.errors import OutputError
from audioaug.writing import check_writable, is_terminal, write_file


def test_write_is_atomic(tmp_path, monkeypatch) -> None:
    file = tmp_path / "report.json"

    def interrupt(_):
        raise KeyboardInterrupt

    write_file("old\n", file)
    file.chmod(0o640)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_file("new\n", file)
    assert file.read_text() == "old\n" and list(tmp_path.iterdir()) == [file]
    link = tmp_path / "link.json"
    link.symlink_to(file)
    write_file("new\n", link)
    assert file.read_text() == "new\n" and link.is_symlink() and file.stat().st_mode & 0o777 == 0o640
    write_file("gone\n", "/dev/null")
    assert not Path("/dev/null").is_file()


def test_check_keeps_a_file_and_leaves_no_new_one(tmp_path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("old")
    check_writable(old)
    check_writable(new)
    assert list(tmp_path.iterdir()) == [old] and old.read_text() == "old"
    with pytest.raises(OutputError, match=r"Cannot write .*none/new\.json: .* Name a file in a folder that exists\."):
        check_writable(tmp_path / "none" / "new.json")


def test_a_dumb_terminal_is_like_none(monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    for term, expected in (("xterm", True), ("dumb", False), ("unknown", False)):
        monkeypatch.setenv("TERM", term)
        assert is_terminal(stream) is expected
    monkeypatch.setenv("TERM", "xterm")
    assert not is_terminal(io.StringIO()) and not is_terminal(None)
