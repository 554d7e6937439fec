"""A Ray cluster of three nodes that loses an actor or a node in mid-epoch: each example comes once, bit for bit."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from audioaug import Chain, Loader, Plan, ops
from audioaug.integrations.ray import Augment, SharedEpoch, batches
from tests.integration.loader.material import RATE

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::Warning"), pytest.mark.timeout(1800)]

COUNT, CUT, SEED = 64, 4, 3
CHAIN = Chain([ops.Gain(p=1.0), ops.AddGaussianSNR(p=0.7), ops.LowPassFilter(p=0.6), ops.Shift(p=0.5)], RATE)
NOISE = np.random.default_rng(0).standard_normal((COUNT, 4000)).astype(np.float32) * 0.1
ROWS = [{"audio": NOISE[k], "key": f"clip-{k}"} for k in range(COUNT)]


class SlowAugment(Augment):
    """Takes its time, so that an epoch has a middle."""

    def __call__(self, batch: Any) -> dict[str, Any]:
        threading.Event().wait(0.05 * len(batch["key"]))
        return super().__call__(batch)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of three nodes: this one, without cores for actors, and two others."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 10**8})
    for _ in range(2):
        add_node(found)
    ray.init(address=found.address, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield found
    ray.shutdown()
    found.shutdown()


def add_node(cluster: Any) -> None:
    cluster.add_node(num_cpus=4, object_store_memory=10**8)
    cluster.wait_for_nodes()


def expected(epoch: int) -> dict[str, np.ndarray]:
    loader = Loader(ROWS, CHAIN, Plan(cut=CUT), batch_size=8, device="cpu", key="key", seed=SEED)
    loader.set_epoch(epoch)
    return {key: wave.numpy() for batch in loader for key, wave in zip(batch["key"], batch["audio"])}


def kill_an_actor(cluster: Any, chosen: random.Random) -> None:
    every = psutil.process_iter(["name", "cmdline"])  # of one that has just ended, these are None
    found = [process for process in every if (process.info["name"] or "").startswith("ray::")]
    actors = [process for process in found if "Augment" in " ".join(process.info["cmdline"] or ())]
    assert actors, found
    os.kill(chosen.choice(actors).pid, signal.SIGKILL)


def kill_a_node(cluster: Any, chosen: random.Random) -> None:
    cluster.remove_node(chosen.choice(list(cluster.worker_nodes)), allow_graceful=False)


@pytest.mark.parametrize("fault", [kill_an_actor, kill_a_node])
@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_comes_twice(cluster, fault, rounds):
    import ray

    for number in range(rounds):
        chosen, epoch = random.Random(number), SharedEpoch()
        how = {"chain": CHAIN, "cut": CUT, "seed": SEED, "epoch": epoch}
        size, actors = chosen.choice([4, 32]), chosen.choice([1, 2, 4])
        ds = ray.data.from_items(ROWS, override_num_blocks=16)
        pool = ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=8)
        ds = ds.map_batches(SlowAugment, fn_constructor_kwargs=how, batch_size=size, compute=pool)
        found = dict[str, np.ndarray]()
        delivered = batches(ds, CHAIN, Plan(cut=CUT), batch_size=8, device="cpu", seed=SEED, epoch=epoch)
        delivered.set_epoch(number)
        begin = chosen.randrange(1, 5)
        for step, batch in enumerate(delivered):
            if step == begin:
                fault(cluster, chosen)
            for key, wave in zip(batch["key"], batch["audio"]):
                assert key not in found
                found[key] = wave.numpy()
        wanted = expected(number)
        assert sorted(found) == sorted(wanted)
        assert all(np.array_equal(found[key], wave) for key, wave in wanted.items())
        if fault is kill_a_node:
            add_node(cluster)
