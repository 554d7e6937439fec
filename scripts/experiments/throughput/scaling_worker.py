"""What torchrun starts: all processes time full-batch epochs by one, two, four ... of them, in turn.

torchrun --standalone --nproc-per-node=2 -m experiments.throughput.scaling_worker EXAMPLES ROUNDS FILE
"""

import os
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from audioaug.measure import clock_for
from audioaug.records import Timing, to_json
from experiments.throughput.network import data, network


class Team:
    """The first so many processes, which train together, each on its share of the examples."""

    def __init__(self, members: int, examples: int, rank: int, device: torch.device) -> None:
        self.members, self.group, self.inside = members, distributed.new_group(range(members)), rank < members
        if self.inside:
            self.part = [part.to(device).chunk(members)[rank] for part in data(examples)]
            self.model = DistributedDataParallel(network().to(device), process_group=self.group)
            self.optimizer = torch.optim.Adam(self.model.parameters())

    def epoch(self) -> None:
        """Train one full-batch step together."""
        x_BF, label_B = self.part
        loss = cross_entropy(self.model(x_BF), label_B)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def counts(processes: int) -> list[int]:
    """Return 1, 2, 4 ... and all of them."""
    return sorted({2**k for k in range(processes.bit_length()) if 2**k <= processes} | {processes})


def main(examples: int, rounds: int, path: str) -> None:
    """Train in turn; the first process writes the times."""
    on_gpu = os.environ["AUDIOAUG_SCALE_ON"] == "cuda"
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    torch.set_num_threads(1)
    clock = clock_for(device)
    teams = [Team(members, examples, rank, device) for members in counts(processes)]
    times: dict[int, list[float]] = {team.members: [] for team in teams}
    for turn in range(1 + rounds):
        for team in teams:
            distributed.barrier()  # those outside wait at the next one
            if team.inside:
                clock.synchronize()
                begin = clock.now()
                team.epoch()
                clock.synchronize()
                times[team.members] += [clock.now() - begin] if turn else []  # the first is warm-up
    distributed.barrier()
    if rank == 0:
        Path(path).write_text(to_json({members: Timing(tuple(seconds)) for members, seconds in times.items()}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
