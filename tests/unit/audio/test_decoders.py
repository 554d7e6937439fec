"""Other ways to decode the clips of a dataset."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

from audioaug.audio.decoders import EncodedClip, decoders
from audioaug.audio.files import read_audio

DEMO = Path(__file__).parents[3] / "datasets" / "demo"
STEREO = str(DEMO / "odd" / "stereo_44100.ogg")
CLIPS = [EncodedClip(STEREO, 0.25), EncodedClip(Path(STEREO).read_bytes())]


@pytest.fixture
def torchcodec(monkeypatch) -> list[Any]:
    """A torchcodec that notes what it decodes."""
    seen: list[Any] = []

    class AudioDecoder:
        def __init__(self, source: Any, *, sample_rate: int, num_channels: int) -> None:
            self.asked = source, sample_rate, num_channels

        def get_all_samples(self) -> None:
            seen.append((*self.asked, None))

        def get_samples_played_in_range(self, start: float, stop: float) -> None:
            seen.append((*self.asked, stop - start))

    package, module = ModuleType("torchcodec"), ModuleType("torchcodec.decoders")
    module.AudioDecoder = AudioDecoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchcodec", package)
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", module)
    return seen


def test_wav_copies_hold_the_decoded_clips(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torchcodec", None)  # not installed
    works = decoders(CLIPS, 16000, tmp_path)
    assert [*works] == ["soundfile", "WAV copies at 16 kHz"]
    ours, copies = (list(work()) for work in works.values())
    whole = read_audio(STEREO, 16000)
    assert [wave.shape[-1] for wave in ours] == [4000, whole.shape[1]]
    for wave, copy in zip(ours, copies, strict=True):
        np.testing.assert_allclose(copy.ravel(), wave.ravel(), atol=1e-4)
    assert {soundfile.info(path).samplerate for path in tmp_path.iterdir()} == {16000}


def test_torchcodec_decodes_the_same_part_at_the_same_rate(tmp_path, torchcodec) -> None:
    works = decoders(CLIPS, 16000, tmp_path)
    assert [*works] == ["soundfile", "torchcodec", "WAV copies at 16 kHz"]
    torchcodec.clear()
    works["torchcodec"]()
    assert torchcodec == [(STEREO, 16000, 1, 0.25), (CLIPS[1].source, 16000, 1, None)]


def test_a_decoder_that_refuses_a_clip_is_left_out(tmp_path, torchcodec, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["torchcodec.decoders"].AudioDecoder, "get_all_samples", lambda self: 1 / 0)
    assert [*decoders(CLIPS, 16000, tmp_path)] == ["soundfile", "WAV copies at 16 kHz"]


def test_the_decoder_of_training_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    monkeypatch.setattr("audioaug.audio.decoders.fastest_decoder", lambda path: "torchcodec")
    mixed = decoders([EncodedClip(STEREO, fastest=True), *CLIPS], 16000, tmp_path)
    assert [*mixed] == ["soundfile and torchcodec", "WAV copies at 16 kHz"]
    assert [*decoders([EncodedClip(STEREO, fastest=True)], 16000, tmp_path)] == ["torchcodec", "WAV copies at 16 kHz"]
