"""Facts: what a report says of the chain and of the training, before anything is measured."""

from itertools import accumulate
from typing import Any

from audioaug.advise.training_job import TrainingJob
from audioaug.core import Chain
from audioaug.engine.fuse import Fused, grouped
from audioaug.records import ChainFacts, Workload


def chain_facts(job: TrainingJob) -> ChainFacts:
    """Return the chain's ops and where it may be cut, with the reasons."""
    chain, first, last = job.chain, job.least_cut, job.chain.worker_until
    return ChainFacts(
        ops=tuple(op.name for op in chain.ops),
        sample_rate=int(chain.sample_rate),
        hash=chain.hash,
        declaration=chain.describe(),
        device_from=first,
        device_from_reason=_why_not_before(chain, first) if first else "",
        worker_until=last if last < len(chain) else None,
        worker_until_reason=chain.why_not_cut(last + 1) if last < len(chain) else "",
        fused=_fused(chain),
    )


def _fused(chain: Chain) -> tuple[tuple[int, int], ...]:
    """Return from where to where neighbours are one pass."""
    sizes = [len(part.nodes) if isinstance(part, Fused) else 1 for part in grouped(chain.nodes)]
    return tuple((stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True) if size > 1)


def _why_not_before(chain: Chain, first: int) -> str:
    """Return why the first cut there can be is no earlier one."""
    if reason := chain.why_not_cut(first - 1):
        return reason
    resizing = next(leaf.name for leaf in chain.ops[first - 1].leaves() if leaf.changes_length)
    return f"{resizing} changes the lengths of clips, which collate_fn has to see."


def workload(job: TrainingJob) -> Workload:
    """Return what is trained on what."""
    shortest, longest = job.clip_seconds
    return Workload(
        model=job.name,
        parameters=sum(parameter.numel() for parameter in job.model.parameters()),
        batch_size=job.batch_size,
        clip_seconds=longest,
        sample_rate=int(job.chain.sample_rate),
        precision=job.precision,
        dataset=job.data_name,
        clips=_length(job.dataset),
        sources=job.sources,
        shortest_seconds=shortest if shortest < longest else None,
        setup=job.setup,
    )


def _length(dataset: Any) -> int | None:
    """Return how many examples a dataset has; ``None`` for a stream that does not say."""
    try:
        return len(dataset)
    except TypeError:
        return None
