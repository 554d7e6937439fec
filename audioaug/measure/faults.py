"""How much of its time work spends on fresh pages: memory that was handed back, and is cleared to be lent again."""

from collections.abc import Callable
from dataclasses import dataclass

from audioaug.measure.clock import Clock
from audioaug.measure.rounds import rounds
from audioaug.units import Seconds

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True)
class PageFaults:
    """Fresh pages that a call asks for, and the share of this process's CPU time that the kernel takes meanwhile."""

    per_call: float
    kernel_share: float


def page_faults(work: Callable[[], object], clock: Clock, seconds: Seconds) -> PageFaults | None:
    """Call ``work``, which is warm, for so many seconds, once at least; ``None`` where the system does not count.

    All threads of this process are counted, as are those of others that run in it meanwhile.
    """
    if resource is None:
        return None
    before, calls = resource.getrusage(resource.RUSAGE_SELF), 0
    for _ in rounds(clock, clock.now() + seconds):
        work()
        calls += 1
    after = resource.getrusage(resource.RUSAGE_SELF)
    kernel, user = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
    return PageFaults((after.ru_minflt - before.ru_minflt) / calls, kernel / max(1e-9, kernel + user))
