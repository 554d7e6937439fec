"""Facts: what a report says of the chain and of the training, before anything is measured."""

from audioaug.advise.target import Target
from audioaug.core import Chain
from audioaug.records import ChainFacts, Workload


def chain_facts(chain: Chain) -> ChainFacts:
    """Return the chain's ops and where it may be cut, with the reasons."""
    first, last = chain.device_from, chain.worker_until
    return ChainFacts(
        ops=tuple(op.name for op in chain.ops),
        sample_rate=int(chain.sample_rate),
        hash=chain.hash,
        declaration=chain.describe(),
        device_from=first,
        device_from_reason=chain.why_not_cut(first - 1) if first else "",
        worker_until=last if last < len(chain) else None,
        worker_until_reason=chain.why_not_cut(last + 1) if last < len(chain) else "",
    )


def workload(target: Target) -> Workload:
    """Return what is trained on what."""
    return Workload(
        model=target.name,
        parameters=sum(parameter.numel() for parameter in target.model.parameters()),
        batch_size=target.batch_size,
        clip_seconds=target.clip_seconds,
        sample_rate=int(target.chain.sample_rate),
        precision=target.precision,
        dataset=target.data_name,
        clips=len(target.dataset),
        sources=target.sources,
    )
