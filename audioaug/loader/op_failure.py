"""Op failure: an exception inside an op, on a clip or on a batch, told with all that is needed to see it alone."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from audioaug.core import Draws
from audioaug.engine import Preparer, WorkerChain
from audioaug.errors import AudioaugError, OpError, first_line

SHOWN = 8
"""So many examples of a batch are named."""


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


@contextmanager
def told_of_batch(
    part: Preparer, keys: Sequence[tuple[int, int]], seed: int, alone: Callable[[int, Draws], object]
) -> Iterator[None]:
    """Make whatever a part of the chain raises on a batch, but what is one of our errors already, an ``OpError``.

    Args:
        part: which of its ops is at work.
        keys: (epoch, index) of each example.
        seed: of the draws.
        alone: does the same to one example, given its row and its draws. With it, the first example is found that
            fails by itself too; if there is none, as where memory is short, the error names the batch.
    """
    try:
        yield
    except AudioaugError:
        raise
    except Exception as error:
        raise _failure(part, keys, seed, alone, error) from error


def _failure(
    part: Preparer, keys: Sequence[tuple[int, int]], seed: int, alone: Callable[[int, Draws], object], error: Exception
) -> OpError:
    name = " + ".join(node.op.name for node in part.running) or "the device part"
    dead = "CUDA error" in str(error)  # then whatever else is asked of the device fails the same way
    for row, (epoch, index) in enumerate([] if dead else keys):
        draws = part.chain.draw([index], epoch, seed)
        try:
            alone(row, draws)
        except Exception as again:
            raised = f"{_drawn(part, draws) or name} raised {type(again).__name__} ({_why(again)})"
            return OpError(
                f"Example {index} of epoch {epoch}, in a batch of {len(keys)}: {raised}.",
                f"To see it alone: {_call(part, index, epoch, seed)}, with this example's samples.",
            )
    epoch, indices = keys[0][0], [index for _, index in keys]
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return OpError(
        f"Examples {', '.join(map(str, indices[:SHOWN]))}{more} of epoch {epoch}, as a batch: {name} raised "
        f"{type(error).__name__} ({_why(error)}), but on none of them alone.",
        f"Their draws: chain.draw({indices}, epoch={epoch}, seed={seed}).",
    )


def _drawn(part: Preparer, draws: Draws) -> str:
    """Name the ops at work that do something to the one example of these draws, each with its draw."""
    told = []
    for node in part.running:
        if draws[f"{node.path}:apply"][0]:
            values = [f"{name}={draws[f'{node.path}:{name}'][0].item()!r}" for name in node.distributions]
            told.append(f"{node.op.name} with {', '.join(values)}" if values else node.op.name)
    return " + ".join(told)


def _call(part: Preparer, index: int, epoch: int, seed: int) -> str:
    """Return the line that does to one example what this part does, after what comes before it in the chain."""
    before = f"audioaug.build_cpu(chain, {part.start}, seed={seed})(samples, index={index}, epoch={epoch})"
    stop = "" if part.stop is None else f", stop={part.stop}"
    engine = "" if part.fused else ", engine='torch-audiomentations'"
    module = f"audioaug.build_device(chain, {part.start}{engine}, seed={seed}{stop})"
    return f"{module}(torch.from_numpy({before})[None], draws=chain.draw([{index}], {epoch}, {seed}))"


def _who(worker: WorkerChain) -> str:
    assert worker.running is not None
    op, draw = worker.running
    values = ", ".join(f"{name}={value[0].item()!r}" for name, value in draw.items())
    return f"{op.name} with {values}" if values else op.name


def _why(error: Exception) -> str:
    """Return the first line of what was raised, and where: a worker's traceback does not reach the training process."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{first_line(error)}; {frame.filename}, line {frame.lineno}"
