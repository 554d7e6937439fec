"""Op failure: an exception inside an op of the workers' part, told with all that is needed to see it alone."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from audioaug.build import WorkerChain
from audioaug.errors import AudioaugError, OpError


@contextmanager
def told(worker: WorkerChain, index: int, epoch: int) -> Iterator[None]:
    """Make whatever a worker chain raises on an example, but what is one of our errors already, an ``OpError``."""
    try:
        yield
    except AudioaugError:
        raise
    except Exception as error:
        raise OpError(
            f"Example {index} of epoch {epoch}: {_who(worker)} raised {type(error).__name__} ({_why(error)}).",
            f"To see it alone: audioaug.build_cpu(chain, {worker.cut}, seed={worker.seed})(samples, index={index}, "
            f"epoch={epoch}), with this example's samples.",
        ) from error


def _who(worker: WorkerChain) -> str:
    assert worker.running is not None
    op, draw = worker.running
    values = ", ".join(f"{name}={value[0].item()!r}" for name, value in draw.items())
    return f"{op.name} with {values}" if values else op.name


def _why(error: Exception) -> str:
    """Return the first line of what was raised, and where: a worker's traceback does not reach the training process."""
    reason = (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{reason}; {frame.filename}, line {frame.lineno}"
