"""Place: how far a training run is, in epochs and batches, and its form in a checkpoint."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from audioaug.errors import UsageError


class Place(NamedTuple):
    """``batch`` batches of ``epoch`` are behind us, those included of which no example could be used."""

    epoch: int = 0
    batch: int = 0


def to_state(place: Place, seed: int, batches: int | None) -> dict[str, int | None]:
    """Return what a checkpoint keeps: the place, and by what to know a Loader for which it means the same.

    Args:
        place: how far the run is.
        seed: of the run.
        batches: of an epoch, if known.
    """
    return {**place._asdict(), "seed": seed, "batches": batches}


def from_state(state: Mapping[str, Any], seed: int, batches: int | None) -> Place:
    """Return the place in a checkpoint; raise ``UsageError`` if it means something else for this Loader."""
    if not {"epoch", "batch", "seed", "batches"} <= set(state):
        raise UsageError(f"This is no state of a Loader: it has {', '.join(map(repr, state)) or 'nothing'}.")
    if state["seed"] != seed:
        raise UsageError(
            f"The state is of a Loader with seed {state['seed']}, but this one has {seed}.",
            "Give Loader the same seed.",
        )
    if state["batch"] and state["batches"] != batches:
        raise UsageError(
            f"The state is in the middle of an epoch of {state['batches']} batches, but this Loader's have {batches}.",
            "Use the same dataset, batch size and number of processes, or go on with the next epoch.",
        )
    return Place(int(state["epoch"]), int(state["batch"]))
