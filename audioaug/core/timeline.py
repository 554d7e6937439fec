"""Timeline: where the time of a clip lies after augmentation, so that labels can follow the audio.

It is a function from the time of the result to the time of the clip, in pieces, each of them linear. Times are in
samples: sample n lasts from n to n + 1.

Shapes: N pieces, K times, S segments, F frames.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audioaug.core.distributions import FloatArray

CLOSE = 1e-3
"""Parts of a segment that are no farther apart than that many samples are one."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Where the time of a clip lies after augmentation. All times are in samples.

    Args:
        pieces: (N, 4): from in_start to in_end of the clip sounds from out_start to out_end of the result. out_start
            lies before out_end; in_end lies before in_start where a piece is played backwards. No two pieces sound at
            once, but several may have the same source. What no piece covers of the result is new; what no piece covers
            of the clip is lost, as is what lies outside of clip or result.
        length_in: of the clip.
        length_out: of the result.

    Examples:
        >>> shifted = Timeline([(0, 6, 4, 10)], length_in=10, length_out=10)
        >>> backwards = Timeline([(10, 0, 0, 10)], length_in=10, length_out=10)
        >>> both = shifted.then(backwards)
        >>> both.pieces.tolist()
        [[6.0, 0.0, 0.0, 6.0]]
        >>> both.stamps([1.0, 8.0])[0].tolist(), both.segments([(2.0, 9.0)])[0].tolist()
        ([5.0], [[0.0, 4.0]])
        >>> both.frames(np.array([10, 11, 12, 13, 14]), hop=2, fill=-1).tolist()
        [12, 11, 10, -1, -1]
    """

    pieces: FloatArray
    length_in: int
    length_out: int

    def __init__(self, pieces: "Iterable[Iterable[float]] | FloatArray", length_in: int, length_out: int) -> None:
        rows = pieces if isinstance(pieces, np.ndarray) else np.asarray([tuple(piece) for piece in pieces])
        object.__setattr__(self, "pieces", _within(rows.reshape(-1, 4).astype(np.float64), length_in, length_out))
        object.__setattr__(self, "length_in", int(length_in))
        object.__setattr__(self, "length_out", int(length_out))

    @classmethod
    def identity(cls, length: int, length_out: int | None = None) -> "Timeline":
        """Return that of a clip whose time stays; cut at its end, or followed by something new, for another length."""
        return cls([(0, length, 0, length)], length, length if length_out is None else length_out)

    @classmethod
    def padded(
        cls,
        length: int,
        length_out: int,
        start: int,
        kept: int,
        place: int,
        mode: Literal["silence", "wrap", "reflect"],
    ) -> "Timeline":
        """Return what ``dsp.windows.pad`` does: ``kept`` samples from ``start`` are put at ``place``, and around it."""
        if mode == "silence" or kept < 1:
            return cls([(start, start + kept, place, place + kept)], length, length_out)
        period = max(1, 2 * kept - 2) if mode == "reflect" else kept
        turns = np.arange(-place // period, -(-(length_out - place) // period))
        out = (place + turns * period)[:, None]
        pieces = [np.broadcast_to([start, start + kept], (len(out), 2)), out, out + kept]
        if mode == "reflect" and kept > 2:  # and back, without both ends, which sound once
            back = [np.broadcast_to([start + kept - 1, start + 1], (len(out), 2)), out + kept, out + period]
            return cls(np.concatenate([np.hstack(pieces), np.hstack(back)]), length, length_out)
        return cls(np.hstack(pieces), length, length_out)

    @property
    def still(self) -> bool:
        """Whether everything is where it was."""
        whole = [[0.0, self.length_in, 0.0, self.length_in]] if self.length_in else []
        return self.length_in == self.length_out and self.pieces.tolist() == whole

    def then(self, after: "Timeline") -> "Timeline":
        """Return what this and, on its result, another one do."""
        if after.still or self.still:
            return self if after.still else after
        first, second = self.pieces, after.pieces
        low, high = np.sort(second[:, :2], axis=1).T
        begin = np.searchsorted(first[:, 3], low, side="right")  # pieces lie in order and apart
        count = np.maximum(np.searchsorted(first[:, 2], high, side="left") - begin, 0)
        q = np.repeat(np.arange(len(second)), count)
        p = np.arange(len(q)) - np.repeat(np.cumsum(count) - count, count) + begin[q]
        middle = np.maximum(first[p, 2], low[q]), np.minimum(first[p, 3], high[q])
        source = [_linear(first[p], between, 2, 0) for between in middle]
        result = [_linear(second[q], between, 0, 2) for between in middle]
        turned = result[0] > result[1]
        pieces = np.stack([*source, *result], axis=1)
        pieces[turned] = pieces[turned][:, [1, 0, 3, 2]]
        return Timeline(pieces, self.length_in, after.length_out)

    def source(self, times: ArrayLike) -> FloatArray:
        """Return from which time of the clip that comes which sounds at these times of the result, (K,); NaN if new."""
        time_K = np.asarray(times, dtype=np.float64)
        if not len(self.pieces):
            return np.full_like(time_K, np.nan)
        place_K = np.maximum(np.searchsorted(self.pieces[:, 2], time_K, side="right") - 1, 0)
        piece_K4 = self.pieces[place_K]
        sounds_K = (piece_K4[:, 2] <= time_K) & (time_K < piece_K4[:, 3])
        return np.where(sounds_K, _linear(piece_K4, time_K, 2, 0), np.nan)

    def stamps(self, times: ArrayLike) -> tuple[FloatArray, NDArray[np.int64]]:
        """Return where in the result these times of the clip sound, in order, and the number of each, from 0.

        A time that is lost is missing; one that sounds twice is there twice. The end of the clip counts as part of it.
        """
        time_K1 = np.asarray(times, dtype=np.float64).reshape(-1, 1)
        which_M, place_M = np.nonzero(self._sounds(time_K1))
        found_M = _linear(self.pieces[place_M], time_K1[which_M, 0], 0, 2)
        order = np.argsort(found_M, kind="stable")
        return found_M[order], which_M[order]

    def segments(self, bounds: ArrayLike) -> tuple[FloatArray, NDArray[np.int64]]:
        """Return where in the result these segments (start, end) of the clip sound, in order, and the number of each.

        A segment may be cut, lost or doubled. Parts of one that follow each other without a gap are one segment. One
        that ends where it starts is where ``stamps`` has its time; one that ends before that is lost.

        Shape:
            bounds: (S, 2); returns (M, 2) and (M,).
        """
        bounds_S2 = np.asarray(bounds, dtype=np.float64).reshape(-1, 2)
        low_N, high_N = np.sort(self.pieces[:, :2], axis=1).T
        start_SN, end_SN = np.maximum(bounds_S2[:, :1], low_N), np.minimum(bounds_S2[:, 1:], high_N)
        is_point_S1 = bounds_S2[:, :1] == bounds_S2[:, 1:]
        which_M, place_M = np.nonzero((start_SN < end_SN) | (is_point_S1 & self._sounds(bounds_S2[:, :1])))
        ends = (_linear(self.pieces[place_M], ends_SN[which_M, place_M], 0, 2) for ends_SN in (start_SN, end_SN))
        found_M2 = np.sort(np.stack(list(ends), axis=1), axis=1)
        order = np.lexsort((found_M2[:, 0], which_M))
        found_M2, which_M = found_M2[order], which_M[order]
        apart_M = np.ones(len(which_M), dtype=bool)
        apart_M[1:] = (which_M[1:] != which_M[:-1]) | (found_M2[1:, 0] > found_M2[:-1, 1] + CLOSE)
        first = np.flatnonzero(apart_M)
        last = np.append(first, len(which_M))[1:] - 1
        joined_M2 = np.stack([found_M2[first, 0], found_M2[last, 1]], axis=1)
        order = np.argsort(joined_M2[:, 0], kind="stable")
        return joined_M2[order], which_M[first][order]

    def _sounds(self, time_K1: FloatArray) -> NDArray[np.bool_]:
        """Return whether each time of the clip sounds in each piece, (K, N); its end does in what reaches up to it."""
        low_N, high_N = np.sort(self.pieces[:, :2], axis=1).T
        at_the_end_KN = (time_K1 == self.length_in) & (high_N == self.length_in)
        sounds_KN: NDArray[np.bool_] = ((low_N <= time_K1) & (time_K1 < high_N)) | at_the_end_KN
        return sounds_KN

    def frames(self, values: NDArray[Any], hop: float, *, centred: bool = False, fill: Any = 0) -> NDArray[Any]:
        """Return the frame-level target of the result: each frame has what the clip has where its centre comes from.

        Args:
            values: (F, ...), a row for each frame of the clip.
            hop: of a frame, in samples, not necessarily whole.
            centred: frame k is the one around ``k * hop``, not the one that begins there.
            fill: for frames of what is new.

        Shape:
            as many frames as a clip of the new length has, counted as for this one: rounded down or up (up, where this
            one does not tell).
        """
        if self.still:
            return values
        frame = np.arange(self._frame_count(len(values), hop, centred))
        centre = (frame + (0.0 if centred else 0.5)) * hop
        half_out = (centre >= self.length_out) & (centre <= self.length_out + hop / 2)
        source = self.source(np.where(half_out, np.nextafter(self.length_out, 0), centre))
        new = np.isnan(source) if len(values) else np.ones(len(frame), dtype=bool)
        place = np.floor(np.where(new, 0.0, source) / hop + (0.5 if centred else 0.0)).astype(np.int64)
        result = np.full((len(frame), *values.shape[1:]), fill, dtype=values.dtype)
        result[~new] = values[np.clip(place[~new], 0, len(values) - 1)]
        return result

    def _frame_count(self, count: int, hop: float, centred: bool) -> int:
        before, after = self.length_in / hop, self.length_out / hop
        whole = np.ceil if count >= before and not centred else np.floor
        return max(0, int(count + whole(after) - whole(before)))


def _linear(piece_K4: FloatArray, time_K: FloatArray, known: int, other: int) -> FloatArray:
    """Return where times lie on the other side of their pieces; sides are columns, 0 for the clip, 2 for the result."""
    start_K, end_K = piece_K4[:, known], piece_K4[:, known + 1]
    share_K = (time_K - start_K) / np.where(end_K == start_K, 1.0, end_K - start_K)
    return piece_K4[:, other] + share_K * (piece_K4[:, other + 1] - piece_K4[:, other])


def _within(pieces: FloatArray, length_in: int, length_out: int) -> FloatArray:
    """Return the pieces in order of the result, cut to both lengths, those left out of which nothing remains."""
    for known, length in ((2, length_out), (0, length_in)):
        times = pieces[:, known : known + 2]
        if times.min(initial=0.0) >= 0.0 and times.max(initial=0.0) <= length:
            continue
        ends = [np.clip(pieces[:, known + end], 0, length) for end in (0, 1)]
        others = [_linear(pieces, end, known, 2 - known) for end in ends]
        pieces = np.stack([*others, *ends] if known else [*ends, *others], axis=1)
    pieces = pieces[(pieces[:, 3] - pieces[:, 2] > 1e-9) & (pieces[:, 0] != pieces[:, 1])]
    return pieces[np.argsort(pieces[:, 2], kind="stable")]
