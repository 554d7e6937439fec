"""Frames under a window: their spectra by the FFTs of ``transforms.py``, and rows of frames added up.

Shapes: R rows, B examples, T samples, N frames of W samples, F = W // 2 + 1 frequencies.
"""

import numpy as np
from numpy.typing import NDArray

from audioaug.dsp.loops.compiling import Complex, Floats, Integers, loop
from audioaug.dsp.loops.transforms import from_spectrum, to_spectrum

f32 = np.float32


@loop
def find_spectra(
    x_RT: Floats,
    centre_BN: Integers,
    window_W: Floats,
    plan: int,
    channels: int,
    y_RNF: Complex,
    first: int,
    last: int,
) -> None:
    """Find the spectra of the frames around these samples of each row; an example has so many channels, a row each."""
    frame = len(window_W)
    for row in range(first, last):
        centre_N = centre_BN[row // channels]
        for n in range(len(centre_N)):
            some = y_RNF[row, n].view(f32)[:frame]
            _read(x_RT[row], centre_N[n] - frame // 2, window_W, some)
            if to_spectrum(plan, some.ctypes.data):
                raise RuntimeError("MKL refuses an FFT.")


@loop
def add_frames(
    spectra_RNF: Complex,
    there_BN: NDArray[np.bool_],
    window_W: Floats,
    plan: int,
    channels: int,
    y_RT: Floats,
    first: int,
    last: int,
) -> None:
    """Add up frames, of their spectra, where they are there: each centred on a multiple of a quarter frame."""
    frame, samples = len(window_W), y_RT.shape[1]
    some_F, weight_T = np.empty(frame // 2 + 1, dtype=np.complex64), np.empty(samples, dtype=f32)
    some = some_F.view(f32)[:frame]
    for row in range(first, last):
        y_T = y_RT[row]
        y_T[:] = 0.0
        weight_T[:] = 0.0
        for n in range(spectra_RNF.shape[1]):
            if there_BN[row // channels, n]:
                spectrum_F = spectra_RNF[row, n]
                for f in range(len(some_F)):
                    some_F[f] = spectrum_F[f]
                if from_spectrum(plan, some.ctypes.data):
                    raise RuntimeError("MKL refuses an FFT.")
                _add(some, n * (frame // 4) - frame // 2, window_W, y_T, weight_T)
        _divide(y_T, weight_T, f32(frame))


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
    frame = len(window_W)
    some_F, weight_T = np.empty(frame // 2 + 1, dtype=np.complex64), np.empty(y_RT.shape[1], dtype=f32)
    some = some_F.view(f32)[:frame]
    for row in range(first, last):
        x_T, mask_F, y_T = x_RT[row, : length_B[row // channels]], mask_BF[row // channels], y_RT[row]
        y_T[:] = 0.0
        weight_T[:] = 0.0
        for start in range(-(frame // 2), len(x_T) - frame // 2 + 1, frame // 4):
            _read(x_T, start, window_W, some)
            wrong = to_spectrum(plan, some.ctypes.data)
            for f in range(len(some_F)):
                some_F[f] *= mask_F[f]
            if wrong or from_spectrum(plan, some.ctypes.data):
                raise RuntimeError("MKL refuses an FFT.")
            _add(some, start, window_W, y_T, weight_T)
        _divide(y_T, weight_T, f32(frame))


@loop
def _read(x_T: Floats, start: int, window_W: Floats, y_W: Floats) -> None:
    """Read a frame; around the row is silence."""
    begin = min(max(-start, 0), len(window_W))
    end = max(min(len(x_T) - start, len(window_W)), begin)
    inside = x_T[start + begin : start + end]
    y_W[:begin] = 0.0
    for w in range(begin, end):
        y_W[w] = inside[w - begin] * window_W[w]
    y_W[end:] = 0.0


@loop
def _add(frame_W: Floats, start: int, window_W: Floats, y_T: Floats, weight_T: Floats) -> None:
    """Add what of a frame is inside of the row, and to the weights its window's squares."""
    begin, end = max(-start, 0), min(len(y_T) - start, len(window_W))
    if begin < end:
        into_W, weight_W = y_T[start + begin : start + end], weight_T[start + begin : start + end]
        for w in range(begin, end):
            into_W[w - begin] += frame_W[w] * window_W[w]
            weight_W[w - begin] += window_W[w] * window_W[w]


@loop
def _divide(y_T: Floats, weight_T: Floats, times: np.float32) -> None:
    """Divide by what windows have added up to, and by how many times too large it is besides."""
    for t in range(len(y_T)):
        y_T[t] /= max(weight_T[t], f32(1e-6)) * times
