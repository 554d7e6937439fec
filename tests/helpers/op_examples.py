"""A valid declaration of every op in the registry and, for each of its fields, another value: for tests of all ops."""

import dataclasses
import functools
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import audioaug.ops  # noqa: F401  (fills the registry)
from audioaug import ops
from audioaug.core import REGISTRY, Feature, Op
from audioaug.errors import ChainError
from audioaug.verify import material

DEMO = Path(__file__).parents[2] / "datasets" / "demo"
OPS = [kind for _, kind in sorted(REGISTRY.items())]


def library(kind: type[Op]) -> str:
    """Return where the reference of an op comes from."""
    return example(kind).capabilities.library


def quieter(samples: Any, sample_rate: int) -> Any:
    """Be another function for Lambda, without a twin on the device."""
    return samples * 0.5


def example(kind: type[Op], **changes: Any) -> Op:
    """Declare an op of that kind with as many defaults as there are."""
    needed = {
        "sounds_path": str(DEMO / "noise"),
        "ir_path": str(DEMO / "rooms"),
        "transforms": (ops.Gain(p=0.25), ops.PolarityInversion()),
        "num_transforms": 1,
        "transform": material.softened,
    }
    also = {"AdjustDuration": {"duration_samples": 3000}}.get(kind.__name__, {})
    required = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    unknown = set(required) - set(needed) - set(changes)
    assert not unknown, f"tests/helpers/op_examples.py: say what {kind.__name__} may take for {sorted(unknown)}"
    return kind(**{**{name: needed[name] for name in required if name in needed}, **also, **changes})


TOGETHER: dict[str, dict[str, Any]] = {"duration_seconds": {"duration_samples": None}}
"""What has to change with a field."""


@functools.cache
def variants(kind: type[Op]) -> dict[str, Op]:
    """Return, for every field that can have another value than in the example, the example with another one."""
    op, found = example(kind), {}
    for name, hint in typing.get_type_hints(kind).items():
        if name not in {field.name for field in dataclasses.fields(kind)} or hint is type(None):
            continue
        if name == "p" and issubclass(kind, Feature):  # always 1
            continue
        found[name] = next(_with_another(op, name, hint), None)
        assert found[name], f"tests/helpers/op_examples.py: name another value for {kind.__name__}.{name}"
    return found


def _with_another(op: Op, name: str, hint: Any) -> Iterator[Op]:
    for value in _candidates(getattr(op, name), name, hint):
        if value != getattr(op, name):
            try:
                yield dataclasses.replace(op, **{name: value, **TOGETHER.get(name, {})})
            except ChainError:
                continue


def _candidates(value: Any, name: str, hint: Any) -> list[Any]:
    named = {
        "sounds_path": [str(DEMO / "rooms")],
        "ir_path": [str(DEMO / "noise")],
        "transforms": [(ops.PolarityInversion(), ops.Gain(p=0.25))],
        "num_transforms": [(1, 2)],
        "weights": [(0.25, 0.75), (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0)],
        "codecs": [("opus", "gsm")],
        "win_length": [1024],
        "fmax": [4000.0],
        "min_temperature": [20.0],
        "ray_tracing_options": [{"n_rays": 1000, "receiver_radius": 0.4}],
        "max_temperature": [10.0],
        "duration_seconds": [0.25],
        "signal_gain_in_db_during_noise": [-6.0],
        "signal_gain_db_during_noise": [-6.0],
        "transform": ["tests.helpers.op_examples:quieter"],
        "kwargs": [{"drive": 0.25}],
        "rates": [(0.9, 1.0, 1.1)],
    }
    if name in named:
        return named[name]
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, value + 12, value - 12, 2 * value]
    return [value * 0.9, value * 1.1, value + 0.125, value - 0.125]
