"""A mask on the short-time spectrum against librosa."""

import warnings

import librosa
import numpy as np
import pytest
import torch

from audioaug.dsp.stft import masked_spectrum


@pytest.mark.parametrize("samples", [1, 3, 31, 127, 128, 1000])
@pytest.mark.parametrize("n_fft", [4, 64, 128])
@pytest.mark.usefixtures("either_way")
def test_every_row_equals_librosa_in_one_ragged_batch(n_fft, samples):
    rng = np.random.default_rng(samples)
    lengths = [max(1, samples - 29 * row) for row in range(5)]
    x = rng.standard_normal((5, 2, samples)).astype(np.float32)
    mask = rng.uniform(0, 1, (5, n_fft // 2 + 1)).astype(np.float32)
    result = masked_spectrum(torch.from_numpy(x), torch.tensor(lengths), torch.from_numpy(mask), n_fft).numpy()
    assert np.isfinite(result).all()
    for row, length in enumerate(lengths):
        with warnings.catch_warnings():  # of clips shorter than a frame
            warnings.simplefilter("ignore")
            spectrum = librosa.stft(x[row, :, :length], n_fft=n_fft) * mask[row][:, None]
            expected = librosa.istft(spectrum, length=length, n_fft=n_fft)
        np.testing.assert_allclose(result[row, :, :length], expected, atol=3e-6)


def test_a_mask_of_ones_changes_nothing():
    x = torch.randn(2, 1, 500, generator=torch.Generator().manual_seed(0))
    result = masked_spectrum(x, torch.tensor([500, 500]), torch.ones(2, 65), 128)
    torch.testing.assert_close(result, x, atol=1e-5, rtol=0)
