"""Prefetch: the next batch is copied and augmented on a side stream while this one trains; and which device that is.

``prefetch`` does this for a DataLoader of your own. Shapes: B examples, C channels, T samples.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from audioaug.engine import DeviceChain
from audioaug.errors import DataError, DeviceError
from audioaug.loader.examples import Field, audio_field, get_wave, item_of, with_item, with_wave

Batch = TypeVar("Batch")
Moved = TypeVar("Moved")


def prefetch(
    loader: Iterable[Any],
    device: str | torch.device | None,
    module: DeviceChain,
    *,
    index: Field | None = None,
    epoch: int = 0,
    lengths: Field | None = None,
    audio_key: Field | None = None,
) -> Iterator[Any]:
    """Yield the batches of one epoch on the device, augmented by the module, one batch ahead.

    For use with a DataLoader of your own: ``worker, module = audioaug.split(chain, plan, seed)``, the worker in the
    Dataset or in ``collate_fn``, the module here. Given the same index and epoch, both produce the audio of ``Loader``,
    wherever the plan cuts. Batches should be in pinned memory, so that the copy overlaps with training.

    Args:
        loader: batches: a tensor, a tuple that starts with it, or a dict with it under ``"audio"`` (see ``audio_key``).
            All other tensors are copied to the device too.
        device: ``"cuda"`` and the like; the GPU, if there is one, for ``None``.
        module: the device part; in ``eval`` mode it returns the audio unchanged.
        index: the field of a batch with the examples' dataset indices, (B,) on the CPU, from which their draws follow.
            By default, the module draws anew for every batch.
        epoch: the epoch that the worker part was given; only used with ``index``.
        lengths: the field of a batch with the clips' lengths, (B,) integers in samples on the CPU, if it is padded;
            replaced by the new lengths.
        audio_key: the field of a batch with the audio; by default, found as ``Loader`` finds it in an example.

    Shape:
        audio in a batch: (B, T) or (B, C, T), as in the input.

    Raises:
        DeviceError: there is no such device.
        DataError: a batch lacks the audio, index or lengths, or lengths are not integers from 0 to T.

    Examples:
        >>> import torch
        >>> import audioaug
        >>> chain = audioaug.Chain([audioaug.ops.Gain(p=1.0), audioaug.ops.Reverse(p=1.0)], sample_rate=16000)
        >>> worker, module = audioaug.split(chain, audioaug.Plan(cut=1))
        >>> dataset = [(worker(torch.ones(4).numpy(), index=k), 7, k) for k in range(6)]
        >>> batches = audioaug.prefetch(torch.utils.data.DataLoader(dataset, batch_size=3), "cpu", module, index=2)
        >>> [(wave.shape, label.tolist()) for wave, label, index in batches]
        [(torch.Size([3, 4]), [7, 7, 7]), (torch.Size([3, 4]), [7, 7, 7])]
    """
    chosen = as_device(device)
    what, next_step = "A batch", "Give prefetch the key or position."

    def finish(batch: Any) -> Any:
        index_B = None if index is None else item_of(batch, index, what, next_step)
        length_B = None if lengths is None else item_of(batch, lengths, what, next_step)
        moved, key = to_device(batch, chosen), audio_field(batch, audio_key, what)
        wave, length_B = module(_wave(moved, key), lengths=length_B, return_lengths=True, index=index_B, epoch=epoch)
        return with_wave(moved if lengths is None else with_item(moved, lengths, length_B), wave, key)

    return run_ahead(loader, chosen, finish)


def _wave(batch: Any, key: Field | None) -> torch.Tensor:
    wave = get_wave(batch, key)
    if not isinstance(wave, torch.Tensor):
        raise DataError(
            f"Expected the audio of a batch to be one tensor, (B, T) or (B, C, T), got {type(wave).__name__}.",
            "Let collate_fn stack the waves.",
        )
    return wave


def run_ahead(batches: Iterable[Batch], device: torch.device, finish: Callable[[Batch], Moved]) -> Iterator[Moved]:
    """Yield ``finish(batch)`` for each batch; on CUDA, one batch ahead and on a side stream.

    Args:
        batches: in pinned memory, so that the copy overlaps with training.
        device: where ``finish`` puts them.
        finish: copies a batch and runs the device part on it. It must not synchronize with the device.
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
    """Make the training stream wait for the batch, and keep its memory from being reused before that."""
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
    """Return a nested batch with ``function(tensor)`` in place of every tensor."""
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
    """Return a device by its name; for ``None`` and "auto" the GPU if there is one.

    Raises:
        DeviceError: this machine has no such device, or audio cannot be augmented on it.
    """
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
        raise DeviceError("This machine has no usable CUDA device.", "Use --device cpu; see audioaug doctor.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"There is no {chosen}: this machine has {torch.cuda.device_count()} CUDA device(s).")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("This machine has no MPS device.", "Use --device cpu.")
    return chosen
