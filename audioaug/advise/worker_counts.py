"""Worker counts: those to consider, and how many this machine has room for."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from audioaug.advise.candidates import candidate_at
from audioaug.core import Chain
from audioaug.decide.limits import Needs, most_workers
from audioaug.errors import MeasurementError
from audioaug.records import Candidate, HostFacts, Notice
from audioaug.units import plural

MOST_PROCESSES = 32
"""Workers that are alive at once, most of them waiting."""


@dataclass(frozen=True)
class WorkerCounts:
    """The counts that were asked for (``None``: by the cores), beside what workers need and what there is of it."""

    host: HostFacts
    asked: tuple[int, ...] | None
    today: int
    needs: Needs = field(default_factory=Needs)

    @property
    def most(self) -> int:
        """As many as can be alive at once."""
        return most_workers(self.host, self.needs, MOST_PROCESSES)[0]

    def why_no_more(self, count: int = MOST_PROCESSES) -> Notice | None:
        """Return the limit that leaves no room for so many, if there is one."""
        return most_workers(self.host, self.needs, count)[1]

    def check(self, count: int) -> None:
        """Raise ``MeasurementError`` if there is no room for so many."""
        if count > self.most:
            limit = self.why_no_more(count)
            raise MeasurementError(f"The plan's {plural(count, 'worker')} cannot be run.", limit.text if limit else "")

    def with_memory(self, worker_bytes: int) -> "WorkerCounts":
        """Return the counts, knowing of a worker that takes so much memory for itself."""
        largest = max(worker_bytes, self.needs.worker_bytes or 0)
        return replace(self, needs=replace(self.needs, worker_bytes=largest))

    @property
    def wanted(self) -> tuple[int, ...]:
        """What was asked for, else none, powers of two, all usable cores, and today's."""
        if self.asked is not None:
            return self.asked
        most = max(1, int(self.host.usable_cores))
        counts = {0, most, self.today} | {2**k for k in range(10) if 2**k <= most}
        return tuple(sorted(counts))

    @property
    def possible(self) -> tuple[int, ...]:
        """Those of them that there is room for."""
        return tuple(count for count in self.wanted if count <= self.most) or (0,)

    def impossible(self, chain: Chain, cuts: range) -> Iterator[Candidate]:
        """Yield a candidate with the reason for each of the others, at the first and the last cut there can be."""
        limit = self.why_no_more()
        for cut in {cuts[0], cuts[-1]}:
            for count in self.wanted:
                if count > self.most:
                    yield candidate_at(chain, cut, count, status="infeasible", reason=limit.text if limit else "")
