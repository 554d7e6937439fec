"""Units: type aliases for quantities, and how each kind of number is printed."""

import re
from typing import TypeAlias

Seconds: TypeAlias = float
Hertz: TypeAlias = float
Decibels: TypeAlias = float


def format_ms(milliseconds: float, digits: int = 3) -> str:
    """Format milliseconds with ``digits`` significant digits: ``0.0213 ms``, ``2.13 ms``, ``21.3 ms``."""
    return f"{significant(milliseconds, digits)} ms"


def format_seconds(seconds: Seconds) -> str:
    """Format a duration in a suitable unit: ``12 us``, ``2.1 ms``, ``2 min 5 s``, ``5 h 8 min``."""
    if seconds >= 3600:
        return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60} min"
    if seconds >= 100:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{significant(seconds / size, 2)} {unit}"
    return f"{significant(seconds / 1e-6, 2)} us"


def format_interval(low: float, high: float, digits: int = 3) -> str:
    """Format an interval: ``12.1 .. 12.9``."""
    return f"{significant(low, digits)} .. {significant(high, digits)}"


def format_rate(per_second: float, what: str = "clips") -> str:
    """Format a throughput: ``1,234 clips/s``, ``0.31 clips/s``."""
    return f"{rounded(per_second)} {what}/s"


def format_percent(share: float) -> str:
    """Format a fraction as a percentage: ``0.0713`` is ``7.1 %``, ``0.713`` is ``71 %``."""
    return f"{share * 100:.1f} %" if abs(share) < 0.1 else f"{share * 100:,.0f} %"


def format_bytes(size: int | float) -> str:
    """Format a size in binary units: ``3.5 MiB``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def parse_bytes(text: str) -> int | None:
    """Return a size in bytes, with an optional binary unit: ``500M``, ``2G``, ``1.5 GiB``; else ``None``."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?(?:([KMGT])(?:i?B)?)?", text.strip(), re.IGNORECASE)
    if match is None:
        return None
    return int(float(match[1]) * 1024 ** " KMGT".index((match[2] or " ").upper()))


def format_hz(frequency_hz: Hertz) -> str:
    """Format a sample rate or frequency: ``16 kHz``, ``44.1 kHz``, ``150 Hz``."""
    return f"{frequency_hz / 1000:g} kHz" if frequency_hz >= 1000 else f"{frequency_hz:g} Hz"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 worker``, ``1,200 clips``."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def rounded(value: float) -> str:
    """Format a number as an integer, or with two significant digits if it is smaller than 10: ``1,234``, ``0.31``."""
    return f"{value:,.0f}" if abs(value) >= 10 else significant(value, 2)


def significant(value: float, digits: int) -> str:
    """Format a number with ``digits`` significant digits and without an exponent: ``0.00213``, ``2.13``, ``1,230``."""
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"
