"""Monitor: what a training loop waits for and uses, measured between its steps."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing import active_children
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import msgspec
import torch
from torch.utils.data import DataLoader

from audioaug.decide.bottleneck import Bottlenecks
from audioaug.decide.slowest_rank import Waits, rank_numbers, rank_words
from audioaug.errors import AudioaugWarning, UsageError
from audioaug.internals import batches_ready, worker_pids
from audioaug.loader.monitor_outputs import outputs_for
from audioaug.loader.prefetch import as_device, tensors
from audioaug.loader.processes import leave_for_ranks, values_of_ranks
from audioaug.measure.clock import Clock, WallClock
from audioaug.measure.host import host_facts
from audioaug.measure.idle import idle_timer
from audioaug.measure.usage import UsageSample, sample
from audioaug.records import MonitoredRun, Window, waiting_share
from audioaug.units import Seconds

Batch = TypeVar("Batch")

COST_SHARE = 1 / 250
"""The share of the time that measuring may take: after a measurement that took t, the next is due t * 250 later."""

_NUMBER = count()
"""Numbers the monitors of a process."""

MEANS = ("clips_per_second", "ceiling_share", "cpu_percent", "gpu_percent")
LARGEST = ("ram_percent", "ram_bytes", "shm_bytes", "vram_bytes")
"""Numbers of a window that a summary averages over time, and those of which it takes the largest."""


class Monitor(Generic[Batch]):
    """Iterate over batches as before, and record what the steps between them wait for and what they use.

    Once a second a window of steps is closed: its step time, the share spent waiting for data, the number of batches
    that are ready, CPU (of each worker), RAM, shared memory, GPU and its memory. On a terminal it is shown live; on
    request it is written to a log, TensorBoard and a page. A permanent change of the bottleneck is one warning; a
    ``Loader`` with ``plan="auto"`` then tries its plans again in the next epoch.

    Of several processes that train together (torch.distributed), each monitors itself and leaves its numbers in the
    process group's key-value store, where ``summary`` and the closing line read those of all. There is no collective:
    no process waits for another, whatever it calls and whether or not the others still run.

    On CUDA, the waiting time is the idle time of the training stream between steps, measured with its events;
    elsewhere, the time to get the next batch. The monitor never synchronizes with the device. It costs a few
    microseconds per step, and measures so rarely that this takes less than 0.5 % of the time.

    Args:
        batches: what the loop iterates over: a ``Loader`` or torch's ``DataLoader`` (whose ready batches are counted),
            or any other iterable that can be iterated over once per epoch.
        device: where the model trains; by default the loader's device, else the GPU if there is one.
        ceiling_ms: the step time on batches that are already on the device, such as the advisor's
            ``report.ceiling.step_ms``; throughput is then also shown as a share of it.
        log: a file for JSON lines: the run first, then one line per window; ``audioaug monitor`` converts it
            to the page later.
        html: a file for the page, written when the monitor is closed.
        tensorboard: a folder for TensorBoard.
        live: show the last window on stderr while training. By default if that is a terminal, else there is one line
            when the monitor is closed.
        every: the shortest time between two measurements, in seconds.
        clock: returns the time.

    Raises:
        UsageError: ``every`` is not positive, or ``tensorboard`` is given and not installed.
        OutputError: a file cannot be written.
        DeviceError: there is no such device.

    Examples:
        >>> with Monitor([torch.ones(4, 2)] * 3, device="cpu", live=False) as monitor:
        ...     for batch in monitor:
        ...         pass  # train
        >>> [window.steps for window in monitor.windows]
        [3]
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        *,
        device: str | torch.device | None = None,
        ceiling_ms: float | None = None,
        log: str | Path | None = None,
        html: str | Path | None = None,
        tensorboard: str | Path | None = None,
        live: bool | None = None,
        every: Seconds = 1.0,
        clock: Clock | None = None,
    ) -> None:
        if not every > 0:
            raise UsageError(f"Monitor: expected every to be a number of seconds above 0, got {every}.")
        self._batches, self._every, self._clock = batches, every, clock or WallClock()
        self._device = as_device(device if device is not None else getattr(batches, "device", None))
        self.run = MonitoredRun(host_facts(self._device), ceiling_ms=ceiling_ms, capacity=_capacity(batches))
        self.windows: list[Window] = []
        self._outputs = outputs_for(self.run, log, html, tensorboard, live, lambda: rank_words(self._ranks()))
        self.cost_seconds: Seconds = 0.0
        self._idle = idle_timer(self._device)
        self._bottlenecks, self._steps, self._done = Bottlenecks(), _Steps(), 0
        self._waits, self._name = Waits(), f"monitor {next(_NUMBER)}"
        self._begin = self._due = self._measured = self._clock.now()
        self._usage: UsageSample | None = None
        self._iterator: Iterator[Batch] | None = None
        self._other_processes = _children()

    def __enter__(self) -> "Monitor[Batch]":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        if self._usage is None:  # the first epoch
            self._measured, self._usage = self._clock.now(), sample(self._device)
            self._due = self._clock.now() + self._every
        start = self._clock.now()
        self._idle.step_submitted(start)
        self._iterator = iterator = iter(self._batches)
        for batch in iterator:
            self._idle.batch_arrived(self._clock.now())
            yield batch
            end = self._clock.now()
            self._steps.count(end - start, _clips(batch), self._ready(iterator))
            if end >= self._due:
                message = self._close_window()
                if message:
                    warnings.warn(message, AudioaugWarning, stacklevel=2)  # at the user's loop
                end = self._clock.now()
            self._idle.step_submitted(end)
            start = end

    def close(self) -> None:
        """Close the last window and every output; calling it again has no effect."""
        if self._steps.steps:
            self._close_window()
        for output in self._outputs:
            output.close()
        self._outputs.clear()

    def summary(self) -> dict[str, float]:
        """Return the run so far in plain numbers, for an experiment tracker or a CSV file; what is unknown is left out.

        ``steps``, ``seconds``; means over all steps: ``step_ms``, ``wait_share`` (of the time, from 0 to 1),
        ``clips_per_second``, ``ceiling_share``, ``cpu_percent``, ``gpu_percent``; the largest ``ram_percent``,
        ``ram_bytes``, ``shm_bytes``, ``vram_bytes``; and ``bottleneck/ID``, the share of the time with that bottleneck.

        Of several processes that train together, these are the numbers of the one that calls this. Added are ``ranks``,
        the number of processes that have left theirs so far, up to their last window; and, if one of them waits for
        data for more than 5 % of its time, ``slowest_rank``, the one that waits longest, with its
        ``slowest_rank/wait_share`` and ``slowest_rank/bottleneck/ID``. This needs the same order of monitors in each
        process. A process whose model itself is slow is not found: the time of a step is the same in all processes that
        wait for each other.
        """
        windows = self.windows
        steps = sum(window.steps for window in windows)
        total_ms = sum(window.steps * window.step_ms for window in windows)
        if not steps or not total_ms:
            return {}
        found: dict[str, float] = {"steps": steps, "seconds": windows[-1].seconds, "step_ms": total_ms / steps}
        found["wait_share"] = waiting_share(windows)
        for name in MEANS:
            known = [(w.steps * w.step_ms, value) for w in windows if (value := getattr(w, name)) is not None]
            if weight := sum(ms for ms, _ in known):
                found[name] = sum(ms * value for ms, value in known) / weight
        for name in LARGEST:
            values = [value for window in windows if (value := getattr(window, name)) is not None]
            found |= {name: max(values)} if values else {}
        for window in windows:
            if window.bottleneck:
                name, share = f"bottleneck/{window.bottleneck}", window.steps * window.step_ms / total_ms
                found[name] = found.get(name, 0.0) + share
        return found | rank_numbers(self._ranks())

    def _ranks(self) -> dict[int, Waits]:
        return {rank: msgspec.json.decode(value, type=Waits) for rank, value in values_of_ranks(self._name).items()}

    def _ready(self, iterator: Iterator[Batch]) -> int | None:
        """Return how many batches are ready, if this is a ``Loader`` or torch's ``DataLoader``."""
        return self._batches.ready if hasattr(self._batches, "ready") else batches_ready(iterator)

    def _workers(self) -> frozenset[int]:
        """Return the process ids of the workers: those of a ``Loader`` or ``DataLoader``, else of all new children."""
        if isinstance(found := getattr(self._batches, "workers", worker_pids(self._iterator)), frozenset):
            return found
        return _children() - self._other_processes

    def _close_window(self) -> str:
        """Close the window; return a message if the bottleneck has changed, else nothing."""
        start = self._clock.now()
        window = self._window(start)
        message = self._follow(window)
        window = replace(window, bottleneck=self._bottlenecks.settled, message=message)
        self.windows.append(window)
        self._waits.add(window)
        leave_for_ranks(self._name, msgspec.json.encode(self._waits))
        for output in self._outputs:
            output.add(window)
        cost = self._clock.now() - start
        self.cost_seconds += cost
        self._due = start + max(self._every, cost / COST_SHARE)
        return message

    def _follow(self, window: Window) -> str:
        """Return a message if the bottleneck has changed; a ``Loader`` with ``plan="auto"`` then tries its plans again.

        While it tries them, what they wait for says nothing about the plan that it will choose.
        """
        if getattr(self._batches, "is_trying_plans", False):
            self._bottlenecks.restart()
            return ""
        message = self._bottlenecks.follow(window)
        if self._bottlenecks.moved:
            getattr(self._batches, "try_plans_again", lambda: None)()
        return message

    def _window(self, now: Seconds) -> Window:
        """Return the window of the steps since the last one."""
        steps, host = self._steps, self.run.host
        step_ms = steps.seconds / steps.steps * 1e3
        idle, idle_steps = self._idle.collect()
        before, self._usage = self._usage or sample(self._device), sample(self._device)
        cpu = _cpu_percent(before, self._usage, now - self._measured)
        self._done += steps.steps
        self._steps, self._measured = _Steps(), now
        return Window(
            seconds=now - self._begin,
            step=self._done,
            steps=steps.steps,
            step_ms=step_ms,
            wait_ms=min(step_ms, idle / idle_steps * 1e3) if idle_steps else 0.0,
            clips_per_second=steps.clips / steps.seconds if steps.clips and steps.seconds > 0 else None,
            ceiling_share=self.run.ceiling_ms / step_ms if self.run.ceiling_ms and step_ms > 0 else None,
            ready=sum(steps.ready) / len(steps.ready) if steps.ready else None,
            cpu_percent=sum(cpu.values()) / host.usable_cores,
            worker_percent=tuple(cpu[worker] for worker in self._workers() if worker in cpu),
            ram_bytes=self._usage.ram_bytes,
            ram_percent=self._usage.ram_percent,
            shm_bytes=self._usage.shm_bytes,
            gpu_percent=self._usage.gpu_percent,
            vram_bytes=self._usage.vram_bytes,
        )


def _children() -> frozenset[int]:
    return frozenset(child.pid for child in active_children() if child.pid)


@dataclass
class _Steps:
    """Sums over the steps of a window."""

    steps: int = 0
    seconds: Seconds = 0.0
    clips: int = 0
    ready: list[int] = field(default_factory=list)

    def count(self, seconds: Seconds, clips: int, ready: int | None) -> None:
        self.steps += 1
        self.seconds += seconds
        self.clips += clips
        if ready is not None:
            self.ready.append(ready)


def _capacity(batches: object) -> int | None:
    """Return the most batches that workers can have ready; ``None`` without workers, or if it is unknown."""
    if isinstance(batches, DataLoader):
        return batches.num_workers * (batches.prefetch_factor or 0) or None
    return getattr(batches, "capacity", None)


def _clips(batch: object) -> int:
    """Return the length of the first tensor of a batch; 0 if there is none."""
    for tensor in tensors(batch):
        if tensor.ndim:
            return len(tensor)
    return 0


def _cpu_percent(before: UsageSample, now: UsageSample, seconds: Seconds) -> dict[int, float]:
    """Return the percentage of one core that each process used between two measurements, by its id."""
    used = {pid: total - before.cpu_seconds.get(pid, 0.0) for pid, total in now.cpu_seconds.items()}
    return {pid: 100.0 * max(0.0, spent) / seconds if seconds > 0 else 0.0 for pid, spent in used.items()}
