"""An op takes exactly what the audiomentations class of its name takes, with the same defaults."""

import dataclasses
import inspect
from typing import Any

import audiomentations
import pytest

import audioaug.ops  # noqa: F401  (fills the registry)
from audioaug.core import REGISTRY, Op
from audioaug.ops._torch_reference import transform_class, why_unavailable
from tests.helpers.op_examples import example, library

REQUIRED = "required"
OF_A_LIBRARY = [
    name
    for name, kind in sorted(REGISTRY.items())
    if library(kind) in ("audiomentations", "torch_audiomentations")  # others have no class with these arguments
]
OF_THE_ENGINE = {"mode", "p_mode", "sample_rate", "target_rate", "output_type"}
"""What torch-audiomentations takes at construction and audioaug decides elsewhere."""


def reference_class(name: str) -> type:
    """Return the class that the op of that name must equal; skip where its library cannot be used."""
    if library(REGISTRY[name]) == "audiomentations":
        return getattr(audiomentations, name)
    if why_unavailable():
        pytest.skip(why_unavailable())
    return transform_class(name)


def differences(kind: type[Op], reference: type) -> list[str]:
    """Return in words how an op's fields differ from a class's constructor arguments.

    Of its ``**kwargs`` an op may make one field of that name, ``None`` by default.
    """
    ours = {field.name: _default(field.default, dataclasses.MISSING) for field in dataclasses.fields(kind)}
    parameters = inspect.signature(reference.__init__).parameters
    theirs = {
        name: None if parameter.kind is parameter.VAR_KEYWORD else _default(parameter.default, inspect.Parameter.empty)
        for name, parameter in parameters.items()
        if name != "self" and (parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name in ours)
    }
    if kind.__name__ in OF_A_LIBRARY and library(kind) == "torch_audiomentations":
        theirs = {name: default for name, default in theirs.items() if name not in OF_THE_ENGINE}
    said = [f"{kind.__name__} has no {name}" for name in theirs if name not in ours]
    said += [f"{kind.__name__} has {name}, the reference has not" for name in ours if name not in theirs]
    for name in set(ours) & set(theirs):
        if ours[name] != theirs[name] or isinstance(ours[name], bool) != isinstance(theirs[name], bool):
            said.append(f"{kind.__name__}: {name} is {ours[name]!r} by default, {theirs[name]!r} in the reference")
    return said


def _default(value: Any, missing: Any) -> Any:
    return REQUIRED if value is missing else value


@pytest.mark.parametrize("name", OF_A_LIBRARY)
def test_fields_and_defaults_are_the_reference_arguments(name: str) -> None:
    assert not differences(REGISTRY[name], reference_class(name))


@pytest.mark.parametrize("name", OF_A_LIBRARY)
def test_multichannel_is_what_the_reference_supports(name: str) -> None:
    """A container says nothing of that: it supports what its children do."""
    reference = reference_class(name)
    assert example(REGISTRY[name]).capabilities.multichannel == getattr(reference, "supports_multichannel", True)


def test_a_field_may_hold_the_references_keyword_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audioaug.core.op.REGISTRY", {})  # the classes below register themselves

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Optional(Op):
        kwargs: dict[str, Any] | None = None

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Required(Op):
        kwargs: dict[str, Any]

    class Keywords:
        def __init__(self, p: float = 0.5, **kwargs: Any) -> None: ...

    class Plain:
        def __init__(self, p: float = 0.5) -> None: ...

    assert not differences(Optional, Keywords)
    assert differences(Required, Keywords) == ["Required: kwargs is 'required' by default, None in the reference"]
    assert differences(Optional, Plain) == ["Optional has kwargs, the reference has not"]


def test_the_comparison_sees_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audioaug.core.op.REGISTRY", {})  # the class below registers itself

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wrong(Op):
        low: float
        high: float = 2.0
        extra: int = 0

    class Right:
        def __init__(self, low: float = 1.0, high: float = 1.0, other: int = 0, p: float = 0.5) -> None: ...

    assert sorted(differences(Wrong, Right)) == [
        "Wrong has extra, the reference has not",
        "Wrong has no other",
        "Wrong: high is 2.0 by default, 1.0 in the reference",
        "Wrong: low is 'required' by default, 1.0 in the reference",
    ]
