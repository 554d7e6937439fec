"""What is said about throughput on GPU and CPU, and what was found about each."""

from itertools import pairwise

from audioaug.decide.race import Ratio
from audioaug.units import format_bytes, format_percent, format_seconds, significant
from experiments.claims import Claim, Finding, graded, judge
from experiments.showing import times
from experiments.throughput.loading import AHEAD, COPIED, LOADED, STREAMED
from experiments.throughput.records import EPOCHS, Choice, Throughput, Way

SAYS = {
    "C1": "A small fully connected net (1000 -> 512 -> 256 -> 2, Adam, 10,000 random examples, 10 full-batch epochs) "
    "trains faster on a GPU.",
    "C2": "Throughput and time-to-train are the measures.",
    "C3": "Mixed precision raises throughput.",
    "C4": "Larger batches raise throughput.",
    "C5": "Asynchronous loading raises throughput.",
    "C6": "CUDA streams raise throughput.",
    "C7": "Profiling raises throughput.",
    "C8": "Several GPUs and clusters scale it.",
    "C9": "CPUs remain right for small, branching or memory-poor work.",
}
NO_GPU = "No GPU here."
MORE = 1.05
"""A throughput that is raised by less is not raised."""


def claims(found: Throughput) -> tuple[Claim, ...]:
    """Put each claim beside what was measured here."""
    findings = {
        "C1": _faster_on_gpu(found),
        "C2": _measures(found),
        "C3": _mixed_precision(found),
        "C4": _larger_batches(found),
        "C5": _raised(found, AHEAD, LOADED),
        "C6": _raised(found, STREAMED, COPIED),
        "C7": _profiling(found),
        "C8": _scaling(found),
        "C9": _choices(found),
    }
    return judge(SAYS, findings)


def describe(way: Way) -> str:
    """Say a way's throughput and its time to train."""
    return f"{way.examples_per_second:,.0f} examples/s, {format_seconds(way.time_to_train)} for {EPOCHS} epochs"


def _faster_on_gpu(found: Throughput) -> Finding:
    cpu, gpu = found.way("cpu fp32"), found.way("cuda fp32")
    assert cpu is not None
    if gpu is None:
        return f"{NO_GPU} CPU: {describe(cpu)}.", "not tested"
    return f"GPU: {describe(gpu)}; CPU: {describe(cpu)}: {_words(gpu.over(cpu))}.", graded(_raises(gpu.over(cpu)))


def _measures(found: Throughput) -> Finding:
    said = "; ".join(f"{way.name} {describe(way)}" for way in found.precisions)
    by_rate = sorted(found.precisions, key=lambda way: -way.examples_per_second)
    by_time = sorted(found.precisions, key=lambda way: way.time_to_train)
    verdict = graded(by_rate == by_time)
    return f"{said}. At one batch size they rank alike; how well it then answers is a third measure.", verdict


def _mixed_precision(found: Throughput) -> Finding:
    pairs = [(way, found.way(f"{way.name.split()[0]} fp32")) for way in found.precisions if "fp32" not in way.name]
    gains = {way.name: way.over(full) for way, full in pairs if full is not None}
    words = ", ".join(f"{name} over fp32: {_words(gain)}" for name, gain in gains.items())
    return f"{words}.", graded(*map(_raises, gains.values()))


def _larger_batches(found: Throughput) -> Finding:
    words = ", ".join(f"{way.name}: {way.examples_per_second:,.0f} examples/s" for way in found.batches)
    gains = [_raises(after.over(before)) for before, after in pairwise(found.batches)]
    return f"{words}.", graded(*gains)


def _raised(found: Throughput, name: str, without: str) -> Finding:
    way, other = found.way(name), found.way(without)
    if way is None or other is None:
        return f"{NO_GPU} There is nothing to copy.", "not tested"
    gain = way.over(other)
    words = f"{name}, over {without}: {_words(gain)} (tensors in memory; experiment B has a loader with work to do)."
    return words, graded(_raises(gain))


def _words(gain: Ratio) -> str:
    return times(gain.value, (gain.low, gain.high))


def _raises(gain: Ratio) -> bool:
    return gain.value > MORE and gain.low > 1


def _profiling(found: Throughput) -> Finding:
    dearest = ", ".join(f"{o.name.removeprefix('aten::')} {format_percent(o.share)}" for o in found.operators[:3])
    full = found.way(f"{'cuda' if found.host.has_gpu else 'cpu'} fp32")
    assert full is not None
    slower = found.traced_seconds / full.epoch.median
    words = f"It raises nothing by itself (an epoch takes {slower:.2f} x as long), but says where time goes: {dearest}."
    return words, "in part"


def _scaling(found: Throughput) -> Finding:
    epochs = found.processes or {}
    if len(epochs) < 2:
        return "Not measured.", "not tested"
    gains = {count: epochs[1].median / timing.median for count, timing in epochs.items()}
    words = ", ".join(f"{count} at once {gain:.2f} x" for count, gain in gains.items())
    most = max(gains)
    return f"torchrun, {found.processes_on}: {words}.", graded(gains[most] > MORE, gains[most] > 0.7 * most)


def _choices(found: Throughput) -> Finding:
    memory = f"RAM {format_bytes(found.host.ram_bytes)}"
    memory += f", VRAM {format_bytes(found.host.vram_bytes)}" if found.host.vram_bytes else ""
    said = [choice for choice in found.choices if choice.said == "cpu"]
    words = "; ".join(f"{choice.work}: {choice_words(choice)}" for choice in said)
    if not found.host.has_gpu:
        return f"{NO_GPU} {words}. {memory}.", "not tested"
    return f"{words}. {memory}.", graded(*(choice.fastest in ("cpu", "either") for choice in said))


def choice_words(choice: Choice) -> str:
    """Say what a kind of work takes on each device."""
    return ", ".join(f"{device.upper()} {significant(timing.ms, 2)} ms" for device, timing in choice.times.items())
