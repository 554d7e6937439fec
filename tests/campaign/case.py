"""A case: one fault in the process that runs it, with the targets that take batches, and what is asked of them."""

import gc
import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from audioaug import BucketBatchSampler, Chain, Loader, Monitor, Plan, build_device, ops, prefetch
from audioaug.errors import AudioaugError
from tests.campaign.faults import Fault, Violation
from tests.integration.loader.test_failures_of_workers import open_files

RATE = 16000
COUNT = 12
"""Examples of an epoch."""
SAMPLES = 400
CHAIN = Chain([ops.Gain(p=1.0), ops.PolarityInversion(p=0.5), ops.TimeMask(p=0.3)], RATE)
PATIENCE = float(os.environ.get("CAMPAIGN_LEFT_SECONDS", "20"))
"""Seconds that processes, threads and files may take to go away."""

LOADERS = ("Loader, map", "Loader, iterable", "Loader, bucketed", "Loader, keyed", "prefetch", "Monitor")
"""The targets that iterate over batches."""

Read = Callable[[int], Any]


def clip(index: int) -> dict[str, Any]:
    """Return a good example."""
    return {"audio": torch.full((SAMPLES,), 0.01 * (index + 1)), "index": index, "key": f"clip-{index}"}


class Clips:
    """A dataset that reads its examples with a function."""

    def __init__(self, read: Read, count: int) -> None:
        self.read, self.count = read, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.read(int(index))


class StreamOfClips(IterableDataset[Any]):
    """The same as a stream: each worker takes its share in turn."""

    def __init__(self, read: Read, count: int) -> None:
        self.read, self.count = read, count

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, self.count, step):
            yield self.read(index)


class Case:
    """A fault, its folder, and a generator for what its parameters leave open."""

    def __init__(self, fault: Fault, folder: Path, peer: bool = False) -> None:
        self.fault, self.folder, self.peer = fault, folder, peer
        self.chance: random.Random = fault.chance("run")
        self.values, self.target = fault.values, fault.target
        self.may_leave: tuple[str, ...] = ()
        """Beginnings of what the fault may leave, for a reason that the kind states."""

    @property
    def plan(self) -> Plan:
        """The plan of its parameters ``workers`` and ``cut``."""
        engine = self.values.get("engine", "audiomentations")
        knobs = {
            "num_workers": self.values.get("workers", 0),
            "persistent_workers": self.values.get("persistent", False),
        }
        return Plan(cut=self.values.get("cut", 1), worker_engine=engine, **knobs)

    @property
    def has_workers_of_torch(self) -> bool:
        """Whether workers are those of the user's own DataLoader, which print as torch does."""
        return self.target == "prefetch" and self.plan.num_workers > 0

    def batches(self, read: Read = clip, count: int = COUNT, **options: Any) -> Any:
        """Return the target: an iterable over batches of such examples."""
        if self.peer:
            return plain_torch(read, count, self.plan.num_workers)
        if self.target == "prefetch":
            return Prefetched(plain_torch(read, count, self.plan.num_workers), options.get("chain", CHAIN))
        kind = StreamOfClips if self.target == "Loader, iterable" else Clips
        loader = self.loader(kind(read, count), **options)
        return Monitor(loader, live=False, log=self.folder / "run.jsonl") if self.target == "Monitor" else loader

    def loader(self, dataset: Any, **options: Any) -> Loader:
        """Return a Loader of this kind."""
        ways: dict[str, Any] = {"batch_size": 4, "on_error": self.values.get("on_error", "raise"), **options}
        if self.target == "Loader, bucketed":
            lengths = [SAMPLES] * len(dataset)
            ways |= {"pad": True, "batch_sampler": BucketBatchSampler(lengths, batch_size=ways.pop("batch_size"))}
        if self.target == "Loader, keyed":
            ways |= {"key": "key", "shuffle": True}
        return Loader(dataset, ways.pop("chain", CHAIN), self.plan, device="cpu", seed=self.fault.number, **ways)

    def note(self, name: str, value: Any = None) -> None:
        """Leave a note for the parent process."""
        written = self.folder / f".{name}"
        written.write_text(json.dumps(value))
        written.rename(self.folder / name)

    def wait_for(self, name: str, pid: int, seconds: float = 60.0) -> Any:
        """Return a note of the process; ``None`` if it has ended without one."""
        deadline, file = time.monotonic() + seconds, self.folder / name
        while not file.exists():
            if time.monotonic() > deadline or has_ended(pid):
                return None
            time.sleep(0.005)
        return json.loads(file.read_text())


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def plain_torch(read: Read, count: int, workers: int) -> Iterable[Any]:
    """Return torch's DataLoader alone on the same examples."""
    return DataLoader(Clips(read, count), 4, num_workers=workers)  # type: ignore[arg-type]


class Prefetched:
    """``prefetch`` around a DataLoader, anew in each epoch."""

    def __init__(self, batches: Iterable[Any], chain: Chain) -> None:
        self.batches, self.chain = batches, chain

    def __iter__(self) -> Iterator[Any]:
        return prefetch(self.batches, "cpu", build_device(self.chain), key="key")


def indices(batches: Iterable[Any]) -> list[int]:
    """Run an epoch and return the index of each example that was delivered."""
    return [int(index) for batch in batches for index in batch["index"]]


def skipped(batches: Any) -> int:
    """Return how many examples the target says that it left out or replaced."""
    loader = batches._batches if isinstance(batches, Monitor) else batches
    return loader.skipped if isinstance(loader, Loader) else 0


def check_all(found: list[int], count: int = COUNT, verdict: str = "lost or twice") -> None:
    """Check that each example was delivered once."""
    if sorted(found) != list(range(count)):
        raise Violation(verdict, f"delivered {sorted(found)} of {count}")


def check_once(found: list[int], among: Iterable[int]) -> None:
    """Check that none was delivered twice, and none that does not exist."""
    if len(set(found)) < len(found) or not set(found) <= set(among):
        raise Violation("lost or twice", f"delivered {sorted(found)}")


def check_sentence(error: BaseException, *parts: str) -> str:
    """Check that an error is one of audioaug's, one line without a traceback, and names one of these; name its type."""
    text = str(error)
    if not isinstance(error, AudioaugError):
        raise Violation("traceback", f"{type(error).__name__}: {text[:300]}")
    if "Traceback" in text or "\n" in text.strip() or not text.isprintable():
        raise Violation("sentence", f"{type(error).__name__} is not one printable line: {text[:300]!r}")
    if parts and not any(part in text for part in parts):
        raise Violation("sentence", f"{text[:300]!r} has none of {parts}")
    return type(error).__name__


@contextmanager
def nothing_left(case: Case) -> Iterator[None]:
    """Check that the block leaves no process, thread or open file of this process."""
    gc.collect()
    threads, files = set(threading.enumerate()), open_files()
    children = set(psutil.Process().children(recursive=True))
    yield
    deadline = time.monotonic() + PATIENCE
    while left := [each for each in what_is_left(threads, files, children) if not each.startswith(case.may_leave)]:
        if time.monotonic() > deadline:
            raise Violation("left behind", ", ".join(left))
        gc.collect()
        time.sleep(0.02)


def what_is_left(threads: set[Any], files: set[Any], children: set[Any]) -> list[str]:
    """Name what this process has now and had not before."""
    multiprocessing.active_children()  # joins those that have ended
    more = open_files()
    return [
        *(f"thread {each.name}" for each in threading.enumerate() if each not in threads and each.is_alive()),
        *(f"file {file}" for _, file in (more - files if len(more) > len(files) else ())),
        *(f"process {command_of(each)}" for each in psutil.Process().children(recursive=True) if each not in children),
    ]


def command_of(process: psutil.Process) -> str:
    """Return the process id and command line of a process, and its state."""
    try:
        return f"{process.pid} ({process.status()}) {' '.join(process.cmdline())[-200:]}"
    except psutil.Error:
        return f"{process.pid}"
