"""Levels: gains, peaks and decibels of rows.

Shapes: R rows, N values, B examples, C channels, T samples, K samples of a block.
"""

import math
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.dispatch import needs_torch_ops, primitive
from audioaug.dsp.loops import (
    Doubles,
    Floats,
    Integers,
    loop,
    loop_as_written,
    loop_of_sums,
    run,
    run_rows,
    wide_vectors,
)

SILENCE = 1e-9
"""Audio of a lower level than this counts as silent."""

LEAST = float(np.finfo(np.float32).tiny)
"""A peak below this counts as this: silence stays silent."""

NORM_BLOCK = 1024

SQUARES_BLOCK = 256

BLOCK = 1024
"""Samples that stay in the cache while a loop works on them."""

GAIN_BLOCK = 64
"""A loop finds the gains of this many samples as those of the first, times one power each."""

Decibels = TypeVar("Decibels", torch.Tensor, NDArray[np.float64])


def db_to_ratio(decibels: Decibels) -> Decibels:
    """Return the amplitude ratio of a level difference."""
    nepers = decibels * (math.log(10.0) / 20.0)
    return torch.exp(nepers) if isinstance(nepers, torch.Tensor) else np.exp(nepers)


@primitive
def change_gain(
    x_BCT: torch.Tensor,
    start_db_B: torch.Tensor,
    end_db_B: torch.Tensor,
    steps_B: torch.Tensor,
    begin_B: torch.Tensor,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Return examples with a first gain, which becomes a second one evenly in dB.

    Args:
        x_BCT: the examples.
        start_db_B: the gain up to sample ``begin``.
        end_db_B: the gain from ``steps`` samples later on.
        steps_B: above 0.
        begin_B: may lie outside the example.
        out: where a loop or kernel writes the result, if it is contiguous; it may be where x is.
    """
    into_BT = torch.arange(x_BCT.shape[-1], device=x_BCT.device, dtype=torch.int32) - begin_B[:, None].int()
    share_BT = (into_BT / steps_B[:, None]).clamp(0.0, 1.0)
    return x_BCT * db_to_ratio(torch.lerp(start_db_B[:, None], end_db_B[:, None], share_BT))[:, None]


@change_gain.loop()
def _change_gain_by_loop(
    x_BCT: torch.Tensor,
    start_db_B: torch.Tensor,
    end_db_B: torch.Tensor,
    steps_B: torch.Tensor,
    begin_B: torch.Tensor,
    out: torch.Tensor | None,
) -> torch.Tensor:
    return run_rows(_change_gain_rows, x_BCT, start_db_B, end_db_B, steps_B, begin_B, out=out)


@change_gain.kernel()
def _change_gain_by_kernel(
    x_BCT: torch.Tensor,
    start_db_B: torch.Tensor,
    end_db_B: torch.Tensor,
    steps_B: torch.Tensor,
    begin_B: torch.Tensor,
    out: torch.Tensor | None,
) -> torch.Tensor:
    from audioaug.dsp.levels import kernel

    return kernel.change_gain(x_BCT, start_db_B, end_db_B, steps_B, begin_B, out)


@loop
def _change_gain_rows(
    x_RT: Floats,
    start_db_B: Floats,
    end_db_B: Floats,
    steps_B: Integers,
    begin_B: Integers,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Change the gain of rows, ``channels`` of them an example. The result may be where x is."""
    wide_vectors()
    power_K = np.empty(GAIN_BLOCK)
    for row in range(first, last):
        b, x_T, y_T = row // channels, x_RT[row], y_RT[row]
        start, end = start_db_B[b] * (math.log(10) / 20), end_db_B[b] * (math.log(10) / 20)
        slope, samples = (end - start) / steps_B[b], len(x_T)
        begin, end_t = min(max(begin_B[b], 0), samples), min(max(begin_B[b] + steps_B[b], 0), samples)
        _amplify(x_T[:begin], np.float32(math.exp(start)), y_T[:begin])
        for k in range(GAIN_BLOCK):
            power_K[k] = math.exp(slope * k)
        for t in range(begin, end_t, GAIN_BLOCK):
            gain = math.exp(start + slope * (t - begin_B[b]))
            for k in range(min(GAIN_BLOCK, end_t - t)):
                y_T[t + k] = x_T[t + k] * np.float32(gain * power_K[k])
        _amplify(x_T[end_t:], np.float32(math.exp(end)), y_T[end_t:])


@loop
def _amplify(x_T: Floats, gain: np.float32, y_T: Floats) -> None:
    for t in range(len(x_T)):
        y_T[t] = gain * x_T[t]


@primitive
def norm(x_RN: torch.Tensor) -> torch.Tensor:
    """Return the root of the sum of each row's squares, whatever the dimensions before the last; silence: gradient 0.

    Block by block: the plain norm adds up in float32, and of a million squares that loses digits.
    """
    whole = x_RN.shape[-1] // NORM_BLOCK * NORM_BLOCK
    blocks = x_RN[..., :whole].unflatten(-1, (whole // NORM_BLOCK, NORM_BLOCK))
    rest = torch.linalg.vector_norm(x_RN[..., whole:], dim=-1, keepdim=True)
    return torch.linalg.vector_norm(torch.cat([torch.linalg.vector_norm(blocks, dim=-1), rest], dim=-1), dim=-1)


@norm.loop()
def _norm_by_loop(x_RN: torch.Tensor) -> torch.Tensor:
    rows = x_RN.shape[:-1]
    sum_R = x_RN.new_empty(rows.numel(), dtype=torch.float64)
    run(_add_squares, len(sum_R), x_RN.reshape(len(sum_R), x_RN.shape[-1]), sum_R)
    return sum_R.sqrt_().float().view(rows)


@loop
def _add_squares(x_RN: Floats, sum_R: Doubles, first: int, last: int) -> None:
    for row in range(first, last):
        sum_R[row] = _squares(x_RN[row])


@loop_of_sums
def _squares(x_N: Floats) -> float:
    """Return the sum of squares: of blocks in float32, which is done for more at a time, and of these in float64."""
    total = 0.0
    for begin in range(0, len(x_N), SQUARES_BLOCK):
        some_N, part = x_N[begin : min(begin + SQUARES_BLOCK, len(x_N))], np.float32(0.0)
        for n in range(len(some_N)):
            part += some_N[n] * some_N[n]
        total += np.float64(part)
    return total


def added(x_BCT: torch.Tensor, other_BCT: torch.Tensor, gain_BC: torch.Tensor) -> torch.Tensor:
    """Return ``x + gain * other``, with a gain for each channel or, (B, 1), example.

    It takes the memory of the other, which is not for use any more, if that is large enough, no gradient flows and
    nothing is traced.
    """
    out = None if needs_torch_ops(x_BCT) or other_BCT.shape != x_BCT.shape else other_BCT
    return torch.addcmul(x_BCT, other_BCT, gain_BC[..., None], out=out)


def gain_to(level_B: torch.Tensor, own_B: torch.Tensor) -> torch.Tensor:
    """Return what brings audio from its own level to another one; 0 where it is silent."""
    return level_B / own_B.masked_fill(own_B < SILENCE, torch.inf)


@primitive
def added_at(x_BCT: torch.Tensor, other_BCT: torch.Tensor, level_B: torch.Tensor, own_B: torch.Tensor) -> torch.Tensor:
    """Return ``x + other``, brought from its own level to another one; nothing is added where it is silent.

    As ``added``, it takes the other's memory.
    """
    return added(x_BCT, other_BCT, gain_to(level_B, own_B)[:, None])


@added_at.kernel(when=lambda x_BCT, other_BCT, *_: x_BCT.shape == other_BCT.shape)
def _added_at_by_kernel(
    x_BCT: torch.Tensor, other_BCT: torch.Tensor, level_B: torch.Tensor, own_B: torch.Tensor
) -> torch.Tensor:
    from audioaug.dsp.levels import kernel

    return kernel.added_at(x_BCT, other_BCT, level_B, own_B, SILENCE)


def add_partners_by_loop(
    x_BCT: torch.Tensor, partner_B: torch.Tensor, ratio_B: torch.Tensor, length_B: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """Return each example plus another one, at ``ratio`` of its own level in each channel. For a primitive's loop.

    Only the first ``length`` samples count and are mixed. ``epsilon`` is added to the partner's level.
    """
    return run_rows(_add_partners, x_BCT, partner_B, ratio_B, length_B, epsilon)


@loop
def _add_partners(
    x_RT: Floats,
    partner_B: Integers,
    ratio_B: Floats,
    length_B: Integers,
    epsilon: float,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    for row in range(first, last):
        example, channel = row // channels, row % channels
        length = length_B[example]
        x_T, y_T = x_RT[row, :length], y_RT[row, :length]
        other_T = x_RT[partner_B[example] * channels + channel, :length]
        gain = np.float32(ratio_B[example] * _rms(x_T, length) / (_rms(other_T, length) + epsilon))
        for t in range(length):
            y_T[t] = x_T[t] + gain * other_T[t]
        y_RT[row, length:] = x_RT[row, length:]


@loop
def _rms(x_N: Floats, count: int) -> float:
    return math.sqrt(_squares(x_N) / max(count, 1))


def add_excerpts_by_loop(
    x_B1T: torch.Tensor,
    bank_S: torch.Tensor,
    place_B: torch.Tensor,
    span_B: torch.Tensor,
    level_B: torch.Tensor,
    length_B: torch.Tensor,
    is_relative: bool,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Return rows plus excerpts of a bank, repeated where they are shorter. For a primitive's loop.

    Args:
        x_B1T: the rows.
        bank_S: what excerpts are from.
        place_B: where each begins.
        span_B: how long it is.
        level_B: the RMS that it is brought to, unless it is silent; if ``is_relative``, a factor of the row's.
        length_B: of the clips.
        is_relative: see ``level_B``.
        out: where the result goes, which may be where x is.
    """
    return run_rows(_add_excerpts, x_B1T, bank_S, place_B, span_B, level_B, length_B, is_relative, out=out)


@loop
def _add_excerpts(
    x_RT: Floats,
    bank_S: Floats,
    place_R: Integers,
    span_R: Integers,
    level_R: Floats,
    length_R: Integers,
    is_relative: bool,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    some = np.empty(BLOCK, dtype=np.float32)  # a loop over x and y would not be vectorized where these may overlap
    for row in range(first, last):
        span, level = span_R[row], level_R[row]
        noise_S = bank_S[place_R[row] : place_R[row] + span]
        if is_relative:
            level *= _rms(x_RT[row], length_R[row])
        own = _rms(noise_S, span)
        gain, begin = np.float32(level / own if own >= SILENCE else 0.0), 0
        while begin < x_RT.shape[1]:
            since = begin % span
            count = min(BLOCK, span - since, x_RT.shape[1] - begin)
            x_T, y_T, noise_T = x_RT[row, begin : begin + count], y_RT[row, begin : begin + count], noise_S[since:]
            for t in range(count):
                some[t] = x_T[t] + gain * noise_T[t]
            for t in range(count):
                y_T[t] = some[t]
            begin += count


@primitive
def peak(x_BCT: torch.Tensor) -> torch.Tensor:
    """Return the highest absolute sample of each example over all channels, (B, 1, 1)."""
    return torch.maximum(x_BCT.amax(dim=(1, 2), keepdim=True), -x_BCT.amin(dim=(1, 2), keepdim=True))


@peak.loop()
def _peak_by_loop(x_BCT: torch.Tensor) -> torch.Tensor:
    y_B = x_BCT.new_empty(len(x_BCT))
    run(_find_highest, len(x_BCT), x_BCT.flatten(1), y_B)
    return y_B[:, None, None]


@peak.kernel()
def _peak_by_kernel(x_BCT: torch.Tensor) -> torch.Tensor:
    from audioaug.dsp.levels import kernel

    return kernel.peak(x_BCT.flatten(1))[:, None, None]


@primitive
def scaled(x_BCT: torch.Tensor, peak_B11: torch.Tensor, level: float, out: torch.Tensor | None) -> torch.Tensor:
    """Return examples with their peak brought to a level; silence stays as it is. ``out`` may be where x is."""
    return torch.mul(x_BCT, level / peak_B11.clamp(min=LEAST), out=out)


@scaled.kernel()
def _scaled_by_kernel(
    x_BCT: torch.Tensor, peak_B11: torch.Tensor, level: float, out: torch.Tensor | None
) -> torch.Tensor:
    from audioaug.dsp.levels import kernel

    return kernel.divide_by_peak(x_BCT, peak_B11, out, level=level)


@primitive
def normalize(x_BCT: torch.Tensor, only_too_loud: bool, out: torch.Tensor | None) -> torch.Tensor:
    """Divide each example by its peak; silence stays as it is.

    Args:
        x_BCT: the examples.
        only_too_loud: leave examples with a peak below 1.0 as they are, too.
        out: where the result goes; it may be where x is.
    """
    peak_B11 = peak(x_BCT)
    changes = peak_B11 >= 1.0 if only_too_loud else peak_B11 > 0
    return torch.div(x_BCT, torch.where(changes, peak_B11, 1.0), out=out)


@normalize.loop()
def _normalize_by_loop(x_BCT: torch.Tensor, only_too_loud: bool, out: torch.Tensor | None) -> torch.Tensor:
    y_BCT = run_rows(
        _normalize_rows, x_BCT.flatten(1)[:, None], only_too_loud, out=None if out is None else out.flatten(1)[:, None]
    )
    return y_BCT.view(x_BCT.shape)


@normalize.kernel()
def _normalize_by_kernel(x_BCT: torch.Tensor, only_too_loud: bool, out: torch.Tensor | None) -> torch.Tensor:
    from audioaug.dsp.levels import kernel

    return kernel.divide_by_peak(x_BCT, peak(x_BCT), out, least=1.0 if only_too_loud else 0.0)


def level(x_BCT: torch.Tensor, length_B: torch.Tensor) -> torch.Tensor:
    """Return the level of each clip, silent past its end: the mean over channels of each channel's RMS, (B,)."""
    rms_BC = rms(x_BCT, length_B[:, None])
    return rms_BC[:, 0] if rms_BC.shape[1] == 1 else rms_BC.mean(dim=1)


@primitive
def rms(x_RN: torch.Tensor, count_R: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of each row's first ``count`` values; the others are 0. Silence has gradient 0.

    There may be several dimensions before the last, of which ``count`` has fewer, or some of size 1 at its end.
    """
    return norm(x_RN) / count_R.clamp(min=1).sqrt()


@rms.kernel()
def _rms_by_kernel(x_RN: torch.Tensor, count_R: torch.Tensor) -> torch.Tensor:
    from audioaug.dsp.levels import kernel

    return kernel.rms(x_RN, count_R)


def rms_without_silence(x_RN: torch.Tensor, count_R: torch.Tensor, window: int) -> torch.Tensor:
    """Return the root mean square of those windows that are at most 28 dB (a factor of 25) softer than the loudest.

    Only windows that end before the row's first ``count`` values do are looked at; the values after these must be 0.
    Where there is no such window, or all are silent, it is that of the whole.

    Reference: ``audiomentations.core.utils.calculate_rms_without_silence``.
    """
    windows_RWN = torch.nn.functional.pad(x_RN, (0, -x_RN.shape[-1] % window)).unflatten(-1, (-1, window))
    end_W = torch.arange(1, windows_RWN.shape[1] + 1, device=x_RN.device) * window
    power_RW = torch.where(end_W < count_R[:, None], windows_RWN.square().mean(dim=-1), 0.0)
    heard_RW = power_RW > power_RW.amax(dim=-1, keepdim=True) / 25**2
    power_R = torch.where(heard_RW, power_RW, 0.0).sum(dim=-1) / heard_RW.sum(dim=-1).clamp(min=1)
    return torch.where(heard_RW.any(dim=-1), power_R.masked_fill(power_R == 0, 1.0).sqrt(), rms(x_RN, count_R))


@loop
def _find_highest(x_RN: Floats, y_R: Floats, first: int, last: int) -> None:
    """Find each row's highest absolute value: as integers, without their sign, floats have the same order."""
    for row in range(first, last):
        bits_N, highest = x_RN[row].view(np.int32), np.int32(0)
        for n in range(len(bits_N)):
            highest = max(highest, np.int32(bits_N[n] & np.int32(0x7FFFFFFF)))
        y_R.view(np.int32)[row] = highest


@loop_as_written
def _normalize_rows(x_RN: Floats, only_too_loud: bool, channels: int, y_RN: Floats, first: int, last: int) -> None:
    """Divide each row by its peak, while the row is in the cache."""
    in_place, peak_R = x_RN.ctypes.data == y_RN.ctypes.data, np.empty(len(x_RN), dtype=np.float32)
    for row in range(first, last):
        _find_highest(x_RN, peak_R, row, row + 1)
        x_N, y_N, divisor = x_RN[row], y_RN[row], peak_R[row]
        if not divisor > 0 or (only_too_loud and divisor < 1):
            divisor = np.float32(1)
        if in_place:  # with two arrays that overlap, the loop would not be vectorized: 4x slower
            for n in range(len(y_N)):
                y_N[n] = y_N[n] / divisor
        else:
            for n in range(len(x_N)):
                y_N[n] = x_N[n] / divisor
