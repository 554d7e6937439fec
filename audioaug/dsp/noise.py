"""White Gaussian noise as a pure function of a key: any device and any batch gives the same noise.

Shapes: R rows, C channels, T samples.
"""

import math

import torch

_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


def hash_64(counter: torch.Tensor) -> torch.Tensor:
    """Scramble 64-bit integers (int64, wrapping).

    Reference: the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    """
    z = counter * _GOLDEN
    z = (z ^ _shift_right(z, 30)) * _MIX_1
    z = (z ^ _shift_right(z, 27)) * _MIX_2
    return z ^ _shift_right(z, 31)


def _shift_right(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift as if unsigned: torch's int64 shift copies the sign bit in."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def gaussian(key_R: torch.Tensor, channels: int, samples: int) -> torch.Tensor:
    """Return standard normal noise (R, C, T), float32, independent between rows, channels and samples.

    Args:
        key_R: an integer for each row, below 2**52; equal keys give equal noise.
    """
    half = -(-samples // 2)
    stream_RC = hash_64(hash_64(key_R)[:, None] + torch.arange(1, channels + 1, device=key_R.device))
    bits_RCH = hash_64(stream_RC[..., None] + torch.arange(half, device=key_R.device))
    # Box and Muller (1958): 32 bits for the radius (never zero), 32 for the angle.
    radius = ((_shift_right(bits_RCH, 32).float() + 0.5) * 2.0**-32).clamp(max=1.0).log().mul_(-2.0).sqrt_()
    angle = (bits_RCH & 0xFFFFFFFF).float() * (2.0 * math.pi * 2.0**-32)
    # Pairs lie side by side, so that a clip's noise does not depend on how far its batch is padded.
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1).flatten(-2)[..., :samples]
