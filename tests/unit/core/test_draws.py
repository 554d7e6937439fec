"""The random numbers: right by published vectors, uniform, unrelated, and pure functions of their address."""

import itertools
import json

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug import ops
from audioaug.core import Chain, Draws
from audioaug.core.draws import legacy_generator, legacy_integer, uniforms
from audioaug.dsp import philox
from audioaug.dsp.dispatch import backend
from audioaug.errors import DataError

KNOWN_ANSWERS = [  # (counter, key, answer) of philox4x32-10, from Random123's kat_vectors
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
MANY = 20_000
RARE = 4.5  # standard deviations: once in 150,000 tests, and the seeds are fixed


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def philox_by_the_book(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 in plain Python integers, as the paper has it."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(second >> 32) ^ c[1] ^ k[0], second % 2**32, (first >> 32) ^ c[3] ^ k[1], first % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, answer):
    columns = [[word, word] for word in words(counter)]
    result = philox.philox(columns, tuple(words(key)))
    assert [part.tolist() for part in result] == [[word, word] for word in words(answer)]
    assert philox_by_the_book(words(counter), words(key)) == words(answer)


@settings(max_examples=60, derandomize=True, database=None)
@given(
    seed=st.integers(-(2**63), 2**64 - 1),
    epoch=st.integers(0, 2**40),
    index=st.integers(0, 2**63 - 1),
    position=st.integers(0, 1000),
    lane=st.integers(0, 100),
)
def test_a_number_is_the_one_at_its_address(seed, epoch, index, position, lane):
    low_high = [(number % 2**64 & 0xFFFFFFFF, number % 2**64 >> 32) for number in (seed, epoch, index)]
    key = philox_by_the_book([*low_high[0], *low_high[1]], [0, 0])[:2]
    first, second = philox_by_the_book([*low_high[2], position, lane], key)[:2]
    expected = ((first >> 5) * 2**26 + (second >> 6)) / 2**53
    assert uniforms(seed, epoch, [index], [position], [lane]) == [[expected]]


ADDRESSES = (np.arange(-50, 50) * 2**55 + 7, [0, 3, 3, 2**32 - 1], [0, 0, 1, 2**32 - 1])


def test_numpy_and_the_compiled_loop_draw_the_same(monkeypatch):
    numbers = uniforms(3, 4, *ADDRESSES)
    monkeypatch.setattr(philox._fill, "definition", None)  # so that the loop has to do it
    assert np.array_equal(uniforms(3, 4, *ADDRESSES), numbers)
    monkeypatch.undo()
    monkeypatch.setattr(philox._fill, "loop", None)
    with backend("torch"):
        assert np.array_equal(uniforms(3, 4, *ADDRESSES), numbers)


def test_uniforms_are_uniform_in_zero_to_one():
    u = uniforms(3, 1, range(MANY), [0, 5], [0, 2]).ravel()
    assert 0 <= u.min() < 1e-3 and 1 - 1e-3 < u.max() < 1
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3


NEIGHBOURS = {
    "index": (lambda: uniforms(0, 0, range(MANY), [0], [0]), lambda: uniforms(0, 0, range(1, MANY + 1), [0], [0])),
    "epoch": (lambda: uniforms(0, 0, range(MANY), [0], [0]), lambda: uniforms(0, 1, range(MANY), [0], [0])),
    "seed": (lambda: uniforms(0, 0, range(MANY), [0], [0]), lambda: uniforms(1, 0, range(MANY), [0], [0])),
    "negative seed": (lambda: uniforms(1, 0, range(MANY), [0], [0]), lambda: uniforms(-1, 0, range(MANY), [0], [0])),
    "high half of the seed": (
        lambda: uniforms(7, 0, range(MANY), [0], [0]),
        lambda: uniforms(7 + 2**32, 0, range(MANY), [0], [0]),
    ),
    "seed and epoch swapped": (
        lambda: uniforms(1, 2, range(MANY), [0], [0]),
        lambda: uniforms(2, 1, range(MANY), [0], [0]),
    ),
    "high half of the index": (
        lambda: uniforms(0, 0, range(MANY), [0], [0]),
        lambda: uniforms(0, 0, np.arange(MANY) + 2**32, [0], [0]),
    ),
    "position": (lambda: uniforms(0, 0, range(MANY), [0], [0]), lambda: uniforms(0, 0, range(MANY), [1], [0])),
    "lane": (lambda: uniforms(0, 0, range(MANY), [0], [0]), lambda: uniforms(0, 0, range(MANY), [0], [1])),
    "position and lane swapped": (
        lambda: uniforms(0, 0, range(MANY), [1], [2]),
        lambda: uniforms(0, 0, range(MANY), [2], [1]),
    ),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours_share_nothing(name):
    one, other = (make().ravel() for make in NEIGHBOURS[name])
    assert abs(np.corrcoef(one, other)[0, 1]) < RARE / np.sqrt(MANY)
    counts, *_ = np.histogram2d(one, other, bins=16, range=[[0, 1], [0, 1]])  # sees dependence that correlation misses
    assert scipy.stats.chisquare(counts.ravel()).pvalue > 1e-4


def test_the_test_for_neighbours_rejects_shifted_and_mirrored_copies():
    u = uniforms(0, 0, range(MANY), [0], [0]).ravel()
    for copy in (u, 1 - u, (u + 0.5) % 1, np.abs(u - 0.5) * 2):
        counts, *_ = np.histogram2d(u, copy, bins=16, range=[[0, 1], [0, 1]])
        assert scipy.stats.chisquare(counts.ravel()).pvalue < 1e-4


CHAIN = Chain(
    [
        ops.Gain(),
        ops.OneOf([ops.LowPassFilter(), ops.SomeOf((1, None), [ops.Clip(), ops.Shift()])]),
        ops.Compose([ops.AddGaussianNoise()], shuffle=True),
    ],
    sample_rate=16000,
)


def test_draws_do_not_depend_on_the_batch():
    everything = CHAIN.draw(range(100), epoch=3, seed=5)
    for indices in ([0], [99], [17, 3, 50], [3, 3], list(range(99, -1, -1)), np.arange(10, 20), [np.int32(4)]):
        assert CHAIN.draw(indices, epoch=3, seed=5) == everything.rows(list(indices))


def test_draws_do_not_depend_on_later_ops():
    longer = Chain([*CHAIN.ops, ops.Gain(), ops.Reverse()], 16000).draw(range(9))
    assert longer.columns[: len(CHAIN.columns)] == CHAIN.columns
    assert np.array_equal(longer.table[:, : len(CHAIN.columns)], CHAIN.draw(range(9)).table)


def test_draws_change_with_seed_epoch_and_place():
    tables = [
        CHAIN.draw(range(4), epoch=epoch, seed=seed).table for seed in (-1, 0, 1, 2**40, 2**63) for epoch in (0, 1)
    ]
    assert all(not np.array_equal(one, other) for one, other in itertools.combinations(tables, 2))
    twice = Chain([ops.Gain(), ops.Gain()], 16000).draw(range(50))
    assert not np.intersect1d(twice["0:gain_db"], twice["1:gain_db"]).size


def test_seed_and_epoch_may_be_numpy_numbers():
    assert CHAIN.draw([1], epoch=np.int64(2), seed=np.int64(-3)) == CHAIN.draw([1], epoch=2, seed=-3)


def test_rows_columns_and_iteration():
    draws = CHAIN.draw(range(6))
    assert len(draws) == 6 and draws.table.shape == (6, len(draws.columns))
    assert np.array_equal(draws["0:gain_db"], draws.table[:, draws.columns.index("0:gain_db")])
    assert [len(one) for one in draws] == [1] * 6
    assert all(one == CHAIN.draw([place]) for place, one in enumerate(draws))
    assert draws.rows(slice(2, 4)) == draws.rows([2, 3]) == draws.rows(np.asarray([2, 3]))
    assert draws != draws.rows([0]) and draws != "draws"


def test_an_index_picks_examples_as_in_a_list():
    draws, rows = CHAIN.draw(range(6)), list(range(6))
    for index in (0, 3, -1, -6, np.int64(2)):
        assert draws[index] == CHAIN.draw([rows[index]])
    for part in (slice(2, 5), slice(None), slice(-2, None), slice(None, None, -2), slice(9, 12)):
        assert draws[part] == CHAIN.draw(rows[part])
    for several in ([4, -1], np.asarray([4, 5]), (4, 5), []):
        assert draws[several] == CHAIN.draw([rows[row] for row in several])
    for outside in (6, -7, [0, 6]):
        with pytest.raises(IndexError, match="out of bounds"):
            draws[outside]


def test_unknown_column_raises():
    with pytest.raises(DataError, match=r"no column '9:gain_db'.*Draw with the chain"):
        CHAIN.draw([0])["9:gain_db"]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_draws_survive_json(count):
    draws = CHAIN.draw(range(count), epoch=1)
    assert Draws.from_dict(json.loads(json.dumps(draws.to_dict()))) == draws


def test_draws_of_an_empty_chain_survive_json():
    draws = Chain([], 16000).draw([4, 5])
    assert draws.table.shape == (2, 0)
    assert Draws.from_dict(json.loads(json.dumps(draws.to_dict()))) == draws


@pytest.mark.parametrize("table", [[[1, 2, 3]], [[1, 2, 3], [4, 5, 6]], [[1, 2], [3]], [[]]])
def test_a_table_that_does_not_fit_is_refused(table):
    with pytest.raises(DataError, match="have 2 columns"):
        Draws.from_dict({"columns": ["0:apply", "0:gain_db"], "table": table})


def test_weights_reach_the_draw():
    chain = Chain([ops.OneOf([ops.Gain(), ops.Clip(), ops.Reverse()], weights=[0, 1, 3])], 16000)
    picks = chain.draw(range(4000))["0:pick"]
    assert set(picks) == {1.0, 2.0} and np.mean(picks == 2.0) == pytest.approx(0.75, abs=0.03)


KEYS = np.asarray([0.0, 5.0, 2.0**40 + 77, 2.0**52 - 1])


@pytest.mark.parametrize("count", [1, 2, 3, 2**15, 2**15 + 1, 2**31 + 1, 2**32 - 1])
def test_legacy_integer_is_what_the_legacy_generator_draws_first(count: int) -> None:
    for key in [*KEYS, 2.0**32 - 1, 2.0**32, *range(2**51, 2**51 + 20)]:
        assert legacy_integer(key, count) == legacy_generator(key).randint(0, count, dtype=np.int64)
