"""What the start of an epoch costs, with and without persistent workers."""

import time
from statistics import median

from torch.utils.data import DataLoader

from audioaug.advise.target import Target
from experiments.knobs.feeding import augmented

PERSISTENT, FRESH = "persistent", "started anew"


def epoch_starts(target: Target, workers: int, epochs: int) -> dict[str, float]:
    """Return the seconds until an epoch's first batch, the first epoch left out, both kinds in turn."""
    loaders = {
        name: DataLoader(
            augmented(target), target.batch_size, num_workers=workers, persistent_workers=name == PERSISTENT
        )
        for name in (PERSISTENT, FRESH)
    }
    taken: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(1 + epochs):
        for name, loader in loaders.items():
            begin = time.perf_counter()
            batches = iter(loader)
            next(batches)
            taken[name].append(time.perf_counter() - begin)
            for _ in batches:  # or the workers would still be busy with this epoch
                pass
    return {name: median(seconds[1:]) for name, seconds in taken.items()}
