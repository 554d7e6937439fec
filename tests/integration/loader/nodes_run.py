"""The program that torchrun starts on each node for test_nodes.py: what this process's Loaders yield, in a file.

The first run takes epoch 0 by index and by key, and two batches of epoch 1. The next one, from that state, takes the
rest of epoch 1, and epoch 2.
"""

import json
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed import barrier, destroy_process_group, get_rank, init_process_group
from torch.utils.data import DistributedSampler

from audioaug import Loader, Plan
from tests.integration.loader.material import Words, exact_chain

EXAMPLES, SEED, CUT, DONE = 22, 5, 3, 2


def key_of(example: Any) -> str:
    return f"utt{example[-1]}"


def loader_of(batch_size: int = 2, cut: int = CUT, workers: int = 0, **options: Any) -> Loader:
    words, plan = Words(EXAMPLES), Plan(cut=cut, num_workers=workers)
    sampler = DistributedSampler(words, seed=1)
    return Loader(
        words, exact_chain(), plan, batch_size=batch_size, device="cpu", sampler=sampler, seed=SEED, **options
    )


def audio(batches: Iterable[Any]) -> dict[str, Any]:
    """Return the audio of each example under its index."""
    return {str(index): wave for batch in batches for index, wave in zip(batch[-1].tolist(), batch[0].numpy())}


def main(out: Path) -> None:
    torch.set_num_threads(1)
    init_process_group("gloo")
    seen, state = {}, out / "state.json"
    if state.exists():
        loader = loader_of(batch_size=3, key=key_of)
        loader.load_state_dict(json.loads(state.read_text()))
        seen = {"rest": audio(loader), "next": audio(loader)}
    else:
        loader = loader_of(workers=4)
        seen = {"index": audio(loader)}
        assert loader.num_workers == 2  # of the four on this machine
        loader = loader_of(cut=len(exact_chain()), key=key_of)
        seen |= {"key": audio(loader), "first": audio(islice(loader, DONE))}
    barrier()  # all have read the state
    if get_rank() == 0:
        state.write_text(json.dumps(loader.state_dict()))
    for name, waves in seen.items():
        np.savez(out / f"{name} {get_rank()}.npz", **waves)
    barrier()  # the store is in the first process
    destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
