"""A published claim beside what was measured here, also where it does not hold."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

VERDICTS = ("yes", "no", "in part", "not tested")

Finding = tuple[str, str]
"""What was found, in a sentence, and the verdict. "Not tested" is not "no"."""


@dataclass(frozen=True)
class Claim:
    """What is said, what was found here, and whether it holds: one of ``VERDICTS``."""

    id: str
    says: str
    found: str
    holds: str


def judge(says: Mapping[str, str], findings: Mapping[str, Finding]) -> tuple[Claim, ...]:
    """Put a finding beside each claim; raise ``KeyError`` where one was forgotten."""
    return tuple(Claim(id, words, *findings[id]) for id, words in says.items())


def graded(*holds: bool) -> str:
    """Return "yes" if all of it holds, "in part" if some of it does, else "no"."""
    return "yes" if all(holds) else "in part" if any(holds) else "no"


def to_lines(claims: Iterable[Claim]) -> list[str]:
    """Lay the claims out for a terminal."""
    lines = ["", "The claims, and what was found here"]
    for claim in claims:
        lines += [f"  {claim.id}  {claim.says}  [{claim.holds}]", f"      {claim.found}"]
    return lines
