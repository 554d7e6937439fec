"""Outputs of a monitor: a log, TensorBoard, the page, and the terminal."""

import errno
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import msgspec

from audioaug.errors import AudioaugWarning, OutputError, UsageError, first_line
from audioaug.loader.failures_of_examples import user_stacklevel
from audioaug.loader.processes import is_first_rank
from audioaug.process import keep_random_state
from audioaug.records import MonitoredRun, Window
from audioaug.writing import check_writable, is_terminal, write_file


class Output(Protocol):
    """Receives windows one by one."""

    def add(self, window: Window) -> None:
        """Receive a window."""
        ...

    def close(self) -> None:
        """Write what has not been written yet."""
        ...


def outputs_for(
    run: MonitoredRun,
    log: str | Path | None,
    html: str | Path | None,
    tensorboard: str | Path | None,
    live: bool | None,
    rank_words: Callable[[], str],
) -> list[Output]:
    """Open the requested outputs; raise ``OutputError`` or ``UsageError`` if one cannot be opened.

    ``live``: a view on the terminal; ``None``: that, or, if stderr is not one, a line of the first rank when the
    monitor is closed, which ends with ``rank_words``.
    """
    on_terminal = is_terminal(sys.stderr)
    outputs: dict[str, Output] = {}
    outputs |= {f"the page {html}": Page(html, run)} if html is not None else {}
    outputs |= {f"TensorBoard's {tensorboard}": Board(tensorboard)} if tensorboard is not None else {}
    # after those that may refuse, since it empties an existing file
    outputs |= {f"the log {log}": Log(log, run)} if log is not None else {}
    outputs |= {"the view on the terminal": View(run)} if live or (live is None and on_terminal) else {}
    outputs |= (
        {"the last line": ClosingLine(rank_words)} if live is None and not on_terminal and is_first_rank() else {}
    )
    return [OptionalOutput(name, output) for name, output in outputs.items()]


class OptionalOutput:
    """An output whose failure does not end training: if it cannot be written, it is dropped with one warning."""

    def __init__(self, name: str, output: Output) -> None:
        self._name, self._output, self._failed = name, output, False

    def add(self, window: Window) -> None:
        """Pass the window on, unless the output has failed."""
        self._try(lambda: self._output.add(window))

    def close(self) -> None:
        """Close the output, unless it has failed."""
        self._try(self._output.close)

    def _try(self, action: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            action()
        except (OSError, OutputError) as error:
            self._failed = True
            reason = getattr(error, "strerror", None) or first_line(error)
            warnings.warn(
                f"Monitor stopped writing {self._name}: {reason}. Training continues.",
                AudioaugWarning,
                stacklevel=user_stacklevel(),
            )


class Log:
    """JSON lines: the run, then one line per window, written immediately."""

    def __init__(self, path: str | Path, run: MonitoredRun) -> None:
        try:
            self._file = Path(path).open("wb", buffering=0)  # noqa: SIM115  (open until the monitor is closed)
            self._write(run)
        except OSError as error:
            raise OutputError(
                f"Cannot write {path}: {error.strerror}.", "Name a file in a folder that exists."
            ) from None

    def add(self, window: Window) -> None:
        """Write a line."""
        self._write(window)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: object) -> None:
        line = msgspec.json.encode(record) + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._file.close()
            raise


class Page:
    """The page, written when the monitor is closed; until then, an existing file stays."""

    def __init__(self, path: str | Path, run: MonitoredRun) -> None:
        check_writable(path)
        self._path, self._run = path, run
        self._windows: list[Window] = []

    def add(self, window: Window) -> None:
        """Store the window."""
        self._windows.append(window)

    def close(self) -> None:
        """Write the page."""
        from audioaug.report.monitor import render

        write_file(render(self._run, self._windows), self._path)


class ClosingLine:
    """One line on stderr when the monitor is closed, such as in the log of a job, where there is no terminal."""

    def __init__(self, rank_words: Callable[[], str]) -> None:
        self._windows: list[Window] = []
        self._rank_words = rank_words

    def add(self, window: Window) -> None:
        """Store the window."""
        self._windows.append(window)

    def close(self) -> None:
        """Print the line."""
        from audioaug.report.monitor import headline

        words = f"{headline(self._windows)} {self._rank_words()}".rstrip()
        print(f"audioaug.Monitor: {words}", file=sys.stderr, flush=True)


class Board:
    """TensorBoard scalars under ``audioaug/``: every number of a window; messages are written as text."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "Monitor: tensorboard is not installed.", "pip install tensorboard, or use log= or html= instead."
            ) from None
        try:
            self._writer: Any = SummaryWriter(str(folder))
        except OSError as error:
            raise OutputError(f"Cannot write to {folder}: {error.strerror}.", "Name another folder.") from None

    def add(self, window: Window) -> None:
        """Write its numbers."""
        values = asdict(window) | {"stall": window.stall}
        workers = values.pop("worker_percent")
        values |= {f"worker_percent/{index}": percent for index, percent in enumerate(workers)}
        for name, value in values.items():
            if isinstance(value, int | float) and name not in ("step", "seconds"):
                self._writer.add_scalar(f"audioaug/{name}", value, window.step)
        if window.message:
            self._writer.add_text("audioaug/bottleneck", window.message, window.step)

    def close(self) -> None:
        """Write what has not been written yet."""
        self._writer.close()


class View:
    """A few lines on stderr, updated with each window; output of the training loop appears above them."""

    def __init__(self, run: MonitoredRun) -> None:
        with keep_random_state():
            from rich.console import Console
            from rich.live import Live

        self._run = run
        self._live = Live(console=Console(stderr=True), auto_refresh=False)
        self._live.start()

    def add(self, window: Window) -> None:
        """Show the window."""
        from audioaug.report.monitor import renderable

        self._live.update(renderable(self._run, window), refresh=True)

    def close(self) -> None:
        """Leave the last window on the terminal."""
        self._live.stop()
