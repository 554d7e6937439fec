"""Padding equals numpy's, for each row with numbers of its own."""

import numpy as np
import pytest
import torch

from audioaug.dsp.pad import pad

pytestmark = pytest.mark.usefixtures("either_way")

MODES = {"silence": "constant", "wrap": "wrap", "reflect": "reflect"}


@pytest.mark.parametrize("mode", MODES)
def test_numpy_pad(mode: str) -> None:
    x_BCT = torch.randn(5, 2, 40, generator=torch.Generator().manual_seed(0))
    start, length, place = (
        torch.tensor([0, 3, 39, 10, 5]),
        torch.tensor([40, 7, 1, 20, 2]),
        torch.tensor([0, 33, 5, 1, 60]),
    )
    y_BCT = pad(x_BCT, start, length, place, 90, mode)
    for row in range(5):
        first, size, before = (int(part[row]) for part in (start, length, place))
        stretch = x_BCT[row, :, first : first + size].numpy()
        expected = np.pad(stretch, ((0, 0), (before, 90 - before - size)), MODES[mode])
        np.testing.assert_array_equal(y_BCT[row].numpy(), expected)
