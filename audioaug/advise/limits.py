"""Limits: what a worker needs of this machine, found out before one is started."""

from audioaug.advise.training_job import TrainingJob
from audioaug.decide.limits import Needs
from audioaug.loader.device_prefetch import tensors
from audioaug.loader.fetch import Message
from audioaug.loader.pickling import why_not_picklable
from audioaug.measure import files_open, free_shared_memory


def needs_of(job: TrainingJob, message: Message, start_method: str) -> Needs:
    """Return what a worker needs that sends such messages."""
    assert message.prepared is not None
    sent = [*tensors(message.batch), message.prepared.numbers]
    return Needs(
        batch_bytes=sum(tensor.nbytes for tensor in sent),
        batch_tensors=len(sent),
        files_open=files_open(),
        shared_free_bytes=free_shared_memory(),
        unpicklable="" if start_method == "fork" else why_unpicklable(job),
    )


def why_unpicklable(job: TrainingJob) -> str:
    """Name what cannot be sent to a worker that is not forked, and why; nothing if all can be."""
    return why_not_picklable({"dataset": job.dataset, "collate_fn": job.collate_fn, "augment": job.chain})
