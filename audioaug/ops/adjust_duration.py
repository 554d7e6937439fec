"""AdjustDuration: every clip cut or padded to one duration.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    HOST_ONLY,
    INTS,
    LENGTHS,
    NOISE_KEY,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Timeline,
)
from audioaug.core.draws import legacy_integer, numpy_seeded
from audioaug.dsp.windows import PadMode, pad
from audioaug.errors import ChainError


@dataclass(frozen=True, kw_only=True)
class AdjustDuration(Op):
    """Cut a random excerpt out of a clip that is too long, pad one that is too short. The length changes.

    Args:
        duration_samples: the new length in samples, at least 1.
        duration_seconds: the new length in seconds, above 0; exactly one of the two is required.
        padding_mode: ``"silence"``, ``"wrap"`` (the clip again) or ``"reflect"`` (mirrored).
        padding_position: where a clip that is too short is padded, ``"start"`` or ``"end"``.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.AdjustDuration``.
    """

    duration_samples: int | None = None
    duration_seconds: float | None = None
    padding_mode: PadMode = "silence"
    padding_position: Literal["start", "end"] = "end"

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(needs_length=True, changes_length=True, changes_timing=True)
    param_types = {
        "noise_key": HOST_ONLY,
        **dict.fromkeys(("start", "kept", "place"), INTS),
        "length_out": LENGTHS,
        "target": STATIC,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.duration_samples is None) == (self.duration_seconds is None):
            raise ChainError("AdjustDuration takes exactly one of duration_samples and duration_seconds.")
        for name in ("duration_samples", "duration_seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ChainError(f"AdjustDuration: {name} is {value}, but it must be greater than 0.")

    def distributions(self) -> dict[str, Distribution]:
        return {"noise_key": NOISE_KEY}  # the reference draws from numpy's global generator, which takes a seed

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        target = self.duration_samples or int((self.duration_seconds or 0.0) * batch.sample_rate)
        surplus = batch.lengths - target
        start = [
            legacy_integer(key, count) if count > 0 else 0
            for key, count in zip(draw["noise_key"].tolist(), surplus.tolist(), strict=True)
        ]
        kept = np.minimum(batch.lengths, target)
        return {
            **draw,
            "start": np.asarray(start, dtype=np.int64),
            "kept": kept,
            "place": target - kept if self.padding_position == "start" else np.zeros_like(kept),
            "length_out": np.full_like(batch.lengths, target),
            "target": target,
        }

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {}

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        with numpy_seeded(params["noise_key"]):
            return super().apply_reference(reference, params, samples, sample_rate)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        start_B, kept_B, place_B = (params[name] for name in ("start", "kept", "place"))
        return pad(x_BCT, start_B, kept_B, place_B, params["target"], self.padding_mode)

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        target = params["target"]
        kept = min(length, target)
        place = target - kept if self.padding_position == "start" else 0
        return Timeline.padded(length, target, params["start"], kept, place, self.padding_mode)

    @classmethod
    def from_reference(cls, reference: Any) -> dict[str, Any]:
        arguments = super().from_reference(reference)
        mode = arguments["padding_mode"]
        return {**arguments, "padding_mode": "silence" if mode == "constant" else mode}
