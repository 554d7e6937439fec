from dataclasses import replace

import numpy as np
import pytest

from audioaug.decide.predict import pace, predict, with_predictions, with_prefetch
from audioaug.decide.stages import REPLICATES, Stages
from audioaug.records import ContentionCost, LoaderCost, PartCost, Report, StageCost
from tests.helpers.planted_reports import CPU, around, blocks, candidate, planted_report

TWO_CORES = replace(CPU, usable_cores=2.0, torch_threads=2)


def with_samples(report: Report, spread: float) -> Report:
    """The report with repetitions of its first stage, spread around its time."""
    first = report.stages[0]
    samples = tuple(first.ms_per_batch * (1 + spread * step) for step in np.linspace(-1, 1, 9))
    return replace(report, stages=(replace(first, samples_ms=samples), *report.stages[1:]))


def test_replicates_spread_as_the_repetitions_do() -> None:
    narrow, wide = (Stages(with_samples(planted_report(), spread)).worker(0, "audiomentations") for spread in (0.01, 1))
    assert narrow.shape == wide.shape == (REPLICATES,)
    assert narrow[0] == wide[0] == 5.0
    assert wide[1:].std() > 5 * narrow[1:].std() > 0
    assert Stages(planted_report(), replicates=1).worker(0, "audiomentations").tolist() == [5.0]


def test_a_rate_is_a_mean_and_a_repeated_stage_a_median() -> None:
    samples = (10.0,) * 15 + (90.0,)
    report = planted_report(worker=(), device=())
    rate = LoaderCost(0, 2, 15.0, (10.0, 20.0), samples_ms=samples)
    resampled = Stages(replace(report, loader_costs=(rate,))).loader(0, "audiomentations", 2)
    assert resampled[0] == 15.0 and len(set(resampled[1:].round(6))) > 3
    ceiling = replace(report.ceiling, step_ms=10.0, samples_ms=samples)
    assert set(Stages(replace(report, ceiling=ceiling)).step(1)) == {10.0}


def test_stages_of_one_round_are_resampled_together() -> None:
    drifting = (4.0, 5.0, 6.0, 7.0, 8.0)
    stages = tuple(
        StageCost(name, "worker", 6.0, samples_ms=tuple(ms * share for ms in drifting))
        for name, share in (("decode", 1.0), ("collate", 0.5))
    )
    report = replace(planted_report(worker=(), device=()), stages=stages)
    apart = planted = Stages(report)
    one, other = (planted._stage(stage) for stage in stages)
    assert np.corrcoef(one[1:], other[1:])[0, 1] == pytest.approx(1.0)
    assert apart.worker(0, "audiomentations")[0] == 12.0


def built(cut, ms, threads=1, where="device", **more) -> PartCost:
    return PartCost(where, cut, threads, *around(ms), **more)


def test_a_device_part_as_built_replaces_the_sum_of_its_ops() -> None:
    report = planted_report(device=(3.0, 4.0, 5.0))
    fused = replace(report, parts=(built(0, 6.0), built(1, 5.0), built(2, 5.0)))
    assert [Stages(report).part(cut, "batched", 1)[0] for cut in range(4)] == [12.0, 9.0, 5.0, 0.0]
    assert [Stages(fused).part(cut, "batched", 1)[0] for cut in range(4)] == [6.0, 5.0, 5.0, 0.0]
    assert Stages(fused).part(0, "torch-audiomentations", 1)[0] == 12.0  # the other engine fuses nothing


def test_other_threads_change_all_parts_as_they_do_the_whole() -> None:
    parts = (built(0, 12.0, threads=1), built(2, 4.0, threads=1), built(0, 9.0, threads=2))
    stages = Stages(replace(planted_report(host=TWO_CORES), parts=parts))
    assert stages.part(2, "batched", 1)[0] == 4.0 and stages.part(2, "batched", 2)[0] == pytest.approx(3.0)


def test_the_cost_of_sharing_the_device_is_proportional_to_the_part() -> None:
    parts = (built(0, 8.0, step_ms=10.0, both_ms=22.0), built(2, 2.0))
    report = replace(planted_report(model=10.0), parts=parts)
    assert [Stages(report).device(cut, "batched", 1)[0] for cut in (0, 2, 3)] == pytest.approx([22.0, 13.0, 10.0])
    stock = replace(report, stages=planted_report(stock=(4.0, 4.0, 4.0)).stages)
    assert Stages(stock).device(0, "torch-audiomentations", 1)[0] == pytest.approx(10 + 12 + 4)
    overlapped = replace(report, parts=(built(0, 8.0, step_ms=10.0, both_ms=11.0), built(2, 2.0)))
    assert Stages(overlapped).device(0, "batched", 1)[0] == pytest.approx(11.0)
    noisy_tiny = replace(report, parts=(built(0, 0.1, step_ms=10.0, both_ms=7.0),))
    assert Stages(noisy_tiny).device(0, "batched", 1)[0] == pytest.approx(10.0)  # never less than the step


def test_batched_workers_as_built_are_a_rate_of_their_own() -> None:
    report = planted_report(worker=(20.0, 80.0, 10.0), batched=(9.0, 9.0, 9.0))
    report = replace(report, parts=tuple(built(cut, 5.0 * cut, where="worker") for cut in (1, 2, 3)))
    assert [Stages(report).worker(cut, "batched")[0] for cut in range(4)] == [5.0, 10.0, 15.0, 20.0]
    ours = LoaderCost(3, 2, 14.0, (13.0, 15.0), worker_engine="batched")
    rated = Stages(replace(report, loader_costs=(*report.loader_costs, ours)))
    first = rated.loader(0, "audiomentations", 2)[0]
    assert [rated.loader(cut, "batched", 2)[0] for cut in range(4)] == pytest.approx(
        [first + (14.0 - first) * share for share in (0, 1 / 3, 2 / 3, 1)]
    )


def test_loader_times_stay_within_those_of_both_ends() -> None:
    """If ops cost almost nothing, those before a cut may seem slower than the whole chain."""
    report = planted_report(worker=(0.1, 0.1, 0.1), batched=(0.01, 0.01, 0.01), decode=0.0, collate=0.0)
    odd = tuple(built(cut, ms, where="worker") for cut, ms in ((1, 0.01), (2, 0.9), (3, 0.02)))
    ours = LoaderCost(3, 2, 1.0, (0.9, 1.1), worker_engine="batched")
    first = LoaderCost(0, 2, 5.0, (4.5, 5.5))
    stages = Stages(replace(report, parts=odd, loader_costs=(first, ours)))
    assert all(1.0 <= stages.loader(cut, "batched", 2)[0] <= 5.0 for cut in range(4))


@pytest.mark.parametrize("ours_ms", [14.0, 0.1])
def test_an_engine_whose_loader_was_not_timed_follows_the_other_ones(ours_ms) -> None:
    """In proportion to a worker's time: 20, 100 and 110 ms instead of 8, however fast the other loader is."""
    report = planted_report(worker=(15.0, 80.0, 10.0), batched=(1.0, 1.0, 1.0))
    first = next(it for it in report.loader_costs if (it.cut, it.num_workers) == (0, 2))
    ours = LoaderCost(3, 2, *around(ours_ms), worker_engine="batched")
    stages = Stages(replace(report, loader_costs=(first, ours)))
    assert stages.loader(0, "audiomentations", 2)[0] == pytest.approx(first.ms_per_batch)
    assert [stages.loader(cut, "audiomentations", 2)[0] for cut in (1, 2, 3)] == pytest.approx(
        [ours_ms * ms / 8 for ms in (20, 100, 110)]
    )
    assert (stages.loader(3, "audiomentations", 2) > 0).all()


def crowded(kappa: float, slower: float, **known) -> Report:
    """A machine on which two workers and training slow each other down by these factors."""
    report = planted_report(host=TWO_CORES, **known)
    alone = next(it.ms_per_batch for it in report.loader_costs if (it.cut, it.num_workers) == (3, 2))
    contention = ContentionCost(3, "audiomentations", 2, 1, 10.0, 10.0 * kappa, alone * slower)
    return replace(report, contention=(contention,))


TWO = candidate(3, 2, threads=1)


def test_if_training_waits_only_its_step_has_contention() -> None:
    report = crowded(1.5, 1.25, worker=(30.0, 30.0, 30.0), model=10.0)
    step, batch = 1.5 * 2 * 10.0, Stages(report).loader(3, "audiomentations", 2)[0]
    found = predict(report, TWO)
    assert found.bound_by == "loader"
    assert found.ms == pytest.approx(step + (1 - step / (1.25 * batch)) * batch)


def test_if_workers_wait_the_step_has_contention_part_of_the_time() -> None:
    report = crowded(1.5, 1.25, worker=(1.0, 1.0, 1.0), model=20.0)
    step, batch = 2 * 20.0, 1.25 * Stages(report).loader(3, "audiomentations", 2)[0]
    found = predict(report, TWO)
    assert found.bound_by == "device"
    assert found.ms == pytest.approx(batch + (1 - batch / (1.5 * step)) * step)


def test_where_both_are_equally_fast_the_two_cases_agree() -> None:
    middle = None
    for model in np.linspace(5.0, 60.0, 300):
        found = predict(crowded(1.4, 1.3, worker=(20.0, 20.0, 20.0), model=float(model)), TWO).ms
        assert middle is None or middle <= found < middle + 0.8
        middle = found


def test_contention_with_other_worker_counts_is_unknown() -> None:
    report = crowded(1.5, 1.25)
    assert Stages(report).contention("audiomentations", 1, 1) is None
    exact = Stages(report).contention("audiomentations", 2, 1)
    for engine, threads in (("batched", 1), ("audiomentations", 2)):  # as near as can be had
        assert [it.tolist() for it in Stages(report).contention(engine, 2, threads)] == [it.tolist() for it in exact]
    other = replace(report.contention[0], threads=2, step_ms=30.0)
    both = Stages(replace(report, contention=(*report.contention, other)))
    assert [both.contention("audiomentations", 2, threads)[0][0] for threads in (1, 2)] == [1.5, 3.0]


def test_contention_never_makes_anything_faster() -> None:
    kappa, slower = Stages(crowded(0.8, 0.7)).contention("audiomentations", 2, 1)
    assert kappa.min() == slower.min() == 1.0


def noisy(report: Report, tail: float) -> Report:
    """The report with single batches, one in twenty of which is slower by this factor."""
    single = LoaderCost(3, 0, *around(100.0), samples_ms=(1.0,) * 19 + (tail,))
    others = (it for it in report.loader_costs if (it.cut, it.num_workers) != (3, 0))
    return replace(report, loader_costs=(*others, single))


def test_slow_batches_cost_time_and_are_worth_a_deeper_queue() -> None:
    report = planted_report(worker=(4.0, 4.0, 4.0), model=10.0)
    even, uneven = predict(noisy(report, 1.0), candidate(3, 2)).ms, predict(noisy(report, 15.0), candidate(3, 2)).ms
    assert uneven > 1.03 * even
    assert with_prefetch(noisy(report, 1.0), [candidate(3, 2)]) == [candidate(3, 2)]
    (deeper,) = with_prefetch(noisy(report, 15.0), [candidate(3, 2)])
    assert deeper.prefetch_factor in (4, 8, 16)
    assert predict(noisy(report, 15.0), deeper).ms < uneven


def test_a_loader_that_was_timed_with_its_slow_batches_is_not_charged_for_them_again() -> None:
    report = noisy(planted_report(worker=(90.0, 90.0, 90.0), model=1.0), 15.0)
    alone = Stages(report).loader(3, "audiomentations", 2)[0]
    assert predict(report, candidate(3, 2)).ms == pytest.approx(alone, rel=0.01)


def test_no_prefetch_without_workers_or_stages() -> None:
    report = noisy(planted_report(), 15.0)
    assert with_prefetch(report, [candidate(3, 0)]) == [candidate(3, 0)]
    assert with_prefetch(replace(report, ceiling=None), [candidate(3, 2)]) == [candidate(3, 2)]


def test_an_unsteady_machine_widens_intervals() -> None:
    report = replace(planted_report(), current=candidate(3, 0))
    widths = []
    for wiggle in (0.0, 0.3):
        steps = [40.0 * (1 + wiggle * sign) for sign in (-1, 0, 1, -1, 1)]
        reported = replace(report, measurements=(blocks(candidate(3, 0).name, steps),))
        low, high = predict(reported, candidate(1, 2)).ci_ms
        widths.append(high - low)
    assert widths[1] > 2 * widths[0] > 0


def test_each_candidate_names_its_bottleneck() -> None:
    slow, fast = with_predictions(planted_report(worker=(90.0, 90.0, 90.0)), [candidate(3, 1), candidate(0, 8)])
    assert (slow.bound_by, fast.bound_by) == ("loader", "device")
    assert pace(Stages(planted_report()), candidate(3, 1)).step.shape == (REPLICATES,)
