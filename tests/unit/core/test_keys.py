"""Keys: numbers that are the same everywhere, and what is refused."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug import Chain, ops
from audioaug.core import key_number, key_numbers, key_of
from audioaug.errors import DataError

GOLDEN = {  # by `printf spk1/utt7 | b2sum --length 64`, its bytes as a little-endian integer
    "": -5426141060434712860,
    "a": 3405396810240292928,
    "spk1/utt7": 4477737951666968061,
    "häuser/süß.wav": -1719881575048620594,
    "日本語": 5222810888430230004,
    b"\x00\xff": -1973437792894662736,
    0: 0,
    7: 7,
    -1: -1,
    2**63 - 1: 2**63 - 1,
    2**63: -(2**63),
    2**64 - 1: -1,
    2**64: 4703322702048383463,
}
"""Keys and their numbers. A change breaks every run that is to be repeated: it is a documented break."""


@pytest.mark.parametrize("key", GOLDEN, ids=repr)
def test_the_number_of_a_key_never_changes(key):
    assert key_number(key) == GOLDEN[key]
    assert key_numbers([key]).tolist() == [GOLDEN[key]]


@settings(max_examples=200, derandomize=True, database=None)
@given(st.lists(st.text() | st.binary() | st.integers(-(2**70), 2**70)))
def test_numbers_are_those_of_each_key(keys):
    numbers = key_numbers(keys)
    assert numbers.dtype == np.int64 and numbers.tolist() == [key_number(key) for key in keys]
    for key, number in zip(keys, numbers):
        if isinstance(key, str):
            content = key.encode("utf-8", "surrogatepass")
            assert number == key_number(content)
            assert number == int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def test_arrays_and_tensors_of_integers_are_keys():
    numbers = [3, 0, 2**40]
    for keys in (numbers, tuple(numbers), np.asarray(numbers), np.asarray(numbers, np.uint64), torch.tensor(numbers)):
        assert key_numbers(keys).tolist() == numbers
    assert key_numbers(range(3)).tolist() == [0, 1, 2] and key_numbers([]).shape == (0,)
    assert key_numbers(np.asarray([2**64 - 1], np.uint64)).tolist() == [-1]
    assert key_numbers(np.asarray(["a", "spk1/utt7"])).tolist() == [GOLDEN["a"], GOLDEN["spk1/utt7"]]


def test_a_key_may_be_of_numpy_or_torch():
    for key in (7, np.int32(7), torch.tensor(7), np.asarray(7)):
        assert key_of(key) == 7 and type(key_of(key)) is int
    assert key_of(np.str_("a")) == "a" and key_of(np.bytes_(b"a")) == b"a"


@pytest.mark.parametrize("wrong", [1.0, None, True, ("a", 1), np.float32(2), torch.zeros(2), np.bool_(True)], ids=repr)
def test_anything_else_is_no_key(wrong):
    with pytest.raises(DataError, match=r"^A key must be a string, bytes or an integer, but it is .*, a \w+\. Use"):
        key_numbers([wrong])


@pytest.mark.parametrize("wrong", ["utt7", b"utt7", 3, None, [[1, 2]], np.zeros((2, 2), int)], ids=repr)
def test_keys_are_one_for_each_example(wrong):
    with pytest.raises(DataError):
        key_numbers(wrong)


def test_draws_follow_from_the_key_alone():
    chain = Chain([ops.Gain(p=0.5), ops.TimeMask(p=0.5)], sample_rate=16000)
    keys = ["spk1/utt7", b"other", 7, 2**90]
    together = chain.draw(keys, epoch=2, seed=3)
    for row, key in enumerate(keys):
        assert chain.draw([key], epoch=2, seed=3) == together[row]
    for same in ("spk1/utt7", b"spk1/utt7", GOLDEN["spk1/utt7"]):
        assert chain.draw([same], 2, 3) == together[0]
    assert len({tuple(row) for row in together.table}) == 4
