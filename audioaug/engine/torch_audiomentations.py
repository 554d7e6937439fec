"""The torch-audiomentations engine: that library's transforms, fed with our draws, where it has a counterpart."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from audioaug.core import DeviceBatchInfo, Op, Params
from audioaug.errors import UsageError
from audioaug.ops._torch_reference import how_to_install, transform_class
from audioaug.ops._torch_reference import why_unavailable as why_unavailable

Batched = Callable[[torch.Tensor, Params, DeviceBatchInfo], torch.Tensor]


def has_counterpart(op: Op) -> bool:
    """Return whether torch-audiomentations has something in the op's place, or in one of its children's."""
    return op.torch_audiomentations() is not None or any(has_counterpart(child) for child in op.children)


class TorchAudiomentationsEngine:
    """One torch-audiomentations transform for each op that has a counterpart.

    Raises:
        UsageError: the library is not usable here, or no op has a counterpart.
    """

    def __init__(self, ops: Sequence[Op], sample_rate: int) -> None:
        if reason := why_unavailable():
            raise UsageError(reason, f"{how_to_install()} Or use the batched engine.")
        if not any(op.torch_audiomentations() for op in ops):
            raise UsageError("torch-audiomentations has no counterpart for any of these ops.", "Use engine='batched'.")
        self._batched = {place: _batched(op, sample_rate) for place, op in enumerate(ops) if op.torch_audiomentations()}

    def get(self, place: int, ours: Batched) -> Batched:
        """Return what to call for the op at that place: the counterpart, or our own where there is none."""
        return self._batched.get(place, ours)


def _batched(op: Op, sample_rate: int) -> Batched:
    counterpart = op.torch_audiomentations()
    assert counterpart is not None
    kind = transform_class(counterpart.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transform = kind(
            **counterpart.arguments, p=1.0, mode="per_example", sample_rate=sample_rate, output_type="dict"
        )
    transform.freeze_parameters()

    def apply(x_RCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        every = torch.ones(len(x_RCT), dtype=torch.bool, device=x_RCT.device)
        transform.transform_parameters = {"should_apply": every, **counterpart.parameters(x_RCT, params, batch)}
        key_R = None if counterpart.seed_from is None else params[counterpart.seed_from]
        with _seeded(x_RCT.device, key_R), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of mono, where channels are shuffled
            result: Any = transform(x_RCT, batch.sample_rate)
        return result.samples

    return apply


@contextlib.contextmanager
def _seeded(device: torch.device, key: torch.Tensor | None) -> Iterator[None]:
    """Seed torch's global generators for the library's noise, and put them back as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        if key is not None:
            seed = int(key[0])
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                torch.cuda.default_generators[device.index or 0].manual_seed(seed)
        yield
