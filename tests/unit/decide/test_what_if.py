import math
import re
from dataclasses import replace

import pytest

from audioaug.decide.sliders import grid
from audioaug.decide.what_if import crossovers, parse, what_if
from audioaug.errors import UsageError
from tests.helpers.planted_reports import CPU, crowding, planted_report, raced


def test_an_epoch_of_one_clip_is_singular():
    report = planted_report(worker=(20, 80, 10), batched=(2, 8, 1), model=1.0)
    assert "An epoch of 1 clip would take " in what_if(report, {"clips": 1.0})[-1]


def test_values_are_read() -> None:
    assert parse("cores=16, step_ms=12.5") == ({"cores": 16.0, "step_ms": 12.5}, "")
    assert parse("gpu=a/b=c.json,clips=7") == ({"clips": 7.0}, "a/b=c.json")
    assert parse("") == ({}, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("core=16", r"Unknown --what-if 'core'. Did you mean cores\?"),
        ("step=3", r"Unknown --what-if 'step'. Did you mean step_ms\?"),
        (
            "nonsense",
            "Unknown --what-if 'nonsense'. Known: batch_size, clips, core_price, cores, gpu, machine_price, ",
        ),
        ("cores=", "cores=: must be a finite number above 0"),
        ("cores", "cores=: must be"),
        ("cores=many", "cores=many"),
        ("cores=0", "cores=0"),
        ("step_ms=-3", "step_ms=-3"),
        ("cores=inf", "cores=inf"),
        ("cores=nan", "cores=nan"),
        ("cores=8,step_ms=x", "step_ms=x"),
        ("clips=-1", "clips=-1"),
        ("remote=0", "--what-if remote=0: must be a finite number above 0."),
        ("remote=1.5", "--what-if remote=1.5: must be an integer from 1 to 10,000."),
        ("remote=10001", "--what-if remote=10001: must be an integer from 1 to 10,000."),
        ("ranks=65", "--what-if ranks=65: must be an integer from 1 to 64."),
        ("ranks=0.5", "--what-if ranks=0.5: must be an integer from 1 to 64."),
        ("remote=2,receive=-1", "--what-if receive=-1: must be a finite number above 0."),
        ("receive=400", "--what-if receive= has no effect without remote=. Add remote=N."),
        ("core_price=1", "--what-if core_price= has no effect without remote=. Add remote=N."),
        ("remote=2,machine_price=1", "--what-if machine_price= has no effect without core_price=. Add core_price=N."),
        ("gpu=", "gpu= needs a file: the --json report of an advisor run"),
    ],
)
def test_invalid_what_if_values_are_refused(text, message) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text)


def best_ms(report, **values) -> float:
    found = [float(re.search(r"would take ([\d.,]+) ms", line)[1].replace(",", "")) for line in what_if(report, values)]
    assert found == sorted(found)
    return found[0]


@pytest.mark.parametrize("host", [CPU, None])
def test_more_cores_never_hurt_and_help_a_loader(host) -> None:
    report = planted_report(worker=(20, 80, 10), device=(60, 60, 60), **({"host": host} if host else {}))
    times = [best_ms(report, cores=cores) for cores in (0.5, 1, 2, 4, 8, 16)]
    assert times == sorted(times, reverse=True) and times[0] > times[-1]


def test_batched_workers_are_considered() -> None:
    lines = what_if(planted_report(worker=(20, 80, 10), batched=(2, 8, 1), model=1.0), {"cores": 2.0})
    assert "split at 1 (batched workers), 2 workers" in lines[1]
    assert "all in the loader (batched workers), 2 workers would take 8.40 ms" in lines[2]


def test_ranks_share_the_cores_and_have_a_device_each() -> None:
    """Eight cores: two ranks have 4 workers each, 16 ranks half a core each, where a batch takes twice as long."""
    report = planted_report(worker=(20.0, 80.0, 10.0), device=(3.0, 4.0, 5.0))  # 5, 25, 105, 115 ms in a worker
    one, two, sixteen = ("\n".join(what_if(report, {"ranks": float(ranks)})) for ranks in (1, 2, 16))
    assert "split at 2, 8 workers would take 17.7 ms" in one  # 105 * 1.35 / 8
    assert "With ranks = 2, split at 1, 2 workers would take 19.0 ms" in two
    assert "all in the loader, 4 workers would take 33.1 ms" in two  # 115 * 1.15 / 4
    assert "split at 1, 1 worker would take 50.0 ms" in sixteen and "1 worker would take 22.0 ms" in sixteen
    assert what_if(report, {"ranks": 2.0})[:3] == tuple(
        line.replace("cores = 4", "ranks = 2") for line in what_if(report, {"cores": 4.0})
    )


def test_ranks_of_a_report_share_the_cores_of_all() -> None:
    report = planted_report()
    four = replace(report, host=replace(report.host, local_ranks=4))  # of eight cores each
    for ranks, cores in ((4, 8), (1, 32), (8, 4)):
        expected = [line.replace(f"cores = {cores}", "") for line in what_if(report, {"cores": float(cores)})]
        assert [line.replace(f"ranks = {ranks}", "") for line in what_if(four, {"ranks": float(ranks)})[:3]] == expected


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ((2.0, 8.0, 1.0), "with 5 or more ranks, at 1.6 cores each"),  # one worker: 10.8 ms, all on the device
        ((20.0, 80.0, 10.0), "even with 1 rank"),
        ((0.1, 0.1, 0.1), "with 16 or more ranks, at 0.5 cores each"),  # 5.3 ms in a worker
    ],
)
def test_from_how_many_ranks_loading_is_the_bottleneck(worker, words) -> None:
    report = planted_report(worker=worker)
    for ranks in (2.0, 16.0):
        assert what_if(report, {"ranks": ranks})[-1] == f"Loading would be the bottleneck {words} (predicted)."
    assert not any("Loading" in line for line in what_if(replace(report, host=CPU), {"ranks": 2.0}))


def test_enough_cores_for_any_number_of_ranks() -> None:
    report = planted_report(worker=(0.1, 0.1, 0.1), model=100.0)
    assert what_if(report, {"ranks": 3.0})[-1] == (
        "Loading would not be the bottleneck with up to 64 ranks (predicted)."
    )


def test_without_a_gpu_ranks_share_the_cores_with_their_models() -> None:
    """On one core for two ranks, without workers: (16 + 10) * 2."""
    report = planted_report(host=replace(CPU, usable_cores=1.0))
    text = "\n".join(what_if(report, {"ranks": 2.0}))
    assert "all on the device, 0 workers would take 31.6 ms" in text  # (5 + 10.8) * 2


def test_a_slower_step_takes_longer() -> None:
    times = [best_ms(planted_report(), step_ms=ms) for ms in (1, 5, 20, 100)]
    assert times == sorted(times) and times[-1] == pytest.approx(100, rel=0.02)


def test_each_sentence_repeats_the_question_and_says_that_it_is_a_prediction() -> None:
    lines = what_if(planted_report(), {"cores": 16.0, "step_ms": 12.0})
    assert len(lines) == 3  # all in the loader, split, all on the device
    assert all(line.startswith("With cores = 16, step_ms = 12, ") and line.endswith("(predicted).") for line in lines)


def test_of_equally_fast_worker_counts_the_fewest_is_named() -> None:
    lines = what_if(planted_report(model=1000.0), {"cores": 8.0})
    assert len(lines) == 3 and all(", 1 worker would take" in line for line in lines)


def test_a_huge_machine_is_predicted_quickly() -> None:
    assert what_if(planted_report(), {"cores": 1e12})


def test_without_stages_it_says_so() -> None:
    empty = replace(planted_report(), stages=(), loader_costs=())
    for report in (empty, replace(empty, ceiling=None)):
        (line,) = what_if(report, {"cores": 4.0})
        assert "no prediction" in line


def test_from_how_many_cores_up_the_loader_keeps_up() -> None:
    report = planted_report(worker=(20.0, 80.0, 10.0), device=(0.0, 0.0, 0.0), model=30.0)
    line, other = crossovers(report)
    cores = int(re.search(r"as fast as any placement with (\d+) or more cores \(predicted\)", line)[1])
    batch = 115.0
    needed = next(w for w in range(1, 64) if batch * (1 + 0.05 * (min(w, 8) - 1)) / w <= 1.03 * 30)
    assert math.isclose(cores, needed, abs_tol=1)
    assert other == (
        "Running the whole chain in the loader is as fast as any placement with this model's 30.0 ms step (predicted)."
    )


def test_from_which_model_step_up_the_loader_keeps_up() -> None:
    report = planted_report(worker=(20.0, 80.0, 10.0), device=(0.1, 0.1, 0.1), model=2.0)
    step_ms = float(re.search(r"with a model step of ([\d.]+) ms or more \(predicted\)", crossovers(report)[1])[1])
    assert step_ms == pytest.approx(115 * crowding(8) / 8 / 1.03, rel=0.03)


def test_a_profile_replaces_the_device() -> None:
    here = planted_report(worker=(20.0, 80.0, 10.0), device=(40.0, 40.0, 40.0), model=300.0, host=CPU)
    there = planted_report(worker=(1.0, 1.0, 1.0), device=(0.1, 0.5, 0.2), model=10.0)
    *lines, cores, step = what_if(here, {}, there)
    best = min(float(re.search(r"would take ([\d.]+) ms", line)[1]) for line in lines)
    assert best == pytest.approx(10.8, rel=0.05)  # all on the device: that machine's step, this machine's decoding
    assert all(line.startswith("With the model on planted, ") for line in lines)
    assert "or more cores" in cores and "model step of" in step
    twice = replace(there, workload=replace(there.workload, batch_size=64))  # its times are for batches twice as large
    assert what_if(here, {}, twice) != what_if(here, {}, there)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chain": replace(planted_report().chain, hash="other")}, "is of m.py with the chain other"),
        ({"workload": replace(planted_report().workload, model="n.py")}, "is of n.py with the chain hash"),
        ({"ceiling": None}, "has no stages"),
        ({"stages": ()}, "has no stages"),
    ],
)
def test_a_profile_of_something_else_is_refused(change, words) -> None:
    with pytest.raises(UsageError, match=words):
        what_if(planted_report(), {}, replace(planted_report(), **change))


def test_more_clips_make_the_epoch_longer_and_the_start_of_workers_cheaper() -> None:
    report = planted_report()
    report = replace(report, loader_costs=tuple(replace(it, first_batch_seconds=2.0) for it in report.loader_costs))
    few, many = (what_if(report, {"clips": float(clips)})[-1] for clips in (6400, 640_000))
    assert few.startswith("An epoch of 6,400 clips would take 2.0 s") and "would add 100 %" in few
    assert many.startswith("An epoch of 640,000 clips would take 3 min") and "would add 1.0 %" in many


def test_predictions_for_other_machines_have_intervals() -> None:
    found = [
        re.search(r"would take ([\d.]+) ms a step \(([\d.]+) \.\. ([\d.]+)\) \(predicted\)", line)
        for line in what_if(planted_report(), {"cores": 4.0})
    ]
    assert found and all(float(it[2]) < float(it[1]) < float(it[3]) for it in found)


@pytest.mark.parametrize("values", [{"cores": 8.0}, {"cores": 32.0}, {"step_ms": 20.0}, {"batch_size": 32.0}])
def test_sentences_equal_the_sliders_and_here_the_measurements(values) -> None:
    names = ("all in the loader, 1 worker", "all on the device, 1 worker")
    report = replace(planted_report(), candidates=(raced(3, 1, 32.0), raced(0, 1, 17.0)))
    found = grid(report)
    texts = {"cores": f"{values.get('cores', 8):g}", "step_ms": f"{values.get('step_ms', 10.0):.1f} ms"}
    cores, step = (axis["values"].index(texts[axis["name"]]) for axis in found["axes"][:2])
    times = dict(zip(found["candidates"], found["times"][cores * len(found["axes"][1]["values"]) + step], strict=True))
    said = dict(re.search(r"= [\d.]+, (.*) would take ([\d.]+) ms", line).groups() for line in what_if(report, values))
    both = [name for name in said if times.get(name) is not None]
    assert both and all(float(said[name]) == pytest.approx(times[name], rel=0.006) for name in both)
    if texts == {"cores": "8", "step_ms": "10.0 ms"}:
        assert [times[name] for name in names] == [32.0, 17.0]


def test_a_loader_that_never_keeps_up() -> None:
    (line,) = crossovers(planted_report(worker=(9e5, 1.0, 1.0), model=1.0))
    assert (
        line == "Running the whole chain in the loader would be slower on any machine with up to 64 cores (predicted)."
    )


def test_without_a_gpu_there_is_no_crossover() -> None:
    assert crossovers(planted_report(host=CPU)) == ()
    assert crossovers(replace(planted_report(), ceiling=None)) == ()
