"""Declarations of an op that do not hold are refused when it is defined or first used, never worked around."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import audioaug.core
from audioaug import Chain, build_cpu, build_device
from audioaug.core import (
    FLOATS,
    HOST_ONLY,
    INTS,
    LENGTHS,
    MEASURED_LENGTHS,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    Distribution,
    ListType,
    Op,
    OptionalType,
    Params,
    ParamType,
    Uniform,
    UniformInt,
)
from audioaug.core.params import of_one
from audioaug.errors import ParamError

RATE = 16000
AS_DECLARED: dict[str, Any] = {
    "gain": np.ones(3),
    "start": np.arange(3),
    "steps": 4,
    "cuts": (1, 2),
    "note": {"any": "thing"},
}
TYPES = {"gain": FLOATS, "start": INTS, "steps": STATIC, "cuts": STATIC, "note": HOST_ONLY}


def op_that(returns: Params, types: Mapping[str, ParamType], can: Capabilities | None = None) -> Op:
    """Return an op whose ``resolve`` returns these parameters and that declares these types."""

    @dataclass(frozen=True, kw_only=True)
    class Planted(Op, registry=None):
        contract = Contract.exact(rtol=0.0)
        capabilities = can or Capabilities()
        param_types = types

        def resolve(self, draw: Params, batch: BatchInfo) -> Params:
            return returns

        def batched(self, x_BCT: torch.Tensor, params: Params, batch: Any) -> torch.Tensor:
            seen.append(params)
            return x_BCT

        def reference(self) -> Any:
            return type("Reference", (), {"freeze_parameters": lambda self: None, "__call__": lambda *a: a[1]})()

    seen = list[Params]()
    op = Planted(p=1.0)
    object.__setattr__(op, "seen", seen)
    return op


def run(op: Op) -> Params:
    """Run the device build and return the parameters that reach ``batched``."""
    build_device(Chain([op], RATE))(torch.ones(3, 1, 8))
    return op.seen[-1]  # type: ignore[attr-defined,no-any-return]


def test_parameters_reach_the_device_with_their_declared_types() -> None:
    params = run(op_that(AS_DECLARED, TYPES))
    assert params["gain"].dtype == torch.float32 and params["gain"].tolist() == [1.0, 1.0, 1.0]
    assert params["start"].dtype == torch.int64 and params["start"].tolist() == [0, 1, 2]
    assert (params["steps"], params["cuts"]) == (4, (1, 2)) and "note" not in params


@pytest.mark.parametrize("name", ["gain_key", "length_out", "rows_0", "code_key", "noise_key"])
def test_the_spelling_of_a_name_decides_nothing(name: str) -> None:
    params = run(op_that({name: np.full(3, 0.5)}, {name: FLOATS}))
    assert params[name].dtype == torch.float32 and params[name].tolist() == [0.5] * 3


WRONG = {
    "an integer array for floats": ({"gain": np.arange(3)}, r"'gain' as ndarray of int64, shape \(3,\), .* FLOATS"),
    "a float array for integers": ({"start": np.ones(3)}, r"'start' as ndarray of float64, .* INTS"),
    "a float for an integer": ({"steps": 4.0}, r"'steps' as float 4.0, .* STATIC"),
    "a float for an array": ({"gain": 1.0}, r"'gain' as float 1.0, .* FLOATS"),
    "a tensor for an array": ({"gain": torch.ones(3)}, r"'gain' as Tensor of torch.float32, .* FLOATS"),
    "two dimensions": ({"gain": np.ones((3, 2))}, r"'gain' as ndarray of float64, shape \(3, 2\), .* FLOATS"),
    "floats in a tuple": ({"cuts": (1, 2.0)}, r"'cuts' as tuple \(1, 2.0\), .* STATIC"),
    "numpy's integer": ({"steps": np.int64(4)}, r"'steps' as int64 .*, .* STATIC"),
    "undeclared": ({"extra": np.ones(3)}, r"'extra', ndarray .* does not declare"),
    "an undeclared number": ({"extra": 2.0}, r"'extra', float 2.0, .* does not declare"),
}


@pytest.mark.parametrize("build", [run, lambda op: build_cpu(Chain([op], RATE))(np.ones(8, np.float32))])
@pytest.mark.parametrize("fault", WRONG)
def test_a_parameter_other_than_declared_is_refused_by_both_builds(fault: str, build: Any) -> None:
    change, sentence = WRONG[fault]
    with pytest.raises(ParamError, match=f"Planted: resolve returns {sentence}"):
        build(op_that({**AS_DECLARED, **change}, TYPES))


def test_a_missing_parameter_is_refused_unless_it_is_optional() -> None:
    without = {name: value for name, value in AS_DECLARED.items() if name != "gain"}
    with pytest.raises(ParamError, match=r"Planted: resolve returns no 'gain', which param_types declares as FLOATS"):
        run(op_that(without, TYPES))
    assert "gain" not in run(op_that(without, {**TYPES, "gain": OptionalType(FLOATS)}))
    with pytest.raises(ParamError, match="declares it as optional FLOATS"):
        run(op_that({**without, "gain": np.arange(3)}, {**TYPES, "gain": OptionalType(FLOATS)}))


@dataclass
class Item:
    rows: Any
    cut: int


def test_dataclasses_are_packed_field_by_field() -> None:
    items = ListType(Item, (("rows", INTS), ("cut", STATIC)))
    params = run(op_that({"items": [Item(np.arange(2), 3), Item(np.arange(3), 0)]}, {"items": items}))
    assert [(each.rows.tolist(), each.cut) for each in params["items"]] == [([0, 1], 3), ([0, 1, 2], 0)]
    for wrong in ([Item(np.ones(2), 3)], [Item(np.arange(2), 0.5)], [3], Item(np.arange(2), 3)):  # type: ignore[arg-type]
        with pytest.raises(ParamError, match="declares it as list of Item"):
            run(op_that({"items": wrong}, {"items": items}))


def test_resolve_without_types_is_refused_when_the_op_is_defined() -> None:
    with pytest.raises(ParamError, match="Undeclared has resolve, but no param_types"):

        class Undeclared(Op, registry=None):
            def resolve(self, draw: Params, batch: BatchInfo) -> Params:
                return draw

    with pytest.raises(ParamError, match="Misdeclared: param_types declares 'gain' as <class 'float'>"):

        class Misdeclared(Op, registry=None):
            param_types = {"gain": float}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("can", "types", "sentence"),
    [
        (Capabilities(changes_timing=True), {}, "state changes_timing, but it has no method timeline"),
        (Capabilities(mixes_examples=True), {}, "state mixes_examples, but it has no method mixing"),
        (Capabilities(linear=True), {}, "state linear, but it has no method linear"),
        (Capabilities(length_depends_on_audio=True), {}, "but it has no method measure"),
        (Capabilities(changes_length=True), {}, "changes_length=True, .* declares no LENGTHS"),
        (Capabilities(), {"lengths": LENGTHS}, "changes_length=False, .* declares LENGTHS"),
        (Capabilities(changes_length=True), {"lengths": MEASURED_LENGTHS}, "length_depends_on_audio=False"),
    ],
)
def test_capabilities_that_contradict_the_methods_are_refused(
    can: Capabilities, types: Mapping[str, ParamType], sentence: str
) -> None:
    with pytest.raises(ParamError, match=sentence):
        run(op_that(dict.fromkeys(types, np.full(3, 8)), types, can))


def test_without_resolve_draws_arrive_by_the_types_of_their_distributions() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Drawn(Op, registry=None):
        contract = Contract.exact(rtol=0.0)

        def distributions(self) -> dict[str, Distribution]:
            return {"real": Uniform(0.0, 1.0), "whole": UniformInt(2**52 - 1, 2**52 - 1)}

        def batched(self, x_BCT: torch.Tensor, params: Params, batch: Any) -> torch.Tensor:
            seen.append(params)
            return x_BCT

    seen = list[Params]()
    build_device(Chain([Drawn(p=1.0)], RATE))(torch.ones(3, 1, 8))
    assert seen[0]["real"].dtype == torch.float32 and seen[0]["whole"].tolist() == [2**52 - 1] * 3


def test_one_clip_gets_its_own_numbers() -> None:
    assert of_one({"gain": np.asarray([0.5]), "steps": 3}) == {"gain": 0.5, "steps": 3}


def test_an_op_has_at_most_twenty_public_members() -> None:
    public = [name for name in {*dir(Op), *Op.__annotations__} if not name.startswith("_")]
    assert len(public) <= 20, sorted(public)
    assert len(audioaug.core.__all__) == len(set(audioaug.core.__all__))
