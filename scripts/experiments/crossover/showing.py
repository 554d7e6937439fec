"""The crossover in lines for the terminal."""

from audioaug.units import format_interval, format_percent, format_seconds, significant
from experiments.claims import to_lines
from experiments.crossover.claims import NO_GPU, crossing_words, gpu_words
from experiments.crossover.records import Crossover
from experiments.showing import machine, timed


def to_text(found: Crossover) -> str:
    """Lay the results out in lines."""
    rows = [machine(found.host), gpu_words(found) if found.gpu else NO_GPU, ""]
    rows += ["Points in a circle: seconds for 100 epochs (100 x the median epoch, 95 % interval)"]
    for net in found.nets:
        times = "   ".join(
            f"{device.upper()} {significant(net.total_seconds(device), 3):>6} "
            f"({format_interval(*net.total_interval(device))})"
            for device in net.epoch
        )
        rows.append(f"  {net.layers:2} layers {net.parameters:>12,} parameters   {times}")
    if found.trained:
        one = found.trained
        rows.append(
            f"  {one.layers} layers trained for {one.epochs} epochs: {format_seconds(one.seconds)} "
            f"({format_seconds(one.expected_seconds)} by its epochs), "
            f"{format_percent(one.accuracy)} of the points right"
        )
    if found.crossing:
        rows.append(f"  {crossing_words(found.crossing, 'parameters')}")
    rows += ["", "keyword_cnn.py: a training step (ms, 95 % interval)"]
    for point in found.audio:
        times = "   ".join(f"{device.upper()} {timed(t.ms, t.ci_ms)}" for device, t in point.step.items())
        rows.append(f"  {point.batch:3} clips of {point.clip_seconds:g} s   {times}")
    if found.audio_crossing:
        rows.append(f"  {crossing_words(found.audio_crossing, 'seconds of audio a batch')}")
    return "\n".join(rows + to_lines(found.claims))
