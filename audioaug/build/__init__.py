"""Builds: a chain as a callable for workers (cpu), as an nn.Module for batches (device), or both at a cut (split).

``prepare`` is the device build's work on the host, ``stock`` its other engine, torch-audiomentations.
"""

from audioaug.build.checks import checked
from audioaug.build.cpu import WorkerChain, build_cpu
from audioaug.build.device import DeviceChain, build_device
from audioaug.build.prepare import Prepared, Preparer
from audioaug.build.split import build_worker, check_plan, split

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
