"""AddColorNoise: noise whose spectrum rises or falls, of a random level relative to the example's.

Shapes: B examples, C channels, T samples, F frequencies, L = 2 * F - 2 taps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    DRAWN_INTS,
    FLOATS,
    FRACTION,
    INTS,
    NOISE_KEY,
    STATIC,
    BatchInfo,
    Contract,
    DeviceBatchInfo,
    Distribution,
    Op,
    Params,
    TorchAudiomentationsOp,
    Uniform,
)
from audioaug.core.draws import numpy_seeded
from audioaug.dsp.convolution import convolve
from audioaug.dsp.fft import irfft
from audioaug.dsp.levels import added, db_to_ratio, level, rms
from audioaug.dsp.noise import colour, gaussian, phases

DB_PER_OCTAVE = 10 * math.log10(2.0)
"""The slope, in dB an octave, of a power spectrum that is proportional to the frequency."""


@dataclass(frozen=True, kw_only=True)
class AddColorNoise(Op):
    """Add noise whose power changes by ``f_decay`` dB an octave, ``snr_db`` below the example's level.

    White noise passes ``n_fft`` taps of random phase. Their spectrum has the slope at multiples of ``sample_rate /
    n_fft`` only, and in between what the phases make of it. At 0 Hz it has the value of 1 Hz, which is most of the
    power for falling slopes: they sound like a low-pass at ``sample_rate / n_fft``. All channels share the filter, and
    their noise together is scaled to the level (the mean of the example's channels' RMS).

    Args:
        min_snr_db: lowest signal-to-noise ratio, in dB: the most noise.
        max_snr_db: highest signal-to-noise ratio, in dB.
        min_f_decay: lowest slope, in dB an octave: -6 is brown, -3 pink, 0 white, 3 blue, 6 violet.
        max_f_decay: highest slope, in dB an octave.
        p_apply_a_weighting: probability, 0 to 1, that the slope is multiplied by 2 plus the A-weighting curve.
        n_fft: number of taps, at least 2; an odd one counts as the even number below, for frequencies of its own.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.AddColorNoise``. It means to add 2 dB to the A-weighting, but adds 2: what is left of
    the curve is 3.3 dB. A slope of exactly 0 without weighting gives white noise, whose level is left to chance.
    """

    min_snr_db: float = 5.0
    max_snr_db: float = 40.0
    min_f_decay: float = -6.0
    max_f_decay: float = 6.0
    p_apply_a_weighting: float = 0.0
    n_fft: int = 128

    contract = Contract.statistical(
        level_db=0.3, noise_rtol=2e-6, numpy_draws=lambda op, params, shape: op._numpy_draws(params, shape)
    )
    param_types = {
        **dict.fromkeys(("snr_db", "ratio"), FLOATS),
        "f_decay": FLOATS,
        "noise_key": DRAWN_INTS,
        "weighted": INTS,
        "some_plain": STATIC,
    }
    limits = {"p_apply_a_weighting": (0.0, 1.0), "n_fft": (2, 2**24)}

    def distributions(self) -> dict[str, Distribution]:
        return {
            "snr_db": Uniform(self.min_snr_db, self.max_snr_db),
            "f_decay": Uniform(self.min_f_decay, self.max_f_decay),
            "weighting_share": FRACTION,
            "noise_key": NOISE_KEY,
        }

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        weighted = (draw["weighting_share"] < self.p_apply_a_weighting).astype(np.int64)
        plain = (draw["f_decay"] == 0) & (weighted == 0)
        numbers = {name: draw[name] for name in ("snr_db", "f_decay", "noise_key")}
        ratio = db_to_ratio(-draw["snr_db"])
        return {**numbers, "ratio": ratio, "weighted": weighted, "some_plain": int(plain.any())}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        rms = np.sqrt(np.mean(np.square(samples, dtype=np.float64), axis=-1)).mean()
        return {
            "desired_noise_rms": float(rms / 10 ** (params["snr_db"] / 20)),
            "f_decay": params["f_decay"],
            "apply_a_weighting": bool(params["weighted"]),
        }

    def _numpy_draws(self, params: Params, shape: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
        key_B = torch.tensor([int(params["noise_key"])])
        white = gaussian(key_B, int(np.prod(shape[:-1])), shape[-1]).reshape(shape)
        return {"normal": white.numpy(), "uniform": phases(key_B, self.n_fft)[0].numpy()}

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
        channels, samples = x_BCT.shape[1:]
        white_BCT = batch.masked(gaussian(params["noise_key"], channels, samples))
        slope_B = params["f_decay"] / DB_PER_OCTAVE
        spectrum_BF = colour(params["noise_key"], slope_B, params["weighted"], batch.sample_rate, self.n_fft)
        taps_BL = irfft(spectrum_BF, 2 * spectrum_BF.shape[-1] - 2, scaled=False)  # the noise is given a level below
        first = (taps_BL.shape[-1] - 1) // 2
        noise_BCT = batch.masked(convolve(white_BCT, taps_BL[:, None], start=first, samples_out=samples))
        rms_B = torch.linalg.vector_norm(rms(noise_BCT, batch.lengths_B[:, None]), dim=1) / math.sqrt(channels)
        level_B = level(x_BCT, batch.lengths_B) * params["ratio"]
        scale_B = level_B / rms_B.masked_fill(rms_B == 0, 1.0)
        if params["some_plain"]:
            plain_B = (params["f_decay"] == 0) & (params["weighted"] == 0)
            noise_BCT = torch.where(plain_B[:, None, None], white_BCT, noise_BCT)
            scale_B = torch.where(plain_B, level_B, scale_B)
        return added(x_BCT, noise_BCT, scale_B[:, None])

    def torch_audiomentations(self) -> TorchAudiomentationsOp | None:
        if self.p_apply_a_weighting:
            return None
        # Its exponent is meant for power, but acts on amplitude: halved, the slope is the one that was drawn.
        return TorchAudiomentationsOp(
            "AddColoredNoise",
            lambda x_BCT, params, batch: {
                "snr_in_db": params["snr_db"],
                "f_decay": params["f_decay"] / (-2 * DB_PER_OCTAVE),
            },
            differs="one second of noise repeated, the same on all channels; a smooth slope; each channel's own level",
            seed_from="noise_key",
        )
