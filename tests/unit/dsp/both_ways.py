"""The same work done twice: as it runs here, and by the torch definitions."""

import contextlib
import importlib
from dataclasses import replace

import pytest
import torch

from audioaug import Chain, build_device
from audioaug.dsp import dispatch

LENGTHS = {"all as long": None, "of their own lengths": [12000, 9000, 12000, 700, 1]}


def by_torch(work):
    """Return what work gives by the torch definitions."""
    with dispatch.backend("torch"):
        return work()


def largest_difference(op, lengths, samples=12000):
    """Return by how much an op's results differ from those of the torch definitions, over the peak."""
    channels = 2 if op.capabilities.multichannel else 1
    x = torch.randn(5, channels, samples, generator=torch.Generator().manual_seed(3)) * 0.1
    module = build_device(Chain([replace(op, p=1.0)], 16000), seed=5)
    lengths = None if lengths is None else [min(length, samples) for length in lengths]
    prepared = module.prepare(module.chain.draw(range(5)), tuple(x.shape), lengths=lengths)
    assert prepared.steps, "nothing is applied to these examples"
    y, length_B = module.augment(x, prepared)
    wanted, wanted_B = by_torch(lambda: module.augment(x, prepared))
    assert torch.equal(length_B, wanted_B) and y.shape == wanted.shape
    return float((y - wanted).abs().max() / wanted.abs().max())


@contextlib.contextmanager
def not_installed(compiler):
    """Let a compiler be missing for a while."""
    load = importlib.import_module

    def load_others(name, *more):
        if name == compiler:
            raise ImportError(f"there is no {name} that works here")
        return load(name, *more)

    dispatch.is_installed.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch.importlib, "import_module", load_others)
        yield
    dispatch.is_installed.cache_clear()
