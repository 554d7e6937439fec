"""SevenBandParametricEQ: seven random filters that raise or lower a band each.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import BatchInfo, Contract, DeviceBatchInfo, Distribution, MelUniform, Op, Params, Uniform
from audioaug.dsp import biquads
from audioaug.dsp.biquads import Section
from audioaug.ops import _biquads

EDGES_HZ = ((42, 95), (91, 204), (196, 441), (421, 948), (909, 2045), (1957, 4404), (4216, 9486))
PEAKS: tuple[biquads.Kind, ...] = ("peaking",) * 5
KINDS: tuple[biquads.Kind, ...] = ("low_shelf", *PEAKS, "high_shelf")
QUALITIES = ((0.1, 0.999), *[(0.5, 5.0)] * 5, (0.1, 0.999))
PREFIXES = tuple(f"band_{number}_" for number in range(1, 8))
NAMES = tuple(prefix + name for prefix in PREFIXES for name in _biquads.DRAWN)


@dataclass(frozen=True, kw_only=True)
class SevenBandParametricEQ(Op):
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

    contract = Contract.exact(rtol=1e-5)

    def distributions(self) -> dict[str, Distribution]:
        centres = [MelUniform(*edges) for edges in EDGES_HZ]
        gain = Uniform(self.min_gain_db, self.max_gain_db)
        drawn = [each for centre, q in zip(centres, QUALITIES) for each in (centre, gain, Uniform(*q))]
        return dict(zip(NAMES, drawn))

    def resolve(self, draw: Params, clips: BatchInfo) -> Params:
        return {**draw, **_biquads.planned(self.sections(draw, clips), int(clips.lengths.max()))}

    def sections(self, draw: Params, clips: BatchInfo) -> list[Section]:
        return _biquads.sections(KINDS, draw, clips, PREFIXES)

    def reference(self) -> Any:
        """Build the reference so that the parameters of its seven filters are entries of its own."""
        whole = super().reference()
        filters = (whole.low_shelf_filter, *whole.peaking_filters, whole.high_shelf_filter)
        for prefix, each in zip(PREFIXES, filters):
            each.parameters = _PartOf(whole, prefix)
        return whole

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return _biquads.replayed(KINDS, params, sample_rate, PREFIXES)

    def batched(self, x_BCT: torch.Tensor, params: Params, clips: DeviceBatchInfo) -> torch.Tensor:
        return _biquads.run(x_BCT, params, clips)


class _PartOf:
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
