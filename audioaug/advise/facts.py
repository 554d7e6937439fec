"""Facts: what a report says of the chain and of the training, before anything is measured."""

from itertools import accumulate
from typing import Any

from audioaug.advise.target import Target
from audioaug.core import Chain, leaves
from audioaug.engine.fuse import grouped
from audioaug.records import ChainFacts, Workload


def chain_facts(target: Target) -> ChainFacts:
    """Return the chain's ops and where it may be cut, with the reasons."""
    chain, first, last = target.chain, target.least_cut, target.chain.worker_until
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
    sizes = [len(part.members) for part in grouped(chain.nodes)]
    return tuple((stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True) if size > 1)


def _why_not_before(chain: Chain, first: int) -> str:
    """Return why the first cut there can be is no earlier one."""
    if reason := chain.why_not_cut(first - 1):
        return reason
    resizing = next(leaf.name for leaf in leaves(chain.ops[first - 1]) if leaf.capabilities.changes_length)
    return f"{resizing} changes the lengths of clips, which collate_fn has to see."


def workload(target: Target) -> Workload:
    """Return what is trained on what."""
    shortest, longest = target.clip_seconds
    return Workload(
        model=target.name,
        parameters=sum(parameter.numel() for parameter in target.model.parameters()),
        batch_size=target.batch_size,
        clip_seconds=longest,
        sample_rate=int(target.chain.sample_rate),
        precision=target.precision,
        dataset=target.data_name,
        clips=_length(target.dataset),
        sources=target.sources,
        shortest_seconds=shortest if shortest < longest else None,
        setup=target.setup,
    )


def _length(dataset: Any) -> int | None:
    """Return how many examples a dataset has; ``None`` for a stream that does not say."""
    try:
        return len(dataset)
    except TypeError:
        return None
