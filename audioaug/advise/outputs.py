"""Outputs: the files a report goes to, tried before the first measurement and rewritten as results come."""

from collections.abc import Callable, Mapping

from audioaug.decide.what_if import grid
from audioaug.records import Plan, Report
from audioaug.report import to_html, to_json, to_markdown
from audioaug.report.sounds import Listening
from audioaug.writing import check_writable, write_file


class Outputs:
    """Where to write what. ``-`` is stdout and is left to the command line.

    ``listening`` is what the page lets one listen to, once there is something.

    Raises:
        OutputError: a file cannot be written.
    """

    def __init__(self, plan: str | None = None, **paths: str | None) -> None:
        self._plan = plan
        self._paths = {kind: path for kind, path in paths.items() if path not in (None, "-")}
        self.listening: Listening | None = None
        self._renderers: Mapping[str, Callable[[Report], str]] = {
            "json": to_json.render,
            "markdown": to_markdown.render,
            "html": self._page,
        }
        for path in filter(None, (plan, *self._paths.values())):
            check_writable(path)

    @property
    def has_page(self) -> bool:
        """Whether a page was asked for."""
        return "html" in self._paths

    def update(self, report: Report) -> None:
        """Write the report as it is now."""
        for kind, path in self._paths.items():
            assert path is not None
            text = self._renderers[kind](report)
            write_file(text if text.endswith("\n") else text + "\n", path)

    def _page(self, report: Report) -> str:
        return to_html.render(report, grid(report) if report.complete else None, self.listening)

    def save_plan(self, plan: Plan) -> None:
        """Write the plan, if it was asked for."""
        if self._plan is not None:
            plan.save(self._plan)
