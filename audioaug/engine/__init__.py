"""Builds: a chain as a callable for workers (cpu), as an nn.Module for batches (device), or both at a cut (split).

``prepare`` is the device build's work on the host, ``torch_audiomentations`` its other engine.
"""

from audioaug.engine.checks import checked
from audioaug.engine.cpu import WorkerChain, build_cpu
from audioaug.engine.device import DeviceChain, build_device
from audioaug.engine.prepare import Prepared, Preparer
from audioaug.engine.split import build_worker, check_plan, split

__all__ = [
    "DeviceChain",
    "Prepared",
    "Preparer",
    "WorkerChain",
    "build_cpu",
    "build_device",
    "build_worker",
    "check_plan",
    "checked",
    "split",
]
