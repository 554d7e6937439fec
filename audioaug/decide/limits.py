"""Limits: how many workers each rank can run at the same time, over all loaders, and what limits them.

The ranks of a machine share its memory; open files are limited by process.
"""

from dataclasses import dataclass

from audioaug.records import HostFacts, Notice
from audioaug.units import format_bytes, plural

FILES = 6
"""Open files of a worker in the training process: pipes and a sentinel (measured: 4 to 6)."""

AHEAD = 3
"""Batches of a worker in shared memory: two prefetched (torch's default) and one being sent."""

KEPT = 16
"""Open files reserved for the training itself."""

SHARED, RAM = 0.9, 0.8
"""Shares of the free shared memory and of the free memory that workers may use."""


@dataclass(frozen=True)
class Needs:
    """Resources that a worker needs, and what is in use. ``None``: unknown.

    ``unpicklable``: what cannot be pickled for a worker that is not forked.
    """

    batch_bytes: int = 0
    batch_tensors: int = 0
    files_open: int | None = None
    shared_free_bytes: int | None = None
    worker_bytes: int | None = None
    unpicklable: str = ""


def most_workers(host: HostFacts, needs: Needs, at_most: int) -> tuple[int, Notice | None]:
    """Return how many workers fit, at most ``at_most``, and the limit that rules out more, if there is one."""
    limits = {
        "not_picklable": _by_pickle(host, needs),
        "shm_too_small": _by_shared_memory(host, needs),
        "fd_limit": _by_files(host, needs),
        "ram_limit": _by_memory(host, needs),
    }
    found = {name: (max(0, limit[0]), limit[1]) for name, limit in limits.items() if limit is not None}
    name = min(found, key=lambda name: found[name][0], default="")
    if not name or found[name][0] >= at_most:
        return at_most, None
    workers, why = found[name]
    return workers, Notice(name, f"Only {plural(workers, 'worker')} can run: {why}")


def _by_pickle(host: HostFacts, needs: Needs) -> tuple[int, str] | None:
    if not needs.unpicklable or host.start_method == "fork":
        return None
    return 0, (
        f"they are started by {host.start_method}, but {needs.unpicklable}. Forked workers "
        "inherit it: call multiprocessing.set_start_method('fork') first."
    )


def _by_shared_memory(host: HostFacts, needs: Needs) -> tuple[int, str] | None:
    if needs.shared_free_bytes is None or not needs.batch_bytes:
        return None
    return int(SHARED * needs.shared_free_bytes / host.local_ranks / (AHEAD * needs.batch_bytes)), (
        f"each keeps up to {AHEAD} batches of {format_bytes(needs.batch_bytes)} in /dev/shm, where "
        f"{format_bytes(needs.shared_free_bytes)} are free{_shared(host)}. Increase it (docker run --shm-size=8g)."
    )


def _by_files(host: HostFacts, needs: Needs) -> tuple[int, str] | None:
    if host.open_files is None or needs.files_open is None:
        return None
    each = FILES + AHEAD * needs.batch_tensors
    return (host.open_files - needs.files_open - KEPT) // each, (
        f"each takes up to {each} open files, and {needs.files_open} of the {host.open_files} that are allowed are in "
        "use. Raise the limit (ulimit -n 65536)."
    )


def _by_memory(host: HostFacts, needs: Needs) -> tuple[int, str] | None:
    if not needs.worker_bytes:
        return None
    return int(RAM * host.ram_available_bytes / host.local_ranks / needs.worker_bytes), (
        f"each keeps {format_bytes(needs.worker_bytes)} in memory for itself, and "
        f"{format_bytes(host.ram_available_bytes)} are free{_shared(host)}. Use a smaller dataset object, or fork."
    )


def _shared(host: HostFacts) -> str:
    return f" for {host.local_ranks} ranks" if host.local_ranks > 1 else ""
