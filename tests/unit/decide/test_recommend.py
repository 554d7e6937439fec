from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug.decide.race import ties
from audioaug.decide.recommend import (
    allocation,
    beside_others,
    is_impossible,
    is_too_busy,
    leave_as_it_is,
    may_leave,
    recommend,
    without_waiting,
)
from audioaug.records import Measurement, Report, Signals, Timing
from tests.helpers.planted_reports import CPU, GPU, blocks, candidate, planted_report, raced, steady


def decided(today, *others, cost_seconds=60.0, **machine):
    """The report if these candidates were measured as stated."""
    candidates = (today, *others)
    report = replace(planted_report(**machine), candidates=candidates, current=today, cost_seconds=cost_seconds)
    return recommend(report, steady(candidates))


TODAY = raced(3, 0, 40.0)


def test_a_clear_winner() -> None:
    report = decided(raced(3, 2, 40.0), raced(1, 2, 20.0), raced(0, 2, 30.0))
    assert report.recommendation.name == "split at 1, 2 workers" and report.recommendation.tie_with == ()
    assert report.verdict.startswith(
        "Use split at 1, 2 workers: 20.0 ms a step instead of 40.0 ms, 2.00x faster (2.00 .. 2.00); "
        "the remaining stall is 50 %."
    )
    assert "tie" not in report.verdict
    assert report.cause == "augment_cpu_bound" and "Op1" in report.recommendation.because


def test_equals_are_called_a_tie_and_the_simplest_is_taken() -> None:
    report = decided(TODAY, raced(1, 2, 20.0), raced(0, 2, 20.1), raced(0, 4, 20.0))
    assert report.recommendation.name == "all on the device, 2 workers"
    assert set(report.recommendation.tie_with) == {"split at 1, 2 workers", "all on the device, 4 workers"}
    assert report.verdict.endswith("It is a tie with split at 1, 2 workers and all on the device, 4 workers.") or (
        report.verdict.endswith("It is a tie with all on the device, 4 workers and split at 1, 2 workers.")
    )


def test_the_margin_is_stated_where_it_decides() -> None:
    candidates = (TODAY, raced(0, 2, 20.0), raced(1, 2, 21.0))
    report = replace(planted_report(), candidates=candidates, current=TODAY)
    assert "tie" not in recommend(report, steady(candidates)).verdict
    found = recommend(report, steady(candidates), margin=0.1)
    assert found.recommendation.margin == 0.1
    assert found.verdict.endswith(
        "It is a tie with split at 1, 2 workers: on this machine the same plan may differ from itself by 10 %."
    )


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (raced(0, 1, 20.0, device_engine="cuda_graph"), raced(0, 2, 20.0)),  # less simple
        (raced(0, 1, 10.0, device_engine="torch-audiomentations"), raced(0, 2, 20.0)),  # inexact, though faster
        (raced(0, 4, 20.0, cpu_seconds_per_step=0.01), raced(0, 2, 20.0, cpu_seconds_per_step=0.5)),
        (raced(0, 2, 20.0, cpu_seconds_per_step=0.5), raced(1, 2, 20.0, cpu_seconds_per_step=0.01)),
        (raced(1, 2, 20.0), raced(0, 2, 20.0)),
    ],
)
def test_ties_are_broken_by_exactness_then_workers_then_cpu_then_simplicity(worse, better) -> None:
    for pair in ((worse, better), (better, worse)):
        assert decided(TODAY, *pair).recommendation.name == better.name


@pytest.mark.parametrize(
    ("ms", "best"), [(15.0, "all in the loader (batched workers), 2 workers"), (25.0, "split at 1, 2 workers")]
)
def test_batched_workers_are_advised_only_where_they_are_faster(ms, best) -> None:
    report = decided(TODAY, raced(1, 2, 20.0), raced(3, 2, ms, worker_engine="batched"), batched=(1.0, 1.0, 1.0))
    assert report.recommendation.name == best and report.verdict.startswith(f"Use {best}: ")


def test_the_users_configuration_wins_every_tie() -> None:
    report = decided(TODAY, raced(0, 1, 39.5), raced(3, 2, 80.0))
    assert report.recommendation.name == TODAY.name
    assert report.verdict.startswith("Leave it as it is (all in the loader, 0 workers): no raced candidate is faster")
    assert "the stall is 75 %" in report.verdict
    assert report.verdict.endswith("It is a tie with all on the device, 1 worker.")
    assert report.break_even_steps is None
    assert report.before == report.after


@pytest.mark.parametrize(
    ("other", "times", "ceiling_ms", "says"),
    [
        (
            raced(0, 1, 41.0),
            [46.0, 38.0],
            10.0,
            "after 2 blocks of each, all on the device, 1 worker may still be far faster",
        ),
        (raced(0, 1, 41.0), [46.0, 38.0], 38.0, ""),  # at most 5 % can be gained
        (raced(0, 1, 80.0), [80.0, 88.0], 10.0, ""),  # certainly slower
        (candidate(0, 1, predicted_ms=30.0), [], 10.0, "no time to race, is predicted to take 30"),
        (candidate(0, 1, predicted_ms=38.0), [], 10.0, ""),
    ],
)
def test_nothing_is_left_as_it_is_while_another_candidate_may_be_far_faster(other, times, ceiling_ms, says) -> None:
    planted = planted_report()
    ceiling = replace(planted.ceiling, step_ms=ceiling_ms, ci_ms=(ceiling_ms, ceiling_ms))
    report = replace(planted, candidates=(TODAY, other), current=TODAY, ceiling=ceiling)
    measurements = {TODAY.name: blocks(TODAY.name, [40.0, 44.0])} | (
        {other.name: blocks(other.name, times)} if times else {}
    )
    found = recommend(report, measurements)
    assert found.recommendation.name == TODAY.name
    assert found.verdict.startswith("Too few steps to tell: " if says else "Leave it as it is")
    assert says in found.verdict


def test_the_users_configuration_wins_even_if_not_the_simplest() -> None:
    assert decided(raced(2, 4, 40.0), raced(0, 0, 39.9)).recommendation.name == "split at 2, 4 workers"


def test_today_at_the_ceiling_is_left_alone() -> None:
    report = decided(raced(3, 0, 10.1), raced(1, 2, 10.05))
    assert report.verdict.startswith(
        "Leave it as it is: data loading is not your bottleneck; the most you could gain is"
    )
    assert report.cause == "model_bound"


def test_break_even() -> None:
    assert decided(TODAY, raced(1, 2, 20.0), cost_seconds=60.0).break_even_steps == 3000
    assert decided(TODAY, raced(1, 2, 20.0), cost_seconds=0.5).break_even_steps == 25
    assert decided(raced(3, 0, 30.0), raced(1, 2, 20.0), cost_seconds=60.0).break_even_steps == 6000


def test_early_exit_recommends_the_current_configuration() -> None:
    today = raced(3, 0, 10.1)
    report = leave_as_it_is(replace(planted_report(), current=today))
    assert report.recommendation.name == today.name and report.recommendation.tie_with == ()
    assert report.candidates == (today,)
    assert report.cause == "model_bound" and "1.0 %" in report.verdict
    assert report.before == report.after and report.before.total_ms == pytest.approx(10.1)


@pytest.mark.parametrize(
    ("today", "leave"),
    [
        ([10.0, 10.0, 10.0], True),
        ([10.1, 10.1, 10.1], True),
        ([10.3, 10.3, 10.3], False),
        ([10.0, 12.0, 8.5], False),  # it might be 2 % or more
        ([9.0, 9.0, 9.0], True),
    ],
)
def test_leaving_early_needs_certainty(today, leave) -> None:
    assert may_leave(blocks("today", today), blocks("ceiling", [10.0] * 3)) is leave


def test_waiting_time_bounds_the_gain_despite_drift() -> None:
    steps, waits = (0.010, 0.020, 0.012, 0.031), (0.0001, 0.0002, 0.00012, 0.0003)
    today = replace(blocks("today", [1e3 * step for step in steps]), wait=Timing(waits))
    model = without_waiting(today, "ceiling")
    assert model.candidate == "ceiling" and model.step.seconds == pytest.approx([0.0099, 0.0198, 0.01188, 0.0307])
    assert may_leave(today, model) and not may_leave(today, blocks("ceiling", [9.9, 24.0, 9.0, 30.0]))
    slow = replace(today, wait=Timing(tuple(4 * wait for wait in waits)))
    assert not may_leave(slow, without_waiting(slow, "ceiling"))


def test_an_allocation_names_model_augmentation_and_waiting() -> None:
    report = planted_report(device=(1.0, 5.0, 2.0), model=10.0)
    found = allocation(report, raced(1, 2, 30.0))
    assert (found.model_ms, found.augment_ms, found.wait_ms) == pytest.approx((10.0, 7.0, 13.0))
    whole = allocation(report, raced(3, 2, 30.0))
    assert (whole.augment_ms, whole.wait_ms) == pytest.approx((0.0, 20.0))
    assert allocation(replace(report, ceiling=None), raced(1, 2, 30.0)) is None


def waiting(name, ms) -> Measurement:
    return replace(blocks(name, [30.0] * 3), wait=Timing((ms / 1e3,) * 3))


def test_waiting_is_measured_and_the_rest_is_contention() -> None:
    report, one = planted_report(device=(1.0, 5.0, 2.0), model=10.0, host=CPU), raced(3, 2, 30.0)
    found = allocation(report, one, waiting(one.name, 4.0))
    assert (found.wait_ms, found.contention_ms) == pytest.approx((4.0, 16.0))
    device = raced(1, 2, 30.0)  # on a CPU, the loop blocks while the ops after the cut run, 7 ms
    assert allocation(report, device, waiting(device.name, 9.0)).wait_ms == pytest.approx(2.0)
    on_gpu = replace(report, host=GPU)
    assert allocation(on_gpu, device, waiting(device.name, 9.0)).wait_ms == pytest.approx(9.0)


@given(
    *(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.floats(0, 1e4, allow_subnormal=False), st.integers(0, 3)),
    st.floats(0, 2e4),
)
@settings(max_examples=200, derandomize=True)
def test_an_allocation_adds_up_and_has_nothing_negative(model, step, op, cut, wait) -> None:
    one = raced(cut, 1, step)
    found = allocation(planted_report(model=model, device=(op, op, op)), one, waiting(one.name, wait))
    assert found.total_ms == pytest.approx(step)
    assert min(found.model_ms, found.augment_ms, found.wait_ms, found.contention_ms) >= 0


def test_below_the_ceiling_todays_configuration_gives_no_advice() -> None:
    today = raced(3, 0, 5.0)
    report = replace(planted_report(), candidates=(today, raced(0, 2, 20.0)), current=today, cost_seconds=60.0)
    verdict = recommend(report, steady(report.candidates)).verdict
    assert verdict.startswith("The machine was too busy to tell: your configuration was measured at 5.00 ms a step")


def test_a_candidate_below_the_ceiling_is_never_recommended() -> None:
    today, best, impossible = raced(3, 0, 40.0), raced(0, 2, 20.0), raced(1, 1, 8.0)
    report = replace(planted_report(), candidates=(today, best, impossible), current=today, cost_seconds=60.0)
    found = recommend(report, steady((today, best, impossible)))
    assert is_impossible(report, impossible) and not is_impossible(report, best)
    assert found.recommendation.name == best.name and found.recommendation.tie_with == ()
    assert not is_impossible(report, raced(1, 1, 8.9))  # within the margin and the intervals
    assert not is_impossible(replace(report, ceiling=None), impossible)


def beside(share, rounds) -> Report:
    """The report on a race with another candidate, in these rounds, while programs used this share of the cores."""
    today, other = raced(3, 0, 40.0), raced(0, 2, 20.0)
    report = replace(planted_report(), candidates=(today, other), current=today, cost_seconds=60.0)
    report = beside_others(replace(report, signals=Signals(foreign_share=share)))
    return recommend(
        report, {today.name: blocks(today.name, [40.0] * len(rounds)), other.name: blocks(other.name, rounds)}
    )


def test_a_little_load_is_not_mentioned() -> None:
    found = beside(0.09, [20.0, 20.0, 20.0, 20.0])
    assert "other programs" not in found.verdict and found.current.measured_ci_ms == (39.6, 40.4)


def test_load_of_other_programs_is_stated_beside_the_verdict_and_widens_intervals() -> None:
    found = beside(0.2, [20.0, 20.1, 20.0, 19.9])
    assert found.verdict.startswith("Use all on the device, 2 workers: 20.0 ms a step instead of 40.0 ms, 2.00x faster")
    assert "(1.59 .. 2.52)" in found.verdict
    assert found.verdict.endswith("Meanwhile other programs used 20 % of the cores, so the times are uncertain.")
    assert found.current.measured_ci_ms == pytest.approx((31.68, 40.4))
    assert found.recommendation.measured_ci_ms == pytest.approx((15.84, 20.2))
    assert found.ceiling.ci_ms == pytest.approx((7.2, 11.0))


def test_load_that_the_run_did_not_wait_for_does_not_matter() -> None:
    def shown(wanted) -> bool:
        signals = Signals(foreign_share=0.4, wanted_cores=wanted, watched_cores=2)
        return is_too_busy(replace(planted_report(), signals=signals))

    assert [shown(wanted) for wanted in (0.0, 0.03, 0.05, None)] == [False, False, True, True]


def test_on_a_busy_machine_only_a_winner_of_every_round_is_recommended() -> None:
    clear = beside(0.4, [20.0, 25.0, 20.0, 19.9])
    assert clear.verdict.startswith("Use all on the device") and "used 40 % of the cores" in clear.verdict
    assert beside(0.4, [20.0, 20.0]).verdict.startswith("The machine was too busy to tell")  # few rounds say little
    unclear = beside(0.4, [20.0, 41.0, 20.0, 19.9])
    assert unclear.verdict == (
        "The machine was too busy to tell: other programs used 40 % of the cores, and no candidate was faster than "
        "your configuration in every round. Run this again on a quiet machine."
    )
    assert unclear.recommendation.name == unclear.current.name and unclear.recommendation.tie_with == ()


def test_on_a_busy_machine_nothing_is_left_as_it_is() -> None:
    assert beside(0.4, [60.0, 60.0, 60.0, 60.0]).verdict.startswith("The machine was too busy to tell: other programs")
    assert beside(0.2, [60.0, 60.0, 60.0, 60.0]).verdict.startswith("Leave it as it is")
    assert is_too_busy(replace(planted_report(), signals=Signals(foreign_share=0.3)))
    assert not is_too_busy(planted_report())


def test_an_undecided_candidate_is_a_tie_but_not_the_advice() -> None:
    today, best, noisy = raced(3, 0, 40.0), raced(0, 2, 20.0), raced(1, 1, 26.0)
    report = replace(planted_report(), candidates=(today, best, noisy), current=today, cost_seconds=60.0)
    measurements = {**steady((today, best)), noisy.name: blocks(noisy.name, [18.0, 26.0, 34.0, 26.0, 18.0, 34.0])}
    found = recommend(report, measurements).recommendation
    assert found.name == best.name and found.tie_with == (noisy.name,)


def test_measured_once_nothing_is_called_a_tie() -> None:
    today, best, other = raced(3, 0, 109.2), raced(0, 2, 12.12), raced(1, 1, 19.0)
    report = replace(planted_report(), candidates=(today, best, other), current=today, cost_seconds=60.0)
    once = {each.name: blocks(each.name, [each.measured_ms]) for each in report.candidates}
    found = recommend(report, once)
    assert found.recommendation.name == best.name and found.recommendation.tie_with == ()
    assert "9.01x faster (measured once)" in found.verdict and "tie" not in found.verdict


def test_a_graph_engine_is_not_advised_if_tied_with_plain_ops() -> None:
    today, ours, twin = raced(3, 0, 40.0), raced(0, 2, 22.0), raced(0, 2, 20.0, device_engine="cuda_graph")
    report = replace(planted_report(), candidates=(today, ours, twin), current=today, cost_seconds=60.0)
    noisy = blocks(ours.name, [16.0, 22.0, 28.0, 22.0, 16.0, 28.0])
    found = recommend(report, {**steady((today, twin)), ours.name: noisy}).recommendation
    assert (found.name, found.tie_with) == (ours.name, (twin.name,))
    assert recommend(report, steady((today, ours, twin))).recommendation.name == twin.name


def test_advice_clearly_faster_than_today_is_not_a_tie() -> None:
    today, best = raced(3, 0, 23.0), raced(0, 2, 20.0)
    report = replace(planted_report(), candidates=(today, best), current=today, cost_seconds=60.0)
    measurements = {
        today.name: blocks(today.name, [21.2, 24.8, 21.7, 24.3]),
        best.name: blocks(best.name, [20.0, 20.0, 20.0, 20.0]),
    }
    assert today.name in ties(measurements)  # corrected for the looks that all candidates were given
    found = recommend(report, measurements)
    assert found.recommendation.tie_with == () and "tie" not in found.verdict


@pytest.mark.parametrize(("ms", "changes"), [(38.9, False), (38.2, False), (37.3, True)])
def test_what_the_user_has_is_kept_within_two_margins_of_the_fastest_tie(ms, changes) -> None:
    other = raced(0, 2, ms)
    report = replace(planted_report(), candidates=(TODAY, other), current=TODAY, cost_seconds=60.0)
    wiggle = (0.7, 1.0, 1.4, 1.0, 0.65, 1.35)  # faster on average
    measurements = {**steady((TODAY,)), other.name: blocks(other.name, [ms * share for share in wiggle])}
    assert ties(measurements) == [other.name, TODAY.name]
    assert recommend(report, measurements).recommendation.name == (other.name if changes else TODAY.name)


def test_what_the_user_has_is_kept_if_the_fastest_tie_was_not_faster_on_average() -> None:
    other = raced(0, 2, 37.0)
    report = replace(planted_report(), candidates=(TODAY, other), current=TODAY, cost_seconds=60.0)
    measurements = {**steady((TODAY,)), other.name: blocks(other.name, [37.0, 37.0, 60.0, 37.0, 37.0, 37.0])}
    assert ties(measurements) == [other.name, TODAY.name]
    assert recommend(report, measurements).recommendation.name == TODAY.name
