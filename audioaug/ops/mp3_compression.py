"""Mp3Compression: the artefacts of an MP3 file of a random bit rate. In the workers only.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Choice, Contract, Distribution, Op, Params
from audioaug.errors import ChainError, ClipRefused, first_line

BITRATES_KBPS = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320)


@dataclass(frozen=True, kw_only=True)
class Mp3Compression(Op):
    """Encode an example as MP3 and decode it again.

    Args:
        min_bitrate: lowest bit rate, in kbit/s.
        max_bitrate: highest bit rate, in kbit/s.
        backend: the encoder; ``"fast-mp3-augment"`` works in memory.
        preserve_delay: keep the encoder's delay; ``"pydub"`` requires ``False``, ``"lameenc"`` ``True``.
        quality: 0 (best, slow) to 9 (worst, fast).
        p: probability of applying it, 0 to 1.

    Reference: ``audiomentations.Mp3Compression``.
    """

    min_bitrate: int = 8
    max_bitrate: int = 64
    backend: Literal["pydub", "lameenc", "fast-mp3-augment"] = "fast-mp3-augment"
    preserve_delay: bool = False
    quality: int = 7

    contract = Contract.cpu_only("LAME encodes one clip at a time, on the CPU.")
    limits = {"min_bitrate": (8, 320), "max_bitrate": (8, 320), "quality": (0, 9)}

    def __post_init__(self) -> None:
        super().__post_init__()
        can = {"pydub": False, "lameenc": True}.get(self.backend, self.preserve_delay)
        if self.preserve_delay != can:
            raise ChainError(
                f"Mp3Compression: backend {self.backend!r} does not support preserve_delay={self.preserve_delay}.",
                "Use 'fast-mp3-augment'.",
            )

    def distributions(self) -> dict[str, Distribution]:
        options = tuple(float(rate) for rate in BITRATES_KBPS if self.min_bitrate <= rate <= self.max_bitrate)
        if not options:
            raise ChainError(
                f"Mp3Compression: there is no bit rate from {self.min_bitrate} to {self.max_bitrate} kbit/s.",
                f"MP3 knows {', '.join(map(str, BITRATES_KBPS))}.",
            )
        return {"bitrate": Choice(options)}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"bitrate": int(params["bitrate"])}

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        try:
            return super().apply_reference(reference, params, samples, sample_rate)
        except Exception as error:
            if type(error).__module__ != "fast_mp3_augment":
                raise
            raise ClipRefused(first_line(error)) from None
