"""A program for test_failures_repeated: rounds of training with a small /dev/shm of its own that fills up.

It must be run where /dev/shm is a small tmpfs of its own (a private mount namespace): it fills it.
"""

import gc
import os
import random
import sys
from pathlib import Path

import psutil
import torch

from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import WorkerError
from tests.integration.loader.test_failures_of_workers import PATIENCE, finally_none

SHARED = Path("/dev/shm")
ROOM = 4 * 2**20


def free() -> int:
    room = os.statvfs(SHARED)
    return room.f_bavail * room.f_frsize


def loader_of(chance: random.Random, clips: int) -> Loader:
    plan = Plan(
        start_method="fork",
        cut=1,
        num_workers=chance.choice([1, 2]),
        worker_engine=chance.choice(["audiomentations", "batched"]),
        persistent_workers=chance.choice([True, False]),
    )
    collate = chance.choice([None, torch.stack])
    dataset = [torch.ones(1, clips)] * 64
    return Loader(dataset, Chain([ops.Gain(p=1.0)], 16000), plan, batch_size=4, device="cpu", collate_fn=collate)


def run_out_of_room(chance: random.Random) -> str:
    """Train with a loader, keeping every batch, until shared memory is full; return the error message."""
    loader, kept = loader_of(chance, clips=40_000), list[torch.Tensor]()
    try:
        for batch in loader:
            kept.append(batch)
    except WorkerError as error:
        return str(error)
    return "nothing"


def one_round(number: int) -> None:
    chance, files = random.Random(number), psutil.Process().num_fds()
    filler = SHARED / "filler"
    filler.write_bytes(bytes(chance.choice([0, ROOM // 2, ROOM - 4096 * chance.randint(1, 40)])))
    message = run_out_of_room(chance)
    # torch 2.4 sometimes makes a file that it has no room for, and the worker is killed while it writes.
    is_killed = torch.__version__ < (2, 5) and message.startswith("A worker (pid ") and "SIGBUS" in message
    assert is_killed or message.startswith("Shared memory, /dev/shm, is full: a batch does not fit ("), message
    assert message.endswith(
        "Make it larger (docker run --shm-size=8g), or use fewer workers or a smaller prefetch_factor."
    )
    filler.unlink()
    assert not psutil.wait_procs(psutil.Process().children(recursive=True), timeout=PATIENCE)[1]
    gc.collect()  # semaphores of torch's queues
    assert not list(SHARED.iterdir()) and free() == ROOM, (list(SHARED.iterdir()), free())
    assert len(list(loader_of(chance, clips=100))) == 16  # and now it works
    gc.collect()
    assert not finally_none(lambda: psutil.Process().num_fds() > files)  # threads that send batches close theirs late


def main(rounds: int) -> None:
    assert free() == ROOM, "this is not a /dev/shm of our own"
    for number in range(rounds):
        one_round(number)
        print(number, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
