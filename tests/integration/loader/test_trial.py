"""plan="auto": plans take turns in the first steps, the fastest is kept; no batch is lost, repeated or changed."""

import json
import logging
import re
import warnings
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import pytest
import torch

from audioaug import Chain, Loader, Monitor, Plan, ops
from audioaug.decide.race import ties
from audioaug.errors import AudioaugWarning, DataError, PlanError, UsageError
from audioaug.loader import processes
from audioaug.loader import trial as trial_module
from audioaug.loader.processes import share_of
from audioaug.loader.trial import Trial, plans_for
from audioaug.measure import FakeClock
from tests.integration.loader.material import RATE

CHAIN = Chain([ops.PolarityInversion(p=0.5), ops.Reverse(p=0.5)], RATE)  # the same in every engine, bit for bit
PLANS = [Plan(), Plan(num_workers=2), Plan(cut=2, num_workers=2)]


class Waves:
    """Waves and their indices."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.linspace(1.0, 2.0, 20) + index, index


class Machine:
    """Trains on batches of a trial with a clock on which each plan's step takes a given time."""

    def __init__(self, plans: list[Plan], ms: list[float], epoch: int = 10**6, late: float = 3.0) -> None:
        self.clock, self.ms, self.late = FakeClock(), dict(zip(plans, ms)), late
        self.trial, self.fed, self.epoch = Trial(plans, 2, self.clock), list[tuple[Plan, int]](), epoch
        self.rests: list[Plan] = []

    def run(self, epochs: int = 1) -> Plan | None:
        for _ in range(epochs):
            left = self.epoch
            self.trial.begin_epoch(self.epoch)
            while block := self.trial.block(left):
                assert 0 < block.batches <= left
                for batch in self.trial.timed(block, range(block.batches)):
                    self.fed.append((block.plan, batch))
                    is_timed = block.head <= batch < block.head + block.timed
                    self.clock.launch(self.ms[block.plan] / 1e3 * (1.0 if is_timed else self.late))
                left -= block.batches
            self.rests.append(self.trial.best)
        return self.trial.chosen


@pytest.mark.parametrize("ms", [[20, 10, 30], [5, 10, 30], [30, 20, 10]])
def test_fastest_plan_is_chosen(ms):
    assert Machine(PLANS, ms).run() == PLANS[ms.index(min(ms))]


def test_simplest_of_equally_fast_plans_is_chosen():
    assert Machine(PLANS, [10.1, 10.0, 10.0]).run() == PLANS[0]
    assert Machine(PLANS, [11.0, 10.1, 10.0]).run() == PLANS[1]


def test_plan_that_is_9_percent_slower_is_not_chosen_however_noisy_the_times():
    noise = {PLANS[0]: iter([1.0, 1.3, 0.8, 1.0, 1.2, 0.9]), PLANS[1]: iter([1.0, 0.9, 1.2, 1.0, 0.8, 1.3])}

    class Noisy(Trial):
        def _record(self, step):
            super()._record(step * next(noise[self._turn[0].plan]))

    machine = Machine(PLANS[:2], [24.3, 22.3])
    machine.trial = Noisy(PLANS[:2], 2, machine.clock)
    assert machine.run() == PLANS[1]
    measured = machine.trial._measured()
    assert set(ties(measured)) == set(measured)  # not significant


def test_much_slower_plan_is_eliminated_after_two_rounds():
    machine = Machine(PLANS, [10, 10, 100])
    machine.run()
    fed = [sum(plan == each for each, _ in machine.fed) for plan in PLANS]
    assert fed[2] < 0.5 * min(fed[:2])


def test_block_length_is_half_a_second_up_to_a_limit():
    machine = Machine(PLANS, [26, 10, 1])
    machine.run()
    longest = {plan: max(count for each, count in machine.fed if each == plan) + 1 for plan in PLANS}
    assert longest == {PLANS[0]: 1 + 20, PLANS[1]: 3 + 50 + 4, PLANS[2]: 3 + 50 + 4}


@pytest.mark.parametrize(("left", "sizes"), [(10, (3, 3, 4)), (12, (3, 3, 4)), (9, None)])
def test_block_leaves_room_for_its_tail(left, sizes):
    """Two workers: three batches while they start, at least three that are timed, four that they have prefetched."""
    trial = Trial([Plan(num_workers=2), Plan(cut=1, num_workers=2)], 2, FakeClock())
    trial.begin_epoch(100)
    block = trial.block(left)
    assert (block and (block.head, block.timed, block.tail)) == sizes


@pytest.mark.parametrize("epoch", [3, 8, 11, 40])
def test_epoch_shorter_than_a_block_is_one_block(epoch):
    machine = Machine(PLANS, [20, 10, 30], epoch)
    assert machine.run(epochs=30) == PLANS[1]


@pytest.mark.parametrize("epoch", [1920, 2500, 10_000])
def test_trial_ends_within_5_percent_of_an_epoch(epoch):
    machine = Machine(PLANS, [20, 10, 12], epoch)
    assert machine.run() == PLANS[1]
    assert len(machine.fed) <= 0.05 * epoch


def test_trial_without_room_for_three_rounds_continues_in_the_next_epoch():
    machine, ends = Machine(PLANS, [20, 10, 12], epoch=500), [0]
    while machine.run() is None:
        ends.append(len(machine.fed))
    assert len(ends) > 1 and machine.trial.chosen == PLANS[1]
    assert all(0 < later - end <= 25 for end, later in pairwise([*ends, len(machine.fed)]))
    assert machine.rests[-1] == PLANS[1] and set(machine.rests) <= set(PLANS)


def test_each_epoch_has_at_least_one_block():
    machine = Machine(PLANS, [20, 10, 12], epoch=100)  # 5 % are 5 batches, a block with workers has 10
    machine.run()
    assert 4 <= len(machine.fed) <= 10 and machine.trial.chosen is None
    assert machine.run(epochs=12) == PLANS[1]


def test_rest_of_an_epoch_is_loaded_by_the_best_plan_so_far():
    machine = Machine(PLANS, [20, 10, 12], epoch=200)
    machine.run(epochs=3)  # one block of each plan
    assert machine.trial.chosen is None and machine.rests[-1] == PLANS[1]


def test_trial_ends_after_60_seconds_with_what_has_been_measured():
    machine = Machine(PLANS, [1200, 600, 660])
    assert machine.run() == PLANS[1]
    last = 0.66 * (3 * 3 + 3 + 4 * 3)  # a block that began in time
    assert 60 < machine.clock.now() < 60 + last


def test_trial_of_which_nothing_is_measured_in_60_seconds_chooses_the_simplest(caplog):
    caplog.set_level(logging.INFO, "audioaug")
    clock = FakeClock()
    trial = Trial(PLANS, 2, clock)
    for _ in range(40):  # always a few steps of an epoch
        trial.begin_epoch(1000)
        block = trial.block(1000)
        if block is None:
            break
        for _ in zip(range(2), trial.timed(block, range(block.batches))):
            clock.advance(2.0)
    assert trial.chosen == PLANS[0] and "the simplest, since none was measured" in caplog.text


def test_single_plan_is_chosen_without_trial():
    assert Trial(PLANS[:1], 2, FakeClock()).chosen == PLANS[0]


def test_one_line_at_the_start_and_one_at_the_end(caplog):
    caplog.set_level(logging.INFO, "audioaug")
    Machine(PLANS, [20, 10, 90], epoch=4000).run()
    first, last = [record.getMessage() for record in caplog.records]
    assert first == 'plan="auto": trying 3 plans, in at most 200 of the 4000 batches of an epoch and 60 s in all.'
    assert re.sub(r"after \d+ batches", "after N batches", last) == (
        'plan="auto": chose all on the device, 2 workers, the fastest, after N batches. Steps: '
        "all on the device, 0 workers: 20.0 ms; all on the device, 2 workers: 10.0 ms; "
        "all in the loader, 2 workers: 90.0 ms."
    )
    caplog.clear()
    Machine(PLANS[:2], [10.1, 10.0]).run()
    assert "chose all on the device, 0 workers, the simplest within 3% of the fastest" in caplog.text


def test_only_the_first_process_logs(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "audioaug")
    monkeypatch.setattr(processes, "rank_and_size", lambda: (1, 2))
    Machine(PLANS, [20, 10, 90]).run()
    assert not caplog.records


CPU = torch.device("cpu")


def test_plans_that_are_tried():
    plans = plans_for(CHAIN, 0, CPU, cores=4, threads=4)
    assert [(plan.cut, plan.worker_engine, plan.num_workers, plan.threads) for plan in plans] == [
        (0, "audiomentations", 0, None),
        (0, "audiomentations", 2, 2),
        (2, "batched", 2, 2),
        (2, "audiomentations", 2, 2),
    ]
    assert {plan.chain_hash for plan in plans} == {CHAIN.hash}
    assert len(plans_for(Chain([], RATE), 0, CPU, cores=4, threads=1)) == 2
    assert [plan.threads for plan in plans_for(CHAIN, 0, CPU, cores=4, threads=2)] == [None] * 4
    on_gpu = plans_for(CHAIN, 0, torch.device("cuda"), cores=4, threads=4)
    assert [(plan.num_workers, plan.threads) for plan in on_gpu] == [(0, None)] + [(4, None)] * 3


def test_plans_divide_workers_between_local_processes(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    plan = plans_for(CHAIN, 0, CPU, cores=8, threads=8)[1]
    assert (plan.num_workers, share_of(plan.num_workers), plan.threads) == (8, 4, 4)


@pytest.mark.parametrize(("stated", "usable"), [("2", 4.0), (None, 8.0)])  # torchrun's processes, and another's
def test_plans_divide_cores_between_local_processes_once(monkeypatch, stated, usable):
    monkeypatch.setattr(trial_module, "usable_cores", lambda: usable)
    monkeypatch.setattr(trial_module, "local_size", lambda: 2)
    if stated:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", stated)
    monkeypatch.setattr(processes, "local_size", lambda: 2)
    loader = loader_of("auto")
    assert loader._trial is not None
    assert [share_of(plan.num_workers) for plan in loader._trial.plans] == [0, 2, 2, 2]


@pytest.fixture
def quick(monkeypatch):
    """Use short blocks and one worker, and whole epochs."""
    monkeypatch.setattr(trial_module, "BLOCK", 0.0)
    monkeypatch.setattr(trial_module, "SHARE", 1.0)
    monkeypatch.setattr(trial_module, "usable_cores", lambda: 2.0)


def loader_of(plan: Any, count: int = 1200, **options: Any) -> Loader:
    return Loader(
        Waves(count), CHAIN, plan, **{"batch_size": 3, "seed": 6, "device": "cpu", "shuffle": True, **options}
    )


def rows(batches: Any) -> list[tuple[list[int], list[list[float]]]]:
    return [(index.tolist(), wave.tolist()) for wave, index in batches]


def test_trial_yields_same_batches_as_any_plan(quick, caplog):
    caplog.set_level(logging.INFO, "audioaug")
    loader = loader_of("auto")
    found = [rows(loader) for _ in range(2)]
    assert "chose " in caplog.text and loader._trial is None and list(loader._pipelines) == [loader.plan]
    fixed = loader_of(loader.plan)
    assert [rows(fixed) for _ in range(2)] == found
    assert sorted(index for batch, _ in found[0] for index in batch) == list(range(1200))


def test_trial_over_several_short_epochs(quick):
    loader, fixed = loader_of("auto", 20), loader_of(None, 20)
    for _ in range(40):
        assert rows(loader) == rows(fixed)
    assert loader._trial is None


@pytest.mark.parametrize("done", [1, 3, 20])
def test_resume_during_trial(done, quick):
    whole = rows(loader_of(None, 120))
    loader = loader_of("auto", 120)
    first = rows(islice(loader, done))
    again = loader_of("auto", 120)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert first + rows(again) == whole
    assert rows(loader) == rows(again)  # both in the second epoch


class Slowing(Loader):
    """A Loader with a planted clock: each batch takes a while from the middle of the second epoch on."""

    clock = FakeClock()

    def _epoch(self) -> Iterator[Any]:
        epoch = self._next.epoch
        for number, batch in enumerate(super()._epoch()):
            self.clock.advance(2.0 if (epoch, number) > (1, 200) else 0.0)
            yield batch


def test_moved_bottleneck_starts_one_trial_in_the_next_epoch_and_audio_stays(quick, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "audioaug")
    monkeypatch.setattr(trial_module, "usable_cores", lambda: 4.0)  # two workers
    options = {"batch_size": 3, "seed": 6, "device": "cpu", "shuffle": True}
    loader, fixed = Slowing(Waves(1200), CHAIN, "auto", **options), loader_of(Plan(cut=1, num_workers=2))
    clock, trials = loader.clock, []
    with pytest.warns(AudioaugWarning, match="The bottleneck moved"):
        with Monitor(loader, live=False, clock=clock) as monitor:
            for _ in range(4):
                found = []
                for batch in monitor:
                    clock.advance(1.0)
                    found += rows([batch])
                assert found == rows(fixed)
                trials.append(sum("trying 4 plans" in record.getMessage() for record in caplog.records))
    assert trials == [1, 1, 2, 2] and "trying 4 plans again" in caplog.text
    assert not loader.is_trying_plans and list(loader._pipelines) == [loader.plan]


@pytest.mark.parametrize(("tries", "asked"), [(True, 0), (False, 3)])
def test_trial_and_its_result_are_no_moved_bottleneck(tries, asked):
    """While plans take turns, windows are of several plans; afterwards, data that arrives in time was the aim."""
    clock = FakeClock()

    class Batches:
        is_trying_plans, asked = False, 0

        def try_plans_again(self):
            self.asked += 1

        def __iter__(self):
            for number, waits in enumerate([2.0] * 9 + [0.0] * 4 + [2.0] * 4 + [0.0] * 9):
                self.is_trying_plans = tries and 9 <= number < 17
                clock.advance(waits)
                yield number

    batches = Batches()
    with warnings.catch_warnings():
        warnings.simplefilter("error" if tries else "ignore")
        with Monitor(batches, device="cpu", live=False, clock=clock) as monitor:
            for _ in monitor:
                clock.advance(1.0)
    assert batches.asked == asked


@pytest.mark.parametrize("done", [1, 9, 30])
def test_resume_during_another_trial(done, quick):
    whole = loader_of(None, 120)
    first_epoch, second_epoch = rows(whole), rows(whole)
    loader = loader_of("auto", 120)
    while loader._trial is not None:
        loader.set_epoch(0)
        assert rows(loader) == first_epoch
    loader.try_plans_again()
    found = rows(islice(loader, done))
    again = loader_of("auto", 120)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert found + rows(again) == second_epoch


def test_trying_again_does_nothing_with_a_plan_of_the_user(quick):
    loader = loader_of(Plan())
    loader.try_plans_again()
    assert len(rows(loader)) == 400 and not loader.is_trying_plans and loader._trial is None


class Restless:
    """A batch sampler with a different order in each iteration, like one without a seed."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 300

    def __iter__(self) -> Iterator[list[int]]:
        self.asked += 1
        order = torch.randperm(300, generator=torch.Generator().manual_seed(self.asked)).tolist()
        return iter([[index] for index in order])


def test_sampler_is_iterated_once_per_epoch(quick):
    sampler = Restless()
    loader = loader_of("auto", 300, batch_sampler=sampler, shuffle=False, batch_size=1)
    assert sorted(index for (index,), _ in rows(loader)) == list(range(300))
    assert sampler.asked == 1 and len(rows(loader)) == 300 and sampler.asked == 2


class Holes(Waves):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % 4:
            raise DataError(f"no. {index} is broken.")
        return super().__getitem__(index)


def test_unreadable_examples_are_counted_once(quick):
    loader = Loader(Holes(1200), CHAIN, "auto", batch_size=3, device="cpu", on_error="skip")
    with pytest.warns(AudioaugWarning):
        found = rows(loader)
    assert [index for batch, _ in found for index in batch] == list(range(0, 1200, 4))
    assert loader.skipped == 900


class Late(Waves):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index < 30 or self.count == 60:
            raise DataError(f"no. {index} is broken.")
        return super().__getitem__(index)


def test_block_without_usable_example_is_not_an_error(quick):
    with pytest.warns(AudioaugWarning):
        assert len(rows(Loader(Late(300), CHAIN, "auto", batch_size=3, device="cpu", on_error="skip"))) == 90
    with pytest.warns(AudioaugWarning), pytest.raises(DataError, match="No example of the dataset could be read"):
        rows(Loader(Late(60), CHAIN, "auto", batch_size=3, device="cpu", on_error="skip"))


def test_invalid_plan_is_refused():
    with pytest.raises(
        PlanError, match=r"Expected plan to be a Plan, None or 'auto', got 'plan\.json'\. Plan\.load reads"
    ):
        loader_of("plan.json")


def test_auto_plan_for_validation(quick):
    found = rows(loader_of("auto", 120, augment=False, shuffle=False))
    assert torch.equal(torch.tensor(found[0][1][2]), Waves(3)[2][0]) and len(found) == 40


def test_auto_plan_needs_a_known_number_of_batches():
    with pytest.raises(UsageError, match=r'plan="auto" divides an epoch between several plans, .* Give Loader a Plan'):
        Loader(iter_only(), CHAIN, "auto", device="cpu")


def iter_only() -> Any:
    class Streamed(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            return iter([torch.ones(4)])

    return Streamed()
