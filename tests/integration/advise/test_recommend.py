"""The advisor from Python: the same survey as the command line, for objects at hand."""

from pathlib import Path

import pytest
import torch
from torch import nn

from audioaug import Chain, Loader, Plan, Report, ops, recommend
from audioaug.advise.survey import Survey
from audioaug.errors import PlanError, UsageError
from audioaug.loader.processes import torch_threads
from tests.helpers.planted_time import CLOCK, Clips

pytestmark = pytest.mark.timeout(900)  # real runs: some seconds, minutes beside other load

CHAIN = Chain([ops.Gain(p=1.0), ops.LowPassFilter(p=1.0)], 16000)
MODEL_FILE = """
from audioaug import Chain, ops
from tests.helpers.planted_time import CLOCK, Clips
dataset = Clips(0.02)
augment = Chain([ops.Gain(p=1.0), ops.LowPassFilter(p=1.0)], 16000)
def loss(output, batch):
    CLOCK.advance(0.08)
    return output.mean()
"""


class Tiny(nn.Module):
    """A model of a few parameters, as in the model files of these tests."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 12)

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        return self.head(x_BCT.square().mean(dim=-1))


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    CLOCK.advance(0.08)
    return output.mean()


def names(report: Report) -> set[str]:
    return {candidate.name for candidate in report.candidates}


@pytest.mark.usefixtures("planted_time")
def test_objects_get_the_survey_of_a_model_file(advise, model, here: Path) -> None:
    arguments = ("--model", model(MODEL_FILE), "--budget", "60", "--workers", "0,1", "--json", "report.json")
    assert advise(*arguments, "--plan", "plan.json").code == 0
    by_file = Report.load(here / "report.json")
    settings = {"batch_size": 4, "budget": 60, "workers": [1, 0], "remote": 4, "progress": False}
    report = recommend(Tiny(), CHAIN, Clips(0.02), loss=loss, **settings)
    assert names(report) == names(by_file) and report.chain == by_file.chain
    assert by_file.plan == Plan.load(here / "plan.json") and report.plan.num_workers == by_file.plan.num_workers == 1
    assert (report.workload.model, report.workload.dataset) == ("Tiny", "Clips")
    assert any(line.startswith("With remote = 4, ") for line in report.what_if) and not by_file.what_if
    assert report.workload.sources["loss"] == "arguments" and report.workload.sources["optimizer"] == "default (AdamW)"


def test_a_real_run_changes_neither_model_nor_random_state(here: Path, capsys) -> None:
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, state, dataset = model.head.weight.clone(), torch.get_rng_state(), [torch.randn(1, 4000)] * 16
    report = recommend(model.eval(), CHAIN, dataset, optimizer=optimizer, batch_size=4, workers=[0, 1], budget=2)
    assert torch.equal(model.head.weight, before) and not model.training and model.head.weight.grad is None
    assert not optimizer.state and not torch.equal(torch.get_rng_state(), state)  # the clips above drew from it
    captured = capsys.readouterr()
    assert captured.out == "" and "\nceiling and current configuration, " in captured.err
    batch = next(iter(Loader(dataset, CHAIN, report.plan, batch_size=4, device="cpu")))
    assert batch.shape == (4, 1, 4000)
    assert report.to_html(here / "report.html") == (here / "report.html").read_text(encoding="utf-8")
    assert report.verdict[:40] in str(report) and "<iframe srcdoc=" in report._repr_html_()
    report.save(here / "report.json")
    assert Report.load(here / "report.json") == report


@pytest.mark.usefixtures("planted_time")
def test_building_a_model_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    recommend(Tiny, CHAIN, Clips(0.001), loss=loss, batch_size=4, budget=1, workers=[0], progress=False)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("planted_time")
def test_a_plan_can_be_verified_and_one_of_another_chain_is_refused() -> None:
    both = {"loss": loss, "batch_size": 4, "progress": False}
    report = recommend(Tiny(), CHAIN, Clips(0.02), **both, budget=6, verify=Plan(cut=0, num_workers=1))
    assert {(each.cut, each.num_workers) for each in report.candidates} == {(2, 0), (0, 1)}
    other = Plan(chain_hash=Chain([ops.Clip()], 16000).hash)
    with pytest.raises(PlanError):
        recommend(Tiny(), CHAIN, Clips(0.02), **both, verify=other)


@pytest.mark.usefixtures("planted_time")
def test_r5_2_a_step_that_is_faster_on_one_thread_is_not_left_as_it_is() -> None:
    def contended(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        CLOCK.advance(0.1 * torch.get_num_threads())
        return output.mean()

    dataset = [torch.full((1, 4000), 0.1)] * 16
    with torch_threads(2):
        report = recommend(Tiny(), CHAIN, dataset, loss=contended, batch_size=4, budget=30, workers=[0], progress=False)
    assert report.verdict.startswith("Use ") and ", 0 workers, 1 thread: " in report.verdict  # placements are in a tie
    assert report.plan.threads == 1
    assert report.cause == "thread_oversubscription" and report.ceiling.threads == 1
    assert report.before.contention_ms == pytest.approx(100, rel=0.2) and report.before.wait_ms < 30


@pytest.mark.usefixtures("planted_time")
@pytest.mark.parametrize("again", [0.1, 0.3], ids=["it was the load", "it stays impossible"])
def test_a_ceiling_above_a_candidate_is_measured_again(again: float, monkeypatch, capsys) -> None:
    load = ["ceiling"]  # the load of the machine: until the race, during it, and after it

    def step(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        CLOCK.advance({"ceiling": 0.3, "race": 0.1, "again": again}[load[0]])
        return output.mean()

    def during(stage: str, name: str) -> None:
        work = getattr(Survey, name)
        monkeypatch.setattr(Survey, name, lambda self, *given: (load.__setitem__(0, stage), work(self, *given))[1])

    during("race", "_run_screening")
    during("again", "_check_ceiling")
    report = recommend(Tiny(), CHAIN, Clips(0.05), loss=step, batch_size=4, budget=60, workers=[0, 1])
    assert "\nthe ceiling again, " in capsys.readouterr().err
    impossible = [notice for notice in report.notices if notice.id == "impossible_result"]
    assert bool(impossible) == (again == 0.3)
    if again == 0.1:
        assert report.ceiling.step_ms == pytest.approx(100, rel=0.1) and report.plan.num_workers == 1
    else:
        assert "below the model alone (30" in impossible[0].text and report.best.name == report.current.name


NOTEBOOK = """
import torch
from torch import nn
import audioaug
from IPython.display import Pretty
from audioaug import ops

shown, update = [], Pretty.__init__
Pretty.__init__ = lambda self, text: (shown.append(text), update(self, text))[0]


class Clips(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((1, 4000), 0.1), index % 2


model = nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(1, 2))
chain = [ops.Gain(p=1.0)]
report = audioaug.recommend(model, chain, Clips(), sample_rate=16000, batch_size=4, workers=[0, 1], budget=2)
print(shown)
"""


def test_a_notebook_shows_one_line_of_progress_and_the_report_as_a_page() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = [nbformat.v4.new_code_cell(text) for text in (NOTEBOOK, "report")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    ran, shown = (cell.outputs for cell in notebook.cells)
    texts = [output.text for output in ran if output.output_type == "stream" and output.name == "stdout"]
    assert "ceiling and current configuration, " in texts[0] and " of about " in texts[0]
    assert texts[0].rstrip().endswith("'']")  # the line is empty at the end
    assert not [output for output in ran if output.output_type == "stream" and output.name == "stderr"]
    assert "<iframe srcdoc=" in shown[0].data["text/html"]


def test_an_unfinished_report_has_no_plan(report: Report) -> None:
    with pytest.raises(UsageError, match="This report has no recommendation: its run did not finish"):
        Report(report.host, report.chain, report.workload).plan  # noqa: B018
