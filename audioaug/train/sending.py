"""Sending: how a batch leaves its worker. One that cannot is a clear error in the training process, not a hang.

A worker hands its batches to a thread that pickles and sends them. What fails there Python only prints: the batch is
lost, and torch waits for it forever.

Torch moves every tensor to shared memory, for which the training process has to ask the worker, each one by itself, and
wait while the worker computes. Small ones are cheaper within the message.
"""

import errno
import re
import shutil
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from audioaug.errors import AudioaugError, DataError, WorkerError, first_line

SHARED_MEMORY = Path("/dev/shm")
"""Where torch's workers allocate batches, on Linux, as ``torch_PID_...``."""

SMALL = 16 * 1024
"""Bytes up to which a tensor goes within the message: a pipe holds several of them."""

MAKE_ROOM = "Make it larger (docker run --shm-size=8g), or use fewer workers or a smaller prefetch_factor."


def send_errors_instead() -> None:
    """Let this process, a worker, send an error in the place of each batch that cannot be sent."""
    Queue._on_queue_feeder_error = _send_error  # type: ignore[attr-defined]  # a hook made to be overridden


def send_small_tensors_within() -> None:
    """Let this process, a worker, send small tensors as part of the message, and only large ones by shared memory."""
    ForkingPickler.register(torch.Tensor, _reduced)


def _reduced(tensor: torch.Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    try:
        if tensor.nbytes <= SMALL and not tensor.has_names():
            return torch.from_numpy, (tensor.numpy(),)
    except (TypeError, RuntimeError):  # numpy has no such type, layout or gradient
        pass
    return reduce_tensor(tensor)


def _send_error(queue: Any, error: Exception, item: Any) -> None:
    number, _ = item
    queue.put((number, _explained(error)))


def _explained(error: Exception) -> AudioaugError:
    return no_room(error) or DataError(
        f"A worker cannot send a batch: {type(error).__name__} ({first_line(error)}).",
        "Return what can be pickled from the dataset and collate_fn, or use num_workers=0.",
    )


def no_room(error: Exception) -> WorkerError | None:
    """Return what to say of an exception that shared memory without room for a batch has caused, if it has.

    The file that torch could not fill, and leaves there, is removed.
    """
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if not full and "unable to allocate shared memory" not in str(error):
        return None
    if file := re.search(r"<(/torch_\w+)>", str(error)):
        SHARED_MEMORY.joinpath(file[1][1:]).unlink(missing_ok=True)
    room = ""
    if SHARED_MEMORY.exists():
        usage = shutil.disk_usage(SHARED_MEMORY)
        room = f" ({usage.free / 2**20:.1f} of {usage.total / 2**20:.1f} MiB are free)"
    return WorkerError(f"Shared memory, {SHARED_MEMORY}, has no room for a batch of a worker{room}.", MAKE_ROOM)
