"""scripts/bench_buckets.py computes what buckets save; its times are the machine's."""

import bench_buckets
import numpy as np
import pytest


def test_lengths_have_the_published_quantiles() -> None:
    seconds = bench_buckets.speech_lengths(200_000) / bench_buckets.RATE
    found = np.quantile(seconds, [0.05, 0.25, 0.5, 0.75, 0.95])
    assert found == pytest.approx([4.2, 11.2, 13.7, 15.3, 17.3], abs=0.15)
    assert seconds.mean() == pytest.approx(12.7, abs=0.15)  # that of the corpus, which was not used


def test_padding_is_counted_and_falls_with_the_number_of_buckets() -> None:
    assert bench_buckets.padding_of([[0, 1], [2]], np.array([3, 1, 2])) == pytest.approx(2 / 8)
    found = list(bench_buckets.paddings(6400, 32, (5, 30)).values())
    assert len(found) == 5 and found[0] > 2 * max(found[1:3]) > 4 * max(found[3:])


def test_every_example_is_counted() -> None:
    found = bench_buckets.scale(5000)
    assert found["examples"] == 5000 and found["make_seconds"] > 0 and found["peak_mib"] >= found["before_mib"]


def test_training_is_timed_on_the_same_clips(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    train = bench_buckets.seconds_of_epoch

    def note(loader, model, optimizer):
        seen.append(len(loader.dataset))
        return train(loader, model, optimizer)

    monkeypatch.setattr(bench_buckets, "seconds_of_epoch", note)
    found = bench_buckets.training(2, 4, 3, (4,), clips=24)
    assert seen == [24] * 6
    assert 0 < found["ratio_low"] <= found["ratio"] <= found["ratio_high"] and found["seconds"] > 0
    assert 0 < found["padding"] < found["shuffled_padding"] < 0.5
