"""What a case asks of the system: mounts of its own."""

import ctypes
import subprocess
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


def become_reaper() -> None:
    """Let processes whose parent has ended become children of this one."""
    LIBC.prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
