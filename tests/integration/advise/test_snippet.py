"""The code of a report runs as it is pasted, beside the names of the model file, in a program of its own."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from audioaug.records import Report
from audioaug.report.snippet import snippet

pytestmark = pytest.mark.timeout(900)  # real runs: some seconds, minutes beside other load

ROOT = Path(__file__).parents[3]
GAIN = "from audioaug import ops\naugment = [ops.Gain(p=1.0)]\n"
CASES = {
    "tuple": (f"{GAIN}dataset = [(torch.full((1, 4000), 0.1), 3)] * 8\n", "batch[0]", "list (4, 1, 4000)"),
    "dict": (
        f"{GAIN}dataset = [{{'wav': torch.full((1, 4000), 0.1), 'label': 3}}] * 8\n",
        "batch['wav']",
        "dict (4, 1, 4000)",
    ),
    "padded": (
        f"{GAIN}dataset = [(torch.full((1, 3993 + place), 0.1), 3) for place in range(8)]\n",
        "batch[0]",
        "list (4, 1, ",
    ),
    "collate_fn": (
        f"{GAIN}dataset = [(torch.full((1, 4000), 0.1), 3)] * 8\n"
        "def collate_fn(examples):\n"
        "    waves, labels = zip(*examples)\n"
        "    return {'audio': torch.stack(waves), 'label': torch.tensor(labels)}\n",
        "batch['audio']",
        "dict (4, 1, 4000)",
    ),
    "custom": (
        f"{GAIN}dataset = [(torch.full((1, 4000), 0.1), 3)] * 8\n"
        "class Batch:\n"
        "    def __init__(self, audio, labels):\n"
        "        self.audio, self.labels = audio, labels\n"
        "    def to(self, device):\n"
        "        return Batch(self.audio.to(device), self.labels.to(device))\n"
        "def collate_fn(examples):\n"
        "    waves, labels = zip(*examples)\n"
        "    return Batch(torch.stack(waves), torch.tensor(labels))\n",
        "batch.audio",
        "Batch (4, 1, 4000)",
    ),
    "Compose": (
        "import audiomentations\n"
        "augment = audiomentations.Compose([audiomentations.Gain(p=1.0), audiomentations.PolarityInversion(p=1.0)])\n"
        "dataset = [(torch.full((1, 4000), 0.1), 3)] * 8\n",
        "batch[0]",
        "list (4, 1, 4000)",
    ),
}
"""For each case: the rest of the model file, the audio of a batch, and what a batch is."""

LOOP = "    for batch in loader: ...  # augmented, on the device\n"
BODY = """\
    for batch in loader:
        optimizer.zero_grad()
        model({audio}).mean().backward()
        optimizer.step()
        print(type(batch).__name__, tuple({audio}.shape))
"""
PROGRAM = """\
import torch

from mymodel import *

if __name__ == "__main__":  # workers that are not forked import this file
    model, epochs = Tiny(), 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{code}
"""


@pytest.mark.parametrize("name", CASES)
def test_the_pasted_code_trains(advise, model, here, name) -> None:
    more, audio, batch = CASES[name]
    path = model(f"{more}num_workers = 1\n")
    ran = advise("--model", path, "--budget", "1", "--workers", "1", "--device", "cpu", "--json", "report.json")
    assert ran.code == 0, ran.err
    report = Report.load(here / "report.json")
    assert report.signals.unpinned_types == (("Batch",) if name == "custom" else ())
    code = f"{snippet(report, report.best)}\n"
    assert code.count(LOOP) == 1 and "num_workers=1" in code
    pasted = indent(code.replace(LOOP, BODY.format(audio=audio)), "    ")
    (here / "train.py").write_text(PROGRAM.format(code=pasted))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "train.py"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    steps = done.stdout.splitlines()
    assert len(steps) == 2 and all(step.startswith(batch) for step in steps)
