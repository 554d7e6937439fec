"""Windows: segments of equal length that begin anywhere, read at the speed of a copy; rows joined of segments, padding.

Shapes: S samples in memory, N windows of W samples, R rows, B examples, C channels, T samples, K segments.
"""

from typing import Literal, TypeAlias

import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop, run, run_rows

BLOCK = 512
"""Joined rows are read in windows of this many samples."""

PadMode: TypeAlias = Literal["silence", "wrap", "reflect"]


def windows(x_S: torch.Tensor, start_N: torch.Tensor, width: int) -> torch.Tensor:
    """Return ``x_S[start : start + width]`` for each start, (N, W); all of them lie inside.

    One number a window, not one a sample, is read to find them: some ten times as fast as ``gather``. Where gradients
    flow it is ``gather`` all the same, since the gradient of a view of all windows would not fit into any memory.
    """
    if x_S.requires_grad and torch.is_grad_enabled():
        return x_S[start_N[:, None] + torch.arange(width, device=x_S.device)]
    return x_S.unfold(0, width, 1).index_select(0, start_N)


def read(x_RCT: torch.Tensor, start_RN: torch.Tensor, width: int) -> torch.Tensor:
    """Return windows of each row, for all channels, (R, C, N, W); all of them lie inside the row."""
    rows, channels, samples = x_RCT.shape
    first_RC1 = torch.arange(rows * channels, device=x_RCT.device).view(rows, channels, 1) * samples
    start_M = (first_RC1 + start_RN[:, None]).flatten()
    return windows(x_RCT.reshape(-1), start_M, width).view(rows, channels, start_RN.shape[1], width)


def read_around(x_RCT: torch.Tensor, start_RN: torch.Tensor, width: int) -> torch.Tensor:
    """Return windows of each row, (R, C, N, W), that may lie outside, where silence is."""
    around = _in_silence(x_RCT, width)
    return read(around, start_RN.clamp(-width, x_RCT.shape[-1]) + width, width)


def _in_silence(x_RCT: torch.Tensor, width: int) -> torch.Tensor:
    """Put silence before and after each row: reads memory once, where ``pad`` reads it twice."""
    silence_RCW = x_RCT.new_zeros((*x_RCT.shape[:2], width))
    return torch.cat([silence_RCW, x_RCT, silence_RCW], dim=-1)


def write(x_RCT: torch.Tensor, start_R: torch.Tensor, window_RCW: torch.Tensor) -> None:
    """Replace one window of each row, in place; all of them lie inside the row."""
    place_RW = start_R[:, None] + torch.arange(window_RCW.shape[-1], device=x_RCT.device)
    x_RCT.scatter_(-1, place_RW[:, None].expand_as(window_RCW), window_RCW)


def without(x_RCT: torch.Tensor, start_R: torch.Tensor, count_R: torch.Tensor) -> torch.Tensor:
    """Cut ``count`` samples out of each row, from ``start`` on: what follows moves up. But for the next ``BLOCK``.

    These are undefined from ``start`` on: to be written. T is a multiple of ``BLOCK``, and the last one is silence.
    """
    time_N = torch.arange(0, x_RCT.shape[-1], BLOCK, device=x_RCT.device)
    from_RN = time_N + torch.where(time_N >= start_R[:, None], count_R[:, None], 0)
    return read(x_RCT, from_RN.clamp_(max=x_RCT.shape[-1] - BLOCK), BLOCK).flatten(-2)


@primitive
def rolled(x_RCT: torch.Tensor, by_R: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Return rows whose first ``length`` samples are rolled ``by`` later, from 0 to ``length``; the rest is undefined.

    Read once, from the rows themselves: what the blocks at the seam and at the end lack is mended afterwards. Where
    gradients flow it is ``gather`` all the same: a sample that is mended twice would count twice.
    """
    samples = x_RCT.shape[-1]
    width = min(BLOCK, samples)
    time_N, by_R1, length_R1 = torch.arange(0, samples, width, device=x_RCT.device), by_R[:, None], length_R[:, None]

    def source(place_RN: torch.Tensor, last: int) -> torch.Tensor:
        back_RN = place_RN - by_R1
        return torch.where(back_RN < 0, back_RN + length_R1, back_RN).clamp_(0, last)

    if x_RCT.requires_grad and torch.is_grad_enabled():
        source_RT = source(torch.arange(samples, device=x_RCT.device).expand(len(x_RCT), -1), samples - 1)
        return x_RCT.gather(-1, source_RT[:, None].expand_as(x_RCT))
    y_RCT = read(x_RCT, source(time_N, samples - width), width).flatten(-2)[..., :samples]
    around = torch.arange(-width, width, device=x_RCT.device) + by_R1
    end = torch.arange(samples - width, samples, device=x_RCT.device).expand(len(x_RCT), -1)
    place_RW = torch.cat([around, end], dim=1).clamp_(0, samples - 1)
    place_RCW, source_RCW = (
        each[:, None].expand(-1, x_RCT.shape[1], -1) for each in (place_RW, source(place_RW, samples - 1))
    )
    return y_RCT.scatter_(-1, place_RCW, x_RCT.gather(-1, source_RCW))


@rolled.loop()
def _roll_by_loop(x_RCT: torch.Tensor, by_R: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    return run_rows(_roll_rows, x_RCT, by_R, length_R)


@rolled.kernel()
def _roll_by_kernel(x_RCT: torch.Tensor, by_R: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    from audioaug.dsp.windows import kernel

    return kernel.roll(x_RCT, by_R, length_R)


def moved(x_RCT: torch.Tensor, by_R: torch.Tensor, samples_out: int | None = None) -> torch.Tensor:
    """Return rows of ``samples_out`` samples (T by default) in which each begins ``by`` later; around it is silence."""
    return join_segments(x_RCT, torch.zeros_like(by_R)[:, None], by_R[:, None], samples_out)


@primitive
def join_segments(
    x_RCT: torch.Tensor, begin_RK: torch.Tensor, by_RK: torch.Tensor, samples_out: int | None = None
) -> torch.Tensor:
    """Join segments of each row: from sample ``begin`` on, what lies ``by`` samples before.

    Args:
        x_RCT: the rows; around them is silence.
        begin_RK: where each segment begins in the result: the first at 0, no other before the one before it. One that
            begins past the end is left out.
        by_RK: how much later it is than in the row.
        samples_out: of the result; T by default.
    """
    samples = x_RCT.shape[-1]
    wanted = samples if samples_out is None else samples_out
    around = _in_silence(x_RCT, BLOCK)

    def blocks(start_RN: torch.Tensor) -> torch.Tensor:
        return read(around, start_RN.clamp(-BLOCK, samples) + BLOCK, BLOCK)

    time_N = torch.arange(0, wanted + BLOCK * (begin_RK.shape[1] > 1), BLOCK, device=x_RCT.device)
    segment_RN = (time_N[:, None] >= begin_RK[:, None]).sum(dim=-1) - 1
    y_RCT = blocks(time_N - by_RK.gather(1, segment_RN)).flatten(-2)
    # The block in which a segment begins is the one before's up to its end: one more from where it begins mends that.
    begin_RK = begin_RK[:, 1:].clamp(max=wanted)
    for begin_R, mending_RCW in zip(begin_RK.unbind(1), blocks(begin_RK - by_RK[:, 1:]).unbind(2)):
        write(y_RCT, begin_R, mending_RCW)
    return y_RCT[..., :wanted]


@join_segments.loop()
def _join_by_loop(
    x_RCT: torch.Tensor, begin_RK: torch.Tensor, by_RK: torch.Tensor, samples_out: int | None = None
) -> torch.Tensor:
    return run_rows(_join_rows, x_RCT, begin_RK, by_RK, samples_out=samples_out)


@join_segments.kernel()
def _join_by_kernel(
    x_RCT: torch.Tensor, begin_RK: torch.Tensor, by_RK: torch.Tensor, samples_out: int | None = None
) -> torch.Tensor:
    from audioaug.dsp.windows import kernel

    return kernel.join_segments(x_RCT, begin_RK, by_RK, x_RCT.shape[-1] if samples_out is None else samples_out)


@primitive
def pad(
    x_BCT: torch.Tensor,
    start_B: torch.Tensor,
    length_B: torch.Tensor,
    place_B: torch.Tensor,
    samples_out: int,
    mode: PadMode,
) -> torch.Tensor:
    """Cut a segment out of each example, put it somewhere, and fill what is around it.

    Args:
        x_BCT: the examples.
        start_B: where the segment begins in each example.
        length_B: how long it is.
        place_B: where it begins in the result.
        samples_out: the length of the result.
        mode: ``"silence"`` around the segment; or the segment again and again, as it is or every other time mirrored.

    Reference: ``numpy.pad`` with ``constant``, ``wrap`` and ``reflect``.
    """
    within_BT = torch.arange(samples_out, device=x_BCT.device) - place_B[:, None]
    length_B1 = length_B[:, None]
    if mode == "silence":
        inside_BT = (within_BT >= 0) & (within_BT < length_B1)
        return torch.where(inside_BT[:, None], moved(x_BCT, place_B - start_B, samples_out), 0.0)
    if mode == "reflect":
        period_B1 = (2 * length_B1 - 2).clamp(min=1)
        within_BT = within_BT % period_B1
        source_BT = torch.minimum(within_BT, period_B1 - within_BT) * (length_B1 > 1)
    else:
        source_BT = within_BT % length_B1.clamp(min=1)
    place_BT = (start_B[:, None] + source_BT).clamp(0, max(0, x_BCT.shape[-1] - 1))
    return x_BCT.gather(-1, place_BT[:, None].expand(-1, x_BCT.shape[1], -1))


@pad.loop(when=lambda x_BCT, start_B, length_B, place_B, samples_out, mode: mode == "silence")
def _pad_by_loop(
    x_BCT: torch.Tensor,
    start_B: torch.Tensor,
    length_B: torch.Tensor,
    place_B: torch.Tensor,
    samples_out: int,
    mode: PadMode,
) -> torch.Tensor:
    return run_rows(_place_segments, x_BCT, start_B, length_B, place_B, samples_out=samples_out)


@pad.kernel()
def _pad_by_kernel(
    x_BCT: torch.Tensor,
    start_B: torch.Tensor,
    length_B: torch.Tensor,
    place_B: torch.Tensor,
    samples_out: int,
    mode: PadMode,
) -> torch.Tensor:
    from audioaug.dsp.windows import kernel

    return kernel.pad(x_BCT, start_B, length_B, place_B, samples_out, mode)


@primitive
def silence_past_ends(x_RCT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Return rows that are silent past their ends, (R, C, T): in their own memory where it can be."""
    return torch.where(torch.arange(x_RCT.shape[-1], device=x_RCT.device) < length_R[:, None, None], x_RCT, 0.0)


def _is_contiguous(x_RCT: torch.Tensor, length_R: torch.Tensor) -> bool:
    return x_RCT.is_contiguous()


@silence_past_ends.loop(when=_is_contiguous)
def _silence_by_loop(x_RCT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    rows_RT = x_RCT.flatten(0, 1)
    run(_silence_rows, len(rows_RT), length_R, x_RCT.shape[1], rows_RT, most_threads=1)
    return x_RCT


@silence_past_ends.kernel(when=_is_contiguous)
def _silence_by_kernel(x_RCT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    from audioaug.dsp.windows import kernel

    return kernel.silence_past_ends(x_RCT, length_R)


@loop
def _silence_rows(length_B: Integers, channels: int, x_RT: Floats, first: int, last: int) -> None:
    for row in range(first, last):
        x_RT[row, length_B[row // channels] :] = 0.0


@loop
def _join_rows(
    x_RT: Floats, begin_BK: Integers, by_BK: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    segments, wanted = begin_BK.shape[1], y_RT.shape[1]
    for row in range(first, last):
        begin_K, by_K = begin_BK[row // channels], by_BK[row // channels]
        for k in range(segments):
            end = min(begin_K[k + 1], wanted) if k + 1 < segments else wanted
            _copy_moved(x_RT[row], min(begin_K[k], wanted), end, by_K[k], y_RT[row])


@loop
def _roll_rows(
    x_RT: Floats, by_B: Integers, length_B: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    for row in range(first, last):
        by, length = by_B[row // channels], length_B[row // channels]
        x_T, y_T = x_RT[row], y_RT[row]
        _copy(x_T[length - by : length], y_T[:by])
        _copy(x_T[: length - by], y_T[by:length])
        y_T[length:] = 0.0


@loop
def _place_segments(
    x_RT: Floats,
    start_B: Integers,
    length_B: Integers,
    place_B: Integers,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Copy ``length`` samples of each row, from ``start`` on, to ``place``, with silence around them."""
    for row in range(first, last):
        start, length, place = start_B[row // channels], length_B[row // channels], place_B[row // channels]
        y_T, end = y_RT[row], min(place + length, y_RT.shape[1])
        y_T[:place] = 0.0
        _copy_moved(x_RT[row], place, end, place - start, y_T)
        y_T[end:] = 0.0


@loop
def _copy_moved(x_T: Floats, begin: int, end: int, by: int, y_T: Floats) -> None:
    """Copy what lies ``by`` samples before; around the row is silence."""
    inside = min(max(begin, by), end)
    outside = max(min(end, by + len(x_T)), inside)
    y_T[begin:inside] = 0.0
    _copy(x_T[inside - by : outside - by], y_T[inside:outside])
    y_T[outside:end] = 0.0


@loop
def _copy(x_T: Floats, y_T: Floats) -> None:
    """Copy; assigning slices takes twice as long."""
    for t in range(len(y_T)):
        y_T[t] = x_T[t]
