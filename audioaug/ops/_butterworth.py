"""What the four Butterworth filters share: draws to band edges, checks, the filter itself, and the stock twins.

Shapes: B examples, C channels, T samples.
"""

from typing import Any

import numpy as np
import torch

from audioaug.core import DeviceClips, Distribution, HostClips, Op, Params, UniformInt
from audioaug.dsp.filters import Butterworth, Kind, tail_samples, warped
from audioaug.errors import ChainError


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


def with_edges(kind: Kind, draw: Params, low_hz: Any, high_hz: Any, clips: HostClips) -> Params:
    """Add band edges, kept below the Nyquist frequency as the reference keeps them, and the tail's length."""
    nyquist_hz = clips.sample_rate // 2
    low_hz, high_hz = (np.where(hz > nyquist_hz, nyquist_hz * 0.9999, hz) for hz in (low_hz, high_hz))
    low, high = warped(low_hz, clips.sample_rate), warped(high_hz, clips.sample_rate)
    tail = tail_samples(kind, draw["order"].astype(np.int64), low, high)
    return {**draw, "low_hz": low_hz, "high_hz": high_hz, "low": low, "high": high, "tail": tail}


def run(op: Any, kind: Kind, x_BCT: torch.Tensor, params: Params, clips: DeviceClips) -> torch.Tensor:
    """Filter each example with its own order and edges."""
    step = 12 if op.zero_phase else 6
    filters = Butterworth(
        kind,
        params["order"],
        params["low"],
        params["high"],
        highest_order=op.max_rolloff // step,
        tail=params["tail"],
    )
    return (filters.zero_phase if op.zero_phase else filters)(x_BCT, clips.lengths_B)


def rolloff(op: Op, params: Params) -> int:
    """Return the reference's own parameter for the order."""
    return int(params["order"]) * (12 if op.zero_phase else 6)  # type: ignore[attr-defined]


STOCK_DIFFERS = (
    "a linear-phase windowed-sinc filter of fixed, far steeper slope, with -6 dB at the edge instead of -3 dB"
)


def stock_band(x_BCT: torch.Tensor, params: Params, clips: DeviceClips) -> dict[str, torch.Tensor]:
    """Return torch-audiomentations' parameters for the band, below the Nyquist frequency, above which it raises."""
    low_hz, high_hz = params["low_hz"], params["high_hz"]
    return {"center_freq": (low_hz + high_hz) / 2, "bandwidth": 2 * (high_hz - low_hz) / (high_hz + low_hz)}
