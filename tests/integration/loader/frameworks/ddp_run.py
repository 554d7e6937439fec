"""What torchrun starts for test_ddp.py: the page's program, unchanged, and a file of what its model saw."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import torch

from audioaug import Loader
from tests.integration.loader.frameworks import how_to


def main(out: Path) -> None:
    torch.set_num_threads(1)
    yours = how_to.names(plan=replace(how_to.PLAN, num_workers=5))
    saw = how_to.Witness(yours["model"])
    page = how_to.run("ddp", 0, yours)
    loader: Loader = page["loader"]
    workers = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert loader.plan.num_workers == 5 and saw.learned()
    weights = [each.detach() for each in yours["model"].parameters()]
    torch.save({"trained": saw.trained, "weights": weights, "workers": len(workers)}, out / f"{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
