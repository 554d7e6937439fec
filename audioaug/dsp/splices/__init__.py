"""Splices: segments of rows folded to half their length, the second half faded in over the first.

Shapes: B examples, C channels, T samples, N splices, W samples of a fade; R rows, a channel of an
example each; K spans of a row.
"""

import numpy as np
import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Floats, Integers, loop, run_rows
from audioaug.dsp.windows import BLOCK, read, without, write

MOST_SPLICES = 64
"""With more, the kernel would need more memory for their fades than the batch itself."""

SILENCE = -(2**62)
"""Where a span of silence starts. Cutting it leaves that negative."""


@primitive
def splice(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    """Fold segments of each example to half their length, one after the other: the second half fades in over the first.

    Args:
        x_BCT: the examples; silence follows where they become shorter.
        start_BN: where each segment begins, in what the ones before have left.
        half_BN: half of its length; 0 for none.
        widest: no half is longer.
    """
    samples = x_BCT.shape[-1]
    # Into the silence at the end splices may reach.
    y_BCT = torch.nn.functional.pad(x_BCT, (0, widest + BLOCK + -samples % BLOCK))
    fade_W = torch.arange(widest, device=x_BCT.device)
    for half_B, start_B in zip(half_BN.unbind(dim=1), start_BN.unbind(dim=1)):
        # Both halves of a Hann window of 2 * half samples, which add up to 1: from 0 to 1, and 1 thereafter.
        into_BW = (fade_W / half_B[:, None].clamp(min=1)).clamp_(max=1.0)
        share_BW = into_BW.mul_(torch.pi / 2).sin_().square_()
        before_BCW, after_BCW = read(y_BCT, torch.stack([start_B, start_B + half_B], dim=1), widest).unbind(2)
        y_BCT = without(y_BCT, start_B, half_B)
        write(y_BCT, start_B, torch.lerp(before_BCW, after_BCW, share_BW[:, None]))
    return y_BCT[..., :samples]


@splice.loop()
def _splice_by_loop(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    return run_rows(_splice_rows, x_BCT, start_BN, half_BN)


@splice.kernel(when=lambda x_BCT, start_BN, half_BN, widest: start_BN.shape[1] <= MOST_SPLICES)
def _splice_by_kernel(x_BCT: torch.Tensor, start_BN: torch.Tensor, half_BN: torch.Tensor, widest: int) -> torch.Tensor:
    from audioaug.dsp.splices import kernel

    return kernel.splice(x_BCT, start_BN, half_BN, widest)


@loop
def _splice_rows(
    x_RT: Floats, start_BN: Integers, half_BN: Integers, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Fold segments of rows to half their width, one after the other; ``channels`` rows an example.

    What follows a segment is not moved each time: a row becomes a list of spans, which are copied once in the end.
    """
    most = 2 * half_BN.shape[1] + 2
    source_K, end_K = np.empty(most, np.int64), np.empty(most, np.int64)
    for row in range(first, last):
        x_T, start_N, half_N = x_RT[row], start_BN[row // channels], half_BN[row // channels]
        fades_F = np.empty(half_N.sum(), np.float32)
        source_K[0], end_K[0], spans, filled = 0, len(x_T), 1, 0
        for start, half in zip(start_N, half_N):
            if half:
                spans = _fold(x_T, fades_F, filled, source_K, end_K, spans, start, half)
                filled += half
        _copy_spans(x_T, fades_F, source_K, end_K, 0, spans, y_RT[row])
        y_RT[row, end_K[spans - 1] :] = 0.0


@loop
def _fold(
    x_T: Floats, fades_F: Floats, filled: int, source_K: Integers, end_K: Integers, spans: int, start: int, half: int
) -> int:
    """Fold a segment: one span takes the place of all spans in it. Return how many there are then.

    Args:
        x_T: the row.
        fades_F: the crossfades of all segments, one after the other.
        filled: how many samples of them are known.
        source_K: where each span starts in the row or, from T on, in the crossfades; ``SILENCE`` if in neither.
        end_K: where each span ends in what the segments before have left.
        spans: how many there are; at most two more are made.
        start: where the segment starts.
        half: half of its length.
    """
    first, spans = _split(source_K, end_K, spans, start)
    middle, spans = _split(source_K, end_K, spans, start + half)
    last, spans = _split(source_K, end_K, spans, start + 2 * half)
    fade_F, after_F = fades_F[filled : filled + half], np.empty(half, np.float32)
    _copy_spans(x_T, fades_F, source_K, end_K, first, middle, fade_F)
    _copy_spans(x_T, fades_F, source_K, end_K, middle, last, after_F)
    _crossfade(fade_F, after_F)
    source_K[first], end_K[first] = len(x_T) + filled, start + half
    for span in range(last, spans):
        to = span - last + first + 1
        source_K[to], end_K[to] = source_K[span], end_K[span] - half
    return spans - last + first + 1


@loop
def _split(source_K: Integers, end_K: Integers, spans: int, at: int) -> tuple[int, int]:
    """Let a span start at a sample; return which one, and how many there are then. After the row is silence."""
    span = begin = 0
    while span < spans and end_K[span] <= at:
        begin = end_K[span]
        span += 1
    if begin == at:
        return span, spans
    if span == spans:
        source_K[span], end_K[span] = SILENCE, at
        return spans + 1, spans + 1
    for to in range(spans, span, -1):
        source_K[to], end_K[to] = source_K[to - 1], end_K[to - 1]
    end_K[span] = at
    source_K[span + 1] += at - begin
    return span + 1, spans + 1


@loop
def _copy_spans(
    x_T: Floats, fades_F: Floats, source_K: Integers, end_K: Integers, first: int, last: int, y_T: Floats
) -> None:
    """Copy some of the spans, one after the other, to where y starts; as much as it has room for."""
    begin = end_K[first - 1] if first else 0
    at = 0
    for span in range(first, last):
        source, end = source_K[span], min(end_K[span] - begin, len(y_T))
        if source < 0:
            y_T[at:end] = 0.0
        elif source < len(x_T):
            _copy(x_T[source:], y_T[at:end])
        else:
            _copy(fades_F[source - len(x_T) :], y_T[at:end])
        at = end


@loop
def _crossfade(y_T: Floats, after_T: Floats) -> None:
    """Crossfade from y to ``after``, in place."""
    # The fade is (1 - cos(t w)) / 2. Two cosines in a row give the next: cos((t + 1) w) = 2 cos(w) cos(t w) - ...
    step = np.pi / len(y_T)
    before, now, turn = np.cos(step), 1.0, 2 * np.cos(step)
    for t in range(len(y_T)):
        y_T[t] += (0.5 - 0.5 * now) * (after_T[t] - y_T[t])
        before, now = now, turn * now - before


@loop
def _copy(x_T: Floats, y_T: Floats) -> None:
    """Copy as many samples as y has; assigning slices takes twice as long."""
    for t in range(len(y_T)):
        y_T[t] = x_T[t]
