"""How numbers are written that several experiments print."""

from audioaug.records import HostFacts, Interval
from audioaug.units import format_bytes, format_interval, significant


def timed(value: float | None, interval: Interval | None) -> str:
    """Format milliseconds with their interval: ``12.3 (11.9 .. 12.8)``."""
    return "-" if value is None or interval is None else f"{significant(value, 3)} ({format_interval(*interval)})"


def times(value: float, interval: Interval) -> str:
    """Format a ratio with its interval: ``1.73 x (1.60 .. 1.88)``."""
    return f"{value:.2f} x ({interval[0]:.2f} .. {interval[1]:.2f})"


def machine(host: HostFacts) -> str:
    """Say in a line what was measured on."""
    torch = host.versions.get("torch", "")
    gpu = host.device_name if host.has_gpu else "no GPU"
    return f"{host.cpu}, {host.usable_cores:g} usable cores, {format_bytes(host.ram_bytes)}, {gpu}; torch {torch}"
