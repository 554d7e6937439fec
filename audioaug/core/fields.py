"""Checks of an op's fields: each against its annotation, its limits and its other end."""

import dataclasses
import functools
import math
import typing
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from audioaug.errors import ChainError, did_you_mean


def check_fields(op: Any) -> None:
    """Raise ``ChainError`` unless all fields have their types and lie in their ranges; make values of numpy plain."""
    for field in dataclasses.fields(op):
        _check_field(op, field.name)
    for name in (field.name for field in dataclasses.fields(op) if field.name.startswith("min_")):
        top = name.replace("min_", "max_", 1)
        low, high = getattr(op, name), getattr(op, top)
        if low > high:
            raise ChainError(f"{op.name}: {name} is {low}, but it must not be greater than {top} ({high}).")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _check_field(op: Any, name: str) -> None:
    """Check one field against its annotation and its limits."""
    value, hint = plain_scalar(getattr(op, name)), _hints(op.__class__)[name]
    if typing.get_origin(hint) is Literal and value not in typing.get_args(hint):
        options = [str(option) for option in typing.get_args(hint)]
        raise ChainError(f"{op.name}: {name} is {value!r}.", did_you_mean(str(value), options))
    if hint is bool and not isinstance(value, bool):
        raise ChainError(f"{op.name}: {name} is {value!r}, but it must be true or false.")
    kind = next((each for each in (int, float) if hint in (each, each | None)), None)
    if kind is not None and (value is not None or hint is kind):
        _check_number(op, name, value, kind)
        value = int(value) if kind is int else value
    if value is not getattr(op, name):
        object.__setattr__(op, name, value)


def plain_scalar(value: Any) -> Any:
    """Return a number, string or truth value of numpy as Python's; anything else as it is."""
    if isinstance(value, np.longdouble):
        return float(value)
    return value.item() if isinstance(value, np.generic) else value


def checked_weights(op: str, weights: Any, options: Sequence[Any], what: str) -> tuple[float, ...]:
    """Return one weight for each option of an op; raise ``ChainError`` if they are not that, or all are zero."""
    try:
        checked = tuple(float(weight) for weight in weights)
    except (TypeError, ValueError):
        checked = ()
    fit = len(checked) == len(options) and all(weight >= 0 for weight in checked)
    if not fit or not 0 < sum(checked) < float("inf"):
        raise ChainError(
            f"{op}: weights is {weights!r}, but there must be a number for each of the {len(options)} {what}, none "
            "negative, and not all zero."
        )
    return checked


def real_number(value: Any) -> float:
    """Return a number as a float; NaN for what is none, such as a truth value, and for a whole number too large."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        return float(value) if real else math.nan
    except OverflowError:
        return math.nan


def _check_number(op: Any, name: str, value: Any, hint: type) -> None:
    number = real_number(value)
    is_drawn = name.startswith(("min_", "max_")) and op.__class__.__module__.startswith("audioaug.")
    if math.isnan(number) or (is_drawn and math.isinf(number)) or (hint is int and not number.is_integer()):
        kind = "whole " if hint is int else "finite " if math.isinf(number) else ""
        raise ChainError(f"{op.name}: {name} is {value!r}, but it must be a {kind}number.")
    low, high = (0.0, 1.0) if name == "p" else op.limits.get(name, (-np.inf, np.inf))
    if not low <= value <= high:
        bounds = f"at least {low:.10g}" if np.isinf(high) else f"between {low:.10g} and {high:.10g}"
        bounds = f"at most {high:.10g}" if np.isinf(low) else bounds
        raise ChainError(f"{op.name}: {name} is {value:.10g}, but it must be {bounds}.")
