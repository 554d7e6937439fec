"""G711: samples as the 8 bits of a digital telephone line hold them.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.codecs import through_codec
from audioaug.core import Capabilities, Contract, DeviceBatchInfo, NumpyReference, Op, Params
from audioaug.dsp.companding import Law, companded, full_scale


@dataclass(frozen=True, kw_only=True)
class G711(Op):
    """Encode every sample in 8 bits and decode it, as a telephone line does, at the example's own sample rate.

    The steps between values grow with the level. An example beyond full scale is divided by the power of 2 that its
    peak does not exceed, and multiplied by it afterwards. ``Codec`` has both laws among other codecs, in the workers.

    Args:
        law: ``"mulaw"`` (North America, Japan) or ``"alaw"`` (elsewhere), which has no value for silence: that becomes
            a constant of 0.00024.
        p: probability of applying it, 0 to 1.

    Raises:
        DataError: in a worker, a clip has values that are not finite.

    Reference: ITU-T G.711 as libsndfile encodes and decodes it (``audioaug.audio.codecs.through_codec``).
    """

    law: Law = "mulaw"

    contract = Contract.exact(rtol=0.0)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_silence=self.law == "mulaw", library="libsndfile")

    def reference(self) -> Any:
        return NumpyReference(through_codec)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"codec": self.law}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return companded(x_BCT, full_scale(x_BCT).flatten(), self.law, batch.out(x_BCT))
