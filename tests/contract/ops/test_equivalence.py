"""Every op, every container and random chains of them do on the device what audiomentations does, draw for draw."""

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import soundfile
import torch

from audioaug import build_cpu, build_device, ops
from audioaug.audio.files import read_audio
from audioaug.core import REGISTRY, Chain, Contract, Draws, Node, Op, arguments
from audioaug.engine import WorkerChain
from audioaug.errors import PlanError
from audioaug.verify import material, perceptual
from audioaug.verify.contracts import check, worst
from audioaug.verify.noise import Clips
from audioaug.verify.replay import Replayed, cases, judge, on_cpu, on_device, padded, replay
from tests.contract.ops.random_chains import LAST, LEAVES, random_chain

RATE = 16000
OPS = sorted(REGISTRY)
EXACT = [name for name in OPS if REGISTRY[name].contract.kind == "exact"]
STEREO = [name for name in OPS if next(material.variants(REGISTRY[name])).capabilities.multichannel]
SOUNDS = (0, 1, 2, 3, 6, 7)  # of material.signals: without clicks and without the constant


def assert_kept(contract: Contract, replayed: Replayed) -> None:
    verdict = check(contract, *replayed)
    assert verdict.status == "passed", verdict.reason


@pytest.mark.parametrize("ragged", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize(("name", "channels"), [*((name, 1) for name in OPS), *((name, 2) for name in STEREO)])
def test_every_op_keeps_its_contract(name: str, channels: int, ragged: bool) -> None:
    kind = REGISTRY[name]
    if kind.contract.kind == "cpu_only":
        with pytest.raises(PlanError, match=kind.contract.reason):
            build_device(Chain([next(material.variants(kind))], RATE))
        return
    chosen = [case for case in cases(kind, (RATE,), repeats=1) if (case.channels, case.ragged) == (channels, ragged)]
    verdict = worst(judge(case, "batched", "cpu") for case in chosen)
    assert verdict.status == "passed", verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OPS if REGISTRY[name].contract.kind != "cpu_only"])
def test_a_minute_at_48_khz(name: str) -> None:
    """The reference adds up squares in float32: in a minute its levels are off by 4e-5, which is allowed here."""
    kind, rate = REGISTRY[name], 48000
    lasting = ((material.signals(rate)[0], 60), (material.signals(rate)[7], 41))
    clips = [np.tile(clip, -(-seconds * rate // clip.shape[1]))[:, : seconds * rate] for clip, seconds in lasting]
    op = dataclasses.replace(next(material.variants(kind, rate)), p=1.0)
    replayed = replay(op, clips, rate, seed=1)
    if op.contract.kind == "perceptual":  # whose typical timing is a matter of more than two clips
        for pair in zip(replayed.reference, replayed.built, strict=True):
            assert all(
                each.error <= each.limit for each in perceptual.judge_clip("clip", *pair, op.contract.tolerance, rate)
            )
        return
    loosest = max(op.contract.tolerance, 1e-4) if op.contract.kind == "exact" else op.contract.tolerance
    assert_kept(dataclasses.replace(op.contract, tolerance=loosest), replayed)


SPECIAL: list[Op] = [
    ops.Clip(a_min=-0.01, a_max=0.02),
    ops.Gain(min_gain_db=-6.0, max_gain_db=-6.0),
    ops.Shift(fade_duration=0.0),
    ops.Shift(fade_duration=0.0, rollover=False),
    ops.Shift(fade_duration=0.3),
    ops.Shift(fade_duration=0.00025, rollover=False),
    ops.Shift(min_shift=1, max_shift=3, shift_unit="samples"),
    ops.Shift(min_shift=1.0, max_shift=1.0, rollover=False),
    ops.Shift(min_shift=-3.0, max_shift=3.0, shift_unit="seconds", rollover=False),
    ops.Shift(min_shift=0, max_shift=0, shift_unit="samples"),
    ops.TimeMask(fade_duration=0.0),
    ops.TimeMask(max_band_part=1.0, fade_duration=0.3),
    ops.TimeMask(min_band_part=1.0, max_band_part=1.0),
    ops.TimeMask(min_band_part=0.0, max_band_part=0.001),
    ops.TanhDistortion(min_distortion=0.0, max_distortion=0.0),
    ops.TanhDistortion(min_distortion=1.0, max_distortion=1.0),
    ops.BitCrush(min_bit_depth=1, max_bit_depth=2),
    ops.BitCrush(min_bit_depth=20, max_bit_depth=32),
    ops.ClippingDistortion(max_percentile_threshold=1),
    ops.ClippingDistortion(min_percentile_threshold=99, max_percentile_threshold=100),
    ops.GainTransition(min_duration=1, max_duration=2, duration_unit="samples"),
    ops.GainTransition(min_duration=1e-6, max_duration=0.01, duration_unit="fraction"),
    ops.GainTransition(min_gain_db=-120.0, max_gain_db=60.0, min_duration=30.0, max_duration=40.0),
    ops.Aliasing(min_sample_rate=2, max_sample_rate=20),
    ops.Aliasing(min_sample_rate=16000, max_sample_rate=16000),
    ops.Aliasing(min_sample_rate=90000, max_sample_rate=96000),
    ops.Limiter(min_threshold_db=-60.0, threshold_mode="absolute"),
    ops.Limiter(min_attack=1e-6, max_attack=1e-5, min_release=1e-6, max_release=1e-4),
    ops.Limiter(min_threshold_db=0.0, max_threshold_db=6.0, max_attack=2.0),
    ops.LoudnessNormalization(min_lufs=-90.0, max_lufs=-60.0),
    ops.LoudnessNormalization(min_lufs=0.0, max_lufs=9.0),
    ops.LowPassFilter(min_cutoff_freq=20.0, max_cutoff_freq=60.0, max_rolloff=48),
    ops.LowPassFilter(min_cutoff_freq=7900.0, max_cutoff_freq=9000.0, min_rolloff=6, max_rolloff=48),
    ops.HighPassFilter(min_cutoff_freq=1.0, max_cutoff_freq=5.0),
    ops.HighPassFilter(min_cutoff_freq=7900.0, max_cutoff_freq=9000.0, max_rolloff=48),
    ops.BandPassFilter(min_bandwidth_fraction=0.05, max_bandwidth_fraction=0.1, min_rolloff=6),
    ops.BandStopFilter(min_bandwidth_fraction=0.05, max_bandwidth_fraction=0.1, min_rolloff=6),
    ops.BandStopFilter(min_center_freq=4500.0, max_center_freq=7900.0, zero_phase=True),
    ops.LowShelfFilter(min_center_freq=1.0, max_center_freq=20.0, min_q=0.01, max_q=0.02),
    ops.LowShelfFilter(min_center_freq=7999.0, max_center_freq=9000.0, max_q=1.0),
    ops.HighShelfFilter(min_center_freq=7999.0, max_center_freq=9000.0, max_q=1.0),
    ops.HighShelfFilter(min_center_freq=5.0, max_center_freq=20.0, min_gain_db=-40.0, max_gain_db=40.0),
    ops.PeakingFilter(min_center_freq=5.0, max_center_freq=20.0, min_q=20.0, max_q=100.0),
    ops.PeakingFilter(min_center_freq=7999.0, max_center_freq=9000.0),
    ops.SevenBandParametricEQ(min_gain_db=-30.0, max_gain_db=30.0),
    ops.AdjustDuration(duration_seconds=0.30005),  # 4800.8 samples
    ops.AirAbsorption(min_distance=2500.0, max_distance=2500.0),
    ops.Resample(min_sample_rate=16000, max_sample_rate=16000),
    ops.Resample(min_sample_rate=500, max_sample_rate=3000),
    ops.Resample(min_sample_rate=64001, max_sample_rate=68000),
    ops.Speed(min_rate=1.0, max_rate=1.0),
    ops.Speed(min_rate=0.1, max_rate=0.3),
    ops.Speed(min_rate=2.0, max_rate=10.0),
    ops.Speed(rates=(0.9, 1.0, 1.1)),
    ops.TimeStretch(min_rate=0.7, max_rate=0.7),
    ops.TimeStretch(min_rate=1.4, max_rate=1.4, leave_length_unchanged=False),
    ops.TimeStretch(min_rate=1.0, max_rate=1.0),
    ops.TimeStretch(min_rate=0.5, max_rate=4.0, method="librosa_phase_vocoder"),
    ops.PitchShift(min_semitones=5.0, max_semitones=5.0),
    ops.PitchShift(min_semitones=-5.0, max_semitones=-5.0),
    ops.PitchShift(min_semitones=0.0, max_semitones=0.0),
    ops.PitchShift(min_semitones=-12.0, max_semitones=12.0, method="librosa_phase_vocoder"),
    ops.AirAbsorption(min_temperature=20.0, min_humidity=50.0, max_humidity=51.0, min_distance=0.1),
    ops.RoomSimulator(use_ray_tracing=False, max_order=0, min_absorption_value=1.0, max_absorption_value=1.0),
    ops.RoomSimulator(use_ray_tracing=False, min_mic_distance=3.0, max_mic_distance=9.0, max_order=4),
    ops.RoomSimulator(ray_tracing_options={"n_rays": 1, "energy_thres": 0.1}),
    ops.SpliceOut(num_time_intervals=1, max_width=1),
    ops.SpliceOut(num_time_intervals=30, max_width=3000),
    ops.Mix(min_snr_in_db=-60.0, max_snr_in_db=60.0),
]


@pytest.mark.parametrize("op", SPECIAL, ids=lambda op: str(op.to_dict()).replace(" ", ""))
def test_rare_arguments_keep_the_contract(op: Op) -> None:
    chain = Chain([type(op)(**{**arguments(op), "p": 1.0})], RATE)
    assert_kept(op.contract, replay(chain, material.signals(RATE, 2), RATE))


@pytest.mark.parametrize("samples", [1, 2, 3, 50])
@pytest.mark.parametrize("name", [name for name in OPS if REGISTRY[name].contract.kind == "exact"])
def test_the_shortest_clips_keep_the_contract(name: str, samples: int) -> None:
    kind = REGISTRY[name]
    op = kind(**material.demo_arguments(kind), p=1.0)
    rng = np.random.default_rng(samples)
    for lengths in ((samples, samples), (samples, 2 * samples)):
        clips = [rng.normal(0.0, 0.1, (1, length)).astype(np.float32) for length in lengths]
        assert_kept(op.contract, replay(op, clips, RATE))


@pytest.mark.parametrize("kind", [ops.AddColorNoise, ops.AddGaussianNoise, ops.AddGaussianSNR])
def test_noise_depends_on_its_draws_only_not_on_the_batch(kind: Any) -> None:
    """The same example, alone and in a batch that is padded to three times its length."""
    chain, (clip, *_) = Chain([kind(p=1.0)], RATE), material.signals(RATE, 2)
    longer = np.tile(clip, 3)
    alone = replay(chain, [clip], RATE).built[0]
    together = replay(chain, [clip, longer], RATE).built[0]
    np.testing.assert_allclose(together, alone, atol=1e-6)


class TestBanks:
    """Recordings of all kinds: shorter than the clip, stereo, at another sample rate."""

    def test_noise_shorter_than_the_clip_is_repeated(self, demo: Path) -> None:
        op = ops.AddBackgroundNoise(sounds_path=demo / "rooms", p=1.0)
        assert_kept(op.contract, replay(op, material.signals(RATE), RATE))

    def test_noise_at_another_rate_differs_only_at_the_edges_of_the_excerpt(self, demo: Path) -> None:
        for rate in (8000, 44100):
            op = ops.AddBackgroundNoise(sounds_path=demo / "noise", p=1.0)
            for seed in range(2):
                for dry, reference, built in zip(*replay(op, material.signals(rate), rate, seed=seed)):
                    noise, inside = np.abs(reference - dry).max(), slice(rate // 100, -rate // 100)
                    assert np.abs(reference - built)[:, inside].max() <= 5e-3 * noise

    @pytest.fixture
    def stereo_rooms(self, demo: Path, tmp_path: Path) -> Iterator[str]:
        for number, name in enumerate(("car", "office")):
            x_T = read_audio(str(demo / "rooms" / f"{name}.flac"), RATE)[0]
            x_TC = np.stack([x_T, 0.5 * np.roll(x_T, 40)][: 1 + number], axis=1)
            soundfile.write(tmp_path / f"{name}.wav", x_TC, RATE, subtype="FLOAT")
        return str(tmp_path)

    @pytest.mark.parametrize("channels", [1, 2, 3])
    def test_stereo_responses(self, stereo_rooms: str, channels: int) -> None:
        op = ops.ApplyImpulseResponse(ir_path=stereo_rooms, p=1.0)
        assert_kept(op.contract, replay(op, material.signals(RATE, channels), RATE))


INNER = (ops.PolarityInversion(p=1.0), ops.Clip(a_min=-0.1, a_max=0.05, p=1.0), ops.LowPassFilter(p=1.0))
CONTAINERS: dict[str, Op] = {
    "Compose": ops.Compose(INNER, p=0.8),
    "Compose, shuffled": ops.Compose(INNER, shuffle=True),
    "OneOf": ops.OneOf(INNER, p=0.8),
    "OneOf, weighted": ops.OneOf(INNER, weights=[1, 5, 2]),
    "SomeOf 2": ops.SomeOf(2, INNER),
    "SomeOf 0 to 2": ops.SomeOf((0, 2), INNER, p=0.9),
    "nested": ops.OneOf([ops.SomeOf((1, None), INNER), ops.Compose(INNER[::-1], shuffle=True, p=0.5)]),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_do_the_same_in_both_builds(name: str) -> None:
    chain = Chain([ops.Gain(), CONTAINERS[name], ops.Reverse()], RATE)
    for seed in range(3):
        assert_kept(Contract.exact(1e-5), replay(chain, material.signals(RATE, 2), RATE, cut=seed, seed=seed))


@pytest.mark.parametrize("name", [name for name in CONTAINERS if name != "nested"])  # its parts are tested one by one
def test_containers_run_their_children_as_audiomentations_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU build walks containers itself; here audiomentations' own containers get the same picks."""
    op = CONTAINERS[name]
    inner = (ops.PolarityInversion(p=1.0), ops.Clip(a_min=-0.1, a_max=0.05, p=1.0), ops.Normalize(p=1.0))
    op = type(op)(**{**arguments(op), "transforms": inner})
    chain, reference, x_T = Chain([op], RATE), op.reference(), material.signals(RATE)[2][0]
    seen = set[tuple[int, ...]]()
    for draws in chain.draw(np.arange(30)):
        node = chain.nodes[0]
        order = node.order(draws, np.zeros(1, np.int64))[0]
        picks = [int(pick) for pick in order if pick >= 0]
        apply = bool(draws["0:apply"][0])
        monkeypatch.setattr(random, "random", lambda apply=apply: 0.0 if apply else 0.999999)
        monkeypatch.setattr(
            random, "shuffle", lambda items, picks=picks: items.__setitem__(slice(None), [items[k] for k in picks])
        )
        reference.freeze_parameters(apply_to_children=False)
        reference.should_apply, reference.transform_index, reference.transform_indexes = (
            apply,
            picks[:1] and picks[0],
            picks,
        )
        expected = reference(x_T, RATE)
        monkeypatch.undo()
        np.testing.assert_array_equal(build_cpu(chain)(x_T, RATE, draws=draws), expected)
        seen.add(tuple(picks))
    assert len(seen) > 1 or name == "Compose"


LONG = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 500)]


@pytest.mark.parametrize("seed", [*range(30), *LONG])
def test_random_chains_do_the_same_wherever_they_are_cut(seed: int) -> None:
    """By the contract of the last op, if that is not exact, else by the loosest exact one of any op (that of rooms only
    where there is one). What a filter leaves of a constant is rounding, which the next op may blow up: so no constants,
    and no clicks in silence, here."""
    channels = 1 + seed % 2
    chain = random_chain(seed, channels)
    signals = material.signals(RATE, channels)
    clips: Clips = [signals[place] for place in SOUNDS]
    draws = chain.draw(np.arange(len(clips)), epoch=1, seed=seed)
    reference, last = on_cpu(chain, clips, RATE, draws), chain.ops[-1].contract
    names = {*EXACT} - {"RoomSimulator"} | {node.op.name for top in chain.nodes for node in top.walk()} & {*EXACT}
    loosest = Contract.exact(max(REGISTRY[name].contract.tolerance for name in names))
    for cut in (cut for cut in range(len(chain) + 1) if not chain.why_not_cut(cut)):
        begun = on_cpu(chain, clips, RATE, draws, cut)
        built = on_device(chain, begun, RATE, draws, cut)
        if last.kind == "exact":
            assert_kept_but_for_rounding(loosest, Replayed(clips, reference, built), chain, clips, draws)
        else:
            assert_last_op_kept(chain, clips, draws, reference, built, min(cut, len(chain) - 1))


def assert_kept_but_for_rounding(
    contract: Contract, replayed: Replayed, chain: Chain, clips: Clips, draws: Draws
) -> None:
    """Check each clip. Where one fails, allow as much more as the reference itself changes when the result of every op
    is off by one float32 step of its peak: one op may leave a pause of nothing but rounding, the next normalize it.
    """
    if check(contract, *replayed).status == "passed":
        return
    again = rounded_reference(chain, clips, draws)
    for row, (dry, reference, built, other) in enumerate(zip(*replayed, again, strict=True)):
        assert built.shape == reference.shape == other.shape
        verdict = check(contract, [dry], [reference], [built])
        allowed = 1.0 + check(contract, [dry], [reference], [other]).strain
        assert verdict.strain <= allowed, (
            f"clip {row}: {verdict.reason}; {verdict.strain:.2g} limits, not {allowed:.2g}"
        )


def rounded_reference(chain: Chain, clips: Clips, draws: Draws) -> Clips:
    """Run the reference with white noise of up to one float32 step of the peak after each op but the last."""
    replayed, rng, step = WorkerChain._replay, np.random.default_rng(0), np.finfo(np.float32).eps

    def rounded(self: WorkerChain, node: Node, draws: Draws, samples: Any, sample_rate: int) -> Any:
        result = replayed(self, node, draws, samples, sample_rate)
        if node is self.chain.nodes[-1]:
            return result
        peak = max(np.abs(samples).max(initial=0.0), np.abs(result).max(initial=0.0))
        return (result + step * peak * rng.uniform(-1, 1, result.shape)).astype(np.float32)

    with mock.patch.object(WorkerChain, "_replay", rounded):
        return on_cpu(chain, clips, RATE, draws)


def assert_last_op_kept(chain: Chain, clips: Clips, draws: Draws, reference: Clips, built: Clips, cut: int) -> None:
    """Compare what the last op has done: to what came to it in the reference, and to what came to it in the build.

    Where the ops before have left a ten-thousandth of full scale or less, rounding is too much of it to compare. Where
    they have left most of it at an edge, stretchers differ: their windows begin and end there.
    """
    head, contract = Chain(chain.ops[:-1], RATE), chain.ops[-1].contract
    dry = on_cpu(head, clips, RATE, draws)
    dry_built = on_device(head, on_cpu(head, clips, RATE, draws, cut), RATE, draws, cut)
    if contract.kind == "statistical":  # noise is what was added, not what rounding has left in silence before
        built = [after - before + x_CT for after, before, x_CT in zip(built, dry_built, dry, strict=True)]
    sounding = [row for row, x_CT in enumerate(dry) if np.abs(x_CT).max(initial=0.0) > 1e-4]
    if contract.kind == "perceptual":
        sounding = [row for row in sounding if share_at_an_edge(dry[row]) < 0.25]
    replayed = Replayed(*([part[row] for row in sounding] for part in (dry, reference, built)))
    if contract.kind == "log_spectrum":  # which shows a difference of a ten-thousandth of the peak in quiet bands
        contract = Contract.log_spectrum(db=0.2, down_to_db=40.0)
    if contract.kind in ("spectral", "log_spectrum"):
        assert_kept_but_for_rounding(contract, replayed, chain, [clips[row] for row in sounding], draws[sounding])
    else:
        assert_kept(contract, replayed)


def share_at_an_edge(x_CT: Any) -> float:
    """Return how much of the energy is within 25 ms of the beginning or the end, whichever has more."""
    power_T, edge = np.square(x_CT, dtype=np.float64).sum(0), RATE // 40
    return float(max(power_T[:edge].sum(), power_T[-edge:].sum()) / power_T.sum())


@pytest.mark.parametrize(("seed", "row"), [(55, 0), (55, 1), (320, 2), (320, 4), (320, 5)])
def test_rounding_excuses_no_other_clip_of_the_chain(seed: int, row: int) -> None:
    """Rounding grows where clips are cropped to pauses: clips 4 and 5 of the one chain, 0 and 1 of the other."""
    channels = 1 + seed % 2
    chain, signals = random_chain(seed, channels), material.signals(RATE, channels)
    clips: Clips = [signals[place] for place in SOUNDS]
    draws = chain.draw(np.arange(len(clips)), epoch=1, seed=seed)
    reference = on_cpu(chain, clips, RATE, draws)
    faulty = [1.001 * x_CT if place == row else x_CT for place, x_CT in enumerate(reference)]
    with pytest.raises(AssertionError, match=f"clip {row}"):
        assert_kept_but_for_rounding(Contract.exact(1e-4), Replayed(reference, reference, faulty), chain, clips, draws)


def test_random_chains_reach_every_op_that_they_can() -> None:
    chains = [random_chain(seed, 1 + seed % 2) for seed in range(200)]
    found = {node.op.name for chain in chains for top in chain.nodes for node in top.walk()}
    assert found == {kind.__name__ for kind in (*LEAVES, *LAST)} | {"Compose", "OneOf", "SomeOf", "Codec"}


def test_a_batch_of_one_equals_the_batch_of_many() -> None:
    chain, clips = random_chain(3, 1), material.equal_lengths(material.signals(RATE), 9000)
    draws = chain.draw(np.arange(len(clips)))
    module = build_device(chain)
    x_BCT = torch.from_numpy(padded(clips))
    together, lengths = module(x_BCT, draws=draws, return_lengths=True)
    for row, (draw, length) in enumerate(zip(draws, lengths.tolist())):
        alone, (its_length,) = module(x_BCT[row : row + 1], draws=draw, return_lengths=True)
        assert its_length == length
        torch.testing.assert_close(alone[0, :, :length], together[row, :, :length], rtol=0, atol=1e-4)
