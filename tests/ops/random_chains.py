"""Random chains, for property tests: any op that promises exact equality, at random places, also inside containers."""

import random

from audioaug import ops
from audioaug.core import REGISTRY, Chain, Op
from audioaug.verify import material

LEAVES = [
    kind
    for _, kind in sorted(REGISTRY.items())
    if kind.contract.kind == "exact" and "transforms" not in kind.__dataclass_fields__
]

JUMPS = {"BitCrush", "LoudnessNormalization", "TanhDistortion"}
"""Ops that round, or amplify by a percentile: what differs by 1e-7 before them may differ by a step, or by 1e-3, behind
them (a low-pass leaves pauses that the distortion raises by 80 dB). So they come first or never."""


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
    kind = rng.choice([kind for kind in LEAVES if (kind.multichannel or mono) and kind.__name__ not in JUMPS])
    return rng.choice(list(material.variants(kind)))


def random_chain(seed: int, channels: int, length: int = 6) -> Chain:
    """Return a chain of that many ops, at 16 kHz; a pure function of its arguments."""
    rng = random.Random(seed)
    chosen = [random_op(rng, 2, channels == 1) for _ in range(length)]
    if rng.random() < 0.3:
        chosen[0] = next(material.variants(REGISTRY[rng.choice(sorted(JUMPS))]))
    return Chain(chosen, 16000)
