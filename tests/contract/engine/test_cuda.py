"""On a GPU: every op is equal to the same op on the CPU. That it never waits is in ``test_no_sync``."""

import numpy as np
import pytest
import torch

from audioaug import Chain, build_device
from audioaug.core import REGISTRY, why_not_on_device
from audioaug.verify.contracts import check
from audioaug.verify.material import variants

RATE = 16000
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


SHARE = 1e-4
"""Of the peak, that results may differ by: FFTs and sums are other ones there."""


def are_alike(op, x, expected, found):
    """Whether results of both devices are the same, or to the ear where vocoders choose which of two bins is a peak."""
    if op.contract.kind == "perceptual":
        return check(op.contract, *([*y.numpy()] for y in (x, expected, found)), sample_rate=RATE).status == "passed"
    return float((found - expected).abs().max()) <= SHARE * float(expected.abs().max())


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_op_on_cuda_equals_op_on_cpu(name):
    for op in variants(REGISTRY[name]):
        if why_not_on_device(op):
            continue
        chain = Chain([op], sample_rate=RATE)
        module, draws = build_device(chain), chain.draw(np.arange(8))
        x = torch.randn(8, 1, RATE, generator=torch.Generator().manual_seed(1)) * 0.1
        prepared = module.prepare(draws, tuple(x.shape))
        expected, length_B = module.augment(x, prepared)
        y, y_length_B = module.augment(x.cuda(), prepared.pin_memory())
        assert torch.equal(y_length_B.cpu(), length_B) and y.shape == expected.shape, op
        assert are_alike(op, x, expected, y.cpu()), op
