"""Device prefetch: the next batch is copied and augmented on a side stream while this one trains. And: which device."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from audioaug.errors import DeviceError

Batch = TypeVar("Batch")
Moved = TypeVar("Moved")


def run_ahead(batches: Iterable[Batch], device: torch.device, finish: Callable[[Batch], Moved]) -> Iterator[Moved]:
    """Yield ``finish(batch)`` for each batch; on CUDA, one batch ahead and on a stream of its own.

    Args:
        batches: from pinned memory, so that the copy can overlap.
        device: where ``finish`` puts them.
        finish: copies a batch and runs the device part on it. It must not wait for the device.
    """
    if device.type != "cuda":
        yield from map(finish, batches)
        return
    side = torch.cuda.Stream(device)
    ready: tuple[Moved, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(side):
            launched = finish(batch), side.record_event()
        if ready is not None:
            yield _hand_over(*ready, device)
        ready = launched
    if ready is not None:
        yield _hand_over(*ready, device)


def _hand_over(batch: Moved, done: torch.cuda.Event, device: torch.device) -> Moved:
    """Make the training stream wait for the batch, and keep its memory from being reused too early."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(done)
    for tensor in tensors(batch):
        tensor.record_stream(stream)
    return batch


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor of a nested batch."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from tensors(value)


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a nested batch with every tensor on the device."""
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), batch)


def map_tensors(function: Callable[[torch.Tensor], Any], batch: Any) -> Any:
    """Return a nested batch with ``function(tensor)`` in the place of every tensor."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, value) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(map_tensors(function, value) for value in batch)
    return batch


def as_device(device: str | torch.device | None) -> torch.device:
    """Return the device, the GPU if ``None`` or "auto" is given and there is one; raise ``DeviceError`` otherwise."""
    if device in (None, "auto"):
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device(kind)
    try:
        chosen = torch.device(str(device))
    except RuntimeError:
        raise DeviceError(f"There is no device {device!r}.", "Use auto, cpu, cuda, cuda:N or mps.") from None
    if chosen.type not in ("cpu", "cuda", "mps"):
        raise DeviceError(f"Audio cannot be augmented on {chosen}.", "Use auto, cpu, cuda, cuda:N or mps.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            "This machine has no usable CUDA device.", "Use --device cpu; python -m audioaug.doctor tells more."
        )
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"There is no {chosen}: this machine has {torch.cuda.device_count()} CUDA device(s).")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("This machine has no MPS device.", "Use --device cpu.")
    return chosen
