"""Examples that are not as the others: odd samples, shapes, types and devices, in mid-epoch."""

from typing import Any

import numpy as np
import torch

from audioaug import Chain, Plan, ops
from audioaug.errors import AudioaugError
from tests.campaign.case import (
    CHAIN,
    COUNT,
    LOADERS,
    RATE,
    SAMPLES,
    Case,
    check_all,
    check_once,
    check_sentence,
    clip,
    indices,
)
from tests.campaign.faults import Violation, kind

WORKERS = (0, 0, 0, 0, 0, 0, 1, 2)
WHERE: dict[str, Any] = {"workers": WORKERS, "index": tuple(range(COUNT)), "cut": (0, 1, 3)}
ODD = {
    "NaN": float("nan"),
    "infinite": float("inf"),
    "-infinite": float("-inf"),
    "denormal": 1e-42,
    "largest": 3.4e38,
    "negative zero": -0.0,
}
WIDE = Chain(
    [ops.Gain(p=1.0), ops.LowPassFilter(p=1.0), ops.Normalize(p=1.0), ops.TanhDistortion(p=1.0), ops.TimeMask(p=1.0)],
    RATE,
)


def waves(batches: Any) -> dict[int, torch.Tensor]:
    """Return the audio of each example."""
    return {int(index): wave for batch in batches for index, wave in zip(batch["index"], batch["audio"])}


@kind(
    "odd samples",
    LOADERS[:5],
    weight=6,
    sample=tuple(ODD),
    share=(0.01, 0.5, 1.0),
    engine=("audiomentations", "batched"),
    **WHERE,
)
def odd_samples(case: Case) -> str:
    """Only the example itself may become odd."""
    odd = case.values["index"]

    def read(index: int) -> dict[str, Any]:
        example = clip(index)
        if index == odd:
            places = torch.randperm(SAMPLES)[: max(1, round(case.values["share"] * SAMPLES))]
            example["audio"][places] = ODD[case.values["sample"]]
        return example

    try:
        found = waves(case.batches(read, chain=WIDE))
    except AudioaugError as error:
        return check_sentence(error, f"xample {odd}", f"clip-{odd}", f" {odd} ", "clip")
    check_all(list(found))
    expected = waves(case.batches(chain=WIDE))
    for index in set(expected) - {odd}:
        if not torch.allclose(found[index], expected[index], rtol=1e-4, atol=1e-5):
            raise Violation("lost or twice", f"example {index} changed because {odd} is {case.values['sample']}")
    return "delivered"


class Custom:
    """No tensor at all."""


SHAPES: dict[str, Any] = {
    "longer": lambda: torch.zeros(SAMPLES + 1),
    "shorter": lambda: torch.zeros(3),
    "empty": lambda: torch.zeros(0),
    "two channels": lambda: torch.zeros(2, SAMPLES),
    "one channel": lambda: torch.zeros(1, SAMPLES),
    "no channel": lambda: torch.zeros(0, SAMPLES),
    "scalar": lambda: torch.tensor(1.0),
    "three axes": lambda: torch.zeros(1, 1, SAMPLES),
}
TYPES: dict[str, Any] = {
    "float64": lambda: torch.zeros(SAMPLES, dtype=torch.float64),
    "float16": lambda: torch.zeros(SAMPLES, dtype=torch.float16),
    "bfloat16": lambda: torch.zeros(SAMPLES, dtype=torch.bfloat16),
    "int16": lambda: torch.zeros(SAMPLES, dtype=torch.int16),
    "uint8": lambda: torch.zeros(SAMPLES, dtype=torch.uint8),
    "bool": lambda: torch.zeros(SAMPLES, dtype=torch.bool),
    "complex64": lambda: torch.zeros(SAMPLES, dtype=torch.complex64),
    "numpy": lambda: np.zeros(SAMPLES, np.float32),
    "numpy, reversed": lambda: np.zeros(SAMPLES, np.float32)[::-1],
    "numpy, big endian": lambda: np.zeros(SAMPLES, ">f4"),
    "numpy, read only": lambda: np.frombuffer(bytes(4 * SAMPLES), np.float32),
    "numpy, objects": lambda: np.zeros(SAMPLES, object),
    "list": lambda: [0.0] * SAMPLES,
    "None": lambda: None,
    "text": lambda: "audio",
    "bytes": lambda: b"audio",
    "custom": Custom,
    "dict": dict,
}
DEVICES: dict[str, Any] = {
    "meta": lambda: torch.zeros(SAMPLES, device="meta"),
    "sparse": lambda: torch.zeros(SAMPLES).to_sparse(),
    "with gradient": lambda: torch.zeros(SAMPLES, requires_grad=True),
    "not contiguous": lambda: torch.zeros(SAMPLES, 2)[:, 0],
    "expanded": lambda: torch.zeros(1).expand(SAMPLES),
    "shared": lambda: torch.zeros(SAMPLES).share_memory_(),
    "inference": lambda: torch.inference_mode()(torch.zeros)(SAMPLES),
}


def one_differs(case: Case, make: Any) -> str:
    """Run an epoch in which one example is another thing, then one in which it is not."""
    odd, is_odd = case.values["index"], [True]

    def read(index: int) -> Any:
        return {**clip(index), "audio": make()} if index == odd and is_odd[0] else clip(index)

    batches = case.batches(read)
    try:
        found = indices(batches)
    except AudioaugError as error:
        ended = check_sentence(error)
    except Exception as error:
        if case.target != "prefetch":
            raise Violation("traceback", f"{type(error).__name__}: {str(error)[-600:]}") from error
        ended = f"{type(error).__name__} of torch"
    else:
        check_all(found)
        ended = "delivered"
    is_odd[0] = False
    if not case.plan.num_workers or not case.plan.persistent_workers:
        check_all(indices(batches), verdict="next run")
    return ended


@kind("shape changes", LOADERS, weight=5, to=tuple(SHAPES), on_error=("raise", "skip"), **WHERE)
def shape(case: Case) -> str:
    return any_but_skipped(case, SHAPES[case.values["to"]])


@kind("dtype changes", LOADERS, weight=6, to=tuple(TYPES), on_error=("raise",), **WHERE)
def dtype(case: Case) -> str:
    return one_differs(case, TYPES[case.values["to"]])


@kind("device changes", LOADERS, weight=3, to=tuple(DEVICES), on_error=("raise",), **WHERE)
def device(case: Case) -> str:
    return one_differs(case, DEVICES[case.values["to"]])


def any_but_skipped(case: Case, make: Any) -> str:
    """The same, where the example may be left out."""
    if case.values["on_error"] == "raise":
        return one_differs(case, make)
    odd = case.values["index"]
    batches = case.batches(lambda index: {**clip(index), "audio": make()} if index == odd else clip(index))
    try:
        found = indices(batches)
    except AudioaugError as error:
        return check_sentence(error)
    except Exception as error:
        if case.target != "prefetch":
            raise Violation("traceback", f"{type(error).__name__}: {str(error)[-600:]}") from error
        return f"{type(error).__name__} of torch"
    check_once(found, range(COUNT))
    if set(range(COUNT)) - set(found) - {odd}:
        raise Violation("lost or twice", f"delivered {sorted(found)}, {odd} differs")
    return "delivered" if odd in found else "left out"


BATCHES: dict[str, Any] = {
    "no audio": lambda: {"index": torch.arange(4)},
    "None": lambda: None,
    "text": lambda: "batch",
    "integers": lambda: {"audio": torch.zeros(4, 9, dtype=torch.int64), "index": torch.arange(4)},
    "four axes": lambda: {"audio": torch.zeros(4, 1, 1, 9), "index": torch.arange(4)},
    "too few keys": lambda: {"audio": torch.zeros(4, 9), "index": torch.arange(3)},
    "keys of floats": lambda: {"audio": torch.zeros(4, 9), "index": torch.zeros(4)},
    "no keys": lambda: {"audio": torch.zeros(4, 9)},
    "keys None": lambda: {"audio": torch.zeros(4, 9), "index": None},
    "empty": lambda: {"audio": torch.zeros(0, 9), "index": torch.zeros(0, dtype=torch.int64)},
    "no samples": lambda: {"audio": torch.zeros(4, 0), "index": torch.arange(4)},
    "lengths too long": lambda: {"audio": torch.zeros(4, 9), "index": torch.arange(4), "n": torch.full((4,), 10)},
    "lengths negative": lambda: {"audio": torch.zeros(4, 9), "index": torch.arange(4), "n": torch.full((4,), -1)},
    "lengths of floats": lambda: {"audio": torch.zeros(4, 9), "index": torch.arange(4), "n": torch.ones(4)},
    "tuple": lambda: (torch.zeros(4, 9), torch.arange(4)),
}


@kind("odd batch", ["prefetch"], weight=3, batch=tuple(BATCHES), place=(0, 1, 3))
def odd_batch(case: Case) -> str:
    """A DataLoader of the user's own delivers what is no batch."""
    from audioaug import build_device, prefetch

    good = [{"audio": torch.zeros(4, 9), "index": torch.arange(4) + 4 * k, "n": torch.full((4,), 9)} for k in range(4)]
    bad = list(good)
    bad[case.values["place"]] = BATCHES[case.values["batch"]]()
    lengths = "n" if "lengths" in case.values["batch"] else None
    make = lambda batches: prefetch(batches, "cpu", build_device(CHAIN), key="index", lengths=lengths)  # noqa: E731
    try:
        count = len(list(make(bad)))
    except AudioaugError as error:
        ended = check_sentence(error)
    else:
        if count != 4:
            raise Violation("lost or twice", f"{count} of 4 batches")
        ended = "delivered"
    check_all(indices(make(good)), 16, "next run")
    return ended


@kind(
    "odd plan",
    ["Loader, map", "Loader, keyed"],
    weight=2,
    cut=(-1, 0, 3, 4, 10**9),
    workers=(-1, 0),
    engine=("batched", "none", "audiomentations"),
)
def odd_plan(case: Case) -> str:
    """A plan with values out of range."""
    values = case.values
    try:
        Plan(cut=values["cut"], num_workers=values["workers"], worker_engine=values["engine"])
        found = indices(case.batches())
    except AudioaugError as error:
        return check_sentence(error)
    check_all(found)
    return "delivered"
