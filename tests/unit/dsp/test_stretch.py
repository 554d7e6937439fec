"""Phase vocoders: what must not change, and what must, with every row at a rate of its own."""

import contextlib
from functools import partial

import librosa
import numpy as np
import pytest
import torch

from audioaug.dsp.stretch import _find_power, frame_size, phase_vocoder, running_sum, stretch
from audioaug.dsp.stretch.attacks import attack_times
from audioaug.verify import material

pytestmark = pytest.mark.usefixtures("either_way")

RATE = 16000
FRAME = frame_size(RATE)


def batch(*clips: np.ndarray) -> torch.Tensor:
    longest = max(len(clip) for clip in clips)
    return torch.stack([torch.from_numpy(np.pad(clip, (0, longest - len(clip))).astype(np.float32)) for clip in clips])[
        :, None
    ]


def tone(hertz: float, seconds: float = 1.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(RATE * seconds)) / RATE)


def click(*places: int, samples: int = RATE) -> np.ndarray:
    x_T = np.zeros(samples)
    x_T[list(places)] = 1.0
    return x_T


def loudest_hertz(x_T: torch.Tensor) -> float:
    """Return the frequency of the loudest partial, to a hundredth of a hertz."""
    n = 1 << 21
    return int(torch.fft.rfft(x_T * torch.hann_window(len(x_T)), n).abs().argmax()) * RATE / n


def test_frame_sizes_are_even_in_quarters_and_last_90_ms() -> None:
    for rate in (8000, 11025, 16000, 22050, 44100, 48000, 96000):
        size = frame_size(rate)
        assert size % 8 == 0 and 0.09 <= size / rate < 0.1


def test_rate_one_changes_nothing() -> None:
    x_RCT = torch.from_numpy(np.stack(material.equal_lengths(material.signals(RATE, 2), 9000)))
    y_RCT = stretch(x_RCT, torch.ones(len(x_RCT)), 9000, FRAME)
    torch.testing.assert_close(y_RCT, x_RCT, rtol=0, atol=2e-6)


@pytest.mark.parametrize("rates", [(0.8, 1.25), (0.5, 2.0), (0.3, 4.0), (0.97, 1.03)])
def test_tones_keep_their_pitch_and_level(rates: tuple[float, ...]) -> None:
    hertz = (440.0, 997.3)
    y_RT = stretch(batch(*(tone(f, 4.0) for f in hertz)), torch.tensor(rates), 4 * RATE, FRAME)[:, 0]
    for f, rate, y_T in zip(hertz, rates, y_RT):
        middle = y_T[FRAME : int(4 * RATE / max(1.0, rate)) - FRAME]
        assert 1200 * abs(np.log2(loudest_hertz(middle) / f)) < 0.1
        assert middle.abs().max() == pytest.approx(0.5, rel=0.01)
        assert middle.square().mean().sqrt() == pytest.approx(0.5 / 2**0.5, rel=0.01)


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.95, 1.1, 1.25, 2.0])
def test_a_click_stays_a_click_and_lands_where_it_should(rate: float) -> None:
    places = [1000, 5321, 12345]
    y_RT = stretch(batch(*(click(place) for place in places)), torch.full((3,), rate), int(RATE / rate), FRAME)[:, 0]
    for place, y_T in zip(places, y_RT):
        near = slice(round(place / rate) - RATE // 500, round(place / rate) + RATE // 500)  # 2 ms on either side
        assert y_T[near].square().sum() > 0.97 * y_T.square().sum()


@pytest.mark.parametrize("rate", [0.5, 0.8, 1.25, 1.6])
def test_a_click_near_the_start_is_as_loud_as_one_later_and_lands_where_it_should(rate: float) -> None:
    """The first frame has it too, and must delay it by as much as the second."""
    later, *early = stretch(batch(*map(click, (8000, 90, 150, 250))), torch.full((4,), rate), int(RATE / rate), FRAME)
    for place, (y_T,) in zip((90, 150, 250), early):
        near = slice(max(0, round(place / rate) - RATE // 500), round(place / rate) + RATE // 500)
        assert y_T[near].square().sum() > 0.97 * y_T.square().sum()
        assert y_T.square().sum() == pytest.approx(float(later.square().sum()), rel=0.3)


def test_a_click_upon_a_tone_is_not_smeared() -> None:
    """The tone continues; most of the click's energy is still within 5 ms."""
    x_T, rate = tone(220) * 0.2, 0.8
    wet, dry = (stretch(batch(part), torch.tensor([rate]), 20000, FRAME)[0, 0] for part in (x_T + click(8100), x_T))
    centre = round(8100 / rate)
    assert (wet - dry)[centre - 80 : centre + 80].abs().max() > 0.3
    assert wet[: centre - 2000].std() == pytest.approx(float(dry[: centre - 2000].std()), rel=0.02)


def test_channels_keep_their_phases_and_levels_to_each_other() -> None:
    word = material.signals(RATE)[1][0]
    x_RCT = torch.from_numpy(np.stack([word, -0.5 * word]))[None]
    left, right = stretch(x_RCT, torch.tensor([0.83]), 15000, FRAME)[0]
    torch.testing.assert_close(right, -0.5 * left, rtol=0, atol=1e-6)


def test_rows_do_not_know_each_other() -> None:
    """Neither their rates, nor their lengths, nor their faults."""
    clips = [clip[0] for clip in material.signals(RATE)[:3]]
    rates = torch.tensor([0.8, 1.0, 1.3])
    longest = max(int(len(clip) / rate) for clip, rate in zip(clips, rates))
    together = stretch(batch(*clips), rates, longest, FRAME)
    for row, clip in enumerate(clips):
        samples = int(len(clip) / rates[row])
        alone = stretch(batch(clip), rates[row : row + 1], samples, FRAME)[0]
        torch.testing.assert_close(together[row, :, :samples], alone, rtol=0, atol=1e-5)
    bad = batch(*clips)
    bad[1, 0, 500] = float("nan")
    after = stretch(bad, rates, longest, FRAME)
    assert torch.equal(after[0], together[0]) and torch.equal(after[2], together[2])


@pytest.mark.parametrize("samples", [1, 2, 37, 500])
@pytest.mark.parametrize("rate", [0.1, 0.9, 10.0])
def test_short_clips_silence_and_constants(samples: int, rate: float) -> None:
    x_RCT = torch.stack([torch.zeros(1, samples), torch.ones(1, samples), torch.full((1, samples), 1e-30)])
    length = max(1, round(samples / rate))
    rates, lengths = torch.full((3,), rate), torch.full((3,), samples)
    for y_RCT in (stretch(x_RCT, rates, length, FRAME), phase_vocoder(x_RCT, rates, length, lengths)):
        assert y_RCT.shape == (3, 1, length) and y_RCT.isfinite().all() and not y_RCT[0].any()


def test_gradients_flow() -> None:
    x_RCT = torch.from_numpy(material.signals(RATE)[1])[None, :, :8000].requires_grad_()
    for run in (
        lambda x: stretch(x, torch.tensor([0.9]), 8000, FRAME),
        lambda x: phase_vocoder(x, torch.tensor([0.9]), 9000, torch.tensor([8000])),
    ):
        (gradient,) = torch.autograd.grad(run(x_RCT).square().sum(), x_RCT)
        assert gradient.isfinite().all() and gradient.any()


def test_signed_zeros_of_the_fft_do_not_change_audio_after_silence(monkeypatch) -> None:
    x_RCT = torch.cat([torch.zeros(1, 4000), torch.from_numpy(material.signals(RATE)[0])], 1)[None]
    transform, found = torch.fft.rfft, []
    for zero in (0.0, -0.0):  # which one it is differs from processor to processor
        monkeypatch.setattr(torch.fft, "rfft", partial(with_zeros, transform, complex(zero, 0.0)))
        found.append(phase_vocoder(x_RCT, torch.tensor([1.1]), 16000, torch.tensor([x_RCT.shape[-1]])))
    assert torch.equal(*found)


def with_zeros(transform, zero: complex, frames: torch.Tensor, n: int) -> torch.Tensor:
    spectra = transform(frames, n)
    return torch.where(spectra == 0, torch.tensor(zero), spectra)


@pytest.mark.parametrize("rate", [0.5, 0.8, 1.1, 1.25, 2.3, 7.0])
def test_phase_vocoder_is_librosas(rate: float) -> None:
    """In a padded batch, on sounds whose phases are well defined (those of a constant are not)."""
    clips = [clip[0] for row, clip in enumerate(material.signals(RATE)) if row in (0, 1, 2, 4, 6)]
    lengths = torch.tensor([len(clip) for clip in clips])
    longest = round(max(lengths.tolist()) / rate)
    y_RT = phase_vocoder(batch(*clips), torch.full((len(clips),), rate), longest, lengths)[:, 0].numpy()
    for clip, y_T in zip(clips, y_RT):
        with pytest.warns(UserWarning, match="too large") if len(clip) < 2048 else contextlib.nullcontext():
            expected = librosa.effects.time_stretch(clip, rate=rate)
        assert np.abs(y_T[: len(expected)] - expected).max() < 3e-3 * np.abs(clip).max()


def test_power_is_the_same_to_the_last_digit():
    """... for which of two neighbours is louder must not depend on the way."""
    here_CNF = torch.randn(2, 5, 700, dtype=torch.complex64)
    power_NE = np.zeros((5, 704), np.float32)
    for n in range(5):
        _find_power(here_CNF.numpy(), n, power_NE[n])
    assert np.array_equal(power_NE[:, 2:-2], (here_CNF.real.square() + here_CNF.imag.square()).sum(0))


@pytest.mark.parametrize("samples", [1, 59, 60, 61, 5000])
def test_attacks_are_found_at_the_same_times_by_a_loop(samples: int) -> None:
    generator = torch.Generator().manual_seed(samples)
    x_RCT = 0.01 * torch.randn(4, 2, samples, generator=generator)
    for click in (700, 940, 2000, 4999):
        x_RCT[:2, 1, click : click + 3] += 3.0 if click == 940 else 1.0  # four blocks after a smaller one
    x_RCT[3] = 0.0
    centre_RN = torch.arange(0, samples + 400, 97).expand(4, -1)
    found_RN, expected_RN = attack_times(x_RCT, centre_RN, 60), attack_times.definition(x_RCT, centre_RN, 60)
    assert torch.equal(found_RN, expected_RN)
    assert samples < 5000 or set(found_RN[0].tolist()) == {30, 930, 2010, 5010}
    assert (found_RN[3] - centre_RN[3]).abs().min() > 2**30


@pytest.mark.parametrize("count", [1, 2, 7, 64, 101])
def test_a_running_sum_that_is_deterministic(monkeypatch, count: int) -> None:
    x = torch.rand(2, count, 3, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(torch.Tensor, "cumsum", None)  # as on CUDA
    found = running_sum(x, 1)
    monkeypatch.undo()
    torch.testing.assert_close(found, x.double().cumsum(1).float(), rtol=1e-6, atol=1e-6)
