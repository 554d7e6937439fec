"""The experiments: their command lines, and what they make of planted times. The notebooks' tests run them for real."""

import importlib
import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from experiment_crossover import (
    CPU,
    GPU,
    Crossover,
    Net,
    circle,
    crossing,
    epoch_of,
    judged,
    network,
    parameters,
    with_recorded,
)
from experiment_crossover import claims as crossover_claims
from experiment_knobs import (
    CHAIN,
    KNOBS,
    accumulate,
    declared_chain,
    ladder,
    resized,
    setting,
    shares,
    torch_setup,
    watch,
)
from experiment_knobs import SAYS as KNOB_SAYS
from experiment_shared import MODEL, VERDICTS, Claim, Setup, graded, judge, race_setups, speed
from experiment_throughput import TURNS, Choice, Way, counts, works
from listening import hear, spectrogram_db

from audioaug import Chain, ops
from audioaug.advise.model_file import load_training_job
from audioaug.errors import MeasurementError
from audioaug.measure import FakeClock, WallClock, host_facts
from audioaug.records import Candidate, Timing, write_record
from audioaug.verify.material import signals

ROOT = Path(__file__).parents[3]
SCRIPTS = ("experiment_placement", "experiment_knobs", "experiment_crossover", "experiment_throughput")
DEVICE = torch.device("cpu")

each_script = pytest.mark.parametrize("name", SCRIPTS)


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"scripts/{name}.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=500)


# The command lines


def invoked(name: str, *arguments: str):
    return CliRunner().invoke(importlib.import_module(name).main, arguments)


@each_script
def test_each_script_explains_itself(name: str) -> None:
    done = invoked(name, "--help")
    assert done.exit_code == 0
    assert all(option in done.stdout for option in ("--quick", "--device", "--json", "--load"))


@each_script
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--load", "missing.json"), "error: Cannot read missing.json: No such file or directory."),
        (("--json", "missing/result.json"), "error: Cannot write missing/result.json: No such file or directory."),
        (("--quick", "--device", "tpu"), "error: "),
    ],
)
def test_a_mistake_is_a_sentence_before_anything_is_measured(
    name: str, arguments: tuple[str, ...], sentence: str
) -> None:
    done = invoked(name, *arguments)
    assert done.exit_code and sentence in done.stderr and isinstance(done.exception, SystemExit)


def test_a_trace_that_cannot_be_written_is_a_sentence_too() -> None:
    done = invoked("experiment_throughput", "--trace", "missing/trace.json")
    assert done.exit_code == 2 and "error: Cannot write missing/trace.json" in done.stderr


@pytest.mark.timeout(1100)
def test_a_script_measures_writes_and_shows_again(tmp_path: Path) -> None:
    path = str(tmp_path / "result.json")
    done = script("experiment_crossover", "--quick", "--json", path)
    assert done.returncode == 0, done.stderr
    assert "points in a circle ..." in done.stderr and "D1  The GPU overtakes the CPU" in done.stdout
    assert script("experiment_crossover", "--load", path).stdout == done.stdout


# Claims


@each_script
def test_claims_have_ids_of_their_experiment(name: str) -> None:
    says = importlib.import_module(name).SAYS
    letter = {"placement": "A", "knobs": "B", "throughput": "C", "crossover": "D"}[name.removeprefix("experiment_")]
    assert list(says) == [f"{letter}{number}" for number in range(1, 1 + len(says))]


def test_a_claim_without_a_finding_is_an_error() -> None:
    assert judge({"B1": "says"}, {"B1": ("found", "no")}) == (Claim("B1", "says", "found", "no"),)
    with pytest.raises(KeyError):
        judge(KNOB_SAYS, {"B1": ("found", "no")})


def test_verdicts_follow_the_measurements() -> None:
    assert [graded(True, True), graded(True, False), graded(False, False)] == ["yes", "in part", "no"]
    assert {"yes", "in part", "no"} < set(VERDICTS)


# Races


def planted_setup(name: str, clock: FakeClock, seconds: float, clips: int = 1) -> Setup:
    return Setup(name, lambda: iter(range(10**6)), lambda _: clock.advance(seconds), clips)


def test_a_planted_speed_is_found_for_every_batch_size() -> None:
    clock = FakeClock()
    slow, fast = planted_setup("slow", clock, 0.4), planted_setup("fast", clock, 0.2, clips=2)
    found = race_setups([slow, fast], clock, 10, 0.6, 3)
    result = speed(fast, slow, found)
    assert result.times == pytest.approx(4) and result.times_ci == pytest.approx((4, 4))
    assert result.clips_per_second == pytest.approx(10) and result.clearly_faster
    assert not speed(slow, fast, found).clearly_faster


def test_an_arm_that_fails_is_an_error() -> None:
    clock = FakeClock()
    turns = iter(range(100))

    def step(_: object) -> None:
        clock.advance(0.1)
        if next(turns) > 4:
            raise ValueError("no")

    with pytest.raises(MeasurementError, match="no"):
        race_setups([Setup("broken", lambda: iter(range(100)), step, 1)], clock, 1, 0.6, 3)


def test_threads_are_those_of_the_arm_and_put_back() -> None:
    usual, seen = torch.get_num_threads(), dict[str, int]()

    def setup(name: str, threads: int | None) -> Setup:
        return Setup(
            name, lambda: iter(range(10**6)), lambda _: seen.update({name: torch.get_num_threads()}), 1, 2, threads
        )

    race_setups([setup("own", usual + 1), setup("usual", None)], WallClock(), 0, 1e-6, 2)
    assert seen == {"own": usual + 1, "usual": usual} and torch.get_num_threads() == usual


# Knobs


def test_the_ladder_leads_from_the_default_to_the_plan_a_knob_at_a_time() -> None:
    default = Candidate("cpu", 5)
    plan = Candidate("split", 3, "batched", num_workers=2, threads=1, pin_memory=True)
    rungs = ladder(default, plan, 5)
    assert [knob for knob, _ in rungs] == ["num_workers", "worker engine", "placement", "threads", "pin_memory"]
    assert rungs[-1][1] == plan
    for before, (knob, after) in zip([default, *(candidate for _, candidate in rungs)], rungs, strict=False):
        changed = {name for name in vars(default) if getattr(before, name) != getattr(after, name)} - {"placement"}
        assert changed and changed <= set(KNOBS[knob])
        assert setting(knob, after)
    assert ladder(default, default, 5) == []


def test_shares_sum_to_one_and_are_logarithmic() -> None:
    assert shares([2.0, 4.0]) == pytest.approx([0.5, 0.5])
    assert shares([3.0, 1.5, 6.0]) == pytest.approx([0.6131, -0.3869, 0.7737], abs=1e-3)
    assert sum(shares([3.0, 1.5, 6.0])) == pytest.approx(1)


@pytest.fixture(scope="module")
def target():
    return load_training_job(str(MODEL), DEVICE, batch_size=4)


def test_the_default_loader_augments_in_its_dataset(target) -> None:
    chain = declared_chain(CHAIN)
    assert [op.name for op in chain.ops] == [op.name for op in Chain.from_yaml(CHAIN).ops]
    wave_BCT, label_B = next(torch_setup("default", replace(target, chain=chain)).feed())
    assert wave_BCT.shape == (4, 1, 16000) and label_B.shape == (4,)
    dry_BCT, _ = next(torch_setup("dry", replace(target, chain=Chain([], 16000))).feed())
    assert not torch.equal(wave_BCT, dry_BCT)  # the same clips, since the order is seeded


def test_an_accumulated_step_is_that_of_the_whole_batch(target) -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = replace(target, model=model, optimizer=optimizer, precision="fp32")
    batch = torch.randn(8, 1, 8), torch.randint(2, (8,))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    plain.step(batch)
    whole = [parameter.detach().clone() for parameter in model.parameters()]
    model.load_state_dict(start)
    accumulate(plain, [tuple(part[:4] for part in batch), tuple(part[4:] for part in batch)])
    for expected, got in zip(whole, model.parameters(), strict=True):
        assert torch.allclose(expected, got, atol=1e-6) and not torch.equal(got, start["1.weight"])


def test_batches_are_resized_by_repeating_their_examples() -> None:
    wave, label = resized((torch.arange(6).reshape(3, 2), torch.arange(3)), 7)
    assert label.tolist() == [0, 1, 2, 0, 1, 2, 0] and wave.shape == (7, 2)


def test_watching_leaves_threads_and_sees_steps(target, monkeypatch) -> None:
    before, looks = torch.get_num_threads(), itertools.count()
    monkeypatch.setattr("experiment_knobs.time", SimpleNamespace(monotonic=lambda: 0.05 * next(looks)))
    setup = replace(torch_setup("default", replace(target, chain=Chain([], 16000))), threads=1)
    windows = watch(setup, DEVICE, 0.2)
    assert sum(window.steps for window in windows) >= 3 and torch.get_num_threads() == before


# The crossover


def planted_nets(cpu: list[float], gpu: list[float]) -> tuple[Net, ...]:
    jitter = (0.99, 1.0, 1.01)
    return tuple(
        Net(k, 10**k, {CPU: Timing(tuple(c * j for j in jitter)), GPU: Timing(tuple(g * j for j in jitter))})
        for k, (c, g) in enumerate(zip(cpu, gpu, strict=True), 1)
    )


def crossed(nets: tuple[Net, ...]):
    return crossing([n.parameters for n in nets], [n.epoch[CPU] for n in nets], [n.epoch[GPU] for n in nets])


def test_a_planted_crossing_is_found_with_an_interval_around_it() -> None:
    found = crossed(planted_nets([1, 10, 100, 1000], [30, 31, 32, 33]))
    assert found.at == pytest.approx(10**2.5, rel=0.05)  # 10 x in time is 10 x in size; 100 meets 32 half-way
    assert found.interval[0] < found.at < found.interval[1] and found.interval[1] / found.interval[0] < 1.2


def test_no_crossing_where_one_is_always_faster() -> None:
    assert crossed(planted_nets([1, 2], [3, 4])) == crossing([1, 2], [Timing((1.0,))] * 2, [Timing((2.0,))] * 2)
    assert crossed(planted_nets([1, 2], [3, 4])).ahead == CPU and crossed(planted_nets([3, 4], [1, 2])).ahead == GPU


def test_the_last_change_counts() -> None:
    found = crossed(planted_nets([2, 1, 1, 9], [1, 3, 3, 3]))
    assert 10**3 < found.at < 10**4


def test_without_a_gpu_nothing_is_invented_and_a_record_is_labelled(tmp_path: Path) -> None:
    host = host_facts(DEVICE)
    nets = planted_nets([1, 10, 100, 1000], [30, 31, 32, 33])
    here = Crossover(host, nets=tuple(replace(net, epoch={CPU: net.epoch[CPU]}) for net in nets))
    assert with_recorded(here, tmp_path) == here
    assert judged(here).crossing is None and crossover_claims(here)[0].holds == "not tested"
    write_record(Crossover(host, gpu="A Card", nets=nets[1:]), tmp_path / "crossover_card.json")
    joined = judged(with_recorded(here, tmp_path))
    assert joined.recorded and GPU not in joined.nets[0].epoch and joined.nets[1].epoch == nets[1].epoch
    assert joined.crossing is not None and "A Card, recorded on another machine" in joined.claims[0].found
    assert joined.claims[0].holds == "no"  # at 320 parameters


def test_the_networks_and_the_points_are_the_published_ones() -> None:
    assert parameters(network(10)) == pytest.approx(7e5, rel=0.01)
    layers = [part for part in network(3) if isinstance(part, torch.nn.Linear)]
    assert [(part.in_features, part.out_features) for part in layers] == [(2, 4), (4, 8), (8, 2)]
    points_N2, inside_N = circle()
    assert points_N2.shape == (1000, 2) and inside_N.float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert points_N2.mean(0).abs().max() < 1e-6 and torch.allclose(points_N2.std(0), torch.ones(2))


def test_an_epoch_trains() -> None:
    model = network(4)
    points_N2, inside_N = circle()
    epoch = epoch_of(model, DEVICE)
    before = torch.nn.functional.cross_entropy(model(points_N2), inside_N).item()
    for _ in range(30):
        epoch()
    assert torch.nn.functional.cross_entropy(model(points_N2), inside_N).item() < 0.9 * before


# Throughput


def test_throughput_and_gains_are_paired() -> None:
    slow, fast = Way("slow", 100, Timing((1.0, 2.0, 4.0))), Way("fast", 100, Timing((0.5, 1.0, 2.0)))
    assert slow.examples_per_second == 50 and slow.time_to_train == 20
    gain = fast.over(slow)
    assert (gain.value, gain.low, gain.high) == pytest.approx((2, 2, 2))


def test_a_choice_is_made_only_where_intervals_do_not_meet() -> None:
    near = {"cpu": Timing((1.0, 2.0, 3.0)), "gpu": Timing((1.5, 2.5, 3.5))}
    far = {"cpu": Timing((1.0, 2.0, 3.0)), "gpu": Timing((5.0, 6.0, 7.0))}
    assert Choice("", "", near).fastest == "either" and Choice("", "", far).fastest == "cpu"
    assert Choice("", "", {"cpu": Timing((1.0,))}).fastest == ""


def test_the_branching_work_branches() -> None:
    both = works(DEVICE, 100)
    branching = next(work for name, (_, work) in both.items() if name.startswith(f"branching: {TURNS}"))
    result = branching()
    assert isinstance(result, torch.Tensor) and result.isfinite().all() and result.abs().sum() > 100


def test_one_two_four_and_all_processes_train() -> None:
    assert [counts(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


# Listening


def test_a_build_that_differs_is_heard_to() -> None:
    dry_T = signals(16000)[0][0]
    good = hear(ops.Gain(min_gain_db=3.0, max_gain_db=3.0, p=1.0), dry_T)
    assert good.kept and abs(good.built).max() > abs(dry_T).max()
    pytest.importorskip("torch_audiomentations")
    other = hear(ops.LowPassFilter(min_cutoff_freq=900.0, max_cutoff_freq=900.0, p=1.0), dry_T, "torch-audiomentations")
    assert not other.kept


def test_a_full_scale_sine_is_at_0_db_in_its_row() -> None:
    tone_T = torch.sin(2 * torch.pi * 2000 * torch.arange(16000) / 16000).numpy()
    levels_FW = spectrogram_db(tone_T)
    row = int(levels_FW[:, 50:-50].max(axis=1).argmax())
    assert levels_FW.max() == pytest.approx(0, abs=0.5)
    assert (row + 1) / len(levels_FW) * 8000 == pytest.approx(2000, abs=100)
