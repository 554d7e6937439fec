"""Compilers: whether C can be compiled here, which torch.compile and Triton's launchers need."""

import os
import shutil
import sysconfig
from pathlib import Path

COMPILERS = ("gcc", "clang")
"""The programs that Triton looks for, unless ``CC`` names another."""


def missing_for_c() -> str:
    """Return what is missing to compile C that uses Python's headers, and what to do; an empty string if nothing is."""
    if c_compiler() is None:
        return f"Not found ({', '.join(COMPILERS)}): install gcc."
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "" if headers.is_file() else f"{headers} is missing: install python3-dev, or what your system calls it."


def c_compiler() -> str | None:
    """Return the C compiler's path, if there is one."""
    return next(filter(None, map(shutil.which, filter(None, (os.environ.get("CC"), *COMPILERS)))), None)
