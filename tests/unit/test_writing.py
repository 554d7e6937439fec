"""Files are written atomically."""

import os
from pathlib import Path

import pytest

from audioaug.writing import write_file


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
