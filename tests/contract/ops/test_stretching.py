"""TimeStretch and PitchShift beyond their contract: lengths, channels, and far shifts."""

import numpy as np
import pytest
import torch

from audioaug import build_cpu, build_device, ops
from audioaug.core import Chain, Op
from audioaug.errors import DataError
from audioaug.verify import material, perceptual
from audioaug.verify.replay import on_cpu, on_device

RATE = 16000
METHODS = ("signalsmith_stretch", "librosa_phase_vocoder")


@pytest.mark.filterwarnings("ignore:n_fft=.* is too large")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bounds", [(0.8, 1.25), (0.1, 10.0), (0.8, 0.8), (2.0, 2.0), (0.4, 0.4)])
def test_durations_are_the_references_to_the_sample(method: str, bounds: tuple[float, float]) -> None:
    op = ops.TimeStretch(min_rate=bounds[0], max_rate=bounds[1], leave_length_unchanged=False, method=method, p=1.0)
    chain, rng = Chain([op], RATE), np.random.default_rng(0)
    clips = [rng.normal(0, 0.1, (1, samples)).astype(np.float32) for samples in (1, 2, 3, 37, 999, 1001, 4097, 5005)]
    draws = chain.draw(np.arange(len(clips)))
    reference, built = on_cpu(chain, clips, RATE, draws), on_device(chain, clips, RATE, draws)
    assert [clip.shape for clip in built] == [clip.shape for clip in reference]


@pytest.mark.parametrize("kind", [ops.TimeStretch, ops.PitchShift])
def test_three_channels_are_refused_by_both_builds_but_not_by_librosas_method(kind: type[Op]) -> None:
    x_CT = np.random.default_rng(0).normal(0, 0.1, (3, 4000)).astype(np.float32)
    chain = Chain([kind(p=1.0)], RATE)
    for run in (lambda: build_cpu(chain)(x_CT), lambda: build_device(chain)(torch.from_numpy(x_CT)[None])):
        with pytest.raises(DataError, match="takes mono or stereo, but this clip has 3 channels"):
            run()
    chain = Chain([kind(p=1.0, method=METHODS[1])], RATE)
    draws = chain.draw([0])
    expected, (built,) = (
        build_cpu(chain)(x_CT, draws=draws),
        build_device(chain)(torch.from_numpy(x_CT)[None], draws=draws),
    )
    np.testing.assert_allclose(built, expected, atol=0.02 * np.abs(expected).max())


FAR = [
    *(
        (ops.TimeStretch, {"min_rate": rate, "max_rate": rate}) for rate in (0.5, 2.0, 4.0)
    ),  # slower, signalsmith draws its phases
    *((ops.PitchShift, {"min_semitones": shift, "max_semitones": shift}) for shift in (-24.0, -12.0, 12.0, 24.0)),
]


@pytest.mark.parametrize(("kind", "far"), FAR, ids=str)
def test_far_from_the_defaults_words_are_closer_to_the_reference_than_librosas_method(
    kind: type[Op], far: dict[str, float]
) -> None:
    """Beyond the contract: in spectrum, clip by clip, without its limits."""
    clips = material.signals(RATE)[:3]
    chains = [Chain([kind(**far, method=method, p=1.0)], RATE) for method in METHODS]
    reference, other = (on_cpu(chain, clips, RATE, chain.draw(np.arange(3))) for chain in chains)
    built = on_device(chains[0], clips, RATE, chains[0].draw(np.arange(3)))
    ours, theirs = (
        np.mean(
            [
                perceptual.spectral_distance(a[0].astype(float), b[0].astype(float), RATE)
                for a, b in zip(reference, made)
            ]
        )
        for made in (built, other)
    )
    assert ours < 0.8 * theirs
    assert all(np.isfinite(clip).all() for clip in built)


def test_a_shift_fills_the_band_to_its_top_and_folds_nothing_back() -> None:
    chain = Chain([ops.PitchShift(min_semitones=4.0, max_semitones=4.0, p=1.0)], RATE)
    noise = material.signals(RATE)[7]
    tone = (0.5 * np.sin(2 * np.pi * 7500 * np.arange(RATE) / RATE)).astype(np.float32)[None]
    draws = chain.draw([0, 0])
    levels = []
    for results in (on_cpu(chain, [noise, tone], RATE, draws), on_device(chain, [noise, tone], RATE, draws)):
        top = np.abs(np.fft.rfft(results[0][0]))[7500:7800]
        levels.append(10 * np.log10(np.square(top).mean()))
        inner = results[1][0, 2000:-2000]  # the tone would be at 9449 Hz
        assert np.square(inner).mean() < 1e-4 * np.square(tone).mean()
    assert abs(levels[0] - levels[1]) < 1.0
