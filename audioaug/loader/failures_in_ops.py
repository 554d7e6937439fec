"""Failures in ops: an op that raises an exception becomes one clear error, which says how to reproduce it."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from audioaug.core import Draws, Key
from audioaug.engine import Preparer, WorkerChain
from audioaug.errors import AudioaugError, DataError, OpError, first_line, text_of

LISTED = 8
"""At most this many examples of a batch are listed in an error."""

DEVICE_FAILED = ("CUDA error", "Triton Error [CUDA]", "cuFFT error")
"""Texts of errors after which every later call on the device fails too."""


@contextmanager
def op_errors(worker: WorkerChain, key: Key, epoch: int) -> Iterator[None]:
    """Turn an exception of an op on one example into an ``OpError``; a ``DataError`` gets the example's key."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"Augmenting example {key!r}: {error.message}", error.next_step) from None
    except AudioaugError:
        raise
    except Exception as error:
        raise OpError(
            f"Example {key!r} of epoch {epoch}: {_running_op(worker)} raised {_summary(error)}.",
            f"To reproduce it: audioaug.build_cpu(chain, {worker.cut}, seed={worker.seed})(samples, key={key!r}, "
            f"epoch={epoch}), with this example's samples.",
        ) from error


@contextmanager
def batch_op_errors(
    ops: Preparer, keys: Sequence[Key], epoch: int, seed: int, run_alone: Callable[[int, Draws], object]
) -> Iterator[None]:
    """Turn an exception of an op on a batch into an ``OpError``; our own errors pass unchanged.

    Args:
        ops: the part of the chain that runs.
        keys: of the examples.
        epoch: of the draws.
        seed: of the draws.
        run_alone: runs the same ops on one example, given its row and its draws. It finds the first example that fails
            on its own; if none does, the error names the whole batch. Not called when memory is short, or the device
            has failed.
    """
    try:
        yield
    except AudioaugError:
        raise
    except Exception as error:
        raise _batch_op_error(ops, keys, epoch, seed, run_alone, error) from error


def _batch_op_error(
    ops: Preparer,
    keys: Sequence[Key],
    epoch: int,
    seed: int,
    run_alone: Callable[[int, Draws], object],
    error: Exception,
) -> OpError:
    name = " + ".join(node.op.name for node in ops.running) or "the device part"
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        traceback.clear_frames(error.__traceback__)  # which hold the tensors that filled it
        return OpError(
            f"{name} needs more memory for a batch of {len(keys)} than there is: {first_line(error)}.",
            "Use smaller batches, or run it in workers (a plan with a larger cut).",
        )
    for row, key in enumerate([] if any(text in text_of(error) for text in DEVICE_FAILED) else keys):
        draws = ops.chain.draw([key], epoch, seed)
        try:
            run_alone(row, draws)
        except Exception as error_alone:
            return OpError(
                f"Example {key!r} of epoch {epoch}, in a batch of {len(keys)}: {_applied_ops(ops, draws) or name} "
                f"raised {_summary(error_alone)}.",
                f"To reproduce it: {_reproducing_call(ops, key, epoch, seed)}, with this example's samples.",
            )
    more = f" and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
    return OpError(
        f"Examples {', '.join(map(repr, keys[:LISTED]))}{more} of epoch {epoch}, as a batch: {name} raised "
        f"{_summary(error)}, but on none of them alone.",
        f"Their draws: chain.draw({list(keys)}, epoch={epoch}, seed={seed}).",
    )


def _applied_ops(ops: Preparer, draws: Draws) -> str:
    """Name the running ops that these draws apply to their one example, each with its draw."""
    names = []
    for node in ops.running:
        if draws[f"{node.path}:apply"][0]:
            values = [f"{name}={draws[f'{node.path}:{name}'][0].item()!r}" for name in node.distributions]
            names.append(f"{node.op.name} with {', '.join(values)}" if values else node.op.name)
    return " + ".join(names)


def _reproducing_call(ops: Preparer, key: Key, epoch: int, seed: int) -> str:
    """Return the line of code that runs this part of the chain on one example, after the part before it."""
    before = f"audioaug.build_cpu(chain, {ops.start}, seed={seed})(samples, key={key!r}, epoch={epoch})"
    stop = "" if ops.stop is None else f", stop={ops.stop}"
    engine = "" if ops.fused else ", engine='torch-audiomentations'"
    module = f"audioaug.build_device(chain, {ops.start}{engine}, seed={seed}{stop})"
    return f"{module}(torch.from_numpy({before})[None], draws=chain.draw([{key!r}], {epoch}, {seed}))"


def _running_op(worker: WorkerChain) -> str:
    assert worker.running is not None
    op, draw = worker.running
    values = ", ".join(f"{name}={value[0].item()!r}" for name, value in draw.items())
    return f"{op.name} with {values}" if values else op.name


def _summary(error: Exception) -> str:
    """Return type, message and line of an exception: a worker's traceback does not reach the training process."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} ({first_line(error)}; {frame.filename}, line {frame.lineno})"
