"""The fastest decoder, with a real torchcodec where ``make setup`` put it, and FFmpeg is installed."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audioaug.audio import fastest
from audioaug.audio.fastest import fastest_decoder, read_fastest
from audioaug.audio.files import read_audio
from audioaug.audio.folder import AudioFolder
from audioaug.errors import DataError, UsageError

RATE = 48000
KINDS = [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
TORCHCODEC = Path(sys.prefix) / "torchcodec"

PROGRAM = """
import json, sys
import numpy as np
from audioaug.audio.fastest import by_torchcodec, fastest_decoder, read_fastest
from audioaug.audio.files import read_audio, read_header

def error(path, **how):
    ours, theirs = read_audio(path, 16000, **how), read_fastest(path, 16000, **how)
    return float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else None

found = {}
for path in sys.argv[1:]:
    header = read_header(path)
    alone = by_torchcodec(path, header.frames, header, mono=False) is not None
    errors = [error(path), error(path, seconds=0.7), error(path, seconds=99.0), error(path, mono=False)]
    found[path] = alone, fastest_decoder(path), errors
print(json.dumps(found))
"""


def write(path: Path, subtype: str, seconds: float = 2.0) -> str:
    """Write stereo noise."""
    x_TC = 0.1 * np.random.default_rng(0).standard_normal((round(seconds * RATE), 2))
    soundfile.write(path, x_TC, RATE, format="OGG" if subtype == "OPUS" else None, subtype=subtype)
    return str(path)


@pytest.fixture
def known(monkeypatch, tmp_path) -> dict[str, fastest.Decoder]:
    """What is known of a machine where torchcodec is installed."""
    found: dict[str, fastest.Decoder] = {}
    monkeypatch.setattr(fastest, "_versions", lambda: "torchcodec 1.0")
    monkeypatch.setattr(fastest, "_known", lambda versions: found)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


@pytest.mark.skipif(not TORCHCODEC.is_dir(), reason="torchcodec is not installed; `make setup` does")
def test_torchcodec_is_used_only_where_it_returns_the_same_samples(tmp_path):
    paths = [write(tmp_path / f"{subtype}.{kind.lower()}", subtype) for kind, subtype in KINDS]
    env = os.environ | {"PYTHONPATH": str(TORCHCODEC), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM, *paths]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = {Path(path).name: said for path, said in json.loads(done.stdout).items()}
    if not found["PCM_16.flac"][0]:
        pytest.skip("torchcodec finds no FFmpeg")
    for _, decoder, errors in found.values():
        assert all(error is not None and error < fastest.SAME for error in errors), found
        assert decoder == "torchcodec" or max(errors) == 0.0
    assert found["MPEG_LAYER_III.mp3"][1] == "soundfile"  # its first 1105 samples are missing
    assert found["PCM_16.wav"][1] == "soundfile"  # 18 times as fast
    kept = json.loads((tmp_path / "cache" / "audioaug" / "decoders.json").read_text())
    assert [len(kinds) for kinds in kept.values()] == [len(KINDS) - 2]  # MP3 and Opus are not measured


@pytest.mark.parametrize("ours_ms", [10.0, 2.0])
def test_the_faster_decoder_of_a_kind_is_measured_once(known, tmp_path, monkeypatch, ours_ms):
    path, now, measured = write(tmp_path / "a.flac", "PCM_16"), [0.0], []

    def read(*arguments, **how):
        now[0] += ours_ms
        return read_frames(*arguments, **how)

    def by_torchcodec(path, frames, header, mono):
        measured.append(path)
        now[0] += 5.0
        return read_frames(path, 0, frames, mono)

    read_frames = fastest.read_frames
    monkeypatch.setattr(fastest, "read_frames", read)
    monkeypatch.setattr(fastest, "by_torchcodec", by_torchcodec)
    monkeypatch.setattr(fastest.time, "perf_counter", lambda: now[0])
    assert fastest_decoder(path) == ("torchcodec" if ours_ms > 5.0 else "soundfile")
    times = len(measured)
    assert fastest_decoder(write(tmp_path / "b.flac", "PCM_16", seconds=1.0)) == known["FLAC PCM_16 48000 Hz 2"]
    assert times == 1 + fastest.TURNS == len(measured)


@pytest.mark.parametrize("louder", [0.0, 2e-6, None])
def test_only_the_same_samples_count(known, tmp_path, monkeypatch, louder):
    path, seconds = write(tmp_path / "a.flac", "PCM_16"), itertools.cycle([1.0, 0.1])
    other = None if louder is None else read_audio(path, RATE, mono=False) + np.float32(louder)
    monkeypatch.setattr(fastest, "_seconds", lambda work: next(seconds))
    monkeypatch.setattr(fastest, "by_torchcodec", lambda *_, **__: other)
    assert fastest_decoder(path) == ("torchcodec" if louder == 0.0 else "soundfile")


@pytest.mark.parametrize(
    ("name", "subtype", "kind"),
    [("a.opus", "OPUS", "OGG OPUS 48000 Hz 2"), ("a.mp3", "MPEG_LAYER_III", "MP3 MPEG_LAYER_III 48000 Hz 2")],
)
def test_kinds_that_differ_in_some_files_are_never_left_to_torchcodec(
    known, tmp_path, monkeypatch, name, subtype, kind
):
    path = write(tmp_path / name, subtype)
    known[kind] = "torchcodec"  # kept by an earlier version; Opus of other bit rates differs by 0.1
    monkeypatch.setattr(fastest, "by_torchcodec", lambda *_, **__: pytest.fail("It differs for some files only"))
    assert fastest_decoder(path) == "soundfile"
    assert np.array_equal(read_fastest(path, 16000), read_audio(path, 16000))


def test_a_file_that_torchcodec_cannot_read_is_decoded_by_soundfile(known, tmp_path):
    path = write(tmp_path / "a.flac", "PCM_16")
    known["FLAC PCM_16 48000 Hz 2"] = "torchcodec"  # which is not installed
    assert np.array_equal(read_fastest(path, 16000, seconds=0.5), read_audio(path, 16000, seconds=0.5))


def test_folder_reads_with_the_fastest_decoder(known, tmp_path, monkeypatch):
    path, seen = write(tmp_path / "a.flac", "PCM_16"), []
    known["FLAC PCM_16 48000 Hz 2"] = "torchcodec"
    monkeypatch.setattr(fastest, "by_torchcodec", lambda path, frames, *_: seen.append((path, frames)))
    wave, _ = AudioFolder(tmp_path, 16000, seconds=0.5, decoder="fastest")[0]
    assert np.array_equal(wave, AudioFolder(tmp_path, 16000, seconds=0.5)[0][0]) and seen == [(path, 24000)]
    with pytest.raises(UsageError, match=r"^There is no decoder 'quickest'\. Known: fastest, soundfile\.$"):
        AudioFolder(tmp_path, 16000, decoder="quickest")
    (tmp_path / "a.flac").write_bytes(b"fLaC")
    with pytest.raises(DataError, match="cannot be decoded"):
        AudioFolder(tmp_path, 44100, decoder="fastest")[0]
