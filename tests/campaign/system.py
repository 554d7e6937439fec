"""What a case asks of the system: mounts and memory limits of its own."""

import contextlib
import ctypes
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
CHILD_SUBREAPER = 36
"""Of ``prctl``: processes whose parent is gone become children of this one, which can then see that they are left."""
NEW_MOUNTS = 0x00020000
"""Of ``unshare``."""


def own_mounts() -> bool:
    """Give this process mounts of its own, which end with it; return whether it may."""
    if LIBC.unshare(NEW_MOUNTS):
        return False
    return not subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True).returncode


def mount(folder: str | Path, *options: str) -> bool:
    """Mount a file system in memory; return whether that was possible."""
    Path(folder).mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    return not subprocess.run(command, capture_output=True).returncode


@contextlib.contextmanager
def memory_group(name: str, limit: int) -> Iterator[Path | None]:
    """Make a control group whose processes may use ``limit`` bytes; yield the file that takes their process ids.

    Yield ``None`` if this process has no right to that. The group is removed afterwards.
    """
    for root, maximum in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):  # versions 1 and 2
        group = Path("/sys/fs/cgroup", root, name)
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / maximum).exists():
                (group / maximum).write_text(str(limit))
                break
            group.rmdir()
    else:
        yield None
        return
    try:
        yield group / "cgroup.procs"
    finally:
        deadline = time.monotonic() + 10
        while group.exists() and time.monotonic() < deadline:  # until its processes have ended
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.02)


def become_reaper() -> None:
    """Let processes whose parent has ended become children of this one."""
    LIBC.prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
