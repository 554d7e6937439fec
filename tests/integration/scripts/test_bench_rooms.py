"""scripts/bench_rooms.py times the same rooms by all; its numbers are the machine's."""

import json

import bench_rooms
import pytest
import torch
from click.testing import CliRunner

pytest.importorskip("pyroomacoustics")


def test_short_run_prints_and_writes_a_ratio_for_each(tmp_path):
    path = tmp_path / "result.json"
    threads = str(torch.get_num_threads())
    options = ["--batch", "2", "--orders", "0,2", "--rounds", "2", "--threads", threads, "--json", str(path)]
    done = CliRunner().invoke(bench_rooms.main, options, catch_exceptions=False)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert done.exit_code == 0 and len(found) == 6
    assert found["audioaug, order 0"]["ratio"] == 1 and all(each["ms_a_room"] > 0 for each in found.values())
    assert done.output.count("x ours") == 6


def test_shoe_boxes_are_the_rooms_that_ours_simulates():
    boxes, ours = (bench_rooms.contenders(2, 3, torch.device("cpu"))[name] for name in ("shoe box", "audioaug"))
    for expected, found_CT in zip(boxes(), ours(), strict=True):
        torch.testing.assert_close(
            found_CT[0, : len(expected)].double(), torch.from_numpy(expected), rtol=0.0, atol=1e-3
        )
