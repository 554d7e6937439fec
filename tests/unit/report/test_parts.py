"""The plain data that all renderers share: rows, marks, bars, sentences, code."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from audioaug.errors import printable
from audioaug.records import (
    SHARED_FIELDS,
    Allocation,
    Candidate,
    ContentionCost,
    LoaderCost,
    Measurement,
    Plan,
    Report,
    Timing,
    from_json,
    to_json,
)
from audioaug.report import candidates, charts, costs, snippet
from audioaug.report.page import (
    cause_parts,
    evidence,
    headline_parts,
    host_words,
    page,
    price_lines,
    training,
    trust_parts,
)
from audioaug.report.parts import Bars, Code, Facts, Line, Table, spread
from tests.helpers.planted_reports import EVERY_KNOB


def rows_of(report):
    """The candidate table as one dict a row, keyed by header."""
    table = candidates.candidate_parts(report)[0]
    headers = [column.header.replace("\n", " ") for column in table.columns]
    return [dict(zip(headers, row.values, strict=True)) for row in table.rows]


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (40.1, (39.82, 40.3), "40.1 (39.8 .. 40.3)"),
        (150.4, (149.35, 151.2), "150.4 (149.3 .. 151.2)"),
        (181.0, (168.3, 191.9), "181 (168 .. 192)"),
        (0.02134, (0.0211, 0.0215), "0.0213 (0.0211 .. 0.0215)"),
        (1234.0, (1000.0, 1300.0), "1,234 (1,000 .. 1,300)"),
        (402.0, (-72.0, 876.0), "402 (0 .. 876)"),
        (40.1, None, "40.1"),
        (40.1, (40.1, 40.1), "40.1"),
        (40.1, (40.1 - 1e-13, 40.1), "40.1"),
        (40.1, (39.0, math.inf), "40.1"),
        (None, None, "-"),
    ],
)
def test_spread_shows_as_many_digits_as_the_interval_supports(value, interval, text):
    assert spread(value, interval) == text


def test_interval_is_never_narrower_than_measured():
    for reach in (0.0301, 0.1999, 0.95, 9.51, 19.99, 123.4):
        text = spread(500.0, (500.0 - reach / 2, 500.0 + reach))
        low, high = text.partition("(")[2].rstrip(")").split(" .. ")
        assert float(low) <= 500.0 - reach / 2 and float(high) >= 500.0 + reach


def test_printable_leaves_no_way_to_steer_a_terminal():
    assert printable("a\x1b[31m\r\nb\u202ec") == r"a\x1b[31m\r\nb\u202ec"


def test_candidates_are_sorted_by_the_best_known_time_after_the_ceiling(race):
    rows = rows_of(race)
    assert rows[0]["candidate"] == "(ceiling)"
    times = [row["measured ms"] if row["measured ms"] != "-" else row["predicted ms"] for row in rows[1:]]
    numbers = [float(time.split()[0]) for time in times]
    assert numbers == sorted(numbers)


def fused_words(report, **changes):
    """The lines about fused ops (two and three neighbours) for the recommendation with these changes."""
    chain = replace(report.chain, ops=tuple("ABCDEF"), fused=((0, 2), (3, 6)))
    advice = replace(report.recommendation, **changes)
    return [
        line.text.partition(" are")[0]
        for line in costs.fused_lines(replace(report, chain=chain, recommendation=advice))
    ]


def test_fused_ops_are_listed_by_the_side_they_run_on(race):
    everything = ["On the device, A + B", "On the device, D + E + F"]
    assert fused_words(race, cut=0) == everything
    assert fused_words(race, cut=0, device_engine="cuda_graph") == everything
    assert fused_words(race, cut=0, device_engine="torch-audiomentations") == []
    assert fused_words(race, cut=4) == ["On the device, E + F"]
    both = fused_words(race, cut=5, worker_engine="batched")
    assert both == ["In the workers, A + B", "In the workers, D + E"]
    assert costs.fused_lines(replace(race, recommendation=None)) == ()


def test_each_mark_is_at_its_own_candidate(race, early_exit):
    assert {row[""]: row["candidate"] for row in rows_of(race) if row[""]} == {
        "use": "split at 2, 4 workers, prefetch 4, pinned",
        "tie": "split at 1, 4 workers",
        "today": "all in the loader, 2 workers",
    }
    assert [row["candidate"] for row in rows_of(early_exit) if row[""] == "use, today"] == [
        "all in the loader, 2 workers"
    ]


def test_a_prediction_is_never_in_the_measured_column_and_is_labelled(race):
    predicted = [row for row in rows_of(race) if row["status"] == "predicted"]
    assert predicted
    for row in predicted:
        assert row["measured ms"] == "-"
        assert all(row[header].startswith("~") for header in ("clips/s", "stall", "CPU s /step", "VRAM"))
    for row in rows_of(race):
        if row["status"] != "predicted":
            assert row["measured ms"] != "-"
            assert "~" not in "".join(row.values())


def test_measured_candidates_that_were_not_raced_are_called_measured(early_exit):
    assert rows_of(early_exit)[1]["status"] == "measured"


def test_less_than_ten_clips_a_second_are_not_rounded_to_an_integer(race):
    slow = replace(race.recommendation, clips_per_second=0.314)
    ceiling = replace(race.ceiling, clips_per_second=0.42)
    rows = rows_of(replace(race, candidates=(slow,), recommendation=slow, current=None, ceiling=ceiling))
    assert [row["clips/s"] for row in rows] == ["0.42", "0.31"]


def test_vram_has_a_column_only_if_any_is_known(race, early_exit):
    assert "VRAM" in rows_of(race)[0]
    assert "VRAM" not in rows_of(early_exit)[0]


def test_infeasible_candidates_leave_the_table_and_keep_their_reason(race):
    assert not any(row["candidate"].startswith("all on the device") for row in rows_of(race))
    assert candidates.infeasible_parts(race) == (
        Facts(
            (
                (
                    "infeasible",
                    "all on the device, 2 workers; all on the device, 4 workers: Mp3Compression runs only on the CPU",
                ),
            )
        ),
    )


def test_a_long_table_omits_only_predictions_and_states_how_many(race):
    rows = rows_of(race)
    assert len(rows) == candidates.ROWS_SHOWN + 1
    assert sum(row["status"] == "raced" for row in rows) == sum(
        candidate.status == "raced" for candidate in race.candidates
    )
    assert "Not shown: 2 candidates, only predicted" in candidates.candidate_parts(race)[2].text


def test_a_measured_candidate_wins_over_the_same_one_predicted(race):
    predicted = replace(race.current, measured_ms=None, measured_ci_ms=None, status="predicted")
    rows = rows_of(replace(race, candidates=(predicted,), recommendation=None))
    assert [(row[""], row["measured ms"]) for row in rows[1:]] == [("today", "284.0 (282.0 .. 285.5)")]


def test_candidates_with_different_settings_have_different_names(race):
    two = Candidate("cpu", 4, num_workers=2, predicted_ms=9.0)
    one = replace(two, prefetch_factor=8, pin_memory=True, predicted_ms=8.0)
    rows = rows_of(replace(race, candidates=(one, two), current=None, recommendation=None))
    assert [row["candidate"] for row in rows[1:]] == [
        "all in the loader, 2 workers, prefetch 8, pinned",
        "all in the loader, 2 workers",
    ]


def test_unused_settings_do_not_make_two_candidates():
    one = Candidate("gpu", 0, worker_engine="batched", prefetch_factor=None)
    two = Candidate("gpu", 0, worker_engine="audiomentations", prefetch_factor=4)
    assert one.name == two.name
    assert replace(one, num_workers=1).name != replace(two, num_workers=1).name


def test_bars_show_the_costs_of_the_recommended_engines(race):
    found = costs.op_costs(race)
    assert [(it.worker_ms, it.device_ms) for it in found] == [
        (118.0, None),
        (6.42, 0.183),
        (402.0, 2.13),
        (0.61, 0.021),
    ]
    assert [it.in_worker for it in found] == [True, True, False, False]
    stock = replace(race.recommendation, device_engine="torch-audiomentations")
    assert costs.op_costs(replace(race, recommendation=stock))[2].device_ms == 61.0
    bars = charts.op_bars(found)
    assert bars[2].worker == bars[2].half and bars[0].device is None and bars[1].worker == bars[1].device == charts.SEEN


def test_each_transform_has_its_cost_on_both_sides_and_the_side_it_goes_to(race):
    table, reasons = costs.op_parts(race)
    assert [column.header.replace("\n", " ") for column in table.columns] == [
        "op",
        "transform",
        "worker audiomentations",
        "device batched",
        "device torch-audiomentations",
        "runs in",
    ]
    assert table.rows[1].values[0:2] == ("2", "AddBackgroundNoise")
    assert [row.values[-1] for row in table.rows] == ["worker", "worker", "device", "device"]
    assert table.rows[2].values[3:5] == ("2.13", "61.0")
    assert reasons.items[0] == ("Mp3Compression", "device, batched: the codec runs only on the CPU")


def test_other_stages_have_their_own_table(race, bare):
    (table,) = costs.stage_parts(race)
    assert [row.values[0] for row in table.rows] == [stage.name for stage in race.stages if stage.op is None]
    assert costs.stage_parts(bare) == costs.op_parts(bare) == ()


def test_contention_compares_both_sides_with_what_they_take_alone(race):
    contention = (ContentionCost(4, "audiomentations", 2, 1, alone_ms=10.0, step_ms=15.0, batch_ms=60.0),)
    known = replace(race, contention=contention, loader_costs=(LoaderCost(4, 2, 50.0, (49.0, 51.0)),))
    assert [line.text for line in costs.contention_lines(known)] == [
        "Beside 2 workers at full speed, a step on 1 thread takes 15.0 ms instead of 10.0 ms, and a batch of these "
        "workers 60.0 ms instead of 50.0 ms."
    ]
    assert costs.contention_lines(replace(known, loader_costs=())) == ()


def test_a_chart_has_its_target_and_its_values_from_the_top():
    chart = charts.time_chart("CPU", "70 %", [0.0, 5.0, 10.0], [0.0, None, 2.0], [5.0], "", (0.6, 0.8), "100 %")
    assert chart.band == pytest.approx((0.2 * charts.HEIGHT, 0.2 * charts.HEIGHT))  # its top and its height
    assert chart.lines == (f"0.0,{charts.HEIGHT} 0.0,{charts.HEIGHT}", "480.0,0.0 480.0,0.0")
    assert chart.moves == (240.0,)
    assert (chart.full, chart.ticks) == ("100 %", ("0 us", "5.0 s", "10 s"))


@pytest.mark.parametrize("width", [20, 71, 200])
def test_bars_are_proportional_and_share_one_scale(width):
    before, after = Allocation(20.0, 0.0, 40.0, 20.0), Allocation(20.0, 5.0, 15.0)
    longest = charts.longest_ms(Bars((("today", before), ("advised", after))))
    for allocation in (before, after):
        bars = charts.runs(allocation, longest, width)
        assert abs(sum(len(run) for _, run in bars) - allocation.total_ms / 80 * width) <= 0.5
        for (share, run), ms in zip(
            bars,
            (allocation.model_ms, allocation.augment_ms, allocation.wait_ms, allocation.contention_ms),
            strict=True,
        ):
            assert set(run) <= {charts.CHARACTERS[share]}
            assert abs(len(run) - ms / 80 * width) <= 1
    assert len(set(charts.CHARACTERS.values())) == 4


@pytest.mark.parametrize("low", [0.0137, 0.093, 1.0, 1.02, 1.9, 5.5, 41.0, 137.0, 970.0, 123_456.0])
@pytest.mark.parametrize("factor", [1.15, 1.4, 2.4, 9.0, 5000.0])
def test_an_axis_has_two_to_six_different_round_numbers(low, factor):
    axis = charts.CandidateAxis(low, low * factor, None)
    ticks = axis.ticks
    assert 2 <= len({text for _, text in ticks}) == len(ticks) <= 6
    assert all(place == axis.place(float(text)) for place, text in ticks)
    assert all(later - earlier >= 20 for (earlier, _), (later, _) in pairwise(ticks))


def test_bars_survive_nothing_and_less_than_nothing():
    assert charts.plain(Bars((("today", Allocation(0.0, 0.0, 0.0)),)), 20).endswith("today: 0 ms\n")
    runs = dict(charts.runs(Allocation(10.0, 0.0, -1.0), 10.0, 20))
    assert runs == {"model": "#" * 20, "augment": "", "wait": "", "contention": ""}


def test_the_snippet_is_valid_python_with_the_real_numbers(race):
    (code,) = snippet.snippet_parts(race)
    compile(code.text, "snippet", "exec")
    assert "Plan(cut=2, num_workers=4, prefetch_factor=4, pin_memory=True)" in code.text
    assert 'batch_size=64, device="cuda:0", shuffle=True' in code.text
    assert max(map(len, code.text.splitlines())) <= snippet.LINE_LENGTH


def test_the_snippet_builds_the_recommended_plan_however_long_it_gets(race):
    plan = replace(
        EVERY_KNOB, device_engine="torch-audiomentations", num_workers=4, prefetch_factor=4, chain_hash="3f2a"
    )
    advice = replace(race.recommendation, **{name: getattr(plan, name) for name in SHARED_FIELDS})
    work = replace(race.workload, precision="bf16", setup=replace(race.workload.setup, augment="chain"))
    text = snippet.snippet(replace(race, workload=work), advice)
    assert max(map(len, text.splitlines())) <= snippet.LINE_LENGTH
    call = text[text.index("plan = ") : text.index("# or")].removeprefix("plan = audioaug.")
    assert eval(call, {"Plan": Plan}) == plan


def test_the_snippet_shuffles_all_datasets_but_streams(race):
    assert "shuffle=True" in snippet.snippet(race, race.recommendation)
    streamed = replace(race.workload, setup=replace(race.workload.setup, is_stream=True))
    assert "shuffle" not in snippet.snippet(replace(race, workload=streamed), race.recommendation)


def test_ranks_have_their_own_examples_and_device_and_share_workers(race):
    ranks = replace(race, host=replace(race.host, local_ranks=2))
    text = snippet.snippet(ranks, race.recommendation)
    compile(text, "snippet", "exec")
    assert "num_workers=8" in text and "num_workers=4" not in text
    assert "sampler = DistributedSampler(dataset)" in text and "sampler=sampler" in text and "shuffle" not in text
    assert "device=f\"cuda:{os.environ['LOCAL_RANK']}\"" in text and "import os" in text
    streamed = replace(ranks.workload, setup=replace(ranks.workload.setup, is_stream=True))
    assert "ampler" not in snippet.snippet(replace(ranks, workload=streamed), race.recommendation)


def test_ranks_are_named_in_the_first_lines(race):
    ranks = replace(race, host=replace(race.host, local_ranks=2))
    line = next(part.text for part in page(ranks)[0].parts if "2 ranks" in part.text)
    assert line.endswith("counts the workers of all ranks: 8 here.") and ranks.plan.num_workers == 8
    assert "usable by each" in host_words(ranks.host) and "rank" not in host_words(race.host)


def test_no_snippet_without_a_change(early_exit, interrupted):
    assert snippet.snippet_parts(early_exit) == snippet.snippet_parts(interrupted) == ()


def test_the_cause_is_in_words(race, early_exit, bare):
    assert cause_parts(race) == (Line(race.recommendation.because, aside="augment_cpu_bound"),)
    assert cause_parts(early_exit) == (Line("The model takes 99 % of each step.", aside="model_bound"),)
    assert cause_parts(bare) == ()
    assert [part.kind for part in headline_parts(bare)] == ["verdict", "warning"]


def test_cost_and_break_even(race, early_exit, bare):
    (paid,) = price_lines(race)
    assert paid.text == ("This advice took 58 s; it pays for itself after 2,494 steps (1 min 40 s of training).")
    slower = replace(race, recommendation=replace(race.recommendation, predicted_ms=80.2))
    assert price_lines(slower) == price_lines(race)  # what was measured counts
    assert price_lines(early_exit)[0].text == "This advice took 11 s."
    assert price_lines(bare) == ()


def test_evidence_counts_measured_and_predicted_candidates(race, early_exit, bare):
    assert evidence(race) == (
        "Measured: the ceiling, 14 stages alone, 5 candidates end to end (6 blocks, 150 steps); only predicted: 9 "
        "candidates."
    )
    assert evidence(early_exit) == "Measured: the ceiling, 1 candidate end to end; only predicted: nothing."
    assert evidence(bare) == "Measured: nothing; only predicted: nothing."


def test_one_of_anything_is_singular_and_thousands_are_separated(race):
    block = Timing((0.04,))
    one = replace(
        race,
        workload=replace(race.workload, parameters=1, clips=480_000),
        measurements=(Measurement("today", block, block, 1),),
        break_even_steps=1,
    )
    assert "(1 block, 1 step)" in evidence(one)
    assert "after 1 step (" in price_lines(one)[0].text
    assert "(1 parameter, fp32)" in training(one)
    assert "(480,000 clips)" in training(one)


def test_a_notice_that_is_the_cause_is_not_repeated(early_exit):
    assert not any(isinstance(part, Facts) for part in trust_parts(early_exit))


def test_a_page_has_no_empty_section_and_its_tables_are_rectangular(report):
    for section in page(report):
        assert section.parts
        for part in section.parts:
            if isinstance(part, Table):
                assert {len(row.values) for row in part.rows} == {len(part.columns)}
    assert sum(isinstance(part, Code) for section in page(report) for part in section.parts) <= 1


def test_the_record_comes_back_whole_from_json(report):
    assert from_json(to_json(report), Report) == report


def test_the_snippet_skips_unreadable_examples_if_the_race_met_some(race):
    setup = replace(race.workload.setup, on_error="skip")
    skipping = replace(race, workload=replace(race.workload, setup=setup))
    assert 'on_error="skip"' in snippet.snippet(skipping, race.recommendation)
    assert "on_error" not in snippet.snippet(race, race.recommendation)


def test_a_caption_leaves_out_what_subtraction_leaves_of_nothing():
    assert charts.caption(Allocation(38.0, 2.2e-16, 246.0)) == "284 ms = model 38.0 ms + waiting 246 ms"
