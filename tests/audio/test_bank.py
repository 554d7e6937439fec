"""Banks: what the layout promises is what the flat array holds."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audioaug.audio import bank as bank_module
from audioaug.audio.bank import Bank, layout, open_bank
from audioaug.audio.files import as_paths, read_audio
from audioaug.errors import AudioaugWarning, DataError

DEMO = Path(__file__).parents[2] / "datasets" / "demo"
ODD = as_paths(DEMO / "odd")
CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize("mono", [True, False])
def test_every_channel_lies_where_the_layout_says(rate, mono):
    where = layout(ODD, rate, mono)
    flat = Bank(where, rate, mono).flat_S.numpy()
    assert [Path(file).name for file in where.files] == ["mono_8000.wav", "stereo_44100.ogg", "stereo_48000.flac"]
    assert where.channels_F.tolist() == ([1, 1, 1] if mono else [1, 2, 2])
    assert len(flat) == int((where.lengths_F * where.channels_F).sum())
    for file, length, channels, offset in zip(where.files, where.lengths_F, where.channels_F, where.offsets_F):
        decoded = read_audio(file, rate, mono)
        assert decoded.shape[0] == channels and abs(decoded.shape[1] - length) <= 1
        for channel in range(channels):
            start = offset + channel * length
            assert np.array_equal(flat[start : start + length], decoded[channel, :length])


def test_the_layout_is_known_before_anything_is_decoded(monkeypatch):
    monkeypatch.setattr(bank_module, "read_audio", None)
    assert layout(as_paths(DEMO / "rooms"), 16000).lengths_F.min() > 1000


def test_take_returns_the_samples_at_these_places():
    bank = Bank(layout(ODD, 16000), 16000)
    places = torch.tensor([[0, 5, 2], [100, 100, 7]])
    assert torch.equal(bank.take(places), bank.flat_S[places])
    assert bank.nbytes == 4 * len(bank.flat_S)


def test_a_rate_conversion_that_ends_early_is_filled_up_with_silence(tmp_path, monkeypatch):
    soundfile.write(tmp_path / "x.wav", np.full(1000, 0.5), 8000)
    where = layout(as_paths(tmp_path), 16000)
    assert where.lengths_F.tolist() == [2000]
    for decoded in (1998, 2003):
        monkeypatch.setattr(bank_module, "read_audio", lambda *_, n=decoded: np.ones((1, n), dtype=np.float32))
        assert Bank(where, 16000).flat_S.sum() == min(decoded, 2000) and len(Bank(where, 16000).flat_S) == 2000


def test_a_file_without_samples_is_refused(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(10), 16000)
    soundfile.write(tmp_path / "nothing.wav", np.zeros(0), 16000)
    with pytest.raises(DataError, match=rf"{tmp_path}/nothing\.wav holds no samples\. Remove it\."):
        layout(as_paths(tmp_path), 16000)


def test_a_broken_file_is_named(tmp_path):
    data = (DEMO / "rooms" / "car.flac").read_bytes()
    (tmp_path / "half.flac").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=rf"{tmp_path}/half\.flac cannot be decoded"):
        open_bank(as_paths(tmp_path), 16000)


def test_a_bank_is_opened_once():
    assert open_bank(ODD, 16000) is open_bank(ODD, 16000)
    assert open_bank(ODD, 16000) is not open_bank(ODD, 8000)


def test_a_bank_over_the_cap_warns_once_and_gives_the_same(monkeypatch):
    where, places = layout(ODD, 16000), torch.arange(0, 20000, 7).reshape(2, -1)[:, :1000]
    expected = Bank(where, 16000).take(places)
    monkeypatch.setattr(bank_module, "DEVICE_BYTES", 1000)
    bank = Bank(where, 16000)
    with pytest.warns(
        AudioaugWarning, match=r"bank of 3 files takes .* KiB, more than the 1000 B .*DEVICE_BYTES"
    ) as seen:
        first = bank.take(places)
        second = bank.take(places)
    assert len(seen) == 1
    assert torch.equal(first, expected) and torch.equal(second, expected)


def test_a_bank_under_the_cap_is_silent():
    bank = Bank(layout(ODD, 16000), 16000)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        resident = bank.resident(CPU)
    assert not seen and resident is bank.resident(CPU)
