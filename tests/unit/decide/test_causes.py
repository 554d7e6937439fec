"""A recorded case for each cause: it must be the primary one, and its sentence must have a number."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug.decide.causes.case import Case
from audioaug.decide.causes.model import bucketed_padding, padding
from audioaug.decide.diagnose import PRIMARY, SECONDARY, causes, diagnose
from audioaug.records import Examples, Measurement, Notice, Signals, StageCost, Timing
from tests.helpers.planted_reports import CPU, GPU, WORK, candidate, planted_report, raced

TODAY = raced(3, 2, 30.0)
MODEL = raced(3, 0, 10.05)
HOST = replace(CPU, usable_cores=2.0, torch_threads=1)


def examples(read=1.0, augment=1.0, cpu=None, first=None, samples=(16000,) * 64, slow=0, slow_ms=0.0):
    """64 examples with these times to read and augment; the last ``slow`` ones take longer."""
    again = (read,) * (64 - slow) + (slow_ms,) * slow
    return Examples(
        first_ms=again if first is None else (first,) * 64,
        again_ms=again,
        cpu_ms=again if cpu is None else (cpu,) * 64,
        augment_ms=(augment,) * 64,
        samples=tuple(samples),
    )


def case(current=TODAY, best=None, waited=None, clips=10_000, signals=None, **machine):
    """A case with these signals; ``waited``: waiting time of a step, in ms."""
    report = replace(planted_report(**machine), signals=signals or Signals(), workload=replace(WORK, clips=clips))
    if waited is not None:
        step, wait = Timing((current.measured_ms / 1e3,) * 3), Timing((waited / 1e3,) * 3)
        report = replace(report, measurements=(Measurement(current.name, step, wait, 20),))
    return Case(report, current, best)


def signals(**found):
    return Signals(**found)


RAGGED = tuple(64000 if place % 8 == 0 else 16000 for place in range(64))
REFUSED = "Only 0 workers can run: 3 reasons."

RECORDED = {
    **{
        name: case(signals=signals(refused=Notice(name, REFUSED)))
        for name in ("not_picklable", "shm_too_small", "fd_limit", "ram_limit")
    },
    "cow_memory_growth": case(clips=10_000_000, signals=signals(worker_growth_bytes=2.0**30)),
    "quota_throttled": case(MODEL, signals=signals(throttled=0.4)),
    "gc_stalls": case(signals=signals(gc_share=0.3)),
    "shape_churn": case(MODEL, signals=signals(first_step_ms=60.0, again_step_ms=10.0, batch_shapes=8)),
    "slow_start": case(raced(3, 2, 10.05), clips=320, signals=signals(start_seconds=5.0)),
    "padding_waste": case(MODEL, signals=signals(examples=examples(samples=RAGGED))),
    "model_bound": case(MODEL),
    "slow_sample_tail": case(signals=signals(examples=examples(slow=4, slow_ms=90.0))),
    "fetch_bound": case(decode=300.0, signals=signals(examples=examples(read=10.0, cpu=0.5))),
    "foreign_load": case(
        raced(3, 2, 30.0, cpu_seconds_per_step=0.03), signals=signals(foreign_cores=1.0, watched_cores=2), host=HOST
    ),
    "too_noisy": case(replace(TODAY, measured_ci_ms=(15.0, 60.0))),
    "transport_bound": case(signals=signals(receive_ms=20.0)),
    "thread_oversubscription": case(best=raced(3, 2, 15.0, threads=1), host=replace(HOST, torch_threads=2)),
    "too_many_workers": case(raced(3, 8, 30.0), best=raced(3, 2, 15.0)),
    "main_thread_bound": case(raced(0, 2, 30.0), device=(0.1, 18.0, 0.2)),
    "sandbagged_wait": case(waited=0.5, host=HOST),
    "too_few_workers": case(raced(3, 1, 30.0), best=raced(3, 4, 12.0)),
    "order_blocks_split": case(device_from=3),
    "cpu_only_transform": case(device=(0.1, None, 0.2), device_from=2),
    "augment_cpu_bound": case(),
    "decode_bound": case(decode=40.0),
}

TOLD = {
    "shape_churn": case(
        best=raced(3, 8, 15.0), signals=signals(first_step_ms=60.0, again_step_ms=10.0, batch_shapes=8)
    ),
    "foreign_load": case(
        raced(3, 0, 10.05, cpu_seconds_per_step=0.01), signals=signals(foreign_cores=1.5, watched_cores=2), host=HOST
    ),
    "noisy_neighbour": case(signals=signals(stolen_cores=0.5), host=HOST),
    "pin_noop": case(MODEL, signals=signals(unpinned_types=("Clips",))),
    "step_syncs": case(MODEL, signals=signals(step_waits=("item", "item"))),
    "page_faults": case(MODEL, signals=signals(page_faults=12_000.0, kernel_share=0.2)),
    "epoch_gap": case(raced(3, 2, 10.05), clips=320, signals=signals(epoch_gap_ms=40.0)),
    "fork_unsafe": case(signals=signals(threads_alive=("prefetcher",))),
    "probe_unrepresentative": case(signals=signals(examples=examples(slow=40, slow_ms=5.0))),
    "prefetch_useless": case(signals=signals(ready=0.1)),
    "slow_sample_tail": case(signals=signals(gc_share=0.3, examples=examples(slow=4, slow_ms=90.0))),
    "fetch_bound": case(decode=300.0, signals=signals(gc_share=0.3, examples=examples(read=10.0, cpu=0.5))),
    "too_noisy": case(replace(TODAY, measured_ci_ms=(15.0, 60.0)), signals=signals(gc_share=0.3)),
    "padding_waste": case(MODEL, signals=signals(throttled=0.5, examples=examples(samples=RAGGED))),
}


def first(it: Case) -> Notice:
    return diagnose(it.report, it.current, it.best)


def ids(it: Case) -> set[str]:
    return {notice.id for notice in causes(it.report, it.current, it.best)}


def test_a_step_that_varies_does_not_prove_that_data_comes_in_time() -> None:
    unsteady = replace(TODAY, measured_ms=8.0, measured_ci_ms=(1.0, 20.0))
    assert first(case(unsteady, best=raced(3, 2, 7.0))).id == "too_noisy"
    assert first(case(unsteady)).id == "model_bound"  # the race with the ceiling has shown it
    below = replace(TODAY, measured_ms=7.0, measured_ci_ms=(6.9, 7.1))  # faster than the model alone, of 10 ms
    assert first(case(below, best=raced(3, 2, 6.5))).id == "too_noisy"


def test_a_stall_far_above_the_noise_is_diagnosed() -> None:
    assert first(case(replace(TODAY, measured_ci_ms=(20.0, 40.0)), signals=signals(receive_ms=20.0))).id != "too_noisy"


def test_noise_is_the_difference_between_candidates_in_the_same_rounds() -> None:
    def noise(others_ms: tuple[float, ...], todays_ms: tuple[float, ...] = (10.0, 30.0, 12.0, 25.0)) -> float:
        blocks = {TODAY.name: todays_ms, "other": others_ms}
        found = tuple(Measurement(name, Timing(ms), Timing(ms), 3) for name, ms in blocks.items())
        return Case(replace(planted_report(), measurements=found), TODAY).noise

    assert noise((11.0, 33.0, 13.2, 27.5)) == pytest.approx(0.0, abs=1e-6)  # other batches, the same for both
    assert noise((30.0, 10.0, 25.0, 12.0)) > 1
    assert noise((30.0, 10.0, 25.0, 12.0, 11.0)) > 1  # today left behind the fourth of its rounds
    assert noise((11.0, 33.0, 13.2), todays_ms=(10.0, 30.0, 12.0)) < 1e-6  # a race of three rounds
    assert noise((10.0, 30.0)) == pytest.approx(0.01)  # a screening: today's own interval counts
    assert noise((10.0, 30.0), todays_ms=(30.0, 31.0)) == pytest.approx(0.01)  # and where today left the race early
    assert noise((10.0, 10.0, 11.0, 10.0), todays_ms=(60.0, 71.0)) == pytest.approx(0.01)  # of four rounds


def test_a_start_is_not_the_answer_where_an_epoch_waits_longer() -> None:
    slow, found = raced(3, 6, 30.0), signals(start_seconds=2.0)
    assert first(case(slow, best=raced(3, 2, 11.0), clips=4000, signals=found)).id == "too_many_workers"
    assert first(case(raced(3, 6, 11.0), best=raced(3, 2, 10.5), clips=4000, signals=found)).id == "slow_start"


@pytest.mark.parametrize("name", RECORDED)
def test_the_first_cause_of_a_recorded_fault(name) -> None:
    found = first(RECORDED[name])
    assert found.id == name, found.text


SLOW_STORAGE = examples(read=10.0, cpu=0.5, slow=4, slow_ms=200.0)


@pytest.mark.parametrize(
    ("before", "after", "it"),
    [
        ("quota_throttled", "gc_stalls", case(signals=signals(throttled=0.4, gc_share=0.3))),
        ("slow_sample_tail", "fetch_bound", case(decode=300.0, signals=signals(examples=SLOW_STORAGE))),
        (
            "cow_memory_growth",
            "quota_throttled",
            case(clips=10**7, signals=signals(worker_growth_bytes=2.0**30, throttled=0.4)),
        ),
        ("transport_bound", "too_few_workers", case(best=raced(3, 8, 15.0), signals=signals(receive_ms=20.0))),
    ],
)
def test_of_two_causes_that_hold_the_first_is_primary(before, after, it) -> None:
    assert all(PRIMARY[name](it) for name in (before, after))
    assert first(it).id == before


@pytest.mark.parametrize("name", TOLD)
def test_secondary_causes_are_reported(name) -> None:
    assert name in ids(TOLD[name]) - {first(TOLD[name]).id}


@pytest.mark.parametrize("it", [*RECORDED.values(), *TOLD.values()])
def test_a_sentence_has_a_number_and_an_end(it) -> None:
    for notice in causes(it.report, it.current, it.best):
        assert re.search(r"\d", notice.text) and notice.text.endswith((".", ")"))
        assert "None" not in notice.text and "nan" not in notice.text and "  " not in notice.text


def test_every_cause_has_a_recorded_fault() -> None:
    assert {*PRIMARY} - {"unverified"} == {*RECORDED}
    assert {*SECONDARY} - {"advice_costs_more_than_it_saves"} == {*TOLD}


def test_without_its_signal_a_fault_is_not_found() -> None:
    for name, it in RECORDED.items():
        if it.report.signals != Signals():
            plain = replace(it, report=replace(it.report, signals=Signals()))
            assert first(plain).id != name


def test_an_op_that_has_to_run_in_a_worker_itself_is_not_blocked_by_the_order() -> None:
    it = RECORDED["order_blocks_split"]
    chain = replace(
        it.report.chain,
        device_from=2,
        device_from_reason="Op1 changes the length of clips, and collate_fn must see the final lengths.",
    )
    assert first(replace(it, report=replace(it.report, chain=chain))).id == "augment_cpu_bound"


def test_advice_that_pays_late() -> None:
    report = replace(planted_report(), break_even_steps=5000, workload=replace(WORK, clips=320))
    found = {notice.id: notice.text for notice in causes(report, TODAY)}
    assert "5,000 steps, 500 epochs of 10 steps" in found["advice_costs_more_than_it_saves"]
    assert "advice_costs_more_than_it_saves" not in ids(Case(replace(report, break_even_steps=50), TODAY))
    more = replace(report, workload=replace(WORK, clips=321))  # with a last, small batch
    found = {notice.id: notice.text for notice in causes(more, TODAY)}
    assert found["advice_costs_more_than_it_saves"].startswith(
        "This advice pays for itself after 5,000 steps, 455 epochs of 11 steps."
    )


def test_other_programs_are_no_cause_where_we_need_no_cores() -> None:
    idle = raced(3, 2, 30.0, cpu_seconds_per_step=0.001)
    assert "foreign_load" not in ids(case(idle, signals=signals(foreign_cores=1.9, watched_cores=2), host=HOST))
    starved = signals(foreign_cores=1.9, wanted_cores=1.0, watched_cores=2)
    assert "foreign_load" in ids(case(idle, signals=starved, host=HOST))
    half_free = replace(HOST, usable_cores=8.0)
    busy = raced(3, 2, 30.0, cpu_seconds_per_step=0.06)
    assert "foreign_load" not in ids(case(busy, signals=signals(foreign_cores=2.0, watched_cores=8), host=half_free))


def test_storage_and_slow_files_are_no_cause_where_they_hardly_take_time() -> None:
    quick = examples(read=0.02, cpu=0.001, slow=4, slow_ms=0.9)
    assert not {"fetch_bound", "slow_sample_tail"} & ids(case(decode=300.0, signals=signals(examples=quick)))


def test_examples_that_are_slow_once_are_no_slow_tail() -> None:
    slow = examples(slow=4, slow_ms=90.0)
    for fields in ({"first_ms": slow.first_ms}, {"again_ms": slow.again_ms}):
        once = replace(examples(), **fields)
        assert "slow_sample_tail" not in ids(case(signals=signals(examples=once)))


def test_a_batch_that_took_far_longer_to_receive_than_a_step_was_disturbed() -> None:
    slow = case(signals=signals(receive_ms=20.0))
    assert first(slow).id == "transport_bound" and slow.step_ms > 20.0
    longer, far_longer = (case(signals=signals(receive_ms=factor * slow.step_ms)) for factor in (1.1, 2.1))
    assert first(longer).id == "transport_bound" and longer.receive_ms == slow.step_ms
    assert first(far_longer).id not in ("transport_bound", "main_thread_bound")


def test_synchronizations_on_the_cpu_are_reported_as_hypothetical() -> None:
    words = {notice.id: notice.text for host in (GPU, CPU) for notice in causes(_syncs(host).report, MODEL)}
    assert "would make the host wait" in words["step_syncs"]
    assert "makes the host wait for the GPU 1 time (item)" in causes(_syncs(GPU).report, MODEL)[1].text


def _syncs(host):
    return case(MODEL, signals=signals(step_waits=("item",)), host=host)


def test_pinning_that_does_nothing_names_the_types_on_cuda_only() -> None:
    def text(host=GPU, current=MODEL, best=None) -> str:
        return SECONDARY["pin_noop"](case(current, best, signals=signals(unpinned_types=("Clips", "Words")), host=host))

    assert text().startswith("Pinning does nothing for 2 types in a batch without pin_memory(), Clips, Words: ")
    assert not text(host=CPU) and not text(host=replace(GPU, device="mps"))
    unpinned, pinned = replace(MODEL, pin_memory=False), raced(3, 2, 9.0, pin_memory=True)
    assert text(current=unpinned, best=pinned)
    assert not text(current=unpinned) and not text(current=unpinned, best=replace(pinned, pin_memory=False))


def compared(*times: tuple[str, float]) -> str:
    """The sentence of slow decoding if these decoders were timed, the first one in use."""
    it = RECORDED["decode_bound"]
    stages = tuple(StageCost("decode", "comparison", ms, engine=name) for name, ms in times)
    return diagnose(replace(it.report, stages=(*it.report.stages, *stages)), it.current, it.best).text


def test_slow_decoding_names_the_decoder_and_those_timed_beside_it() -> None:
    soundfile, wav = ("soundfile", 40.0), ("WAV copies at 16 kHz", 0.5)
    assert "The decoder is soundfile: the clips of a batch take 40.0 ms with it, 0.500 ms with WAV copies at" in (
        compared(soundfile, wav)
    )
    assert compared(soundfile, wav).endswith("in a format that decodes quickly (WAV).")
    both = compared(soundfile, ("torchcodec", 10.0), (wav[0], 20.0))
    assert "40.0 ms with it, 10.0 ms with torchcodec and 20.0 ms with WAV copies at 16 kHz. Decode with torch" in both
    assert compared(soundfile, ("WAV copies at 16 kHz", 39.0)).endswith(
        "None is faster: use more workers, or shorter clips."
    )
    assert "decoder" not in compared()


def test_comparisons_are_no_part_of_the_loading_time() -> None:
    it = RECORDED["decode_bound"]
    timed = StageCost("decode", "comparison", 400.0, engine="soundfile")
    more = replace(it, report=replace(it.report, stages=(*it.report.stages, timed)))
    assert more.batch_ms == it.batch_ms and more.stages == it.stages


def test_padding_waste_quotes_what_the_sampler_would_leave() -> None:
    it = RECORDED["padding_waste"]
    text = first(it).text
    assert "In batches of similar length it would be 45 % (computed for the 64 clips that were examined)." in text
    assert "Loader(batch_sampler=audioaug.BucketBatchSampler(lengths, batch_size=32), pad=True)" in text
    whole = replace(
        it, report=replace(it.report, workload=replace(WORK, batch_size=33))
    )  # 64 clips are not two batches
    assert "similar length it would" not in first(whole).text


@pytest.mark.parametrize(
    ("samples", "batch", "share"),
    [
        ((300, 100, 300, 100), 2, 0.0),
        ((100, 200, 300, 400), 2, 1 - 1000 / 1200),
        ((100, 200, 300, 400, 500), 2, 1 - 1500 / 1700),  # the last batch is smaller
        ((0, 0), 1, None),
        ((100, 300, 100), 2, None),
    ],
)
def test_bucketed_padding(samples, batch, share) -> None:
    assert bucketed_padding(samples, batch) == (share if share is None else pytest.approx(share, abs=1e-9))


@pytest.mark.parametrize(
    ("samples", "batch", "share"),
    [((100,) * 8, 4, 0.0), ((100, 300), 1, 0.0), ((100, 300), 64, 1 / 3)],
)
def test_padding(samples, batch, share) -> None:
    assert padding(samples, batch) == pytest.approx(share, abs=1e-6)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50), st.integers(1, 256))
@settings(max_examples=100, derandomize=True)
def test_padding_is_a_share_and_grows_with_the_batch(samples, batch) -> None:
    found = padding(tuple(samples), batch)
    assert -1e-9 <= found < 1 and padding(tuple(samples), 2 * batch) >= found - 1e-9


@given(
    st.floats(0.1, 1e4),
    st.floats(0.1, 1e4),
    st.integers(0, 8),
    st.integers(0, 3),
    st.booleans(),
    st.floats(0, 2, allow_subnormal=False),
    st.floats(0, 20, allow_subnormal=False),
)
@settings(max_examples=200, derandomize=True)
def test_there_is_always_exactly_one_first_cause(model, step, workers, cut, gpu, share, ready) -> None:
    it = case(
        raced(cut, workers, step),
        best=raced(cut, 4, step / 2),
        waited=step / 2,
        signals=signals(
            foreign_cores=share, watched_cores=2, throttled=min(share, 1.0), gc_share=min(share, 1.0), ready=ready
        ),
        model=model,
        host=GPU if gpu else CPU,
    )
    found = causes(it.report, it.current, it.best)
    assert found[0].id in PRIMARY and len({notice.id for notice in found}) == len(found)


def test_a_slower_model_ends_in_model_bound() -> None:
    order = [
        diagnose(planted_report(model=model), raced(3, 2, max(model, 30.0))).id for model in (5.0, 20.0, 30.0, 99.0)
    ]
    assert order == ["augment_cpu_bound", "augment_cpu_bound", "model_bound", "model_bound"]


def test_nothing_measured_but_times_names_nothing_but_stages() -> None:
    assert ids(Case(replace(planted_report(), stages=()), raced(3, 2, 40.0), candidate(0, 2))) == {"unverified"}
