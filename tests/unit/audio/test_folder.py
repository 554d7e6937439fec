"""Datasets from a folder or a manifest."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from audioaug.audio.files import read_audio
from audioaug.audio.folder import AudioFolder
from audioaug.errors import DataError

DEMO = Path(__file__).parents[3] / "datasets" / "demo"
FAN, CAR = DEMO / "noise" / "fan.flac", DEMO / "rooms" / "car.flac"


def test_labels_are_folder_names():
    folder = AudioFolder(DEMO / "speech", 16000, seconds=1.0)
    assert len(folder) == 162 and len(folder.labels) == 12 and list(folder.labels) == sorted(folder.labels)
    assert [folder.labels[target] for target in folder.targets] == [Path(file).parent.name for file in folder.files]
    wave, target = folder[5]
    assert wave.shape == (1, 16000) and wave.dtype == np.float32 and target == folder.targets[5]


def test_clips_are_cut_or_padded_at_the_end():
    whole = read_audio(str(CAR), 16000)
    short, long = (AudioFolder(DEMO / "rooms", 16000, seconds=seconds) for seconds in (0.1, 1.0))
    place = short.files.index(str(CAR))
    assert np.array_equal(short[place][0], whole[:, :1600])
    assert np.array_equal(long[place][0][:, : whole.shape[1]], whole) and not long[place][0][:, whole.shape[1] :].any()
    assert AudioFolder(DEMO / "rooms", 16000)[place][0].shape == whole.shape


def test_seconds_are_rounded_to_the_nearest_sample():
    assert int(0.7 * 44100) == 30869
    assert AudioFolder(DEMO / "rooms", 44100, seconds=0.7)[0][0].shape == (1, 30870)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.csv", "path,label\n{fan},noise\n{car},room\n"),
        ("list.tsv", "label\tfile\nnoise\t{fan}\nroom\t{car}\n"),
        (
            "list.jsonl",
            '{{"audio_filepath": "{fan}", "text": "noise"}}\n\n{{"audio_filepath": "{car}", "text": "room"}}\n',
        ),
    ],
)
def test_manifest_formats(name, text, tmp_path):
    (tmp_path / name).write_text(text.format(fan=FAN, car=CAR))
    folder = AudioFolder(tmp_path / name, 16000, seconds=0.5)
    assert folder.files == (str(FAN), str(CAR)) and folder.labels == ("noise", "room") and folder.targets == (0, 1)
    assert np.array_equal(folder[1][0][:, :1000], read_audio(str(CAR), 16000)[:, :1000])


@pytest.mark.parametrize(("name", "text"), [("a.csv", "path\nin/x.flac\n"), ("a.jsonl", '{"file": "in/x.flac"}\n')])
def test_manifest_paths_are_relative_and_labels_optional(name, text, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.flac").write_bytes(CAR.read_bytes())
    (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path.parent)
    folder = AudioFolder(Path(tmp_path.name) / name, 8000)
    monkeypatch.chdir("/")  # a worker may run elsewhere
    wave, target = folder[0]
    assert folder.files == (str(tmp_path / "in" / "x.flac"),) and folder.labels == ("",) and target == 0
    assert np.array_equal(wave, read_audio(str(CAR), 8000))


@pytest.mark.parametrize("text", ["path,label\nx,10\ny,2\nz,0\nx,1\n", "label\tpath\n10\tx\n2\ty\n0\tz\n1\tx\n"])
def test_numeric_labels_are_sorted_by_value(text, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    folder = AudioFolder(tmp_path / "a.csv", 16000)
    assert folder.labels == ("0", "1", "2", "10") and folder.targets == (3, 2, 0, 1)
    (tmp_path / "b.jsonl").write_text("".join(f'{{"path": "x", "label": {k}}}\n' for k in (11, 9, 0)))
    assert AudioFolder(tmp_path / "b.jsonl", 16000).labels == ("0", "9", "11")
    (tmp_path / "b.jsonl").write_text("".join(f'{{"path": "x", "label": {k}}}\n' for k in (1, 0, -1, -10)))
    assert AudioFolder(tmp_path / "b.jsonl", 16000).labels == ("-10", "-1", "0", "1")
    (tmp_path / "c.csv").write_text("path,label\nx,ten\ny,10\nz,2\nx,\n")
    assert AudioFolder(tmp_path / "c.csv", 16000).labels == ("2", "10", "", "ten")


@pytest.mark.parametrize(
    ("name", "rate", "channels"), [("stereo_44100.ogg", 44100, 2), ("stereo_48000.flac", 48000, 2)]
)
@pytest.mark.parametrize("seconds", [None, 0.5])
def test_files_are_resampled_and_mixed_down(name, rate, channels, seconds):
    folder = AudioFolder(DEMO / "odd", 16000, seconds=seconds)
    raw_TC, raw_rate = soundfile.read(DEMO / "odd" / name, dtype="float32")
    assert (raw_rate, raw_TC.shape[1]) == (rate, channels)
    wave_CT, _ = folder[folder.files.index(str(DEMO / "odd" / name))]
    assert wave_CT.dtype == np.float32 and wave_CT.shape == (1, 8000 if seconds else wave_CT.shape[1])
    assert abs(wave_CT.shape[1] - min(len(raw_TC) / rate, seconds or 99) * 16000) <= 1
    mixed_T = soxr.resample(raw_TC.mean(axis=1), rate, 16000)[: wave_CT.shape[1]]
    inner = slice(200, len(mixed_T) - 200)  # a cut file rings differently at its end
    assert np.abs(wave_CT[0, inner] - mixed_T[inner]).max() < 1e-3 * np.abs(mixed_T).max()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "name,label\nx,y\n", "has no column for paths"),
        ("a.csv", "path,label\n", "lists no files"),
        ("a.jsonl", "not json\n", "is not a valid manifest"),
        ("a.jsonl", "3\n", "is not a valid manifest"),
        ("a.jsonl", '{"path": "x.wav"}\n{"label": "y"}\n', "Entry 2 of the manifest"),
        ("a.csv", "label,path\nx,x.wav\ny\n", "Entry 2 of the manifest"),
        ("a.csv", "path,label\nx.wav,y\ny.wav\n", "Entry 2 of the manifest"),
        ("a.jsonl", '{"path": "x.wav", "label": null}\n', "Entry 1 of the manifest"),
        ("a.json", '[{"path": "x.wav"}]\n', "is not a valid manifest"),
        ("a.csv", "", "lists no files"),
        ("a.csv", 'path,text\nx.wav,"hello\ny.wav,bye\n', "unexpected end of data"),
        ("a.csv", 'path,text\nx.wav,"hello\ny.wav,"bye"\n', "expected after"),
        ("a.tsv", 'path\ttext\nx.wav\t"hello\ny.wav\tbye"\n', "entry 1 has a quote that ends on another line"),
        ("a.csv", "label,path\ny,hello, world.wav\n", "entry 1 has more fields than the header"),
        ("a.csv", "path,label,label\nx.wav,y,z\n", "it has several columns 'label'"),
    ],
)
def test_invalid_manifest_is_named(name, text, sentence, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        AudioFolder(tmp_path / name, 16000)
    assert sentence in str(caught.value) and str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'path , label\n"a, b.wav", x\nc.wav,"y"\n'),
        ("a.csv", "path,label,\n'a, b.wav',x,,\nc.wav,y,\n".replace("'", '"')),
        ("a.tsv", "path\tlabel\na, b.wav\tx\nc.wav\ty\n"),
        ("a.JSONL", '{"path": "a, b.wav", "label": "x"}\n{"path": "c.wav", "label": "y"}\n'),
    ],
)
def test_manifests_as_other_programs_write_them(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    folder = AudioFolder(tmp_path / name, 16000)
    assert [Path(file).name for file in folder.files] == ["a, b.wav", "c.wav"] and folder.labels == ("x", "y")


def test_text_with_quotes_and_line_breaks_is_kept(tmp_path):
    (tmp_path / "a.csv").write_text('path,text\nx.wav,"""Yes,"" he\nsaid"\n')
    (tmp_path / "a.tsv").write_text('path\ttext\nx.wav\t"""Yes,""\the said"\n')
    assert AudioFolder(tmp_path / "a.csv", 16000).labels == ('"Yes," he\nsaid',)
    assert AudioFolder(tmp_path / "a.tsv", 16000).labels == ('"Yes,"\the said',)


def test_missing_source_is_named(tmp_path):
    with pytest.raises(DataError, match=rf"Cannot read {tmp_path}/none"):
        AudioFolder(tmp_path / "none", 16000)
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match=r"binary\.csv is not a valid manifest"):
        AudioFolder(tmp_path / "binary.csv", 16000)


def test_folder_without_audio_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing to hear")
    with pytest.raises(DataError, match=rf"There is no audio in {tmp_path}"):
        AudioFolder(tmp_path, 16000)


@pytest.mark.parametrize(
    ("rate", "seconds"), [(16000, 0), (16000, -1.0), (16000, float("nan")), (16000, float("inf")), (0, None), (-1, 1.0)]
)
def test_invalid_length_or_rate_is_refused(rate, seconds):
    with pytest.raises(DataError, match=r"Expected a positive length and sample rate, got .* seconds at .* Hz"):
        AudioFolder(DEMO / "rooms", rate, seconds=seconds)


def test_missing_listed_file_raises_when_read(tmp_path):
    (tmp_path / "a.csv").write_text(f"path\n{CAR}\nnone.flac\n")
    folder = AudioFolder(tmp_path / "a.csv", 16000)
    assert folder[0][0].any()
    with pytest.raises(DataError, match=rf"{tmp_path}/none\.flac cannot be decoded"):
        folder[1]
