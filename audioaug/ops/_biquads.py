"""What shelves, peaking filter and equaliser share: draws to sections of a cascade, limits, the filter itself.

Shapes: B examples, C channels, T samples, S sections.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from audioaug.core import BatchInfo, DeviceBatchInfo, Distribution, MelUniform, Params, Uniform
from audioaug.dsp import biquads
from audioaug.dsp.biquads.cascade import run as run_cascades

DRAWN = ("center_freq", "gain_db", "q_factor")
INF = float("inf")
SHELF_LIMITS = {"min_center_freq": (1e-3, INF), "min_q": (1e-3, 1.0), "max_q": (1e-3, 1.0)}
PEAKING_LIMITS = {"min_center_freq": (1e-3, INF), "min_q": (1e-3, INF)}


def distributions(op: Any) -> dict[str, Distribution]:
    """Return what the centre, gain and quality of a filter come from."""
    return {
        "center_freq": MelUniform(op.min_center_freq, op.max_center_freq),
        "gain_db": Uniform(op.min_gain_db, op.max_gain_db),
        "q_factor": Uniform(op.min_q, op.max_q),
    }


def sections(
    kinds: Sequence[biquads.Kind], draw: Params, clips: BatchInfo, prefixes: Sequence[str] = ("",)
) -> list[biquads.Section]:
    """Return the filters that were drawn. Centres are moved below Nyquist."""
    found = list[biquads.Section]()
    for kind, group in itertools.groupby(zip(kinds, prefixes), lambda each: each[0]):
        alike = [prefix for _, prefix in group]  # as one: what numpy does with a few numbers costs as much as with many
        centre_hz, gain_db, q = (np.concatenate([draw[prefix + name] for prefix in alike]) for name in DRAWN)
        centre_hz = biquads.below_nyquist(centre_hz, clips.sample_rate)
        found += biquads.section(kind, centre_hz, gain_db, q, clips.sample_rate).split(len(alike))
    return found


def planned(cascade: Sequence[biquads.Section], longest: int) -> Params:
    """Return what ``run`` needs to know of cascades, for clips of at most that many samples."""
    return biquads.packed(biquads.plan(cascade, longest))


def replayed(
    kinds: Sequence[biquads.Kind], params: Params, sample_rate: int, prefixes: Sequence[str] = ("",)
) -> dict[str, float]:
    """Return the reference's own parameters. It moves the centres of shelves; those of peaking filters it does not."""
    found = {prefix + name: params[prefix + name] for prefix in prefixes for name in DRAWN}
    for kind, prefix in zip(kinds, prefixes):
        name = f"{prefix}center_freq"
        found[name] = float(biquads.below_nyquist(found[name], sample_rate)) if kind == "peaking" else found[name]
    return found


def run(x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
    """Filter each example with its own cascade."""
    return run_cascades(x_BCT, biquads.unpacked(params), clips.out(x_BCT))
