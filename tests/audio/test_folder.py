"""A folder or a manifest as a Dataset."""

from pathlib import Path

import numpy as np
import pytest

from audioaug.audio.files import read_audio
from audioaug.audio.folder import AudioFolder
from audioaug.errors import DataError

DEMO = Path(__file__).parents[2] / "datasets" / "demo"
FAN, CAR = DEMO / "noise" / "fan.flac", DEMO / "rooms" / "car.flac"


def test_labels_are_the_names_of_the_folders():
    folder = AudioFolder(DEMO / "speech", 16000, seconds=1.0)
    assert len(folder) == 162 and len(folder.labels) == 12 and list(folder.labels) == sorted(folder.labels)
    assert [folder.labels[target] for target in folder.targets] == [Path(file).parent.name for file in folder.files]
    wave, target = folder[5]
    assert wave.shape == (1, 16000) and wave.dtype == np.float32 and target == folder.targets[5]


def test_clips_are_cut_or_filled_up_at_their_end():
    whole = read_audio(str(CAR), 16000)
    short, long = (AudioFolder(DEMO / "rooms", 16000, seconds=seconds) for seconds in (0.1, 1.0))
    place = short.files.index(str(CAR))
    assert np.array_equal(short[place][0], whole[:, :1600])
    assert np.array_equal(long[place][0][:, : whole.shape[1]], whole) and not long[place][0][:, whole.shape[1] :].any()
    assert AudioFolder(DEMO / "rooms", 16000)[place][0].shape == whole.shape


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
def test_manifests(name, text, tmp_path):
    (tmp_path / name).write_text(text.format(fan=FAN, car=CAR))
    folder = AudioFolder(tmp_path / name, 16000, seconds=0.5)
    assert folder.files == (str(FAN), str(CAR)) and folder.labels == ("noise", "room") and folder.targets == (0, 1)
    assert np.array_equal(folder[1][0][:, :1000], read_audio(str(CAR), 16000)[:, :1000])


def test_paths_are_relative_to_the_manifest_and_labels_may_be_missing(tmp_path):
    (tmp_path / "x.flac").write_bytes(CAR.read_bytes())
    (tmp_path / "list.csv").write_text("path\nx.flac\n")
    folder = AudioFolder(tmp_path / "list.csv", 8000)
    assert folder.files == (str(tmp_path / "x.flac"),) and folder[0][1] == 0


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "name,label\nx,y\n", "has no column for paths"),
        ("a.csv", "path,label\n", "lists no files"),
        ("a.jsonl", "not json\n", "is no manifest"),
        ("a.jsonl", "3\n", "is no manifest"),
        ("a.jsonl", '{"path": "x.wav"}\n{"label": "y"}\n', "Entry 2 of the manifest"),
        ("a.csv", "label,path\nx,x.wav\ny\n", "Entry 2 of the manifest"),
        ("a.csv", "", "lists no files"),
    ],
)
def test_a_manifest_that_is_none_is_named(name, text, sentence, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        AudioFolder(tmp_path / name, 16000)
    assert sentence in str(caught.value) and str(tmp_path / name) in str(caught.value)


def test_a_missing_source_is_named(tmp_path):
    with pytest.raises(DataError, match=rf"Cannot read {tmp_path}/none"):
        AudioFolder(tmp_path / "none", 16000)
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match=r"binary\.csv is no manifest"):
        AudioFolder(tmp_path / "binary.csv", 16000)
