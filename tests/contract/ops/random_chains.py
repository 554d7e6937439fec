"""Random chains, for property tests: ops with random ranges at random places, also inside containers; and, at the end,
sometimes an op that promises less than exact equality."""

import dataclasses
import random
from typing import Any

from audioaug import ops
from audioaug.core import REGISTRY, Chain, Op, why_not_in_worker
from audioaug.errors import ChainError
from audioaug.verify import material

LEAVES = [
    kind
    for _, kind in sorted(REGISTRY.items())
    if kind.contract.kind == "exact"
    and "transforms" not in kind.__dataclass_fields__
    and not why_not_in_worker(next(material.variants(kind)))
]
"""The ops that run on either side of any cut."""

JUMPS = {"BitCrush", "G711", "LoudnessNormalization", "TanhDistortion"}
"""Ops that round, or amplify by a percentile: what differs by 1e-7 before them may differ by a step, or by 1e-3, behind
them (a low-pass leaves pauses that the distortion raises by 80 dB). So they come first or never."""


LAST = [
    kind
    for _, kind in sorted(REGISTRY.items())
    if kind.contract.kind not in ("exact", "cpu_only") and "transforms" not in kind.__dataclass_fields__
]


def _is_multichannel(kind: type[Op]) -> bool:
    return next(material.variants(kind)).capabilities.multichannel


def random_ranges(op: Op, rng: random.Random) -> Op:
    """Return the op with another probability, and with each of its ranges narrowed at random."""
    changes: dict[str, Any] = {"p": rng.choice([0.3, 0.7, 1.0])}
    for field in dataclasses.fields(op):
        top = field.name.replace("min_", "max_", 1)
        low, high = getattr(op, field.name), getattr(op, top, None)
        if field.name.startswith("min_") and isinstance(low, int | float) and isinstance(high, int | float):
            draw = rng.randint if isinstance(low, int) and isinstance(high, int) else rng.uniform
            changes[field.name], changes[top] = sorted((draw(low, high), draw(low, high)))
    try:
        return dataclasses.replace(op, **changes)
    except ChainError:  # ranges that depend on each other
        return op


def random_op(rng: random.Random, depth: int, mono: bool) -> Op:
    """Return an op in one of its modes, or, down to a depth, a container of two or three."""
    if depth and rng.random() < 0.3:
        children = [random_op(rng, depth - 1, mono) for _ in range(rng.randint(2, 3))]
        weights = [rng.random() + 0.1 for _ in children]
        return rng.choice(
            [
                ops.Compose(children, shuffle=True, p=0.9),
                ops.OneOf(children, weights=weights, p=0.9),
                ops.SomeOf((1, None), children, p=0.9),
            ]
        )
    kind = rng.choice([kind for kind in LEAVES if (_is_multichannel(kind) or mono) and kind.__name__ not in JUMPS])
    return random_ranges(rng.choice(list(material.variants(kind))), rng)


def random_chain(seed: int, channels: int, length: int = 10) -> Chain:
    """Return a chain of that many ops, at 16 kHz; a pure function of its arguments."""
    rng = random.Random(seed)
    chosen = [random_op(rng, 2, channels == 1) for _ in range(length)]
    if rng.random() < 0.3:
        chosen[0] = random_ranges(next(material.variants(REGISTRY[rng.choice(sorted(JUMPS))])), rng)
    if rng.random() < 0.2:
        last = rng.choice([kind for kind in LAST if _is_multichannel(kind) or channels == 1])
        chosen[-1] = dataclasses.replace(random_ranges(next(material.variants(last)), rng), p=1.0)
    if rng.random() > 0.95:  # it runs in workers only: no chain can be cut before it
        chosen[0] = ops.Codec(p=rng.choice([0.3, 0.7, 1.0]))
    return Chain(chosen, 16000)
