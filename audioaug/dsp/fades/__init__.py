"""Fade curves, as audiomentations uses them where it cuts or joins audio, and segments of rows that they fade.

Shapes: B examples, C channels, T samples, W samples of a fade, K segments; R rows, a channel of an example each.
"""

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop, run
from audioaug.dsp.windows import BLOCK, join_segments, read, read_around, write

EQUAL_ENERGY, EQUAL_GAIN = 1.4186, -0.70912
"""How a fade bends."""


def crossfade(position: torch.Tensor, length: "int | torch.Tensor", equal_energy: bool) -> torch.Tensor:
    """Return the gain of a fade-in at sample ``position`` of ``length`` samples: 0 before it, 1 after it.

    Equal energy suits unrelated sounds, equal gain the same sound on both sides.

    Reference: Signalsmith Audio, "A cheap energy-preserving-ish crossfade" (2021); ``get_crossfade_mask_pair``.
    """
    last = max(length - 1, 1) if isinstance(length, int) else (length - 1).clamp(min=1)
    x = (position / last).clamp_(0.0, 1.0)
    bend = torch.addcmul(x, x, x, value=-1.0)
    return (bend * (EQUAL_ENERGY if equal_energy else EQUAL_GAIN)).add_(1.0).mul_(bend).add_(x).square_()


@primitive
def silence_segment(
    y_BCT: torch.Tensor, start_B: torch.Tensor, count_B: torch.Tensor, fade_B: torch.Tensor, longest_fade: int
) -> torch.Tensor:
    """Silence ``count`` samples of each example, from ``start`` on, with fades inside; in place. Returns the examples.

    Args:
        y_BCT: the examples.
        start_B: where the segment begins; all of it lies within the example.
        count_B: how long it is.
        fade_B: how long each fade is: at least 1, which is none, and at most half of the segment.
        longest_fade: the length that no fade exceeds.
    """
    # Blocks that lie in the segment are silent; around its ends, each sample has a gain of its own.
    start_B1, count_B1, fade_B1, samples = start_B[:, None], count_B[:, None], fade_B[:, None], y_BCT.shape[-1]
    end_B1, whole = start_B1 + count_B1, samples // BLOCK
    block_N = torch.arange(0, samples, BLOCK, device=y_BCT.device)
    heard_BN = (block_N < start_B1) | (block_N + BLOCK > end_B1)
    width = min(samples, BLOCK + longest_fade)
    begin_B2 = torch.cat([start_B1, end_B1 - width], dim=1).clamp(0, samples - width)
    around_BCKW = read(y_BCT, begin_B2, width)
    y_BCT[..., : whole * BLOCK].unflatten(-1, (whole, BLOCK)).mul_(heard_BN[:, None, :whole, None])
    y_BCT[..., whole * BLOCK :].mul_(heard_BN[:, None, whole:])
    for begin_B, around_BCW in zip(begin_B2.unbind(1), around_BCKW.unbind(2)):
        after_BW = begin_B[:, None] + torch.arange(width, device=y_BCT.device) - start_B1
        outward_BW = (after_BW - (count_B1 - 1) / 2).abs_() - ((count_B1 + 1) / 2 - fade_B1)
        write(y_BCT, begin_B, around_BCW * crossfade(outward_BW, fade_B1, equal_energy=False)[:, None])
    return y_BCT


def _is_contiguous(y_BCT: torch.Tensor, *_: object, **__: object) -> bool:
    return y_BCT.is_contiguous()


def _rows_are_contiguous(y_BCT: torch.Tensor, *_: object, **__: object) -> bool:
    return y_BCT.stride(-1) == 1


@silence_segment.loop(when=_is_contiguous)
def _silence_by_loop(
    y_BCT: torch.Tensor, start_B: torch.Tensor, count_B: torch.Tensor, fade_B: torch.Tensor, longest_fade: int
) -> torch.Tensor:
    rows_RT, numbers = y_BCT.flatten(0, 1), (start_B, count_B, fade_B, EQUAL_GAIN, y_BCT.shape[1])
    run(_silence_rows, len(rows_RT), *numbers, rows_RT, most_threads=1)
    return y_BCT


@silence_segment.kernel(when=_rows_are_contiguous)
def _silence_by_kernel(
    y_BCT: torch.Tensor, start_B: torch.Tensor, count_B: torch.Tensor, fade_B: torch.Tensor, longest_fade: int
) -> torch.Tensor:
    from audioaug.dsp.fades import kernel

    kernel.silence_segment(y_BCT, start_B, count_B, fade_B, EQUAL_GAIN)
    return y_BCT


@primitive
def fade_around(y_BCT: torch.Tensor, stitch_B: torch.Tensor, fade: int) -> torch.Tensor:
    """Fade out ``fade`` samples before each example's stitch and in after it; in place where it can be.

    A stitch may lie outside the example.
    """
    if y_BCT.requires_grad:  # gradients need what is faded, and each place once
        place_T = torch.arange(y_BCT.shape[-1], device=y_BCT.device)
        return y_BCT * crossfade(_distance(place_T, stitch_B), fade, equal_energy=True)[:, None]
    # Places beyond the example are its ends, and get what these get.
    place_BW = (stitch_B[:, None] + torch.arange(-fade, fade, device=y_BCT.device)).clamp_(0, y_BCT.shape[-1] - 1)
    place_BCW = place_BW[:, None].expand(-1, y_BCT.shape[1], -1)
    gain_BW = crossfade(_distance(place_BW, stitch_B), fade, equal_energy=True)
    return y_BCT.scatter_(-1, place_BCW, y_BCT.gather(-1, place_BCW) * gain_BW[:, None])


def _distance(place: torch.Tensor, stitch_B: torch.Tensor) -> torch.Tensor:
    """Return how far places, (W,) or (B, W), are from the nearer side of each example's stitch, (B, W)."""
    return torch.maximum(place - stitch_B[:, None], stitch_B[:, None] - 1 - place)


@fade_around.loop(when=_is_contiguous)
def _fade_by_loop(y_BCT: torch.Tensor, stitch_B: torch.Tensor, fade: int) -> torch.Tensor:
    rows_RT, numbers = y_BCT.flatten(0, 1), (stitch_B, fade, EQUAL_ENERGY, y_BCT.shape[1])
    run(_fade_rows, len(rows_RT), *numbers, rows_RT, most_threads=1)
    return y_BCT


@fade_around.kernel(when=_rows_are_contiguous)
def _fade_by_kernel(y_BCT: torch.Tensor, stitch_B: torch.Tensor, fade: int) -> torch.Tensor:
    from audioaug.dsp.fades import kernel

    kernel.fade_around(y_BCT, stitch_B, fade, EQUAL_ENERGY)
    return y_BCT


@primitive
def crossfaded_segments(
    x_BCT: torch.Tensor,
    begin_BK: torch.Tensor,
    by_BK: torch.Tensor,
    same_sound_B: torch.Tensor,
    samples_out: int,
    fade: int,
) -> torch.Tensor:
    """Join segments as ``windows.join_segments`` does, each but the first faded in over what continues the one before.

    Args:
        x_BCT: the examples; around them is silence.
        begin_BK: where each segment begins: no two within ``fade`` samples.
        by_BK: how much later it is than in the example.
        same_sound_B: which segment is faded in with equal gain; all others with equal energy.
        samples_out: of the result.
        fade: samples of each fade.
    """
    y_BCT = join_segments(x_BCT, begin_BK, by_BK, samples_out)
    return _fade_seams(y_BCT, x_BCT, begin_BK, by_BK, same_sound_B, fade)


@crossfaded_segments.kernel()
def _join_by_kernel(
    x_BCT: torch.Tensor,
    begin_BK: torch.Tensor,
    by_BK: torch.Tensor,
    same_sound_B: torch.Tensor,
    samples_out: int,
    fade: int,
) -> torch.Tensor:
    from audioaug.dsp.fades import kernel

    return kernel.crossfaded_segments(x_BCT, begin_BK, by_BK, same_sound_B, samples_out, fade, EQUAL_ENERGY, EQUAL_GAIN)


@primitive
def _fade_seams(
    y_BCT: torch.Tensor,
    x_BCT: torch.Tensor,
    begin_BK: torch.Tensor,
    by_BK: torch.Tensor,
    same_sound_B: torch.Tensor,
    fade: int,
) -> torch.Tensor:
    """Fade where segments begin, from what continues the one before; in place where it can be."""
    samples, within_W = y_BCT.shape[-1], torch.arange(fade, device=x_BCT.device)
    begin_BK = begin_BK.clamp(max=samples)
    is_same_BK = torch.arange(begin_BK.shape[1], device=x_BCT.device) == same_sound_B[:, None]
    fade_in_BKW, fade_out_BKW = (
        torch.where(
            is_same_BK[:, 1:, None],
            crossfade(position_W, fade, equal_energy=False),
            crossfade(position_W, fade, equal_energy=True),
        )
        for position_W in (within_W, fade - 1 - within_W)
    )
    before_BCKW, piece_BCKW = (read_around(x_BCT, begin_BK[:, 1:] - by, fade) for by in (by_BK[:, :-1], by_BK[:, 1:]))
    faded_BCKW = piece_BCKW * fade_in_BKW[:, None] + before_BCKW * fade_out_BKW[:, None]
    padded_BCT = torch.nn.functional.pad(y_BCT, (0, fade))  # into which the last may reach
    for begin_B, faded_BCW in zip(begin_BK[:, 1:].unbind(1), faded_BCKW.unbind(2)):
        write(padded_BCT, begin_B, faded_BCW)
    return padded_BCT[..., :samples]


@_fade_seams.loop(when=_is_contiguous)
def _fade_seams_by_loop(
    y_BCT: torch.Tensor,
    x_BCT: torch.Tensor,
    begin_BK: torch.Tensor,
    by_BK: torch.Tensor,
    same_sound_B: torch.Tensor,
    fade: int,
) -> torch.Tensor:
    numbers = begin_BK, by_BK, same_sound_B, fade, EQUAL_ENERGY, EQUAL_GAIN, x_BCT.shape[1]
    rows_RT = y_BCT.flatten(0, 1)
    run(_fade_seams_of_rows, len(rows_RT), x_BCT.flatten(0, 1), *numbers, rows_RT, most_threads=1)
    return y_BCT


@loop
def _fade_seams_of_rows(
    x_RT: Floats,
    begin_BK: Integers,
    by_BK: Integers,
    same_sound_B: Integers,
    fade: int,
    energy_bend: float,
    gain_bend: float,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    for row in range(first, last):
        example, x_T, y_T = row // channels, x_RT[row], y_RT[row]
        for k in range(1, begin_BK.shape[1]):
            begin, bend_by = begin_BK[example, k], gain_bend if k == same_sound_B[example] else energy_bend
            for t in range(begin, min(begin + fade, len(y_T))):
                before, piece = t - by_BK[example, k - 1], t - by_BK[example, k]
                old = x_T[before] if 0 <= before < len(x_T) else np.float32(0)
                new = x_T[piece] if 0 <= piece < len(x_T) else np.float32(0)
                out, into = _crossfade(begin + fade - 1 - t, fade, bend_by), _crossfade(t - begin, fade, bend_by)
                y_T[t] = new * into + old * out


@loop
def _silence_rows(
    start_B: Integers,
    count_B: Integers,
    fade_B: Integers,
    bend_by: float,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    for row in range(first, last):
        start, count, fade = start_B[row // channels], count_B[row // channels], fade_B[row // channels]
        segment_T = y_RT[row, start : start + count]
        for t in range(min(fade, count)):
            gain = _crossfade(fade - 1 - t, fade, bend_by)
            segment_T[t] *= gain
            segment_T[count - 1 - t] *= gain
        segment_T[fade : count - fade] = 0.0


@loop
def _fade_rows(
    stitch_B: Integers, fade: int, bend_by: float, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    for row in range(first, last):
        stitch = stitch_B[row // channels]
        for t in range(max(0, stitch - fade), min(stitch + fade, y_RT.shape[1])):
            y_RT[row, t] *= _crossfade(max(t - stitch, stitch - 1 - t), fade, bend_by)


@loop
def _crossfade(position: int, length: int, bend_by: float) -> float:
    """Return what ``crossfade`` does, within the fade."""
    x = position / max(length - 1, 1)
    bend = x - x * x
    gain = (bend_by * bend + 1.0) * bend + x
    return gain * gain
