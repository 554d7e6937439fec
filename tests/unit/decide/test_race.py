import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from scipy import stats

from audioaug.decide.race import (
    MARGIN,
    _t_quantile,
    clearly_slower,
    leader,
    losers,
    margin_of,
    non_finalists,
    paired_ratio,
    ties,
    typical_ms,
    typical_seconds,
)
from audioaug.decide.recommend import without_waiting
from audioaug.records import Timing
from tests.helpers.planted_reports import blocks

TRIALS = 200
NONE_SLOW: Mapping[str, float] = MappingProxyType({})


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 20, 200])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.99, 1 - 0.05 / 30])
def test_quantiles_of_students_t(freedom, probability) -> None:
    tolerance = 0.02 if freedom < 5 else 0.003
    assert _t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=tolerance)


def test_drift_that_hits_both_cancels() -> None:
    drift = np.exp(np.linspace(0, 2, 8))
    ratio = paired_ratio(blocks("a", 12 * drift), blocks("b", 10 * drift))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.2, 1.2, 1.2))
    shuffled = paired_ratio(blocks("a", 12 * drift), blocks("b", 10 * drift[::-1]))
    assert shuffled.high / shuffled.low > 2  # the same times, not in pairs, say nothing


def test_only_rounds_that_both_ran_in_are_compared() -> None:
    assert paired_ratio(blocks("a", [20, 20]), blocks("b", [10, 10, 99, 99])).value == pytest.approx(2)


def test_one_round_is_never_significant() -> None:
    ratio = paired_ratio(blocks("a", [20]), blocks("b", [10]))
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 0.0, math.inf)
    assert losers({"a": blocks("a", [20]), "b": blocks("b", [10])}) == []
    assert clearly_slower({"a": blocks("a", [90]), "b": blocks("b", [10])}) == []


def test_two_very_different_rounds_are_inconclusive_and_not_an_error() -> None:
    ratio = paired_ratio(blocks("a", [10, 1000]), blocks("b", [10, 10]), comparisons=200)
    assert ratio.low < 1e-200 and ratio.value == pytest.approx(10) and ratio.high > 1e200


def test_more_comparisons_make_wider_intervals() -> None:
    a, b = blocks("a", [10.1, 10.4, 9.9, 10.2]), blocks("b", [10, 10, 10, 10])
    widths = [paired_ratio(a, b, n).high - paired_ratio(a, b, n).low for n in (1, 2, 5, 15)]
    assert widths == sorted(widths) and widths[0] < widths[-1]


def noisy(rng, ms, rounds, spread):
    return ms * np.exp(rng.normal(0, spread, rounds))


@pytest.mark.parametrize("rounds", [3, 4, 6, 12])
def test_the_interval_covers_the_planted_ratio(rounds) -> None:
    rng = np.random.default_rng(rounds)
    covered = 0
    for _ in range(2000):
        drift = noisy(rng, 1, rounds, 0.3)
        ratio = paired_ratio(
            blocks("a", drift * noisy(rng, 11, rounds, 0.05)), blocks("b", drift * noisy(rng, 10, rounds, 0.05))
        )
        covered += ratio.low <= 1.1 <= ratio.high
    assert 0.935 <= covered / 2000 <= 0.965  # 0.95, and three standard errors of 0.005


def test_the_leader_has_the_smallest_median() -> None:
    assert leader({"a": blocks("a", [9, 11, 30]), "b": blocks("b", [10, 10, 10]), "c": blocks("c", [1, 12, 13])}) == "b"


def test_rounds_that_are_longer_for_all_do_not_hide_who_is_faster() -> None:
    longer = np.array([1.0, 1.9, 1.1, 3.0, 1.2])
    candidates = {"a": blocks("a", 10 * longer), "b": blocks("b", 9 * longer), "left": blocks("left", 20 * longer[:2])}
    assert typical_seconds(candidates) == pytest.approx(
        {"a": 0.012, "b": 0.0108, "left": 0.024}
    )  # as in the last round
    candidates["b"] = blocks(
        "b", [9 * 1.9, *9 * longer[1:]]
    )  # disturbed once: the middle of its own times is 17 ms by now
    assert leader(candidates) == "b" and typical_seconds(candidates)["b"] == pytest.approx(
        0.9 * typical_seconds(candidates)["a"]
    )


def test_a_candidate_alone_takes_its_median() -> None:
    assert typical_seconds({"a": blocks("a", [10, 30, 11])}) == {"a": pytest.approx(0.011)}


def test_of_two_candidates_the_ratio_is_the_median_of_those_in_each_round() -> None:
    rng = np.random.default_rng(3)
    a, b = noisy(rng, 10, 9, 0.3), noisy(rng, 11, 9, 0.3)
    found = typical_seconds({"a": blocks("a", a), "b": blocks("b", b)})
    assert found["b"] / found["a"] == pytest.approx(np.exp(np.median(np.log(b / a))))


def test_typical_times_follow_one_rule_for_all_candidates() -> None:
    steps = [160.0, 198.0, 231.0, 241.0]  # of an even number that differ much, one rule's middle is 2 % above another's
    today = replace(blocks("today", steps), wait=Timing((0.0008,) * 4))
    candidates = {"today": today, "model": without_waiting(today, "model")}
    (ours, around), (model, _) = (typical_ms(name, candidates) for name in candidates)
    assert ours - model == pytest.approx(0.8, rel=0.01) and ours == pytest.approx((198 * 231) ** 0.5)
    share = ours / 214.5
    assert around == pytest.approx((160 * share, 241 * share))


def test_planted_losers_and_ties() -> None:
    candidates = {
        name: blocks(name, [ms * wiggle for wiggle in (1.0, 1.002, 0.998, 1.001)])
        for name, ms in (("best", 10.0), ("close", 10.2), ("slow", 11.0), ("crawl", 30.0))
    }
    assert losers(candidates) == ["slow", "crawl"]
    assert ties(candidates) == ["best", "close"]
    assert clearly_slower(candidates) == ["crawl", "slow"]


def test_a_difference_within_the_margin_does_not_matter_however_sure() -> None:
    candidates = {"a": blocks("a", [10.0] * 50), "b": blocks("b", [10.0 * (1 + MARGIN / 2)] * 50)}
    assert losers(candidates) == [] and ties(candidates) == ["a", "b"]


def test_a_candidate_that_may_be_within_the_margin_is_tied() -> None:
    candidates = {"a": blocks("a", [10.0] * 6), "b": blocks("b", [10.3, 10.6, 10.3, 10.6, 10.3, 10.6])}
    ratio = paired_ratio(candidates["b"], candidates["a"], 2)
    assert 1 < ratio.low < 1 + MARGIN < ratio.value
    assert ties(candidates) == ["a", "b"]


def test_a_plan_that_differs_from_itself_raises_the_margin() -> None:
    steady, restless = [10.0, 10.01, 9.99, 10.0], [10.0, 11.0, 9.0, 10.5]
    assert margin_of(blocks("a", steady), blocks("a (again)", steady[::-1])) == MARGIN
    margin = margin_of(blocks("a", steady), blocks("a (again)", restless))
    assert 0.08 < margin < 0.2
    candidates = {"fast": blocks("fast", steady), "slow": blocks("slow", [ms * 1.08 for ms in steady])}
    assert ties(candidates) == ["fast"] and ties(candidates, margin) == ["fast", "slow"]


def test_a_large_difference_in_the_noise_is_a_tie() -> None:
    candidates = {"a": blocks("a", [10, 30, 10]), "b": blocks("b", [22, 11, 24])}
    assert losers(candidates) == [] and ties(candidates) == ["a", "b"]


def test_a_candidate_2x_slower_in_two_rounds_is_dropped() -> None:
    candidates = {"a": blocks("a", [10, 12]), "b": blocks("b", [21, 30]), "c": blocks("c", [60, 13])}
    assert clearly_slower(candidates) == ["b"]
    assert clearly_slower({name: blocks(name, [ms]) for name, ms in (("a", 10), ("b", 90))}) == []  # of one round


def test_dropped_candidates_neither_lead_nor_tie() -> None:
    candidates = {
        "left": blocks("left", [9, 9]),
        "a": blocks("a", [10, 10, 30, 30]),
        "b": blocks("b", [10, 10, 30, 30]),
    }
    assert leader(candidates) == "a"  # the last rounds were slow for all
    assert ties(candidates) == ["a", "b"]


def test_non_finalists_are_all_but_the_fastest_and_one_that_stays() -> None:
    candidates = {name: blocks(name, [ms, 3 * ms]) for name, ms in (("a", 40), ("b", 10), ("c", 30), ("d", 20))}
    assert non_finalists(candidates, "a", 3) == ["c"] and non_finalists(candidates, "b", 3) == ["a"]
    assert non_finalists(candidates, "a", 4) == non_finalists(candidates, "a", 9) == []


def test_each_look_at_a_running_race_is_stricter() -> None:
    candidates = {"a": blocks("a", [10.0, 10.5, 9.6]), "b": blocks("b", [13.0, 12.8, 13.2])}
    assert losers(candidates) == ["b"]
    assert losers(candidates, looks=50) == []


def test_one_candidate_alone_leads_without_ties() -> None:
    candidates = {"a": blocks("a", [10, 10])}
    assert (leader(candidates), losers(candidates), clearly_slower(candidates), ties(candidates)) == (
        "a",
        [],
        [],
        ["a"],
    )


def race(rng, candidates: int, spread: float, rounds: int = 8, slow: Mapping[str, float] = NONE_SLOW) -> set[str]:
    """Run a race as the advisor does, dropping candidates after each round; return the ties."""
    drift = noisy(rng, 1, rounds, 0.2)
    times = {
        str(candidate): drift * noisy(rng, 10 * slow.get(str(candidate), 1), rounds, spread)
        for candidate in range(candidates)
    }
    running, known = set(times), {}
    for count in range(1, rounds + 1):
        known |= {name: blocks(name, times[name][:count]) for name in running}
        running -= set(clearly_slower({name: known[name] for name in running}))
    return set(ties(known))


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.15])
@pytest.mark.parametrize("candidates", [2, 6])
def test_a_plan_that_races_itself_ties(candidates, spread) -> None:
    rng = np.random.default_rng(candidates)
    false_winners = sum("0" not in race(rng, candidates, spread) for _ in range(TRIALS))
    assert false_winners <= 0.05 * TRIALS


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.15])
def test_a_candidate_2x_slower_is_significantly_slower(spread) -> None:
    rng = np.random.default_rng(7)
    assert all("0" not in race(rng, 6, spread, slow={"0": 2.0}) for _ in range(TRIALS))
