"""Limits: what a worker needs of this machine, found out before one is started."""

import pickle
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

from audioaug.advise.target import Target
from audioaug.decide.limits import Needs
from audioaug.measure import files_open, free_shared_memory
from audioaug.train.device_prefetch import tensors
from audioaug.train.fetch import Message


def needs_of(target: Target, message: Message, start_method: str) -> Needs:
    """Return what a worker needs that sends such messages."""
    assert message.prepared is not None
    sent = [*tensors(message.batch), message.prepared.numbers]
    return Needs(
        batch_bytes=sum(tensor.nbytes for tensor in sent),
        batch_tensors=len(sent),
        files_open=files_open(),
        shared_free_bytes=free_shared_memory(),
        unpicklable="" if start_method == "fork" else why_unpicklable(target),
    )


def why_unpicklable(target: Target) -> str:
    """Name what cannot be sent to a worker that is not forked, and why; nothing if all can be."""
    parts = {"dataset": target.dataset, "collate_fn": target.collate_fn, "augment": target.chain}
    for name, part in parts.items():
        for path, value in _inside(name, part):
            if reason := _reason(value):
                kind = getattr(value, "__qualname__", None) or type(value).__qualname__
                return f"`{path}` ({kind}) does not pickle ({reason})"
    return ""


def _inside(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    """Yield what to blame, the innermost first: what an object holds, then itself."""
    if not _reason(part):
        return
    held = vars(part) if hasattr(part, "__dict__") and not isinstance(part, type) else {}
    for key, value in held.items():
        yield from _inside(f"{name}.{key}", value)
    yield name, part


def _reason(value: Any) -> str:
    """Return why an object does not pickle, in one line."""
    try:
        ForkingPickler.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError, ValueError, OSError) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return ""
