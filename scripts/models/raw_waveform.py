"""A model file for the advisor: a larger network on the raw waveform, which keeps the device busy.

    audioaug advise --model scripts/models/raw_waveform.py

Its chain is light, so this is the case in which augmentation may cost nothing at all. `keyword_cnn.py` beside it says
what each name in such a file is for.

Shapes: B examples, C channels (1 at first, then features), T samples (fewer after each layer).
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import audioaug
from audioaug import ops

CLASSES = 12

sample_rate = 16000
clip_seconds = 2.0
batch_size = 16
num_workers = 0
dataset = Path(__file__).resolve().parents[2] / "datasets/demo/speech"

augment = audioaug.Chain(
    [
        ops.Gain(min_gain_db=-12.0, max_gain_db=6.0, p=0.5),
        ops.HighPassFilter(min_cutoff_freq=40.0, max_cutoff_freq=400.0, p=0.3),
        ops.PolarityInversion(p=0.5),
    ],
    sample_rate=sample_rate,
)


class Residual(nn.Module):
    """Two convolutions around a shortcut, the first of which may shorten time by ``stride``."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(inputs, outputs, 9, stride=stride, padding=4, bias=False),
            nn.BatchNorm1d(outputs),
            nn.ReLU(),
            nn.Conv1d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm1d(outputs),
        )
        self.shortcut = nn.Conv1d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x_BCT) + self.shortcut(x_BCT))


class RawWaveform(nn.Module):
    """A strided stem (0.5 ms a step), four residual blocks (128 ms a step at the end) and a mean over time."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512)) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, widths[0], 33, stride=8, padding=16)
        pairs = zip((widths[0], *widths[:-1]), widths, strict=True)
        self.blocks = nn.Sequential(*(Residual(inputs, outputs, stride=4) for inputs, outputs in pairs))
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        """Classify: (B, 1, T) audio to (B, CLASSES) logits."""
        return self.head(self.blocks(self.stem(x_BCT)).mean(dim=-1))


def build_model() -> nn.Module:
    return RawWaveform()


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    _audio, label = batch
    return cross_entropy(output, label)
