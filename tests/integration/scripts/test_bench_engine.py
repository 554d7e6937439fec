"""The benchmark of the engine: a tiny run from end to end, and what it makes of planted times."""

import functools
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_engine
import bench_engine_work as work
import numpy as np
import pytest
import torch
from bench_engine_records import (
    DEVICE_PART,
    LEAST,
    NATIVE,
    OURS,
    RECORDED,
    REFERENCE,
    TORCHAUDIO,
    Asked,
    OpCost,
    Result,
    Row,
    Size,
    WorkerEngines,
    Wrapper,
    geometric_mean,
)
from bench_engine_report import report
from bench_engine_work import COPY, FILTER, NOISE, VOCODER, passes_of

from audioaug import Chain, ops
from audioaug.advise.progress import Progress
from audioaug.core import CUSTOM_OPS, REGISTRY, Uniform
from audioaug.engine.torch_audiomentations import why_unavailable
from audioaug.measure import host_facts
from audioaug.ops import Identity
from audioaug.records import Timing, read_record
from tests.helpers.planted_time import LOOK, PlantedClock

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
TINY = Size(batch=2, seconds=0.5, sample_rate=16000, threads=1)

needs_torch_audiomentations = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


pytestmark = pytest.mark.timeout(1100)  # on a busy machine; where nothing else runs, seconds


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/bench_engine.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=500)


@functools.cache
def host():
    return host_facts(CPU)


def planted(name: str, ours: float, **others: float) -> Row:
    """Return a row of an op with three rounds, in which everything drifts together."""
    names = {"ta": NATIVE, "am": REFERENCE, "torchaudio": TORCHAUDIO}
    times = {OURS: ours, DEVICE_PART: ours, **{names[key]: t for key, t in others.items()}}
    timings = {key: Timing((t, 2 * t, 3 * t)) for key, t in times.items()}
    return Row(name, False, TINY, timings, {DEVICE_PART: Asked(3, (), 1000)}, 1e-3, (("aten::mul", 0.5),))


def text_of(*rows: Row) -> str:
    return report(Result(host(), "2026-01-01", 1e9, rows=rows))


# A tiny run


@needs_torch_audiomentations
def test_a_run_writes_a_table_and_json_and_can_be_shown_again(tmp_path: Path) -> None:
    tiny = ("--batch", "2", "--seconds", "0.5", "--threads", "1", "--seconds-per-op", "0", "--rounds", "2")
    json_ = str(tmp_path / "result.json")
    names = "Gain,BandPassFilter,Mp3Compression"
    done = script(*tiny, "--ops", names, "--no-chains", "--json", json_)
    assert done.returncode == 0, done.stderr
    result = read_record(json_, Result)
    rows = {row.name: row for row in result.rows}
    assert list(rows) == names.split(",")
    for name in ("Gain", "BandPassFilter"):
        assert {OURS, DEVICE_PART, REFERENCE, rows[name].rival} <= set(rows[name].times)
        assert all(len(timing.seconds) == 2 and min(timing.seconds) > 0 for timing in rows[name].times.values())
        assert rows[name].asked[DEVICE_PART].waits == () != rows[name].asked[rows[name].rival].waits
        assert rows[name].asked[DEVICE_PART].peak_bytes >= rows[name].batch_bytes and rows[name].hottest
        assert name in done.stdout
    assert not rows["Mp3Compression"].times and "LAME" in rows["Mp3Compression"].reasons[OURS]
    words = " ".join(done.stdout.split())
    assert "Not measured: LAME" in words.replace("Mp3Compression: ", "")
    assert "Over the 2 transforms that audiomentations has too" in words
    assert script("--load", json_).stdout == done.stdout


def test_chains_their_growth_and_the_worker_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench_engine.GROWTH, "cpu", {"batch": (2, 4), "seconds": (0.5, 1), "ops": (1, 2)})
    options = bench_engine.Options(TINY, CPU, ("Identity",), True, False, 0.0, 2)
    before = torch.get_num_threads()
    *_, result = bench_engine.run(options, Progress(quiet=True))
    assert torch.get_num_threads() == before
    assert [row.name for row in result.rows] == ["Identity", "light", "speech", "music"]
    assert all(row.asked[DEVICE_PART].waits == () for row in result.rows)
    assert [fit.chain for fit in result.exponents] == ["light", "speech", "music"]
    assert [pair.chain for pair in result.workers] == ["light", "speech", "music", "demo"]
    assert {pair.workers for pair in result.workers} == {TINY.threads}
    text = report(result)
    assert "Whole chains in 1 DataLoader worker:" in text and "*music*: batch ^" in text
    assert "One more op costs the host" in text and "| all examples get it |" in text
    assert {name for name in ("light", "speech", "music") if f"| {name} | {TINY} |" in text} == {
        "light",
        "speech",
        "music",
    }


# Worker engines


def test_worker_engines_take_turns_in_workers_that_end_with_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, measured, others = [], work.measure_loader, {*multiprocessing.active_children()}

    def watched(loader, *arguments, **options):
        assert {*multiprocessing.active_children()} <= others
        feeder = iter(loader)
        next(feeder)
        turns.append((loader.plan.worker_engine, loader.plan.cut, loader.capacity, len(loader.workers)))
        feeder.close()
        # Queued batches and the first batches of each worker are discarded.
        assert options["discard"] == work.DISCARDED * 2 > loader.capacity
        assert options["block_batches"] == work.TIMED * 2
        return measured(loader, *arguments, **options)

    monkeypatch.setattr(work, "measure_loader", watched)
    monkeypatch.setattr(work, "usable_cores", lambda: 2.5)
    chain = work.declared_chains(16000)["speech"]
    pair = work.worker_engines("speech", chain, replace(TINY, threads=8), 0.0, 2)
    assert turns == [("batched", 10, 4, 2), ("audiomentations", 10, 4, 2)] * 2
    assert pair.workers == 2 and len(pair.ratios) == 2 and min(pair.batched.seconds) > 0
    assert {*multiprocessing.active_children()} <= others


@pytest.mark.parametrize(("theirs", "verdict"), [(9.0, "met"), (1.5, "missed")])
def test_the_verdict_on_the_worker_engines(theirs: float, verdict: str) -> None:
    pair = WorkerEngines("speech", Timing((0.5, 1.0, 2.0)), Timing((0.5 * theirs, theirs, 40.0)), workers=3)
    text = report(Result(host(), "", 1e9, rows=(Row("speech", True, TINY),), workers=(pair,)))
    assert "Whole chains in 3 DataLoader workers" in text and "| speech | 1,000 | 2 |" in text
    assert f"| {theirs:.2f} ({theirs:.2f} to 20.00 in 3 turns) | at least 8: {verdict} |" in text


def test_growth_is_measured_on_any_device() -> None:
    assert bench_engine.sizes_that_grow(torch.device("mps")) == bench_engine.GROWTH["cpu"]
    assert bench_engine.sizes_that_grow(torch.device("cuda", 1)) == bench_engine.GROWTH["cuda"]


def test_sizes_beyond_memory_are_skipped_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_engine, "SWEEP", {"batch": (2, 4, 2**30), "seconds": (0.5, 3600.0)})
    monkeypatch.setattr(bench_engine, "free_bytes", lambda device: 10**12)
    monkeypatch.setattr(bench_engine, "measure", lambda name, work, size, *_: replace(planted(name, 1e-3), size=size))
    options = bench_engine.Options(TINY, CPU, ("Gain",), False, True, 0.0, 1, most_seconds=0.5)
    *_, result = bench_engine.run(options, Progress(quiet=True))
    small, larger, huge, long = result.rows
    assert small.times and larger.times and larger.size.batch == 4
    assert "of memory, and 931.3 GiB are free" in huge.reasons[OURS] and "would take" in long.reasons[OURS]
    text = report(result)
    assert "Not measured: Gain, 1073741824 x 0.5 s x 16 kHz, 1 thread: may need" in text


def test_memory_estimate_grows_with_samples() -> None:
    row, twice = planted("Gain", 1.0, ta=3.0, am=100.0), replace(TINY, batch=4)
    row.times[RECORDED["torch_compile"]] = Timing((100.0,))
    calls = 3 + bench_engine.CALLS_BESIDE
    assert bench_engine.expected_seconds(row, twice, 3) == pytest.approx(calls * 2 * 2 * (1 + 1 + 3))
    assert bench_engine.why_not("Gain", twice, CPU, [row], 1e6, 3) == ""
    far = replace(row, size=replace(TINY, seconds=1e-3))  # of which much does not grow
    assert bench_engine.why_not("Gain", twice, CPU, [far, row], 300.0, 3) == ""
    assert "would take" in bench_engine.why_not("Gain", twice, CPU, [far], 300.0, 3)


def test_other_sizes_of_a_sweep_do_not_count_in_the_mean() -> None:
    asked = planted("Gain", 1.0, ta=2.0)
    text = text_of(asked, replace(planted("Gain", 9.0, ta=9.0), size=replace(TINY, batch=9)))
    assert "audioaug is 2.00x faster in the geometric mean" in text


def test_the_least_is_timed_beside_the_engines() -> None:
    assert passes_of(["Gain", "HighPassFilter", "ApplyImpulseResponse", "Clip", "LowPassFilter"]) == [FILTER, FILTER]
    assert passes_of(["Gain", "Clip"]) == [COPY]
    assert passes_of(["AddGaussianSNR", "AddColorNoise", "Gain", "PitchShift"]) == [NOISE, NOISE, FILTER, VOCODER]
    row = bench_engine.measure("Gain", work.declared_ops(["Gain"], 16000)["Gain"], TINY, CPU, 1e9, 0.0, 2)
    assert min(row.times[LEAST].seconds) > 0 and len(row.times[LEAST].seconds) == len(row.times[OURS].seconds)
    assert LEAST not in bench_engine.measure("x", Identity(p=1.0), TINY, CPU, 1e9, 0.0, 2).times


def test_the_bound_is_torch_audiomentations_over_the_least() -> None:
    row = planted("Gain", 1.0, ta=8.0)
    row = replace(row, times={**row.times, LEAST: Timing((0.5, 1.0, 1.5))})
    assert "audioaug is 8.00x faster" in text_of(row) and "would be 16.0x faster" in text_of(row)


@pytest.mark.parametrize("engine", ["cuda_graph", "torch_compile"])
def test_recorded_engines_take_part(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "GRAPH_BATCHES", 5)
    chain = Chain(list(work.declared_ops(["Gain", "Reverse"], 16000).values()), 16000)
    row = bench_engine.measure("light", chain, TINY, CPU, 1e9, 0.0, 2, (engine,))
    assert row.replayed == {RECORDED[engine]: 1.0 if engine == "torch_compile" else 0.0}
    assert f"| audioaug, {engine} | light | 2 x 0.5 s" in text_of(row)


def test_recorded_engines_take_no_part_at_other_sizes_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, tuple[str, ...]]] = []

    def note(name, work, size, device, copy_speed, seconds, rounds, also) -> Row:
        asked.append((name, size.batch, also))
        return Row(name, True, size)

    monkeypatch.setattr(bench_engine, "SWEEP", {"batch": (2, 4)})
    monkeypatch.setattr(bench_engine, "measure", note)
    options = bench_engine.Options(TINY, CPU, (), True, True, 0.0, 1, also=("torch_compile",))
    steps = bench_engine.run(options, Progress(quiet=True))
    rows = next(result.rows for result in steps if len(result.rows) == len(REGISTRY) + 1 + 6)
    assert [(row.name, row.size.batch) for row in rows] == [entry[:2] for entry in asked]
    chains = ("light", "speech", "music")
    assert asked[-6:] == [*((name, 2, ("torch_compile",)) for name in chains), *((name, 4, ()) for name in chains)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--ops", "Gian"), "error: There is no op 'Gian'. Did you mean Gain?"),
        (("--also", "compile"), "error: --also knows no 'compile'. Did you mean torch_compile?"),
        (("--load", "missing.json"), "error: Cannot read missing.json: No such file or directory."),
        (("--batch", "1"), "Invalid value for '--batch'"),
    ],
)
def test_a_mistake_is_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = script(*arguments)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr


# The wrapper


@pytest.fixture
def spins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[..., Any]]:
    """Plant the time of the core: work takes as long as is said here, and a look at the clock ``LOOK``."""
    clock = PlantedClock()
    monkeypatch.setattr(work, "CoreClock", lambda: clock)

    def slower(work: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        return lambda *arguments: (clock.advance(seconds), work(*arguments))[1]

    return slower


@pytest.mark.parametrize(
    ("slow", "kind", "method"),
    [("draw", Uniform, "from_uniform"), ("prepare", work.Nothing, "resolve"), ("run", work.Nothing, "batched")],
)
@pytest.mark.parametrize("p", [1.0, 0.5])
def test_costs_are_assigned_to_host_or_device(slow, kind, method, p, spins, monkeypatch) -> None:
    monkeypatch.setattr(kind, method, spins(getattr(kind, method), 1e-3))
    cost = work.op_cost(work.Nothing(p=p), 16, CPU, 0.0, 3)
    calls = 3 if slow == "draw" else 1  # one for each of its numbers
    for part in ("draw", "prepare", "run"):
        planted = 1e-3 * calls if part == slow else 0.0
        assert getattr(cost, part).median == pytest.approx(planted)
    assert cost.whole.median == pytest.approx(1e-3 * calls)


def test_waiting_costs_nothing() -> None:
    clock, begin = work.CoreClock(), time.perf_counter()
    before = clock.now()
    time.sleep(0.05)
    assert 0 <= clock.now() - before <= time.perf_counter() - begin - 0.05


def test_the_wrappers_op_is_in_no_list_of_ops() -> None:
    assert work.Nothing not in [*REGISTRY.values(), *CUSTOM_OPS.values()]


def test_preparing_is_timed_for_every_device_op(spins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Identity, "resolve", spins(Identity.resolve, 0.2))
    names = ("Gain", "Identity", "Mp3Compression", "ShuffleChannels")
    declared = work.declared_ops(list(names), 16000)
    monkeypatch.setattr(work, "declared_ops", lambda names, rate: declared)
    found = work.prepare_seconds(TINY, 0.0)
    assert found == pytest.approx({"Gain": LOOK, "Identity": LOOK + 0.2, "ShuffleChannels": LOOK})


@pytest.mark.parametrize(("half", "verdict"), [(59e-6, "met"), (61e-6, "missed")])
def test_the_verdict_on_the_wrapper(half: float, verdict: str) -> None:
    def cost(whole: float) -> OpCost:
        draw, prepare = Timing((1e-6, 2e-6, 3e-6)), Timing((4e-6, 5e-6, 6e-6))
        return OpCost(draw, prepare, Timing((whole - 5e-6, whole - 7e-6, whole - 9e-6)))

    seconds = {name: 1e-3 * place for place, name in enumerate("ABCDEF", 1)}
    found = Wrapper(cost(20e-6), cost(half), seconds)
    text = report(Result(host(), "", 1e9, rows=(Row("speech", True, TINY),), wrapper=found))
    assert "| all examples get it | 20.0 | 0 | 2.00 | 5.00 | 13.0 |" in text
    assert (
        f"| half of them get it | {half * 1e6:.1f} | 0 |" in text and f"goal of less than 60 us is {verdict})" in text
    )
    assert "for F 6,000 us, E 5,000 us, D 4,000 us, C 3,000 us, B 2,000 us:" in text


# The engines


@needs_torch_audiomentations
@pytest.mark.parametrize("name", work.COUNTERPARTS)
def test_the_other_library_does_something_to_every_clip(name: str) -> None:
    op = work.declared_ops([name], 16000)[name]
    seconds = 4.0 if name == "SpliceOut" else 0.5  # it raises where nothing may be left of a clip
    x_BCT = work.speech(replace(TINY, batch=8, seconds=seconds), work.CHANNELS.get(name, 1))
    y_BCT = work.native(Chain([op], 16000), x_BCT)()
    assert isinstance(y_BCT, torch.Tensor) and y_BCT.shape == x_BCT.shape and y_BCT.isfinite().all()
    changed = (y_BCT != x_BCT).flatten(1).any(1)
    assert {"Identity": not changed.any(), "ShuffleChannels": bool(changed.any())}.get(name, bool(changed.all()))


@needs_torch_audiomentations
def test_torchaudio_plays_every_clip_at_a_rate_of_its_own() -> None:
    x_BCT = torch.randn(12, 1, 8000, generator=torch.Generator().manual_seed(0))
    run = work.by_torchaudio(Chain([work.declared_ops(["Speed"], 16000)["Speed"]], 16000), x_BCT)
    assert run is not None
    y_BCT = run()
    assert isinstance(y_BCT, torch.Tensor) and y_BCT.shape == (12, 1, 8889)
    ends = {8889 - int((row_CT[0].flip(0) != 0).int().argmax()) for row_CT in y_BCT}
    assert ends == {7273, 8000, 8889} and any(torch.equal(y[:, :8000], x) for y, x in zip(y_BCT, x_BCT))


def test_torchaudio_takes_no_part_in_other_ops_and_chains() -> None:
    x_BCT, kaldi = torch.zeros(2, 1, 9), work.declared_ops(["Speed"], 16000)["Speed"]
    for some in ([ops.Gain()], [ops.Speed()], [kaldi, kaldi]):
        assert work.by_torchaudio(Chain(some, 16000), x_BCT) is None


def test_all_ops_are_there_and_always_applied() -> None:
    declared = work.declared_ops([], 16000)
    assert set(declared) == {*REGISTRY, work.IMAGE_SOURCES} and all(op.p == 1.0 for op in declared.values())
    assert all(op.p == 1.0 for chain in work.declared_chains(16000).values() for op in chain.ops)


def test_the_batch_is_real_and_every_clip_another() -> None:
    x_BCT = work.speech(Size(16, 0.5, 48000, 1))
    assert x_BCT.shape == (16, 1, 24000) and len(x_BCT.unique(dim=0)) == 16
    assert work.speech(TINY, channels=2).shape == (1, 2, 8000)


# What is made of times


def test_losses_are_printed_like_wins() -> None:
    text = text_of(planted("Gain", 1.0, ta=0.5, am=8.0), planted("Clip", 1.0, ta=8.0, am=0.5))
    said = "Over the 2 transforms that {} has too, audioaug is 2.00x faster in the geometric mean."
    assert said.format(NATIVE) in text and said.format(REFERENCE) in text
    assert f"| Gain | {NATIVE} | 2,000 | 1,000 | **0.50** |" in text
    assert f"| Clip | {REFERENCE} | 2,000 | 1,000 | **0.50** |" in text


def test_torchaudio_has_a_column_where_it_was_measured_only() -> None:
    without, text = (
        text_of(planted("Gain", 1.0, ta=2.0)),
        text_of(planted("Gain", 1.0), planted("Speed", 1.0, torchaudio=0.5)),
    )
    assert "torchaudio ms" not in without and "| torchaudio ms | factor |" in text
    assert "| Speed | 2,000 | - | - | - | - | 1,000 | **0.50** |" in text
    assert "Over the 1 transform that torchaudio has too, audioaug is 2.00x slower in the geometric mean." in text
    assert f"| Speed | {TORCHAUDIO} | 2,000 | 1,000 | **0.50** |" in text


def test_run_without_measurements_says_why() -> None:
    assert "Not measured: LAME" in text_of(Row("Mp3Compression", False, TINY, reasons={OURS: "LAME"}))


def test_a_mean_below_one_is_called_slower() -> None:
    assert "audioaug is 4.00x slower in the geometric mean" in text_of(planted("Gain", 1.0, ta=0.25))


def test_an_op_that_one_of_them_lacks_does_not_count() -> None:
    assert "Over the 1 transform that torch" in text_of(planted("Gain", 1.0, ta=2.0), planted("Clip", 1.0))


def test_a_busy_machine_is_named() -> None:
    cores = host().usable_cores
    rows = (planted("Gain", 1.0),)
    calm, busy = (report(Result(host(), "", 1e9, load, rows)) for load in (cores, cores + 9.0))
    assert "Other programs" not in calm and f"Other programs used the cores too** (load {cores + 9.0:.1f} on" in busy


def test_ratios_are_taken_round_by_round() -> None:
    row = replace(planted("Gain", 1.0), times={OURS: Timing((1.0, 10.0)), REFERENCE: Timing((2.0, 20.0))})
    assert row.over_ours(REFERENCE) == 2.0 and row.over_ours(NATIVE) is None


def test_geometric_mean() -> None:
    assert geometric_mean({"a": 0.5, "b": 2.0, "c": 8.0}) == pytest.approx(2.0) and np.isnan(geometric_mean({}))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5])
def test_growth_is_the_exponent_that_was_planted(exponent: float) -> None:
    times = {f"batch {n}": Timing((3.0 * n**exponent,)) for n in (8, 16, 32)}
    assert bench_engine._slope((8, 16, 32), "batch", times) == pytest.approx(exponent)
