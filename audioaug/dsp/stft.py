"""Short-time spectra: frames added up again, and a mask, the exact twin of librosa's ``istft(stft(x) * mask)``.

Shapes: R rows, C channels, T samples, N frames, W = n_fft samples of a frame, F = n_fft // 2 + 1 frequencies.
"""

import torch

from audioaug.dsp import compiled, plans


def masked_spectrum(x_RCT: torch.Tensor, length_R: torch.Tensor, mask_RF: torch.Tensor, n_fft: int) -> torch.Tensor:
    """Multiply each frame's spectrum by its row's mask and add the frames up again.

    Frames are centred on every quarter of ``n_fft`` samples (a power of two, at least 4) up to the row's end, under a
    Hann window before and after; around a clip is silence. Samples behind the end of a row are ignored and come out
    undefined.
    """
    hop, samples = n_fft // 4, x_RCT.shape[-1]
    window_W = torch.hann_window(n_fft, device=x_RCT.device)
    if compiled.fits(x_RCT) and plans.library():
        from audioaug.dsp.loops.masks import mask_frames

        return compiled.of_rows(mask_frames, x_RCT, length_R, mask_RF, window_W, plans.plan(n_fft))
    inside_R1T = torch.arange(samples, device=x_RCT.device) < length_R[:, None, None]
    ahead_RCP = torch.nn.functional.pad(torch.where(inside_R1T, x_RCT, 0.0), (n_fft // 2, n_fft))
    spectrum_RCNF = torch.fft.rfft(ahead_RCP.unfold(-1, n_fft, hop)[:, :, : samples // hop + 1] * window_W)
    there_RN = torch.arange(samples // hop + 1, device=x_RCT.device) <= length_R[:, None] // hop
    return overlapped(torch.fft.irfft(spectrum_RCNF * mask_RF[:, None, None], n_fft), window_W, samples, there_RN)


def overlapped(
    frames_RCNW: torch.Tensor, window_W: torch.Tensor, samples_out: int, there_RN: torch.Tensor | None = None
) -> torch.Tensor:
    """Add up windowed frames, each centred on a multiple of a quarter frame; divide by what their windows add up to.

    Where ``there`` is false, there is no frame.
    """
    square_NW = window_W.square().expand(frames_RCNW.shape[2], -1)
    if there_RN is not None:
        there = there_RN[:, None, :, None]
        frames_RCNW, square_NW = torch.where(there, frames_RCNW, 0.0), there * square_NW
    weight = _added_up(square_NW)[..., len(window_W) // 2 :][..., :samples_out].clamp(min=1e-6)
    if compiled.fits(frames_RCNW):
        from audioaug.dsp.loops.frames import overlap

        return compiled.of_rows(overlap, frames_RCNW.flatten(2), window_W, samples_out=samples_out).div_(weight)
    return _added_up(frames_RCNW * window_W)[..., len(window_W) // 2 :][..., :samples_out] / weight


def _added_up(frames: torch.Tensor) -> torch.Tensor:
    """Add up frames (..., N, W) that start a quarter of W after each other; (..., (N + 3) W / 4)."""
    quarters, pad = frames.unflatten(-1, (4, -1)), torch.nn.functional.pad
    return sum(pad(quarters[..., k, :], (0, 0, k, 3 - k)) for k in range(4)).flatten(-2)  # type: ignore[union-attr]
