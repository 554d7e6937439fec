"""The notebooks: all run from start to end on small sizes, and what they promise to show is there."""

import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
QUICKSTART, CPU_OR_GPU, TOGETHER, GPU_PAYS, HEAR, BRING = NOTEBOOKS
CLAIMED = {
    CPU_OR_GPU: ["experiment_placement"],
    TOGETHER: ["experiment_knobs"],
    GPU_PAYS: ["experiment_crossover", "experiment_throughput"],
}
"""Where the claims are listed that a notebook must show."""

PICTURES = {QUICKSTART: 1, CPU_OR_GPU: 3, TOGETHER: 3, GPU_PAYS: 1, HEAR: 1, BRING: 0}
PLAYERS = {QUICKSTART: 3, CPU_OR_GPU: 3, TOGETHER: 0, GPU_PAYS: 0, HEAR: 46, BRING: 0}
LARGEST_BYTES = 1_500_000
VERDICTS = {"yes", "no", "in part", "not tested"}
ADVICE = "^(Use|Leave it as it is|The machine was too busy to tell|Too few steps to tell|A step takes)"
"""How each verdict begins; the last one where a step is too long for the budget, which is small here."""

PATHS = re.compile(r"(?<![\w.~/])/(?:home|root|work|tmp|Users|usr|opt)/\w+")

pytestmark = pytest.mark.timeout(1200)  # a notebook may take minutes where others use the cores too

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
each_claimed = pytest.mark.parametrize("path", CLAIMED, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


@functools.cache
def executed(path: Path) -> NotebookNode:
    """Run a notebook as `make notebooks` does, in its own folder, but small, and on one thread: cores may be busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUDIOAUG_NOTEBOOK", "small")
        patch.setenv("OMP_NUM_THREADS", "1")
        folder = {"metadata": {"path": str(path.parent)}}
        return NotebookClient(read(path), timeout=1000, kernel_name="python3", resources=folder).execute()


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


@each
def test_the_kept_notebook_was_run_from_start_to_end(path: Path) -> None:
    assert not_run(read(path)) == []


@each
def test_the_kept_notebook_is_small_and_names_no_path_of_a_machine(path: Path) -> None:
    assert path.stat().st_size < LARGEST_BYTES
    notebook = read(path)
    kinds = ("stdout", "stderr", "text/plain", "text/markdown")
    texts = [text for kind in kinds for text in outputs(notebook, kind)]
    assert [found for text in texts for found in PATHS.findall(text)] == []


@each
def test_the_kept_notebook_asks_for_any_python3_kernel(path: Path) -> None:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert read(path).metadata.kernelspec == kernel


# What a run shows


@each
def test_it_runs_draws_its_charts_and_can_be_heard(path: Path) -> None:
    notebook = executed(path)
    assert not_run(notebook) == []
    assert sum(1 for _ in outputs(notebook, "image/png")) == PICTURES[path]
    assert sum(html.count("<audio") for html in outputs(notebook, "text/html")) == PLAYERS[path]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "run"])
@each_claimed
def test_each_claim_has_a_measurement(path: Path, kept: bool) -> None:
    says = {id: words for name in CLAIMED[path] for id, words in importlib.import_module(name).SAYS.items()}
    rows = table(read(path) if kept else executed(path), "the claim")
    assert {row[""]: row["the claim"] for row in rows} == says
    assert {row["holds here"] for row in rows} <= VERDICTS
    assert all(len(row["measured here"]) > 10 for row in rows)


def test_both_builds_agree_in_the_quickstart() -> None:
    rows = table(executed(QUICKSTART), "contract")
    assert len(rows) >= 8
    assert disagreements(rows) == []


def test_an_op_above_its_limit_would_be_seen() -> None:
    good = {"op": "Gain", "error": "2.0e-07 of peak", "limit": "1e-06", "contract": "passed"}
    planted = [good | {"error": "2.0e-05 of peak"}, good | {"error": "nan of peak"}, good | {"contract": "failed"}]
    assert disagreements([good]) == []
    assert disagreements(planted) == ["Gain"] * 3


def test_the_quickstart_gets_a_plan_and_trains_with_it() -> None:
    notebook = executed(QUICKSTART)
    text = "".join(outputs(notebook, "stdout"))
    assert re.search(ADVICE, text, re.MULTILINE)
    advised = [row for row in table(notebook, "configuration") if row[""] == "use" or row[""] == "today"]
    assert all(row["measured (ms a step)"] for row in advised) and advised
    assert len(re.findall(r"epoch \d+: mean loss \d", text)) == 2


def test_each_prediction_has_a_measurement() -> None:
    rows = table(executed(CPU_OR_GPU), "predicted (ms a step)")
    assert len(rows) >= 5
    assert all(row["predicted (ms a step)"] and row["measured (ms a step)"] for row in rows)


def test_knobs_lead_to_the_plan_and_their_shares_make_the_whole_gain() -> None:
    rows = table(executed(TOGETHER), "share of the gain")
    shares = [float(row["share of the gain"].removesuffix("%")) for row in rows if "%" in row["share of the gain"]]
    assert rows[0]["knob"] == "default DataLoader" and len(shares) in (0, len(rows) - 1)
    assert not shares or sum(shares) == pytest.approx(100, abs=2)


def test_no_gpu_curve_without_a_gpu() -> None:
    notebook = executed(GPU_PAYS)
    text = "".join(outputs(notebook, "stdout"))
    has_gpu = "no GPU" not in text
    assert ("there is no GPU curve" in text) != (has_gpu or "recorded on another machine" in text)
    assert len(table(notebook, "parameters")) == 3 and len(table(notebook, "processes")) >= 2


def test_played_ops_pass_their_contracts_and_the_other_filter_fails() -> None:
    notebook = executed(HEAR)
    rows = table(notebook, "verdict")
    assert len(rows) == 13 and {row["verdict"] for row in rows} == {"passed"}
    galleries = [html for html in outputs(notebook, "text/html") if "<audio" in html]
    assert [html.count(": failed") for html in galleries] == [0, 0, 0, 1]
    assert {kind for row in rows for kind in (row["contract, and what was measured"].partition(":")[0],)} == {
        "exact",
        "spectral",
        "log_spectrum",
        "perceptual",
        "statistical",
    }


def test_custom_ops_are_placed_checked_and_trained_with() -> None:
    notebook = executed(BRING)
    assert [row["verdict"] for row in table(notebook, "function")] == ["passed", "failed"]
    assert (
        "only in the workers"
        in {row["op"]: row for row in table(notebook, "on the device")}["Crackle"]["on the device"]
    )
    text = "".join(outputs(notebook, "stdout"))
    assert re.search(ADVICE, text, re.MULTILINE)
    assert len(re.findall(r"epoch \d+: mean loss \d", text)) == 2


def test_a_cell_that_raised_or_was_skipped_would_be_seen() -> None:
    raised = nbformat.v4.new_code_cell(execution_count=1, outputs=[nbformat.v4.new_output("error")])
    skipped = nbformat.v4.new_code_cell()
    assert not_run(nbformat.v4.new_notebook(cells=[raised, skipped])) == [0, 1]
