"""White Gaussian noise as a pure function of a key: any device and any batch gives the same noise.

Shapes: R rows, C channels, T samples.
"""

import math

import torch

from audioaug.dsp import compiled, kernel
from audioaug.dsp.levels import added

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

    CPUs multiply eight of these at once, and of 64 bits one. Reference: lowbias32 (C. Wellons, "Prospecting for hash
    functions", 2018), whose second half starts from another key.
    """
    z = counter * _GOLDEN_32 + key
    z.bitwise_xor_(_shift_right(z, 16)).mul_(_MIX_1_32).add_(other_key)
    z.bitwise_xor_(_shift_right(z, 15)).mul_(_MIX_2_32)
    return z.bitwise_xor_(_shift_right(z, 16))


def gaussian(key_R: torch.Tensor, channels: int, samples: int) -> torch.Tensor:
    """Return standard normal noise (R, C, T), float32, independent between rows, channels and samples.

    Args:
        key_R: an integer for each row, below 2**52; equal keys give equal noise.
    """
    if kernel.fits(key_R):
        from audioaug.dsp.kernels import noise

        return noise.noise(key_R, channels, samples)
    keys_RC2, pairs = _keys(key_R, channels), -(-samples // 2)
    if compiled.fits(key_R):
        from audioaug.dsp.loops.noise import fill_with_noise

        y_RT = torch.empty(len(key_R) * channels, 2 * pairs)
        compiled.run(fill_with_noise, len(y_RT), keys_RC2.flatten(0, 1), y_RT)
        return y_RT.unflatten(0, (-1, channels))[..., :samples]
    counter_H = torch.arange(pairs, dtype=torch.int32, device=key_R.device)
    bits_RCH = _hash_32(counter_H, *keys_RC2[..., None].unbind(2))
    # Box and Muller (1958): the lower bits for the radius (never infinite), all of them for the angle.
    angle_RCH = bits_RCH.float().mul_(2.0 * math.pi * 2.0**-32)
    radius_RCH = bits_RCH.bitwise_and_((1 << RADIUS_BITS) - 1).float()
    radius_RCH.add_(0.5).mul_(2.0**-RADIUS_BITS).log_().mul_(-2.0).sqrt_()
    # Pairs lie side by side, so that a clip's noise does not depend on how far its batch is padded.
    pair_RCH = torch.complex(angle_RCH.cos().mul_(radius_RCH), angle_RCH.sin_().mul_(radius_RCH))
    return torch.view_as_real(pair_RCH).flatten(-2)[..., :samples]


def _keys(key_R: torch.Tensor, channels: int) -> torch.Tensor:
    """Return the two keys of each row's and channel's sequence, (R, C, 2)."""
    channel_C = torch.arange(1, channels + 1, device=key_R.device)
    key_RC = hash_64(hash_64(key_R)[:, None] + channel_C)
    return torch.stack([key_RC, key_RC >> 32], dim=-1).to(torch.int32)  # its halves: cut off, what is above 32 bits


def with_gaussian(
    x_RCT: torch.Tensor, key_R: torch.Tensor, gain_R: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``x + gain * gaussian(key)``: in one pass if it can be, into ``out`` if that is of use, be it x itself."""
    if kernel.fits(x_RCT):
        from audioaug.dsp.kernels import noise

        x_RCT = x_RCT.contiguous()
        into = torch.empty_like(x_RCT) if out is None or not out.is_contiguous() else out
        return noise.add_noise(x_RCT, key_R, gain_R, into)
    if compiled.fits(x_RCT):
        from audioaug.dsp.loops.noise import add_noise

        return compiled.of_rows(add_noise, x_RCT, _keys(key_R, x_RCT.shape[1]), gain_R, out=out)
    return added(x_RCT, gaussian(key_R, *x_RCT.shape[1:]), gain_R[:, None])


def uniform(key_R: torch.Tensor, count: int) -> torch.Tensor:
    """Return numbers in [0, 1), evenly spread, (R, count), float32; unrelated to the Gaussian noise of the same keys.

    Args:
        key_R: an integer for each row, below 2**52; equal keys give equal numbers.
        count: how many numbers for each row.
    """
    stream_R = hash_64(hash_64(key_R) - 1)  # channel c of the Gaussian noise has the stream of hash + c, c = 1, 2, ...
    bits_RN = hash_64(stream_R[:, None] + torch.arange(count, device=key_R.device))
    return _shift_right(bits_RN, 40).float() * 2.0**-24


def taps_of(magnitude_RF: torch.Tensor, phase_RF: torch.Tensor) -> torch.Tensor:
    """Return the impulse responses (R, 2 * F - 2) whose spectra have these magnitudes and phases.

    The first and the last bin of a real signal's spectrum are real: only the cosine of their phase counts.
    """
    real_RF, imaginary_RF = magnitude_RF * phase_RF.cos(), magnitude_RF * phase_RF.sin()
    inner_F = torch.ones_like(imaginary_RF[0])
    inner_F[:: max(1, len(inner_F) - 1)] = 0.0
    return torch.fft.irfft(torch.complex(real_RF, imaginary_RF * inner_F), 2 * magnitude_RF.shape[-1] - 2)


def a_weighting(frequency_hz_F: torch.Tensor) -> torch.Tensor:
    """Return the magnitude of the A-weighting filter at these frequencies (0.794 at 1 kHz: not yet normalised to 1).

    Reference: IEC 61672-1:2013, annex E.
    """
    square_F = frequency_hz_F.square()
    low_F = (square_F + 20.6**2) * ((square_F + 107.7**2) * (square_F + 737.9**2)).sqrt()
    return 12194.0**2 / (square_F + 12194.0**2) * (square_F / low_F) * square_F
