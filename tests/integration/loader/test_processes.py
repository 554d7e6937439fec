"""Two processes that train together see the same audio as a single one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import BatchSampler, DistributedSampler

from audioaug import Loader, Plan
from audioaug.errors import AudioaugWarning
from audioaug.loader import processes
from audioaug.loader.processes import share_of
from tests.integration.loader.distributed_run import EPOCHS, SEED, WORKERS
from tests.integration.loader.material import Words, assert_same_audio, by_index, exact_chain

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.timeout(600)  # some seconds where nothing else runs


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Let torchrun start both processes; return what each saw, of the dataset, the stream, and with plan="auto"."""
    out = tmp_path_factory.mktemp("seen")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.integration.loader.distributed_run", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return {
        name: [dict(np.load(out / f"{name} {rank}.npz")) for rank in range(2)] for name in ("map", "stream", "auto")
    }


def audio(run: dict[str, Any], epoch: int) -> dict[int, np.ndarray]:
    return {int(key.split()[1]): wave for key, wave in run.items() if key.startswith(f"{epoch} ")}


@pytest.mark.parametrize("name", ["map", "stream", "auto"])
def test_union_of_processes_matches_single_process(name, seen):
    alone = Loader(Words(12), exact_chain(), Plan(cut=3), batch_size=4, device="cpu", seed=SEED)
    for epoch in range(EPOCHS):
        first, second = (audio(run, epoch) for run in seen[name])
        assert not set(first) & set(second) and len(first) == len(second) == 6
        assert_same_audio(first | second, by_index(alone), 5e-5)


def test_epoch_is_set_on_distributed_sampler(seen):
    for rank, run in enumerate(seen["map"]):
        for epoch in range(EPOCHS):
            sampler = DistributedSampler(Words(12), num_replicas=2, rank=rank, seed=1)
            sampler.set_epoch(epoch)
            assert run[f"order {epoch}"].tolist() == list(sampler)
        assert run["order 0"].tolist() != run["order 1"].tolist()


@pytest.mark.parametrize("name", ["map", "stream"])
def test_processes_train_one_model_and_share_workers(name, seen):
    first, second = seen[name]
    assert np.array_equal(first["weight"], second["weight"])
    assert first["workers"] == second["workers"] == WORKERS // 2


@pytest.mark.parametrize(
    ("workers", "processes", "share"), [(5, "2", 2), (4, "2", 2), (1, "8", 1), (0, "2", 0), (3, None, 3), (3, "", 3)]
)
def test_share_of_workers_from_local_world_size(workers, processes, share, monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if processes is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert share_of(workers) == share


@pytest.mark.parametrize(("address", "share"), [("127.0.0.1", 2), ("localhost", 2), ("10.0.0.7", 5), (None, 5)])
def test_share_of_workers_from_master_address(address, share, monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setattr(processes, "rank_and_size", lambda: (0, 2))
    if address is not None:
        monkeypatch.setenv("MASTER_ADDR", address)
    assert share_of(5) == share


def test_epoch_is_set_on_sampler_of_batch_sampler():
    sampler = DistributedSampler(Words(12), num_replicas=2, rank=0)
    loader = Loader(Words(12), exact_chain(), device="cpu", batch_sampler=BatchSampler(sampler, 3, False))
    orders = [[int(k) for batch in loader for k in batch[-1]] for _ in range(2)]
    assert orders[0] != orders[1] and sampler.epoch == 1


def test_processes_without_distributed_sampler_are_warned(monkeypatch):
    monkeypatch.setattr(processes, "rank_and_size", lambda: (0, 2))
    with pytest.warns(AudioaugWarning, match=r"2 processes train together, .*DistributedSampler\(dataset\)") as caught:
        Loader(Words(2), exact_chain(), device="cpu")
    assert caught[0].filename == __file__
    Loader(Words(2), exact_chain(), device="cpu", augment=False)
    Loader(Words(2), exact_chain(), device="cpu", sampler=[0])
