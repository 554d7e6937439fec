"""Convolution by spectra, block by block: all of a block stays in the cache. The FFTs are those of ``transforms.py``.

Shapes: R rows, T samples, N responses of L taps each, C channels, F = n // 2 + 1 frequencies of an FFT of n samples.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Complex, Floats, Integers, loop
from audioaug.dsp.loops.transforms import from_spectrum, to_spectrum


@loop
def transform(taps_RL: Floats, plan: int, n: int, y_RF: Complex, first: int, last: int) -> None:
    """Write the spectra of rows of at most n taps, divided by n."""
    for row in range(first, last):
        some = y_RF[row].view(np.float32)
        for tap in range(taps_RL.shape[1]):
            some[tap] = taps_RL[row, tap] * np.float32(1 / n)
        some[taps_RL.shape[1] :] = 0.0
        if to_spectrum(plan, some.ctypes.data):
            raise RuntimeError("MKL refuses an FFT.")


@loop
def convolve_by_spectra(
    x_RT: Floats,
    response_NCF: Complex,
    which_B: Integers,
    plan: int,
    step: int,
    start: int,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Do what ``convolution.convolve`` does, with one of the responses for each example, which has so many channels.

    A response rings on for at most n - ``step`` samples behind a block of so many.
    """
    block_F = np.empty(response_NCF.shape[2], dtype=np.complex64)
    some = block_F.view(np.float32)
    for row in range(first, last):
        response_F = response_NCF[which_B[row // channels], min(row % channels, response_NCF.shape[1] - 1)]
        y_T = y_RT[row]
        y_T[:] = 0.0
        for begin in range(0, min(x_RT.shape[1], start + len(y_T)), step):
            x_T = x_RT[row, begin : begin + step]
            for t in range(len(x_T)):
                some[t] = x_T[t]
            some[len(x_T) :] = 0.0
            wrong = to_spectrum(plan, some.ctypes.data)
            for f in range(len(block_F)):
                block_F[f] *= response_F[f]
            if wrong or from_spectrum(plan, some.ctypes.data):
                raise RuntimeError("MKL refuses an FFT.")
            into_T, found = y_T[max(begin - start, 0) :], some[max(start - begin, 0) : len(some) - 2]
            for t in range(min(len(into_T), len(found))):
                into_T[t] += found[t]
