"""Causes in the machine: what else runs on it, and what it allows."""

from audioaug.decide.causes.case import NOISE, Case
from audioaug.units import format_bytes, format_ms, format_percent, plural

THROTTLED = 0.05
FOREIGN = 0.25
"""Of the usable cores, in other hands."""

WANTED = 0.2
"""What we use of them ourselves, or would if we could: who needs less is not in want of cores."""

FULL = 0.85
STOLEN = 0.1
SLOWER = 0.75
"""The usable cores together do less than this share of what so many single ones do."""


def refused(case: Case, limit: str) -> str:
    """A limit, by its id, that kept today's workers from being run at all."""
    found = case.signals.refused
    return found.text if found is not None and found.id == limit else ""


def memory_growth(case: Case) -> str:
    """Workers that keep growing would fill the memory within an epoch."""
    growth, workers = case.signals.worker_growth_bytes, case.current.num_workers
    if not growth or growth <= 0 or not workers or case.epoch_steps is None:
        return ""
    batches = case.report.host.ram_available_bytes / growth
    if batches > case.epoch_steps:
        return ""
    return (
        f"A worker's own memory grows by {format_bytes(growth)} with every batch: what is free, "
        f"{format_bytes(case.report.host.ram_available_bytes)}, is full after {batches:,.0f} of an epoch's "
        f"{case.epoch_steps:,} batches. Keep nothing that was read, and hold large lists as arrays, which workers "
        "share."
    )


def foreign_load(case: Case) -> str:
    """Other programs took a share of cores that were full."""
    foreign, cores = case.signals.foreign_cores, case.signals.watched_cores
    if foreign is None or cores is None or foreign < FOREIGN * cores:
        return ""
    ours = 1e3 * (case.current.cpu_seconds_per_step or 0.0) / case.step_ms
    wanted = ours + (case.signals.wanted_cores or 0.0)
    if wanted < WANTED * case.report.host.usable_cores or foreign + ours < FULL * cores:
        return ""
    return (
        f"Other programs used {foreign:.1f} of the {plural(cores, 'core')} meanwhile, which were full: these times are "
        "not what your training takes alone. End them and run this again."
    )


def quota_throttled(case: Case) -> str:
    """A CPU quota stopped the process again and again."""
    share = case.signals.throttled
    if share is None or share < THROTTLED:
        return ""
    return (
        f"The control group's quota of {case.report.host.usable_cores:g} cores stopped this training for "
        f"{format_percent(share)} of the time. Raise the quota (docker run --cpus), or use fewer workers and threads."
    )


def noisy_neighbour(case: Case) -> str:
    """The hypervisor gave the cores to somebody else."""
    stolen, host = case.signals.stolen_cores, case.report.host
    if stolen is not None and stolen >= STOLEN * host.usable_cores:
        return (
            f"The machine below this one took away {stolen:.2f} of the {host.usable_cores:g} usable cores. Other "
            "virtual machines share it: measure again at another time, or ask for cores of your own."
        )
    if host.cores >= SLOWER * host.usable_cores:
        return ""
    return (
        f"The {host.usable_cores:g} usable cores together do only {host.cores:.1f} times the work of one: they share "
        "hardware, or something else is running. Workers gain less than they would otherwise: measure before adding "
        "any."
    )


def too_noisy(case: Case) -> str:
    """Today's step varies so much, more than the model's own is below it, that little can be said."""
    if case.current.measured_ci_ms is None or case.noise < max(NOISE, case.stall):
        return ""
    share = f"{format_percent(min(1.0, case.noise))}{' or more' if case.noise > 1 else ''}"
    return (
        f"Today's step takes {format_ms(case.step_ms)} and varies by {share}: differences below that cannot be seen. "
        "Run this on a quieter machine, or with a larger --budget."
    )
