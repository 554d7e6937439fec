"""Banks: the flat array matches the layout."""

import warnings
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audioaug import ops
from audioaug.audio import bank as bank_module
from audioaug.audio.bank import SPARE, Bank, layout, open_bank, samples_for
from audioaug.audio.files import list_recordings, read_audio
from audioaug.core import Chain
from audioaug.errors import AudioaugWarning, DataError
from audioaug.verify import material
from audioaug.verify.replay import on_device, replay

DEMO = Path(__file__).parents[3] / "datasets" / "demo"
ODD = list_recordings(DEMO / "odd")


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize("mono", [True, False])
def test_channels_match_the_layout(rate, mono):
    where = layout(ODD, rate, mono)
    flat = open_bank(ODD, rate, mono).flat_S.numpy()
    assert [Path(file).name for file in where.files] == ["mono_8000.wav", "stereo_44100.ogg", "stereo_48000.flac"]
    assert where.channels_F.tolist() == ([1, 1, 1] if mono else [1, 2, 2])
    assert len(flat) == int((where.lengths_F * where.channels_F).sum()) + SPARE
    assert not flat[-SPARE:].any() and where.nbytes == flat[:-SPARE].nbytes
    for file, length, channels, offset in zip(where.files, where.lengths_F, where.channels_F, where.offsets_F):
        decoded = read_audio(file, rate, mono)
        assert decoded.shape[0] == channels and abs(decoded.shape[1] - length) <= 1
        for channel in range(channels):
            start = offset + channel * length
            assert np.array_equal(flat[start : start + length], decoded[channel, :length])


def test_layout_is_computed_without_decoding(monkeypatch):
    monkeypatch.setattr(bank_module, "read_audio", None)
    assert layout(list_recordings(DEMO / "rooms"), 16000).lengths_F.min() > 1000


def test_bank_ends_with_the_requested_zeros():
    bank, cpu = Bank(torch.ones(5)), torch.device("cpu")
    assert bank.on(cpu).tolist() == [1.0] * 5
    wider = bank.on(cpu, spare=3)
    assert wider.tolist() == [1.0] * 5 + [0.0] * 6 and bank.on(cpu, spare=6) is bank.on(cpu) is wider


def test_memory_that_a_gpu_may_still_read_is_not_freed_for_a_wider_bank(monkeypatch):
    bank, gpu, seen = Bank(torch.ones(5)), torch.device("cuda:0"), []
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device: tensor.clone())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: seen.append(device))
    old = weakref.ref(bank.on(gpu))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: seen.append((device, old() is not None)))
    assert bank.on(gpu, spare=3).tolist() == [1.0] * 5 + [0.0] * 6
    assert seen == [gpu, (gpu, True)] and old() is None


def test_short_resampling_is_padded_with_silence(tmp_path, monkeypatch):
    soundfile.write(tmp_path / "x.wav", np.full(1000, 0.5), 8000)
    where = layout(list_recordings(tmp_path), 16000)
    assert where.lengths_F.tolist() == [2000]
    for decoded in (1998, 2003):
        monkeypatch.setattr(bank_module, "read_audio", lambda *_, n=decoded: np.ones((1, n), dtype=np.float32))
        open_bank.cache_clear()
        flat_S = open_bank(list_recordings(tmp_path), 16000).flat_S
        assert flat_S.sum() == min(decoded, 2000) and len(flat_S) == 2000 + SPARE
    open_bank.cache_clear()


def test_empty_file_is_refused(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(10), 16000)
    soundfile.write(tmp_path / "nothing.wav", np.zeros(0), 16000)
    with pytest.raises(DataError, match=rf"{tmp_path}/nothing\.wav holds no samples\. Remove it\."):
        layout(list_recordings(tmp_path), 16000)


def test_damaged_file_is_named(tmp_path):
    data = (DEMO / "rooms" / "car.flac").read_bytes()
    (tmp_path / "half.flac").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=rf"{tmp_path}/half\.flac cannot be decoded"):
        open_bank(list_recordings(tmp_path), 16000)


def test_bank_is_opened_once():
    assert open_bank(ODD, 16000) is open_bank(ODD, 16000)
    assert open_bank(ODD, 16000) is not open_bank(ODD, 8000)


@pytest.fixture
def tiny_cap(monkeypatch):
    monkeypatch.setattr(bank_module, "MOST_BYTES", 1000)
    bank_module._warn_of_size.cache_clear()


@pytest.mark.parametrize("rate", [16000, 8000, 44100])
@pytest.mark.parametrize("mono", [True, False])
def test_shard_matches_the_bank(rate, mono, monkeypatch):
    where, files = layout(ODD, rate, mono), np.array([2, 0, 1, 2])
    start = np.array([0, 100, 1201, 500])
    span = np.minimum([4000, 900, 1, 2500], where.lengths_F[files] - start)
    within = torch.arange(900).clamp(max=torch.tensor(span)[:, None] - 1)
    found = {}
    for cap in (1000, 2**31):
        monkeypatch.setattr(bank_module, "MOST_BYTES", cap)
        params = {name: torch.from_numpy(value) for name, value in where.excerpts(files, start, span).items()}
        assert ("shard" in params) == (cap == 1000)
        second = torch.tensor(span if cap == 1000 else where.lengths_F[files]) * torch.tensor(
            where.channels_F[files] - 1
        )
        bank_module._warn_of_size.cache_clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flat_S = samples_for(params, ODD, rate, within.device, 0, mono)
        found[cap] = [
            torch.take(flat_S, params["place"][:, None] + within + step[:, None]) for step in (0 * second, second)
        ]
    assert all(torch.equal(a, b) for a, b in zip(*found.values()))
    assert all(part.any() for part in found[1000])


def test_converted_files_are_kept_up_to_a_limit(monkeypatch):
    where, read = layout(ODD, 16000, True), list[str]()

    def read_and_note(path: str, *how: Any) -> Any:
        read.append(path)
        return read_audio(path, *how)

    monkeypatch.setattr(bank_module, "_kept", OrderedDict())
    monkeypatch.setattr(bank_module, "read_audio", read_and_note)
    other = (0, 1)  # at other rates
    for file in (*other, *other):
        where._read(file, 0, 10)
    assert len(read) == 2
    monkeypatch.setattr(bank_module, "MOST_KEPT", 1)
    for file in (*other, *other, other[1]):
        where._read(file, 0, 10)
    assert len(read) == 2 + 3 and len(bank_module._kept) == 1  # the last one stays, however large


@pytest.mark.parametrize("channels", [1, 2])
def test_ops_match_with_a_bank_over_the_limit(channels, tiny_cap):
    clips = material.signals(16000, channels)
    some = [ops.ApplyImpulseResponse(ir_path=material.folder_at("rooms", 16000), p=0.7)]
    if channels == 1:
        some.append(ops.AddBackgroundNoise(sounds_path=material.folder_at("noise", 16000), p=0.7))
        some.append(ops.AddShortNoises(sounds_path=some[-1].sounds_path, max_time_between_sounds=2.0, p=0.7))
    chain = Chain(some, 16000)
    with pytest.warns(
        AudioaugWarning, match=r"than the limit of 1000 B: for each batch, .*AUDIOAUG_BANK_BYTES"
    ) as seen:
        replayed = replay(chain, clips, 16000)
        replay(chain, clips, 16000)
    assert len(seen) == (2 if channels == 1 else 1)  # one sentence a bank
    for expected, got in zip(replayed.reference, replayed.built):
        assert np.abs(expected - got).max() < 2e-5 * max(1.0, np.abs(expected).max())


def test_bank_over_the_limit_is_not_kept(tiny_cap, monkeypatch):
    monkeypatch.setattr(bank_module, "open_bank", None)
    chain = Chain([ops.AddBackgroundNoise(sounds_path=material.folder_at("noise", 16000), p=1.0)], 16000)
    with pytest.warns(AudioaugWarning, match="for each batch, its excerpts are read"):
        on_device(chain, material.signals(16000), 16000, chain.draw(range(8)))


def test_bank_under_the_limit_stays_on_the_device_without_warning():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        flat_S = samples_for({}, ODD, 16000, torch.device("cpu"), SPARE)
    assert not seen and flat_S is open_bank(ODD, 16000, True).flat_S
