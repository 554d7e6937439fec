"""How fast is audioaug.SpecAugment beside torchaudio's masks? In turns, on this machine, as ratios with their spread.

    python scripts/bench_spec_augment.py                     128 spectrograms of 80 bins and 400 frames, on the CPU
    python scripts/bench_spec_augment.py --device cuda --json result.json

* loop: ``TimeMasking`` and ``FrequencyMasking`` called for each example, which gives each its own masks, as ours does;
* batch: the same with ``iid_masks=True`` for the whole batch, which knows neither lengths nor keys.

All draw two masks of time and two of frequency and put 0 there. Ours also with the mean, and with a warp.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import click
import torch
from compact_records import write_compact

from audioaug import SpecAugment
from audioaug.errors import LibraryMissing
from audioaug.loader.prefetch import as_device
from audioaug.records import Timing

MASKS, FRAMES, BINS = 2, 100, 27
"""Of each kind; and how wide they are at most."""

Work = Callable[[], object]


def contenders(x_BFN: torch.Tensor) -> dict[str, Work]:
    """Return what is timed, by name: ours first."""
    try:
        from torchaudio.transforms import FrequencyMasking, TimeMasking
    except (ImportError, OSError) as error:
        raise LibraryMissing(f"torchaudio cannot be imported: {error}.", "Install the one for this torch.") from error
    masks = MASKS * [TimeMasking(FRAMES)] + MASKS * [FrequencyMasking(BINS)]
    batched = MASKS * [TimeMasking(FRAMES, iid_masks=True)] + MASKS * [FrequencyMasking(BINS, iid_masks=True)]
    arguments = {"time_masks": MASKS, "time_mask_width": FRAMES, "frequency_masks": MASKS, "frequency_mask_width": BINS}
    keys = list(range(len(x_BFN)))
    ours = {
        "audioaug": SpecAugment(**arguments),
        "audioaug, the mean": SpecAugment(**arguments, mask_value="mean"),
        "audioaug, a warp": SpecAugment(**arguments, time_warp=80),
    }
    return {
        **{name: lambda module=module: module(x_BFN, key=keys) for name, module in ours.items()},
        "torchaudio, loop": lambda: torch.stack([applied(masks, x_FN) for x_FN in x_BFN]),
        "torchaudio, batch": lambda: applied(batched, x_BFN),
    }


def applied(masks: list[torch.nn.Module], x: torch.Tensor) -> torch.Tensor:
    for mask in masks:
        x = mask(x)
    return x


def in_turns(works: Mapping[str, Work], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Return the seconds of each, one a round; the order moves on by one each round."""
    names, found = list(works), {name: list[float]() for name in works}
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for turn in range(-1, rounds):  # the first is not counted
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            finish()
            start = time.perf_counter()
            works[name]()
            finish()
            if turn >= 0:
                found[name].append(time.perf_counter() - start)
    return found


def ratios(seconds: Mapping[str, list[float]]) -> dict[str, Timing]:
    """Return how much longer each took than ours in the same round."""
    ours = seconds["audioaug"]
    return {name: Timing(tuple(t / o for t, o in zip(times, ours))) for name, times in seconds.items()}


@click.command()
@click.option("--device", default="cpu", show_default=True, help="auto, cpu or cuda.")
@click.option("--batch", default=128, show_default=True, help="Examples in a batch.")
@click.option("--bins", default=80, show_default=True, help="Of frequency.")
@click.option("--frames", default=400, show_default=True, help="Of time.")
@click.option("--rounds", default=15, show_default=True, help="How often each is timed.")
@click.option("--threads", default=1, show_default=True, help="Of torch.")
@click.option("--json", "json_", metavar="FILE", help="Write the result as JSON.")
def main(device: str, batch: int, bins: int, frames: int, rounds: int, threads: int, json_: str | None) -> None:
    """Time SpecAugment beside torchaudio's masks."""
    torch.set_num_threads(threads)
    where = as_device(device)
    seconds = in_turns(contenders(torch.rand(batch, bins, frames, device=where)), rounds, where)
    print(f"{batch} spectrograms of {bins} x {frames} on {where}, {threads} threads, {rounds} rounds")
    found = {}
    for name, ratio in ratios(seconds).items():
        (low, high), ms = ratio.interval, 1e3 * statistics.median(seconds[name])
        found[name] = {"ms": ms, "ratio": ratio.median, "ratio_low": low, "ratio_high": high}
        print(f"{name:20} {ms:8.2f} ms   {ratio.median:6.2f} x ours ({low:.2f} .. {high:.2f})")
    if json_:
        write_compact(found, json_)


if __name__ == "__main__":
    main()
