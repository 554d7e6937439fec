"""Builds: a chain as a callable for workers (cpu), as an nn.Module for batches (device), and both at a cut (split)."""

from audioaug.build.cpu import WorkerChain, build_cpu
from audioaug.build.device import DeviceChain, Prepared, build_device
from audioaug.build.split import split

__all__ = ["DeviceChain", "Prepared", "WorkerChain", "build_cpu", "build_device", "split"]
