"""Where a monitor's windows go: a log, TensorBoard, the page, and the terminal."""

from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from audioaug.errors import OutputError, UsageError
from audioaug.records import MonitoredRun, Window


class Output(Protocol):
    """Takes windows one by one."""

    def add(self, window: Window) -> None:
        """Take one window in."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


def outputs_for(
    run: MonitoredRun, log: str | Path | None, html: str | Path | None, tensorboard: str | Path | None, live: bool
) -> list[Output]:
    """Open what was asked for; raise ``OutputError`` or ``UsageError`` where that cannot be."""
    outputs: list[Output] = []
    outputs += [Log(log, run)] if log is not None else []
    outputs += [Page(html, run)] if html is not None else []
    outputs += [Board(tensorboard)] if tensorboard is not None else []
    outputs += [View(run)] if live else []
    return outputs


class Log:
    """JSON lines: the run, then one line a window, each written at once."""

    def __init__(self, path: str | Path, run: MonitoredRun) -> None:
        self._file = _opened(path)
        self._write(run)

    def add(self, window: Window) -> None:
        """Write a line."""
        self._write(window)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: object) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()


class Page:
    """The page, made when all windows are there."""

    def __init__(self, path: str | Path, run: MonitoredRun) -> None:
        self._file, self._run = _opened(path), run
        self._windows: list[Window] = []

    def add(self, window: Window) -> None:
        """Keep it."""
        self._windows.append(window)

    def close(self) -> None:
        """Write the page."""
        from audioaug.report.monitor_html import render

        with self._file:
            self._file.write(render(self._run, self._windows).encode())


class Board:
    """TensorBoard scalars under ``audioaug/``: every number of a window; what is said goes into its texts."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "Monitor: tensorboard is not installed.", "pip install tensorboard, or use log= or html= instead."
            ) from None
        self._writer: Any = SummaryWriter(str(folder))

    def add(self, window: Window) -> None:
        """Write its numbers."""
        values = asdict(window) | {"stall": window.stall}
        workers = values.pop("worker_percent")
        values |= {f"worker_percent/{place}": percent for place, percent in enumerate(workers)}
        for name, value in values.items():
            if isinstance(value, int | float) and name not in ("step", "seconds"):
                self._writer.add_scalar(f"audioaug/{name}", value, window.step)
        if window.said:
            self._writer.add_text("audioaug/bottleneck", window.said, window.step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class View:
    """A few lines on stderr that are drawn anew with each window; what the loop prints appears above them."""

    def __init__(self, run: MonitoredRun) -> None:
        from rich.console import Console
        from rich.live import Live

        self._run = run
        self._live = Live(console=Console(stderr=True), auto_refresh=False)
        self._live.start()

    def add(self, window: Window) -> None:
        """Show it."""
        from audioaug.report.monitor_text import drawn

        self._live.update(drawn(self._run, window), refresh=True)

    def close(self) -> None:
        """Leave the last of it on the terminal."""
        self._live.stop()


def _opened(path: str | Path) -> IO[bytes]:
    try:
        return Path(path).open("wb")
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name a file in a folder that exists.") from None
