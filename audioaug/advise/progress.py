"""Progress on a terminal or in a notebook, and the files that a report is written to."""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from audioaug.decide.sliders import grid
from audioaug.errors import AudioaugWarning
from audioaug.measure.lockstep import Leader
from audioaug.process import Interrupt, keep_random_state
from audioaug.records import Plan, Report, to_json
from audioaug.report import to_html, to_markdown
from audioaug.report.sounds import Listening
from audioaug.writing import check_writable, is_replaceable, is_terminal, write_file


class Progress:
    """Show the current stage and call ``check`` regularly.

    A terminal gets bars, a notebook one line under the cell, anything else a line a stage on stderr; ``quiet`` shows
    nothing.
    """

    def __init__(self, check: Callable[[], None] = lambda: None, quiet: bool = False) -> None:
        self._bars: Any = None
        self._line = None if quiet else notebook_line()
        self._check, self._quiet = check, quiet
        if not quiet and self._line is None and is_terminal(sys.stderr):
            with keep_random_state():
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
        if self._line is not None:
            self._line("")

    def note(self, text: str) -> None:
        """Show a sentence above the stages; the report says it too."""
        if self._bars is not None:
            self._bars.console.print(text)
        elif not self._quiet and self._line is None:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def stage(self, name: str, seconds: float) -> Iterator[Callable[..., None]]:
        """Show a stage that takes about ``seconds``; call the yielded function as it advances."""
        begin = time.monotonic()
        task = None if self._bars is None else self._bars.add_task(name, total=seconds)
        if self._line is not None:
            self._line(f"{name} ...")
        elif task is None and not self._quiet:
            print(f"{name} ...", file=sys.stderr, flush=True)

        def tick(*_: object) -> None:
            self._check()
            spent = time.monotonic() - begin
            if task is not None:
                self._bars.update(task, completed=min(seconds, spent))
            if self._line is not None:
                self._line(f"{name}: {spent:.0f} of about {max(seconds, spent):.0f} s")

        yield tick
        self._check()
        if task is not None:
            self._bars.update(task, completed=seconds)


def notebook_line() -> Callable[[str], None] | None:
    """Return a function that replaces one line under the current cell; ``None`` outside a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import Pretty, display

    line, shown = display(Pretty(""), display_id=True), [""]

    def replace_line(text: str) -> None:
        if text != shown[0]:
            shown[0] = text
            line.update(Pretty(text))

    return replace_line


@contextmanager
def warnings_once(report: Callable[[str], None]) -> Iterator[None]:
    """Pass each distinct ``AudioaugWarning`` to ``report`` instead of printing it; other warnings are unchanged."""
    reported: set[str] = set()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def on_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, AudioaugWarning):
                show(message, category, *where, **more)
            elif str(message) not in reported:
                reported.add(str(message))
                report(str(message))

        warnings.simplefilter("always", AudioaugWarning)
        warnings.showwarning = on_warning
        yield


@contextmanager
def printed_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr while the context is active: stdout is for the report.

    This includes child processes and output that does not come from Python.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    with redirect_stdout(sys.stderr), _file_descriptor(1, replacement=2):
        yield


def checks(interrupt: Interrupt, leader: Leader | None) -> Callable[[], None]:
    """Return a check that raises ``KeyboardInterrupt`` after Ctrl-C, and an error if another rank has ended."""
    if leader is None:
        return interrupt.check

    def check() -> None:
        interrupt.check()
        leader.check()

    return check


@contextmanager
def _file_descriptor(number: int, replacement: int) -> Iterator[None]:
    """Make a file descriptor a copy of another one; no effect if either is closed."""
    try:
        saved = os.dup(number)
        os.dup2(replacement, number)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
        os.dup2(saved, number)
        os.close(saved)


class Outputs:
    """The output files, by kind. ``-`` (stdout) is left to the command line.

    ``listening``: the audio examples of the page, once they exist.

    Raises:
        OutputError: a file cannot be written.
    """

    def __init__(self, plan: str | None = None, **paths: str | None) -> None:
        self._plan = None if plan is None else _checked(plan)
        self._paths = {kind: _checked(path) for kind, path in paths.items() if path is not None and path != "-"}
        self.listening: Listening | None = None
        self._renderers: Mapping[str, Callable[[Report], str]] = {
            "json": to_json,
            "markdown": to_markdown.render,
            "html": self._page,
        }

    @property
    def has_page(self) -> bool:
        """Whether an HTML page was requested."""
        return "html" in self._paths

    def update(self, report: Report, last: bool = False) -> None:
        """Write the current report to all files; a pipe or a device gets the last one only."""
        for kind, path in self._paths.items():
            if not last and not is_replaceable(path):
                continue
            text = self._renderers[kind](report)
            write_file(text if text.endswith("\n") else text + "\n", path)

    def _page(self, report: Report) -> str:
        return to_html.render(report, grid(report) if report.complete else None, self.listening)

    def save_plan(self, plan: Plan) -> None:
        """Write the plan, if requested."""
        if self._plan is not None:
            plan.save(self._plan)


def _checked(path: str) -> str:
    """Return the absolute path, since a model file may change the folder; raise ``OutputError`` if not writable."""
    check_writable(path)
    return os.path.abspath(path)
