"""Does anything grow while one trains for days? Many batches, with memory, open files and threads watched.

    python scripts/soak.py                     200,000 batches, half an hour
    python scripts/soak.py --batches 20000 --json datasets/profiles/soak.json

The Loader is keyed, bucketed and padded, has two workers and a Monitor that writes a log. Slopes are those of Theil and
Sen, the median of the slopes between all pairs of samples of the second half, with intervals of 95 % (Sen 1968).
"""

import datetime
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import psutil
import torch
from compact_records import write_compact
from scipy.stats import theilslopes

import audioaug
from audioaug import ops

RATE, CLIPS, SAMPLES = 8000, 4096, 600
"""The sample rate and the size of the dataset, and the length of its longest clip."""
SAMPLE_EVERY = 500
"""Batches."""


@dataclass(frozen=True)
class Slope:
    """How a quantity changes: its values at the beginning and the end, and its slope for 100,000 batches."""

    first: float
    last: float
    slope: float
    ci: tuple[float, float]

    @property
    def is_flat(self) -> bool:
        """Whether it does not grow for certain, or by less than a thousandth of itself in 100,000 batches."""
        return self.ci[0] <= 0 or self.slope <= 1e-3 * max(1.0, self.last)


class Clips(torch.utils.data.Dataset):
    """Clips of unequal lengths in memory, with string keys."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.lengths = rng.integers(SAMPLES // 4, SAMPLES, CLIPS)

    def __len__(self) -> int:
        return CLIPS

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, str]:
        return np.full(self.lengths[index], 0.1, np.float32), index % 7, f"clip-{index}"


@click.command()
@click.option("--batches", default=200_000, type=click.IntRange(min=8 * SAMPLE_EVERY), help="How many in all.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Record the slopes.")
def main(batches: int, path: Path | None) -> None:
    """Run the batches and print how memory, open files and threads change."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="audioaug-soak-") as folder:
        samples = list(watched(batches, Path(folder)))
    seconds = time.perf_counter() - began
    found = {name: slope([each[name] for each in samples]) for name in samples[0]}
    click.echo(f"soak: {batches:,} batches in {seconds:,.0f} s")
    for name, each in found.items():
        verdict = "flat" if each.is_flat else "GROWS"
        low, high = each.ci
        click.echo(
            f"soak: {name}: {each.first:,.1f} -> {each.last:,.1f}; {each.slope:+.3g} ({low:+.3g} .. {high:+.3g}) "
            f"in 100,000 batches: {verdict}"
        )
    if path is not None:
        date = datetime.date.today().isoformat()
        slopes = {name: asdict(each) for name, each in found.items()}
        write_compact({"date": date, "batches": batches, "seconds": round(seconds), "slopes": slopes}, path)
    if not all(each.is_flat for each in found.values()):
        raise SystemExit(1)


def watched(batches: int, folder: Path) -> Iterator[dict[str, float]]:
    """Train on that many batches, and yield what is there after every few."""
    dataset = Clips()
    chain = audioaug.Chain([ops.Gain(p=0.5), ops.Shift(p=0.5), ops.PolarityInversion(p=0.5)], RATE)
    sampler = audioaug.BucketBatchSampler(dataset.lengths, batch_size=4, seed=1)
    plan = audioaug.Plan(cut=1, num_workers=2)
    loader = audioaug.Loader(dataset, chain, plan, batch_sampler=sampler, pad=True, key=2, device="cpu")
    monitor, seen, process = audioaug.Monitor(loader, log=folder / "log.jsonl", live=False), 0, psutil.Process()
    while seen < batches:
        for _ in monitor:
            seen += 1
            if seen % SAMPLE_EVERY == 0:
                yield sample(process)
            if seen >= batches:
                break


def sample(process: psutil.Process) -> dict[str, float]:
    """Return what this process and its workers hold."""
    family = [process, *process.children(recursive=True)]
    return {
        "memory, MiB": sum(each.memory_info().rss for each in family) / 2**20,
        "open files": sum(each.num_fds() for each in family),
        "threads": sum(each.num_threads() for each in family),
        "processes": len(family),
        "shared memory, files": len(list(Path("/dev/shm").iterdir())),
    }


def slope(values: list[float]) -> Slope:
    """Return the slope of the second half, in 100,000 batches."""
    half = values[len(values) // 2 :]
    found = theilslopes(half, np.arange(len(half)))
    middle, low, high = (
        float(each) * 100_000 / SAMPLE_EVERY for each in (found.slope, found.low_slope, found.high_slope)
    )
    return Slope(values[0], values[-1], middle, (low, high))


if __name__ == "__main__":
    main()
