"""An op done twice to the same batch with the same draws: as it runs here, and in another way."""

import contextlib
import importlib
from dataclasses import replace

import pytest
import torch

from audioaug import Chain, build_device
from audioaug.dsp import compiled

LENGTHS = {"all as long": None, "of their own lengths": [12000, 9000, 12000, 700, 1]}


def largest_difference(op, lengths, other_way):
    """Return by how much results differ, over the peak; ``other_way`` calls what it is given and returns that."""
    channels = 2 if op.capabilities.multichannel else 1
    x = torch.randn(5, channels, 12000, generator=torch.Generator().manual_seed(3)) * 0.1
    module = build_device(Chain([replace(op, p=1.0)], 16000), seed=5)
    prepared = module.prepare(module.chain.draw(range(5)), tuple(x.shape), lengths=lengths)
    assert prepared.steps, "nothing is applied to these examples"
    y, length_B = module.augment(x, prepared)
    wanted, wanted_B = other_way(lambda: module.augment(x, prepared))
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

    compiled.is_installed.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled.importlib, "import_module", load_others)
        yield
    compiled.is_installed.cache_clear()
