"""The benchmark of Loader: what it makes of planted times, and a tiny run from end to end."""

import json

import bench_loader
import pytest
import torch
from click.testing import CliRunner

from audioaug.decide.race import paired_ratio
from audioaug.measure import FakeClock
from audioaug.records import Measurement, Timing


def measured(name: str, *ms: float) -> Measurement:
    return Measurement(name, Timing(tuple(each / 1e3 for each in ms)), Timing(()), 4)


def test_both_are_compared_with_the_longer_one_of_each_round():
    longest = bench_loader.longer(measured("loader", 10, 30), measured("step", 20, 20))
    assert longest.step.seconds == (0.02, 0.03)
    assert paired_ratio(measured("both", 22, 33), longest).value == pytest.approx(1.1)


@pytest.mark.parametrize(("both", "verdict"), [(10.9, "holds"), (11.2, "does not hold")])
def test_the_verdict(both, verdict, capsys):
    found = {"both": measured("both", both, both), "step": measured("step", 10, 10)}
    result = bench_loader.show("overlap", 1.1, paired_ratio(found["both"], found["step"]), found)
    assert f"at most 1.1: {verdict}\n" in capsys.readouterr().out
    assert result["ratio"]["value"] == pytest.approx(both / 10)


def test_blocks_time_only_batches_after_the_queued_ones():
    bench, clock = bench_loader.Bench(torch.device("cpu"), 1, 4), FakeClock()
    bench.clock = clock
    steps = iter([5.0, 5.0, 1.0, 2.0])
    assert bench.seconds_a_step(iter("abcd"), lambda _: clock.launch(next(steps)), discard=2, steps=2) == 1.5


@pytest.mark.slow
def test_a_tiny_run(tmp_path):
    file = tmp_path / "result.json"
    asked = ["--device", "cpu", "--rounds", "2", "--batch", "2", "--json", str(file)]
    done = CliRunner().invoke(bench_loader.main, asked)
    assert done.exit_code in (0, 1) and "overlap, all in the workers" in done.output, done.output
    results = json.loads(file.read_text())["results"]
    assert [len(result["seconds"]) for result in results] == [3, 2, 2, 2]
    assert all(len(times) == 2 for result in results for times in result["seconds"].values())
    verdicts = [result["ratio"]["value"] <= result["limit"] for result in results]
    assert all(verdicts) == (done.exit_code == 0)


def test_the_hand_written_loader_gives_the_same_audio():
    bench = bench_loader.Bench(torch.device("cpu"), 1, 4)
    for cut in (0, 7):
        ours, theirs = next(bench.loader(cut)), next(bench.by_hand(cut))
        torch.testing.assert_close(theirs[0], ours[0], rtol=1e-5, atol=1e-5)
        assert torch.equal(theirs[1], ours[1])
