"""What the user does now: the pilot and its end, examples and workers."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise import today
from audioaug.advise.candidates import open_loader, queued_batches
from audioaug.advise.racing import CEILING
from audioaug.advise.stages import Bench
from audioaug.advise.today import (
    ENOUGH_STEPS,
    FEWEST_EXAMPLES,
    FEWEST_STEPS,
    Memory,
    Ready,
    _is_over,
    _raced,
    example_and_worker_signals,
    receive_ms,
    start_and_gap,
    time_examples,
)
from audioaug.errors import MeasurementError
from audioaug.loader.prefetch import tensors
from audioaug.measure import FakeClock
from audioaug.records import Candidate, Measurement, Signals, Timing
from tests.helpers.planted_reports import blocks
from tests.helpers.planted_time import CLOCK, LOOK


def waiting(steps: int, ms: float, share: float):
    """Return ``steps`` steps that wait for this share of their time."""
    return replace(blocks("today", [ms] * steps), wait=Timing((ms * share / 1e3,) * steps))


@pytest.mark.parametrize(
    ("alone", "workers", "share", "ms", "steps"),
    [
        (True, 0, 0.5, 50, FEWEST_STEPS),  # there is waiting: the race is to measure it
        (False, 0, 0.0, 50, FEWEST_STEPS),  # another plan is to race too
        (False, 4, 0.0, 50, 8),
        (True, 0, 0.01, 50, ENOUGH_STEPS),
        (True, 0, 0.01, 10, 100),  # a second of them
    ],
)
def test_a_pilot_is_longer_if_it_may_be_the_only_measurement(alone, workers, share, ms, steps) -> None:
    is_over = partial(_is_over, alone, workers)
    assert is_over(waiting(steps, ms, share)) and not is_over(waiting(steps - 1, ms, share))


@pytest.mark.parametrize(
    ("waits", "did"),
    [
        ([[0.01] * 20], [4.0]),
        ([[0.01] * 19 + [0.3], [0.01] * 9], [4.0, 2.0]),  # another program had its moment
        ([[0.01] * 19 + [0.3], [0.01] * 8 + [0.3]], [4.0, 2.0, "race"]),  # not beyond doubt
        ([[0.5] * 3], [4.0, "race"]),
    ],
)
def test_hardly_any_waiting_gets_a_second_pilot_if_one_step_was_disturbed(racer_with, waits, did) -> None:
    candidate, seen, racer = Candidate("cpu", 1), [], racer_with(lambda batch: None)

    def pilot(candidate, seconds, is_over):
        shares = waits[len(seen)]
        seen.append(seconds)
        return Measurement(candidate.name, Timing((0.05,) * len(shares)), Timing(tuple(0.05 * it for it in shares)), 1)

    def run(candidates, expected, seconds, tick, cached):
        seen.append("race")
        return {}

    racer.pilot, racer.run = pilot, run
    found = _raced(Bench(racer.job, racer.clock), [candidate], racer, 8.0, tick=lambda: None)
    assert seen == did
    assert set(found) == (set() if "race" in did else {candidate.name, CEILING})


def test_pilot_times_each_step_and_reports_why_training_failed(racer_with) -> None:
    candidate, seen = Candidate("cpu", 1), []
    racer = racer_with(seen.append)
    found = racer.pilot(candidate, 60.0, lambda found: len(found.step.seconds) == 5)
    assert found.candidate == candidate.name and found.steps_per_block == 1
    assert len(found.step.seconds) == len(found.wait.seconds) == 5
    assert len(seen) == 6  # a first one, which is not timed
    assert racer.usage.cpu_per_step(candidate.name) is not None

    def fails_the_third_time(batch) -> None:
        seen.append(batch)
        if len(seen) == 9:
            raise ValueError("no more")

    with pytest.raises(MeasurementError, match=r"Training failed .*ValueError: no more"):
        racer_with(fails_the_third_time).pilot(candidate, 60.0, lambda _: False)


def test_signals_of_workers_have_their_units(monkeypatch) -> None:
    monkeypatch.setattr(today, "time_examples", lambda *_: None)
    monkeypatch.setattr(today, "start_and_gap", lambda *_: (2.0, 0.25))
    monkeypatch.setattr(today, "receive_ms", lambda *_: 3.0)
    bench = Bench(SimpleNamespace(threads=("prefetcher",)), FakeClock())
    found = example_and_worker_signals(bench, Candidate("cpu", 1, num_workers=2), object(), Signals(gc_share=0.1), 1.0)
    assert (found.start_seconds, found.epoch_gap_ms, found.receive_ms) == (2.0, 250.0, 3.0)
    assert (found.threads_alive, found.gc_share) == (("prefetcher",), 0.1)
    alone = example_and_worker_signals(bench, Candidate("cpu", 1), object(), Signals(), 1.0)
    assert (alone.start_seconds, alone.epoch_gap_ms, alone.receive_ms) == (None, None, None)


class Data:
    """Clips of two lengths; reading one calls ``read`` with its index and leaks ``keeps`` bytes."""

    def __init__(self, read: Callable[[int], object] = lambda index: None, keeps: int = 0) -> None:
        self.read, self.keeps, self.kept = read, keeps, []

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index):
        self.read(index)
        self.kept.append(b"." * self.keeps)
        return torch.full((1, 400 + index % 2), 0.1)


def trained(**planted):
    """A training job on this data."""
    return SimpleNamespace(
        dataset=Data(**planted),
        chain=Chain([ops.Gain(p=1.0)], 16000),
        batch_size=4,
        device=torch.device("cpu"),
        precision="fp32",
        collate_fn=None,
        pad=True,
        lengths=None,
        targets=None,
        audio_key=None,
        is_stream=False,
        leader=None,
        clip_of=torch.Tensor.numpy,
    )


def test_the_start_and_the_gap_are_the_first_batches_of_two_epochs(monkeypatch) -> None:
    clock = FakeClock()

    def messages(epoch):
        for seconds in ((3.0, 0.5)[epoch], 9.0):
            clock.advance(seconds)
            yield "batch"

    monkeypatch.setattr(today, "open_brief_loader", lambda *_: SimpleNamespace(worker_batches=messages))
    assert start_and_gap(trained(), Candidate("cpu", 1, num_workers=2), clock) == (3.0, 0.5)


def test_the_same_workers_serve_both_epochs(tmp_path: Path) -> None:
    job = trained(read=lambda index: (tmp_path / str(os.getpid())).touch())
    assert min(start_and_gap(job, Candidate("cpu", 1, num_workers=2), CLOCK)) > 0
    assert len(list(tmp_path.iterdir())) == 2


def test_a_message_is_sent_for_every_timed_batch() -> None:
    message = [torch.ones(100), 3]
    sent, number = Ready(message)[7]
    assert sent is not message[0] and torch.equal(sent, message[0]) and number == 3
    assert receive_ms(message, 1, CLOCK, 0.1) == pytest.approx(1e3 * LOOK / 2)  # a block is two batches


def test_workers_that_keep_examples_grow() -> None:
    candidate = Candidate("cpu", 1, num_workers=1)
    found = {}
    for keeps in (0, 1_000_000):
        loader, memory = open_loader(trained(keeps=keeps), candidate), Memory()
        memory.watch(loader.worker_batches(), queued_batches(candidate), FakeClock(), 1.0)  # the deadline never passes
        found[keeps] = memory.growth_bytes
        assert memory.worker_bytes > 1_000_000
    assert found[1_000_000] == pytest.approx(4 * 1_000_000, rel=0.5) and found[0] < 1_000_000


def test_examples_are_timed_one_by_one(monkeypatch) -> None:
    clock, core, delay = FakeClock(), FakeClock(), FakeClock()

    def read(index: int) -> None:
        clock.advance(0.008 * (1 + index % 2))  # of which 1 ms is on a core, and for 4 ms there is none
        core.advance(0.001)
        delay.advance(0.004)

    monkeypatch.setattr(today, "delayed_seconds", delay.now)
    monkeypatch.setattr(today, "time", SimpleNamespace(thread_time=core.now))
    found = time_examples(trained(read=read), clock, 0.05)
    assert len(found.samples) == FEWEST_EXAMPLES and set(found.samples) == {400, 401}
    read_ms = pytest.approx([4 if samples == 400 else 12 for samples in found.samples])
    assert found.first_ms == read_ms == found.again_ms and found.cpu_ms == pytest.approx([1] * FEWEST_EXAMPLES)
    assert found.augment_ms == pytest.approx([0] * FEWEST_EXAMPLES)


def test_tensors_are_found_wherever_they_are() -> None:
    assert len(list(tensors({"audio": torch.zeros(2), "more": [torch.zeros(1), "text", (torch.ones(1), 3)]}))) == 3


@pytest.mark.parametrize(
    ("step", "load", "workers", "few", "slow_data"),
    [
        (0.1, 0.1, 0, False, False),
        (0.5, 0.1, 0, True, False),  # a budget of 20 s allows 40 such steps
        (0.1, 0.5, 0, True, True),
        (0.1, 0.5, 1, True, True),
        (0.1, 0.5, 2, False, False),  # a batch every 0.25 s
        (1.3, 1.2, 8, True, False),  # a batch every 0.15 s
        (1.3, 1.4, 1, True, True),
    ],
)
def test_few_steps_fit_if_steps_or_batches_take_long(step, load, workers, few, slow_data) -> None:
    clock = FakeClock()
    waves = [torch.zeros(1, 1, samples) for samples in (30, 10, 10)]  # the first batch has long clips
    trains = SimpleNamespace(
        step=lambda batch: clock.advance(step * batch.shape[-1] / 10),
        try_step=lambda batch: clock.advance(3 * step),
        wave_of=lambda batch: batch,
    )
    bench = Bench(trains, clock, waves, load_seconds=load)
    assert today._takes_long(bench, Candidate("cpu", 1, num_workers=workers), 20.0) == (few, slow_data)
