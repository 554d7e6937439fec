"""Recordings that ops mix in or convolve with: listed when a chain is made, whatever changes or moves afterwards."""

import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audioaug import Chain, build_cpu, build_device, ops
from audioaug.audio import bank
from audioaug.errors import AudioaugWarning, DataError

RATE = 16000
CLIP = np.sin(np.arange(2 * RATE) / 9).astype(np.float32) * 0.1


def write(path: Path, frequency: float, rate: int = RATE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * frequency * np.arange(rate) / rate), rate)


def op_with(name: str, paths: object) -> ops.AddBackgroundNoise:
    field = "ir_path" if name == "ApplyImpulseResponse" else "sounds_path"
    return getattr(ops, name)(**{field: paths}, p=1.0)


def both(chain: Chain) -> np.ndarray:
    """Return what the device build makes of four clips, and check that the CPU build makes the same."""
    made = build_device(chain)(torch.from_numpy(CLIP).repeat(4, 1, 1), key=range(4)).numpy()[:, 0]
    worker = build_cpu(chain)
    for key in range(4):
        assert np.abs(worker(CLIP, key=key) - made[key]).max() < 1e-3
    return made


pytestmark = pytest.mark.filterwarnings("ignore:.* had to be resampled", "ignore:A bank of 1 files")
every_op = pytest.mark.parametrize("name", ["AddBackgroundNoise", "AddShortNoises", "ApplyImpulseResponse"])


@every_op
def test_new_chain_uses_the_files_of_today(name, tmp_path):
    write(tmp_path / "a.wav", 500)
    first = both(Chain([op_with(name, tmp_path)], RATE))
    write(tmp_path / "a.wav", 900, 22050)
    changed = both(Chain([op_with(name, tmp_path)], RATE))
    assert np.abs(first - changed).max() > 0.01
    write(tmp_path / "b.wav", 1300)
    (tmp_path / "a.wav").unlink()
    assert np.abs(both(Chain([op_with(name, tmp_path)], RATE)) - changed).max() > 0.01


@every_op
def test_order_of_a_set_does_not_matter_and_any_iterable_can_be_written(name, tmp_path):
    paths = [str(tmp_path / f"{k}.wav") for k in range(3)]
    for k, path in enumerate(paths):
        write(Path(path), 300 + 400 * k)
    chain = Chain([op_with(name, paths)], RATE)
    forms = [set(paths), dict.fromkeys(paths).keys(), (path for path in paths), np.array(paths), map(Path, paths)]
    for form in forms:
        other = Chain([op_with(name, form)], RATE)
        other.to_yaml(tmp_path / "chain.yaml")
        assert other.hash == chain.hash == Chain.from_yaml(tmp_path / "chain.yaml").hash
        assert np.array_equal(both(other), both(chain))


@every_op
def test_relative_paths_are_those_of_the_folder_where_the_chain_was_made(name, tmp_path, monkeypatch):
    write(tmp_path / "here/sounds/x.wav", 500)
    write(tmp_path / "there/sounds/x.wav", 2000)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    chain = Chain([op_with(name, "sounds")], RATE)
    made = both(chain)
    for other in ("there", "empty"):
        monkeypatch.chdir(tmp_path / other)
        assert np.array_equal(both(chain), made)


@every_op
def test_pickled_chain_lists_its_recordings_anew_only_where_they_are_not(name, tmp_path, monkeypatch):
    write(tmp_path / "here/sounds/x.wav", 500)
    write(tmp_path / "there/sounds/x.wav", 2000)
    monkeypatch.chdir(tmp_path / "here")
    chain = Chain([op_with(name, "sounds")], RATE)
    made, pickled = both(chain), pickle.dumps(chain)
    monkeypatch.chdir(tmp_path / "there")
    assert np.array_equal(both(pickle.loads(pickled)), made)  # as in a worker
    shutil.rmtree(tmp_path / "here")
    assert np.array_equal(both(pickle.loads(pickled)), both(Chain([op_with(name, "sounds")], RATE)))


@every_op
@pytest.mark.parametrize("limit", [1000, 2**31])
def test_file_that_is_not_finite_is_named(name, limit, tmp_path, monkeypatch):
    monkeypatch.setattr(bank, "MOST_BYTES", limit)
    soundfile.write(tmp_path / "broken.wav", np.full(RATE, np.nan, np.float32), RATE, subtype="FLOAT")
    chain = Chain([op_with(name, tmp_path)], RATE)
    with pytest.raises(DataError, match=r"broken\.wav has samples that are NaN or infinite\. Remove it"):
        build_device(chain)(torch.from_numpy(CLIP).repeat(8, 1, 1), key=range(8))


@every_op
def test_formats_that_are_left_out_are_reported(name, tmp_path):
    write(tmp_path / "a.wav", 500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Chain([op_with(name, tmp_path)], RATE)
    for other in ("b.m4a", "c.AAC"):
        (tmp_path / other).touch()
    with pytest.warns(AudioaugWarning, match=rf"2 files in {tmp_path} \(b\.m4a, for example\) will not be used"):
        Chain([op_with(name, tmp_path)], RATE)
