"""Self-test: every loop or kernel beside its torch definition, on this machine's device, whatever was known before."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from audioaug.core import REGISTRY, Chain, Op, why_not_on_device
from audioaug.engine.device import run_once
from audioaug.engine.proof import EXAMPLES, SAMPLES, check
from audioaug.verify.material import variants

SAMPLE_RATE = 16000


@dataclass(frozen=True)
class Tested:
    """An implementation: its name, the ops that it served, and what is wrong with it; empty if nothing is."""

    name: str
    ops: tuple[str, ...]
    wrong: str = ""


def self_test(device: torch.device, tick: Callable[[str], object] = lambda op: None) -> list[Tested]:
    """Run all ops that have a device build, in all their modes, with and without compiled implementations.

    Those that are wrong are switched off, so that the others are tested. ``tick`` is called with the name of each op.
    """
    ops, wrong = dict[str, set[str]](), dict[str, str]()
    for op in _all_ops():
        tick(op.name)
        shape = EXAMPLES, 1 + op.capabilities.multichannel, SAMPLES
        found = check(Chain([replace(op, p=1.0)], SAMPLE_RATE), shape, device, run_once)
        for name in found.used:
            ops.setdefault(name, set()).add(op.name)
        wrong.update(found.wrong)
    return [Tested(name, tuple(sorted(ops[name])), wrong.get(name, "")) for name in sorted(ops)]


def _all_ops() -> Iterator[Op]:
    for _, kind in sorted(REGISTRY.items()):
        yield from (op for op in variants(kind) if not why_not_on_device(op))
