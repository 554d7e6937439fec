"""Prefetch: the next batch is copied and augmented on a side stream while this one trains; and which device that is.

``prefetch`` does this for a DataLoader of your own. Shapes: B examples, C channels, T samples.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from audioaug.engine import DeviceChain
from audioaug.errors import DataError, DeviceError, first_line
from audioaug.internals import is_failed_start
from audioaug.loader.examples import Field, audio_field, get_wave, has_own_to, item_of, with_item, with_wave
from audioaug.loader.failures_of_workers import expect_deaths
from audioaug.process import listen_for_interrupts, raise_dropped_interrupt, raise_postponed_death

Batch = TypeVar("Batch")
Moved = TypeVar("Moved")

HOW_TO_MOVE = "Define to(self, device, non_blocking=False); it returns the batch on that device."


def prefetch(
    loader: Iterable[Any],
    device: str | torch.device | None,
    module: DeviceChain,
    *,
    key: Field | None = None,
    epoch: int = 0,
    lengths: Field | None = None,
    audio_key: Field | None = None,
) -> Iterator[Any]:
    """Yield the batches of one epoch on the device, augmented by the module, one batch ahead.

    For use with a DataLoader of your own: ``worker, module = audioaug.split(chain, plan, seed)``, the worker in the
    Dataset or in ``collate_fn``, the module here. Given the same key and epoch, both produce the audio of ``Loader``,
    wherever the plan cuts. Batches should be in pinned memory, so that the copy overlaps with training.

    Args:
        loader: batches: a tensor, a tuple that starts with it, or a dict with it under ``"audio"`` (see ``audio_key``).
            All other tensors are copied to the device too, and objects of custom types by their own ``to``.
        device: ``"cuda"`` and the like; the GPU, if there is one, for ``None``.
        module: the device part; in ``eval`` mode it returns the audio unchanged.
        key: the field of a batch with the examples' keys, from which their draws follow: their dataset indices, (B,)
            on the CPU, or a list of B integers, strings or bytes. By default, the module draws anew for every batch.
        epoch: the epoch that the worker part was given; only used with ``key``.
        lengths: the field of a batch with the clips' lengths, (B,) integers in samples on the CPU, if it is padded;
            replaced by the new lengths.
        audio_key: the field of a batch with the audio; by default, found as ``Loader`` finds it in an example.

    Shape:
        audio in a batch: (B, T) or (B, C, T), as in the input.

    Raises:
        DeviceError: there is no such device.
        DataError: a batch lacks the audio, keys or lengths, or lengths are not integers from 0 to T.

    Examples:
        >>> import torch
        >>> import audioaug
        >>> chain = audioaug.Chain([audioaug.ops.Gain(p=1.0), audioaug.ops.Reverse(p=1.0)], sample_rate=16000)
        >>> worker, module = audioaug.split(chain, audioaug.Plan(cut=1))
        >>> dataset = [(worker(torch.ones(4).numpy(), key=k), 7, k) for k in range(6)]
        >>> batches = audioaug.prefetch(torch.utils.data.DataLoader(dataset, batch_size=3), "cpu", module, key=2)
        >>> [(wave.shape, label.tolist()) for wave, label, index in batches]
        [(torch.Size([3, 4]), [7, 7, 7]), (torch.Size([3, 4]), [7, 7, 7])]
    """
    chosen = as_device(device)
    what, next_step = "A batch", "Give prefetch the key or position."

    def finish(batch: Any) -> Any:
        key_B = None if key is None else item_of(batch, key, what, next_step)
        length_B = None if lengths is None else item_of(batch, lengths, what, next_step)
        moved, field = to_device(batch, chosen), audio_field(batch, audio_key, what)
        wave, length_B = module(_wave(moved, field), lengths=length_B, return_lengths=True, key=key_B, epoch=epoch)
        return with_wave(moved if lengths is None else with_item(moved, lengths, length_B), wave, field)

    return _interruptible(loader, lambda batches: run_ahead(batches, chosen, finish))


def _interruptible(loader: Iterable[Any], run: Callable[[Iterator[Any]], Iterator[Batch]]) -> Iterator[Batch]:
    """Yield what ``run`` makes of batches; after a Ctrl-C that Python has dropped, raise it instead of the next one.

    Or instead of torch's error: workers that are the user's own end by a Ctrl-C, too.
    """

    def check(batch: Batch) -> Batch:
        raise_postponed_death()
        raise_dropped_interrupt()
        return batch

    listen_for_interrupts(is_failed_start)
    if getattr(loader, "num_workers", 0):
        expect_deaths()
    try:
        batches = iter(loader)
        raise_postponed_death()
        yield from map(check, run(batches))
    except RuntimeError as error:
        raise_dropped_interrupt(error)
        raise


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

    The side stream first waits for the steps that the training stream has been given: all but the one that trains on
    the batch before. So it is not further ahead, and the memory of a batch, which is the side stream's, is not reused
    before its step has ended, whatever types hold it.

    Args:
        batches: in pinned memory, so that the copy overlaps with training.
        device: where ``finish`` puts them.
        finish: copies a batch and runs the device part on it. It must not synchronize with the device.
    """
    if device.type != "cuda":
        yield from map(finish, batches)
        return
    ready: tuple[Moved, torch.cuda.Event] | None = None
    for batch in batches:
        training = torch.cuda.current_stream(device)
        side = _side_stream(device, training)
        side.wait_stream(training)
        with torch.cuda.stream(side):
            launched = finish(batch), side.record_event()
        if ready is not None:
            yield _hand_over(*ready, device)
        ready = launched
    if ready is not None:
        yield _hand_over(*ready, device)


@functools.lru_cache(maxsize=16)
def _side_stream(device: torch.device, training: torch.cuda.Stream) -> torch.cuda.Stream:
    """Return the side stream beside a training stream: one for all epochs, since each keeps freed memory of its own."""
    return torch.cuda.Stream(device)


def _hand_over(batch: Moved, done: torch.cuda.Event, device: torch.device) -> Moved:
    """Make the training stream wait for the batch."""
    torch.cuda.current_stream(device).wait_event(done)
    return batch


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor of a nested batch, those in attributes of custom types included."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping | tuple | list) or has_own_to(batch):
        for value in _values(batch):
            yield from tensors(value)


def _values(content: Any) -> Iterable[Any]:
    """Return the values in a container, or those of an object's attributes."""
    if isinstance(content, Mapping | Sequence):
        return content.values() if isinstance(content, Mapping) else content
    names = (*getattr(content, "__dict__", ()), *getattr(type(content), "__slots__", ()))
    return [getattr(content, name, None) for name in names]


def unpinned_types(batch: Any) -> set[str]:
    """Return the names of types with tensors that torch's DataLoader does not pin: custom ones without ``pin_memory``.

    It pins tensors, containers of them, and whatever has a ``pin_memory`` method.
    """
    if isinstance(batch, torch.Tensor | str | bytes) or hasattr(batch, "pin_memory"):
        return set()
    if isinstance(batch, Mapping | Sequence):
        return set[str]().union(*map(unpinned_types, _values(batch)))
    return {type(batch).__name__} if any(True for value in _values(batch) for _ in tensors(value)) else set()


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a nested batch with every tensor on the device; custom types are copied, then moved by their own ``to``.

    Raises:
        DataError: the ``to`` of a custom type does not accept a device, or returns nothing.
    """
    return map_leaves(lambda tensor: tensor.to(device, non_blocking=True), lambda part: _moved(part, device), batch)


def _moved(part: Any, device: torch.device) -> Any:
    """Return a copy of an object, moved by its own ``to``, which may change the object that it is called on."""
    name = f"{type(part).__name__}.to({str(device)!r})"
    options = {"non_blocking": True} if _accepts(type(part).to, "non_blocking") else {}
    try:
        moved = copy.copy(part).to(device, **options)
    except TypeError as error:
        raise DataError(f"{name} failed: {first_line(error)}.", HOW_TO_MOVE) from error
    if moved is None:
        raise DataError(f"{name} returned None.", HOW_TO_MOVE)
    return moved


def _accepts(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of this name, or accepts any; not if it has no readable signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of some functions in C
        return False
    return any(it.name == name or it.kind is it.VAR_KEYWORD for it in parameters)


def map_leaves(on_tensor: Callable[[torch.Tensor], Any], on_custom: Callable[[Any], Any], batch: Any) -> Any:
    """Return a nested batch with each tensor, and each object of a custom type, replaced by a function of it."""
    if isinstance(batch, torch.Tensor):
        return on_tensor(batch)
    if has_own_to(batch):
        return on_custom(batch)
    if isinstance(batch, Mapping):
        return {key: map_leaves(on_tensor, on_custom, value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        items = (map_leaves(on_tensor, on_custom, value) for value in batch)
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
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
        raise DeviceError("This machine has no usable CUDA device.", "Use device cpu; see audioaug doctor.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"There is no {chosen}: this machine has {torch.cuda.device_count()} CUDA device(s).")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("This machine has no MPS device.", "Use device cpu.")
    return chosen
