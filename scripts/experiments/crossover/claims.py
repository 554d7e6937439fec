"""What is said about when a GPU pays for training, and what was found."""

from audioaug.units import format_interval, format_seconds, significant
from experiments.claims import Claim, Finding, graded, judge
from experiments.crossover.records import CPU, GPU, Crossing, Crossover

SAYS = {"D1": "The GPU overtakes the CPU at about 700,000 parameters (10 layers)."}
CLAIMED, FACTOR = 7e5, 2.0
"""A crossing within this factor of the claimed one is "about" there."""

NO_GPU = "No GPU here, and no recorded profile of one in datasets/profiles: there is no GPU curve."


def claims(found: Crossover) -> tuple[Claim, ...]:
    """Put the claim beside what was measured here."""
    return judge(SAYS, {"D1": _overtakes(found)})


def _overtakes(found: Crossover) -> Finding:
    curve = ", ".join(
        f"{format_seconds(net.total_seconds(CPU))} for {significant(net.parameters, 2)} parameters"
        for net in found.nets[:: max(1, len(found.nets) // 4)]
    )
    cpu = f"The CPU's 100 epochs take {curve}."
    if found.crossing is None:
        return f"{NO_GPU} {cpu}", "not tested"
    at = found.crossing.at
    holds = graded(at is not None and CLAIMED / FACTOR <= at <= CLAIMED * FACTOR)
    return f"{crossing_words(found.crossing, 'parameters')} {gpu_words(found)} {cpu}", holds


def gpu_words(found: Crossover) -> str:
    """Say which GPU that was, and whether it was here."""
    return f"({found.gpu}, recorded on another machine.)" if found.recorded else f"({found.gpu}.)"


def crossing_words(crossing: Crossing, what: str) -> str:
    """Say where the GPU overtakes the CPU."""
    if crossing.at is None or crossing.interval is None:
        return f"The {'GPU' if crossing.ahead == GPU else 'CPU'} is ahead at every size."
    return f"The GPU overtakes at {significant(crossing.at, 2)} {what} ({format_interval(*crossing.interval, 2)})."
