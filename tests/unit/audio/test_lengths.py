"""Lengths of files: from headers, read once as long as a file does not change; from a manifest; of a folder's clips."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audioaug.audio import lengths as module
from audioaug.audio.folder import AudioFolder
from audioaug.audio.lengths import file_lengths
from audioaug.errors import DataError

DEMO = Path(__file__).parents[3] / "datasets" / "demo"


@pytest.fixture
def reads(monkeypatch, tmp_path):
    """The headers that were read; the cache is empty at first."""
    found, read = [], module.read_header

    def note(path):
        found.append(path)
        return read(path)

    monkeypatch.setattr(module, "read_header", note)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def write(folder, **seconds):
    folder.mkdir(exist_ok=True)
    for name, duration in seconds.items():
        soundfile.write(folder / f"{name}.wav", np.zeros(int(8000 * duration)), 8000)
    return tuple(str(folder / f"{name}.wav") for name in seconds)


def test_lengths_are_those_of_the_clips(reads):
    for rate in (16000, 44100):
        folder = AudioFolder(DEMO / "rooms", rate)
        found = [folder[place][0].shape[1] for place in range(len(folder))]
        assert np.abs(folder.lengths() - found).max() <= 1 and folder.lengths().dtype == np.int64
    folder = AudioFolder(DEMO / "rooms", 44100, seconds=0.7)
    reads.clear()
    assert folder.lengths().tolist() == [folder[0][0].shape[1]] * len(folder) and not reads


def test_headers_are_read_once(reads, tmp_path):
    files = write(tmp_path / "a", x=1, y=2)
    assert file_lengths(files, 16000).tolist() == [16000, 32000]
    assert sorted(reads) == sorted(files)
    assert file_lengths(files, 8000).tolist() == [8000, 16000]  # at another rate
    assert file_lengths(files[::-1], 8001).tolist() == [16002, 8001]  # rounded up
    assert len(reads) == 2
    assert file_lengths(write(tmp_path / "a", z=3) + files, 8000).tolist() == [24000, 8000, 16000]
    assert len(reads) == 3 and reads[-1].endswith("z.wav")


def test_changed_file_is_read_again(reads, tmp_path):
    files = write(tmp_path / "a", x=1, y=2)
    assert file_lengths(files, 8000).tolist() == [8000, 16000]
    write(tmp_path / "a", x=3)
    assert file_lengths(files, 8000).tolist() == [24000, 16000] and len(reads) == 3
    status = os.stat(files[1])
    write(tmp_path / "a", y=4)
    os.truncate(files[1], status.st_size)  # of the same size
    os.utime(files[1], ns=(0, status.st_mtime_ns + 1))
    file_lengths(files, 8000)
    assert len(reads) == 4


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', '{"%s": [1, 2, 3, 4, null]}', "\udcff"])
def test_damaged_cache_is_ignored(reads, tmp_path, content):
    files = write(tmp_path / "a", x=1)
    file_lengths(files, 8000)
    [cache] = (tmp_path / "cache" / "audioaug").iterdir()
    cache.write_bytes(content.replace("%s", files[0]).encode("utf-8", "surrogateescape"))
    assert file_lengths(files, 8000).tolist() == [8000] and len(reads) == 2
    assert list(json.loads(cache.read_text())) == list(files)


def test_unwritable_cache_is_no_error(reads, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    files = write(tmp_path / "a", x=1)
    assert [file_lengths(files, 8000).tolist() for _ in range(2)] == [[8000]] * 2 and len(reads) == 2


def test_damaged_or_missing_file_is_named(reads, tmp_path):
    files = write(tmp_path / "a", x=1, y=1)
    Path(files[1]).write_text("no audio")
    with pytest.raises(DataError, match=r"y\.wav cannot be decoded"):
        file_lengths(files, 8000)
    os.unlink(files[0])
    with pytest.raises(DataError, match=r"x\.wav cannot be read: No such file"):
        file_lengths(files, 8000)


@pytest.mark.parametrize(("name", "reason"), [("a\0b.wav", "embedded null byte"), ("a\ud800/b.wav", "'utf-8' codec")])
def test_name_that_no_file_can_have_is_named(reads, tmp_path, name, reason):
    (tmp_path / "a.jsonl").write_text(json.dumps({"path": name}))
    with pytest.raises(DataError, match=rf"b\.wav cannot be read: {reason}"):
        AudioFolder(tmp_path / "a.jsonl", 8000).lengths()


def test_reading_many_is_logged(reads, tmp_path, monkeypatch, caplog):
    files = write(tmp_path / "a", x=1, y=2, z=3)
    monkeypatch.setattr(module, "MANY", 2)
    with caplog.at_level(logging.INFO, "audioaug"):
        assert file_lengths(files, 8000).tolist() == [8000, 16000, 24000]
        file_lengths(files, 8000)
    assert caplog.messages == ["Reading the headers of 3 audio files. Their lengths are cached."]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "path,duration\nx.flac,1.5\ny.flac,0.25\n"),
        ("a.jsonl", '{"path": "x.flac", "duration": 1.5}\n{"path": "y.flac", "duration": "0.25"}\n'),
    ],
)
def test_durations_of_a_manifest_are_used(reads, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert AudioFolder(tmp_path / name, 8000).lengths().tolist() == [12000, 2000] and not reads


@pytest.mark.parametrize("duration", ["", "long", "0", "-1", "nan", "inf", "1e-9"])
def test_invalid_duration_is_named_when_lengths_are_needed(tmp_path, duration):
    (tmp_path / "a.csv").write_text(f"path,duration\nx.flac,1\ny.flac,{duration}\n")
    folder = AudioFolder(tmp_path / "a.csv", 8000)
    with pytest.raises(DataError) as caught:
        folder.lengths()
    assert str(caught.value) == (
        f"Entry 2 of the manifest {tmp_path}/a.csv has no valid duration. Give seconds above 0, or remove the column: "
        "then headers are read."
    )


def test_durations_of_parts_of_files_are_not_used(reads, tmp_path):
    [file] = write(tmp_path / "a", x=2)
    (tmp_path / "a.csv").write_text(f"path,duration,offset\n{file},1,0.5\n")
    assert AudioFolder(tmp_path / "a.csv", 8000).lengths().tolist() == [16000] and reads
