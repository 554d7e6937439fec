"""The program that torchrun starts for test_monitor_of_ranks.py: two ranks train one model, the second reads slowly.

Each rank writes a file with the summaries of its monitor: of the first while both train, and after the training.
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch.distributed import barrier, destroy_process_group, get_rank, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from audioaug import Monitor
from audioaug.loader import monitor as monitor_module

STEPS = 12
SLOW = 0.05
"""Seconds for an example of the slow rank; the other needs some microseconds."""


class Clips:
    """Clips, each of which takes a while to read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 2 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((8,), float(index))


def main(out: Path) -> None:
    monitor_module.COST_SHARE = 1e3  # a window a step
    torch.set_num_threads(1)
    init_process_group("gloo")
    rank = get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    early = {}
    with Monitor(DataLoader(Clips(SLOW * rank), batch_size=2), device="cpu", every=1e-6) as monitor:
        for step, batch in enumerate(monitor):
            model(batch).square().mean().backward()
            if rank == 0 and step == STEPS - 2:  # the other rank does not call it
                early = monitor.summary()
        barrier()  # of this test: the last numbers of both are there
    barrier()
    late = monitor.summary()
    (out / f"{rank}.json").write_text(json.dumps({"early": early, "late": late}))
    barrier()  # the store is in the first process
    destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
