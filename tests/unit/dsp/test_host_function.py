"""Compiled loops on the host: used if they give what NumPy does, and replaced with one warning if not."""

import math

import numpy as np
import pytest

from audioaug.dsp.dispatch import backend
from audioaug.dsp.host_function import HostFunction
from audioaug.errors import AudioaugWarning


def _some() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.arange(300.0), np.empty(300), np.empty(300)


def _squares_and_cubes(x: np.ndarray, squares: np.ndarray, cubes: np.ndarray) -> None:
    squares[:], cubes[:] = x**2, x**3


def _one_by_one(x: np.ndarray, squares: np.ndarray, cubes: np.ndarray) -> None:
    for n in range(len(x)):
        squares[n], cubes[n] = x[n] * x[n] * (1 + 1e-9), x[n] * x[n] * x[n]


def _only_cubes(x: np.ndarray, squares: np.ndarray, cubes: np.ndarray) -> None:
    squares[:], cubes[:] = 1.0, x**3


def _only_squares(x: np.ndarray, squares: np.ndarray, cubes: np.ndarray) -> None:
    squares[:], cubes[:] = x**2, math.nan


def _raises(*_: object) -> None:
    raise RuntimeError("no LLVM here")


def test_a_loop_that_gives_the_same_is_used():
    fill, (x, squares, cubes) = HostFunction(_squares_and_cubes, _one_by_one, _some, filled=2, rtol=1e-8), _some()
    fill(x, squares, cubes)
    assert squares[2] > 4.0 and cubes[2] == 8.0
    with backend("torch"):
        fill(x, squares, cubes)
    assert squares[2] == 4.0


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        (_raises, "raises RuntimeError .no LLVM here."),
        (_one_by_one, "gives other numbers"),
        (_only_cubes, "gives other numbers"),
        (_only_squares, "gives other numbers"),
    ],
)
def test_a_loop_that_fails_is_replaced_with_one_warning(loop, reason: str) -> None:
    fill, (x, squares, cubes) = HostFunction(_squares_and_cubes, loop, _some, filled=2), _some()
    with pytest.warns(AudioaugWarning, match=f"cubes is switched off: its compiled form {reason}") as warned:
        for _ in range(2):
            fill(x, squares, cubes)
            assert np.array_equal(squares, x**2) and np.array_equal(cubes, x**3)
    assert len(warned) == 1
