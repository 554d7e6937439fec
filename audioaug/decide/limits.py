"""Limits: how many workers this machine has room for, all loaders that are alive at once together, and why no more."""

from dataclasses import dataclass

from audioaug.records import HostFacts, Notice
from audioaug.units import format_bytes, plural

FILES = 6
"""Files that a worker keeps open in the training process: pipes and a sentinel (measured: 4 to 6)."""

AHEAD = 3
"""Batches that a worker may have in shared memory at once: two ahead (torch's default) and one that is being sent."""

KEPT = 16
"""Files left for the training itself."""

SHARED, RAM = 0.9, 0.8
"""The shares of shared memory and of free memory that workers may fill."""


@dataclass(frozen=True)
class Needs:
    """What a worker needs of the machine, and what of that is taken. ``None``: not known.

    ``unpicklable`` names what cannot be sent to a worker that is not forked.
    """

    batch_bytes: int = 0
    batch_tensors: int = 0
    files_open: int | None = None
    shared_free_bytes: int | None = None
    worker_bytes: int | None = None
    unpicklable: str = ""


def most_workers(host: HostFacts, needs: Needs, at_most: int) -> tuple[int, Notice | None]:
    """Return how many workers fit, at most so many, and the limit that allows no more, if there is one."""
    limits = {
        "not_picklable": _by_pickle(host, needs),
        "shm_too_small": _by_shared_memory(needs),
        "fd_limit": _by_files(host, needs),
        "ram_limit": _by_memory(host, needs),
    }
    found = {name: (max(0, limit[0]), limit[1]) for name, limit in limits.items() if limit is not None}
    name = min(found, key=lambda name: found[name][0], default="")
    if not name or found[name][0] >= at_most:
        return at_most, None
    workers, why = found[name]
    return workers, Notice(name, f"There is room for {plural(workers, 'worker')} only: {why}")


def _by_pickle(host: HostFacts, needs: Needs) -> tuple[int, str] | None:
    if not needs.unpicklable or host.start_method == "fork":
        return None
    return 0, f"they are started by {host.start_method}, but {needs.unpicklable}."


def _by_shared_memory(needs: Needs) -> tuple[int, str] | None:
    if needs.shared_free_bytes is None or not needs.batch_bytes:
        return None
    return int(SHARED * needs.shared_free_bytes / (AHEAD * needs.batch_bytes)), (
        f"each keeps up to {AHEAD} batches of {format_bytes(needs.batch_bytes)} in /dev/shm, where "
        f"{format_bytes(needs.shared_free_bytes)} are free. Make it larger (docker run --shm-size=8g)."
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
    return int(RAM * host.ram_available_bytes / needs.worker_bytes), (
        f"each keeps {format_bytes(needs.worker_bytes)} in memory for itself, and "
        f"{format_bytes(host.ram_available_bytes)}"
        " are free. Use a lighter dataset object, or fork."
    )
