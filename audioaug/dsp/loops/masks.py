"""Masks on short-time spectra, frame by frame.

Shapes: R rows, B examples, T samples, W samples of a frame, F = W // 2 + 1 frequencies.
"""

import numpy as np

from audioaug.dsp.loops.compiling import Floats, Integers, loop
from audioaug.dsp.loops.transforms import from_spectrum, to_spectrum

f32 = np.float32


@loop
def mask_frames(
    x_RT: Floats,
    length_B: Integers,
    mask_BF: Floats,
    window_W: Floats,
    plan: int,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Do what ``stft.masked_spectrum`` does, with a mask for each example, which has so many channels."""
    frame, samples = len(window_W), x_RT.shape[1]
    spectrum_F = np.empty(frame // 2 + 1, dtype=np.complex64)
    some, square_W = spectrum_F.view(f32)[:frame], window_W * window_W
    weight_T = np.empty(samples, dtype=f32)
    for row in range(first, last):
        x_T, y_T, mask_F = x_RT[row, : length_B[row // channels]], y_RT[row], mask_BF[row // channels] / f32(frame)
        y_T[:] = 0.0
        weight_T[:] = 0.0
        for start in range(-(frame // 2), len(x_T) - frame // 2 + 1, frame // 4):
            begin, end = max(-start, 0), min(len(x_T) - start, frame)
            some[:begin] = 0.0
            some[end:] = 0.0
            for w in range(begin, end):
                some[w] = x_T[start + w] * window_W[w]
            wrong = to_spectrum(plan, some.ctypes.data)
            for f in range(len(mask_F)):
                spectrum_F[f] *= mask_F[f]
            if wrong or from_spectrum(plan, some.ctypes.data):
                raise RuntimeError("MKL refuses an FFT.")
            end = min(samples - start, frame)
            into_W, weight_W = y_T[start + begin : start + end], weight_T[start + begin : start + end]
            for w in range(begin, end):
                into_W[w - begin] += some[w] * window_W[w]
                weight_W[w - begin] += square_W[w]
        for t in range(samples):
            y_T[t] /= max(weight_T[t], f32(1e-6))
