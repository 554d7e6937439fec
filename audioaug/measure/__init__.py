"""Measuring: time callables and inspect the machine. Nothing here depends on augmentation.

All times are in seconds. Every budget (``seconds``) includes the warm-up; at least ``at_least`` repetitions are made
even if they exceed it. Time is only read through a ``Clock``.
"""

from audioaug.measure.cgroup import MemoryLimit, cpu_quota, memory_limit, throttled_seconds
from audioaug.measure.clock import Clock, CudaClock, FakeClock, MpsClock, WallClock, clock_for
from audioaug.measure.feeders import RaceResult, race
from audioaug.measure.host import (
    allowed_cores,
    effective_cores,
    files_open,
    free_shared_memory,
    host_facts,
    usable_cores,
)
from audioaug.measure.interference import GcPauses, Interference, PageFaults, Watch, delayed_seconds, page_faults
from audioaug.measure.loader import Contention, LoaderRate, measure_contention, measure_loader
from audioaug.measure.repeat import interleave, measure_steps, measure_transfer, repeat
from audioaug.measure.trace import Trace, trace
from audioaug.measure.usage import UsageSample, VramPeak, cpu_seconds, peak_extra_bytes, sample

__all__ = [
    "Clock",
    "CudaClock",
    "FakeClock",
    "GcPauses",
    "LoaderRate",
    "MemoryLimit",
    "MpsClock",
    "Interference",
    "PageFaults",
    "RaceResult",
    "Contention",
    "Trace",
    "UsageSample",
    "VramPeak",
    "WallClock",
    "Watch",
    "allowed_cores",
    "clock_for",
    "cpu_quota",
    "cpu_seconds",
    "delayed_seconds",
    "effective_cores",
    "files_open",
    "free_shared_memory",
    "host_facts",
    "interleave",
    "measure_loader",
    "measure_contention",
    "measure_steps",
    "measure_transfer",
    "memory_limit",
    "page_faults",
    "peak_extra_bytes",
    "race",
    "repeat",
    "sample",
    "throttled_seconds",
    "trace",
    "usable_cores",
]
