"""Progress on stderr while the advisor measures: bars on a terminal, a line a stage elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Progress:
    """Shows which stage is being measured. ``quiet`` shows nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._bars: Any = None
        self._quiet = quiet
        if not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            columns = (TextColumn("{task.description:<44}"), BarColumn(), TimeElapsedColumn())
            self._bars = Bars(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> "Progress":
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextmanager
    def stage(self, name: str, seconds: float) -> Iterator[Callable[..., None]]:
        """Show a stage that may take so many seconds; call what is yielded whenever some of it is done."""
        begin = time.monotonic()
        if self._bars is None:
            if not self._quiet:
                print(f"{name} ...", file=sys.stderr, flush=True)
            yield lambda *_: None
            return
        task = self._bars.add_task(name, total=seconds)
        yield lambda *_: self._bars.update(task, completed=min(seconds, time.monotonic() - begin))
        self._bars.update(task, completed=seconds)
