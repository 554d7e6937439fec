"""Budget: how the stages of a survey share its time."""

from collections.abc import Container

from audioaug.measure import Clock
from audioaug.units import Seconds

SHARES = {"today": 0.08, "workers": 0.05, "device": 0.08, "loader": 0.18, "screening": 0.33, "race": 0.28}
"""The stages in order, and how they share the time: what one leaves over or overdraws is shared by those after it."""

RESERVE = 0.04
"""Of the time, kept back: the last stage ends with a whole round."""

SMALL = 60.0
"""Seconds: with less, only few batches are loaded to train on, and blocks of long steps are shorter."""

ALSO, ALSO_RACED = 0.04, 0.1
"""Of the budget, besides it, for each other precision or batch size; for each other way to start workers."""


class Budget:
    """The seconds that all stages share, counted by ``clock`` from the moment this is made."""

    def __init__(self, total: Seconds, clock: Clock) -> None:
        self.total, self._clock = total, clock
        self._began = clock.now()
        self._left_out = 0.0

    @property
    def is_small(self) -> bool:
        """Whether to spare what no share of the time makes shorter."""
        return self.total < SMALL

    @property
    def spent(self) -> Seconds:
        """The seconds since the beginning."""
        return self._clock.now() - self._began

    def leave_out(self, stages: Container[str]) -> None:
        """Do without these stages, and without their time."""
        self._left_out = sum(share for name, share in SHARES.items() if name in stages)

    def seconds_for(self, stage: str) -> Seconds:
        """Return how long a stage may take: its part of the time that is left, but never nothing."""
        names = list(SHARES)
        left = self.total * (1 - self._left_out) * (1 - RESERVE) - self.spent
        remaining_shares = sum(SHARES[name] for name in names[names.index(stage) :])
        return max(left, 0.2 * self.total) * SHARES[stage] / remaining_shares
