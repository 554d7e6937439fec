"""Short-time spectra, rows made of them, and a mask, as librosa's ``istft(stft(x) * mask)``.

Shapes: R rows, C channels, T samples, S samples out, N frames, W = n_fft samples of a frame, F = n_fft // 2 + 1
frequencies; for loops, B examples whose channels are a row each.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.fft import from_spectrum, has_mkl, irfft, mkl_plan, rfft, to_spectrum
from audioaug.dsp.loops import Complex, Floats, Integers, loop, run_rows
from audioaug.dsp.windows import windows

f32 = np.float32

LEAST_WEIGHT = 1e-6
"""What frames add up to is divided by no less."""


@primitive
def masked_spectrum(x_RCT: torch.Tensor, length_R: torch.Tensor, mask_RF: torch.Tensor, n_fft: int) -> torch.Tensor:
    """Multiply each frame's spectrum by its row's mask and add the frames up again.

    Frames are centred on every quarter of ``n_fft`` samples (a power of two, at least 4) up to the row's end, under a
    Hann window before and after; around a clip is silence. Samples past the end of a row are ignored and come out
    undefined.
    """
    hop, samples = n_fft // 4, x_RCT.shape[-1]
    spectra_RCNF = spectra_at(x_RCT, n_fft, samples // hop + 1, length_R=length_R)
    there_RN = torch.arange(samples // hop + 1, device=x_RCT.device) <= length_R[:, None] // hop
    return added_up(spectra_RCNF.mul_(mask_RF[:, None, None]), samples, there_RN)


@masked_spectrum.loop(when=has_mkl)
def _mask_by_loop(x_RCT: torch.Tensor, length_R: torch.Tensor, mask_RF: torch.Tensor, n_fft: int) -> torch.Tensor:
    return run_rows(_mask_frames, x_RCT, length_R, mask_RF, torch.hann_window(n_fft, device="cpu"), mkl_plan(n_fft))


@primitive
def spectra_at(
    x_RCT: torch.Tensor,
    frame: int,
    count: int,
    rate_R: torch.Tensor | None = None,
    earlier: int = 0,
    length_R: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the spectra of frames under a Hann window, (R, C, N, F).

    Args:
        x_RCT: the rows; around them is silence.
        frame: W, a multiple of 4.
        count: N.
        rate_R: frames are centred on every quarter of W times this many samples, rounded; on every quarter if ``None``.
        earlier: but this many samples before.
        length_R: what lies past the end of a row counts as silence.
    """
    (rows, channels, samples), half = x_RCT.shape, frame // 2
    if length_R is not None:
        x_RCT = torch.where(torch.arange(samples, device=x_RCT.device) < length_R[:, None, None], x_RCT, 0.0)
    padded = torch.nn.functional.pad(x_RCT, (frame, frame)).view(rows * channels, samples + 2 * frame)
    centre_RN = centres(frame, count, rows, rate_R, x_RCT.device) - earlier
    start_RN = (centre_RN + half).clamp(min=0, max=samples + frame)
    first_RC1 = torch.arange(rows * channels, device=x_RCT.device).view(rows, channels, 1) * padded.shape[-1]
    frames = windows(padded.flatten(), (first_RC1 + start_RN[:, None]).flatten(), frame)
    return rfft(frames.view(rows, channels, -1, frame) * torch.hann_window(frame, device=x_RCT.device))


@spectra_at.loop(when=has_mkl)
def _spectra_by_loop(
    x_RCT: torch.Tensor,
    frame: int,
    count: int,
    rate_R: torch.Tensor | None = None,
    earlier: int = 0,
    length_R: torch.Tensor | None = None,
) -> torch.Tensor:
    centre_RN = centres(frame, count, len(x_RCT), rate_R, x_RCT.device) - earlier
    length_R = torch.full((len(x_RCT),), x_RCT.shape[-1], device="cpu") if length_R is None else length_R
    y_RCNF = x_RCT.new_empty(*x_RCT.shape[:2], count, frame // 2 + 1, dtype=torch.complex64)
    numbers = centre_RN, length_R, torch.hann_window(frame, device="cpu"), mkl_plan(frame)
    return run_rows(_find_spectra, x_RCT, *numbers, out=y_RCNF)


@spectra_at.kernel()
def _spectra_by_kernel(
    x_RCT: torch.Tensor,
    frame: int,
    count: int,
    rate_R: torch.Tensor | None = None,
    earlier: int = 0,
    length_R: torch.Tensor | None = None,
) -> torch.Tensor:
    from audioaug.dsp.stft import kernel

    return rfft(kernel.frames(x_RCT, frame, count, rate_R, earlier, length_R))


def centres(
    frame: int, count: int, rows: int, rate_R: torch.Tensor | None, device: torch.device | None
) -> torch.Tensor:
    """Return the samples that the frames of ``spectra_at`` are centred on, (R, N)."""
    number_N = torch.arange(count, device=device)
    if rate_R is None:
        return (number_N * (frame // 4)).expand(rows, -1)
    return (number_N * (frame // 4 * rate_R[:, None])).round().long()


@primitive
def added_up(spectra_RCNF: torch.Tensor, samples_out: int, there_RN: torch.Tensor | None = None) -> torch.Tensor:
    """Add up frames under a Hann window, each centred on a multiple of a quarter frame; divide by the windows' sum.

    Where ``there`` is false, there is no frame. Returns (R, C, S).
    """
    frame, count = 2 * (spectra_RCNF.shape[-1] - 1), spectra_RCNF.shape[2]
    window_W = torch.hann_window(frame, device=spectra_RCNF.device)
    frames_RCNW, square_NW = irfft(spectra_RCNF, frame), window_W.square().expand(count, -1)
    if there_RN is not None:
        there = there_RN[:, None, :, None]
        frames_RCNW, square_NW = torch.where(there, frames_RCNW, 0.0), there * square_NW
    weight = _overlapped(square_NW)[..., frame // 2 :][..., :samples_out].clamp(min=LEAST_WEIGHT)
    return _overlapped(frames_RCNW * window_W)[..., frame // 2 :][..., :samples_out] / weight


@added_up.loop(when=has_mkl)
def _add_up_by_loop(spectra_RCNF: torch.Tensor, samples_out: int, there_RN: torch.Tensor | None = None) -> torch.Tensor:
    frame = 2 * (spectra_RCNF.shape[-1] - 1)
    if there_RN is None:
        there_RN = torch.ones(len(spectra_RCNF), spectra_RCNF.shape[2], dtype=torch.bool, device="cpu")
    y_RCS = torch.empty(*spectra_RCNF.shape[:2], samples_out, device="cpu")
    window_W = torch.hann_window(frame, device="cpu")
    return run_rows(_add_frames, spectra_RCNF, there_RN, window_W, mkl_plan(frame), out=y_RCS)


@added_up.kernel()
def _add_up_by_kernel(
    spectra_RCNF: torch.Tensor, samples_out: int, there_RN: torch.Tensor | None = None
) -> torch.Tensor:
    from audioaug.dsp.stft import kernel

    frame = 2 * (spectra_RCNF.shape[-1] - 1)
    return kernel.add_up(irfft(spectra_RCNF, frame, scaled=False), samples_out, there_RN, LEAST_WEIGHT)


def _overlapped(frames: torch.Tensor) -> torch.Tensor:
    """Add up frames (..., N, W) that start a quarter of W after each other; (..., (N + 3) W / 4)."""
    quarters, pad = frames.unflatten(-1, (4, -1)), torch.nn.functional.pad
    return sum(pad(quarters[..., k, :], (0, 0, k, 3 - k)) for k in range(4)).flatten(-2)  # type: ignore[union-attr]


@loop
def _find_spectra(
    x_RT: Floats,
    centre_BN: Integers,
    length_B: Integers,
    window_W: Floats,
    plan: int,
    channels: int,
    y_RNF: Complex,
    first: int,
    last: int,
) -> None:
    """Find the spectra of the frames around these samples of each row."""
    frame = len(window_W)
    for row in range(first, last):
        centre_N, x_T = centre_BN[row // channels], x_RT[row, : length_B[row // channels]]
        for n in range(len(centre_N)):
            some = y_RNF[row, n].view(f32)[:frame]
            _read(x_T, centre_N[n] - frame // 2, window_W, some)
            if to_spectrum(plan, some.ctypes.data):
                raise RuntimeError("MKL refuses an FFT.")


@loop
def _add_frames(
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
def _mask_frames(
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
    """Multiply each frame's spectrum by its example's mask and add the frames up again."""
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
    inside, window, into = x_T[start + begin : start + end], window_W[begin:end], y_W[begin:end]
    y_W[:begin] = 0.0
    for w in range(len(into)):
        into[w] = inside[w] * window[w]
    y_W[end:] = 0.0


@loop
def _add(frame_W: Floats, start: int, window_W: Floats, y_T: Floats, weight_T: Floats) -> None:
    """Add what of a frame is inside of the row, and to the weights its window's squares."""
    begin, end = max(-start, 0), min(len(y_T) - start, len(window_W))
    if begin < end:
        into, weight = y_T[start + begin : start + end], weight_T[start + begin : start + end]
        frame, window = frame_W[begin:end], window_W[begin:end]
        for w in range(len(into)):
            into[w] += frame[w] * window[w]
            weight[w] += window[w] * window[w]


@loop
def _divide(y_T: Floats, weight_T: Floats, times: np.float32) -> None:
    """Divide by the sum of the windows' squares, and by how many times too large it is besides."""
    for t in range(len(y_T)):
        y_T[t] /= max(weight_T[t], f32(1e-6)) * times
