"""ShuffleChannels: the channels in a random order.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    HOST_ONLY,
    INTS,
    NOISE_KEY,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    TorchAudiomentationsOp,
    arguments,
)
from audioaug.core.draws import uniforms
from audioaug.ops._torch_reference import TorchReference


@dataclass(frozen=True, kw_only=True)
class ShuffleChannels(Op):
    """Put the channels of an example into a random order, each order equally likely. Mono stays as it is.

    Args:
        p: probability of applying it, 0 to 1.

    Reference: ``torch_audiomentations.ShuffleChannels``, which warns of mono; this does not.
    """

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(keeps_silence=True, library="torch_audiomentations")
    param_types = {"order_key": HOST_ONLY, "orders": INTS, "channels": INTS}

    def distributions(self) -> dict[str, Distribution]:
        return {"order_key": NOISE_KEY}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        order_BC = _orders(draw["order_key"], batch.channels)
        first_B1 = np.arange(len(order_BC))[:, None] * batch.channels
        return {**draw, "orders": order_BC.ravel(), "channels": (first_B1 + order_BC).ravel()}

    def reference(self) -> Any:
        return TorchReference(self.name, arguments(self))

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        order_1C = _orders(np.asarray([params["order_key"]]), len(np.atleast_2d(samples)))
        return {f"permutations_{place}": int(channel) for place, channel in enumerate(order_1C[0])}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return x_BCT.flatten(0, 1).index_select(0, params["channels"]).view_as(x_BCT)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "ShuffleChannels",
            lambda x_BCT, params, batch: {"permutations": params["orders"].view(x_BCT.shape[:2])},
        )


def _orders(key_B: NDArray[np.float64], channels: int) -> NDArray[np.int64]:
    """Return which channel comes at each place, (B, C): channels in the order of numbers that the key draws."""
    return uniforms(0, 0, key_B, range(channels), [0] * channels).argsort(axis=1)
