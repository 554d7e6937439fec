"""Workers that are killed, stopped, slow or out of memory, and what they share: /dev/shm, open files, threads."""

import colorsys
import contextlib
import importlib
import os
import pyclbr
import resource
import sched
import signal
import tabnanny
import threading
import time
from pathlib import Path
from typing import Any

import torch

from audioaug.errors import AudioaugError, WorkerError
from tests.campaign.case import COUNT, LOADERS, Case, check_all, check_once, check_sentence, clip, indices
from tests.campaign.faults import Violation, kind
from tests.campaign.system import memory_group, mount, own_mounts

OF_LOADER = ("Loader, map", "Loader, iterable", "Loader, bucketed", "Loader, keyed", "Monitor")
"""Targets whose workers are the Loader's: those around ``prefetch`` are the user's own, as torch reports them."""

UNBLOCKABLE = ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU")
"""Signals that do not end a process."""
SIGNALS = tuple(sorted(each.name for each in signal.Signals if each.name not in UNBLOCKABLE))
IN_WORKERS: dict[str, Any] = {"workers": (1, 2), "persistent": (True, False), "index": (0, 5, 11)}


def in_worker() -> bool:
    """Return whether this process is a worker."""
    return torch.utils.data.get_worker_info() is not None


def faulty_epoch(case: Case, fault: Any) -> str:
    """Run an epoch with a fault in a worker that reads one of the examples, then one without."""
    there = case.folder / "there"
    there.touch()

    def read(index: int) -> Any:
        if index == case.values["index"] and there.exists() and in_worker():
            fault()
        return clip(index)

    batches, found = case.batches(read), list[int]()
    try:
        for batch in batches:
            found += [int(index) for index in batch["index"]]
    except AudioaugError as error:
        ended = check_sentence(error, "A worker (pid", "Shared memory", "planted", "memory")
    except Exception as error:
        if not case.peer and case.target != "prefetch":
            raise Violation("traceback", f"{type(error).__name__}: {str(error)[-600:]}") from error
        ended = f"{type(error).__name__} of torch"
    else:
        check_all(found)
        ended = "delivered"
    check_once(found, range(COUNT))
    there.unlink()
    check_all(indices(batches), verdict="next run")
    return ended


@kind("worker killed", [*OF_LOADER, "prefetch"], weight=3, peer=True, signal=SIGNALS, **IN_WORKERS)
def killed(case: Case) -> str:
    def die() -> None:
        signal.signal(signal.Signals[case.values["signal"]], signal.SIG_DFL) if case.values[
            "signal"
        ] != "SIGKILL" else None
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.Signals[case.values["signal"]])
        time.sleep(5)  # it may be delivered a moment later

    return faulty_epoch(case, die)


@kind("worker exits", [*OF_LOADER, "prefetch"], weight=1.5, peer=True, code=(0, 1, 3, 255), **IN_WORKERS)
def exits(case: Case) -> str:
    return faulty_epoch(case, lambda: os._exit(case.values["code"]))


@kind("worker slow", [*OF_LOADER, "prefetch"], weight=1, peer=True, seconds=(0.05, 0.3, 1.0), **IN_WORKERS)
def slow(case: Case) -> str:
    return faulty_epoch(case, lambda: time.sleep(case.values["seconds"]))


@kind(
    "worker out of memory",
    OF_LOADER,
    weight=2,
    of_world=False,
    megabytes=(16, 64),
    grab=("tensor", "list", "file"),
    **IN_WORKERS,
)
def out_of_memory(case: Case) -> str:
    """An address space that is used up: the dataset's own MemoryError or torch's error may be raised."""
    there, before = case.folder / "there", resource.getrlimit(resource.RLIMIT_AS)
    there.touch()

    def grab() -> Any:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + case.values["megabytes"] * 2**20, before[1]))
        if case.values["grab"] == "tensor":
            return torch.ones(2**30)
        return [0] * 2**30 if case.values["grab"] == "list" else bytes(2**32)

    def read(index: int) -> Any:
        if not there.exists():
            resource.setrlimit(resource.RLIMIT_AS, before)  # in a persistent worker
        elif index == case.values["index"] and in_worker():
            grab()
        return clip(index)

    batches = case.batches(read)
    try:
        found = indices(batches)
    except (AudioaugError, MemoryError, RuntimeError) as error:
        if not any(word in str(error) for word in ("memory", "MemoryError", "A worker (pid")):
            raise Violation("sentence", str(error)[-600:]) from error
        ended = type(error).__name__
    else:
        raise Violation("lost or twice", f"no error, delivered {found}")
    there.unlink()
    check_all(indices(batches), verdict="next run")
    return ended


@kind("worker beyond its cgroup", OF_LOADER, weight=0.7, peer=True, megabytes=(48, 96), **IN_WORKERS)
def beyond_cgroup(case: Case) -> str:
    """The system kills a worker that takes more memory than its control group may have."""
    limit = case.values["megabytes"] * 2**20

    def take() -> None:
        assert processes is not None
        processes.write_text(str(os.getpid()))
        held = [bytearray(os.urandom(2**20)) for _ in range(2 * case.values["megabytes"])]
        del held

    with memory_group(f"audioaug-{os.getpid()}", limit) as processes:
        if processes is None:
            return "no right to limit memory"
        ended = faulty_epoch(case, take)
    if ended == "delivered":
        raise Violation("sentence", "the limit of the control group was exceeded")
    return ended


@kind(
    "killed beside others",
    OF_LOADER[:3],
    weight=1.5,
    peer=True,
    workers=(2,),
    persistent=(True, False),
    signal=("SIGKILL", "SIGTERM", "SIGSEGV"),
    after=(0, 1, 2, 3),
)
def killed_from_outside(case: Case) -> str:
    """A worker is killed by the training process at some batch, whatever it is doing."""
    import multiprocessing

    batches, found = case.batches(), list[int]()
    ended = "delivered"
    try:
        for step, batch in enumerate(batches):
            found += [int(index) for index in batch["index"]]
            if step == case.values["after"]:
                for worker in case.chance.sample(multiprocessing.active_children(), 1):
                    os.kill(worker.pid or 0, signal.Signals[case.values["signal"]])
                time.sleep(case.chance.choice([0, 0.01, 0.1]))
    except WorkerError as error:
        ended = check_sentence(error, "A worker (pid", "was killed by")
    except ValueError:
        return "no worker was left"
    except RuntimeError as error:
        if not case.peer:
            raise Violation("traceback", f"{type(error).__name__}: {error}") from error
        ended = "RuntimeError of torch"
    else:
        check_all(found)
    check_once(found, range(COUNT))
    with contextlib.suppress(WorkerError, RuntimeError):  # a persistent one, killed after its last batch
        check_all(indices(batches), verdict="next run")
        return ended
    check_all(indices(batches), verdict="next run")
    return ended


@kind(
    "worker stopped",
    OF_LOADER[:4],
    weight=1.5,
    peer=True,
    workers=(1, 2),
    persistent=(True, False),
    seconds=(0.1, 0.5),
    index=(0, 5, 11),
)
def stopped(case: Case) -> str:
    """A worker is stopped for a while, as a batch system does, and continued."""
    pids = case.folder / "pid"

    def stop() -> None:
        pids.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)

    def wake() -> None:
        while not (pids.exists() and pids.read_text()):
            time.sleep(0.01)
        time.sleep(case.values["seconds"])
        os.kill(int(pids.read_text()), signal.SIGCONT)

    waker = threading.Thread(target=wake, daemon=True)
    waker.start()
    ended = faulty_epoch(case, stop)
    waker.join()
    if ended != "delivered":
        raise Violation("lost or twice", ended)
    return ended


@kind(
    "small /dev/shm",
    OF_LOADER,
    weight=2,
    peer=True,
    workers=(1, 2),
    persistent=(True, False),
    kilobytes=(0, 64, 256, 1024),
)
def small_shared_memory(case: Case) -> str:
    if not own_mounts() or not mount("/dev/shm", "size=4m"):
        return "no right to mount"
    filler = Path("/dev/shm/filler")
    filler.write_bytes(bytes(4 * 2**20 - case.values["kilobytes"] * 1024))

    def read(index: int) -> Any:
        return {**clip(index), "audio": torch.zeros(40_000)}

    batches, found, held = None, list[int](), []
    try:
        batches = case.batches(read)
        for batch in batches:
            held.append(batch)
            found += [int(index) for index in batch["index"]]
    except WorkerError as error:
        ended = check_sentence(
            error, "Shared memory, /dev/shm, is full", "/dev/shm, through which workers send batches"
        )
        if batches is None:  # a stream could not share its epoch: torch keeps open what it cannot fill
            case.may_leave = ("file /dev/shm/torch_",)
    except Exception as error:
        if not case.peer:
            raise Violation("traceback", f"{type(error).__name__}: {str(error)[-600:]}") from error
        ended = f"{type(error).__name__} of torch"
    else:
        check_all(found)
        ended = "delivered"
    check_once(found, range(COUNT))
    filler.unlink()
    held.clear()
    check_all(indices(case.batches(read) if batches is None else batches), verdict="next run")
    return ended


@kind("few open files", OF_LOADER, weight=2, workers=(1, 2), persistent=(True, False), spare=(0, 2, 5, 10, 20))
def few_files(case: Case) -> str:
    """A limit of open files that workers and their batches exceed."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    batches, held = case.batches(), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + case.values["spare"], before[1]))
    try:
        for batch in batches:
            held.append(batch)
    except Exception as error:
        ended = check_sentence(error, "too many open files", "A worker (pid")
        error.__traceback__ = None
        case.may_leave = (
            "file pipe:",
        )  # Python makes two pipes for a process, and drops the first if the second fails
    else:
        ended = "delivered"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    held.clear()
    check_all(indices(batches), verdict="next run")
    return ended


@kind(
    "fork beside threads",
    LOADERS,
    weight=2,
    workers=(1, 2),
    persistent=(True, False),
    threads=(1, 4),
    work=("multiply", "allocate", "print", "import"),
)
def fork_beside_threads(case: Case) -> str:
    """Workers are forked while threads hold locks."""
    done = threading.Event()

    def work(module: Any) -> None:
        matrix = torch.ones(64, 64)
        while not done.is_set():
            if case.values["work"] == "multiply":
                matrix @ matrix
            elif case.values["work"] == "allocate":
                bytearray(2**20)
            elif case.values["work"] == "print":
                print("x" * 100, flush=True)
            else:
                importlib.reload(module)

    modules = colorsys, pyclbr, sched, tabnanny  # one a thread: two cannot reload the same one at a time
    threads = [threading.Thread(target=work, args=(each,)) for each in modules[: case.values["threads"]]]
    for thread in threads:
        thread.start()
    try:
        batches = case.batches()
        for _ in range(2):
            check_all(indices(batches))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    return "delivered"
