"""Receive: how fast batches come from other nodes through Ray, from an object of Ray's to a batch on the device."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from audioaug.measure.clock import Clock
from audioaug.measure.repeat import rounds
from audioaug.records import ReceiveRate, Timing
from audioaug.units import Seconds

CONNECTIONS = (1, 2, 4)
"""Sources that send to this process."""

IN_FLIGHT = 2
"""Batches that each of them is asked for ahead."""

BLOCK = 8
"""Batches of a repetition, for each source."""

LEAST_MEMORY = 80 * 10**6
"""Bytes of a node's object store that Ray asks for."""


class Source:
    """Sends the same batch whenever it is asked, as an actor that augments sends others."""

    def __init__(self, batch_bytes: int) -> None:
        self.batch = np.random.default_rng(0).standard_normal(max(1, batch_bytes // 4), dtype=np.float32)

    def send(self) -> Any:
        """Return the batch."""
        return self.batch


def receive_rates(
    batch_bytes: int, device: torch.device, clock: Clock, seconds: Seconds, connections: Sequence[int] = CONNECTIONS
) -> tuple[ReceiveRate, ...]:
    """Measure how fast this process receives batches of this size, in about ``seconds``.

    The sources are on other nodes of the cluster that this process is connected to, or that ``RAY_ADDRESS`` names.
    Otherwise, a cluster of two nodes is started on this machine: then no network is between them.

    Raises:
        ImportError: Ray is not installed.
    """
    with _other_nodes(max(LEAST_MEMORY, 4 * IN_FLIGHT * max(connections) * batch_bytes)) as nodes:
        return tuple(
            _rate(count, nodes, batch_bytes, device, clock, seconds / len(connections)) for count in connections
        )


def _rate(
    count: int, nodes: Sequence[str], batch_bytes: int, device: torch.device, clock: Clock, seconds: Seconds
) -> ReceiveRate:
    """Measure the rate from this many sources."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    places = [NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=False) for number in range(count)]
    actor: Any = ray.remote(Source)
    sources = [actor.options(num_cpus=0, scheduling_strategy=place).remote(batch_bytes) for place in places]
    asked = {source.send.remote(): source for source in sources for _ in range(IN_FLIGHT)}

    def receive(batches: int) -> None:
        for _ in range(batches):
            [ready], _ = ray.wait([*asked], num_returns=1, fetch_local=True)
            source = asked.pop(ready)
            asked[source.send.remote()] = source
            torch.from_numpy(ray.get(ready).copy()).to(device)
        clock.synchronize()

    receive(IN_FLIGHT * count)  # started, and on their way
    found = list[Seconds]()
    for _ in rounds(clock, clock.now() + seconds, at_least=3, at_most=1000):
        begin = clock.now()
        receive(BLOCK * count)
        found.append((clock.now() - begin) / (BLOCK * count))
    for source in sources:
        ray.kill(source)
    low, high = Timing(tuple(found)).ci_ms
    per_ms = batch_bytes / 1e3
    return ReceiveRate(count, per_ms / (1e3 * Timing(tuple(found)).median), (per_ms / high, per_ms / low))


@contextmanager
def _other_nodes(memory: int) -> Iterator[list[str]]:
    """Yield the ids of other nodes: of the cluster that this process is connected to, or of one for this purpose."""
    import ray

    any_ray: Any = ray
    with ExitStack() as stack:
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS") or stack.enter_context(_two_nodes(memory))
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            stack.callback(any_ray.shutdown)
        own = ray.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in any_ray.nodes() if node["Alive"] and node["NodeID"] != own]
        yield others or [own]


@contextmanager
def _two_nodes(memory: int) -> Iterator[str]:
    """Start two nodes on this machine, and yield the cluster's address."""
    import ray.cluster_utils

    sizes = {"object_store_memory": memory, "include_dashboard": False}
    cluster: Any = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **sizes})
    try:
        cluster.add_node(num_cpus=1, object_store_memory=memory)
        yield cluster.address
    finally:
        cluster.shutdown()
