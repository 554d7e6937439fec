"""White Gaussian noise as a pure function of a key: any device and any batch gives the same noise.

Shapes: R rows, C channels, T samples, F frequencies.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.levels import added
from audioaug.dsp.loops import Floats, loop, run, run_rows, wide_vectors

f32, i32, u32 = np.float32, np.int32, np.uint32
Keys: TypeAlias = NDArray[np.int32]

_GOLDEN, _MIX_1, _MIX_2 = -7046029254386353131, -4658895280553007687, -7723592293110705685
_GOLDEN_32, _MIX_1_32, _MIX_2_32 = -1640531527, 2146121005, -2073254261

RADIUS_BITS = 20
"""Of 32 that a pair of normal numbers is made of: the largest is 5.4."""


def hash_64(counter: torch.Tensor) -> torch.Tensor:
    """Scramble 64-bit integers (int64, wrapping).

    Reference: the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    """
    z = counter * _GOLDEN
    z.bitwise_xor_(_shift_right(z, 30)).mul_(_MIX_1)
    z.bitwise_xor_(_shift_right(z, 27)).mul_(_MIX_2)
    return z.bitwise_xor_(_shift_right(z, 31))


def _shift_right(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift as if unsigned: torch's shift of signed integers copies the sign bit in."""
    return (z >> bits).bitwise_and_((1 << (torch.iinfo(z.dtype).bits - bits)) - 1)


def _hash_32(counter: torch.Tensor, key: torch.Tensor, other_key: torch.Tensor) -> torch.Tensor:
    """Scramble 32-bit integers (int32, wrapping): each pair of keys gives a sequence of its own.

    CPUs multiply eight of these in one instruction, and of 64 bits one. Reference: lowbias32 (C. Wellons, "Prospecting
    for hash functions", 2018), whose second half starts from another key.
    """
    z = counter * _GOLDEN_32 + key
    z.bitwise_xor_(_shift_right(z, 16)).mul_(_MIX_1_32).add_(other_key)
    z.bitwise_xor_(_shift_right(z, 15)).mul_(_MIX_2_32)
    return z.bitwise_xor_(_shift_right(z, 16))


@primitive
def gaussian(key_R: torch.Tensor, channels: int, samples: int) -> torch.Tensor:
    """Return standard normal noise (R, C, T), float32, independent between rows, channels and samples.

    Args:
        key_R: an integer for each row, below 2**52; equal keys give equal noise.
    """
    keys_RC2, pairs = _keys(key_R, channels), -(-samples // 2)
    counter_H = torch.arange(pairs, dtype=torch.int32, device=key_R.device)
    bits_RCH = _hash_32(counter_H, *keys_RC2[..., None].unbind(2))
    # Box and Muller (1958): the lower bits for the radius (never infinite), all of them for the angle.
    angle_RCH = bits_RCH.float().mul_(2.0 * math.pi * 2.0**-32)
    radius_RCH = bits_RCH.bitwise_and_((1 << RADIUS_BITS) - 1).float()
    radius_RCH.add_(0.5).mul_(2.0**-RADIUS_BITS).log_().mul_(-2.0).sqrt_()
    # Pairs lie side by side, so that a clip's noise does not depend on how far its batch is padded.
    pair_RCH = torch.complex(angle_RCH.cos().mul_(radius_RCH), angle_RCH.sin_().mul_(radius_RCH))
    return torch.view_as_real(pair_RCH).flatten(-2)[..., :samples]


@gaussian.loop()
def _gaussian_by_loop(key_R: torch.Tensor, channels: int, samples: int) -> torch.Tensor:
    y_RT = torch.empty(len(key_R) * channels, samples + samples % 2, device="cpu")
    run(_fill_rows, len(y_RT), _keys(key_R, channels).flatten(0, 1), y_RT)
    return y_RT.unflatten(0, (-1, channels))[..., :samples]


@gaussian.kernel()
def _gaussian_by_kernel(key_R: torch.Tensor, channels: int, samples: int) -> torch.Tensor:
    from audioaug.dsp.noise.kernel import noise

    return noise(key_R, channels, samples)


def _keys(key_R: torch.Tensor, channels: int) -> torch.Tensor:
    """Return the two keys of each row's and channel's sequence, (R, C, 2)."""
    channel_C = torch.arange(1, channels + 1, device=key_R.device)
    key_RC = hash_64(hash_64(key_R)[:, None] + channel_C)
    return torch.stack([key_RC, key_RC >> 32], dim=-1).to(torch.int32)  # its halves: cut off, what is above 32 bits


@primitive
def with_gaussian(
    x_RCT: torch.Tensor, key_R: torch.Tensor, gain_R: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``x + gain * gaussian(key)``: fused where it can be, then into ``out``, which may be x itself."""
    return added(x_RCT, gaussian(key_R, *x_RCT.shape[1:]), gain_R[:, None])


@with_gaussian.loop()
def _with_gaussian_by_loop(
    x_RCT: torch.Tensor, key_R: torch.Tensor, gain_R: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    return run_rows(_add_noise, x_RCT, _keys(key_R, x_RCT.shape[1]), gain_R, out=out)


@with_gaussian.kernel()
def _with_gaussian_by_kernel(
    x_RCT: torch.Tensor, key_R: torch.Tensor, gain_R: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    from audioaug.dsp.noise.kernel import add_noise

    x_RCT = x_RCT.contiguous()
    into = torch.empty_like(x_RCT) if out is None or not out.is_contiguous() else out
    return add_noise(x_RCT, key_R, gain_R, into)


def uniform(key_R: torch.Tensor, count: int) -> torch.Tensor:
    """Return numbers in [0, 1), evenly spread, (R, count), float32; unrelated to the Gaussian noise of the same keys.

    Args:
        key_R: an integer for each row, below 2**52; equal keys give equal numbers.
        count: how many numbers for each row.
    """
    stream_R = hash_64(hash_64(key_R) - 1)  # channel c of the Gaussian noise has the stream of hash + c, c = 1, 2, ...
    bits_RN = hash_64(stream_R[:, None] + torch.arange(count, device=key_R.device))
    return _shift_right(bits_RN, 40).float() * 2.0**-24


def phases(key_R: torch.Tensor, n_fft: int) -> torch.Tensor:
    """Return random phases, (R, n_fft // 2 + 1), from 0 to 2 pi."""
    return uniform(key_R, n_fft // 2 + 1) * (2 * math.pi)


@primitive
def colour(
    key_R: torch.Tensor, slope_R: torch.Tensor, weighted_R: torch.Tensor, sample_rate: int, n_fft: int
) -> torch.Tensor:
    """Return spectra of filters that give noise a colour, complex, (R, n_fft // 2 + 1), each up to a factor.

    Args:
        key_R: of their ``phases``.
        slope_R: of the power, as its power of the frequency.
        weighted_R: above 0 where the magnitude is multiplied by 2 plus the A-weighting.
        sample_rate: in Hz.
        n_fft: of how many taps the filters are; 0 Hz counts as 1 Hz.
    """
    frequency_hz_F = torch.arange(n_fft // 2 + 1, device=key_R.device) * (sample_rate / n_fft)
    weighting_RF = torch.where(weighted_R[:, None] > 0, 2.0 + a_weighting(frequency_hz_F), 1.0)
    frequency_hz_F[:1] = 1.0  # not [0], for which the host's number would be copied, and waited for
    # Steep slopes have factors beyond float32, but the level is set afterwards: the largest one may be 1.
    power_RF = slope_R[:, None] * frequency_hz_F.log()
    magnitude_RF = ((power_RF - power_RF.amax(dim=1, keepdim=True)) / 2).exp() * weighting_RF
    return real_spectrum(magnitude_RF, phases(key_R, n_fft))


@colour.kernel()
def _colour_by_kernel(
    key_R: torch.Tensor, slope_R: torch.Tensor, weighted_R: torch.Tensor, sample_rate: int, n_fft: int
) -> torch.Tensor:
    from audioaug.dsp.noise.kernel import colour

    return colour(key_R, slope_R, weighted_R, sample_rate, n_fft)


def real_spectrum(magnitude_RF: torch.Tensor, phase_RF: torch.Tensor) -> torch.Tensor:
    """Return spectra of real signals: of the first and the last bin, only the cosine of the phase counts."""
    real_RF, imaginary_RF = magnitude_RF * phase_RF.cos(), magnitude_RF * phase_RF.sin()
    inner_F = torch.ones_like(imaginary_RF[0])
    inner_F[:: max(1, len(inner_F) - 1)] = 0.0
    return torch.complex(real_RF, imaginary_RF * inner_F)


def a_weighting(frequency_hz_F: torch.Tensor) -> torch.Tensor:
    """Return the magnitude of the A-weighting filter at these frequencies (0.794 at 1 kHz: not yet normalised to 1).

    Reference: IEC 61672-1:2013, annex E.
    """
    square_F = frequency_hz_F.square()
    low_F = (square_F + 20.6**2) * ((square_F + 107.7**2) * (square_F + 737.9**2)).sqrt()
    return 12194.0**2 / (square_F + 12194.0**2) * (square_F / low_F) * square_F


# In vector registers, every function has to be a polynomial: these are exact to float32's digits.

BLOCK = 1024
"""Samples that stay in the cache while a loop works on them."""

RADIUS_MASK, RADIUS_STEP = i32(2**20 - 1), f32(2.0**-20)
TURN = f32(2 * math.pi * 2.0**-32)
EIGHTH_TURN = i32(2**29)
ROOT_HALF = i32(0x3F3504F3)
"""The bits of the root of 1/2."""
LN_2 = f32(math.log(2))
ONE, HALF, TWO = f32(1), f32(0.5), f32(2)
SIN_3, SIN_5, SIN_7, SIN_9 = f32(-1 / 6), f32(1 / 120), f32(-1 / 5040), f32(1 / 362880)
COS_2, COS_4, COS_6, COS_8 = f32(-1 / 2), f32(1 / 24), f32(-1 / 720), f32(1 / 40320)
LN_3, LN_5, LN_7, LN_9 = f32(2 / 3), f32(2 / 5), f32(2 / 7), f32(2 / 9)


@loop
def _fill_rows(keys_R2: Keys, y_RT: Floats, first: int, last: int) -> None:
    """Write the noise of two keys of each row; T is even."""
    for row in range(first, last):
        _fill(y_RT[row], 0, u32(keys_R2[row, 0]), u32(keys_R2[row, 1]))


@loop
def _add_noise(
    x_RT: Floats, keys_BC2: Keys, gain_B: Floats, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Add a gain times that noise to rows, ``channels`` of them an example. The result may be where x is."""
    some = np.empty(BLOCK, dtype=np.float32)
    for row in range(first, last):
        key_2, gain = keys_BC2[row // channels, row % channels], gain_B[row // channels]
        for begin in range(0, x_RT.shape[1], BLOCK):
            x_T, y_T = x_RT[row, begin : begin + BLOCK], y_RT[row, begin : begin + BLOCK]
            _fill(some, begin // 2, u32(key_2[0]), u32(key_2[1]))
            for t in range(len(x_T)):
                some[t] = x_T[t] + gain * some[t]
            for t in range(len(x_T)):
                y_T[t] = some[t]


@loop
def _fill(y_T: Floats, first_pair: int, key: Any, other_key: Any) -> None:
    wide_vectors()
    for pair in range(len(y_T) // 2):
        y_T[2 * pair], y_T[2 * pair + 1] = _pair(u32(first_pair + pair), key, other_key)


@loop
def _pair(counter: Any, key: Any, other_key: Any) -> tuple[Any, Any]:
    """Return two normal numbers. All is in 32 bits: what numba adds in 64 is cut again."""
    # The hash, as in _hash_32.
    z = u32(counter * u32(0x9E3779B9) + key)
    z = u32((z ^ (z >> u32(16))) * u32(0x7FEB352D) + other_key)
    z = u32((z ^ (z >> u32(15))) * u32(0x846CA68B))
    bits = i32(z ^ (z >> u32(16)))
    # The radius: u is m 2^e, with m around 1, whose logarithm is a series in t = (m - 1) / (m + 1).
    u = f32((f32(i32(bits & RADIUS_MASK)) + HALF) * RADIUS_STEP).view(np.int32)
    e = i32(i32(u - ROOT_HALF) >> i32(23))
    m = i32(u - i32(e << i32(23))).view(np.float32)
    t = (m - ONE) / (m + ONE)
    tt = t * t
    logarithm = f32(e) * LN_2 + t * (TWO + tt * (LN_3 + tt * (LN_5 + tt * (LN_7 + tt * LN_9))))
    radius = np.sqrt(-TWO * logarithm)
    # The angle: from the middle of its quarter of a turn.
    quarter = i32(i32(bits + EIGHTH_TURN) >> i32(30))
    a = f32(i32(bits - i32(quarter << i32(30)))) * TURN
    aa = a * a
    sine = a + a * aa * (SIN_3 + aa * (SIN_5 + aa * (SIN_7 + aa * SIN_9)))
    cosine = ONE + aa * (COS_2 + aa * (COS_4 + aa * (COS_6 + aa * COS_8)))
    odd = (quarter & i32(1)) != 0
    x, y = sine if odd else cosine, cosine if odd else sine
    x_below, y_below = (i32(quarter + i32(1)) & i32(2)) != 0, (quarter & i32(2)) != 0
    return (-x if x_below else x) * radius, (-y if y_below else y) * radius
