"""Rank 0 and another rank in a thread, connected as two processes are, with a job that counts its steps."""

import gc
import socket
import threading
from dataclasses import dataclass, field

import pytest
import torch

from audioaug.errors import DataError, MeasurementError
from audioaug.measure.lockstep import Follower, Leader
from audioaug.measure.ranks import Link

PATIENCE = 20


@dataclass
class Job:
    """Trains on tensors: remembers the sums of its batches."""

    precision: str = "fp32"
    seen: list = field(default_factory=list)

    def step(self, batch) -> None:
        if batch.sum() == 13:
            raise ValueError("bad luck")
        self.seen.append((self.precision, float(batch.sum())))


class Numbers:
    """A loader of batches 1, 2, ... up to ``last``."""

    def __init__(self, last: int) -> None:
        self.last, self.drained = last, 0

    def __iter__(self):
        return (torch.full((1,), float(number)) for number in range(1, self.last + 1))

    def worker_batches(self, epoch: int):
        while True:
            self.drained += 1
            yield None


class Rank1:
    """The other rank: its job, the loaders that it opened, and the outcome."""

    def __init__(self, link: Link) -> None:
        self.job, self.opened, self.outcome = Job(), [], None
        self.follower = Follower(link)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self.follower.follow(self.job)
        except MeasurementError as error:
            self.outcome = str(error)

    def join(self):
        self._thread.join(PATIENCE)
        return self.outcome


OPENED: list[Numbers] = []


def numbers(job: Job, last: int) -> Numbers:
    OPENED.append(Numbers(last))
    return OPENED[-1]


@pytest.fixture
def links():
    OPENED.clear()
    ends = [Link(each, name) for each, name in zip(socket.socketpair(), ("Rank 1", "Rank 0"), strict=True)]
    yield ends
    for link in ends:
        link.close()


@pytest.fixture
def rank_1(links) -> Rank1:
    return Rank1(links[1])


@pytest.fixture
def leader(links, rank_1) -> Leader:
    leader = Leader(links[:1])
    leader.wait()
    return leader


def loader_of(leader: Leader, last: int, ours: int | None = None):
    return leader.loader(Numbers(ours or last), lambda batch: batch, numbers, (last,), {})


def train(leader: Leader, batch: torch.Tensor, **changes) -> None:
    with leader.step(batch, **changes):
        pass


def test_other_ranks_take_the_same_batches_and_steps(leader, rank_1) -> None:
    feeder = iter(loader_of(leader, 3))
    for batch in feeder:
        train(leader, batch)
    leader.end("report")
    assert rank_1.join() == "report"
    leader.check()  # its end is no failure
    assert rank_1.job.seen == [("fp32", 1.0), ("fp32", 2.0), ("fp32", 3.0)]


def test_steps_on_earlier_batches_and_with_other_settings(leader, rank_1) -> None:
    feeder = iter(loader_of(leader, 3))
    batches = [next(feeder) for _ in range(3)]
    train(leader, batches[0], precision="bf16")
    train(leader, batches[1])
    train(leader, torch.ones(1))  # a batch that no loader made: their latest one
    leader.end(None)
    rank_1.join()
    assert rank_1.job.seen == [("bf16", 1.0), ("fp32", 2.0), ("fp32", 3.0)]


def test_batches_and_loaders_live_as_long_as_those_of_rank_0(leader, rank_1) -> None:
    feeder = iter(loader_of(leader, 3))
    batches = [next(feeder) for _ in range(2)]
    kept = rank_1.follower._kept
    assert len(kept) == 3
    del batches[0]
    train(leader, batches[0])
    assert len(kept) == 2
    del feeder
    gc.collect()
    train(leader, batches[0])
    assert len(kept) == 1


def test_loaders_run_at_full_speed_until_they_are_dropped(leader, rank_1) -> None:
    loader = loader_of(leader, 3)
    messages = loader.worker_batches(0)
    next(messages)
    (drain,) = rank_1.follower._drains.values()
    del loader, messages
    gc.collect()
    feeder = iter(loader_of(leader, 3))
    assert drain.ended and OPENED[0].drained > 0 and not rank_1.follower._drains
    del feeder


def test_number_of_threads_is_the_same(leader, rank_1, monkeypatch) -> None:
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: [1, 7][threading.current_thread() is threading.main_thread()])
    loader_of(leader, 3)
    assert counts == [7]


def test_failure_of_another_rank_names_it(leader) -> None:
    feeder = iter(loader_of(leader, 20))
    for _ in range(13):
        batch = next(feeder)
    with pytest.raises(MeasurementError, match=r"^Rank 1: ValueError: bad luck\.$"):
        train(leader, batch)
    train(leader, next(feeder))  # it continues


def test_own_failure_is_raised_as_it_is(leader) -> None:
    batch = next(iter(loader_of(leader, 3)))
    with pytest.raises(KeyError), leader.step(batch):
        raise KeyError("ours")
    train(leader, batch)


def test_end_of_data_of_one_rank_only(leader) -> None:
    feeder = iter(loader_of(leader, 1, ours=2))
    assert [float(batch) for batch in feeder] == [1.0, 2.0]


def test_end_of_another_rank_raises_in_all_work(leader, links) -> None:
    batch = next(iter(loader_of(leader, 3)))
    links[1].close()
    with pytest.raises(MeasurementError, match=r"^Rank 1 ended unexpectedly"), leader.step(batch):
        raise RuntimeError("connection closed by peer")
    with pytest.raises(MeasurementError, match=r"^Rank 1 ended unexpectedly"):
        leader.check()


def test_end_of_rank_0_ends_the_others(leader, links, rank_1) -> None:
    links[0].close()
    assert rank_1.join().startswith("Rank 0 ended unexpectedly.")


def test_last_error_of_a_rank_is_the_reason_why_it_ended(links) -> None:
    links[1].send(DataError("No audio.", "Look."))
    links[1].close()
    with pytest.raises(DataError, match=r"^Rank 1: No audio. Look\."):
        Leader(links[:1]).wait()


def test_a_rank_that_does_not_answer_ends_the_run(links) -> None:
    with pytest.raises(MeasurementError, match=r"^Rank 1 is still busy 0 s after"):
        links[0].receive(0.0)
    with pytest.raises(MeasurementError, match=r"^Rank 1 is still busy 0 s after"):
        links[0].check()
