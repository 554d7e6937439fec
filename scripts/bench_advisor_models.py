"""Networks: a small transformer, and two whose step takes seconds on a CPU, like ECAPA-TDNN and like wav2vec 2.0.

Shapes: B examples, C channels, T samples, W features, F frames.
"""

import torch
from torch import nn

CLASSES = 12


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


class SqueezeExcitation(nn.Module):
    """Scale each feature by a gate that depends on the means of all features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width), nn.Sigmoid())

    def forward(self, x_BWF: torch.Tensor) -> torch.Tensor:
        """Gate."""
        return x_BWF * self.gate(x_BWF.mean(dim=2))[:, :, None]


class Res2Block(nn.Module):
    """A residual block whose features pass through the convolution in groups, each with the previous group's result."""

    def __init__(self, width: int, dilation: int, groups: int = 8) -> None:
        super().__init__()
        each = width // groups
        self.before, self.after = (nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU()) for _ in range(2))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(each, each, 3, dilation=dilation, padding=dilation) for _ in range(groups - 1)
        )
        self.normalize, self.excite = nn.BatchNorm1d(width), SqueezeExcitation(width)

    def forward(self, x_BWF: torch.Tensor) -> torch.Tensor:
        """Add the block's output to its input."""
        first, *groups = self.before(x_BWF).chunk(len(self.convolutions) + 1, dim=1)
        results = [first]
        for convolution, group in zip(self.convolutions, groups, strict=True):
            results.append(torch.relu(convolution(group + results[-1])))
        return x_BWF + self.excite(self.normalize(self.after(torch.cat(results, dim=1))))


class AttentiveStatistics(nn.Module):
    """Mean and standard deviation of each feature over time, weighted by attention: (B, W, F) to (B, 2 W)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.Conv1d(width, 128, 1), nn.Tanh(), nn.Conv1d(128, width, 1), nn.Softmax(dim=2))

    def forward(self, x_BWF: torch.Tensor) -> torch.Tensor:
        """Pool."""
        weight_BWF = self.attention(x_BWF)
        mean_BW = (weight_BWF * x_BWF).sum(dim=2)
        variance_BW = (weight_BWF * x_BWF.square()).sum(dim=2) - mean_BW.square()
        return torch.cat([mean_BW, variance_BW.clamp(min=1e-6).sqrt()], dim=1)


class Ecapa(nn.Module):
    """ECAPA-TDNN on a spectrogram: (B, 1, T) audio to (B, classes).

    Reference: Desplanques et al., "ECAPA-TDNN", Interspeech 2020.
    """

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.first = nn.Sequential(nn.Conv1d(257, 80, 1), nn.Conv1d(80, width, 5, padding=2), nn.ReLU())
        self.blocks = nn.ModuleList(Res2Block(width, dilation) for dilation in (2, 3, 4))
        self.last = nn.Sequential(nn.Conv1d(3 * width, 3 * width, 1), nn.ReLU(), AttentiveStatistics(3 * width))
        self.head = nn.Sequential(nn.Linear(6 * width, 192), nn.Linear(192, CLASSES))

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        """Classify."""
        spectrum = torch.stft(x_BCT[:, 0], 512, hop_length=160, window=self.window, return_complex=True)
        features_BWF = self.first(torch.log(spectrum.abs().square() + 1e-6))
        results = []
        for block in self.blocks:
            features_BWF = block(features_BWF)
            results.append(features_BWF)
        return self.head(self.last(torch.cat(results, dim=1)))


class Wav2Vec2(nn.Module):
    """Seven convolutions on the raw waveform, then four layers of attention: (B, 1, T) audio to (B, classes).

    Reference: Baevski et al., "wav2vec 2.0", NeurIPS 2020.
    """

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, (kernel, stride) in enumerate([(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]):
            layers += [nn.Conv1d(width if number else 1, width, kernel, stride), nn.GroupNorm(1, width), nn.GELU()]
        self.convolutions = nn.Sequential(*layers)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.attention = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        """Classify."""
        return self.head(self.attention(self.convolutions(x_BCT).transpose(1, 2)).mean(dim=1))
