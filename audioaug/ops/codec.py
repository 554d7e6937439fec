"""Codec: the artefacts of a random speech or music codec at a random quality. In the workers only.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audioaug.audio.codecs import CODECS, through_codec, why_missing
from audioaug.core import Capabilities, Choice, Contract, Distribution, NumpyReference, Op, Params, Uniform
from audioaug.core.fields import checked_weights
from audioaug.errors import ChainError, LibraryMissing, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Codec(Op):
    """Encode an example with one of several codecs and decode it: as long as before, and at the same place in time.

    | name | codec | sample rates | quality 0 to 1 |
    |---|---|---|---|
    | `mulaw`, `alaw` | G.711 | any | none |
    | `gsm` | GSM 6.10 | 8 kHz | none |
    | `adpcm` | IMA ADPCM | any | none |
    | `mp3` | MP3 (LAME) | 8, 11.025, 12 kHz | 8 to 64 kbit/s |
    | | | 16, 22.05, 24 kHz | 8 to 160 kbit/s |
    | | | 32, 44.1, 48 kHz | 32 to 320 kbit/s |
    | `vorbis` | Vorbis | 1 to 192 kHz | libvorbis' quality 0 to 10 |
    | `opus` | Opus | 8, 12, 16, 24, 48 kHz | 6 to 256 kbit/s |

    A bit rate is that of a whole example (MP3) or of each channel (Opus); the quality is 1 minus libsndfile's
    compression level. An example at another sample rate is resampled to the next higher one that the codec allows (else
    to the highest), and back. One beyond full scale is divided by the power of 2 that its peak does not exceed, and
    multiplied by it afterwards. Two channels are encoded together, except by GSM; more of them one by one.

    Sounds come at most one sample early or late, by Opus at most 0.15 ms. The level of speech changes
    by at most 0.2 dB; MP3 lowers it by 0.45 dB, as LAME does, and by up to 0.8 dB at its lowest bit rates, Opus at its
    lowest by up to 1.3 dB. ``G711`` is the first two codecs alone, and also runs on the device.

    Args:
        codecs: the names of the codecs to pick from, at least one.
        weights: how likely each is, relative to the others; equally by default.
        min_quality: lowest quality, 0 to 1, for codecs that have one.
        max_quality: highest quality, 0 to 1.
        p: probability of applying it, 0 to 1.

    Raises:
        ChainError: an unknown codec, or weights that do not fit.
        LibraryMissing: in a worker, libsndfile does not have one of the codecs.
        DataError: in a worker, a clip has values that are not finite.

    Reference: ``audioaug.audio.codecs.through_codec``, that is, libsndfile as soundfile calls it.

    Examples:
        A telephone:

        >>> from audioaug import ops
        >>> band = [ops.HighPassFilter(min_cutoff_freq=300, max_cutoff_freq=300, p=1.0),
        ...         ops.LowPassFilter(min_cutoff_freq=3400, max_cutoff_freq=3400, p=1.0)]
        >>> telephone = ops.Compose([*band, ops.Codec(codecs=["mulaw", "alaw", "gsm"], p=1.0)], p=0.5)
    """

    codecs: Sequence[str] = tuple(CODECS)
    weights: Sequence[float] | None = None
    min_quality: float = 0.0
    max_quality: float = 0.3

    contract = Contract.cpu_only("libsndfile encodes one clip at a time, on the CPU.")
    capabilities = Capabilities(library="libsndfile")
    limits = {"min_quality": (0.0, 1.0), "max_quality": (0.0, 1.0)}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "codecs", _checked_codecs(self.codecs))
        if self.weights is not None:
            object.__setattr__(self, "weights", checked_weights(self.name, self.weights, self.codecs, "codecs"))

    def distributions(self) -> dict[str, Distribution]:
        options = tuple(float(place) for place in range(len(self.codecs)))
        return {
            "codec": Choice(options, tuple(self.weights) if self.weights else None),
            "quality": Uniform(self.min_quality, self.max_quality),
        }

    def reference(self) -> Any:
        for codec in self.codecs:
            if reason := why_missing(codec):
                raise LibraryMissing(f"{self.name}: {reason}", f"Upgrade soundfile, or leave {codec!r} out of codecs.")
        return NumpyReference(through_codec)

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return {"codec": self.codecs[int(params["codec"])], "quality": params["quality"]}


def _checked_codecs(codecs: Any) -> tuple[str, ...]:
    """Return names of codecs; raise ``ChainError`` if they are not."""
    codecs = codecs.tolist() if isinstance(codecs, np.ndarray) else codecs
    if not isinstance(codecs, list | tuple) or not codecs:
        raise ChainError(f"Codec: codecs is {codecs!r}, but it must be a list of names, at least one of them.")
    for codec in codecs:
        if not isinstance(codec, str) or codec not in CODECS:
            raise ChainError(f"Codec: there is no codec {codec!r}.", did_you_mean(str(codec), CODECS))
    return tuple(map(str, codecs))
