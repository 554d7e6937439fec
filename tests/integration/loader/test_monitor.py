"""The monitor: what it measures with a planted clock, its messages and outputs, and its overhead."""

import json
import re
import sys
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from audioaug import Loader, Monitor, Plan
from audioaug.decide.bottleneck import Bottlenecks, bottleneck
from audioaug.errors import AudioaugWarning, OutputError, UsageError
from audioaug.internals import batches_ready
from audioaug.loader import monitor as monitor_module
from audioaug.measure import FakeClock, UsageSample, host_facts
from audioaug.monitor import read_log
from audioaug.records import MonitoredRun, Window
from audioaug.report.monitor import BAR_WIDTH, bar, known_meters, renderable
from audioaug.report.to_text import page_console
from tests.integration.loader.material import Words, exact_chain


class Planted:
    """Batches of four clips that take a planted time each."""

    capacity = 8

    def __init__(self, clock, seconds, ready=None):
        self.clock, self.seconds, self.ready = clock, seconds, ready

    def __iter__(self):
        for seconds in self.seconds:
            self.clock.advance(seconds)
            yield [torch.zeros(4, 10), torch.zeros(4)]


def wait_until(happened):
    """Wait for the workers, with a limit instead of hanging."""
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Kept(DataLoader):
    """A DataLoader that keeps its iterator."""

    def __iter__(self):
        self.running = super().__iter__()
        return self.running


def train(monitor, clock, seconds):
    for _ in monitor:
        clock.advance(seconds)


def test_window_sums_step_times():
    clock = FakeClock()
    monitor = Monitor(
        Planted(clock, [0.1] * 10, ready=3), device="cpu", ceiling_ms=20, live=False, every=1.0, clock=clock
    )
    with monitor:
        train(monitor, clock, 0.3)
    first, *_, last = monitor.windows
    assert (first.step, first.steps, last.step, last.steps) == (3, 3, 10, 1)
    for window in monitor.windows:
        assert window.step_ms == pytest.approx(400) and window.wait_ms == pytest.approx(100)
        assert window.stall == pytest.approx(0.25) and window.clips_per_second == pytest.approx(10)
        assert window.ceiling_share == pytest.approx(0.05) and window.ready == 3
    assert first.seconds == pytest.approx(1.2) and last.seconds == pytest.approx(4.0)
    assert first.ram_bytes > 1e7 and 0 < first.ram_percent < 100 and first.gpu_percent is None


def test_cpu_use_is_a_share_of_the_usable_cores(monkeypatch):
    clock = FakeClock()
    host = replace(host_facts(torch.device("cpu")), logical_cores=16, usable_cores=2.0)
    monkeypatch.setattr(monitor_module, "host_facts", lambda device: host)
    used = lambda device: UsageSample({1: clock.now(), 2: 0.5 * clock.now()}, 1, 1.0, None, None, None)  # noqa: E731
    monkeypatch.setattr(monitor_module, "sample", used)
    with Monitor(Planted(clock, [0.1] * 9), device="cpu", live=False, clock=clock) as monitor:
        train(monitor, clock, 0.5)
    assert [it.cpu_percent for it in monitor.windows] == pytest.approx([75.0] * len(monitor.windows))  # 1.5 of 2 cores


def test_time_between_epochs_is_not_counted():
    clock = FakeClock()
    monitor = Monitor(Planted(clock, [0.1] * 5), device="cpu", live=False, clock=clock)
    with monitor:
        train(monitor, clock, 0.1)
        clock.advance(100)  # validation
        train(monitor, clock, 0.1)
    assert sum(window.steps for window in monitor.windows) == 10
    assert all(window.step_ms == pytest.approx(200) for window in monitor.windows)


def window(stall, workers=(), **more):
    return Window(seconds=1.0, step=9, steps=9, step_ms=100.0, wait_ms=100 * stall, worker_percent=workers, **more)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (window(0.02, (95.0,)), "model_bound"),
        (window(0.6), "main_thread_bound"),
        (window(0.6, (30.0, 20.0), ready=2.0, cpu_percent=40.0), "main_thread_bound"),
        (window(0.6, (95.0, 97.0), ready=0.0, cpu_percent=98.0), "cores_full"),
        (window(0.6, (95.0, 97.0), ready=0.0, cpu_percent=40.0), "too_few_workers"),
        (window(0.6, (10.0, 20.0), cpu_percent=15.0), "fetch_bound"),
    ],
)
def test_bottleneck_of_a_window(seen, expected):
    assert bottleneck(seen) == expected


def test_lasting_change_of_bottleneck_is_reported_once():
    model, loading, following = window(0.02, (50.0,)), window(0.6), Bottlenecks()
    assert [following.follow(it) for it in (model, model, model, loading, model, loading, loading)] == [""] * 7
    assert following.settled == "model_bound"
    said = following.follow(loading)
    assert said.startswith("The bottleneck moved from the model's own step to the training process") and "60 %" in said
    assert [following.follow(it) for it in [loading] * 3] == [""] * 3
    assert "to the model's own step" in [following.follow(it) for it in [model] * 3][-1]
    assert [following.follow(it) for it in [loading] * 3 + [model] * 3] == [""] * 6  # back and forth: known


def test_warning_names_the_line_of_the_loop():
    clock = FakeClock()
    planted = Planted(clock, [0.0] * 20 + [2.0] * 20)
    with Monitor(planted, device="cpu", live=False, clock=clock) as monitor:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(monitor, clock, 1.0)
    assert [warning.category for warning in caught] == [AudioaugWarning]
    assert "moved from the model's own step to" in str(caught[0].message) and caught[0].filename == __file__
    assert [bool(it.message) for it in monitor.windows].count(True) == 1


def test_log_and_page_have_all_windows(tmp_path):
    clock = FakeClock()
    log, page = tmp_path / "run.jsonl", tmp_path / "run.html"
    with Monitor(
        Planted(clock, [0.1] * 9, ready=1), device="cpu", live=False, log=log, html=page, clock=clock
    ) as monitor:
        train(monitor, clock, 0.5)
    run, windows = read_log(log)
    assert (run, windows) == (monitor.run, monitor.windows) and run.capacity == 8
    assert json.loads(log.read_text().splitlines()[0])["schema_version"] == 2
    log.write_bytes(log.read_bytes()[:-5])  # as of a run that was killed
    assert read_log(log)[1] == windows[:-1]
    assert "17 % of the training was spent waiting for data" in page.read_text() and "http:" not in page.read_text()


def test_live_view_shows_last_window(capsys):
    clock = FakeClock()
    with Monitor(Planted(clock, [0.1] * 9), device="cpu", live=True, ceiling_ms=30, clock=clock) as monitor:
        train(monitor, clock, 0.5)
    shown = capsys.readouterr().err
    assert "step 9: 600 ms, 6.7 clips/s" in shown and "17 % of a step" in shown and "bottleneck: the training" in shown
    assert "RAM" in shown and "GPU" not in shown


@pytest.mark.parametrize("live", [None, False])
def test_one_closing_line_where_stderr_is_not_a_terminal(live, capsys):
    clock = FakeClock()
    with Monitor(Planted(clock, [0.1] * 9), device="cpu", live=live, clock=clock) as monitor:
        train(monitor, clock, 0.5)
    line = "audioaug.Monitor: 17 % of the training was spent waiting for data; the main bottleneck was "
    shown = capsys.readouterr().err
    assert (shown.startswith(line) and shown.count("\n") == 1) if live is None else shown == ""


def test_summary_is_numbers_only_and_leaves_out_what_is_unknown():
    clock = FakeClock()
    monitor = Monitor(Planted(clock, [0.1] * 9), device="cpu", ceiling_ms=30, live=False, clock=clock)
    assert monitor.summary() == {}
    with monitor:
        train(monitor, clock, 0.4)
    found = monitor.summary()
    assert all(isinstance(value, int | float) for value in found.values())
    assert (found["steps"], found["seconds"]) == (9, pytest.approx(4.5)) and found["step_ms"] == pytest.approx(500)
    assert found["wait_share"] == pytest.approx(0.2) and found["ceiling_share"] == pytest.approx(0.06)
    assert found["clips_per_second"] == pytest.approx(8) and "gpu_percent" not in found
    assert found["ram_bytes"] == max(window.ram_bytes for window in monitor.windows)
    shares = {name: share for name, share in found.items() if name.startswith("bottleneck/")}
    assert set(shares) == {"bottleneck/main_thread_bound"} and 0 < shares["bottleneck/main_thread_bound"] <= 1


def test_meter_marks_target_range():
    run = MonitoredRun(host_facts(torch.device("cpu")))
    (cpu,) = (it for it in known_meters(run, [window(0.0, cpu_percent=1.0)]) if it.name == "CPU")
    drawn = [bar(cpu, window(0.0, cpu_percent=percent)).plain for percent in (50.0, 70.0, 100.0)]
    assert drawn == ["#" * 15 + "..." + "=" * 6 + "." * 6, "#" * 18 + "+++===" + "." * 6, "#" * 18 + "+" * 6 + "#" * 6]


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_bars_of_meters_are_to_scale_on_narrow_terminals(width):
    seen = replace(window(0.0, cpu_percent=50.0), worker_percent=(100.0,), ram_percent=40.0, ram_bytes=1 << 30)
    console = page_console(width, colour=False)
    with console.capture() as capture:
        console.print(renderable(MonitoredRun(host_facts(torch.device("cpu"))), seen))
    cpu, worker = (re.search(rf"^{name} +([#.=+]+)  ", capture.get(), re.M)[1] for name in ("CPU", "worker 1"))
    assert worker == "#" * len(cpu) and len(cpu) <= BAR_WIDTH
    assert cpu.count("#") == pytest.approx(len(cpu) / 2, abs=0.5)


def test_tensorboard_has_every_number(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    clock = FakeClock()
    with Monitor(Planted(clock, [0.1] * 9), device="cpu", live=False, tensorboard=tmp_path, clock=clock) as monitor:
        train(monitor, clock, 0.5)
    found = events.EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in found.Scalars("audioaug/step_ms")] == [it.step for it in monitor.windows]
    assert found.Scalars("audioaug/stall")[0].value == pytest.approx(1 / 6)


def test_missing_tensorboard_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match="tensorboard is not installed"):
        Monitor([], device="cpu", live=False, tensorboard=tmp_path)


def test_invalid_arguments_are_clear_errors(tmp_path):
    with pytest.raises(UsageError, match="expected every to be a number of seconds above 0, got 0"):
        Monitor([], device="cpu", every=0)
    with pytest.raises(OutputError, match="Cannot write"):
        Monitor([], device="cpu", log=tmp_path / "no" / "log")
    (tmp_path / "other").write_text('{"a": 1}\n')
    with pytest.raises(UsageError, match="other: This is not the JSON of a MonitoredRun"):
        read_log(tmp_path / "other")
    (tmp_path / "empty").write_text("")
    with pytest.raises(UsageError, match="is empty"):
        read_log(tmp_path / "empty")


def test_an_earlier_log_is_kept_if_the_page_cannot_be_written(tmp_path):
    (tmp_path / "log").write_text("an earlier run")
    with pytest.raises(OutputError, match="Cannot write"):
        Monitor([], device="cpu", log=tmp_path / "log", html=tmp_path / "no" / "page.html")
    assert (tmp_path / "log").read_text() == "an earlier run"


def test_ready_batches_and_workers_of_a_loader():
    loader = Loader(Words(40), exact_chain(), Plan(cut=7, num_workers=2), batch_size=2, device="cpu")
    assert loader.capacity == 4 and loader.ready is None
    clock, left = FakeClock(), [min(4, 19 - place) for place in range(20)]
    with Monitor(loader, live=False, clock=clock) as monitor:
        for most, _ in zip(left, monitor, strict=True):
            wait_until(lambda most=most: loader.ready == most)
            clock.advance(2.0)  # a window a step
    assert [it.ready for it in monitor.windows] == left
    assert max(len(it.worker_percent) for it in monitor.windows) == 2
    assert max(sum(it.worker_percent) for it in monitor.windows) > 0


def test_ready_batches_of_a_torch_data_loader():
    loader = Kept(list(range(64)), batch_size=4, num_workers=1)
    with Monitor(loader, device="cpu", live=False, clock=FakeClock()) as monitor:
        for place, _ in enumerate(monitor):
            if place == 8:
                wait_until(lambda: batches_ready(loader.running) == 2)
    assert monitor.run.capacity == 2 and 0 < monitor.windows[-1].ready <= 2
    with Monitor(DataLoader(list(range(8))), device="cpu", live=False) as monitor:
        assert len(list(monitor)) == 8
    assert monitor.run.capacity is None and monitor.windows[-1].ready is None


def test_loader_without_workers_has_no_ready_batches():
    loader = Loader(Words(4), exact_chain(), Plan(cut=7), batch_size=2, device="cpu")
    assert loader.capacity is None and [loader.ready for _ in loader] == [None, None]


def test_overhead_is_limited_if_measuring_is_slow():
    clock = FakeClock()

    class Slow:
        def add(self, window):
            clock.advance(0.1)

        def close(self):
            pass

    monitor = Monitor(Planted(clock, [0.1] * 1000), device="cpu", live=False, clock=clock)
    monitor._outputs.append(Slow())
    with monitor:
        train(monitor, clock, 0.1)
    assert len(monitor.windows) >= 5 and monitor.cost_seconds / clock.now() < 0.01


def test_time_of_measuring_is_not_counted():
    clock = FakeClock()
    monitor = Monitor(Planted(clock, [0.1] * 20), device="cpu", live=False, clock=clock)
    monitor._outputs.append(SimpleNamespace(add=lambda window: clock.advance(0.05), close=lambda: None))
    with monitor:
        train(monitor, clock, 0.1)
    assert len(monitor.windows) > 1
    for it in monitor.windows:
        assert (it.step_ms, it.wait_ms) == (pytest.approx(200), pytest.approx(100))


def test_step_overhead_is_a_few_calls():
    """Some 40 of them are about 10 us, under 1 % of a step of 5 ms; scripts/bench_monitor.py takes the time."""
    batches = [torch.zeros(4)] * 100

    def calls(loop):
        made = []
        sys.setprofile(lambda frame, event, it: made.append(it) if event in ("call", "c_call") else None)
        try:
            for _ in loop:
                pass
        finally:
            sys.setprofile(None)
        return len(made)

    monitor = Monitor(batches, device="cpu", live=False, every=1e9)
    calls(monitor)  # the first epoch looks once
    assert 2 * len(batches) < calls(monitor) - calls(batches) < 60 * len(batches)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_waiting_time_is_idle_time_of_the_stream():
    device = torch.device("cuda")
    matrix = torch.randn(4096, 4096, device=device)

    def waiting(pause):
        def batches():
            for _ in range(30):
                if pause:
                    torch.cuda.synchronize()
                    time.sleep(pause)
                yield matrix

        class Epoch:
            __iter__ = staticmethod(batches)

        with Monitor(Epoch(), device=device, live=False, every=1e9) as monitor:
            for it in monitor:
                for _ in range(20):
                    it @ it
            torch.cuda.synchronize()
        return monitor.windows[-1]

    waiting(0)  # warm
    assert waiting(0.03).wait_ms >= 29


def test_any_iterable_can_be_monitored(tmp_path):
    with Monitor(["a", "b"], device="cpu", live=False) as monitor:
        assert list(monitor) == ["a", "b"] and len(monitor) == 2
    assert monitor.windows[0].clips_per_second is None
    assert replace(monitor.windows[0], step_ms=0.0).stall == 0.0


def test_workers_of_other_loaders_are_not_counted():
    others = iter(DataLoader(list(range(8)), num_workers=1))
    clock = FakeClock()
    loader = DataLoader(list(range(64)), batch_size=4, num_workers=2)
    with Monitor(loader, device="cpu", live=False, clock=clock) as own:
        train(own, clock, 2.0)
    with Monitor(Planted(clock, [0.1] * 9), device="cpu", live=False, clock=clock) as without:
        train(without, clock, 0.5)
    assert max(len(it.worker_percent) for it in own.windows) == 2
    assert {it.worker_percent for it in without.windows} == {()}
    assert len(list(others)) == 8
