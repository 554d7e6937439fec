"""What does audioaug.BucketBatchSampler save, and what does it take? Computed and measured on this machine.

    python scripts/bench_buckets.py                     a minute, three tables on stdout
    python scripts/bench_buckets.py --json result.json

* padding: the share of padding in an epoch of speech (synthetic lengths, distributed as LibriSpeech's), for a plain
  shuffled order and for some numbers of buckets, with a batch size and with a limit of the padded length;
* scale: the time and memory to make a sampler of ten million lengths and to iterate over an epoch;
* training: epochs of a network on the raw waveform of the demo's speech, shuffled and with buckets, in turns: the ratio
  of their times with its spread.
"""

import resource
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from compact_records import write_compact
from models.raw_waveform import RawWaveform
from numpy.typing import NDArray

from audioaug import AudioFolder, BucketBatchSampler, Chain, Loader
from audioaug.records import Timing
from audioaug.units import format_percent

RATE = 16000
SPEECH = Path(__file__).resolve().parents[1] / "datasets/demo/speech"
QUANTILES = {
    0.0: 1.0,
    0.01: 2.5,
    0.05: 4.2,
    0.1: 6.2,
    0.25: 11.2,
    0.5: 13.7,
    0.75: 15.3,
    0.9: 16.6,
    0.99: 18.1,
    0.999: 18.8,
    1.0: 33.0,
}
"""Seconds of the utterances of LibriSpeech's train-clean-360 with speed perturbation, by rank.

They are in egs/librispeech/ASR/local/display_manifest_statistics.py of icefall.
"""


def speech_lengths(count: int, seed: int = 0) -> NDArray[np.int64]:
    """Return lengths in samples, synthetic: between two quantiles of real speech, all are equally likely."""
    ranks = np.random.default_rng(seed).random(count)
    seconds = np.interp(ranks, list(QUANTILES), list(QUANTILES.values()))
    return (seconds * RATE).astype(np.int64)


def padding_of(batches: Iterable[Any], length_N: NDArray[np.int64]) -> float:
    """Return the share of padding in batches of indices."""
    parts = [length_N[batch] for batch in batches]
    return float(1 - sum(part.sum() for part in parts) / sum(len(part) * part.max() for part in parts))


def paddings(count: int, batch_size: int, numbers: Iterable[int]) -> dict[str, float]:
    """Return the share of padding for a shuffled order, and for these numbers of buckets."""
    length_N = speech_lengths(count)
    shuffled_N = np.random.default_rng(1).permutation(count)
    found = {
        "shuffled": padding_of(np.split(shuffled_N, range(batch_size, count, batch_size)), length_N),
    }
    for number in numbers:
        by_size = BucketBatchSampler(length_N, batch_size, num_buckets=number)
        by_length = BucketBatchSampler(length_N, max_batch_length=batch_size * 33 * RATE, num_buckets=number)
        found[f"{number} buckets, batch_size"] = padding_of(by_size, length_N)
        found[f"{number} buckets, max_batch_length"] = padding_of(by_length, length_N)
    return found


def scale(count: int) -> dict[str, float]:
    """Return what a sampler of this many lengths takes, and its first epoch."""
    length_N, before = speech_lengths(count), peak_mib()
    start, start_cpu = time.perf_counter(), time.process_time()
    sampler = BucketBatchSampler(length_N, max_batch_length=32 * 33 * RATE)
    made, made_cpu = time.perf_counter(), time.process_time()
    examples = sum(map(len, sampler))
    end, end_cpu = time.perf_counter(), time.process_time()
    return {
        "examples": examples,
        "batches": len(sampler),
        "make_seconds": made - start,
        "make_cpu_seconds": made_cpu - start_cpu,
        "epoch_seconds": end - made,
        "epoch_cpu_seconds": end_cpu - made_cpu,
        "before_mib": before,
        "peak_mib": peak_mib(),
    }


class InMemory:
    """The demo's speech, decoded once, so that only training is timed."""

    def __init__(self, clips: int | None = None) -> None:
        folder = AudioFolder(SPEECH, RATE)
        places = np.linspace(0, len(folder) - 1, clips or len(folder)).astype(int)
        self.examples = [folder[place] for place in places]
        self.length_N = folder.lengths()[places]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Any:
        return self.examples[index]


def training(rounds: int, batch_size: int, num_buckets: int, widths: tuple[int, ...], clips: int | None = None) -> Any:
    """Return the ratio of the times of an epoch without and with buckets, with its interval, and their padding."""
    dataset = InMemory(clips)
    sampler = BucketBatchSampler(dataset.length_N, batch_size, num_buckets=num_buckets)
    options = {"pad": True, "device": "cpu"}
    loaders = (
        Loader(dataset, Chain([], RATE), batch_size=batch_size, shuffle=True, **options),
        Loader(dataset, Chain([], RATE), batch_sampler=sampler, **options),
    )
    model = RawWaveform(widths)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for loader in loaders:
        seconds_of_epoch(loader, model, optimizer)  # warm
    pairs = []
    for turn in range(rounds):  # which is first changes, so that going first is no advantage
        order = (0, 1) if turn % 2 else (1, 0)
        times = {place: seconds_of_epoch(loaders[place], model, optimizer) for place in order}
        pairs.append((times[0], times[1]))
    ratios = Timing(tuple(shuffled / bucketed for shuffled, bucketed in pairs))
    return {
        "ratio": ratios.median,
        "ratio_low": ratios.interval[0],
        "ratio_high": ratios.interval[1],
        "seconds": float(np.median([shuffled for shuffled, _ in pairs])),
        "shuffled_padding": float(np.mean([epoch_padding(loaders[0]) for _ in range(5)])),
        "padding": sampler.padding,
    }


def seconds_of_epoch(loader: Loader, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Train for an epoch; return the time that it takes a core, which other programs cannot lengthen much."""
    start = time.process_time()
    for wave, label, _ in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(wave), label).backward()
        optimizer.step()
    return time.process_time() - start


def epoch_padding(loader: Loader) -> float:
    """Return the share of padding in a loader's next epoch."""
    sizes = [(length.sum().item(), wave.numel()) for wave, _, length in loader]
    return 1 - sum(audio for audio, _ in sizes) / sum(padded for _, padded in sizes)


def peak_mib() -> float:
    """Return the most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


@click.command()
@click.option("--count", default=10_000_000, show_default=True, help="Lengths, for the time and the memory.")
@click.option("--clips", default=100_000, show_default=True, help="Lengths, for the padding.")
@click.option("--batch-size", default=32, show_default=True, help="Of the table of the padding.")
@click.option("--rounds", default=6, show_default=True, help="Pairs of epochs, for the training.")
@click.option("--json", "json_", metavar="FILE", help="Write the result as JSON.")
def main(count: int, clips: int, batch_size: int, rounds: int, json_: str | None) -> None:
    """Compute what buckets save, and measure what a sampler takes."""
    measured = scale(count)
    print(f"{count:,} lengths, {measured['batches']:,} batches")
    for name, what in (("make", "to make the sampler"), ("epoch", "an epoch")):
        print(f"  {what:<24}{measured[f'{name}_seconds']:.1f} s, {measured[f'{name}_cpu_seconds']:.1f} s of one core")
    print(f"  memory                  {measured['peak_mib']:.0f} MiB, {measured['before_mib']:.0f} MiB before")
    padding = paddings(clips, batch_size, (5, 10, 30, 100))
    print(f"padding of {clips:,} utterances, {batch_size} in a batch")
    for name, share in padding.items():
        print(f"  {name:<32}{format_percent(share):>7}")
    torch.set_num_threads(1)
    trained = training(rounds, 16, 5, (64, 128))
    print(f"training on the demo's speech, 16 in a batch, epochs of {trained['seconds']:.1f} s of one core")
    print(f"  padding, shuffled     {format_percent(trained['shuffled_padding'])}")
    print(f"  padding, 5 buckets    {format_percent(trained['padding'])}")
    print(f"  faster by a factor of {trained['ratio']:.2f} ({trained['ratio_low']:.2f} .. {trained['ratio_high']:.2f})")
    if json_:
        write_compact({**measured, "padding": padding, "training": trained}, json_)


if __name__ == "__main__":
    main()
