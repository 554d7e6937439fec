"""The slowest rank of a distributed training: the one that waits longest for data, while the others wait for it.

Ranks that average their gradients have the same step time, since each waits for the last one in the all-reduce. So the
step time names no rank; but what the slowest waits for data, the others wait in the all-reduce, where it counts as
training. A rank whose model is slow, such as on a throttled GPU, is not found in this way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from audioaug.decide.bottleneck import WAITING
from audioaug.records import BOTTLENECKS, Window
from audioaug.units import format_percent


@dataclass
class Waits:
    """Sums over the steps of one rank: their time, the part spent waiting for data, and by bottleneck (its id)."""

    steps: int = 0
    step_ms: float = 0.0
    wait_ms: float = 0.0
    bottleneck_ms: dict[str, float] = field(default_factory=dict)

    def add(self, window: Window) -> None:
        """Add the steps of a window."""
        step_ms = window.steps * window.step_ms
        self.steps += window.steps
        self.step_ms += step_ms
        self.wait_ms += window.steps * window.wait_ms
        if window.bottleneck:
            self.bottleneck_ms[window.bottleneck] = self.bottleneck_ms.get(window.bottleneck, 0.0) + step_ms

    @property
    def share(self) -> float:
        """The share of the time that is spent waiting for data."""
        return self.wait_ms / self.step_ms if self.step_ms else 0.0


def slowest_rank(ranks: Mapping[int, Waits]) -> int | None:
    """Return the rank that waits longest for data in a step; ``None`` if there is only one or none waits over 5 %."""
    waiting = [rank for rank, waits in ranks.items() if waits.share > WAITING]
    if len(ranks) < 2 or not waiting:
        return None
    return max(waiting, key=lambda rank: ranks[rank].wait_ms / ranks[rank].steps)


def rank_numbers(ranks: Mapping[int, Waits]) -> dict[str, float]:
    """Return ``ranks``, ``slowest_rank``, and what that one waits for; nothing if there is only one."""
    if len(ranks) < 2:
        return {}
    numbers: dict[str, float] = {"ranks": len(ranks)}
    slowest = slowest_rank(ranks)
    if slowest is None:
        return numbers
    waits = ranks[slowest]
    numbers |= {"slowest_rank": slowest, "slowest_rank/wait_share": waits.share}
    return numbers | {f"slowest_rank/bottleneck/{name}": ms / waits.step_ms for name, ms in waits.bottleneck_ms.items()}


def rank_words(ranks: Mapping[int, Waits]) -> str:
    """Return a sentence that names the slowest rank and its bottleneck; nothing if there is none."""
    slowest = slowest_rank(ranks)
    if slowest is None:
        return ""
    waits = ranks[slowest]
    lasted = waits.bottleneck_ms
    main = f"; its main bottleneck was {BOTTLENECKS[max(lasted, key=lambda name: lasted[name])]}" if lasted else ""
    share = format_percent(waits.share)
    return f"The slowest of {len(ranks)} ranks is rank {slowest}, which waits for data {share} of its time{main}."
