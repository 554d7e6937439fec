"""What torchrun starts for test_nodes_page.py: the page's program, unchanged, and a file of what its model saw."""

import os
from dataclasses import replace

import torch

from tests.integration.loader.frameworks import how_to


def main() -> None:
    torch.set_num_threads(1)
    yours = how_to.names(plan=replace(how_to.PLAN, num_workers=0), save_every=3)
    saw = how_to.Witness(yours["model"])
    how_to.run("nodes", 0, yours)
    assert saw.learned()
    torch.save(saw.trained, f"{os.environ['WORLD_SIZE']} {os.environ['RANK']}.pt")


if __name__ == "__main__":
    main()
