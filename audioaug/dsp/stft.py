"""Short-time spectra, rows made of them, and a mask: the exact twin of librosa's ``istft(stft(x) * mask)``.

Shapes: R rows, C channels, T samples, S samples out, N frames, W = n_fft samples of a frame, F = n_fft // 2 + 1
frequencies.
"""

import torch

from audioaug.dsp import compiled, plans
from audioaug.dsp.windows import windows


def masked_spectrum(x_RCT: torch.Tensor, length_R: torch.Tensor, mask_RF: torch.Tensor, n_fft: int) -> torch.Tensor:
    """Multiply each frame's spectrum by its row's mask and add the frames up again.

    Frames are centred on every quarter of ``n_fft`` samples (a power of two, at least 4) up to the row's end, under a
    Hann window before and after; around a clip is silence. Samples behind the end of a row are ignored and come out
    undefined.
    """
    hop, samples = n_fft // 4, x_RCT.shape[-1]
    window_W = torch.hann_window(n_fft, device=x_RCT.device)
    if compiled.fits(x_RCT) and plans.library():
        from audioaug.dsp.loops.frames import mask_frames

        return compiled.of_rows(mask_frames, x_RCT, length_R, mask_RF, window_W, plans.plan(n_fft))
    inside_R1T = torch.arange(samples, device=x_RCT.device) < length_R[:, None, None]
    ahead_RCP = torch.nn.functional.pad(torch.where(inside_R1T, x_RCT, 0.0), (n_fft // 2, n_fft))
    spectra_RCNF = torch.fft.rfft(ahead_RCP.unfold(-1, n_fft, hop)[:, :, : samples // hop + 1] * window_W)
    there_RN = torch.arange(samples // hop + 1, device=x_RCT.device) <= length_R[:, None] // hop
    return added_up(spectra_RCNF * mask_RF[:, None, None], window_W, samples, there_RN)


def spectra_at(x_RCT: torch.Tensor, centre_RN: torch.Tensor, window_W: torch.Tensor) -> torch.Tensor:
    """Return the spectra of the frames around these samples, (R, C, N, F); around the clips is silence."""
    frame, (rows, channels, samples), count = len(window_W), x_RCT.shape, centre_RN.shape[1]
    if compiled.fits(x_RCT) and plans.library():
        from audioaug.dsp.loops.frames import find_spectra

        y_RCNF = x_RCT.new_empty(rows, channels, count, frame // 2 + 1, dtype=torch.complex64)
        return compiled.of_rows(find_spectra, x_RCT, centre_RN, window_W, plans.plan(frame), out=y_RCNF)
    padded = torch.nn.functional.pad(x_RCT, (frame, frame)).view(rows * channels, samples + 2 * frame)
    start_RN = (centre_RN + frame // 2).clamp(min=0, max=samples + frame)
    first_RC1 = torch.arange(rows * channels, device=x_RCT.device).view(rows, channels, 1) * padded.shape[-1]
    frames = windows(padded.flatten(), (first_RC1 + start_RN[:, None]).flatten(), frame)
    return torch.fft.rfft(frames.view(rows, channels, -1, frame) * window_W)


def added_up(
    spectra_RCNF: torch.Tensor, window_W: torch.Tensor, samples_out: int, there_RN: torch.Tensor | None = None
) -> torch.Tensor:
    """Add up windowed frames, each centred on a multiple of a quarter frame; divide by what their windows add up to.

    Where ``there`` is false, there is no frame. Returns (R, C, S).
    """
    frame, count = len(window_W), spectra_RCNF.shape[2]
    if compiled.fits(spectra_RCNF) and plans.library():
        from audioaug.dsp.loops.frames import add_frames

        there_RN = torch.ones(len(spectra_RCNF), count, dtype=torch.bool) if there_RN is None else there_RN
        y_RCS = window_W.new_empty(*spectra_RCNF.shape[:2], samples_out)
        return compiled.of_rows(add_frames, spectra_RCNF, there_RN, window_W, plans.plan(frame), out=y_RCS)
    frames_RCNW, square_NW = torch.fft.irfft(spectra_RCNF, frame), window_W.square().expand(count, -1)
    if there_RN is not None:
        there = there_RN[:, None, :, None]
        frames_RCNW, square_NW = torch.where(there, frames_RCNW, 0.0), there * square_NW
    weight = _overlapped(square_NW)[..., frame // 2 :][..., :samples_out].clamp(min=1e-6)
    return _overlapped(frames_RCNW * window_W)[..., frame // 2 :][..., :samples_out] / weight


def _overlapped(frames: torch.Tensor) -> torch.Tensor:
    """Add up frames (..., N, W) that start a quarter of W after each other; (..., (N + 3) W / 4)."""
    quarters, pad = frames.unflatten(-1, (4, -1)), torch.nn.functional.pad
    return sum(pad(quarters[..., k, :], (0, 0, k, 3 - k)) for k in range(4)).flatten(-2)  # type: ignore[union-attr]
