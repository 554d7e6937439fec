"""Mix: another example of the same batch, at a random level. On the device only.

Shapes: B examples (those of a batch that the op touches), C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    FRACTION,
    INTS,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    TorchAudiomentationsOp,
    Uniform,
    arguments,
)
from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import add_partners_by_loop, added, db_to_ratio, rms
from audioaug.ops._torch_reference import TorchReference

SILENCE = 1e-8
"""What is added to the partner's level before dividing by it, as in the reference."""


@dataclass(frozen=True, kw_only=True)
class Mix(Op):
    """Add another example of the batch, ``snr_in_db`` below the example's level.

    The partner is drawn from the examples to which the op is applied, and may be the example itself. It is cut, or
    padded with silence, to the example's length; levels are those of each channel alone, over that length.

    The result depends on which examples share a batch: the only op of which batch size, shuffling and the number of
    processes change the audio. No worker can run it, since a worker sees one example at a time. The labels that
    ``Loader(targets=...)`` knows are mixed as ``mix_target`` says.

    Args:
        min_snr_in_db: lowest level of the example above the partner's, in dB.
        max_snr_in_db: highest level of the example above the partner's, in dB.
        mix_target: ``"original"``: labels stay; ``"union"``: they become those of both.
        p: probability of applying it, 0 to 1.

    Reference: ``torch_audiomentations.augmentations.mix.Mix``.
    """

    min_snr_in_db: float = 0.0
    max_snr_in_db: float = 5.0
    mix_target: Literal["original", "union"] = "union"

    contract = Contract.exact(rtol=2e-6)
    capabilities = Capabilities(mixes_examples=True, library="torch_audiomentations")
    param_types = {"snr_in_db": FLOATS, "ratio": FLOATS, "partner": INTS}

    def distributions(self) -> dict[str, Distribution]:
        return {"snr_in_db": Uniform(self.min_snr_in_db, self.max_snr_in_db), "partner_share": FRACTION}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        partner_B = (draw["partner_share"] * len(batch.lengths)).astype(np.int64)
        return {"snr_in_db": draw["snr_in_db"], "ratio": db_to_ratio(-draw["snr_in_db"]), "partner": partner_B}

    def mixing(self, draw: Params, batch: BatchInfo) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        partner_B = self.resolve(draw, batch)["partner"]
        if self.mix_target == "original":
            return np.arange(len(partner_B)), np.ones(len(partner_B))
        return partner_B, 1.0 / (1.0 + 10.0 ** (-draw["snr_in_db"] / 10.0))

    def reference(self) -> Any:
        return TorchReference(self.name, arguments(self))

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"snr_in_db": params["snr_in_db"], "sample_idx": 0}  # the only example of a batch of one

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        x_CT = np.atleast_2d(samples)
        other_CT = others[params["partner"]][:, : x_CT.shape[1]]
        other_CT = np.pad(other_CT, ((0, 0), (0, x_CT.shape[1] - other_CT.shape[1])))
        parameters = {"snr_in_db": torch.tensor([params["snr_in_db"]] * 2).float(), "sample_idx": torch.tensor([1, 0])}
        pair_2CT = torch.from_numpy(np.stack([x_CT, other_CT]))
        return reference.on_batch(pair_2CT, parameters, sample_rate)[0].numpy()

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        return _mixed(x_BCT, params, batch)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            "Mix",
            lambda x_BCT, params, batch: {"snr_in_db": params["snr_in_db"], "sample_idx": params["partner"]},
        )


@primitive
def _mixed(x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
    """Add each example's partner at the level that was drawn; levels leave padding out."""
    length_B1, partner_BCT = batch.lengths_B[:, None], x_BCT.index_select(0, params["partner"])
    level_BC = rms(x_BCT, length_B1)
    if batch.padded_to is None:
        partner_level_BC = level_BC.index_select(0, params["partner"])
    else:
        partner_BCT = batch.masked(partner_BCT)
        partner_level_BC = rms(partner_BCT, length_B1)
    return added(x_BCT, partner_BCT, level_BC * params["ratio"][:, None] / (partner_level_BC + SILENCE))


@_mixed.loop()
def _mixed_by_loop(x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
    return add_partners_by_loop(x_BCT, params["partner"], params["ratio"], batch.lengths_B, SILENCE)
