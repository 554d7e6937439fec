"""Every op of the registry tells truly where it puts the time of a clip: clicks and ramps sent through both builds."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from audioaug import Chain, ops
from audioaug.core import REGISTRY, Feature, Op, Timeline, arguments
from audioaug.errors import DataError
from audioaug.verify import material
from tests.contract.ops import clicks
from tests.contract.ops.clicks import RATE, contradictions, origins_of, through

NEEDED: dict[str, dict[str, Any]] = {
    "SpliceOut": {"max_width": 20},  # longer crossfades leave two faint copies of a click
    "Mix": {"mix_target": "union"},  # with "original" the other's clicks are heard, but its labels are not wanted
}


def certain(op: Op, **changes: Any) -> Op:
    return dataclasses.replace(op, p=1.0, **NEEDED.get(op.name, {}), **changes)


AUDIO_OPS = [kind for _, kind in sorted(REGISTRY.items()) if not issubclass(kind, Feature)]
VARIANTS = [certain(op) for kind in AUDIO_OPS for op in material.variants(kind)]
MOVING = [op for op in VARIANTS if op.capabilities.changes_timing and not op.children]


def told(op: Op) -> str:
    default = next(material.variants(type(op)))
    changed = [f"{k}={v}" for k, v in arguments(op).items() if k != "p" and v != getattr(default, k)]
    return " ".join([op.name, *changed])


def tolerance_of(op: Op) -> float:
    return clicks.SMEARED if getattr(op, "method", "") == "librosa_phase_vocoder" else clicks.TOLERANCE


def every_contradiction(op: Op) -> list[str]:
    """Return what speaks against an op's timeline, in the CPU build and in the device build."""
    chain = Chain([op], RATE)
    cuts = sorted({chain.device_from, chain.worker_until})
    return [each for cut in cuts for each in contradictions(chain, cut, seed=1, tolerance=tolerance_of(op))]


@pytest.mark.parametrize("op", VARIANTS, ids=told)
def test_clicks_appear_where_the_timeline_maps_them(op: Op) -> None:
    assert not every_contradiction(op)


KINDS = sorted({type(op) for op in MOVING}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_wrong_identity_timeline_is_detected(kind: type[Op], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "timeline", lambda self, params, length, sample_rate: Timeline.identity(length))
    seen = []
    for op in (op for op in MOVING if type(op) is kind):
        try:
            seen += every_contradiction(op)
        except DataError as error:  # another length than expected
            seen.append(str(error))
    assert seen


def off_by_some(self: Any, params: Any, length: int, sample_rate: int) -> Timeline:
    moved = type(self)._right_timeline(self, params, length, sample_rate)
    return Timeline(moved.pieces + [0, 0, 400, 400], moved.length_in, moved.length_out)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_timeline_that_is_off_by_25_milliseconds_is_seen(kind: type[Op], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "_right_timeline", kind.timeline, raising=False)
    monkeypatch.setattr(kind, "timeline", off_by_some)
    op = next(op for op in MOVING if type(op) is kind)
    assert every_contradiction(op)


def test_a_shift_to_the_wrong_side_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ops.Shift.timeline

    def wrong(self: Any, params: Any, length: int, sample_rate: int) -> Timeline:
        return right(self, {**params, "offset": -params["offset"] % length}, length, sample_rate)

    monkeypatch.setattr(ops.Shift, "timeline", wrong)
    assert every_contradiction(ops.Shift(p=1.0))


# Ramps: each sample says where it comes from


WITHOUT_FADES = {"Shift": {"fade_duration": 0.0}, "RepeatPart": {"crossfade_duration": 0.0}}
LENGTHS = [16000, 9001, 12345, 5003, 16000]
RAMPS = [((1 + np.arange(samples)) / samples).astype(np.float32)[None] for samples in LENGTHS]
EXACT = [certain(op, **WITHOUT_FADES.get(op.name, {})) for op in MOVING if op.contract.kind == "exact"]
EXACT += [
    op
    for mode in ("silence", "wrap", "reflect")
    for where in ("start", "end")
    for op in (
        ops.Padding(mode=mode, pad_section=where, p=1.0),
        ops.AdjustDuration(duration_seconds=0.8, padding_mode=mode, padding_position=where, p=1.0),
        ops.AdjustDuration(duration_seconds=2.7, padding_mode=mode, padding_position=where, p=1.0),
    )
]
EXACT = [op for op in EXACT if op.name not in ("ApplyImpulseResponse", "RoomSimulator", "SpliceOut")]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("op", EXACT, ids=told)
def test_samples_come_from_where_the_timeline_maps_them(op: Op, seed: int) -> None:
    chain = Chain([op], RATE)
    draws = chain.draw(np.arange(len(RAMPS)), seed=seed)
    for cut in (0, 1):
        results = through(chain, RAMPS, draws, cut)
        for (origin,), y_1T, samples in zip(origins_of(chain, RAMPS, draws), results, LENGTHS, strict=True):
            assert y_1T.shape[-1] == origin.timeline.length_out
            source_T = origin.timeline.source(np.arange(y_1T.shape[-1]) + 0.5) - 0.5
            expected_T = np.nan_to_num((source_T + 1) / samples)
            assert np.abs(y_1T[0] - expected_T).max() < 0.01 / samples + 1e-6


def test_the_ramps_are_for_the_ops_that_they_are_meant_for() -> None:
    assert {op.name for op in EXACT} == {"AdjustDuration", "Padding", "RepeatPart", "Reverse", "Shift", "Trim"}
    assert len(EXACT) > 15


# Chains


NEUTRAL = [ops.Gain(), ops.LowPassFilter(min_cutoff_freq=2000), ops.PolarityInversion(), ops.HighShelfFilter()]
ROOMS = ("ApplyImpulseResponse", "RoomSimulator")
"""Their echoes go anywhere in a chain that turns and repeats."""


def random_chain(rng: random.Random, depth: int = 2) -> list[Op]:
    steady = [op for op in MOVING if op.name not in ROOMS and tolerance_of(op) == clicks.TOLERANCE]
    chosen = [dataclasses.replace(rng.choice([*steady, *NEUTRAL]), p=0.7) for _ in range(rng.randint(2, 4))]
    for place in range(len(chosen)):
        if depth and rng.random() < 0.35:
            children = random_chain(rng, depth - 1)
            chosen[place] = rng.choice(
                [ops.Compose(children, shuffle=True), ops.OneOf(children), ops.SomeOf((1, None), children)]
            )
    return chosen


@pytest.mark.parametrize("seed", range(40))
def test_clicks_go_through_random_chains_as_their_timelines_say(seed: int) -> None:
    rng = random.Random(seed)
    chain = Chain(random_chain(rng), RATE)
    first = max(chain.device_from, chain.followed_from)
    cut = rng.randint(first, chain.worker_until) if first <= chain.worker_until else chain.worker_until
    found = list(contradictions(chain, cut, count=4, seed=seed, tolerance=2 * clicks.TOLERANCE))
    assert not found, chain.ops


def test_the_timelines_of_a_chain_do_not_depend_on_where_it_is_cut() -> None:
    chain = Chain([ops.Trim(p=0.5), *random_chain(random.Random(5)), ops.Shift(p=1.0)], RATE)
    both, draws = clicks.clicks(4, 3), chain.draw(np.arange(4), seed=2)
    assert any(not each[0].timeline.still for each in origins_of(chain, both.clips[0], draws))
    lengths = [
        [y_CT.shape[-1] for y_CT in through(chain, both.clips[0], draws, cut)]
        for cut in range(chain.followed_from, len(chain) + 1)
    ]
    expected = [each[0].timeline.length_out for each in origins_of(chain, both.clips[0], draws)]
    assert all(each == expected for each in lengths)
