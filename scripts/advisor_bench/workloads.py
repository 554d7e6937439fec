"""Real workloads: three models, three chains, short clips and long ragged ones, and files that must be decoded.

Shapes: B examples, C channels, T samples, M mel bands, F frames.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from torch import nn

from audioaug import Chain, ops
from audioaug.advise.target import Target, UsualLoss, load_module
from audioaug.audio.files import find_audio, read_audio
from audioaug.audio.folder import AudioFolder
from audioaug.records import LoaderSetup

RATE = 16000
CLASSES = 12
MODELS = Path(__file__).parents[1] / "models"
DEMO = Path(__file__).resolve().parents[2] / "datasets/demo"
FORMATS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS")}


@dataclass(frozen=True)
class Workload:
    """Something to advise on. ``build`` is a context that yields what is trained; ``answers`` are right first causes.

    ``first``: whether an answer must come first, or be told of at all. ``truth``: whether to race every cell.
    ``workers`` are the counts to consider, ``threads`` torch's in the training process: on two of two cores a step
    alone takes a fifth longer or shorter from second to second, since either core has other work, and there is no truth
    to compare anything with; on one thread it is 3 %.
    """

    name: str
    build: Callable[[], Any]
    answers: tuple[str, ...] = ()
    first: bool = True
    truth: bool = True
    workers: tuple[int, ...] | None = None
    threads: int = 1


def target(
    model: nn.Module,
    chain: Chain,
    dataset: Any,
    *,
    batch_size: int,
    num_workers: int = 0,
    pad: bool = False,
    step: Callable[[Any, Any, Any], None] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    alive: tuple[str, ...] = (),
) -> Target:
    """Return what is trained, as if a model file had declared it."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Target(
        path="bench.py",
        model=model.train(),
        chain=chain,
        dataset=dataset,
        batch_size=batch_size,
        clip_seconds=(1.0, 1.0),
        device=torch.device("cpu"),
        precision="fp32",
        num_workers=num_workers,
        collate_fn=collate_fn,
        loss=UsualLoss(),
        optimizer=torch.optim.AdamW(parameters, lr=1e-4),
        own_step=step,
        setup=LoaderSetup(pad=pad),
        targets=None,
        data_name=type(dataset).__name__,
        threads=alive,
    )


class Transformer(nn.Module):
    """Patches of a spectrogram through two layers of attention: (B, 1, T) audio to (B, classes)."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.patch = nn.Linear(257 * 4, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        """Classify."""
        spectrum = torch.stft(x_BCT[:, 0], 512, hop_length=256, window=self.window, return_complex=True)
        image_BFM = torch.log(spectrum.abs().square() + 1e-6).transpose(1, 2)
        frames = image_BFM.shape[1] // 4 * 4
        patches = image_BFM[:, :frames].reshape(len(image_BFM), frames // 4, -1)
        return self.head(self.layers(self.patch(patches)).mean(dim=1))


class Ragged:
    """Excerpts of real speech of 1 to 4 seconds, in memory: the example's number draws where and how long."""

    def __init__(self, size: int = 1000) -> None:
        paths = find_audio((str(DEMO / "long"),))
        self.speech = np.concatenate([read_audio(path, RATE)[0] for path in paths])
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        draw = np.random.default_rng(index)
        samples = int(draw.uniform(1, 4) * RATE)
        start = int(draw.integers(len(self.speech) - samples))
        return torch.from_numpy(self.speech[None, start : start + samples].copy()), index % CLASSES


def chain(name: str) -> Chain:
    """Return a chain: light, speech, or heavy with a codec and another pitch."""
    rooms, noise = str(DEMO / "rooms"), str(DEMO / "noise")
    speech = [
        ops.ApplyImpulseResponse(ir_path=rooms, p=0.5),
        ops.AddBackgroundNoise(sounds_path=noise, p=0.7),
        ops.LowPassFilter(p=0.5),
        ops.Gain(p=0.5),
    ]
    chains = {
        "light": [ops.Gain(p=0.5), ops.PolarityInversion(p=0.5), ops.AddGaussianSNR(p=0.5)],
        "speech": speech,
        "heavy": [ops.Mp3Compression(p=0.3), ops.PitchShift(p=0.5), *speech],
    }
    return Chain(chains[name], RATE)


def _model(name: str) -> nn.Module:
    if name == "transformer":
        return Transformer()
    found = load_module(str(MODELS / {"cnn": "keyword_cnn.py", "waveform": "raw_waveform.py"}[name]))
    return found.build_model() if hasattr(found, "build_model") else found.model


@contextmanager
def _real(model: str, chain_name: str, clips: str) -> Iterator[Target]:
    torch.manual_seed(0)
    short = clips == "short"
    dataset = AudioFolder(DEMO / "speech", RATE, 1.0) if short else Ragged()
    yield target(_model(model), chain(chain_name), dataset, batch_size=8 if short else 4, pad=not short)


@contextmanager
def _decoding(kind: str) -> Iterator[Target]:
    """Yield files of 5 s at 44.1 kHz in stereo, of which 1 s at 16 kHz is trained on by a small model."""
    container, subtype = FORMATS[kind]
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(48):
            audio = np.cumsum(draw.normal(size=(5 * 44100, 2)), axis=0)
            audio = 0.5 * audio / np.abs(audio).max()
            soundfile.write(f"{folder}/{number}.{kind}", audio, 44100, format=container, subtype=subtype)
        dataset = AudioFolder(folder, RATE, 5.0)
        yield target(_model("cnn"), chain("light"), dataset, batch_size=4)


REAL: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        *(
            Workload(f"{model}, {name} chain, {clips} clips", partial(_real, model, name, clips))
            for name, rows in {
                "light": {"cnn": "short", "waveform": "long", "transformer": "short"},
                "speech": {"cnn": "long", "waveform": "short", "transformer": "long"},
                "heavy": {"cnn": "short", "waveform": "long", "transformer": "short"},
            }.items()
            for model, clips in rows.items()
        ),
        *(Workload(f"cnn, decoding {kind.upper()}", partial(_decoding, kind)) for kind in FORMATS),
    )
}
"""Twelve real workloads by name."""
