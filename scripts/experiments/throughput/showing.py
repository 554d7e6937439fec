"""Throughput in lines for the terminal."""

from audioaug.units import format_interval, format_percent, significant
from experiments.claims import to_lines
from experiments.showing import machine, timed
from experiments.throughput.records import EPOCHS, Throughput, Way


def to_text(found: Throughput) -> str:
    """Lay the results out in lines."""
    rows = [machine(found.host)]
    for title, ways in (
        (f"1000 -> 512 -> 256 -> 2, {found.examples:,} examples, full batch", found.precisions),
        ("Batch sizes", found.batches),
        ("Loading", found.loading),
    ):
        rows += ["", f"{title}: examples/s, seconds for {EPOCHS} epochs (95 % interval)", *map(_way, ways)]
    rows += ["", "Where the time of a full-batch epoch goes"]
    rows += [f"  {o.name:32} {format_percent(o.share):>6} in {o.calls} calls" for o in found.operators]
    rows += ["", "Over processes (torchrun): ms an epoch"]
    rows += [f"  {count:2} {timed(timing.ms, timing.ci_ms)}" for count, timing in (found.processes or {}).items()]
    rows += ["", "When to choose which (ms)"]
    for choice in found.choices:
        times = "   ".join(f"{device.upper()} {timed(t.ms, t.ci_ms)}" for device, t in choice.times.items())
        rows.append(f"  {choice.work:52} {times:34} {choice.fastest or 'only one device here'}")
    return "\n".join(rows + to_lines(found.claims))


def _way(way: Way) -> str:
    seconds = f"{significant(way.time_to_train, 3)} ({format_interval(*way.time_to_train_ci)})"
    return f"  {way.name:32} {way.examples_per_second:>12,.0f}   {seconds}"
