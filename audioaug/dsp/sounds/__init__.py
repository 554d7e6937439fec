"""Short sounds, faded and each at a level of its own, added to examples.

Shapes: B examples, C channels (1), T samples, S sounds of all examples together, N samples of a sound, P samples in
memory.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import db_to_ratio, rms, rms_without_silence
from audioaug.dsp.loops import Floats, Integers, loop, loop_of_sums, run
from audioaug.dsp.windows import windows

f32 = np.float32


@dataclass(frozen=True)
class Sounds:
    """Where sounds lie in memory and in examples, and their fades, in samples. Those of count 0 are not heard.

    Args:
        row: the example of each, in ascending order, (S,) like all others.
        first: of each example, the first sound, and that of none, (B + 1,).
        begin: where a sound begins in its example.
        count: how much of it is heard; it ends within the example.
        place: where what is heard begins in memory.
        played: how much of the sound is over when it begins.
        left: how much of it is left after its first sample.
        fade_in: how long it fades in, from its own start.
        fade_out: how long it fades out, to its own end.
        longest: no count exceeds that.
    """

    row: torch.Tensor
    first: torch.Tensor
    begin: torch.Tensor
    count: torch.Tensor
    place: torch.Tensor
    played: torch.Tensor
    left: torch.Tensor
    fade_in: torch.Tensor
    fade_out: torch.Tensor
    longest: int

    @property
    def excerpts(self) -> tuple[torch.Tensor, ...]:
        """What is read from memory, and how it fades."""
        return self.count, self.place, self.played, self.left, self.fade_in, self.fade_out


@primitive
def with_sounds(
    x_BCT: torch.Tensor,
    memory_P: torch.Tensor,
    sounds: Sounds,
    level_S: torch.Tensor,
    is_relative: bool,
    window: int | None,
    gain_db: float,
) -> torch.Tensor:
    """Return the examples with sounds added.

    Args:
        x_BCT: the examples, mono.
        memory_P: samples, with at least ``sounds.longest`` after each place.
        sounds: which there are.
        level_S: the RMS that a sound is to have.
        is_relative: whether that is a share of the RMS of the segment of the example that it falls on.
        window: of this many samples are those that do not count for a sound's own RMS where they are far softer than
            its loudest (``rms_without_silence``); ``None``: all count.
        gain_db: of the example while there are sounds, faded as they are.
    """
    time_N, count_S1 = torch.arange(sounds.longest, device=x_BCT.device), sounds.count[:, None]
    inside_SN = time_N < count_S1
    within_SN = torch.minimum(time_N, (count_S1 - 1).clamp(min=0))
    fade_SN = torch.where(inside_SN, _fades(within_SN, sounds), 0.0)
    noise_SN = windows(memory_P, sounds.place, sounds.longest) * fade_SN
    x_P = x_BCT.reshape(-1)  # all examples one after the other
    place_SN = (sounds.row * x_BCT.shape[-1] + sounds.begin)[:, None] + within_SN
    rms_S = rms(noise_SN, sounds.count) if window is None else rms_without_silence(noise_SN, sounds.count, window)
    if is_relative:
        level_S = level_S * rms(torch.where(inside_SN, x_P[place_SN], 0.0), sounds.count)
    heard_SN = inside_SN & (rms_S > 0)[:, None]
    gain_S1 = (level_S / rms_S.masked_fill(rms_S == 0, 1.0))[:, None]
    noise_SN = torch.where(heard_SN, noise_SN * gain_S1, 0.0)
    if gain_db:
        fade_SN = torch.where(heard_SN, fade_SN, 0.0)
        fade_P = torch.zeros_like(x_P).scatter_reduce(0, place_SN.flatten(), fade_SN.flatten(), "amax")
        x_P = x_P * db_to_ratio(fade_P * gain_db)
    return x_P.index_add(0, place_SN.flatten(), noise_SN.flatten()).view_as(x_BCT)


def _fades(within_SN: torch.Tensor, sounds: Sounds) -> torch.Tensor:
    """Return the gain at each sample, from the sound's own start and end, also where these lie outside the clip."""
    gains = []
    for sides_SN, fade_S in (
        (sounds.played[:, None] + within_SN, sounds.fade_in),
        (sounds.left[:, None] - within_SN, sounds.fade_out),
    ):
        length_S1 = fade_S[:, None]
        gains.append(torch.where(sides_SN < length_S1, sides_SN / (length_S1 - 1).clamp(min=1), 1.0))
    return torch.minimum(*gains)


@with_sounds.loop(when=lambda x_BCT, memory_P, sounds, level_S, is_relative, window, gain_db: window is None)
def _add_by_loop(
    x_BCT: torch.Tensor,
    memory_P: torch.Tensor,
    sounds: Sounds,
    level_S: torch.Tensor,
    is_relative: bool,
    window: int | None,
    gain_db: float,
) -> torch.Tensor:
    y_BCT = torch.empty_like(x_BCT, memory_format=torch.contiguous_format)
    numbers = memory_P, sounds.first, sounds.begin, *sounds.excerpts, level_S, sounds.longest, is_relative, gain_db
    run(_add_sounds, len(x_BCT), x_BCT[:, 0], *numbers, y_BCT[:, 0])
    return y_BCT


@with_sounds.kernel(when=lambda x_BCT, memory_P, sounds, level_S, is_relative, window, gain_db: window is None)
def _add_by_kernel(
    x_BCT: torch.Tensor,
    memory_P: torch.Tensor,
    sounds: Sounds,
    level_S: torch.Tensor,
    is_relative: bool,
    window: int | None,
    gain_db: float,
) -> torch.Tensor:
    from audioaug.dsp.sounds import kernel

    places = sounds.row, sounds.first, sounds.begin
    return kernel.with_sounds(x_BCT, memory_P, places, sounds.excerpts, level_S, is_relative, gain_db)


@loop
def _add_sounds(
    x_BT: Floats,
    memory_P: Floats,
    first_B: Integers,
    begin_S: Integers,
    count_S: Integers,
    place_S: Integers,
    played_S: Integers,
    left_S: Integers,
    fade_in_S: Integers,
    fade_out_S: Integers,
    level_S: Floats,
    longest: int,
    is_relative: bool,
    gain_db: float,
    y_BT: Floats,
    first: int,
    last: int,
) -> None:
    fade_N, some_N = np.empty(longest, dtype=f32), np.empty(longest, dtype=f32)
    most_T = np.zeros(x_BT.shape[1], dtype=f32)  # of all fades of an example
    for row in range(first, last):
        x_T, y_T = x_BT[row], y_BT[row]
        y_T[:] = 0.0
        for s in range(first_B[row], first_B[row + 1]):
            begin, count = begin_S[s], count_S[s]
            heard_N = memory_P[place_S[s] : place_S[s] + count]
            _find_fades(played_S[s], left_S[s], fade_in_S[s], fade_out_S[s], fade_N[:count])
            for n in range(count):
                some_N[n] = heard_N[n] * fade_N[n]
            square = _sum_of_squares(some_N[:count])
            if square > 0:
                reference = _sum_of_squares(x_T[begin : begin + count]) if is_relative else np.float64(count)
                gain = f32(level_S[s] * math.sqrt(reference / square))
                into_N, most_N = y_T[begin : begin + count], most_T[begin : begin + count]
                for n in range(count):
                    into_N[n] += gain * some_N[n]
                for n in range(count if gain_db else 0):
                    most_N[n] = max(most_N[n], fade_N[n])
        if gain_db:
            for t in range(len(x_T)):
                y_T[t] += x_T[t] * f32(math.exp(most_T[t] * gain_db * (math.log(10) / 20)))
            most_T[:] = 0.0
        else:
            for t in range(len(x_T)):
                y_T[t] += x_T[t]


@loop
def _find_fades(played: int, left: int, fade_in: int, fade_out: int, fade_N: Floats) -> None:
    """Write the gain at each sample of a sound; between both fades it is 1."""
    count = len(fade_N)
    faded_in = min(max(fade_in - played, 0), count)
    whole = max(min(left - fade_out + 1, count), faded_in)
    fade_N[faded_in:whole] = 1.0
    for n in range(faded_in):
        fade_N[n] = _fade(played + n, left - n, fade_in, fade_out)
    for n in range(whole, count):
        fade_N[n] = _fade(played + n, left - n, fade_in, fade_out)


@loop
def _fade(since: int, until: int, fade_in: int, fade_out: int) -> np.float32:
    coming = f32(since) / f32(max(fade_in - 1, 1)) if since < fade_in else f32(1)
    going = f32(until) / f32(max(fade_out - 1, 1)) if until < fade_out else f32(1)
    return min(coming, going)


@loop_of_sums
def _sum_of_squares(x_N: Floats) -> float:
    total = 0.0
    for n in range(len(x_N)):
        total += np.float64(x_N[n]) * np.float64(x_N[n])
    return total
