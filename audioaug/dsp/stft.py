"""A mask on the short-time spectrum: the exact twin of librosa's ``istft(stft(x) * mask)``, clips of unequal lengths.

Shapes: R rows, C channels, T samples, N frames, W = n_fft samples of a frame, F = n_fft // 2 + 1 frequencies.
"""

import torch


def masked_spectrum(x_RCT: torch.Tensor, length_R: torch.Tensor, mask_RF: torch.Tensor, n_fft: int) -> torch.Tensor:
    """Multiply each frame's spectrum by its row's mask and add the frames up again.

    Frames are centred on every quarter of ``n_fft`` samples (a power of two, at least 4) up to the row's end, under a
    Hann window before and after; around a clip is silence. Samples behind the end of a row are ignored and come out
    undefined.
    """
    hop, samples = n_fft // 4, x_RCT.shape[-1]
    inside_R1T = torch.arange(samples, device=x_RCT.device) < length_R[:, None, None]
    ahead_RCP = torch.nn.functional.pad(torch.where(inside_R1T, x_RCT, 0.0), (n_fft // 2, n_fft))
    window_W = torch.hann_window(n_fft, device=x_RCT.device)
    frames_RCNW = ahead_RCP.unfold(-1, n_fft, hop)[:, :, : samples // hop + 1] * window_W
    masked_RCNW = torch.fft.irfft(torch.fft.rfft(frames_RCNW) * mask_RF[:, None, None], n_fft) * window_W
    there_RN1 = (torch.arange(samples // hop + 1, device=x_RCT.device) <= length_R[:, None] // hop)[..., None]
    total_RCT = _overlapped(torch.where(there_RN1[:, None], masked_RCNW, 0.0))
    weight_RT = _overlapped(there_RN1 * window_W.square())
    wanted = slice(n_fft // 2, n_fft // 2 + samples)
    return total_RCT[..., wanted] / weight_RT[:, None, wanted].clamp(min=1e-6)


def _overlapped(frames: torch.Tensor) -> torch.Tensor:
    """Add up frames (..., N, W) that start a quarter of W after each other; (..., (N + 3) W / 4)."""
    quarters = frames.unflatten(-1, (4, -1))
    pad = torch.nn.functional.pad
    return sum(pad(quarters[..., k, :], (0, 0, k, 3 - k)) for k in range(4)).flatten(-2)  # type: ignore[union-attr]
