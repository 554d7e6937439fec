"""Order statistics of rows: of numbers that are sorted by their bits, digit after digit, those that matter are kept.

Shapes: R rows, N values, D digits.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Floats, Integers, loop_as_written

u32 = np.uint32

DIGITS = ((21, 0x7FF), (10, 0x7FF), (0, 0x3FF))
"""From the most significant one on: where each begins, and its bits."""
MOST_DIGITS = 0x800
SIGN, ALL = u32(0x80000000), u32(0xFFFFFFFF)


@loop_as_written
def find_at_rank(x_RN: Floats, rank_R: Integers, fraction_R: Floats, y_R: Floats, first: int, last: int) -> None:
    """Do what ``levels.at_rank`` does."""
    kept_N, count_D = np.empty(x_RN.shape[1], dtype=np.uint32), np.empty(MOST_DIGITS, dtype=np.int64)
    for row in range(first, last):
        bits_N, rank, kept, above = x_RN[row].view(np.uint32), rank_R[row], x_RN.shape[1], ALL
        for n in range(kept):
            bits = bits_N[n]
            kept_N[n] = bits ^ (ALL if bits & SIGN else SIGN)  # in the order of the values
        for shift, mask in DIGITS:
            count_D[:] = 0
            for n in range(kept):
                count_D[(kept_N[n] >> u32(shift)) & u32(mask)] += 1
            digit = 0
            while rank >= count_D[digit]:
                rank -= count_D[digit]
                digit += 1
            those, kept = kept, 0
            for n in range(those):
                value = kept_N[n]
                own = np.int64((value >> u32(shift)) & u32(mask))
                above = min(above, value if own > digit else ALL)
                kept_N[kept] = value
                kept += own == digit
        low = _value(kept_N[0])
        high = low if rank + 1 < kept or above == ALL else _value(above)
        y_R[row] = low if fraction_R[row] == 0 else low + (high - low) * fraction_R[row]


@loop_as_written
def _value(ordered: np.uint32) -> np.float32:
    bits = np.empty(1, dtype=np.uint32)
    bits[0] = ordered ^ (SIGN if ordered & SIGN else ALL)
    return bits.view(np.float32)[0]
