"""Candidates as running Loaders on a sample of the examples, and how many workers this machine can run."""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.utils.data import IterableDataset

from audioaug.advise.training_job import TrainingJob
from audioaug.audio.decoders import EncodedClip
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain
from audioaug.decide.limits import Needs, most_workers
from audioaug.decide.shortlist import placement_of
from audioaug.errors import AudioaugError, DataError, MeasurementError, UsageError, in_one_line
from audioaug.loader import Loader
from audioaug.loader.examples import get_wave, is_encoded
from audioaug.loader.pickling import too_many_tensors, why_not_picklable
from audioaug.loader.processes import local_size, share_of
from audioaug.loader.sampling import is_stream
from audioaug.measure import clock_for, files_open, free_shared_memory
from audioaug.measure.ranks import local_rank
from audioaug.measure.repeat import rounds
from audioaug.records import SHARED_FIELDS, Candidate, CandidateStatus, HostFacts, Notice, Plan, plan_of
from audioaug.units import Seconds, format_bytes, format_seconds, plural

POOL = 4096
"""Most examples that loaders are measured with."""


def sample_indices(size: int, count: int, seed: int = 0) -> list[int]:
    """Return up to ``count`` random indices below ``size``, at most ``POOL``.

    A smaller count is a prefix of a larger one. The cost does not depend on the size of the dataset.
    """
    return random.Random(seed).sample(range(size), min(size, POOL))[:count]


class Restarting(IterableDataset[Any]):
    """A stream that restarts when it ends, so that a measurement never sees the end of an epoch.

    Args:
        dataset: the user's stream. Its ``set_epoch``, if it has one, is called before each pass.
        most: examples that an iteration yields in each worker; unlimited by default.
    """

    def __init__(self, dataset: Any, most: int | None = None) -> None:
        self.dataset, self.most = dataset, most

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._passes(), self.most)

    def _passes(self) -> Iterator[Any]:
        for epoch in itertools.count():
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(epoch)
            is_empty = True
            for example in self.dataset:
                is_empty = False
                yield example
            if is_empty:
                return


class Reader:
    """Read examples of a dataset by number. A stream returns its next example, whatever the number."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._stream = iter(Restarting(dataset)) if is_stream(dataset) else None

    def numbers(self, count: int) -> Sequence[int]:
        """Return the numbers of a sample of at most ``count`` examples."""
        return range(count) if self._stream is not None else sample_indices(len(self._dataset), count)

    def __call__(self, number: int) -> Any:
        """Return an example. Exceptions of the dataset pass through; an empty stream raises ``StopIteration``."""
        return self._dataset[number] if self._stream is None else next(self._stream)


def encoded_clips(job: TrainingJob) -> Iterator[EncodedClip]:
    """Yield readable clips that audioaug decodes, for ``AudioFolder`` or in the Loader; none if the dataset does."""
    dataset, read = job.dataset, Reader(job.dataset)
    for number in read.numbers(POOL):
        with suppress(Exception):
            job.clip_of(example := read(number))
            audio = get_wave(example, job.audio_key)
            if type(dataset) is AudioFolder:
                yield EncodedClip(dataset.files[number], dataset.seconds, dataset.decoder == "fastest")
            elif is_encoded(audio):
                yield EncodedClip(audio["path"] if audio["bytes"] is None else audio["bytes"])
            else:
                return


CACHED, FEW_CACHED = 8, 4
"""Batches kept on the device for the ceiling; fewer with a small budget."""


class EndlessBatches:
    """Shuffled batches of indices without end, so that no end of an epoch is timed.

    A large dataset is sampled: its files are then in the page cache for all candidates. Ranks have different batches.
    """

    def __init__(self, size: int, batch_size: int, seed: int = 0) -> None:
        self.pool, self.batch_size, self.seed = sample_indices(size, POOL, seed), batch_size, seed

    def __len__(self) -> int:
        return 10**9

    def __iter__(self) -> Iterator[list[int]]:
        draw, pending = random.Random(self.seed + local_rank()), list[int]()
        while True:
            while len(pending) < self.batch_size:
                pending += draw.sample(self.pool, len(self.pool))
            batch, pending = pending[: self.batch_size], pending[self.batch_size :]
            yield batch


class RaceBatches(EndlessBatches):
    """Endless batches in the order of a race: ``warm_up`` batches, then ``discard`` and ``block`` batches in turn.

    The blocks of a round hold the same batches for every candidate, or for each ``owner`` its own; a shorter block is a
    prefix of a longer one. With ``cached`` every block cycles through that many batches, those that the ceiling has on
    the device.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        discard: int,
        block: int,
        seed: int = 0,
        cached: int = 0,
        warm_up: int = 1,
        owner: str = "",
    ) -> None:
        super().__init__(size, batch_size, seed)
        self.discard, self.block, self.cached, self.warm_up, self.owner = discard, block, cached, warm_up, owner

    def __iter__(self) -> Iterator[list[int]]:
        others = super().__iter__()
        yield from itertools.islice(others, self.warm_up)
        for number in itertools.count():
            yield from itertools.islice(others, self.discard)
            yield from itertools.islice(self._of_round(number), self.block)

    def _of_round(self, number: int) -> Iterator[list[int]]:
        if self.cached:
            return itertools.cycle(itertools.islice(super().__iter__(), self.cached))
        draw = random.Random(f"{self.seed + local_rank()} {number} {self.owner}")
        return (draw.choices(self.pool, k=self.batch_size) for _ in itertools.count())


def candidate_of(plan: Plan, chain: Chain) -> Candidate:
    """Return the candidate that a plan for this chain describes."""
    knobs = {name: getattr(plan, name) for name in SHARED_FIELDS} | {"num_workers": share_of(plan.num_workers)}
    return Candidate(placement_of(plan.cut, len(chain)), **knobs)


def candidate_at(
    chain: Chain, cut: int, workers: int, status: CandidateStatus = "predicted", reason: str = ""
) -> Candidate:
    """Return the candidate with that cut and number of workers, and defaults otherwise."""
    return Candidate(placement_of(cut, len(chain)), cut, num_workers=workers, status=status, reason=reason)


def open_loader(job: TrainingJob, candidate: Candidate, batches: Iterable[list[int]] | None = None) -> Loader:
    """Return the Loader that users would train with under this candidate's plan, on ``batches`` or endless ones.

    A stream keeps its own order and restarts when it ends.
    """
    if job.is_stream:
        loader = _loader(job, candidate, Restarting(job.dataset), batch_size=job.batch_size)
    else:
        endless = EndlessBatches(len(job.dataset), job.batch_size) if batches is None else batches
        loader = _loader(job, candidate, job.dataset, batch_sampler=endless)
    return _led(job, loader, open_loader, candidate, batches)


def open_brief_loader(job: TrainingJob, candidate: Candidate) -> Loader:
    """Return a Loader whose epochs have one batch for each worker."""
    if job.is_stream:
        loader = _loader(job, candidate, Restarting(job.dataset, job.batch_size), batch_size=job.batch_size)
    else:
        indices = sample_indices(len(job.dataset), job.batch_size)
        loader = _loader(job, candidate, job.dataset, batch_sampler=[indices for _ in range(candidate.num_workers)])
    return _led(job, loader, open_brief_loader, candidate)


def _led(job: TrainingJob, loader: Loader, function: Callable[..., Loader], *arguments: Any) -> Loader:
    """Let the other ranks, if there are any, open and use loaders of their own in the same way."""
    if job.leader is None:
        return loader
    changes = {"batch_size": job.batch_size, "precision": job.precision}
    return cast(Loader, job.leader.loader(loader, job.wave_of, function, arguments, changes))


def _loader(job: TrainingJob, candidate: Candidate, dataset: Any, **order: Any) -> Loader:
    return Loader(
        dataset,
        job.chain,
        plan_of(candidate, job.chain.hash, job.precision, local_size()),
        device=job.device,
        collate_fn=job.collate_fn,
        pad=job.pad,
        on_error="skip",
        lengths=job.lengths,
        targets=job.targets,
        audio_key=job.audio_key,
        **order,
    )


def queued_batches(candidate: Candidate) -> int:
    """Return how many steps to leave untimed: the batches that workers may have queued, or the first one."""
    return candidate.queue + 2 if candidate.num_workers else 1


def cached_batches(
    job: TrainingJob, candidate: Candidate, count: int = CACHED, seconds: Seconds = math.inf
) -> tuple[list[Any], Seconds]:
    """Return batches on the device, and the seconds to load one: the fewest, since the first builds all transforms.

    There are ``count`` batches, or as many as load within about ``seconds``, at least two.

    Raises:
        DataError: they cannot be loaded.
    """
    batches, times = list[Any](), list[Seconds]()
    try:
        feeder, clock = iter(open_loader(job, replace(candidate, num_workers=0))), clock_for(job.device)
        for _ in rounds(clock, clock.now() + seconds, at_least=min(2, count), at_most=count):
            begin = clock.now()
            batches.append(next(feeder))
            times.append(clock.now() - begin)
        return batches, min(times)
    except AudioaugError:
        raise
    except StopIteration:
        raise DataError(f"{job.name}: the dataset is empty.", "It needs at least one example.") from None
    except Exception as error:
        reason = in_one_line(error)
        raise DataError(
            f"{job.name}: a batch cannot be loaded: {reason}", "Check `dataset` and `collate_fn`."
        ) from None


def check_memory(job: TrainingJob, batch_size: int, free_bytes: int) -> None:
    """Raise ``UsageError`` if two batches of this size, the fewest that are cached, do not fit into the memory."""
    seconds = job.clip_seconds[0]
    needed = 2 * batch_size * seconds * job.chain.sample_rate * torch.float32.itemsize
    if needed > free_bytes:
        raise UsageError(
            f"Two batches of {batch_size:,} clips of {format_seconds(seconds)} need {format_bytes(needed)} of memory, "
            f"but {format_bytes(free_bytes)} are free.",
            "Use a smaller batch size.",
        )


def needs_of(job: TrainingJob, sent: Sequence[torch.Tensor], start_method: str) -> Needs:
    """Return the resources that a worker needs to send such tensors with each batch."""
    return Needs(
        batch_bytes=sum(tensor.nbytes for tensor in sent),
        batch_tensors=len(sent),
        files_open=files_open(),
        shared_free_bytes=free_shared_memory(),
        unpicklable="" if start_method == "fork" else why_unpicklable(job, start_method),
    )


def why_unpicklable(job: TrainingJob, start_method: str) -> str:
    """Return what a worker that is not forked cannot receive, and why; an empty string if it can receive all."""
    objects = {"dataset": job.dataset, "collate_fn": job.collate_fn, "augment": job.chain}
    return too_many_tensors(objects, start_method) or why_not_picklable(objects)


MOST_PROCESSES = 32
"""Most workers alive at the same time, over all loaders."""


@dataclass(frozen=True)
class WorkerCounts:
    """The requested worker counts (``None``: from the number of cores), and the limits of this machine."""

    host: HostFacts
    requested: tuple[int, ...] | None
    today: int
    needs: Needs = field(default_factory=Needs)

    @property
    def most(self) -> int:
        """The most workers that can be alive at the same time."""
        return most_workers(self.host, self.needs, MOST_PROCESSES)[0]

    def why_no_more(self, count: int = MOST_PROCESSES) -> Notice | None:
        """Return the limit that rules out ``count`` workers, if there is one."""
        return most_workers(self.host, self.needs, count)[1]

    def check(self, count: int) -> None:
        """Raise ``MeasurementError`` if this machine cannot run ``count`` workers."""
        if count > self.most:
            limit = self.why_no_more(count)
            raise MeasurementError(f"The plan's {plural(count, 'worker')} cannot be run.", limit.text if limit else "")

    def with_memory(self, worker_bytes: int) -> "WorkerCounts":
        """Return the counts given a worker that uses this much memory of its own."""
        largest = max(worker_bytes, self.needs.worker_bytes or 0)
        return replace(self, needs=replace(self.needs, worker_bytes=largest))

    @property
    def considered(self) -> tuple[int, ...]:
        """The requested counts, else 0, powers of two, the number of usable cores, and today's."""
        if self.requested is not None:
            return self.requested
        most = max(1, int(self.host.usable_cores))
        counts = {0, most, self.today} | {2**k for k in range(10) if 2**k <= most}
        return tuple(sorted(counts))

    @property
    def possible(self) -> tuple[int, ...]:
        """The considered counts that this machine can run."""
        return tuple(count for count in self.considered if count <= self.most) or (0,)

    def impossible(self, chain: Chain, cuts: range) -> Iterator[Candidate]:
        """Yield infeasible candidates with the reason: all other counts, at the first and the last possible cut."""
        limit = self.why_no_more()
        for cut in {cuts[0], cuts[-1]}:
            for count in self.considered:
                if count > self.most:
                    yield candidate_at(chain, cut, count, status="infeasible", reason=limit.text if limit else "")
