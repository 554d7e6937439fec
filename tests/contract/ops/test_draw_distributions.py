"""What we draw is distributed as what audiomentations draws: thousands of each, compared parameter by parameter.

Our draws, mapped by ``resolve`` and ``replay`` to the reference's own ``parameters``, meet what its
``randomize_parameters`` leaves there. Numbers: two-sample Kolmogorov-Smirnov, and how many lie beyond the other side's
extremes; also for the sum of every two parameters, since each alone may be right and their relation wrong. Choices, and
numbers with few values: chi-square. All comparisons together raise a false alarm with a probability of 0.1 %
(Bonferroni over at most 2400); with the fixed seeds they raise none.
"""

import dataclasses
import functools
import importlib
import itertools
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from audioaug import ops
from audioaug.core import REGISTRY, BatchInfo, Chain, Op, arguments
from audioaug.ops.add_short_noises import Sound
from audioaug.ops.room_simulator import simulated
from audioaug.verify import material

RATE = 16000
DRAWS = 4000
AT_MOST = 2400
ALPHA = 1e-3 / AT_MOST
FEW = 30
VARIANTS = [
    op
    for _, kind in sorted(REGISTRY.items())
    for op in material.variants(kind)
    if op.capabilities.library in ("audiomentations", "torch_audiomentations")  # the others' references do not draw
]
Table = dict[str, list[Any]]


@pytest.fixture(autouse=True)
def fixed_seeds() -> Iterator[None]:
    """Seed what the references draw from, and put it back."""
    before = random.getstate(), np.random.get_state()
    random.seed(1)
    np.random.seed(1)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(1)
        yield
    random.setstate(before[0])
    np.random.set_state(before[1])


class EmptyRoom(SimpleNamespace):
    """A room of pyroomacoustics that is built instantly and whose response is an echo: only its parameters count."""

    @classmethod
    def from_corners(cls, corners: np.ndarray, fs: int, **_: Any) -> "EmptyRoom":
        return cls(fs=fs, rir=[[np.ones(1)]])

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: None


@pytest.fixture(autouse=True)
def empty_rooms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing be simulated, on either side: thousands of rooms would take minutes."""
    monkeypatch.setattr("pyroomacoustics.Room", EmptyRoom)
    simulated.cache_clear()
    yield
    simulated.cache_clear()


@pytest.fixture(autouse=True)
def decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what AddShortNoises reads: it has a cache, but does not use it, and would decode thousands of times."""
    module = importlib.import_module("audiomentations.augmentations.add_short_noises")
    monkeypatch.setattr(module, "load_sound_file", functools.cache(module.load_sound_file))


def ours(op: Op, samples: np.ndarray) -> Table:
    """Return what the reference is given for our draws, one list for each of its parameters."""
    chain = Chain([op], RATE)
    node, draws = chain.nodes[0], chain.draw(np.arange(DRAWS), seed=5)
    draw = {name: draws[f"0:{name}"] for name in node.distributions}
    applied = draws["0:apply"] > 0
    if op.children:
        orders = op.order({**draw, "apply": draws["0:apply"]})
        return {
            "should_apply": applied.tolist(),
            "order": [str([k for k in order if k >= 0]) for order in orders.tolist()],
        }
    params = node.resolve(draws, np.arange(DRAWS), BatchInfo(RATE, np.full(DRAWS, samples.shape[-1])))
    numbers = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in params.items()}
    rows = (
        {
            name: value[row] if isinstance(value, list) else value
            for name, value in numbers.items()
            if not isinstance(value, list) or len(value) == DRAWS  # else it is no row's own
        }
        for row in range(DRAWS)
    )
    return {"should_apply": applied.tolist(), **_columns([op.replay(row, samples, RATE) for row in rows])}


def theirs(op: Op, samples: np.ndarray) -> Table:
    """Return what the reference draws for itself; parameters at p=1, coin tosses at the op's own p."""
    coins = _coins(op, samples)
    reference = dataclasses.replace(op, p=1.0).reference()
    if op.children:
        return {"should_apply": coins, "order": [_order(reference, samples) for _ in range(DRAWS)]}
    drawn = []
    for _ in range(DRAWS):
        reference.parameters = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference.randomize_parameters(samples, RATE)
        reference.parameters.pop("should_apply")
        drawn.append(reference.parameters)
    return {"should_apply": coins, **_columns(drawn)}


def _coins(op: Op, samples: np.ndarray) -> list[bool]:
    """Toss the reference's coin: whether it applies anything to a clip that everything changes."""
    if op.children:
        inverted = type(op)(**{**arguments(op), "transforms": [ops.PolarityInversion(p=1.0)] * len(op.children)})
        single = dataclasses.replace(inverted, num_transforms=1) if isinstance(op, ops.SomeOf) else inverted
        reference = single.reference()
        return [bool(reference(samples, RATE)[0] != samples[0]) for _ in range(DRAWS)]
    reference, coins = op.reference(), list[bool]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(DRAWS):
            reference.randomize_parameters(samples, RATE)
            coins.append(reference.parameters["should_apply"])
    return coins


class _Marker:
    """A child of a container that notes when it is called."""

    def __init__(self, number: int, calls: list[int]) -> None:
        self.number, self.calls = number, calls

    def __call__(self, samples: np.ndarray, sample_rate: int) -> np.ndarray:
        self.calls.append(self.number)
        return samples


def _order(reference: Any, samples: np.ndarray) -> str:
    calls: list[int] = []
    reference.transforms = [_Marker(number, calls) for number in range(len(reference.transforms))]
    reference(samples, RATE)
    return str(calls)


def _columns(rows: Sequence[dict[str, Any]]) -> Table:
    """Return one list for each parameter. A list of dicts (events) becomes several: see ``_events``."""
    table: Table = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    for name, values in list(table.items()):
        if all(isinstance(value, list) for value in values) and any(value and _is_event(value[0]) for value in values):
            table.update(_events(name, table.pop(name)))
    return table


def _is_event(value: Any) -> bool:
    return isinstance(value, dict)


def _events(name: str, lists: list[list[dict[str, Any]]]) -> Table:
    """Return what tells lists of events apart: how many there are, the first, the step to the second, the sums.

    ``None`` means that there is no such event.
    """
    table: Table = {f"number of {name}": [len(events) for events in lists]}
    for key, value in next(events[0] for events in lists if events).items():
        columns = [[event[key] for event in events] for events in lists]
        table[f"{key} of the first of {name}"] = [column[0] if column else None for column in columns]
        if _is_number([value]):
            steps = [column[1] - column[0] if len(column) > 1 else None for column in columns]
            table[f"step in {key} of {name}"] = steps
            table[f"sum of {key} of {name}"] = [sum(column) if column else None for column in columns]
    return table


def p_values(mine: Table, other: Table, pairs: bool = True) -> dict[str, float]:
    """Compare two tables column by column, and the sums of every two columns of numbers; return the p-values."""
    assert set(mine) == set(other), "the two sides draw other parameters"
    found = {name: _p_value(_there(mine[name]), _there(other[name])) for name in mine}
    for name in mine:
        if None in (*mine[name], *other[name]):
            found[f"{name} is there"] = _p_value(
                *([value is not None for value in side[name]] for side in (mine, other))
            )
    numbers = [name for name in mine if _is_number(_there(other[name])) and len(set(_there(other[name]))) > FEW]
    for one, two in itertools.combinations(numbers, 2) if pairs else ():
        unit = {name: np.ptp(_there(other[name])) for name in (one, two)}
        sums = [
            [a / unit[one] + b / unit[two] for a, b in zip(side[one], side[two]) if a is not None and b is not None]
            for side in (mine, other)
        ]
        found[f"{one} + {two}"] = _p_value(*sums)
    return found


def _there(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _is_number(values: Sequence[Any]) -> bool:
    return isinstance(values[0], int | float | np.number) and not isinstance(values[0], bool)


def _p_value(mine: Sequence[Any], other: Sequence[Any]) -> float:
    if not mine or not other:
        return float(len(mine) == len(other))
    values = {*mine, *other}
    if _is_number(mine) and len(set(mine)) == 1 and len(set(other)) == 1:
        return float(np.isclose(mine[0], other[0], rtol=1e-4))
    if len(values) == 1:
        return 1.0
    if len(values) <= FEW:
        counts = [[list(side).count(value) for value in values] for side in (mine, other)]
        return float(scipy.stats.chi2_contingency(counts).pvalue)
    beyond = max(_beyond(mine, other), _beyond(other, mine))
    return min(float(scipy.stats.ks_2samp(mine, other).pvalue), 1.0 if beyond <= 1 else 4 * 0.5**beyond)


def _beyond(some: Sequence[float], others: Sequence[float]) -> int:
    """Count values beyond the other side's extremes: of two equal samples, more than k with probability 2**-k."""
    return max(int(np.sum(np.asarray(some) > max(others))), int(np.sum(np.asarray(some) < min(others))))


SAMPLES = material.signals(RATE)[7][0, : RATE // 2]


def compared(op: Op) -> dict[str, float]:
    samples = samples_for(op)
    return p_values(ours(op, samples), theirs(op, samples))


def samples_for(op: Op) -> np.ndarray:
    """Return half a second, or more: longer than all splices together, or time for several sounds and bursts."""
    return np.tile(SAMPLES, {"SpliceOut": 8, "AddShortNoises": 20}.get(op.name, 1))


NAMES: set[str] = set()


@pytest.mark.parametrize("op", VARIANTS, ids=lambda op: f"{op.name}-{VARIANTS.index(op)}")
def test_draws_are_distributed_as_the_reference_draws(op: Op) -> None:
    op = dataclasses.replace(op, p=0.3)
    found = compared(op)
    unlikely = {name: p for name, p in found.items() if p < ALPHA}
    assert not unlikely, f"{op.name}: p-values below {ALPHA:.1g}: {unlikely}"
    NAMES.update(f"{VARIANTS.index(dataclasses.replace(op, p=type(op).p))}:{name}" for name in found)
    assert len(NAMES) <= AT_MOST


AT_LIMITS: list[Op] = [
    ops.GainTransition(min_duration=1, max_duration=5, duration_unit="samples"),  # at least three samples
    ops.SomeOf((1, 2), [ops.PolarityInversion(p=1.0), ops.Reverse(p=1.0), ops.Clip(p=1.0)]),
]


@pytest.mark.parametrize("op", AT_LIMITS, ids=lambda op: op.name)
def test_draws_at_the_limits_are_distributed_as_the_reference_draws(op: Op) -> None:
    assert min(compared(op).values()) > ALPHA


@pytest.mark.parametrize("weights", [[1.0, 5.0, 2.0], [0.0, 1.0, 1.0]])
def test_weights(weights: list[float]) -> None:
    inner = [ops.PolarityInversion(p=1.0), ops.Reverse(p=1.0), ops.Clip(p=1.0)]
    assert min(compared(ops.OneOf(inner, weights=weights)).values()) > ALPHA


NOISES = {"sounds_path": material.folder_at("noise", RATE)}
WRONG: dict[str, tuple[Op, Op]] = {
    "range too wide": (ops.Gain(max_gain_db=12.5), ops.Gain()),
    "range too narrow": (ops.Shift(min_shift=-0.49), ops.Shift()),
    "range moved": (ops.TanhDistortion(min_distortion=0.02, max_distortion=0.71), ops.TanhDistortion()),
    "one order more": (ops.HighPassFilter(max_rolloff=30), ops.HighPassFilter()),
    "another coin": (ops.Reverse(p=0.4), ops.Reverse(p=0.3)),
    "another place": (ops.TimeMask(mask_location="end"), ops.TimeMask()),
    "one bit rate more": (ops.Mp3Compression(max_bitrate=80), ops.Mp3Compression()),
    "no weights": (ops.OneOf([ops.Gain(), ops.Clip()]), ops.OneOf([ops.Gain(), ops.Clip()], weights=[2, 3])),
    "another count": (ops.SomeOf((1, 2), [ops.Gain(), ops.Clip()]), ops.SomeOf(1, [ops.Gain(), ops.Clip()])),
    "more bursts": (ops.AddShortNoises(**NOISES, burst_probability=0.3), ops.AddShortNoises(**NOISES)),
    "longer pauses": (ops.AddShortNoises(**NOISES, max_time_between_sounds=9.0), ops.AddShortNoises(**NOISES)),
    "later bursts": (ops.AddShortNoises(**NOISES, min_pause_factor_during_burst=0.3), ops.AddShortNoises(**NOISES)),
    "a higher room": (ops.RoomSimulator(max_size_z=3.1), ops.RoomSimulator()),
    "wider splices": (ops.SpliceOut(max_width=404), ops.SpliceOut()),
    "louder partners": (ops.Mix(min_snr_in_db=-0.1), ops.Mix()),
    "not shuffled": (ops.Compose([ops.Gain(), ops.Clip()]), ops.Compose([ops.Gain(), ops.Clip()], shuffle=True)),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_distribution_is_seen(fault: str) -> None:
    wrong, right = WRONG[fault]
    found = p_values(ours(wrong, samples_for(wrong)), theirs(right, samples_for(right)))
    assert min(found.values()) < ALPHA, found


WRONG_SCHEDULES: dict[str, Callable[[list[Sound]], list[Sound]]] = {
    "one level for all sounds": lambda sounds: [sound._replace(snr_db=sounds[0].snr_db) for sound in sounds],
    "nothing from before the clip": lambda sounds: [sound for sound in sounds if sound.start >= 0],
    "only one sound": lambda sounds: sounds[:1],
    "a fifth of a second between": lambda sounds: [
        sound._replace(start=sound.start + 0.2 * place, end=sound.end + 0.2 * place)
        for place, sound in enumerate(sounds)
    ],
    "fades swapped": lambda sounds: [
        sound._replace(fade_in_time=sound.fade_out_time, fade_out_time=sound.fade_in_time) for sound in sounds
    ],
    "a file less": lambda sounds: [sound._replace(file=min(sound.file, 2)) for sound in sounds],
    "the next sound as loud as the last": lambda sounds: [
        sound._replace(rms_db=sounds[max(0, place - 1)].rms_db) for place, sound in enumerate(sounds)
    ],
}


def test_wrong_schedules_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    op, honest = ops.AddShortNoises(**NOISES), ops.AddShortNoises._schedule
    samples = samples_for(op)
    other = theirs(op, samples)
    assert min(p_values(ours(op, samples), other, pairs=False).values()) > ALPHA
    for fault, spoil in WRONG_SCHEDULES.items():
        monkeypatch.setattr(ops.AddShortNoises, "_schedule", lambda *args, spoil=spoil: spoil(honest(*args)))
        assert min(p_values(ours(op, samples), other, pairs=False).values()) < ALPHA, fault


def test_frequencies_drawn_in_hertz_instead_of_mels_are_detected() -> None:
    mine, other = ours(ops.LowPassFilter(), SAMPLES), theirs(ops.LowPassFilter(), SAMPLES)
    mine["cutoff_freq"] = np.random.default_rng(0).uniform(150, 7500, DRAWS).tolist()
    assert p_values(mine, other)["cutoff_freq"] < ALPHA


def test_a_wrong_relation_of_two_right_parameters_is_seen() -> None:
    """The start of a mask that is drawn without regard to the mask's length."""
    op = ops.TimeMask(max_band_part=0.9)
    mine, other = ours(op, SAMPLES), theirs(op, SAMPLES)
    np.random.default_rng(0).shuffle(mine["t0"])
    found = p_values(mine, other)
    assert found["t"] > ALPHA and found["t0"] > ALPHA and found["t + t0"] < ALPHA
