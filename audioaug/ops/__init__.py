"""The ops, one file each. All of them are imported: a new file with an ``Op`` is all that a new transform takes.

``ops.Gain`` and the rest carry the names of their audiomentations counterparts.
"""

import importlib
import pkgutil
from typing import Any

from audioaug.core.op import CUSTOM_OPS, REGISTRY, op_class
from audioaug.errors import ChainError

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return CUSTOM_OPS[name] if name in CUSTOM_OPS else op_class(name)
    except ChainError as error:
        raise AttributeError(str(error)) from None


def __dir__() -> list[str]:
    return sorted([*REGISTRY, *CUSTOM_OPS])


__all__ = __dir__()  # for `from audioaug.ops import *`
