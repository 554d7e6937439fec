"""Limits: what a worker needs of this machine, found out before one is started."""

from audioaug.advise.target import Target
from audioaug.decide.limits import Needs
from audioaug.loader.pickling import WorkerBatch, why_not_picklable
from audioaug.loader.prefetch import tensors
from audioaug.measure import files_open, free_shared_memory


def needs_of(target: Target, message: WorkerBatch, start_method: str) -> Needs:
    """Return what a worker needs that sends such messages."""
    assert message.prepared is not None
    sent = [*tensors(message.batch), message.prepared.numbers]
    return Needs(
        batch_bytes=sum(tensor.nbytes for tensor in sent),
        batch_tensors=len(sent),
        files_open=files_open(),
        shared_free_bytes=free_shared_memory(),
        unpicklable="" if start_method == "fork" else why_unpicklable(target),
    )


def why_unpicklable(target: Target) -> str:
    """Name what cannot be sent to a worker that is not forked, and why; nothing if all can be."""
    return why_not_picklable({"dataset": target.dataset, "collate_fn": target.collate_fn, "augment": target.chain})
