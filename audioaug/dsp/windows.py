"""Windows: stretches of equal length that begin anywhere, read at the speed of a copy, and rows put together of them.

Shapes: S samples in memory, N windows of W samples, R rows, C channels, T samples, K pieces.
"""

import torch

from audioaug.dsp import compiled

BLOCK = 512
"""What is put together is read in windows of so many samples."""


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
    """Put silence before and behind each row: in one pass, where ``pad`` takes two."""
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


def rolled(x_RCT: torch.Tensor, by_R: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Return rows whose first ``length`` samples are rolled ``by`` later, from 0 to ``length``; the rest is undefined.

    Read from the rows themselves, in one pass: what the blocks at the seam and at the end lack is mended afterwards.
    """
    samples = x_RCT.shape[-1]
    if compiled.fits(x_RCT):
        from audioaug.dsp.loops.pieces import roll

        return compiled.of_rows(roll, x_RCT, by_R, length_R)
    width = min(BLOCK, samples)
    time_N, by_R1, length_R1 = torch.arange(0, samples, width, device=x_RCT.device), by_R[:, None], length_R[:, None]

    def source(place_RN: torch.Tensor, last: int) -> torch.Tensor:
        back_RN = place_RN - by_R1
        return torch.where(back_RN < 0, back_RN + length_R1, back_RN).clamp_(0, last)

    y_RCT = read(x_RCT, source(time_N, samples - width), width).flatten(-2)[..., :samples]
    around = torch.arange(-width, width, device=x_RCT.device) + by_R1
    end = torch.arange(samples - width, samples, device=x_RCT.device).expand(len(x_RCT), -1)
    place_RW = torch.cat([around, end], dim=1).clamp_(0, samples - 1)
    place_RCW, source_RCW = (
        each[:, None].expand(-1, x_RCT.shape[1], -1) for each in (place_RW, source(place_RW, samples - 1))
    )
    return y_RCT.scatter_(-1, place_RCW, x_RCT.gather(-1, source_RCW))


def moved(x_RCT: torch.Tensor, by_R: torch.Tensor, samples_out: int | None = None) -> torch.Tensor:
    """Return rows of ``samples_out`` samples (T by default) in which each begins ``by`` later; around it is silence."""
    return pieced(x_RCT, torch.zeros_like(by_R)[:, None], by_R[:, None], samples_out)


def pieced(
    x_RCT: torch.Tensor, begin_RK: torch.Tensor, by_RK: torch.Tensor, samples_out: int | None = None
) -> torch.Tensor:
    """Put rows together of pieces of themselves: from sample ``begin`` on, what lies ``by`` samples before.

    Args:
        x_RCT: the rows; around them is silence.
        begin_RK: where each piece begins in the result: the first at 0, no other before the one before it. One that
            begins behind the end is none.
        by_RK: how much later it is than in the row.
        samples_out: of the result; T by default.
    """
    samples = x_RCT.shape[-1]
    wanted = samples if samples_out is None else samples_out
    if compiled.fits(x_RCT):
        from audioaug.dsp.loops.pieces import copy_pieces

        return compiled.of_rows(copy_pieces, x_RCT, begin_RK, by_RK, samples_out=wanted)
    around = _in_silence(x_RCT, BLOCK)

    def blocks(start_RN: torch.Tensor) -> torch.Tensor:
        return read(around, start_RN.clamp(-BLOCK, samples) + BLOCK, BLOCK)

    time_N = torch.arange(0, wanted + BLOCK * (begin_RK.shape[1] > 1), BLOCK, device=x_RCT.device)
    piece_RN = (time_N[:, None] >= begin_RK[:, None]).sum(dim=-1) - 1
    y_RCT = blocks(time_N - by_RK.gather(1, piece_RN)).flatten(-2)
    # The block in which a piece begins is the one before's up to its end: one more from where it begins mends that.
    begin_RK = begin_RK[:, 1:].clamp(max=wanted)
    for begin_R, mending_RCW in zip(begin_RK.unbind(1), blocks(begin_RK - by_RK[:, 1:]).unbind(2)):
        write(y_RCT, begin_R, mending_RCW)
    return y_RCT[..., :wanted]
