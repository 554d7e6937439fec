"""Where one step's time goes: bars of characters that differ without colour, all to one scale."""

from typing import Literal

from audioaug.records import Allocation, Report
from audioaug.report.parts import Bars, Part
from audioaug.units import format_ms

Share = Literal["model", "augment", "wait"]

CHARACTERS: dict[Share, str] = {"model": "#", "augment": "=", "wait": "."}
WORDS: dict[Share, str] = {"model": "model", "augment": "augmentation", "wait": "waiting"}
LEGEND = "# model   = augmentation on the device   . waiting for data"


def bar_parts(report: Report) -> tuple[Part, ...]:
    """The bars of today and of the recommendation, as far as they are known."""
    items = (("today", report.before), ("advised", report.after))
    known = tuple((name, allocation) for name, allocation in items if allocation is not None)
    return (Bars(known),) if known else ()


def shares(allocation: Allocation) -> dict[Share, float]:
    """The milliseconds of each share, in drawing order."""
    return {"model": allocation.model_ms, "augment": allocation.augment_ms, "wait": allocation.wait_ms}


def runs(allocation: Allocation, longest_ms: float, width: int) -> list[tuple[Share, str]]:
    """The bar as runs of one character each, ``width`` characters for ``longest_ms``; ends are rounded, not lengths."""
    found, end_ms, end = [], 0.0, 0
    for share, ms in shares(allocation).items():
        end_ms += max(0.0, ms)
        start, end = end, round(end_ms / longest_ms * width) if longest_ms > 0 else 0
        found.append((share, CHARACTERS[share] * (end - start)))
    return found


def longest_ms(bars: Bars) -> float:
    """The step time that fills the width."""
    return max(sum(max(0.0, ms) for ms in shares(allocation).values()) for _, allocation in bars.items)


def caption(allocation: Allocation) -> str:
    """The numbers of a bar, without the shares that are zero: ``284 ms = model 38.0 ms + waiting 246 ms``."""
    named = [f"{WORDS[share]} {format_ms(ms)}" for share, ms in shares(allocation).items() if ms > 0]
    return " = ".join(filter(None, (format_ms(allocation.total_ms), " + ".join(named))))


def plain(bars: Bars, width: int) -> str:
    """The legend, and each bar under its label and numbers, as lines of plain characters."""
    lines = [LEGEND]
    for label, allocation in bars.items:
        bar = "".join(characters for _, characters in runs(allocation, longest_ms(bars), width))
        lines += ["", f"{label}: {caption(allocation)}", bar]
    return "\n".join(lines)
