"""Receive: how fast batches come from actors of Ray Data on other nodes, up to a batch on the device."""

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np
import torch

from audioaug.errors import MeasurementError
from audioaug.measure.clock import Clock
from audioaug.measure.repeat import rounds
from audioaug.records import ReceiveRate, Timing
from audioaug.units import Seconds

CONNECTIONS = (1, 2, 4)
"""Numbers of actors that send to this process."""

BLOCK = 4
"""Batches of a repetition, for each actor."""

BATCHES = 1000
"""Batches that the actors could send."""

MEMORY = 10**9
"""Bytes of the object store of a node that is started here."""


class Source:
    """Returns the same batch for any other, as an actor that augments returns others, and its process."""

    def __init__(self, examples: int, samples: int) -> None:
        self.audio = np.random.default_rng(0).standard_normal((examples, samples), dtype=np.float32)

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return the batch."""
        return {"audio": self.audio, "process": np.full(len(self.audio), os.getpid())}


def receive_rates(
    examples: int,
    samples: int,
    device: torch.device,
    clock: Clock,
    seconds: Seconds,
    connections: Sequence[int] = CONNECTIONS,
) -> tuple[ReceiveRate, ...]:
    """Measure how fast this process gets batches (examples, samples) of float32, in about ``seconds``.

    The actors are on other nodes of the cluster that this process is connected to, or that ``RAY_ADDRESS`` names.
    Otherwise, a cluster of two nodes is started on this machine: then no network is between them.

    Raises:
        ImportError: Ray is not installed.
        MeasurementError: the cluster has too few free cores.
    """
    with _other_node(max(connections)) as node:
        found = list[ReceiveRate]()
        for count in connections:
            with closing(_sent(count, node, examples, samples)) as batches:
                timing = _timed(batches, count, device, clock, seconds / len(connections))
            megabytes, (low, high) = 4e-6 * examples * samples, timing.interval
            found.append(ReceiveRate(count, megabytes / timing.median, (megabytes / high, megabytes / low)))
        return tuple(found)


def _timed(batches: Iterator[Any], count: int, device: torch.device, clock: Clock, seconds: Seconds) -> Timing:
    """Time batches from this many actors, once all of them have started."""
    seen = set[int]()
    for batch in batches:
        seen.add(int(batch["process"][0]))
        if len(seen) == count:
            break
    else:
        raise MeasurementError(f"of {count} actors only {len(seen)} started; the cluster has too few free cores")
    found, block = list[Seconds](), BLOCK * count
    for _ in rounds(clock, clock.now() + seconds, at_least=3, at_most=BATCHES // (2 * block)):
        begin = clock.now()
        for _ in range(block):
            torch.from_numpy(next(batches)["audio"].copy()).to(device)
        clock.synchronize()
        found.append((clock.now() - begin) / block)
    return Timing(tuple(found))


def _sent(count: int, node: str, examples: int, samples: int) -> Generator[Any, None, None]:
    """Yield the batches of this many actors, which are on this node if there is room."""
    import ray
    from ray.data.collate_fn import NumpyBatchCollateFn
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Unchanged(NumpyBatchCollateFn):
        def __call__(self, batch: Any) -> Any:
            return batch

    ds = ray.data.from_items(list(range(BATCHES * examples)), override_num_blocks=BATCHES).map_batches(
        Source,
        fn_constructor_args=(examples, samples),
        batch_size=examples,
        compute=ray.data.ActorPoolStrategy(size=count),
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
    )
    yield from ds.iter_torch_batches(batch_size=examples, collate_fn=Unchanged())


@contextmanager
def _other_node(cores: int) -> Iterator[str]:
    """Yield the id of another node: of the cluster that this process is connected to, or of one for this purpose."""
    import ray
    import ray.data

    any_ray: Any = ray
    with ExitStack() as stack:
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS") or stack.enter_context(_two_nodes(cores))
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            stack.callback(any_ray.shutdown)
        context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
        stack.callback(setattr, context, "enable_progress_bars", context.enable_progress_bars)
        stack.callback(logger.setLevel, logger.level)
        context.enable_progress_bars = False
        logger.setLevel(logging.ERROR)
        own = ray.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in any_ray.nodes() if node["Alive"] and node["NodeID"] != own]
        yield [*others, own][0]


@contextmanager
def _two_nodes(cores: int) -> Iterator[str]:
    """Start two nodes on this machine, and yield the cluster's address."""
    import ray.cluster_utils

    sizes = {"object_store_memory": MEMORY, "include_dashboard": False}
    cluster: Any = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **sizes})
    try:
        cluster.add_node(num_cpus=cores, object_store_memory=MEMORY)
        yield cluster.address
    finally:
        cluster.shutdown()
