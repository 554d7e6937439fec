"""LowPassFilter, HighPassFilter, BandPassFilter, BandStopFilter: Butterworth filters of random edges and steepness.

Shapes: B examples, C channels, T samples.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    DRAWN_INTS,
    FLOATS,
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
    TorchAudiomentationsOp,
    Uniform,
    UniformInt,
)
from audioaug.dsp import biquads
from audioaug.dsp.biquads.cascade import run as run_cascades
from audioaug.dsp.filters import Kind, cascade, extension, warped, zero_phase
from audioaug.errors import ChainError
from audioaug.ops.fused import CASCADES

INF = float("inf")


@dataclass(frozen=True, kw_only=True)
class Butterworth(Op, registry=None):
    """What all four have. A zero-phase filter runs twice with half the order."""

    min_rolloff: int = 12
    max_rolloff: int = 24
    zero_phase: bool = False

    kind: ClassVar[Kind]
    contract = Contract.exact(rtol=1e-5)
    param_types = {"order": DRAWN_INTS, "low_hz": FLOATS, "high_hz": FLOATS, "cascades": CASCADES}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_rolloff", "max_rolloff"):
            value = getattr(self, name)
            if value < self._rolloff_step or value % self._rolloff_step:
                because = " with zero_phase" if self.zero_phase else ""
                raise ChainError(
                    f"{self.name}: {name} is {value}, but it must be a multiple of {self._rolloff_step}{because}."
                )

    @property
    def _rolloff_step(self) -> int:
        """The steepness of a filter of order 1, in dB an octave."""
        return 12 if self.zero_phase else 6

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(linear=not self.zero_phase)

    def distributions(self) -> dict[str, Distribution]:
        return {"order": UniformInt(self.min_rolloff // self._rolloff_step, self.max_rolloff // self._rolloff_step)}

    @abstractmethod
    def edges_hz(self, draw: Params) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the edges of the band; for one-sided filters the cutoff twice."""

    def _designed(self, draw: Params, sample_rate: int) -> tuple[NDArray[np.float64], biquads.Sections]:
        """Return the edges (2, R), moved below Nyquist as in the reference, and the filters."""
        edges_hz = biquads.below_nyquist(np.asarray(self.edges_hz(draw)), sample_rate)
        return edges_hz, cascade(self.kind, draw["order"].astype(np.int64), *warped(edges_hz, sample_rate))

    def linear(self, draw: Params, batch: BatchInfo) -> Linear:
        return Linear(sections=[self._designed(draw, batch.sample_rate)[1]])

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        # With zero phase the clip is extended; a cut past its end is as good.
        extra = 2 * extension(self.kind, int(draw["order"].max())) if self.zero_phase else 0
        (low_hz, high_hz), sections = self._designed(draw, batch.sample_rate)
        cascades = biquads.plan([sections], int(batch.lengths.max(initial=1)) + extra)
        return {**draw, "low_hz": low_hz, "high_hz": high_hz, "cascades": cascades}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"rolloff": int(params["order"]) * self._rolloff_step}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        def run(y_BCT: torch.Tensor) -> torch.Tensor:
            return run_cascades(y_BCT, params["cascades"], batch.out(y_BCT))

        if not self.zero_phase:
            return run(x_BCT)
        edge_B = extension(self.kind, params["order"])
        longest_edge = extension(self.kind, self.max_rolloff // 12)
        return zero_phase(run, x_BCT, batch.lengths_B, edge_B, longest_edge)

    def torch_audiomentations(self) -> TorchAudiomentationsOp:
        return TorchAudiomentationsOp(
            self.name,
            lambda x_BCT, params, batch: self.torch_audiomentations_parameters(params["low_hz"], params["high_hz"]),
            differs="a linear-phase windowed-sinc filter of fixed, far steeper slope, with -6 dB at the edge instead "
            "of -3 dB",
        )

    @abstractmethod
    def torch_audiomentations_parameters(
        self, low_hz_B: torch.Tensor, high_hz_B: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return torch-audiomentations' parameters; above the Nyquist frequency it raises, so these edges are below."""


@dataclass(frozen=True, kw_only=True)
class OneSided(Butterworth, registry=None):
    """What the low-pass and the high-pass have."""

    min_cutoff_freq: float = 0.0
    max_cutoff_freq: float = 0.0

    limits = {"min_cutoff_freq": (1e-3, INF)}
    param_types = {"cutoff_freq": HOST_ONLY, **Butterworth.param_types}

    def distributions(self) -> dict[str, Distribution]:
        return {"cutoff_freq": MelUniform(self.min_cutoff_freq, self.max_cutoff_freq), **super().distributions()}

    def edges_hz(self, draw: Params) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return draw["cutoff_freq"], draw["cutoff_freq"]

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"cutoff_freq": params["cutoff_freq"], **super().replay(params, samples, sample_rate)}

    def torch_audiomentations_parameters(
        self, low_hz_B: torch.Tensor, high_hz_B: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return {"cutoff_freq": low_hz_B}


@dataclass(frozen=True, kw_only=True)
class Band(Butterworth, registry=None):
    """What the band-pass and the band-stop have."""

    min_center_freq: float = 200.0
    max_center_freq: float = 4000.0
    min_bandwidth_fraction: float = 0.5
    max_bandwidth_fraction: float = 1.99

    limits = {
        "min_center_freq": (1e-3, INF),
        "min_bandwidth_fraction": (1e-6, 2.0),
        "max_bandwidth_fraction": (1e-6, 1.999999),
    }
    param_types = {"center_freq": HOST_ONLY, "bandwidth_fraction": HOST_ONLY, **Butterworth.param_types}

    def distributions(self) -> dict[str, Distribution]:
        return {
            "center_freq": MelUniform(self.min_center_freq, self.max_center_freq),
            "bandwidth_fraction": Uniform(self.min_bandwidth_fraction, self.max_bandwidth_fraction),
            **super().distributions(),
        }

    def edges_hz(self, draw: Params) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        half_hz = draw["center_freq"] * draw["bandwidth_fraction"] / 2
        return draw["center_freq"] - half_hz, draw["center_freq"] + half_hz

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        bandwidth = params["center_freq"] * params["bandwidth_fraction"]
        shared = super().replay(params, samples, sample_rate)
        return {"center_freq": params["center_freq"], "bandwidth": bandwidth, **shared}

    def torch_audiomentations_parameters(
        self, low_hz_B: torch.Tensor, high_hz_B: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        bandwidth_B = 2 * (high_hz_B - low_hz_B) / (high_hz_B + low_hz_B)
        return {"center_freq": (low_hz_B + high_hz_B) / 2, "bandwidth": bandwidth_B}


@dataclass(frozen=True, kw_only=True)
class LowPassFilter(OneSided):
    """Filter with a Butterworth low-pass of random cutoff (evenly spread in mels) and steepness.

    Args:
        min_cutoff_freq: lowest cutoff (-3 dB; -6 dB with zero phase), in Hz.
        max_cutoff_freq: highest cutoff, in Hz. A cutoff above half the sample rate is moved just below it.
        min_rolloff: least steepness, in dB an octave, a multiple of 6 (of 12 with zero phase).
        max_rolloff: greatest steepness.
        zero_phase: filter forward and backward, so that nothing is delayed.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.LowPassFilter``.
    """

    min_cutoff_freq: float = 150.0
    max_cutoff_freq: float = 7500.0

    kind = "lowpass"


@dataclass(frozen=True, kw_only=True)
class HighPassFilter(OneSided):
    """Filter with a Butterworth high-pass of random cutoff (evenly spread in mels) and steepness.

    Args:
        min_cutoff_freq: lowest cutoff (-3 dB; -6 dB with zero phase), in Hz.
        max_cutoff_freq: highest cutoff, in Hz. A cutoff above half the sample rate is moved just below it.
        min_rolloff: least steepness, in dB an octave, a multiple of 6 (of 12 with zero phase).
        max_rolloff: greatest steepness.
        zero_phase: filter forward and backward, so that nothing is delayed.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.HighPassFilter``.
    """

    min_cutoff_freq: float = 20.0
    max_cutoff_freq: float = 2400.0

    kind = "highpass"


@dataclass(frozen=True, kw_only=True)
class BandPassFilter(Band):
    """Filter with a Butterworth band-pass of random centre (evenly spread in mels), width and steepness.

    Args:
        min_center_freq: lowest centre of the band, in Hz.
        max_center_freq: highest centre of the band, in Hz.
        min_bandwidth_fraction: smallest width of the band, as a share of its centre, at least 1e-6.
        max_bandwidth_fraction: greatest width of the band, below 2.
        min_rolloff: least steepness, in dB an octave, a multiple of 6 (of 12 with zero phase).
        max_rolloff: greatest steepness.
        zero_phase: filter forward and backward, so that nothing is delayed.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.BandPassFilter``.
    """

    kind = "bandpass"


@dataclass(frozen=True, kw_only=True)
class BandStopFilter(Band):
    """Filter with a Butterworth band-stop of random centre (evenly spread in mels), width and steepness.

    Args:
        min_center_freq: lowest centre of the band, in Hz.
        max_center_freq: highest centre of the band, in Hz.
        min_bandwidth_fraction: smallest width of the band, as a share of its centre, at least 1e-6.
        max_bandwidth_fraction: greatest width of the band, below 2.
        min_rolloff: least steepness, in dB an octave, a multiple of 6 (of 12 with zero phase).
        max_rolloff: greatest steepness.
        zero_phase: filter forward and backward, so that nothing is delayed.
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.BandStopFilter``.
    """

    kind = "bandstop"
