"""A profiler's trace of an epoch, to open at ui.perfetto.dev or chrome://tracing, and where its time goes."""

import time
import warnings
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from experiments.throughput.records import Operator

MOST = 6


def trace_epoch(
    epoch: Callable[[], None], device: torch.device, path: str | None
) -> tuple[tuple[Operator, ...], float]:
    """Profile an epoch, warm, and write its trace where asked to; return the dearest operators and the seconds."""
    epoch()
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that its events are cleared at the end
        begin = time.perf_counter()
        with profile(activities=activities) as found:
            epoch()
            if on_gpu:
                torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
        if path:
            found.export_chrome_trace(path)
        events = found.key_averages()
    times = {e.key: (e.self_device_time_total if on_gpu else e.self_cpu_time_total, e.count) for e in events}
    total = sum(spent for spent, _ in times.values()) or 1.0
    dearest = sorted(times, key=lambda name: -times[name][0])[:MOST]
    return tuple(Operator(name, times[name][1], times[name][0] / total) for name in dearest), seconds
