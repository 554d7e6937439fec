import itertools
import random
import warnings
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from audioaug import Chain, ops
from audioaug.advise.candidates import EndlessBatches, RaceBatches, Reader, queued_batches
from audioaug.advise.progress import warnings_once
from audioaug.advise.racing import CEILING, DUPLICATE, FEW_ROUNDS, LONGEST_BLOCK, REFILL, ROUNDS, Racer, Usage
from audioaug.advise.schedule import _on_other_batches
from audioaug.advise.stages import CLIPS, readable
from audioaug.decide.race import MARGIN
from audioaug.errors import AudioaugWarning
from audioaug.measure import FakeClock, Interference
from audioaug.records import Candidate
from tests.helpers.planted_reports import blocks, planted_report, raced


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 8, 64])
@pytest.mark.parametrize("seconds", [0.0, 1e-3, 0.03, 10.0])
def test_a_block_is_a_multiple_of_the_workers(workers, seconds) -> None:
    racer = Racer(SimpleNamespace(device=torch.device("cpu")), FakeClock(), 120.0, notice=lambda *_: None)
    steps = racer.block_steps(seconds, workers, 1.0)
    assert steps % max(1, workers) == 0
    assert max(3, workers) <= steps < max(3, min(LONGEST_BLOCK, 1 / max(seconds, 1e-4))) + max(1, workers) + 1


def test_queued_batches_are_not_timed_where_loading_is_slow() -> None:
    """A step on a batch that was loaded while nothing was timed took 1 ms instead of 490 ms."""
    racer = Racer(SimpleNamespace(device=torch.device("cpu")), FakeClock(), 22.0, notice=lambda *_: None)
    one_worker = Candidate("cpu", 2, num_workers=1)
    untimed = [racer.discarded(one_worker)]
    for slow_data in (False, True):
        racer.expect_few_steps(slow_data)
        untimed.append(racer.discarded(one_worker))
    assert untimed == [4, 1, 4]


def test_blocks_of_long_steps_are_shorter_under_a_small_budget() -> None:
    small, usual = (
        Racer(SimpleNamespace(device=torch.device("cpu")), FakeClock(), budget, notice=lambda *_: None)
        for budget in (22.0, 112.0)
    )
    assert [small.block_steps(0.2, workers, 0.5) for workers in (0, 1, 2, 3)] == [2, 2, 2, 3]
    assert [usual.block_steps(0.2, workers, 0.5) for workers in (0, 1, 2, 3)] == [3, 3, 4, 3]


def test_each_candidate_trains_on_its_own_threads_and_then_they_are_put_back(racer_with) -> None:
    usual, seen = torch.get_num_threads(), Counter[int]()
    candidates = [Candidate("cpu", 1), Candidate("cpu", 1, threads=usual + 1)]
    racer = racer_with(lambda batch: seen.update([torch.get_num_threads()]))
    found = racer.screen(candidates, {candidate.name: 0.01 for candidate in candidates}, tick=lambda: None)
    assert set(found) == {candidate.name for candidate in candidates}
    assert seen[usual] == seen[usual + 1] == seen.total() / 2 > 6
    assert torch.get_num_threads() == usual


def test_only_the_first_and_the_fastest_remain_in_the_second_half_of_a_race() -> None:
    clock = FakeClock()
    racer = Racer(SimpleNamespace(device=torch.device("cpu")), clock, 120.0, notice=lambda *_: None)
    close = {name: blocks(name, [ms, 20, ms]) for name, ms in zip("abcdef", (15, 14, 13, 12, 11, 10), strict=True)}
    running = close | {"slow": blocks("slow", [31, 50, 31])}
    assert racer._leaving("a", 5.0, running) == ["slow"]  # twice as slow in every round
    clock.advance(5.1)
    assert racer._leaving("a", 5.0, running) == ["b", "c", "slow"]
    assert racer._leaving("a", 5.0, {name: close[name] for name in "adef"}) == []


def test_a_candidate_that_races_against_itself_is_not_its_own_rival() -> None:
    clock = FakeClock()
    racer = Racer(SimpleNamespace(device=torch.device("cpu")), clock, 120.0, notice=lambda *_: None)
    clock.advance(5.1)
    names = ("today", "a", "b", "c", "d", f"a{DUPLICATE}", f"d{DUPLICATE}")
    running = {name: blocks(name, [ms, 20, ms]) for name, ms in zip(names, (15, 10, 11, 12, 13, 10, 13), strict=True)}
    assert racer._leaving("today", 5.0, running) == ["d", f"d{DUPLICATE}"]


def test_the_difference_of_a_candidate_from_itself_is_the_margin(racer_with) -> None:
    clock, draw = FakeClock(), random.Random(0)
    racer = racer_with(lambda batch: clock.advance(draw.choice((0.001, 0.004))), clock=clock)
    candidates = [Candidate("cpu", 1), Candidate("gpu", 0)]
    expected = {candidate.name: 0.003 for candidate in candidates}
    assert set(racer.run(candidates, expected, 0.0, lambda: None)) == set(expected) and racer.margin == MARGIN
    assert (
        set(racer.run([*candidates, candidates[1]], expected, 0.0, lambda: None)) == set(expected)
        and racer.margin > MARGIN
    )


def test_a_candidate_that_fails_while_racing_against_itself_leaves_the_race(racer_with) -> None:
    calls = itertools.count()

    def step(batch: object) -> None:
        if next(calls) == 1:  # the first batch of the second candidate
            raise ValueError("planted")

    racer, candidates = racer_with(step), [Candidate("cpu", 1), Candidate("gpu", 0)]
    found = racer.run(
        [*candidates, candidates[1]], {candidate.name: 0.003 for candidate in candidates}, 0.0, lambda: None
    )
    assert (set(found), set(racer.failed), racer.margin) == ({candidates[0].name}, {candidates[1].name}, MARGIN)


@pytest.mark.parametrize(
    ("others", "void"),
    [
        (Interference(2, 0.15, 0.15, 0.0, 0.0, 0.0), True),
        (Interference(2, 0.1, 0.05, 0.5, 0.1, 1e5), False),
        (Interference(2, 0.0, 0.0, 0.0, 0.2, 0.0), True),
        (Interference(2, 0.0, 0.0, 0.0, 0.0, 1e7), True),
    ],
)
def test_a_disturbed_round_is_repeated(racer_with, monkeypatch, others, void) -> None:
    quiet = Interference(2, 0.0, 0.0, 0.0, 0.0, 0.0)
    seen = itertools.chain([quiet, others], itertools.repeat(quiet))
    monkeypatch.setattr("audioaug.advise.racing.Watch", lambda clock: SimpleNamespace(lap=lambda: next(seen)))
    made, clock = [], FakeClock()
    racer = racer_with(lambda batch: clock.advance(0.001), clock=clock)
    candidate = Candidate("cpu", 1)
    found = racer.run([candidate], {candidate.name: 0.001}, 0.2, lambda: made.append(1))
    assert len(made) - len(found[candidate.name].step.seconds) == void


def test_todays_configuration_stays_for_a_minimum_of_rounds() -> None:
    clock = FakeClock()
    racer = Racer(SimpleNamespace(device=torch.device("cpu")), clock, 120.0, notice=lambda *_: None)

    def running(rounds):
        return {name: blocks(name, [ms] * rounds) for name, ms in (("today", 60), ("slow", 50), ("fast", 10))}

    assert racer._leaving("today", 5.0, running(ROUNDS - 1)) == ["slow"]
    assert racer._leaving("today", 5.0, running(ROUNDS)) == ["slow", "today"]
    assert racer._leaving("failed", 5.0, running(ROUNDS - 1)) == ["slow", "today"]
    clock.advance(5.1)
    assert racer._leaving("today", 5.0, running(FEW_ROUNDS - 1)) == ["slow"]  # of two, the interval is wide
    assert racer._leaving("today", 5.0, running(FEW_ROUNDS)) == ["slow", "today"]


def test_with_different_clip_lengths_all_blocks_have_the_same_batches() -> None:
    candidates = [
        Candidate("cpu", 1),
        Candidate("cpu", 1, num_workers=2),
        Candidate("cpu", 1, num_workers=4),
        Candidate("gpu", 0),
    ]
    expected = dict(
        zip([*(candidate.name for candidate in candidates), CEILING], (0.17, 0.17, 0.1, 1.0, 0.17), strict=True)
    )

    def steps(pad, cached=0):
        job = SimpleNamespace(device=torch.device("cpu"), pad=pad)
        racer = Racer(job, FakeClock(), 120.0, notice=lambda *_: None)
        return [*racer._blocks({it.name: it for it in candidates}, expected, 0.5, cached).values()]

    assert steps(pad=False) == [3, 4, 8, 3] and steps(pad=False, cached=5) == [3, 4, 8, 3, 3]
    assert steps(pad=True) == [4] * 4 and steps(pad=True, cached=5) == [5] * 5


def test_the_race_waits_for_workers_to_refill_their_queue_but_not_for_ever() -> None:
    clock = FakeClock()
    racer = Racer(SimpleNamespace(device=torch.device("cpu")), clock, 120.0, notice=lambda *_: None)
    found = iter([0, None, 3, 4])
    racer._wait_for_refill(Stocked(capacity=4, ready=lambda: next(found)), step_seconds=10.0)
    assert list(found) == []
    racer._wait_for_refill(Stocked(capacity=2, ready=lambda: clock.advance(1.0) or 1), step_seconds=2.5)
    assert clock.now() == REFILL * 2 * 2.5
    racer._wait_for_refill(Stocked(capacity=None, ready=lambda: None), step_seconds=1e9)  # without workers
    racer._wait_for_refill(None, step_seconds=1e9)  # batches on the device


def test_a_candidate_is_warmed_up_before_it_races_but_not_for_ever() -> None:
    clock, trained, reported = FakeClock(), [], []
    racer = Racer(
        SimpleNamespace(step=trained.append, device=torch.device("cpu")), clock, 120.0, notice=lambda *_: None
    )

    def batches():
        for number in itertools.count(1):
            clock.advance(1.0)
            yield number

    assert racer._warm(batches(), 3, 60.0, lambda: reported.append(clock.now())) == ""
    assert trained == [3] and len(reported) == 2
    racer._warm(batches(), 100, 10.0, lambda: None)
    assert trained == [3, 10]


def test_untimed_steps_cover_the_queue_and_the_batches_in_progress() -> None:
    assert [queued_batches(Candidate("cpu", 1, num_workers=count)) for count in (0, 1, 3)] == [1, 4, 8]
    assert queued_batches(Candidate("cpu", 1, num_workers=3, prefetch_factor=4)) == 14


def test_usage_is_divided_by_all_steps_of_a_block(monkeypatch) -> None:
    spent = itertools.count(step=6.0)
    monkeypatch.setattr("audioaug.advise.racing.cpu_seconds", lambda: next(spent))
    usage = Usage(torch.device("cpu"), FakeClock(), {"a": 2, "b": 0})
    for name in ("a", "b"):
        usage.note(replace(blocks(name, [10.0]), steps_per_block=4), ready=3)
    assert (usage.cpu_per_step("a"), usage.cpu_per_step("b")) == (1.0, 1.5)  # untimed steps take CPU time, too
    assert (usage.gc_per_step("a"), usage.ready("a"), usage.cpu_per_step("c")) == (0.0, 3.0, None)


class Stocked:
    """A loader with a known queue length, read each time."""

    def __init__(self, capacity, ready) -> None:
        self.capacity, self._ready = capacity, ready

    @property
    def ready(self):
        return self._ready()


def test_endless_batches_iterate_over_the_dataset() -> None:
    batches = iter(EndlessBatches(10, 4))
    first = [index for _ in range(5) for index in next(batches)]
    assert sorted(first[:10]) == sorted(first[10:]) == list(range(10)) and first[:10] != first[10:]
    assert len(next(iter(EndlessBatches(2, 7)))) == 7


def test_candidates_of_a_race_train_on_the_same_batches_whatever_they_discard() -> None:
    def blocks(discard, block, warm_up=1):
        batches = iter(RaceBatches(1000, 4, discard, block, warm_up=warm_up))
        assert len(list(itertools.islice(batches, warm_up))) == warm_up
        return [list(itertools.islice(batches, discard + block))[discard:] for _ in range(3)]

    one, other = blocks(2, 5), blocks(10, 3)
    assert [block[:3] for block in one] == other == blocks(10, 3, warm_up=7)
    assert one[0] != one[1] and one != [*map(list, blocks(2, 5)[::-1])]
    assert all(len(batch) == 4 for block in one for batch in block)


def test_each_owner_of_batches_has_others() -> None:
    def block(owner):
        return list(itertools.islice(iter(RaceBatches(1000, 4, 2, 5, owner=owner)), 8))[3:]

    assert block("one") == block("one") != block("other")


@pytest.mark.parametrize("own", [False, True])
def test_all_candidates_train_on_the_same_batches_unless_each_has_its_own(racer_with, own) -> None:
    seen, usual = dict[int, list[float]](), torch.get_num_threads()
    racer = racer_with(lambda batch: seen.setdefault(torch.get_num_threads(), []).append(float(batch.abs().sum())))
    racer.job.chain, racer.own_batches = Chain([ops.PolarityInversion()], 16000), own
    racer.job.dataset = [torch.full((400,), 0.1 * 2**-index) for index in range(8)]
    candidates = [Candidate("cpu", 1), Candidate("cpu", 1, threads=usual + 1)]
    racer.screen(candidates, {candidate.name: 0.01 for candidate in candidates}, tick=lambda: None)
    assert (seen[usual] != seen[usual + 1]) == own


def test_with_the_ceiling_a_candidate_trains_on_the_cached_batches() -> None:
    lying = list(itertools.islice(iter(EndlessBatches(1000, 4)), 3))
    batches = iter(RaceBatches(1000, 4, discard=2, block=6, cached=3))
    next(batches)
    for _ in range(2):
        others = list(itertools.islice(batches, 2))
        assert list(itertools.islice(batches, 6)) == 2 * lying != others


def test_the_ceiling_follows_todays_step_to_other_batches() -> None:
    report = replace(planted_report(), current=raced(3, 2, 30.0))
    ceiling = _on_other_batches(report, raced(3, 2, 36.0))
    assert ceiling.step_ms == pytest.approx(1.2 * report.ceiling.step_ms)
    assert ceiling.ci_ms == pytest.approx([1.2 * ms for ms in report.ceiling.ci_ms])
    assert ceiling.clips_per_second == pytest.approx(report.ceiling.clips_per_second / 1.2)


def test_unreadable_examples_are_skipped() -> None:
    class Data:
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return {0: torch.zeros(1, 8), 3: torch.ones(1, 8)}[index]

    found = readable(Reader(Data()), torch.as_tensor)
    indices = [index for index, _ in found]
    assert sorted(indices[:2]) == [0, 3] and indices == indices[:2] * (CLIPS // 2)
    assert [float(clip.max()) for _, clip in found[:2]] == [float(index == 3) for index in indices[:2]]


def test_our_warnings_are_reported_once_and_others_shown() -> None:
    reported: list[str] = []
    with pytest.warns(UserWarning, match="another's") as seen, warnings_once(reported.append):
        for text in ("one", "two", "one"):
            warnings.warn(text, AudioaugWarning, stacklevel=1)
        warnings.warn("another's", UserWarning, stacklevel=1)
    assert reported == ["one", "two"]
    assert len(seen) == 1
