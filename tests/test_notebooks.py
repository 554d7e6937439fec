"""The notebooks: both run from start to end on small sizes, and what they promise to show is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
QUICKSTART, CPU_OR_GPU = (ROOT / "notebooks" / name for name in ("01_quickstart.ipynb", "02_cpu_or_gpu.ipynb"))
LARGEST_BYTES = 1_500_000
VERDICTS = {"yes", "no", "in part", "not tested"}
PATHS = re.compile(r"(?<![\w.~/])/(?:home|root|work|tmp|Users|usr|opt)/\w+")

both = pytest.mark.parametrize("path", [QUICKSTART, CPU_OR_GPU], ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> NotebookNode:
    """Run a notebook as `make notebooks` does, in its own folder, but small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUDIOAUG_NOTEBOOK", "small")
        folder = {"metadata": {"path": str(path.parent)}}
        return NotebookClient(read(path), timeout=280, kernel_name="python3", resources=folder).execute()


@pytest.fixture(scope="module")
def quickstart() -> NotebookNode:
    return executed(QUICKSTART)


@pytest.fixture(scope="module")
def cpu_or_gpu() -> NotebookNode:
    return executed(CPU_OR_GPU)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: NotebookNode, kind: str) -> Iterator[str]:
    """Yield what cells show: of a MIME type, or of the streams ``"stdout"`` and ``"stderr"``."""
    for output in (output for cell in code_cells(notebook) for output in cell.outputs):
        if output.output_type == "stream":
            if output.name == kind:
                yield output.text
        elif kind in output.get("data", {}):
            yield output.data[kind]


def table(notebook: NotebookNode, column: str) -> list[dict[str, str]]:
    """Return the rows of the table that has that column."""
    for text in outputs(notebook, "text/markdown"):
        header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
        if column in header:
            return [dict(zip(header, row, strict=True)) for row in rows]
    raise AssertionError(f"no table has a column {column!r}")


def disagreements(rows: list[dict[str, str]]) -> list[str]:
    """Return the ops whose error is above the limit of their contract, or that say so themselves."""
    compared = [row for row in rows if not row["contract"].startswith("only in workers")]
    return [
        row["op"]
        for row in compared
        if row["contract"] != "passed" or not float(row["error"].split()[0]) <= float(row["limit"])
    ]


def not_run(notebook: NotebookNode) -> list[int]:
    """Return the places of code cells that were not run in order, or that raised."""
    cells = code_cells(notebook)
    raised = [any(output.output_type == "error" for output in cell.outputs) for cell in cells]
    return [place for place, cell in enumerate(cells) if cell.execution_count != place + 1 or raised[place]]


# What is kept in the repository


@both
def test_the_kept_notebook_was_run_from_start_to_end(path: Path) -> None:
    assert not_run(read(path)) == []


@both
def test_the_kept_notebook_is_small_and_names_no_path_of_a_machine(path: Path) -> None:
    assert path.stat().st_size < LARGEST_BYTES
    notebook = read(path)
    kinds = ("stdout", "stderr", "text/plain", "text/markdown")
    texts = [text for kind in kinds for text in outputs(notebook, kind)]
    assert [found for text in texts for found in PATHS.findall(text)] == []


@both
def test_the_kept_notebook_asks_for_any_python3_kernel(path: Path) -> None:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert read(path).metadata.kernelspec == kernel


# What a run shows


def test_the_quickstart_runs(quickstart: NotebookNode) -> None:
    assert not_run(quickstart) == []


def test_both_builds_agree_in_the_quickstart(quickstart: NotebookNode) -> None:
    rows = table(quickstart, "contract")
    assert len(rows) >= 8
    assert disagreements(rows) == []


def test_an_op_above_its_limit_would_be_seen() -> None:
    good = {"op": "Gain", "error": "2.0e-07 of peak", "limit": "1e-06", "contract": "passed"}
    planted = [good | {"error": "2.0e-05 of peak"}, good | {"error": "nan of peak"}, good | {"contract": "failed"}]
    assert disagreements([good]) == []
    assert disagreements(planted) == ["Gain"] * 3


def test_the_quickstart_gets_a_plan_and_trains_with_it(quickstart: NotebookNode) -> None:
    text = "".join(outputs(quickstart, "stdout"))
    assert "exit code 0" in text
    advised = [row for row in table(quickstart, "configuration") if row[""] == "use" or row[""] == "today"]
    assert all(row["measured (ms a step)"] for row in advised) and advised
    assert len(re.findall(r"epoch \d+: mean loss \d", text)) == 2


def test_there_is_something_to_hear(quickstart: NotebookNode, cpu_or_gpu: NotebookNode) -> None:
    for notebook in (quickstart, cpu_or_gpu):
        assert sum("<audio" in html for html in outputs(notebook, "text/html")) == 3


def test_cpu_or_gpu_runs_and_draws_its_charts(cpu_or_gpu: NotebookNode) -> None:
    assert not_run(cpu_or_gpu) == []
    assert len(list(outputs(cpu_or_gpu, "image/png"))) == 3  # time per op, the map, convolution


def test_predictions_stand_beside_measurements(cpu_or_gpu: NotebookNode) -> None:
    rows = table(cpu_or_gpu, "predicted (ms a step)")
    assert len(rows) >= 5
    assert all(row["predicted (ms a step)"] and row["measured (ms a step)"] for row in rows)


def test_each_claim_stands_beside_a_measurement(cpu_or_gpu: NotebookNode) -> None:
    rows = table(cpu_or_gpu, "the guide says")
    assert len(rows) == 8
    assert {row["holds here"] for row in rows} <= VERDICTS
    assert all(row["measured here"] for row in rows)


def test_a_cell_that_raised_or_was_skipped_would_be_seen() -> None:
    raised = nbformat.v4.new_code_cell(execution_count=1, outputs=[nbformat.v4.new_output("error")])
    skipped = nbformat.v4.new_code_cell()
    assert not_run(nbformat.v4.new_notebook(cells=[raised, skipped])) == [0, 1]
