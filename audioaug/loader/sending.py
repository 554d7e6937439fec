"""Sending: how a batch leaves its worker. One that cannot is a clear error in the training process, not a hang.

A worker hands its batches to a thread that pickles and sends them. If pickling fails there, Python only prints why: the
batch is lost, and torch waits for it forever. So a ``Message`` packs itself, and an error takes its place.

Torch moves every tensor to shared memory. The training process has to ask the worker for each one, and waits while the
worker computes. A small tensor is cheaper inside the message.
"""

import contextlib
import errno
import io
import pickle
import re
import shutil
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch

from audioaug.errors import AudioaugError, DataError, WorkerError, first_line
from audioaug.internals import named_dimensions

SHARED_MEMORY = Path("/dev/shm")
"""Where torch's workers allocate batches, on Linux, as ``torch_PID_...``."""

SMALL = 16 * 1024
"""Bytes up to which a tensor goes within the message: a pipe holds several of them."""

MAKE_ROOM = "Make it larger (docker run --shm-size=8g), or use fewer workers or a smaller prefetch_factor."


class _Pickler(ForkingPickler):
    """Pickles as torch's queues do, but for small tensors."""

    def reducer_override(self, value: Any) -> Any:
        """Return how a small tensor is pickled; leave all else to the reducers that torch registers."""
        if type(value) is torch.Tensor and not named_dimensions(value):
            with contextlib.suppress(TypeError, RuntimeError):  # numpy has no such type, layout or gradient
                if value.nbytes <= SMALL:
                    return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def packed(content: Any) -> bytes:
    """Pickle what a worker sends, or, where that fails, the error that the training process is to raise instead."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(content)
    except Exception as error:  # whatever the user's objects raise while they are pickled
        return pickle.dumps(_explained(error))
    return buffer.getvalue()


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
