"""The kinds of faults: each module here registers some."""

import pkgutil
from importlib import import_module


def load(planted: bool = False) -> None:
    """Import every module here; with ``planted``, the faults that violate a verdict, too."""
    if planted:
        import_module("tests.campaign.planted")
    for module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        import_module(f"{__name__}.{module}")
