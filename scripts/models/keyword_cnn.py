"""A model file for the advisor, to copy and change: a small keyword spotter on mel spectrograms.

    audioaug advise --model scripts/models/keyword_cnn.py --quick

Only the model is required. Everything else says how you train today; what is missing, the advisor takes from its
command line or from the demo audio, and says so.

Shapes: B examples, C channels (1), T samples, M mel bands, F frames.
"""

import math
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import audioaug
from audioaug import ops

DEMO = Path(__file__).resolve().parents[2] / "datasets/demo"
CLASSES = 12  # the words of the demo speech

# How you train today. A clip is one second at 16 kHz, so the model is given (32, 1, 16000) float32 audio.
sample_rate = 16000
clip_seconds = 1.0
batch_size = 32
num_workers = 0

# What to train on: a folder of audio (one subfolder a class), or any torch Dataset of (audio, label) pairs.
dataset = DEMO / "speech"

# What to do to the audio. An audiomentations.Compose, unchanged, is as good.
augment = audioaug.Chain(
    [
        ops.Shift(min_shift=-0.1, max_shift=0.1, p=0.5),
        ops.ApplyImpulseResponse(ir_path=str(DEMO / "rooms"), p=0.5),
        ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), min_snr_db=3.0, max_snr_db=30.0, p=0.8),
        ops.LowPassFilter(min_cutoff_freq=2000.0, max_cutoff_freq=7500.0, p=0.3),
        ops.Gain(min_gain_db=-12.0, max_gain_db=6.0, p=0.8),
        ops.TimeMask(max_band_part=0.1, p=0.3),
        ops.PolarityInversion(p=0.5),
    ],
    sample_rate=sample_rate,
)


def mel_filters(bands: int, bins: int) -> torch.Tensor:
    """Triangles of equal width on the mel scale, from 60 Hz to half the sample rate: a (bands, bins) matrix."""

    def to_mel(hz: float) -> float:
        return 2595 * math.log10(1 + hz / 700)

    edges_mel = torch.linspace(to_mel(60), to_mel(sample_rate / 2), bands + 2)
    edges_hz = 700 * (10 ** (edges_mel / 2595) - 1)
    low, centre, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    bin_hz = torch.linspace(0, sample_rate / 2, bins)
    rising, falling = (bin_hz - low) / (centre - low), (high - bin_hz) / (high - centre)
    return torch.minimum(rising, falling).clamp(min=0)


class KeywordCNN(nn.Module):
    """Log-mel spectrogram (25 ms windows, 10 ms apart, 40 bands), then four convolutions and a mean over time."""

    def __init__(self, bands: int = 40, width: int = 32) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("filters", mel_filters(bands, bins=257))
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, width), (width, width), (width, 2 * width), (2 * width, 2 * width)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        """Classify: (B, 1, T) audio to (B, CLASSES) logits."""
        spectrum = torch.stft(x_BCT[:, 0], 512, hop_length=160, win_length=400, window=self.window, return_complex=True)
        mel_BMF = self.filters @ spectrum.abs().square()
        image_BCMF = torch.log(mel_BMF + 1e-6)[:, None]
        return self.head(self.layers(image_BCMF).mean(dim=(2, 3)))


def build_model() -> nn.Module:
    """Return the model to train. A module-level ``model = KeywordCNN()`` would do as well."""
    return KeywordCNN()


def loss(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the number to minimise. ``batch`` is what the dataset gives, collated."""
    _audio, label = batch
    return cross_entropy(output, label)
