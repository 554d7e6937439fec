"""plan="auto": plans take turns in the first steps, the fastest is kept; no batch is lost, repeated or changed."""

import json
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import AudioaugWarning, DataError, PlanError, UsageError
from audioaug.loader import loader as loader_module
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

    def __init__(self, plans: list[Plan], ms: list[float], batches: int = 10**6, epoch: int = 10**6) -> None:
        self.clock, self.ms = FakeClock(), dict(zip(plans, ms))
        self.trial, self.fed, self.epoch = Trial(plans, 2, self.clock), list[tuple[Plan, int]](), epoch
        self.batches = batches

    def run(self) -> Plan | None:
        left = self.epoch
        while self.trial.chosen is None and len(self.fed) < self.batches:
            block = self.trial.block(left, self.epoch)
            assert 0 < block.batches <= left
            for batch in self.trial.timed(block, range(block.batches)):
                self.fed.append((block.plan, batch))
                late = 10.0 if batch < block.head or batch >= block.head + block.timed else 1.0
                self.clock.launch(self.ms[block.plan] / 1e3 * late)
            left = left - block.batches or self.epoch
        return self.trial.chosen


@pytest.mark.parametrize("ms", [[20, 10, 30], [5, 10, 30], [30, 20, 10]])
def test_fastest_plan_is_chosen(ms):
    assert Machine(PLANS, ms).run() == PLANS[ms.index(min(ms))]


def test_simplest_of_equally_fast_plans_is_chosen():
    assert Machine(PLANS, [10.1, 10.0, 10.0]).run() == PLANS[0]
    assert Machine(PLANS, [11.0, 10.1, 10.0]).run() == PLANS[1]


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


@pytest.mark.parametrize(("left", "sizes"), [(10, (3, 3, 4)), (12, (3, 3, 4)), (9, (9, 0, 0))])
def test_block_leaves_room_for_its_tail(left, sizes):
    """Two workers: three batches while they start, at least three that are timed, four that they have prefetched."""
    trial = Trial([Plan(num_workers=2), Plan(cut=1, num_workers=2)], 2, FakeClock())
    block = trial.block(left, 100)
    assert (block.head, block.timed, block.tail) == sizes and block.batches <= left


@pytest.mark.parametrize("epoch", [3, 8, 11, 40])
def test_epoch_shorter_than_a_block_is_one_block(epoch):
    machine = Machine(PLANS, [20, 10, 30], epoch=epoch, batches=3000)
    assert machine.run() == PLANS[1]


@pytest.mark.parametrize(("ms", "blocks"), [(2, 5), (50, 3)])
def test_trial_with_long_blocks_has_fewer_blocks(ms, blocks, caplog):
    caplog.set_level(logging.INFO, "audioaug")
    machine = Machine([Plan(), Plan(num_workers=64), Plan(cut=2, num_workers=64)], [2 * ms, 1.01 * ms, ms])
    assert machine.run() == Plan(num_workers=64)
    assert caplog.text.count(f"median of {blocks} blocks") == 2


def test_single_plan_is_chosen_without_trial():
    assert Trial(PLANS[:1], 2, FakeClock()).chosen == PLANS[0]


def test_log_names_plans_and_reason(caplog):
    caplog.set_level(logging.INFO, "audioaug")
    Machine(PLANS, [20, 10, 90]).run()
    first, *plans, last = [record.getMessage() for record in caplog.records]
    assert first.startswith('plan="auto": 3 plans took turns in the first ')
    assert plans == [
        "  all on the device, 0 workers: 20.0 ms per step, median of 2 blocks, eliminated",
        "  all on the device, 2 workers: 10.0 ms per step, median of 2 blocks",
        "  all in the loader, 2 workers: 90.0 ms per step, median of 2 blocks, eliminated",
    ]
    assert last == "chosen: all on the device, 2 workers, the fastest"
    caplog.clear()
    Machine(PLANS[:2], [10.1, 10.0]).run()
    assert "the simplest of the equally fast plans (1.01 times the fastest step time, 1.01 to 1.01)" in caplog.text


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


def test_plans_divide_cores_between_local_processes(monkeypatch):
    monkeypatch.setattr(loader_module, "usable_cores", lambda: 8.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    loader = loader_of("auto")
    assert loader._trial is not None
    assert [share_of(plan.num_workers) for plan in loader._trial.plans] == [0, 2, 2, 2]


@pytest.fixture
def quick(monkeypatch):
    """Use short blocks and two workers."""
    monkeypatch.setattr(trial_module, "BLOCK", 0.0)
    monkeypatch.setattr(loader_module, "usable_cores", lambda: 2.0)


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
    assert "chosen: " in caplog.text and loader._trial is None and list(loader._pipelines) == [loader.plan]
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
