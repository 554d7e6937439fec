"""TimeStretch: faster or slower by a random rate, at the same pitch.

Shapes: R rows, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    INTS,
    LENGTHS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    ParamType,
    Timeline,
    Uniform,
)
from audioaug.dsp.dispatch import map_chunks
from audioaug.dsp.stretch import frame_size, phase_vocoder, stretch
from audioaug.dsp.windows import silence_past_ends
from audioaug.errors import DataError

Method = Literal["librosa_phase_vocoder", "signalsmith_stretch"]

SAMPLES_STEP = 1024
"""Results are made as long as a multiple of this, so that shapes repeat."""


@dataclass(frozen=True, kw_only=True)
class TimeStretch(Op):
    """Play an example faster or slower without changing its pitch.

    Args:
        min_rate: slowest rate, at least 0.1; below 1 is slower and longer.
        max_rate: fastest rate, at most 10.
        leave_length_unchanged: crop to the clip's length, or fill up with silence. With ``False`` the clip becomes
            ``round(length / rate)`` samples long.
        method: ``"signalsmith_stretch"`` (mono or stereo) or ``"librosa_phase_vocoder"``, which is worse: it smears
            attacks, and makes voices reverberate and stereo blur, here as in the reference.
        p: probability of applying it, 0 to 1.

    Raises:
        DataError: a clip has more than two channels, which signalsmith_stretch does not take.

    Reference: ``audiomentations.TimeStretch``. ``"librosa_phase_vocoder"`` is followed to a few thousandths;
    ``"signalsmith_stretch"`` by ear: another method of that quality, aligned in time as it is. At rates below 0.5, the
    reference blurs phases at random; this does not.
    """

    min_rate: float = 0.8
    max_rate: float = 1.25
    leave_length_unchanged: bool = True
    method: Method = "signalsmith_stretch"

    contract = Contract.perceptual(spectrum_db=4.0)
    limits = {"min_rate": (0.1, float("inf")), "max_rate": (-float("inf"), 10.0)}

    def distributions(self) -> dict[str, Distribution]:
        return {"rate": Uniform(self.min_rate, self.max_rate)}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(needs_length=True, changes_length=not self.leave_length_unchanged, changes_timing=True)

    @property
    def param_types(self) -> dict[str, ParamType]:
        lengths = {"stretched": INTS} if self.leave_length_unchanged else {"length_out": LENGTHS}
        return {"rate": FLOATS, "samples": STATIC, **lengths}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        check_channels(self.name, self.method, batch.channels)
        long_B = stretched_lengths(self.method, batch.lengths, draw["rate"])
        wanted_B = np.minimum(long_B, batch.lengths) if self.leave_length_unchanged else long_B
        samples = -(-int(wanted_B.max()) // SAMPLES_STEP) * SAMPLES_STEP
        kept = "stretched" if self.leave_length_unchanged else "length_out"
        return {"rate": draw["rate"], kept: long_B, "samples": samples}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"rate": params["rate"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        samples = params["samples"]

        def stretched(some: slice) -> torch.Tensor:
            rate_R = params["rate"][some]
            if self.method == "librosa_phase_vocoder":
                return phase_vocoder(x_BCT[some], rate_R, samples, batch.lengths_B[some])
            return stretch(x_BCT[some], rate_R, samples, frame_size(batch.sample_rate))

        y_BCT = map_chunks(stretched, x_BCT, max(samples, x_BCT.shape[-1]) * x_BCT.shape[1])
        if not self.leave_length_unchanged:
            return y_BCT
        y_BCT = torch.nn.functional.pad(y_BCT, (0, x_BCT.shape[-1] - y_BCT.shape[-1]))
        return silence_past_ends(y_BCT, params["stretched"])

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        return Timeline([(0, length, 0, length / params["rate"])], length, params.get("length_out", length))


def stretched_lengths(method: Method, lengths: NDArray[np.int64], rate: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the lengths at these rates as the reference rounds: halves up, in float32, or to even."""
    if method == "librosa_phase_vocoder":
        return np.rint(lengths / rate).astype(np.int64)
    quotient = lengths.astype(np.float32) / rate.astype(np.float32)
    return np.floor(quotient.astype(np.float64) + 0.5).astype(np.int64)


def check_channels(op: str, method: Method, channels: int) -> None:
    """Raise ``DataError`` if a method does not take this many channels."""
    if channels > 2 and method == "signalsmith_stretch":
        raise DataError(
            f"{op}: signalsmith_stretch takes mono or stereo, but this clip has {channels} channels.",
            'Use method="librosa_phase_vocoder", or mix it down first.',
        )
