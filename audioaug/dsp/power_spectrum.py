"""Power spectra of frames of audio, as ``numpy.abs(librosa.stft(x)) ** 2`` has them.

Shapes: B examples, C channels, T samples, N frames, W = n_fft samples of a frame, F = W // 2 + 1 frequencies.
"""

import torch

from audioaug.dsp.fft import rfft, with_room
from audioaug.internals import is_transformed


def power_spectrum(x_BCT: torch.Tensor, window_W: torch.Tensor, hop: int) -> torch.Tensor:
    """Return the power at each frequency of frames under a window, (B, C, N, F).

    Frames are centred on every ``hop`` samples, from 0 to T at the most; around the audio is silence.
    """
    spectrum_BCNF = rfft(_frames(x_BCT, window_W, hop))
    return spectrum_BCNF.real.square().addcmul_(spectrum_BCNF.imag, spectrum_BCNF.imag)  # 3x faster than abs()


def _frames(x_BCT: torch.Tensor, window_W: torch.Tensor, hop: int) -> torch.Tensor:
    """Return the frames, (B, C, N, W)."""
    size = len(window_W)
    around = torch.nn.functional.pad(x_BCT, (size // 2, size // 2))
    frames_BCNW = around.unfold(-1, size, hop)
    if x_BCT.requires_grad or is_transformed():
        return frames_BCNW * window_W
    return torch.mul(frames_BCNW, window_W, out=with_room(x_BCT, *frames_BCNW.shape))
