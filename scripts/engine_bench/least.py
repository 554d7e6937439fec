"""The least that ops ask of any engine that is made of torch's operations: work to be timed beside the engines.

For filters that is one FFT and back, which neighbours share; for noise a normal number a sample; for vocoders one
short-time FFT and back; for all else one pass over the batch, which costs nothing beside one of these. Whatever an op
does besides costs nothing either, so no such engine is faster.

Shapes: B examples, C channels, T samples, R rows, K frames of n samples.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

import torch

from audioaug.core import Op
from audioaug.dsp.dispatch import map_chunks
from engine_bench.engines import Work

COPY, NOISE, FILTER, VOCODER = "copy", "noise", "filter", "vocoder"
KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("LowPassFilter", "HighPassFilter", "BandPassFilter", "BandStopFilter"), (FILTER,)),
    **dict.fromkeys(("LowShelfFilter", "HighShelfFilter", "PeakingFilter", "SevenBandParametricEQ"), (FILTER,)),
    **dict.fromkeys(("AirAbsorption", "ApplyImpulseResponse", "RoomSimulator"), (FILTER,)),
    **dict.fromkeys(("AddGaussianNoise", "AddGaussianSNR"), (NOISE,)),
    "AddColorNoise": (NOISE, FILTER),
    **dict.fromkeys(("PitchShift", "TimeStretch"), (VOCODER,)),
}
"""What is not listed is copied."""

FILTER_FRAME = 4096
VOCODER_FRAME, VOCODER_HOP = 2048, 512


def least(ops: Sequence[Op], x_BCT: torch.Tensor) -> Work | None:
    """Return the least that these ops, one after the other, ask for this batch; ``None`` if that is nothing."""
    if all(op.name == "Identity" for op in ops):
        return None
    passes = [PASSES[kind] for kind in passes_of([op.name for op in ops])]
    return lambda: [each(x_BCT) for each in passes]


def passes_of(names: Sequence[str]) -> list[str]:
    """Return the kinds of passes that ops of these names need, in order."""
    kinds = [kind for name in names for kind in KINDS.get(name, (COPY,))]
    runs = [(kind, len(list(some))) for kind, some in groupby(kinds)]
    dear = [kind for kind, count in runs for _ in range(1 if kind == FILTER else count) if kind != COPY]
    return dear or [COPY]


def _fft_and_back(x_BCT: torch.Tensor, n: int, hop: int) -> torch.Tensor:
    frames_RKn = x_BCT.flatten(0, 1).unfold(-1, min(n, x_BCT.shape[-1]), hop)
    frames, n = frames_RKn.shape[1:]
    return map_chunks(lambda some: torch.fft.irfft(torch.fft.rfft(frames_RKn[some]), n), frames_RKn, frames * n)


PASSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    COPY: torch.clone,
    NOISE: torch.randn_like,
    FILTER: lambda x_BCT: _fft_and_back(x_BCT, FILTER_FRAME, FILTER_FRAME),
    VOCODER: lambda x_BCT: _fft_and_back(x_BCT, VOCODER_FRAME, VOCODER_HOP),
}
