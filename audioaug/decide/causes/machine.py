"""Causes in the machine: its load and its limits."""

from audioaug.decide.causes.case import NOISE, Case
from audioaug.units import format_bytes, format_ms, format_percent, plural

THROTTLED = 0.05
FOREIGN = 0.25
"""Share of the usable cores that other programs use."""

WANTED = 0.2
"""Share of the usable cores that we use or wait for, below which cores are not scarce."""

FULL = 0.85
STOLEN = 0.1
SLOWER = 0.75
"""Effective share of the usable cores below which they share hardware."""


def refused(case: Case, limit: str) -> str:
    """A limit, by its id, that prevented today's workers from running."""
    found = case.signals.refused
    return found.text if found is not None and found.id == limit else ""


def memory_growth(case: Case) -> str:
    """Growing workers would fill the memory within an epoch."""
    growth, workers = case.signals.worker_growth_bytes, case.current.num_workers
    if not growth or growth <= 0 or not workers or case.epoch_steps is None:
        return ""
    batches = case.report.host.ram_available_bytes / growth
    if batches > case.epoch_steps:
        return ""
    return (
        f"Workers' own memory grows by {format_bytes(growth)} with every batch: the free "
        f"{format_bytes(case.report.host.ram_available_bytes)} are full after {batches:,.0f} of an epoch's "
        f"{case.epoch_steps:,} batches. Do not keep examples, and hold large lists as arrays, which workers "
        "share."
    )


def foreign_load(case: Case) -> str:
    """Other programs used cores that were fully loaded."""
    foreign, cores = case.signals.foreign_cores, case.signals.watched_cores
    if foreign is None or cores is None or foreign < FOREIGN * cores:
        return ""
    ours = 1e3 * (case.current.cpu_seconds_per_step or 0.0) / case.step_ms
    wanted = ours + (case.signals.wanted_cores or 0.0)
    if wanted < WANTED * case.report.host.usable_cores or foreign + ours < FULL * cores:
        return ""
    return (
        f"Other programs used {foreign:.1f} of the {plural(cores, 'core')}, which were fully loaded: these times are "
        "not those of your training alone. Stop them and run this again."
    )


def only_foreign_load(case: Case) -> str:
    """Other programs used cores that were fully loaded, and no candidate is faster beside them."""
    return "" if case.best is not None and case.best.name != case.current.name else foreign_load(case)


def quota_throttled(case: Case) -> str:
    """A CPU quota throttled the process."""
    share = case.signals.throttled
    if share is None or share < THROTTLED:
        return ""
    return (
        f"The control group's quota of {case.report.host.usable_cores:g} cores throttled this training for "
        f"{format_percent(share)} of the time. Raise the quota (docker run --cpus), or use fewer workers and threads."
    )


def noisy_neighbour(case: Case) -> str:
    """The hypervisor gave cores to other virtual machines."""
    stolen, host = case.signals.stolen_cores, case.report.host
    if stolen is not None and stolen >= STOLEN * host.usable_cores:
        return (
            f"The hypervisor took {stolen:.2f} of the {host.usable_cores:g} usable cores (steal time). Other "
            "virtual machines share the host: measure again at another time, or use dedicated cores."
        )
    if host.cores >= SLOWER * host.usable_cores:
        return ""
    return (
        f"The {host.usable_cores:g} usable cores together do only {host.cores:.1f}x the work of one: they share "
        "hardware, or other programs are running. Workers gain less than usual: measure before adding "
        "any."
    )


def too_noisy(case: Case) -> str:
    """Today's step varies by more than its stall."""
    if case.current.measured_ci_ms is None or case.noise < max(NOISE, case.stall):
        return ""
    share = f"{format_percent(min(1.0, case.noise))}{' or more' if case.noise > 1 else ''}"
    return (
        f"Today's step takes {format_ms(case.step_ms)} and varies by {share}: smaller differences cannot be resolved. "
        "Run this on a quieter machine, or with a larger --budget."
    )
