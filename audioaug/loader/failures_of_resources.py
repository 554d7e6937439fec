"""Failures of resources: too little memory, shared memory or open files becomes one clear error.

Workers send batches through shared memory, whose files the training process opens.
"""

import errno
import re
import shutil
from pathlib import Path

from audioaug.errors import WorkerError, modules_of, text_of
from audioaug.measure.host import most_open_files
from audioaug.writing import TOO_MANY_FILES

SHARED_MEMORY = Path("/dev/shm")
"""Where torch's workers allocate batches, on Linux, as ``torch_PID_...``."""

MORE_SHARED_MEMORY = "Make it larger (docker run --shm-size=8g), or use fewer workers or a smaller prefetch_factor."
LESS_MEMORY = "Use fewer workers, smaller batches or a smaller prefetch_factor, or raise the limit (ulimit -v)."

NO_FILE_LEFT = re.compile(
    r"shared memory object .*Too many open files|Too many open files\. Communication|received \d+ items of ancdata"
)
"""What torch says in a worker and in the training process, and Python there, if a batch cannot be opened."""


def shared_memory_error(error: Exception) -> WorkerError | None:
    """Return a clear error if a batch does not fit in shared memory, or in the memory of this process; else ``None``.

    The file that torch could not fill or map, and leaves behind, is removed.
    """
    is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    is_full = is_full or "unable to allocate shared memory" in text_of(error)
    lacks_memory = re.search(r"unable to mmap \d+ bytes from file", text_of(error))
    if not is_full and not lacks_memory:
        return None
    if file := re.search(r"<(/torch_\w+)>", text_of(error)):
        SHARED_MEMORY.joinpath(file[1][1:]).unlink(missing_ok=True)
    if lacks_memory:
        return WorkerError("Too little memory is left for a batch that a worker sends.", LESS_MEMORY)
    room = ""
    if SHARED_MEMORY.exists():
        usage = shutil.disk_usage(SHARED_MEMORY)
        room = f" ({usage.free / 2**20:.1f} of {usage.total / 2**20:.1f} MiB are free)"
    return WorkerError(f"Shared memory, {SHARED_MEMORY}, is full: a batch does not fit{room}.", MORE_SHARED_MEMORY)


def open_files_error(error: Exception) -> WorkerError | None:
    """Return a clear error if torch or multiprocessing cannot open a pipe or a batch; ``None`` for any other."""
    in_libraries = modules_of(error)[-1].startswith(("torch.", "multiprocessing."))
    here = isinstance(error, OSError) and error.errno in TOO_MANY_FILES and in_libraries
    if not here and not NO_FILE_LEFT.search(text_of(error)):
        return None
    return WorkerError(
        "There are too many open files: a worker needs a few in the training process, and each tensor of a batch one; "
        f"the limit is {most_open_files()}.",
        "Raise the limit (ulimit -n 65536), keep fewer batches, or use fewer workers.",
    )
