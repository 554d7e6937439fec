"""Finding and decoding files: real ones of several formats, and damaged ones."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audioaug import AudioFolder
from audioaug.audio.files import Header, list_recordings, read_audio, read_header, resample
from audioaug.errors import AudioaugWarning, DataError

DEMO = Path(__file__).parents[3] / "datasets" / "demo"
ODD = {
    "mono_8000.wav": Header(frames=6800, sample_rate=8000, channels=1, kind="WAV PCM_16"),
    "stereo_44100.ogg": Header(frames=35279, sample_rate=44100, channels=2, kind="OGG VORBIS"),
    "stereo_48000.flac": Header(frames=33600, sample_rate=48000, channels=2, kind="FLAC PCM_16"),
}


def write_tone(path, hertz, rate, level=0.5, seconds=1.0):
    soundfile.write(
        path, level * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate), rate, subtype="FLOAT"
    )
    return str(path)


def tone_in(samples, rate):
    """Return the frequency of the strongest tone in Hz and its level, from the middle of the samples."""
    middle = samples[len(samples) // 4 : -(len(samples) // 4)]
    window = np.hanning(len(middle))
    spectrum = np.abs(np.fft.rfft(middle * window, 16 * len(middle))) / window.sum() * 2
    return np.argmax(spectrum) * rate / (16 * len(middle)), spectrum.max()


def test_files_are_found_below_folders_sorted_by_name(tmp_path):
    for name in ("b/z.wav", "b/a/y.FLAC", "a.mp3", "b/notes.txt", "c/.hidden", "B.ogg", "b/._z.wav", "d/._z.wav"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = list_recordings(tmp_path).files
    assert [str(Path(path).relative_to(tmp_path)) for path in found] == ["B.ogg", "a.mp3", "b/a/y.FLAC", "b/z.wav"]
    assert list_recordings([tmp_path / "b" / "z.wav", tmp_path / "a.mp3"]).files == (
        str(tmp_path / "b" / "z.wav"),
        str(tmp_path / "a.mp3"),
    )


def test_folder_named_like_a_file_is_a_folder(tmp_path):
    (tmp_path / "x.wav").mkdir()
    shutil.copy(DEMO / "odd" / "mono_8000.wav", tmp_path / "x.wav" / "inside.wav")
    for path in (tmp_path, tmp_path / "x.wav"):
        assert list_recordings(path).files == (str(tmp_path / "x.wav" / "inside.wav"),)
    with pytest.raises(DataError, match=r"x\.wav cannot be decoded"):
        read_header(str(tmp_path / "x.wav"))


def test_missing_audio_is_an_error_that_names_the_path(tmp_path):
    with pytest.raises(DataError, match=rf"There is no {tmp_path}/none\. Name an existing"):
        list_recordings(tmp_path / "none")
    (tmp_path / "text.txt").touch()
    for path in (tmp_path, tmp_path / "text.txt"):
        with pytest.raises(DataError, match=rf"There is no audio in {path}\. Looked for \.flac \.wav"):
            list_recordings(path)
    for nonsense in (3, None, [3]):
        with pytest.raises(DataError, match="Expected a path or a list of paths, got "):
            list_recordings(nonsense)


def test_files_that_change_are_read_again(tmp_path):
    tone = np.sin(np.arange(48000) * 2 * np.pi * 1000 / 48000) * 0.5
    soundfile.write(tmp_path / "x.wav", tone, 48000)
    before, _ = AudioFolder(tmp_path, 16000)[0]
    soundfile.write(tmp_path / "x.wav", tone[::3], 16000)  # as a dataset that is converted in place
    soundfile.write(tmp_path / "y.wav", tone, 48000)
    folder = AudioFolder(tmp_path, 16000)
    after, _ = folder[0]
    assert len(folder) == 2 and after.shape == before.shape == (1, 16000)
    assert np.abs(after - before)[0, 100:-100].max() < 1e-3


def test_folders_that_cannot_be_read_are_a_warning(tmp_path, monkeypatch):
    for name in ("a", "b/inside", "c"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(DEMO / "odd" / "mono_8000.wav", tmp_path / name / "x.wav")

    def refusing(call, refused):
        def run(path, **how):
            if str(path) == refused:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), refused)
            return call(path, **how)

        return run

    monkeypatch.setattr(os, "scandir", refusing(os.scandir, str(tmp_path / "a")))
    monkeypatch.setattr(os, "stat", refusing(os.stat, str(tmp_path / "b" / "inside")))
    said = (
        rf"^2 folders in {tmp_path} cannot be read \({tmp_path}/.*: Permission denied, for example\), so no file there"
    )
    with pytest.warns(AudioaugWarning, match=said):
        assert AudioFolder(tmp_path, 16000).labels == ("c",)


def test_relative_and_absolute_paths_are_equivalent(monkeypatch):
    monkeypatch.chdir(DEMO)
    assert list_recordings("odd") == list_recordings(DEMO / "odd") == list_recordings([Path("odd")])


@pytest.mark.parametrize("name", ODD)
def test_headers_match_the_files(name):
    assert read_header(str(DEMO / "odd" / name)) == ODD[name]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize("mono", [True, False])
def test_shapes_at_any_rate(name, rate, mono):
    samples = read_audio(str(DEMO / "odd" / name), rate, mono)
    header = ODD[name]
    assert samples.dtype == np.float32 and samples.flags.c_contiguous
    assert samples.shape[0] == (1 if mono else header.channels)
    assert abs(samples.shape[1] - header.frames * rate / header.sample_rate) <= 1
    assert abs(samples.shape[1] - header.frames_at(rate)) <= 1
    assert 0.01 < np.abs(samples).max() <= 1.1


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("rate", [8000, 16000, 22050])
def test_header_tells_the_length_after_resampling_as_librosa_rounds_it(name, rate):
    import librosa

    header = ODD[name]
    resampled = librosa.resample(
        np.zeros(header.frames), orig_sr=header.sample_rate, target_sr=rate, res_type="soxr_hq"
    )
    assert header.frames_at(rate) == len(resampled)


@pytest.mark.parametrize(("from_hz", "to_hz"), [(44100, 16000), (8000, 16000), (48000, 22050), (16000, 16000)])
def test_resampled_tone_keeps_frequency_and_level(from_hz, to_hz, tmp_path):
    path = write_tone(tmp_path / "tone.wav", 1234.5, from_hz)
    hertz, level = tone_in(read_audio(path, to_hz)[0], to_hz)
    assert hertz == pytest.approx(1234.5, abs=0.5)
    assert level == pytest.approx(0.5, rel=0.01)


def test_tone_above_nyquist_is_removed(tmp_path):
    samples = read_audio(write_tone(tmp_path / "tone.wav", 9500.0, 44100), 16000)[0]
    assert np.abs(samples[1000:-1000]).max() < 0.5e-4


def test_resampling_matches_librosa():
    samples, rate = soundfile.read(DEMO / "odd" / "stereo_44100.ogg", dtype="float32")
    import librosa

    expected = librosa.resample(samples.T, orig_sr=rate, target_sr=16000, res_type="soxr_hq")
    ours = resample(np.ascontiguousarray(samples.T), rate, 16000)
    assert ours.shape == expected.shape and np.abs(ours - expected).max() < 1e-6


def test_mono_averages_channels(tmp_path):
    soundfile.write(tmp_path / "x.wav", np.tile([0.5, -0.1], (100, 1)), 16000, subtype="FLOAT")
    path = str(tmp_path / "x.wav")
    assert read_audio(path, 16000) == pytest.approx(np.full((1, 100), 0.2))
    assert read_audio(path, 16000, mono=False) == pytest.approx(np.asarray([[0.5], [-0.1]]).repeat(100, axis=1))


@pytest.mark.parametrize("name", ["mono_8000.wav", "stereo_48000.flac"])
def test_excerpt_matches_the_whole_file(name):
    path, rate = str(DEMO / "odd" / name), ODD[name].sample_rate
    whole = read_audio(path, rate, mono=False)
    assert np.array_equal(read_audio(path, rate, False, start=0.25), whole[:, rate // 4 :])
    assert np.array_equal(read_audio(path, rate, False, start=0.25, seconds=0.125), whole[:, rate // 4 : rate * 3 // 8])
    assert np.array_equal(read_audio(path, rate, False, seconds=99.0), whole)
    assert read_audio(path, rate, False, seconds=0.0).shape == (len(whole), 0)


def test_excerpt_past_the_end_is_empty():
    assert read_audio(str(DEMO / "odd" / "mono_8000.wav"), 16000, start=5.0).shape == (1, 0)


def broken_files(folder):
    flac = (DEMO / "long" / "flite_slt_01.flac").read_bytes()
    content = {
        "random.wav": np.random.default_rng(0).bytes(5000),
        "random.flac": np.random.default_rng(1).bytes(5000),
        "empty.wav": b"",
        "text.ogg": b"this is no music",
        "cut_in_the_header.flac": flac[:30],
        "cut_in_half.flac": flac[: len(flac) // 2],
        "cut_near_the_end.flac": flac[: len(flac) * 99 // 100],
    }
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return [*content, "missing.wav"]


@pytest.mark.parametrize("place", range(8))
def test_damaged_file_is_a_data_error_that_names_it(place, tmp_path):
    names = broken_files(tmp_path)
    assert len(names) == 8
    path = str(tmp_path / names[place])
    with pytest.raises(DataError) as caught:
        read_audio(path, 16000)
    assert str(caught.value).startswith(f"{path} cannot be decoded: ") and caught.value.exit_code == 2
    assert str(caught.value).endswith(".") and not str(caught.value).endswith("..")


def test_reason_of_the_system_is_given(tmp_path, monkeypatch):
    path, read = str(tmp_path / "x.flac"), soundfile.read

    def read_late(*arguments, **how):
        os.unlink(path)
        return read(*arguments, **how)

    shutil.copy(DEMO / "odd" / "stereo_48000.flac", path)
    monkeypatch.setattr(soundfile, "read", read_late)
    with pytest.raises(DataError, match=r"x\.flac cannot be decoded: No such file or directory\.$"):
        read_audio(path, 16000)


def test_file_without_a_header_is_named(tmp_path):
    (tmp_path / "x.raw").write_bytes(bytes(1000))
    with pytest.raises(DataError, match=r"x\.raw cannot be decoded: samplerate must be specified\.$"):
        read_audio(str(tmp_path / "x.raw"), 16000)


def test_flac_from_a_pipe_is_named(tmp_path):
    content = bytearray((DEMO / "odd" / "stereo_48000.flac").read_bytes())
    content[21] &= 0xF0  # the number of samples, 36 bits
    content[22:26] = bytes(4)
    (tmp_path / "x.flac").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.flac cannot be decoded: its header does not declare how many samples"):
        read_audio(str(tmp_path / "x.flac"), 16000)
