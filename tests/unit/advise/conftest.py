"""Model files with a few parameters, and the advisor run in this process."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise.__main__ import main
from audioaug.advise.model_file import MODULE_NAME
from audioaug.advise.racing import Racer
from audioaug.advise.survey import Survey
from audioaug.decide.recommend import recommend
from audioaug.measure import Clock, Watch
from audioaug.records import Report, write_record
from tests.helpers.planted_reports import planted_report, raced, steady
from tests.helpers.planted_time import CLOCK, PlantedLoader

TINY = """
import torch
from torch import nn

sample_rate = 16000
clip_seconds = 0.25
batch_size = 4


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 12)

    def forward(self, x_BCT):
        return self.head(x_BCT.square().mean(dim=-1))

"""


@dataclass
class Ran:
    """The result of an advisor run."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch):
    """Remove a model file's folder from the path, the file from the modules, and its command line."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", sys.argv)
    yield
    for name in (MODULE_NAME, "mymodel"):
        sys.modules.pop(name, None)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty working folder, which also holds the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def model(here):
    """Write a model file (the tiny model and more lines, or ``whole``) and return its name."""

    def write(more: str = "", name: str = "mymodel.py", whole: str | None = None) -> str:
        (here / name).write_text(TINY + more if whole is None else whole)
        return name

    return write


@pytest.fixture
def advise(here, capsys):
    """Run the advisor with these arguments."""

    def run(*arguments: object) -> Ran:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def planted_time(monkeypatch) -> None:
    """Run the advisor in planted time, without load from other programs: see ``tests.helpers.planted_time``."""
    monkeypatch.setattr(CLOCK, "_now", 0.0)
    monkeypatch.setattr("audioaug.advise.survey.clock_for", lambda device: CLOCK)
    monkeypatch.setattr("audioaug.advise.survey.effective_cores", lambda cores, clock: float(cores))
    monkeypatch.setattr("audioaug.advise.today.delayed_seconds", lambda: 0.0)
    monkeypatch.setattr("audioaug.advise.candidates.Loader", PlantedLoader)
    monkeypatch.setattr(Watch, "_look", lambda self: (CLOCK.now(), *[0.0] * 6))


@pytest.fixture
def racer_with():
    """Return a racer whose job trains by this step, on a chain of one gain and eight short clips."""

    def make(step, notice=lambda *_: None, clock: Clock | None = None) -> Racer:
        job = SimpleNamespace(
            dataset=[torch.ones(400)] * 8,
            chain=Chain([ops.Gain()], 16000),
            batch_size=2,
            device=torch.device("cpu"),
            precision="fp32",
            collate_fn=None,
            pad=False,
            lengths=None,
            targets=None,
            audio_key=None,
            is_stream=False,
            path="m.py",
            step=step,
            leader=None,
        )
        return Racer(job, clock or CLOCK, 1.0, notice=notice)

    return make


@pytest.fixture
def nothing_measured(monkeypatch) -> None:
    """Fail if the advisor measures anything."""

    def measure(_: Survey):
        raise AssertionError("the survey was started")

    monkeypatch.setattr(Survey, "run", measure)


@pytest.fixture
def report() -> Report:
    """A finished report with planted numbers."""
    today = raced(3, 0, 40.0, stall=0.75, clips_per_second=800.0)
    found = replace(
        planted_report(), candidates=(today, raced(1, 2, 20.0)), current=today, cost_seconds=9.0, complete=True
    )
    measurements = steady(found.candidates)
    return replace(recommend(found, measurements), measurements=tuple(measurements.values()))


@pytest.fixture
def saved(here, report) -> Path:
    """The report in a file."""
    write_record(report, here / "saved.json")
    return here / "saved.json"
