"""Loudness against the package that audiomentations measures it with, and against the standard's own test tones."""

import loudness
import numpy as np
import pytest
import torch

from audioaug.dsp.loudness import gain_to_loudness
from audioaug.verify import material

pytestmark = pytest.mark.usefixtures("either_way")
RATES = [8000, 11025, 16000, 22050, 44100, 48000]


def measured(clips, sample_rate):
    """Return the loudness of each clip, which its gain to 0 LUFS makes up for; it is -inf where there is none."""
    longest = max(x.shape[1] for x in clips)
    x_BCT = np.stack([np.pad(x, ((0, 0), (0, longest - x.shape[1]))) for x in clips])
    lengths = torch.tensor([x.shape[1] for x in clips])
    gain = gain_to_loudness(torch.from_numpy(x_BCT), lengths, torch.zeros(len(clips)), sample_rate)
    return torch.where(gain == 1.0, -torch.inf, -20 * gain.double().log10()).tolist()


@pytest.mark.parametrize("sample_rate", RATES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 6, 7])
def test_loudness_equals_the_package(sample_rate, channels):
    clips = [x for x in material.signals(sample_rate, channels) if x.shape[1] >= 0.4 * sample_rate]
    rng = np.random.default_rng(channels)
    swelling = rng.normal(0, 1, (channels, 5 * sample_rate)) * np.logspace(-5, 0, 5 * sample_rate)
    clips += [swelling.astype(np.float32), (0.001 * swelling).astype(np.float32), 500 * clips[0]]
    expected = [loudness.integrated_loudness(x.T, sample_rate) for x in clips]
    assert measured(clips, sample_rate) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("samples", range(6390, 6412, 3))
def test_the_last_block_counts_only_if_it_is_whole(samples):
    clips = [np.random.default_rng(0).normal(0, 0.1, (1, samples)).astype(np.float32) for _ in range(2)]
    found = measured([*clips, np.zeros((1, 9000), np.float32)], 16000)
    expected = loudness.integrated_loudness(clips[0].T, 16000) if samples >= 6400 else -np.inf
    assert found == pytest.approx([expected, expected, -np.inf], abs=1e-6)


def test_every_bin_has_its_edges_where_the_package_has_them():
    noise = np.random.default_rng(0).normal(0, 0.1, (1, 8000)).astype(np.float32)
    clips = [noise * np.float32(10 ** (k / 500)) for k in range(-1500, 500, 7)]
    assert measured(clips, 16000) == pytest.approx([loudness.integrated_loudness(x.T, 16000) for x in clips], abs=1e-6)


def test_a_full_scale_tone_of_997_hz_has_minus_3_lufs():
    """ITU-R BS.1770-4: on one channel -3.01 LUFS; to the 0.05 dB that a bin is wide on either side."""
    tone = np.sin(2 * np.pi * 997 / 48000 * np.arange(96000, dtype=np.float64))[None].astype(np.float32)
    assert measured([tone, np.float32(0.1) * tone], 48000) == pytest.approx([-3.01, -23.01], abs=0.06)


def test_a_batch_too_short_for_a_block_has_no_loudness():
    assert measured([np.ones((1, 100), np.float32)], 16000) == [-np.inf]
    assert measured([np.ones((1, 0), np.float32)] * 2, 16000) == [-np.inf] * 2
