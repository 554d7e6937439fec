"""What can be seen of a torch DataLoader while it runs: batches that lie ready, and its workers."""

from typing import Any

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter


def batches_ready(running: Any) -> int | None:
    """Return the batches that workers have finished and nobody has taken; ``None`` where that cannot be known.

    Args:
        running: what ``iter`` of a ``DataLoader`` gives, or anything else, of which nothing is known.
    """
    if not isinstance(running, _MultiProcessingDataLoaderIter):
        return None
    queues: set[Any] = {running._worker_result_queue, running._data_queue}  # one, or two with pinned memory
    try:
        waiting = sum(queue.qsize() for queue in queues)
    except NotImplementedError:  # macOS
        return None
    return waiting + sum(len(task) == 2 for task in running._task_info.values())  # and those out of turn


def worker_ids(running: Any) -> frozenset[int] | None:
    """Return the process ids of its workers; ``None`` where that cannot be known. See ``batches_ready``."""
    if not isinstance(running, _MultiProcessingDataLoaderIter):
        return None
    return frozenset(worker.pid for worker in running._workers if worker.pid)
