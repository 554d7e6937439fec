"""PitchShift: higher or lower by a random number of semitones, at the same speed.

Shapes: B examples, C channels, T samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    HOST_ONLY,
    INTS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    Uniform,
)
from audioaug.dsp.dispatch import map_chunks
from audioaug.dsp.resample import fixed_ratio, resample
from audioaug.dsp.stretch import frame_size, phase_vocoder, stretch
from audioaug.ops.time_stretch import SAMPLES_STEP, Method, check_channels


@dataclass(frozen=True, kw_only=True)
class PitchShift(Op):
    """Shift the pitch of an example without changing its duration: stretch it, then play that faster or slower.

    Args:
        min_semitones: lowest shift, at least -24.
        max_semitones: highest shift, at most 24.
        method: ``"signalsmith_stretch"`` (mono or stereo) or ``"librosa_phase_vocoder"``, which is worse: see
            ``TimeStretch``.
        p: probability of applying it, 0 to 1.

    Raises:
        DataError: a clip has more than two channels, which signalsmith_stretch does not take.

    Reference: ``audiomentations.PitchShift``. ``"librosa_phase_vocoder"`` is followed to a few thousandths, up to the
    resampler's band limit; ``"signalsmith_stretch"`` by ear. torch-audiomentations has a counterpart, but it
    supports some shifts only, so it cannot be given ours.
    """

    min_semitones: float = -4.0
    max_semitones: float = 4.0
    method: Method = "signalsmith_stretch"

    contract = Contract.perceptual(spectrum_db=4.0)
    capabilities = Capabilities(needs_length=True)
    param_types = {
        "num_semitones": HOST_ONLY,
        **dict.fromkeys(("rate", "highest"), FLOATS),
        "step": INTS,
        "stretched": INTS,
        "samples": STATIC,
    }
    limits = {"min_semitones": (-24.0, float("inf")), "max_semitones": (-float("inf"), 24.0)}

    def distributions(self) -> dict[str, Distribution]:
        return {"num_semitones": Uniform(self.min_semitones, self.max_semitones)}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        check_channels(self.name, self.method, batch.channels)
        rate = 2.0 ** (-draw["num_semitones"] / 12)
        librosa = self.method == "librosa_phase_vocoder"
        long_B = (np.rint if librosa else np.ceil)(batch.lengths / rate).astype(np.int64)
        samples = -(-int(long_B.max()) // SAMPLES_STEP) * SAMPLES_STEP
        step = fixed_ratio(np.ones_like(rate), rate)
        highest = np.minimum(rate, 1.0)
        return {**draw, "rate": rate, "highest": highest, "step": step, "stretched": long_B, "samples": samples}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"num_semitones": params["num_semitones"]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        def shifted(some: slice) -> torch.Tensor:
            rate_R, samples = params["rate"][some], params["samples"]
            classic = self.method == "librosa_phase_vocoder"
            if classic:
                y_RCT = phase_vocoder(x_BCT[some], rate_R, samples, batch.lengths_B[some])
            else:  # what would land above the Nyquist frequency is left out where that costs nothing
                y_RCT = stretch(x_BCT[some], rate_R, samples, frame_size(batch.sample_rate), params["highest"][some])
            step_R, stretched_R = params["step"][some], params["stretched"][some]
            return resample(y_RCT, step_R, x_BCT.shape[-1], stretched_R, band_limit=classic)

        return map_chunks(shifted, x_BCT, params["samples"] * x_BCT.shape[1])
