"""Handmade reports: a race with a tie, an early exit, an interruption, and hostile names."""

from dataclasses import replace

import pytest

from audioaug.records import (
    Allocation,
    Candidate,
    Ceiling,
    ChainFacts,
    HostFacts,
    Measurement,
    Notice,
    Recommendation,
    Report,
    StageCost,
    Timing,
    Workload,
)

HOST = HostFacts(
    platform="Linux 6.8",
    cpu="AMD EPYC 9354",
    logical_cores=64,
    usable_cores=15.5,
    ram_bytes=128 << 30,
    ram_available_bytes=100 << 30,
    shm_bytes=16 << 30,
    open_files=1024,
    device="cuda:0",
    device_name="NVIDIA H100 80GB HBM3",
    vram_bytes=80 << 30,
    start_method="fork",
    torch_threads=1,
    versions={"python": "3.11.9", "torch": "2.6.0", "audiomentations": "0.43.1"},
)
LAPTOP = replace(HOST, cpu="Apple M3", device="cpu", device_name="", vram_bytes=None, logical_cores=8, usable_cores=8.0)
CHAIN = ChainFacts(
    ops=("Mp3Compression", "AddBackgroundNoise", "PitchShift", "Gain"), sample_rate=16000, hash="3f2a", device_from=1
)
WORK = Workload(
    model="mymodel.py:Wav2Small",
    parameters=7_431_210,
    batch_size=64,
    clip_seconds=4.0,
    sample_rate=16000,
    precision="fp32",
    dataset="bundled demo audio",
    clips=480,
    sources={"model": "mymodel.py", "augment": "mymodel.py", "dataset": "the bundled demo data"},
)


def candidate(cut, workers, predicted, measured=None, **more):
    """A candidate of a four-op chain; its usage follows from its step time."""
    ms = predicted if measured is None else measured
    known = {
        "placement": {0: "gpu", 4: "cpu"}.get(cut, "split"),
        "predicted_ci_ms": (predicted * 0.93, predicted * 1.06),
        "measured_ci_ms": None if measured is None else (measured * 0.993, measured * 1.005),
        "clips_per_second": 64e3 / ms,
        "stall": 1 - 38.0 / ms,
        "cpu_seconds_per_step": 0.02 + 0.15 * cut,
        "vram_bytes": 3_400_000_000 + 300_000_000 * (4 - cut),
        "status": "predicted" if measured is None else "raced",
    }
    return Candidate(cut=cut, num_workers=workers, predicted_ms=predicted, measured_ms=measured, **(known | more))


def recommendation(base, **more):
    """The candidate as a recommendation."""
    return Recommendation(**{name: getattr(base, name) for name in base.__dataclass_fields__}, **more)


def op_stages():
    """Four ops, measured in a worker and on the device with both engines if supported."""
    times = {"Gain": (0.61, 0.021, 0.34), "AddBackgroundNoise": (6.42, 0.183, 2.9), "PitchShift": (402.0, 2.13, 61.0)}
    for op, name in enumerate(CHAIN.ops):
        worker, ours, stock = times.get(name, (118.0, None, None))
        yield StageCost(name, "worker", worker, (worker * 0.98, worker * 1.03), op=op, engine="audiomentations")
        reason = "" if ours else "the codec runs only on the CPU"
        yield StageCost(name, "device", ours, op=op, engine="batched", reason=reason)
        reason = "" if stock else "no counterpart"
        yield StageCost(name, "device", stock, op=op, engine="torch-audiomentations", reason=reason)


@pytest.fixture
def race():
    """A GPU race: a split wins, ties with another, beats today's; some are only predicted, some infeasible."""
    best = candidate(2, 4, 40.9, 40.1, prefetch_factor=4, pin_memory=True)
    today = candidate(4, 2, 270.0, 284.0)
    slow = [candidate(3, workers, 180.0 + workers) for workers in (1, 2, 4, 6, 8, 10, 12, 14)]
    no_mp3 = "Mp3Compression runs only on the CPU"
    candidates = (
        candidate(0, 2, 44.0, None, status="infeasible", reason=no_mp3),
        candidate(0, 4, 44.0, None, status="infeasible", reason=no_mp3),
        candidate(1, 4, 41.5, 40.3),
        today,
        best,
        candidate(4, 15, 52.0, 55.9),
        candidate(2, 2, 43.0),
        candidate(1, 4, 99.0, 101.3, device_engine="torch-audiomentations"),
        *slow,
    )
    blocks = Timing((0.0402, 0.0401, 0.0400))
    return Report(
        host=HOST,
        chain=CHAIN,
        workload=WORK,
        complete=True,
        verdict="Split the chain at 2 with 4 workers: 40.1 ms a step instead of 284 ms, 7.1x faster "
        "(95 % interval 7.0 .. 7.2).",
        cause="augment_cpu_bound",
        ceiling=Ceiling(38.0, (37.8, 38.1), 1684.2),
        stages=(
            *op_stages(),
            StageCost("decode", "worker", 21.4, (21.0, 22.6)),
            StageCost("collate", "worker", 1.83),
            StageCost("transfer", "transfer", 0.42, engine="pinned"),
            StageCost("model step", "model", 38.0, (37.8, 38.1)),
            StageCost("page cache dropped", "worker", None, reason="not measured: --quick"),
        ),
        candidates=candidates,
        measurements=(Measurement(best.name, blocks, blocks, 25), Measurement(today.name, blocks, blocks, 25)),
        current=today,
        recommendation=recommendation(
            best,
            tie_with=("split at 1, 4 workers",),
            because="Workers spend 71 % of their time in PitchShift; on the GPU it would cost 2.1 ms of a 38 ms step.",
        ),
        before=Allocation(38.0, 0.0, 246.0),
        after=Allocation(38.0, 2.1, 0.0),
        cost_seconds=58.0,
        break_even_steps=2494,
        notices=(
            Notice("thread_oversubscription", "Workers ran with 1 torch thread each; your file asks for 8."),
            Notice("cpu_only_transform", "Mp3Compression keeps the start of the chain on the CPU."),
        ),
    )


@pytest.fixture
def early_exit():
    """A CPU-only machine where loading is not the bottleneck: no race, no change."""
    today = candidate(4, 2, 151.0, 150.4, status="predicted", vram_bytes=None, stall=0.011)
    return Report(
        host=LAPTOP,
        chain=CHAIN,
        workload=WORK,
        complete=True,
        verdict="Leave it as it is: data loading is not your bottleneck; the most you could gain is 1.1 %.",
        cause="model_bound",
        ceiling=Ceiling(148.8, (148.1, 149.3), 430.1),
        current=today,
        recommendation=recommendation(today),
        before=Allocation(148.8, 0.0, 1.6),
        cost_seconds=11.2,
        notices=(Notice("model_bound", "The model takes 99 % of each step."),),
    )


@pytest.fixture
def interrupted():
    """Stopped after the first stages: nothing predicted, nothing recommended."""
    return Report(host=HOST, chain=CHAIN, workload=WORK, stages=tuple(op_stages())[:4], cost_seconds=3.2)


@pytest.fixture
def bare():
    """Stopped before anything was measured."""
    return Report(host=HOST, chain=CHAIN, workload=WORK)


@pytest.fixture
def hostile(race):
    """The race with names that are hostile to each format."""
    evil = "<script>|alert(1)|</script>`[x](y)`\x1b[31m\n[bold]*"
    return replace(
        race,
        verdict=f"Use {evil} now.",
        chain=replace(CHAIN, ops=(evil, *CHAIN.ops[1:])),
        workload=replace(WORK, model=evil, dataset=evil, sources={evil: evil}),
        host=replace(HOST, device_name=evil, cpu=evil),
        candidates=(replace(race.candidates[0], reason=evil), *race.candidates[1:]),
        notices=(Notice("tie", evil),),
    )


@pytest.fixture(params=["race", "early_exit", "interrupted", "bare", "hostile"])
def report(request):
    """Each of them in turn."""
    return request.getfixturevalue(request.param)
