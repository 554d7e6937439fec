"""scripts/bench_monitor.py measures what it promises; its numbers are the machine's."""

import torch
from bench_monitor import measure


def test_a_short_run_tells_what_a_monitor_costs() -> None:
    found = measure(torch.device("cpu"), rounds=4, width=64, rows=8)
    assert 0 < found["per_step_us"] < 1000 and found["looks"] >= 1
    assert found["share"] > 0 and 0 < found["ratio_low"] <= found["ratio"] <= found["ratio_high"]
