"""Progress on stderr while the advisor measures (bars on a terminal, else a line a stage), and what it warns of."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from audioaug.errors import AudioaugWarning


class Progress:
    """Shows which stage is being measured, and calls ``check`` as it goes on. ``quiet`` shows nothing."""

    def __init__(self, check: Callable[[], None] = lambda: None, quiet: bool = False) -> None:
        self._bars: Any = None
        self._check, self._quiet = check, quiet
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
        task = None if self._bars is None else self._bars.add_task(name, total=seconds)
        if task is None and not self._quiet:
            print(f"{name} ...", file=sys.stderr, flush=True)

        def tick(*_: object) -> None:
            self._check()
            if task is not None:
                self._bars.update(task, completed=min(seconds, time.monotonic() - begin))

        yield tick
        self._check()
        if task is not None:
            self._bars.update(task, completed=seconds)


@contextmanager
def warnings_once(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass the text of each of our own warnings on, once, instead of printing them; others are shown as ever."""
    reported: set[str] = set()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def on_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, AudioaugWarning):
                show(message, category, *where, **more)
            elif str(message) not in reported:
                reported.add(str(message))
                tell(str(message))

        warnings.simplefilter("always", AudioaugWarning)
        warnings.showwarning = on_warning
        yield
