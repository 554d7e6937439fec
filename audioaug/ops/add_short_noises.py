"""AddShortNoises: several random recordings, or bursts of them, with pauses between, mixed in at random levels.

Shapes: B examples, C channels (1), T samples, F files, S sounds of all examples together.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.audio.bank import layout, samples_for
from audioaug.core import (
    FLOATS,
    HOST_ONLY,
    INTS,
    NOISE_KEY,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    OptionalType,
    Params,
)
from audioaug.dsp.levels import db_to_ratio, rms
from audioaug.dsp.sounds import Sounds, with_sounds
from audioaug.errors import ChainError
from audioaug.ops._recordings import WithRecordings

SOUND_STEP = 8
"""The number of sounds in a batch is rounded up to a multiple of this, so that shapes repeat."""

SAMPLE_STEP = 2048
"""Likewise the number of samples of the longest one."""

OF_SOUNDS = ("row", "first", "begin", "count", "place", "played", "left", "fade_in", "fade_out")
"""Arguments of ``Sounds`` that are a number for each."""


class Sound(NamedTuple):
    """One sound of one clip: when it starts and ends, in seconds from the clip's start, its file and its level."""

    fade_in_time: float
    start: float
    end: float
    fade_out_time: float
    file: int
    snr_db: float
    rms_db: float


@dataclass(frozen=True, kw_only=True)
class AddShortNoises(WithRecordings):
    """Mix in random files, whole, one after the other with pauses between; some are overlapped by a burst of others.

    The first one may begin, and even end, before the example does. Mono only.

    Args:
        sounds_path: a file or folder of short sounds, or a list of them.
        min_snr_db: lowest signal-to-noise ratio of a sound, in dB; not for ``noise_rms="absolute"``.
        max_snr_db: highest signal-to-noise ratio, in dB.
        min_time_between_sounds: shortest pause, in seconds, at least 0.
        max_time_between_sounds: longest pause, in seconds; the first sound starts at most that long before or after
            the example does.
        noise_rms: the level of a sound is ``"absolute"``, ``"relative"`` to the segment of the example that it falls
            on, or ``"relative_to_whole_input"``.
        min_absolute_noise_rms_db: lowest level, in dB of full scale; only for ``noise_rms="absolute"``.
        max_absolute_noise_rms_db: highest level, in dB, below 0.
        add_all_noises_with_same_level: draw the level once for an example, not for each sound.
        include_silence_in_noise_rms_estimation: with ``False``, segments of 25 ms of a sound do not count for its
            level if they are more than 28 dB softer than its loudest.
        burst_probability: that the next sound starts during a sound and not after a pause; above 0, at most 1.
        min_pause_factor_during_burst: when it then starts at the earliest, as a share of the sound; above 0, at most 1.
        max_pause_factor_during_burst: when it starts at the latest.
        min_fade_in_time: shortest fade-in, in seconds, at least 0.
        max_fade_in_time: longest fade-in, in seconds.
        min_fade_out_time: shortest fade-out, in seconds, at least 0.
        max_fade_out_time: longest fade-out, in seconds.
        signal_gain_in_db_during_noise: deprecated name of ``signal_gain_db_during_noise``; not both.
        signal_gain_db_during_noise: gain of the example, in dB, while there are sounds, faded as they are.
        noise_transform: not supported; ``Chain.from_audiomentations`` keeps it, and runs the op in the workers.
        p: probability of applying it, 0 to 1.
        lru_cache_size: without effect, as in the reference, which reads each sound from disk again.

    Raises:
        DataError: there is no audio at ``sounds_path`` when a chain is made of it, or a clip is not mono.

    Reference: ``audiomentations.AddShortNoises``. It raises where a fade-out is shorter than one sample; here there is
    none then.
    """

    sounds_path: str | Path | Iterable[str | Path]
    min_snr_db: float = -6.0
    max_snr_db: float = 18.0
    min_time_between_sounds: float = 2.0
    max_time_between_sounds: float = 8.0
    noise_rms: Literal["absolute", "relative", "relative_to_whole_input"] = "relative_to_whole_input"
    min_absolute_noise_rms_db: float = -50.0
    max_absolute_noise_rms_db: float = -20.0
    add_all_noises_with_same_level: bool = False
    include_silence_in_noise_rms_estimation: bool = True
    burst_probability: float = 0.22
    min_pause_factor_during_burst: float = 0.1
    max_pause_factor_during_burst: float = 1.1
    min_fade_in_time: float = 0.005
    max_fade_in_time: float = 0.08
    min_fade_out_time: float = 0.01
    max_fade_out_time: float = 0.1
    signal_gain_in_db_during_noise: float | None = None
    signal_gain_db_during_noise: float | None = None
    noise_transform: None = None
    lru_cache_size: int | None = 64

    paths = "sounds_path"
    contract = Contract.exact(rtol=1e-5)
    capabilities = Capabilities(multichannel=False, needs_length=True)
    param_types = {
        "schedule_key": HOST_ONLY,
        **dict.fromkeys(OF_SOUNDS, INTS),
        "level": FLOATS,
        "longest": STATIC,
        "shard": OptionalType(FLOATS),
    }
    limits = {
        **{f"min_{name}": (0.0, float("inf")) for name in ("time_between_sounds", "fade_in_time", "fade_out_time")},
        "min_pause_factor_during_burst": (0.0, 1.0),
        "burst_probability": (0.0, 1.0),
        "max_absolute_noise_rms_db": (-float("inf"), 0.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("burst_probability", "min_pause_factor_during_burst", "max_absolute_noise_rms_db"):
            if getattr(self, name) == 0:
                below = "less" if name.startswith("max") else "greater"
                raise ChainError(f"AddShortNoises: {name} is 0, but it must be {below} than 0.")
        for name in ("signal_gain_db_during_noise", "signal_gain_in_db_during_noise"):
            if not isinstance(gain_db := getattr(self, name), int | float | None):
                raise ChainError(f"AddShortNoises: {name} is {gain_db!r}, but it must be a number.")
        if self.signal_gain_db_during_noise is not None and self.signal_gain_in_db_during_noise is not None:
            raise ChainError(
                "AddShortNoises: signal_gain_in_db_during_noise is the deprecated name of signal_gain_db_during_noise.",
                "Use only the latter.",
            )
        if self.noise_transform is not None:
            raise ChainError(
                "AddShortNoises: noise_transform is not supported here.",
                "Transform the noise files first, or use Chain.from_audiomentations, which keeps it in the workers.",
            )

    def distributions(self) -> dict[str, Distribution]:
        self.recordings  # noqa: B018  (so that a missing folder raises here)
        return {"schedule_key": NOISE_KEY}

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        sounds = self._heard(draw["schedule_key"], batch)
        silent = max(1, -(-len(sounds["row"]) // SOUND_STEP)) * SOUND_STEP - len(sounds["row"])
        longest = -(-int(sounds["count"].max(initial=1)) // SAMPLE_STEP) * SAMPLE_STEP
        where = layout(self.recordings, batch.sample_rate)
        excerpts = where.excerpts(sounds.pop("file"), sounds["played"], sounds["count"])
        sounds["place"] = excerpts.pop("place")
        zeros = np.zeros(silent, dtype=np.int64)
        padded = {name: np.concatenate([values_S, zeros]) for name, values_S in sounds.items()}
        padded["row"][len(sounds["row"]) :] = len(batch.lengths) - 1
        first_B = np.searchsorted(padded["row"], np.arange(len(batch.lengths) + 1))
        return {"schedule_key": draw["schedule_key"], **padded, "first": first_B, **excerpts, "longest": longest}

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        seconds_F = (layout(self.recordings, sample_rate).lengths_F / sample_rate).tolist()
        sounds = self._schedule(params["schedule_key"], len(samples) / sample_rate, seconds_F)
        files, named = self.recordings.files, [sound._asdict() for sound in sounds]
        return {"sounds": [{"file_path": files[sound.pop("file")], **sound} for sound in named]}

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        level_S, longest = params["level"], params["longest"]
        if self.noise_rms == "relative_to_whole_input":
            level_S = level_S * rms(x_BCT[:, 0], batch.lengths_B)[params["row"]]
        bank_S = samples_for(params, self.recordings, batch.sample_rate, x_BCT.device, longest)
        sounds = Sounds(**{name: params[name] for name in OF_SOUNDS}, longest=longest)
        window = None if self.include_silence_in_noise_rms_estimation else max(1, int(0.025 * batch.sample_rate))
        gain_db = self.signal_gain_db_during_noise or self.signal_gain_in_db_during_noise or 0.0
        return with_sounds(x_BCT, bank_S, sounds, level_S, self.noise_rms == "relative", window, gain_db)

    def _heard(self, keys: NDArray[np.float64], batch: BatchInfo) -> dict[str, NDArray[Any]]:
        """Return the sounds of all clips of which anything is heard, as columns: where, how much of it, how loud."""
        where, rate = layout(self.recordings, batch.sample_rate), batch.sample_rate
        seconds_F = (where.lengths_F / rate).tolist()
        drawn = [
            self._draw(key, seconds, seconds_F)
            for key, seconds in zip(keys.tolist(), (batch.lengths / rate).tolist(), strict=True)
        ]
        row = np.repeat(np.arange(len(drawn)), [len(sounds) for sounds in drawn])
        table = self._scaled([sound for sounds in drawn for sound in sounds], seconds_F)
        start, fade_in, fade_out = (
            (table[name] * rate).astype(np.int64) for name in ("start", "fade_in_time", "fade_out_time")
        )
        length = where.lengths_F[table["file"]]
        begin, played = np.maximum(start, 0), np.maximum(-start, 0)
        count = np.minimum(start + length, batch.lengths[row]) - begin
        columns = {
            "row": row,
            "begin": begin,
            "count": count,
            "file": table["file"],
            "played": played,
            "left": length - 1 - played,
            "fade_in": fade_in,
            "fade_out": np.where(fade_out > 1, fade_out, 0),  # the reference's fade-out of one sample is 1
            "level": db_to_ratio(table["rms_db"] if self.noise_rms == "absolute" else -table["snr_db"]),
        }
        heard = np.flatnonzero((table["end"] >= 0) & (count > 0))
        return {name: column[heard] for name, column in columns.items()}

    def _schedule(self, key: float, seconds: float, seconds_F: list[float]) -> list[Sound]:
        """Draw the sounds of one clip; files last ``seconds_F``."""
        table = self._scaled(self._draw(key, seconds, seconds_F), seconds_F)
        return [Sound(*sound) for sound in zip(*(table[name].tolist() for name in Sound._fields), strict=True)]

    def _draw(self, key: float, seconds: float, seconds_F: list[float]) -> list[tuple[float, ...]]:
        """Draw the sounds of one clip, as the reference's ``randomize_parameters`` does; files last ``seconds_F``.

        Each is its start and file, and shares of the ranges of its fades and levels, for ``_scaled``.
        """
        rng = random.Random(int(key))  # 5x faster than numpy's generators, which are made for arrays
        share, sounds = rng.random, list[tuple[float, ...]]()
        levels = share(), share()
        now = rng.uniform(-self.max_time_between_sounds, self.max_time_between_sounds)
        while now < seconds:
            file, fades = rng.randrange(len(seconds_F)), (share(), share())
            if not self.add_all_noises_with_same_level:
                levels = share(), share()
            sounds.append((now, file, *fades, *levels))
            if share() < self.burst_probability:
                factor = rng.uniform(self.min_pause_factor_during_burst, self.max_pause_factor_during_burst)
                now += factor * seconds_F[file]
            else:
                now += seconds_F[file]
                now += rng.uniform(self.min_time_between_sounds, self.max_time_between_sounds)
        return sounds

    def _scaled(self, drawn: list[tuple[float, ...]], seconds_F: list[float]) -> dict[str, NDArray[Any]]:
        """Return the fields of ``Sound`` for sounds that were drawn, a column each."""
        start_S, file_S, fade_in_S, fade_out_S, snr_S, rms_S = np.asarray(drawn, dtype=np.float64).reshape(-1, 6).T
        file_S = file_S.astype(np.int64)
        seconds_S = np.asarray(seconds_F)[file_S]
        return {
            "fade_in_time": np.minimum(seconds_S, _within(fade_in_S, self.min_fade_in_time, self.max_fade_in_time)),
            "start": start_S,
            "end": start_S + seconds_S,
            "fade_out_time": np.minimum(seconds_S, _within(fade_out_S, self.min_fade_out_time, self.max_fade_out_time)),
            "file": file_S,
            "snr_db": _within(snr_S, self.min_snr_db, self.max_snr_db),
            "rms_db": _within(rms_S, self.min_absolute_noise_rms_db, self.max_absolute_noise_rms_db),
        }

    @classmethod
    def from_reference(cls, reference: Any) -> dict[str, Any]:
        """Read the arguments back; the reference keeps the gain under both names, and no gain as 0."""
        arguments = super().from_reference(reference)
        if arguments["signal_gain_in_db_during_noise"] is not None or not arguments["signal_gain_db_during_noise"]:
            arguments["signal_gain_db_during_noise"] = None
        return arguments


def _within(share_S: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    return low + (high - low) * share_S
