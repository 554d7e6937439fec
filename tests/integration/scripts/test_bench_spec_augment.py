"""scripts/bench_spec_augment.py times the same work by all; its numbers are the machine's."""

import json
from types import SimpleNamespace

import bench_spec_augment
import pytest
import torch
from click.testing import CliRunner

from audioaug.measure import FakeClock

pytest.importorskip("torchaudio")


def test_short_run_prints_and_writes_a_ratio_for_each(tmp_path):
    path = tmp_path / "result.json"
    threads = str(torch.get_num_threads())
    options = ["--batch", "3", "--bins", "30", "--frames", "40", "--rounds", "2", "--threads", threads]
    done = CliRunner().invoke(bench_spec_augment.main, [*options, "--json", str(path)], catch_exceptions=False)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert done.exit_code == 0 and found["audioaug"]["ratio"] == 1 and len(found) == 5
    assert all(f"{name} " in done.output and each["ms"] > 0 for name, each in found.items())


def test_each_masks_every_example_differently():
    x_BFN = torch.rand(1, 80, 400, generator=torch.Generator().manual_seed(0)).expand(16, -1, -1)
    for name, work in bench_spec_augment.contenders(x_BFN).items():
        y_BFN = work()
        assert y_BFN.shape == x_BFN.shape and len({y_FN.numpy().tobytes() for y_FN in y_BFN}) == 16, name
        assert "warp" in name or 0.2 < (y_BFN == x_BFN).float().mean() < 0.9, name


def test_ratios_are_those_of_rounds(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(bench_spec_augment, "time", SimpleNamespace(perf_counter=clock.now))
    works = {"audioaug": lambda: clock.advance(0.5), "other": lambda: clock.advance(2.0)}
    seconds = bench_spec_augment.in_turns(works, 5, torch.device("cpu"))
    assert all(len(times) == 5 for times in seconds.values())
    assert bench_spec_augment.ratios(seconds)["other"].median == pytest.approx(4.0)
