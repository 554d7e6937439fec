"""Worker start: what each DataLoader worker does first."""

import gc
import signal
import sys
from types import TracebackType

import torch

from audioaug.engine.memory import keep_freed_memory


def start_worker(worker_id: int) -> None:
    """Keep a worker to one thread (torch, OpenMP and BLAS would each start as many as there are cores), let it keep
    freed memory, and let Ctrl-C reach the training process alone, which ends workers.

    Garbage that a fork has copied, another Loader perhaps, with workers to be ended, is the training process's alone.
    """
    gc.freeze()
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _print_unless_hung_up
    threadpool_limits(1)
    torch.set_num_threads(1)
    keep_freed_memory()


def _print_unless_hung_up(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception of a thread that hands over batches, unless the training process hung up: it was Ctrl-C."""
    if not isinstance(error, ConnectionError):
        sys.__excepthook__(kind, error, trace)
