"""On a GPU: every op is equal to the same op on the CPU. That it never waits is in ``test_no_sync``."""

import numpy as np
import pytest
import torch

from audioaug import Chain, build_device
from audioaug.core import REGISTRY
from audioaug.verify.material import variants

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_an_op_does_what_it_does_on_the_cpu(name):
    for op in variants(REGISTRY[name]):
        if op.why_not_on_device():
            continue
        chain = Chain([op], sample_rate=16000)
        module, draws = build_device(chain), chain.draw(np.arange(8))
        x = torch.randn(8, 1, 16000, generator=torch.Generator().manual_seed(1)) * 0.1
        prepared, on_cpu = module.prepare(draws, (8, 1, 16000)).pin_memory(), module(x, draws=draws)
        y, _ = module.augment(x.cuda(), prepared)
        assert torch.allclose(y.cpu(), on_cpu, atol=1e-4 * float(on_cpu.abs().max())), name
