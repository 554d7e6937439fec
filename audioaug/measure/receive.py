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

IN_FLIGHT = 8
"""Tasks that an actor has or waits for. With Ray's default (2) it idles until Ray has noticed that one is done."""

WARM_UP = 64
"""Batches before the clock starts, for each actor. Ray takes twice as long for the first ones."""

PATIENCE = 30
"""Seconds in which the actors have to start."""

BATCHES = 1000
"""Batches that the actors could send."""

MEMORY = 10**9
"""Bytes of the object store of a node that is started here."""


class Source:
    """Returns the same batch for any other, as an actor that augments returns others."""

    def __init__(self, examples: int, samples: int) -> None:
        self.audio = np.random.default_rng(0).standard_normal((examples, samples), dtype=np.float32)

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Return the batch."""
        return {"audio": self.audio}


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
    with _other_nodes(max(connections)) as where:
        found = list[ReceiveRate]()
        for count in connections:
            with closing(_sent(count, where, examples, samples)) as batches:
                for _ in range(WARM_UP * count):
                    next(batches)
                timing = _timed(batches, IN_FLIGHT * count, device, clock, seconds / len(connections))
            megabytes, (low, high) = 4e-6 * examples * samples, timing.interval
            found.append(ReceiveRate(count, megabytes / timing.median, (megabytes / high, megabytes / low)))
        return tuple(found)


def _timed(batches: Iterator[Any], block: int, device: torch.device, clock: Clock, seconds: Seconds) -> Timing:
    """Time batches in blocks, since they come in bursts."""
    found = list[Seconds]()
    for _ in rounds(clock, clock.now() + seconds, at_least=3, at_most=BATCHES // (2 * block)):
        begin = clock.now()
        for _ in range(block):
            torch.from_numpy(next(batches)["audio"].copy()).to(device)
        clock.synchronize()
        found.append((clock.now() - begin) / block)
    return Timing(tuple(found))


def _sent(count: int, where: dict[str, str], examples: int, samples: int) -> Generator[Any, None, None]:
    """Yield the batches of this many actors, on the nodes that a label selector of Ray allows."""
    import ray
    from ray.data.collate_fn import NumpyBatchCollateFn

    class Unchanged(NumpyBatchCollateFn):
        def __call__(self, batch: Any) -> Any:
            return batch

    ds = ray.data.from_items(list(range(BATCHES * examples)), override_num_blocks=BATCHES).map_batches(
        Source,
        fn_constructor_args=(examples, samples),
        batch_size=examples,
        compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=IN_FLIGHT),
        label_selector=where,
    )
    try:
        yield from ds.iter_torch_batches(batch_size=examples, collate_fn=Unchanged())
    except ray.exceptions.GetTimeoutError:
        raise MeasurementError(f"{count} actors did not start in {PATIENCE} s; has the cluster free cores?") from None


@contextmanager
def _other_nodes(cores: int) -> Iterator[dict[str, str]]:
    """Yield a label selector for the other nodes of the cluster that this process is connected to, if it has others.

    Without a cluster, one is started for this purpose.
    """
    import ray
    import ray.data

    any_ray: Any = ray
    with ExitStack() as stack:
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS") or stack.enter_context(_two_nodes(cores))
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            stack.callback(any_ray.shutdown)
        context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
        for name, value in {"enable_progress_bars": False, "wait_for_min_actors_s": PATIENCE}.items():
            stack.callback(setattr, context, name, getattr(context, name))
            setattr(context, name, value)
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)  # what it logs is raised, too
        own = ray.get_runtime_context().get_node_id()
        alone = {node["NodeID"] for node in any_ray.nodes() if node["Alive"]} == {own}
        yield {} if alone else {"ray.io/node-id": f"!{own}"}


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
