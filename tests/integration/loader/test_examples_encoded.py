"""Undecoded audio of Hugging Face datasets, and the error if torchcodec is missing."""

import importlib.util
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audioaug import AudioFolder, Chain, Loader, Plan, ops
from audioaug.errors import UsageError
from tests.integration.loader.material import DEMO, RATE

os.environ["HF_HUB_OFFLINE"] = "1"
CHAIN = Chain([ops.Gain(min_gain_db=6.0, max_gain_db=6.0, p=1.0)], sample_rate=RATE)
FOLDER = AudioFolder(DEMO / "speech", RATE)
PLANS = [Plan(cut=0), Plan(cut=1), Plan(cut=1, num_workers=2)]


def augmented(dataset: Any, plan: Plan, **options: Any) -> list[torch.Tensor]:
    loader = Loader(dataset, CHAIN, plan, device="cpu", **options)
    return [batch[loader.audio_key][0] for batch in loader]


@pytest.mark.parametrize("plan", PLANS, ids=["device", "clips", "2 workers"])
@pytest.mark.parametrize("key", ["audio", "speech"])
@pytest.mark.parametrize("form", ["bytes", "path"])
def test_undecoded_audio_is_decoded_with_soundfile(form, key, plan):
    files = FOLDER.files[:4]
    encoded = [{"bytes": Path(file).read_bytes() if form == "bytes" else None, "path": file} for file in files]
    found = augmented([{key: audio, "label": 3} for audio in encoded], plan)
    for wave, (expected, _) in zip(found, FOLDER):
        torch.testing.assert_close(wave, torch.from_numpy(expected[0] * 10**0.3), rtol=1e-5, atol=1e-7)


def test_undecoded_audio_is_resampled_and_mixed_down():
    content, x_TC = io.BytesIO(), np.random.default_rng(0).uniform(-0.1, 0.1, (44100, 2)).astype(np.float32)
    soundfile.write(content, x_TC, 44100, "FLOAT", format="WAV")
    [wave] = augmented([{"audio": {"bytes": content.getvalue(), "path": None}}], PLANS[0])
    assert wave.shape == (RATE,)


@pytest.mark.parametrize("plan", PLANS[1:], ids=["clips", "2 workers"])
def test_undecoded_column_of_datasets(plan):
    datasets = pytest.importorskip("datasets", "2")  # not the folder of that name
    files = list(FOLDER.files[:2])
    dataset = datasets.Dataset.from_dict({"audio": files}).cast_column("audio", datasets.Audio(sampling_rate=RATE))
    undecoded = dataset.cast_column("audio", datasets.Audio(decode=False))
    for which in (undecoded, undecoded.to_iterable_dataset()):
        found = augmented(which, plan)
        assert {len(wave) for wave in found} <= {FOLDER[k][0].shape[1] for k in range(2)}
    if importlib.util.find_spec("torchcodec"):
        assert [wave.shape for wave in augmented(dataset, plan)] == [wave.shape for wave in augmented(undecoded, plan)]


@pytest.mark.skipif(importlib.util.find_spec("torchcodec") is not None, reason="torchcodec is installed")
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("plan", PLANS[1:], ids=["clips", "2 workers"])
def test_missing_torchcodec_is_a_clear_error(plan, on_error):
    datasets = pytest.importorskip("datasets", "4")
    dataset = datasets.Dataset.from_dict({"audio": list(FOLDER.files[:2])})
    dataset = dataset.cast_column("audio", datasets.Audio(sampling_rate=RATE))
    for which in (dataset, dataset.to_iterable_dataset()):
        with pytest.raises(UsageError) as caught:
            augmented(which, plan, on_error=on_error)
        assert str(caught.value) == (
            "Reading an example needs torchcodec, which cannot be used here (ImportError: To support decoding audio "
            "data, please install 'torchcodec'). Install torchcodec and FFmpeg, or let the Loader decode with "
            "soundfile: for a Hugging Face dataset, cast_column('audio', Audio(decode=False))."
        )
        assert caught.value.__cause__ is None


def test_torchcodec_without_ffmpeg_is_a_clear_error():
    class Unloadable(list):  # type: ignore[type-arg]
        def __getitem__(self, index):
            raise RuntimeError("Could not load libtorchcodec. Likely causes:\n 1. FFmpeg is not properly installed")

    with pytest.raises(UsageError, match=r"\(RuntimeError: Could not load libtorchcodec\. Likely causes:\)\. Install"):
        augmented(Unloadable([1]), PLANS[0])
