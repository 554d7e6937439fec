"""Kernels against their torch definitions over arguments that ops seldom have: odd sizes, ends, overlaps, extremes."""

import numpy as np
import pytest
import torch

from audioaug.dsp import dispatch, fft, stretch
from audioaug.dsp.aliasing import alias
from audioaug.dsp.biquads import NUMBERS, OWN_NUMBERS, cascade
from audioaug.dsp.companding import companded
from audioaug.dsp.distortion import distorted
from audioaug.dsp.fades import crossfaded_segments
from audioaug.dsp.fft import apply_response, irfft, planned_rows, rfft, with_room
from audioaug.dsp.levels import added_at, change_gain, normalize, peak, scaled
from audioaug.dsp.levels.percentile import at_rank, ranked
from audioaug.dsp.limiter import limit
from audioaug.dsp.loudness import _energy_of_channels, _gain_of_steps
from audioaug.dsp.noise import colour
from audioaug.dsp.quantization import quantized
from audioaug.dsp.resample import fixed_ratio, reach_of, resample
from audioaug.dsp.rooms import add_echoes
from audioaug.dsp.rooms.plan import _taps, images
from audioaug.dsp.sounds import Sounds, with_sounds
from audioaug.dsp.splices import MOST_SPLICES, splice
from audioaug.dsp.stft import added_up, masked_spectrum, spectra_at
from audioaug.dsp.trimming import loud_span
from audioaug.dsp.windows import join_segments, pad, rolled, silence_past_ends
from tests.unit.dsp.both_ways import by_torch

pytest.importorskip("triton")
if not dispatch.kernels_are_usable():
    pytest.skip("Triton is older than kernels need", allow_module_level=True)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def same(function, *arguments, tolerance=1e-6, **options) -> torch.Tensor:
    """Return the result, which must be that of the torch definitions, up to a share of the peak."""
    found, wanted = function(*arguments, **options), by_torch(lambda: function(*arguments, **options))
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()
    return found


@pytest.mark.parametrize("samples", [1, 7, 1024, 2500])
def test_rows_are_joined_rolled_padded_and_silenced(samples, interpreted):
    x = noise(3, 2, samples)
    begin = torch.tensor([[0, 1, 5], [0, samples // 2, samples], [0, 2**40, 2**40]])
    by = torch.tensor([[0, 1, -3], [-1, samples, 2], [samples // 3, 0, 0]])
    for wanted in (None, 1, samples + 700):
        same(join_segments, x, begin, by, wanted)
    length = torch.tensor([samples, max(1, samples // 2), 1])
    for turn in (torch.zeros(3, dtype=torch.long), length // 2, length):
        same(lambda turn: silence_past_ends(rolled(x, turn, length), length), turn)
    for mode in ("silence", "wrap", "reflect"):
        same(pad, x, torch.zeros_like(length), length, torch.tensor([0, 3, 1100]), samples + 1300, mode)
        same(pad, x, samples - length, length, torch.tensor([2, 0, 5]), 9, mode)
    same(lambda: silence_past_ends(x.clone(), length - 1))
    assert {*interpreted} == {"_join", "_roll", "_pad", "_silence"}


@pytest.mark.parametrize("samples", [1, 2, 777, 2500])
def test_rows_are_read_at_fewer_places_and_back(samples, interpreted):
    x, length = noise(4, 2, samples), torch.tensor([samples, max(1, samples // 2), 1, samples])
    for left in ([1, 1, 1, 1], [2, 7, 1, samples], [samples, 1000, 3, 2 * samples]):
        same(lambda left: silence_past_ends(alias(x, length, left, int(left.max()), None), length), torch.tensor(left))
    assert {*interpreted} == {"_alias", "_silence"}


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
def test_every_16_bit_value_is_companded_to_the_same_bits(law, interpreted):
    x = (torch.arange(-(2**15), 2**15) / 2**15).view(2, 2, -1)
    same(companded, x, torch.ones(2), law, None, tolerance=0)
    same(companded, x * 8, torch.tensor([8.0, 16.0]), law, None, tolerance=0)
    assert companded(x, torch.ones(2), law, x) is x and {*interpreted} == {"_compand"}


def test_samples_are_quantized_to_the_same_bits(interpreted):
    steps = torch.tensor([2.0, 3.0, 17.0, 2.0**14 + 1, 2.0**31 + 1])
    half_way = (torch.arange(-50, 50) + 0.5) / steps[:, None, None]
    odd = torch.tensor([0.0, -0.0, 1e-40, -1e-40, 3.9e-3, torch.inf, -torch.inf, torch.nan, 1e20]).expand(5, 1, -1)
    x = torch.cat([noise(5, 1, 3000), half_way, 2.0**9 * half_way, odd], dim=-1).repeat(1, 2, 1)
    found, wanted = quantized(x, steps, None), by_torch(lambda: quantized(x, steps, None))
    assert torch.equal(found.nan_to_num(9.0), wanted.nan_to_num(9.0)) and torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found.signbit() & ~found.isnan(), wanted.signbit() & ~wanted.isnan())
    scattered = x.mT.contiguous().mT
    assert torch.equal(quantized(scattered, steps, scattered).nan_to_num(), found.nan_to_num())
    assert quantized(x, steps, x) is x and torch.equal(x.nan_to_num(), found.nan_to_num())
    assert {*interpreted} == {"_quantize"}


def test_absolute_values_at_ranks(interpreted):
    x, rank, fraction = noise(3, 5000), torch.tensor([0, 2000, 4999]), torch.tensor([0.0, 0.7, 0.0])
    x[1] = x[1].round(decimals=1)
    same(at_rank, x, rank, fraction, 0, 4999, True, tolerance=0)
    assert interpreted == ["_at_rank"]


@pytest.mark.parametrize(("channels", "samples"), [(2, 1), (1, 1024), (2, 5000)])
def test_examples_of_any_level_are_distorted_by_any_amount(channels, samples, interpreted):
    x = noise(4, channels, samples) * torch.tensor([1.0, 1.0, 1e-7, 1e-10])[:, None, None]
    x[..., samples - samples // 5 :] = 0.0
    numbers = torch.tensor([0.0, 40.0, 1e-3, 1.0]), torch.tensor([samples - samples // 5, samples, samples, samples])
    wanted = by_torch(lambda: distorted(x, *numbers, None))
    torch.testing.assert_close(distorted(x, *numbers, None), wanted, rtol=5e-6, atol=0.0)
    assert interpreted == ["_measure", "_distort"]


def test_examples_are_distorted_in_place(interpreted):
    x, numbers = noise(1, 2, 1100), (torch.tensor([0.1]), torch.tensor([1100]))
    found, scattered = distorted(x, *numbers, None), x.mT.contiguous().mT
    assert torch.equal(distorted(scattered, *numbers, scattered), found)
    assert distorted(x, *numbers, x) is x and torch.equal(x, found)
    assert interpreted == ["_measure", "_distort"] * 3


def test_a_sample_that_is_no_number_stays_so(interpreted):
    x = torch.tensor([[[0.5, torch.nan, -0.25, torch.inf]]])
    found = distorted(x, torch.tensor([1.0]), torch.tensor([4]), None)
    assert found.isnan().tolist() == [[[False, True, False, False]]] and interpreted == ["_measure", "_distort"]


def test_gains_change_before_within_and_after_a_row(interpreted):
    x = noise(4, 2, 1500)
    start, end = torch.tensor([-24.0, 6.0, 0.0, -3.0]), torch.tensor([6.0, -60.0, 0.0, 12.0])
    steps, begin = torch.tensor([2, 1000, 90_000, 1]), torch.tensor([-1, 700, -40_000, 1500])
    same(change_gain, x, start, end, steps, begin, None)
    wanted = by_torch(lambda: change_gain(x, start, end, steps, begin, None))
    assert change_gain(x, start, end, steps, begin, x) is x and (x - wanted).abs().max() < 1e-5
    assert {*interpreted} == {"_change_gain"}


@pytest.mark.parametrize("count", [1, 5, 4096, 9000])
def test_values_at_ranks_in_any_order(count, interpreted):
    x = noise(5, count)
    x[1] = x[1].round(decimals=1)  # many are equal
    x[2, : count // 2] = torch.inf
    x[3] = -x[3].abs()
    x[4] = 0.0
    for share in (0.0, 0.3, 0.99, 1.0):
        numbers = ranked(np.full(5, share), np.array([count, count, max(1, count - count // 2), count, count]))
        rank, fraction = torch.from_numpy(numbers["rank"]), torch.from_numpy(numbers["fraction"]).float()
        same(at_rank, x, rank, fraction, numbers["lowest"], numbers["highest"])
    assert {*interpreted} == {"_at_rank"}


@pytest.mark.parametrize("n_fft", [2, 3, 128, 5000, 40000])
def test_noise_gets_any_colour(n_fft, interpreted):
    key, slope = torch.tensor([0, 1, 2**52 - 1, 77]), torch.tensor([0.0, -2.0, 2.0, -0.3])
    for weighted in (torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0])):
        assert same(colour, key, slope, weighted, 16000, n_fft, tolerance=1e-5).dtype == torch.complex64
    assert {*interpreted} == {"_colour"}


@pytest.mark.parametrize("gain_db", [0.0, -30.0, 6.0])
@pytest.mark.parametrize("is_relative", [True, False])
def test_sounds_overlap_and_fade(is_relative, gain_db, interpreted):
    x, memory = noise(3, 1, 3000), noise(9000)
    memory[4000:5000] = 0.0
    row = torch.tensor([0, 0, 0, 2, 2, 2, 2])
    sounds = Sounds(
        row=row,
        first=torch.searchsorted(row, torch.arange(4)),
        begin=torch.tensor([0, 10, 2999, 100, 150, 700, 0]),
        count=torch.tensor([2500, 1200, 1, 800, 60, 1000, 0]),
        place=torch.tensor([0, 700, 3, 900, 55, 4000, 0]),
        played=torch.tensor([40, 0, 0, 0, 7, 0, 0]),
        left=torch.tensor([2499, 1400, 0, 799, 59, 999, 0]),
        fade_in=torch.tensor([100, 0, 1, 600, 30, 5, 0]),
        fade_out=torch.tensor([1100, 300, 2, 700, 60, 0, 0]),
        longest=2500,
    )
    level = torch.tensor([0.1, 1.0, 0.5, 2.0, 0.01, 0.3, 0.0])
    same(with_sounds, x, memory, sounds, level, is_relative, None, gain_db, tolerance=2e-6)
    assert interpreted == ["_find_gains", "_add"]
    same(with_sounds, x, memory, sounds, level, is_relative, 100, gain_db)
    assert len(interpreted) == 2 + (1 + is_relative)  # by operations, but for the levels


def test_seams_fade_with_equal_energy_or_gain(interpreted):
    x = noise(3, 2, 3000)
    begin = torch.tensor([[0, 100, 1200], [0, 2990, 2**40], [0, 0, 1500]])
    by = torch.tensor([[0, 700, 1300], [0, -50, 0], [0, 10, -2500]])
    for samples, same_sound in ((3000, [2, 0, 1]), (5000, [0, 1, 2]), (1100, [1, 1, 1])):
        same(crossfaded_segments, x, begin, by, torch.tensor(same_sound), samples, 60)
    assert {*interpreted} == {"_join"}


def test_splices_may_lie_in_each_others_fades(interpreted):
    x = noise(4, 2, 5000)
    start = torch.tensor([[100, 120, 90, 0], [4000, 3900, 10, 10], [0, 0, 0, 0], [700, 300, 4990, 2000]])
    half = torch.tensor([[300, 200, 1500, 10], [900, 1, 0, 40], [700, 600, 500, 1024], [0, 0, 5, 0]])
    same(splice, x, start, half, 1536)
    assert interpreted == ["_fade", "_read"]
    many = torch.full((4, MOST_SPLICES + 1), 7)
    same(splice, x, many, many, 512)
    assert len(interpreted) == 2  # more than that are spliced by operations


@pytest.mark.parametrize("bands", [1, 5, 16])
def test_images_of_rooms_reach_into_any_block(bands, interpreted):
    generator = torch.Generator().manual_seed(bands)
    offset = torch.rand(3, 3, 5, generator=generator) * 12.0  # metres: up to the third block
    reflected = torch.tensor([[1.0, 0.5, 0.25], [1.0, 0.7, 0.0], [1.0, 0.0, 0.0]])  # of orders of their own
    decay = -0.01 * torch.arange(bands, dtype=torch.float32)
    rooms = offset, reflected, torch.from_numpy(images(2)), decay, torch.from_numpy(_taps())
    # Float32 keeps a distance of 1,000 samples to 6e-5 of one: processors round its root differently, by one such step.
    found = same(add_echoes, *rooms, 46.647, 2200, tolerance=2e-4)
    assert interpreted == ["_add"] and found[..., 512:].any() and not found[..., 1100:].any()


def test_a_limiter_of_extreme_attacks_and_releases(interpreted):
    x = noise(4, 2, 1500) * torch.linspace(0, 2, 1500)
    log_attack, log_release = torch.tensor([[-1e-4, -0.7, -9.0, 0.0], [-1e-5, -3.0, -0.01, -1e-3]])
    length, delay = torch.tensor([1500, 1, 700, 1499]), torch.tensor([1, 5, 1100, 256])
    threshold = torch.tensor([0.1, 1e-36, 0.5, 10.0])
    numbers = threshold, log_attack, -log_attack.expm1(), log_release, delay
    same(limit, x, length, *numbers, 1280, tolerance=5e-6)
    assert interpreted == ["_limit"]


def test_energy_of_steps_is_that_of_a_filter_that_rings_into_them(interpreted):
    x = noise(2, 1, 2000)
    assert same(_energy_of_channels, x, 400, 4000, tolerance=1e-12).dtype == torch.float64
    assert interpreted == ["_add_up"]


@pytest.mark.parametrize("channels", [1, 2, 5, 7])
@pytest.mark.parametrize("steps", [4, 40, 300])
def test_gates_and_bins_of_loudness_are_the_same(steps, channels, interpreted):
    level_db = 12 * noise(6, channels, steps) - torch.tensor([10.0, 30.0, 55.0, 70.0, -60.0, 0.0])[:, None, None]
    energy = 400 * 10 ** (level_db.double() / 10)
    energy[5] = 0.0
    lufs = torch.tensor([-23.0, -31.0, 0.0, -13.0, -70.0, -20.0])
    for length in (torch.full((6,), 400 * steps), torch.tensor([0, 399, 1600, 1999, 400 * steps - 1, 7])):
        assert same(_gain_of_steps, energy, length, lufs, 400, tolerance=2e-7)[5] == 1.0
    assert {*interpreted} == {"_find_gain"}


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("samples", [0, 1, 511, 512, 5000, 70_000])
def test_loud_spans_are_the_same(samples, channels, interpreted):
    swell = torch.linspace(-1, 1, samples).abs().neg().exp() ** 12  # loudest in the middle
    x = noise(6, channels, samples) * torch.stack([swell, 1 - swell, swell, swell.flip(0), swell * 0, swell])[:, None]
    x[2, 0] = 0.0
    x[3, :, samples // 3 :] *= 1e-4
    x[4, :, -1:] = 1.0  # a click at the end of silence
    x[5] *= 1e-6
    whole, own = torch.full((6,), samples), torch.tensor([0, samples, samples // 2, samples - 1, samples, 1]).clamp(0)
    for top_db, length in ((0.0, whole), (10.0, own), (30.0, whole), (90.0, own)):
        same(lambda top_db, length: torch.stack(loud_span(x, length, top_db)), top_db, length, tolerance=0)
    assert {*interpreted} == {"_add_up", "_find_span"}


@pytest.mark.parametrize(("samples", "frame", "count"), [(3000, 256, 60), (50, 64, 3), (2000, 1440, 9)])
def test_frames_are_cut_and_added_up(samples, frame, count, interpreted):
    x, rate, length = noise(3, 2, samples), torch.tensor([0.7, 1.0, 1.93]), torch.tensor([samples, samples // 2, 1])
    for options in ({}, {"rate_R": rate}, {"rate_R": rate, "earlier": frame // 4}, {"length_R": length}):
        spectra = same(spectra_at, x, frame, count, **options)
    there = torch.arange(count) <= length[:, None] // (frame // 4)
    for flags in (None, there):
        same(added_up, spectra, samples, flags, tolerance=1e-4)  # an FFT's rounding, over the end of a window
    if frame == 256:
        same(masked_spectrum, x, length, noise(3, 129).abs(), frame, tolerance=1e-5)
    assert {*interpreted} == {"_cut", "_add_up"}


@pytest.mark.parametrize("channels", [1, 2])
def test_attacks_and_peaks_are_found_and_phases_turned(channels, interpreted):
    rate, frame = torch.tensor([0.6, 1.0, 1.7, 1.03]), 720
    x = noise(4, channels, 5000) * 0.01
    x[:, :, 1500:2000] += noise(4, channels, 500)
    x[2, :, 4000] = 3.0
    x[3] = 0.0
    count = 5000 // (frame // 4) + 3
    for found, wanted in zip(
        stretch._anchors(x, rate, count, frame), by_torch(lambda: stretch._anchors(x, rate, count, frame))
    ):
        assert torch.equal(found, wanted)
    assert by_torch(lambda: stretch._anchors(x, rate, count, frame)).near.any(1).tolist() == [True, True, True, False]
    for kept in (None, rate.clamp(max=1.0)):
        same(stretch.stretch, x, rate, 5000, frame, kept, tolerance=1e-5)
    assert {"_find_power", "_find_attacks", "_find_anchors", "_find_peaks", "_turn"} < {*interpreted}


@pytest.mark.parametrize("level", [3e-12, 1e-10, 3e-10])
def test_near_silence_stays_finite_where_roots_of_tiny_numbers_are_0(level, interpreted, monkeypatch):
    root, tiny = np.sqrt, np.finfo(np.float32).tiny
    monkeypatch.setattr(np, "sqrt", lambda x: root(np.where(x < tiny, 0, x)))  # as a GPU does, and so the interpreter
    same(stretch.stretch, noise(4, 1, 5000) * level, torch.tensor([0.6, 0.9, 1.7, 1.03]), 5000, 720, tolerance=1e-4)
    assert "_turn" in interpreted


@pytest.mark.parametrize("band_limit", [True, False])
@pytest.mark.parametrize("samples", [30, 9000])
def test_ratios_from_an_eighth_to_four(samples, band_limit, interpreted):
    ratios = [0.13, 0.9, 1.0, 4.0]
    x, length = noise(4, 2, samples), torch.tensor([samples, samples // 2, samples, 7])
    step = torch.from_numpy(fixed_ratio([1.0] * 4, ratios))
    same(resample, x, step, 4 * samples, length, reach_of(0.13), band_limit, tolerance=1e-5)
    assert interpreted == ["_cut", "_limit_band", "_interpolate"]


@pytest.mark.parametrize("steady", [True, False])
def test_rows_are_cut_into_blocks_for_filters(steady, interpreted):
    x = noise(3, 2, 5000)
    for n, tail in ((8192, 1000), (1024, 300), (1024, 512)):
        same(apply_response, x, lambda each: each.mul_(0.5), n, tail, steady=steady)
    assert {*interpreted} == {"_cut"}


@pytest.mark.parametrize("rows", [[2, 0], [0, 1, 2, 3]])
def test_chosen_rows_are_filtered_in_blocks_into_a_batch(rows, interpreted):
    x, chosen = noise(4, 2, 5000), torch.tensor(rows)
    for n, tail in ((8192, 1000), (1024, 300)):

        def filtered(into: torch.Tensor, n: int = n, tail: int = tail) -> torch.Tensor:
            return apply_response(into, lambda each: each.mul_(0.5), n, tail, None, True, chosen, into)

        same(lambda x: filtered(x.clone()), x)
        same(lambda x: filtered(x.mT.contiguous().mT), x)  # which kernels cannot write to
    assert interpreted == ["_cut", "_join", "_cut"] * 2


@pytest.mark.parametrize("responses", [1, 2])
def test_spectra_are_multiplied_by_the_response_of_their_row(responses, interpreted):
    spectrum, response = (torch.fft.rfft(noise(*shape, 3000)) for shape in ((5, 2, 3), (3, responses)))
    same(lambda response: fft.multiply_by(spectrum.clone(), response, torch.tensor([2, 0, 0, 1, 2])), response)
    assert interpreted == ["_multiply"]


def test_the_peak_of_rows_with_something_between_them(interpreted):
    x = noise(4, 1, 3000)
    x[:, :, 2000:] = 9.0
    same(lambda x: peak(x[..., :2000]), x)
    x[1, 0, 700] = torch.nan
    assert peak(x).isnan().flatten().tolist() == [False, True, False, False]
    assert interpreted == ["_peak"] * 2


@pytest.mark.parametrize("channels", [1, 2])
def test_noise_is_added_at_its_level(channels, interpreted):
    x, level, own = noise(3, channels, 1500), torch.tensor([0.1, 3.0, 1.0]), torch.tensor([2.0, 0.5, 1e-12])
    found = same(lambda x: added_at(x, noise(3, channels, 1500), level, own), x)
    assert torch.equal(found[2], x[2]) and interpreted == ["_add_at"]


@pytest.mark.parametrize("in_place", [True, False])
def test_peaks_are_brought_to_a_level(in_place, interpreted):
    x, peaks = noise(3, 2, 1500), torch.tensor([2.0, 0.5, 0.0])[:, None, None]
    x[2] = 0.0

    def at_half(x: torch.Tensor) -> torch.Tensor:
        return scaled(x, peaks, 0.5, x if in_place else None)

    same(lambda x: at_half(x.clone()), x)
    same(lambda x: at_half(x.clone()[..., :1100]), x)
    assert interpreted == ["_divide"] * 2


@pytest.mark.parametrize("samples", [1, 1024, 2500])
@pytest.mark.parametrize("only_too_loud", [True, False])
def test_examples_are_divided_by_their_peak_to_the_same_bits(only_too_loud, samples, interpreted):
    x = noise(5, 2, samples) * torch.tensor([0.1, 1.0, 9.0, 0.0, 0.1])[:, None, None]
    x[4, 1, -1] = -1.0  # as loud as what is too loud
    found = same(normalize, x, only_too_loud, None, tolerance=0)
    assert not only_too_loud or torch.equal(found[::2], torch.stack([x[0], x[2] / x[2].abs().max(), x[4]]))
    scattered = x.mT.contiguous().mT
    assert torch.equal(normalize(scattered, only_too_loud, scattered), found)
    assert normalize(x, only_too_loud, x) is x and torch.equal(x, found)
    assert interpreted == ["_peak", "_divide"] * 3


def test_cascades_that_are_cut(interpreted):
    spectrum, numbers = torch.fft.rfft(noise(3, 2, 2, 600)), noise(3, 2, NUMBERS).abs() + 0.5
    numbers[:, 0, OWN_NUMBERS:] = 0.0  # the first section is not cut
    for cuts, start in (([0, 0], None), ([0, 4096], noise(3, 2))):

        def multiplied(start: torch.Tensor | None, cuts: list[int] = cuts) -> torch.Tensor:
            return cascade._multiply(spectrum.clone(), numbers, cuts, 600, torch.tensor([0.5, 0.0, -9.0]), start)

        same(multiplied, start, tolerance=1e-5)
    assert interpreted == ["_multiply"] * 2


# FFTs by few plans


@pytest.fixture
def planned(monkeypatch):
    """Let FFTs on the CPU be planned as on a GPU."""
    monkeypatch.setattr(fft, "PLANNED", {"cpu"})


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 64, 65, 130, 257, 385])
def test_rows_are_filled_up_to_one_of_few_counts(rows, planned):
    x, counts = noise(rows, 1, 100), (128, 256, 384, 512)
    least = min(count for count in counts if count >= rows)
    assert planned_rows(rows, 2**15, x) == planned_rows(rows, 2**14 + 1, x + 0j) == least
    for n in (80, 100, 128):
        assert torch.allclose(rfft(x, n), torch.fft.rfft(x, n), atol=1e-5)
    spectrum = torch.fft.rfft(x)
    for n in (100, 160):
        assert torch.allclose(irfft(spectrum, n), torch.fft.irfft(spectrum, n), atol=1e-6)
        assert torch.allclose(irfft(spectrum, n, scaled=False) / n, torch.fft.irfft(spectrum, n), atol=1e-6)


def test_numbers_with_room_are_not_copied(planned):
    x = with_room(torch.empty(0), 3, 5, 64)
    assert x.shape == (3, 5, 64) and fft._planned(x, 64).data_ptr() == x.data_ptr()
    assert len(fft._planned(x, 64)) == 2**22 // 64
    assert fft._planned(x[:, :, :60], 64).data_ptr() != x.data_ptr()
    part = noise(20, 64)[2:5]
    assert len(fft._planned(part, 64)) == 2**22 // 64 and torch.equal(fft._planned(part, 64)[:3], part)


def test_a_gradient_flows_through_planned_ffts(planned):
    x = noise(3, 50).requires_grad_()
    irfft(rfft(x) * 2, 50).sum().backward()
    assert torch.allclose(x.grad, torch.full((3, 50), 2.0), atol=1e-5)


def test_filters_have_blocks_of_few_lengths(planned):
    lengths = {
        fft.block_length(samples, tail, device=torch.device("cpu"))
        for samples in range(2000, 160000, 777)
        for tail in (1, 256, 512, 1024, 4096, 16384)
    }
    wholes = {5 << 11, 5 << 12, 5 << 13, 5 << 14, 5 << 15, 5 << 16}  # of a row that is one block
    assert lengths <= {2**13, 2**15, 2**18} | wholes and len(lengths) <= 8
