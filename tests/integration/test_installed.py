"""What a new user does first, in an empty folder, with whatever is installed: the advisor, training, doctor, verify.

`make test-matrix` runs this with the built wheel and other versions of torch and Python.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from audioaug import Plan

ROOT = Path(__file__).parents[2]
MODEL = """
import torch

model = torch.nn.Sequential(torch.nn.AvgPool1d(16000), torch.nn.Flatten(), torch.nn.Linear(1, 12))
"""
TRAINING = """
import torch
import audioaug
from audioaug import ops

class Noise(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, index): return torch.randn(1, 8000), index % 2

chain = audioaug.Chain([ops.Gain(p=1.0), ops.AddGaussianSNR(p=1.0), ops.LowPassFilter(p=0.5)], sample_rate=16000)
loader = audioaug.Loader(Noise(), chain, audioaug.Plan(cut=1, num_workers=2), batch_size=4, shuffle=True)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8000, 2)).to(loader.device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
if __name__ == "__main__":
    for epoch in range(2):
        for audio, label in loader:
            loss = torch.nn.functional.cross_entropy(model(audio), label)
            loss.backward(); optimizer.step(); optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item():.2f}")
"""


@pytest.fixture
def python(tmp_path):
    """Run Python in an empty folder, which sees the package only where it is installed or is this checkout's."""

    def run(*arguments: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if (ROOT / "audioaug").is_dir():
            environment["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


@pytest.mark.timeout(1200)
def test_the_advisor_answers_with_a_model_file_alone(python, tmp_path):
    (tmp_path / "m.py").write_text(MODEL)
    report = python("-m", "audioaug", "advise", "--model", "m.py", "--quick", "--plan", "plan.json")
    assert "ms" in report and "Traceback" not in report
    assert Plan.load(tmp_path / "plan.json").chain_hash


@pytest.mark.timeout(1200)
def test_sixteen_lines_train_with_two_workers(python, tmp_path):
    (tmp_path / "training.py").write_text(TRAINING)
    losses = re.findall(r"epoch \d: loss [\d.]+", python("-W", "error", "training.py"))
    assert len(losses) == 2


@pytest.mark.timeout(1200)
def test_the_doctor_finds_all_that_is_required(python):
    found = python("-m", "audioaug", "doctor")
    assert re.search(r"^Loader .* ok .*Works: 2 workers sent 4 batches", found, re.MULTILINE)


@pytest.mark.timeout(1200)
def test_verify_passes(python):
    options = ("--op", "Gain", "--op", "LowPassFilter", "--op", "Identity")
    found = python("-m", "audioaug", "verify", *options)
    assert len(re.findall(r"batched .* (passed|skipped)", found)) == 3
