"""A fault: its kind, its target and its parameters, which follow from a campaign's seed and its number alone."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VERDICTS = ("hang", "traceback", "sentence", "exit code", "left behind", "lost or twice", "next run")
"""What can be violated: each fault is judged by all that apply."""


class Violation(Exception):
    """One verdict that a fault violated: its name, of ``VERDICTS``, and what was seen."""

    def __init__(self, verdict: str, seen: str) -> None:
        assert verdict in VERDICTS, verdict
        super().__init__(verdict, seen)
        self.verdict, self.seen = verdict, seen


@dataclass(frozen=True)
class Fault:
    """One fault. ``values`` are its parameters, by name, as JSON has them."""

    seed: int
    number: int
    kind: str
    target: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def chance(self, purpose: str) -> random.Random:
        """Return a generator of random numbers for one purpose, the same in every run."""
        return random.Random(f"{self.seed}/{self.number}/{purpose}")


@dataclass(frozen=True)
class Attack:
    """What happens to a program from outside, and how it may end.

    ``start`` is called in the parent process with the case and the process id; ``judge`` with the case and how the
    process ended; ``again`` in a new process, to see that the next run works.
    """

    start: Callable[[Any, int], None]
    judge: Callable[[Any, Any], str]
    again: Callable[[Any], str] | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Args:
        name: in the log and the tables.
        targets: what it may hit.
        options: for each parameter, the values that it may have; one that is listed twice is twice as likely.
        run: runs the target with the fault in a process of its own, and returns how it ended. With an ``attack`` it is
            a program: it ends as programs do, and the attack judges it.
        weight: how often it is drawn.
        limit: seconds after which it counts as a hang.
        of_world: whether the fault is the world's, so that no traceback may be shown.
        attack: what happens to the program.
        peer: whether plain torch can be given the same fault.
    """

    name: str
    targets: tuple[str, ...]
    options: Mapping[str, Sequence[Any]]
    run: Callable[[Any], str]
    weight: float = 1.0
    limit: float = 60.0
    of_world: bool = True
    attack: Attack | None = None
    peer: bool = False


KINDS: dict[str, Kind] = {}
"""Every kind, by name, in the order of registration."""

KNOBS = ("weight", "limit", "of_world", "attack", "peer")


def kind(
    name: str, targets: Sequence[str], /, **options: Any
) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Register a function as the ``run`` of a kind; keywords are fields of ``Kind``, all others its ``options``."""

    def register(run: Callable[[Any], str]) -> Callable[[Any], str]:
        knobs = {knob: options.pop(knob) for knob in KNOBS if knob in options}
        assert name not in KINDS, name
        KINDS[name] = Kind(name, tuple(targets), options, run, **knobs)
        return run

    return register


def draw(seed: int, number: int, kinds: Sequence[Kind]) -> Fault:
    """Return a fault: the first ones are one of each kind, the others are drawn by weight."""
    chance = random.Random(f"{seed}/{number}")
    chosen = kinds[number] if number < len(kinds) else chance.choices(kinds, [each.weight for each in kinds])[0]
    target = chance.choice(chosen.targets)
    return Fault(
        seed, number, chosen.name, target, {name: chance.choice(each) for name, each in chosen.options.items()}
    )
