"""What the engine itself costs the host for each op: drawing its numbers, preparing its step, and running it.

It is what a longer chain of ops that do nothing takes more than a shorter one, on clips so short that samples cost
nothing. What an op computes for a batch's examples beside that is its own: of that, all ops are asked in ``prepare``.
Times are those of the core that does it: what waits for others, or for a device, is none of Python's cost.

Shapes: B examples, C channels, T samples.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch

from audioaug import Chain, build_device
from audioaug.core import FRACTION, Capabilities, Contract, DeviceBatchInfo, Distribution, Op, Params, why_not_on_device
from audioaug.measure import interleave, repeat
from audioaug.records import Timing
from audioaug.units import Seconds
from engine_bench import engines
from engine_bench.engines import Work
from engine_bench.records import OpCost, Size, Wrapper

FEW, MANY = 4, 14
"""Ops in the shorter and the longer chain."""

SAMPLES = 8
"""Of a clip."""

BATCHES = 64
"""Batches that ops are asked about in turn: some keep what they have computed for a draw."""


class CoreClock:
    """The clock for what this thread does."""

    def now(self) -> Seconds:
        """Return the time that a core has worked for this thread, in seconds."""
        return time.thread_time()

    def synchronize(self) -> None:
        """Return at once: what a device does is not timed."""


@dataclass(frozen=True, kw_only=True)
class Nothing(Op, registry=None):
    """Three numbers, as many as the median op has on the device, for nothing; never one pass with its neighbours."""

    contract = Contract.exact(rtol=0.0)
    capabilities = Capabilities(keeps_silence=True)

    def distributions(self) -> dict[str, Distribution]:
        """Draw them."""
        return dict.fromkeys(("first", "second", "third"), FRACTION)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        """Leave the batch as it is."""
        return x_BCT


def wrapper(size: Size, device: torch.device, seconds: float, rounds: int) -> Wrapper:
    """Time what an op costs the host with batches of that size, where all examples get it and where half do.

    Args:
        size: of the batch; but for ``prepare_seconds``, clips are as short as can be.
        device: that runs the chains.
        seconds: about how long all this may take.
        rounds: how often at least, but for ``prepare_seconds``: some ops take seconds.
    """
    everyone, half = (op_cost(Nothing(p=p), size.batch, device, seconds / 3, rounds) for p in (1.0, 0.5))
    return Wrapper(everyone, half, prepare_seconds(size, seconds / 3))


def op_cost(op: Op, batch: int, device: torch.device, seconds: float, rounds: int) -> OpCost:
    """Time what one more op like this one costs, round by round."""
    works = {name: work for count in (FEW, MANY) for name, work in _parts(Chain([op] * count, 16000), batch, device)}
    times = interleave(works, CoreClock(), seconds=seconds, at_least=rounds)

    def one(part: str) -> Timing:
        pairs = zip(times[f"{part} {MANY}"].seconds, times[f"{part} {FEW}"].seconds)
        return Timing(tuple((longer - shorter) / (MANY - FEW) for longer, shorter in pairs))

    return OpCost(one("draw"), one("prepare"), one("run"))


def _parts(chain: Chain, batch: int, device: torch.device) -> Iterator[tuple[str, Work]]:
    """Yield what the host does for a batch, by name and number of ops."""
    module, x_BCT = build_device(chain, seed=0), torch.zeros(batch, 1, SAMPLES, device=device)
    index, shape = np.arange(batch), tuple(x_BCT.shape)
    draws = chain.draw(index)
    prepared = module.prepare(draws, shape)
    yield f"draw {len(chain)}", lambda: chain.draw(index)
    yield f"prepare {len(chain)}", lambda: module.prepare(draws, shape)
    yield f"run {len(chain)}", lambda: module.run(x_BCT, prepared)


def prepare_seconds(size: Size, seconds: float) -> dict[str, float]:
    """Return how long preparing a batch takes with each op alone, by name, of those that have a device build."""
    works, clock = dict(_preparing(size)), CoreClock()
    share = seconds / len(works)
    return {name: repeat(work, clock, seconds=share, at_least=1, warm_up=1).median for name, work in works.items()}


def _preparing(size: Size) -> Iterator[tuple[str, Work]]:
    for name, op in engines.declared_ops([], size.sample_rate).items():
        if not why_not_on_device(op):
            shape = size.batch, engines.CHANNELS.get(name, 1), size.samples
            yield name, _prepare_in_turn(Chain([op], size.sample_rate), shape)


def _prepare_in_turn(chain: Chain, shape: tuple[int, int, int]) -> Work:
    prepare, batch = build_device(chain, seed=0).prepare, shape[0]
    draws = chain.draw(np.arange(BATCHES * batch))
    turns = cycle([draws.rows(slice(start, start + batch)) for start in range(0, len(draws), batch)])
    return lambda: prepare(next(turns), shape)
