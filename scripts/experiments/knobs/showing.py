"""The knobs in lines for the terminal."""

from audioaug.units import format_bytes
from experiments.claims import to_lines
from experiments.knobs.claims import format_rate, mean_of
from experiments.knobs.records import Knobs
from experiments.races import Speed
from experiments.showing import machine, timed, times


def to_text(knobs: Knobs) -> str:
    """Lay the results out in lines."""
    default = knobs.default
    rows = [
        machine(knobs.host),
        f"{knobs.model}, batches of {knobs.batch}, {' > '.join(knobs.chain)}",
        "",
        f"From the default DataLoader ({default.total_ms:.0f} ms a step; the model alone {knobs.ceiling_ms:.0f} ms) "
        f"to the recommended plan: {times(knobs.together.times, knobs.together.times_ci)}",
    ]
    for rung in knobs.ladder:
        rows.append(f"  + {rung.knob:31} {_speed(rung.speed)}  {knobs.share_words(rung):>6} of the gain")
    rows += ["", "Each knob alone, beside the same without it"]
    rows += [f"  {speed.name:33} {_speed(speed)}" for speed in knobs.alone]
    rows += ["", "The model's own step (ms), and the most memory at once"]
    rows += [f"  {c.name:33} {timed(c.ms, c.ci_ms):28} {format_bytes(c.peak_bytes)}" for c in knobs.steps]
    rows += ["", "Reading speed of each level of memory"]
    for level in knobs.levels:
        rate = format_rate(level.bytes_per_second) if level.bytes_per_second else "not here"
        rows.append(f"  {level.name:12} {rate:10} claimed {level.claimed or '-':14} {level.how}")
    for name, windows in (knobs.windows or {}).items():
        seen = {what: mean_of(windows, f"{what}_percent") for what in ("gpu", "cpu", "ram")}
        use = ", ".join(f"{what.upper()} {value:.0f} %" for what, value in seen.items() if value is not None)
        rows.append(f"Use while training, {name}: {use}")
    return "\n".join(rows + to_lines(knobs.claims))


def _speed(speed: Speed) -> str:
    return f"{timed(speed.step_ms, speed.ci_ms):28} {times(speed.times, speed.times_ci)}"
