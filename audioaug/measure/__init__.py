"""The room that measures. It times callables and looks at the machine; it has never rendered_sounds of augmentation.

========== ===================================================================================================
clock      ``WallClock``, ``CudaClock``, ``MpsClock``, ``FakeClock``: what time it is, and waiting for the device
rounds     when to measure once more, and when to stop: the rule that all measurements follow
repeat     ``repeat`` one thing many times; ``interleave`` several things
step       ``measure_steps``: training steps on batches that are already on the device, the ceiling
loader     ``measure_loader``: a loader alone, its first batch and its pace
contention ``measure_contention``: how much training and a loader slow each other down
transfer   ``measure_transfer``: copying a batch to the device
feeders    ``race``: one training loop that swaps feeders
cgroup     ``cpu_quota``, ``memory_limit``: what control groups allow
host       ``host_facts``, ``usable_cores``: what this machine is and what this process may use
cores      ``effective_cores``: how much the usable cores really do together
others     ``Watch``: what other programs, the hypervisor and a quota took of the cores meanwhile
faults     ``page_faults``: how much of its time work spends on memory that is cleared for it again
pauses     ``GcPauses``: how long Python's garbage collector runs
usage      ``cpu_seconds``, ``peak_vram``, ``peak_extra_bytes``, ``sample``: what is being used now
trace      ``trace``: how many kernels work consists of, and how often the host waits for the device in it
========== ===================================================================================================

All times are in seconds. Every budget (``seconds``) includes the warm-up; ``at_least`` repetitions are made even when
it is overrun. Nothing here reads the time but through a ``Clock``.
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
from audioaug.measure.usage import UsageSample, cpu_seconds, peak_extra_bytes, peak_vram, sample

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
    "peak_vram",
    "race",
    "repeat",
    "sample",
    "throttled_seconds",
    "trace",
    "usable_cores",
]
