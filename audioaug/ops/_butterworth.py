"""What the four Butterworth filters share: band edges, checks, the filter, counterparts in torch-audiomentations.

Shapes: B examples, C channels, T samples.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import BatchInfo, DeviceBatchInfo, Distribution, Op, Params, UniformInt
from audioaug.dsp.biquads import Section
from audioaug.dsp.filters import cascade, extension, warped, zero_phase
from audioaug.errors import ChainError
from audioaug.ops import _biquads


def check_rolloff(op: Any) -> None:
    """Raise ``ChainError`` unless the steepness is a multiple of 6 dB an octave (12 for zero phase)."""
    step = 12 if op.zero_phase else 6
    for name in ("min_rolloff", "max_rolloff"):
        value = getattr(op, name)
        if value < step or value % step:
            because = " with zero_phase" if op.zero_phase else ""
            raise ChainError(f"{op.name}: {name} is {value}, but it must be a multiple of {step}{because}.")


def order_distribution(op: Any) -> dict[str, Distribution]:
    """Return where the filter's order comes from: a zero-phase filter runs twice with half the order."""
    step = 12 if op.zero_phase else 6
    return {"order": UniformInt(op.min_rolloff // step, op.max_rolloff // step)}


def sections(op: Any, draw: Params, clips: BatchInfo) -> list[Section]:
    """Return the filters that were drawn, for one pass forward in time."""
    low, high = (warped(edge_hz, clips.sample_rate) for edge_hz in _edges_hz(draw, clips))
    return cascade(op.kind, draw["order"].astype(np.int64), low, high)


def _edges_hz(draw: Params, clips: BatchInfo) -> list[NDArray[np.float64]]:
    """Return the edges of the band (one-sided filters: the cutoff twice), moved below Nyquist as in the reference."""
    if "cutoff_freq" in draw:
        edges_hz = [draw["cutoff_freq"]] * 2
    else:
        half_hz = draw["center_freq"] * draw["bandwidth_fraction"] / 2
        edges_hz = [draw["center_freq"] - half_hz, draw["center_freq"] + half_hz]
    nyquist_hz = clips.sample_rate // 2
    return [np.where(edge_hz > nyquist_hz, nyquist_hz * 0.9999, edge_hz) for edge_hz in edges_hz]


def resolved(op: Any, draw: Params, clips: BatchInfo) -> Params:
    """Add the band's edges, and the filters as numbers."""
    # With zero phase the clip is extended; a cut behind its end is as good.
    extra = 2 * extension(op.kind, int(draw["order"].max())) if op.zero_phase else 0
    low_hz, high_hz = _edges_hz(draw, clips)
    numbers = _biquads.planned(sections(op, draw, clips), int(clips.lengths.max(initial=1)) + extra)
    return {**draw, "low_hz": low_hz, "high_hz": high_hz, **numbers}


def run(op: Any, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
    """Filter each example with its own order and edges."""
    if not op.zero_phase:
        return _biquads.run(x_BCT, params, clips)
    edge_B = extension(op.kind, params["order"].long())
    longest_edge = extension(op.kind, op.max_rolloff // 12)
    return zero_phase(lambda y_BCT: _biquads.run(y_BCT, params, clips), x_BCT, clips.lengths_B, edge_B, longest_edge)


def rolloff(op: Op, params: Params) -> int:
    """Return the reference's own parameter for the order."""
    return int(params["order"]) * (12 if op.zero_phase else 6)  # type: ignore[attr-defined]


TORCH_AUDIOMENTATIONS_DIFFERS = (
    "a linear-phase windowed-sinc filter of fixed, far steeper slope, with -6 dB at the edge instead of -3 dB"
)


def torch_audiomentations_band(x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> dict[str, torch.Tensor]:
    """Return torch-audiomentations' parameters for the band, below the Nyquist frequency, above which it raises."""
    low_hz, high_hz = params["low_hz"], params["high_hz"]
    return {"center_freq": (low_hz + high_hz) / 2, "bandwidth": 2 * (high_hz - low_hz) / (high_hz + low_hz)}
