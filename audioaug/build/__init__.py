"""Builds: a chain as a callable for workers (cpu), as an nn.Module for batches (prepare, device, stock), and both (split)."""

from audioaug.build.cpu import WorkerChain, build_cpu
from audioaug.build.device import DeviceChain, build_device
from audioaug.build.prepare import Prepared, Preparer
from audioaug.build.split import check_plan, split

__all__ = ["DeviceChain", "Prepared", "Preparer", "WorkerChain", "build_cpu", "build_device", "check_plan", "split"]
