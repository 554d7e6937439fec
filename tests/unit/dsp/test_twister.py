"""The words of torch's generator: by NumPy's generator and by a loop."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from audioaug.dsp import twister
from audioaug.dsp.dispatch import backend
from audioaug.dsp.twister import torch_words

KEYS = np.asarray([0.0, 5.0, 2.0**40 + 77, 2.0**52 - 1])


@pytest.mark.parametrize("by", ["auto", "torch"])
def test_words_are_those_that_torch_draws_from(by: str) -> None:
    with backend(by):
        found_RN = torch_words(KEYS, 3)
    for key, words_N in zip(KEYS, found_RN):
        generator = torch.Generator().manual_seed(int(key))
        for word, below in zip(words_N, (1, 1000, 2**28 - 1), strict=True):
            assert word % below == int(torch.randint(below, (1,), generator=generator))


@pytest.mark.parametrize("count", [0, 1, 226, 227, 228, 624, 625, 1250])
def test_the_loop_yields_the_same_words_however_many(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with backend("torch"):
        expected_RN = torch_words(KEYS, count)
    assert twister._fill._loop_agrees
    monkeypatch.setattr(twister._fill, "definition", None)  # so that the loop has to do it
    assert np.array_equal(torch_words(np.tile(KEYS, 64), count), np.tile(expected_RN, (64, 1)))


def test_words_are_the_same_in_threads_side_by_side() -> None:
    keys, interval = np.arange(200.0), sys.getswitchinterval()
    expected_RN = torch_words(keys, 3)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool, backend("torch"):
            results = list(pool.map(lambda _: torch_words(keys, 3), range(40)))
    finally:
        sys.setswitchinterval(interval)
    assert all(np.array_equal(words_RN, expected_RN) for words_RN in results)
