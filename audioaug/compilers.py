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
        named = os.environ.get("CC")
        found_none = f"Not found ({', '.join(COMPILERS)}): install gcc."
        return found_none if named is None else f"CC is {named!r}, which is not a program: unset it, or name one."
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "" if headers.is_file() else f"{headers} is missing: install python3-dev, or what your system calls it."


def c_compiler() -> str | None:
    """Return the path of the C compiler that Triton would use, if there is one."""
    named = os.environ.get("CC")
    return next(filter(None, map(shutil.which, COMPILERS if named is None else (named,))), None)
