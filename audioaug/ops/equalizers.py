"""LowShelfFilter, HighShelfFilter, PeakingFilter, SevenBandParametricEQ: bands that get louder or softer at random.

Shapes: B examples, C channels, T samples.
"""

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    HOST_ONLY,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Linear,
    MelUniform,
    Op,
    Params,
    Uniform,
)
from audioaug.dsp import biquads
from audioaug.dsp.biquads.cascade import run as run_cascades
from audioaug.ops.fused import CASCADES

NAMES = ("center_freq", "gain_db", "q_factor")
INF = float("inf")
SHELF_LIMITS = {"min_center_freq": (1e-3, INF), "min_q": (1e-3, 1.0), "max_q": (1e-3, 1.0)}
PEAKING_LIMITS = {"min_center_freq": (1e-3, INF), "min_q": (1e-3, INF)}

EDGES_HZ = ((42, 95), (91, 204), (196, 441), (421, 948), (909, 2045), (1957, 4404), (4216, 9486))
QUALITIES = ((0.1, 0.999), *[(0.5, 5.0)] * 5, (0.1, 0.999))
PREFIXES = tuple(f"band_{number}_" for number in range(1, 8))


@dataclass(frozen=True, kw_only=True)
class Biquads(Op, registry=None):
    """What all have: shelves and peaking filters of random centre, gain and quality, one after the other.

    ``prefixes``: what the names of the parameters of each filter begin with.
    """

    kinds: ClassVar[tuple[biquads.Kind, ...]]
    prefixes: ClassVar[tuple[str, ...]] = ("",)
    contract = Contract.exact(rtol=1e-5)
    capabilities = Capabilities(linear=True)
    param_types = {**dict.fromkeys(NAMES, HOST_ONLY), "cascades": CASCADES}

    def linear(self, draw: Params, batch: BatchInfo) -> Linear:
        """Return the filters. Centres are moved below Nyquist."""
        parts = list[biquads.Sections]()
        for kind, group in itertools.groupby(zip(self.kinds, self.prefixes), lambda each: each[0]):
            same = [prefix for _, prefix in group]
            centre_hz, gain_db, q = np.asarray([[draw[prefix + name] for prefix in same] for name in NAMES])
            centre_hz = biquads.below_nyquist(centre_hz, batch.sample_rate)
            parts.append(biquads.sections(kind, centre_hz, gain_db, q, batch.sample_rate))
        return Linear(sections=parts)

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        return {**draw, "cascades": biquads.plan(self.linear(draw, batch).sections, int(batch.lengths.max()))}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        """Return the draws. The reference moves the centres of shelves below Nyquist; those of peaking filters not."""
        replayed = {prefix + name: params[prefix + name] for prefix in self.prefixes for name in NAMES}
        for kind, prefix in zip(self.kinds, self.prefixes):
            if kind == "peaking":
                name = f"{prefix}center_freq"
                replayed[name] = float(biquads.below_nyquist(replayed[name], sample_rate))
        return replayed

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return run_cascades(x_BCT, params["cascades"], batch.out(x_BCT))


@dataclass(frozen=True, kw_only=True)
class OneBiquad(Biquads, registry=None):
    """What the ops with one filter have."""

    min_center_freq: float = 50.0
    max_center_freq: float = 7500.0
    min_gain_db: float = -18.0
    max_gain_db: float = 18.0
    min_q: float = 0.1
    max_q: float = 0.999

    def distributions(self) -> dict[str, Distribution]:
        return {
            "center_freq": MelUniform(self.min_center_freq, self.max_center_freq),
            "gain_db": Uniform(self.min_gain_db, self.max_gain_db),
            "q_factor": Uniform(self.min_q, self.max_q),
        }


@dataclass(frozen=True, kw_only=True)
class LowShelfFilter(OneBiquad):
    """Raise or lower everything below a random frequency (evenly spread in mels) by a random gain.

    Args:
        min_center_freq: lowest centre frequency, in Hz.
        max_center_freq: highest centre frequency, in Hz. One above half the sample rate is moved just below it.
        min_gain_db: least gain at 0 Hz, in dB; negative cuts.
        max_gain_db: greatest gain at 0 Hz, in dB.
        min_q: least quality factor, 0.001 to 1; the higher, the steeper.
        max_q: greatest quality factor.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.LowShelfFilter``.
    """

    max_center_freq: float = 4000.0

    kinds = ("low_shelf",)
    limits = SHELF_LIMITS


@dataclass(frozen=True, kw_only=True)
class HighShelfFilter(OneBiquad):
    """Raise or lower everything above a random frequency (evenly spread in mels) by a random gain.

    Args:
        min_center_freq: lowest centre frequency, in Hz.
        max_center_freq: highest centre frequency, in Hz. One above half the sample rate is moved just below it.
        min_gain_db: least gain at half the sample rate, in dB; negative cuts.
        max_gain_db: greatest gain at half the sample rate, in dB.
        min_q: least quality factor, 0.001 to 1; the higher, the steeper.
        max_q: greatest quality factor.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.HighShelfFilter``.
    """

    min_center_freq: float = 300.0

    kinds = ("high_shelf",)
    limits = SHELF_LIMITS


@dataclass(frozen=True, kw_only=True)
class PeakingFilter(OneBiquad):
    """Raise or lower what lies around a random frequency (evenly spread in mels) by a random gain.

    Args:
        min_center_freq: lowest centre frequency, in Hz.
        max_center_freq: highest centre frequency, in Hz. One above half the sample rate is moved just below it.
        min_gain_db: least gain at the centre, in dB; negative cuts.
        max_gain_db: greatest gain at the centre, in dB.
        min_q: least quality factor, at least 0.001; the higher, the narrower.
        max_q: greatest quality factor.
        p: probability of applying it, 0 to 1.

    Deviation: audiomentations does not move centres below half the sample rate, and returns audio that is not finite;
    here it is handed the moved centre, so that both builds agree.

    Reference: ``audiomentations.PeakingFilter``.
    """

    min_gain_db: float = -24.0
    max_gain_db: float = 24.0
    min_q: float = 0.5
    max_q: float = 5.0

    kinds = ("peaking",)
    limits = PEAKING_LIMITS


@dataclass(frozen=True, kw_only=True)
class SevenBandParametricEQ(Biquads):
    """Run a low shelf, five peaking filters and a high shelf, each of random centre, gain and quality, one by one.

    The centres lie at 42-95, 91-204, 196-441, 421-948, 909-2045, 1957-4404 and 4216-9486 Hz, evenly spread in mels.

    Args:
        min_gain_db: least gain of a band, in dB; negative cuts.
        max_gain_db: greatest gain of a band, in dB.
        p: probability of applying it, 0 to 1.

    Deviation: audiomentations does not move centres of the peaking filters below half the sample rate (8 kHz audio),
    and returns audio that is not finite; here it is handed the moved centres, so that both builds agree.

    Reference: ``audiomentations.SevenBandParametricEQ``.
    """

    min_gain_db: float = -12.0
    max_gain_db: float = 12.0

    kinds = ("low_shelf", "peaking", "peaking", "peaking", "peaking", "peaking", "high_shelf")
    prefixes = PREFIXES
    param_types = {**{prefix + name: HOST_ONLY for prefix in PREFIXES for name in NAMES}, "cascades": CASCADES}

    def distributions(self) -> dict[str, Distribution]:
        gain, drawn_from = Uniform(self.min_gain_db, self.max_gain_db), dict[str, Distribution]()
        for prefix, edges_hz, q in zip(PREFIXES, EDGES_HZ, QUALITIES):
            drawn_from |= zip((prefix + name for name in NAMES), (MelUniform(*edges_hz), gain, Uniform(*q)))
        return drawn_from

    def reference(self) -> Any:
        """Build the reference so that the parameters of its seven filters are entries of its own."""
        whole = super().reference()
        filters = (whole.low_shelf_filter, *whole.peaking_filters, whole.high_shelf_filter)
        for prefix, each in zip(PREFIXES, filters):
            each.parameters = _PrefixedView(whole, prefix)
        return whole


class _PrefixedView:
    """The ``parameters`` of a filter inside the reference: those of the whole whose names have a prefix.

    The reference keeps the parameters of its filters in them, where ``replay`` cannot reach. It applies all or none.
    """

    def __init__(self, whole: Any, prefix: str) -> None:
        self.whole, self.prefix = whole, prefix

    def __getitem__(self, name: str) -> Any:
        return self.whole.parameters[name if name == "should_apply" else self.prefix + name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "should_apply":
            self.whole.parameters[self.prefix + name] = value
