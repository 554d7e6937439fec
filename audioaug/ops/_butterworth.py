"""What the four Butterworth filters share: draws to band edges, checks, the filter itself, and the stock twins.

Shapes: B examples, C channels, T samples.
"""

from typing import Any

import numpy as np
import torch

from audioaug.core import DeviceClips, Distribution, HostClips, Op, Params, UniformInt
from audioaug.dsp import biquads
from audioaug.dsp.filters import Butterworth, Kind, cascade, extension, tail_samples, warped, zero_phase
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
    """Add band edges, kept below the Nyquist frequency as the reference keeps them, and the filters as numbers.

    Filters that ring longer than the longest clip become cascades, if these, cut at its end, are the shorter way.
    """
    nyquist_hz = clips.sample_rate // 2
    low_hz, high_hz = (np.where(hz > nyquist_hz, nyquist_hz * 0.9999, hz) for hz in (low_hz, high_hz))
    low, high = warped(low_hz, clips.sample_rate), warped(high_hz, clips.sample_rate)
    order = draw["order"].astype(np.int64)
    found = {**draw, "low_hz": low_hz, "high_hz": high_hz, "low": low, "high": high}
    tail, longest = tail_samples(kind, order, low, high), int(clips.lengths.max(initial=1))
    if tail > longest:
        # With zero phase the clip is extended; a cut behind its end is as good.
        plan = biquads.plan(cascade(kind, order, low, high), longest + 2 * extension(kind, int(order.max())))
        if plan.tail < tail:
            cuts = {f"cut_{number}": cut for number, cut in enumerate(plan.cuts)}
            return {**found, "sections": plan.sections, "steady": plan.steady_R, "tail": plan.tail, **cuts}
    return {**found, "tail": tail}


def run(op: Any, kind: Kind, x_BCT: torch.Tensor, params: Params, clips: DeviceClips) -> torch.Tensor:
    """Filter each example with its own order and edges."""
    step = 12 if op.zero_phase else 6
    if "sections" in params:
        return _run_cascade(op, kind, x_BCT, params, clips)
    filters = Butterworth(
        kind,
        params["order"],
        params["low"],
        params["high"],
        highest_order=op.max_rolloff // step,
        tail=params["tail"],
    )
    return (filters.zero_phase if op.zero_phase else filters)(x_BCT, clips.lengths_B)


def _run_cascade(op: Any, kind: Kind, x_BCT: torch.Tensor, params: Params, clips: DeviceClips) -> torch.Tensor:
    cuts = [params[f"cut_{number}"] for number in range(sum(name.startswith("cut_") for name in params))]

    def forward(x_RCT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
        return biquads.run(x_RCT, length_R, params["sections"], params["steady"], cuts, params["tail"])

    if not op.zero_phase:
        return forward(x_BCT, clips.lengths_B)
    edge_B = extension(kind, params["order"].long())
    return zero_phase(forward, x_BCT, clips.lengths_B, edge_B, extension(kind, op.max_rolloff // 12))


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
