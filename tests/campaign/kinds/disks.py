"""Disks that are full or read-only while plans, reports, logs, pages and checkpoints are written, and odd clocks."""

import os
import resource
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audioaug import Monitor, Plan, Report
from audioaug.errors import AudioaugError, AudioaugWarning, OutputError
from audioaug.records import to_json
from audioaug.writing import write_file
from tests.campaign.case import COUNT, Case, check_all, check_sentence, clip, indices
from tests.campaign.faults import Violation, kind
from tests.campaign.kinds.data_files import command, texts
from tests.campaign.system import mount, own_mounts

OUTPUTS = ("plan", "report", "page", "markdown", "log", "monitor page", "tensorboard", "text")


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill a small disk of its own."""
    if not own_mounts() or not mount(folder, "size=64k"):
        raise PermissionError
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as rest:
        for size in (4096, 512, 1):
            try:
                while rest.write(bytes(size)):
                    pass
            except OSError:
                continue
    yield
    filler.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mount a disk read-only."""
    if not own_mounts() or not mount(folder, "size=1m") or not mount(folder, "remount", "ro"):
        raise PermissionError
    yield
    mount(folder, "remount", "rw")


@contextmanager
def limited(folder: Path) -> Iterator[None]:
    """Limit the size of files; Python ignores the signal, and gets an error."""
    folder.mkdir(exist_ok=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def missing(folder: Path) -> Iterator[None]:
    """Remove the folder."""
    yield
    folder.mkdir(exist_ok=True)


@contextmanager
def is_file(folder: Path) -> Iterator[None]:
    """Let the folder be a file."""
    folder.write_text("a file")
    yield
    folder.unlink()
    folder.mkdir()


DISKS: dict[str, Callable[[Path], Any]] = {
    "full": full,
    "read-only": read_only,
    "limited": limited,
    "missing": missing,
    "is a file": is_file,
}


def written(case: Case, folder: Path) -> str:
    """Write an output into the folder; training itself must not be hurt."""
    output = case.values["output"]
    if output in ("log", "monitor page", "tensorboard"):
        threading.excepthook = lambda _: None  # a thread of TensorBoard prints its own traceback
        option = {"log": "log", "monitor page": "html", "tensorboard": "tensorboard"}[output]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with Monitor(
                case.loader([clip(k) for k in range(COUNT)]), live=False, every=1e-6, **{option: folder / "out"}
            ) as monitor:
                check_all(indices(monitor))
        ours = [str(each.message) for each in seen if issubclass(each.category, AudioaugWarning)]
        if len(ours) > 1 or any("\n" in each for each in ours):
            raise Violation("sentence", str(ours))
        return "warned" if ours else "written"
    if output == "plan":
        Plan(cut=1).save(folder / "out")
    elif output == "text":
        write_file("x" * 10_000, folder / "out")
    else:
        source = case.folder / "report.json"
        if not source.exists():
            return "no report"
        report = Report.load(source)
        if output == "report":
            report.save(folder / "out")
        elif output == "page":
            report.to_html(folder / "out")
        else:
            from audioaug.advise.__main__ import main

            ended = command(lambda: main(["--load", str(source), "--markdown", str(folder / "out")]), {0, 2})
            if ended != "exit code 0":
                raise OutputError("The command refused.")
    return "written"


def bad_disk(case: Case) -> str:
    """Write to a bad disk, then to a good one."""
    (case.folder / "report.json").write_text(texts()["report"])
    folder = case.folder / "disk"
    old = None
    try:
        with DISKS[case.values["disk"]](folder):
            try:
                ended = written(case, folder)
            except AudioaugError as error:
                ended = check_sentence(error)
            if folder.is_dir():
                old = [file.name for file in folder.iterdir() if file.name.startswith(".audioaug")]
    except PermissionError:
        return "no right to mount"
    if old:
        raise Violation("left behind", f"{old}")
    if written(case, folder) not in ("written", "no report"):
        raise Violation("next run", "the output cannot be written afterwards")
    return ended


@kind("full disk", ["Monitor, Plan, Report"], weight=3, disk=("full",), output=OUTPUTS)
def full_disk(case: Case) -> str:
    return bad_disk(case)


@kind(
    "read-only folder", ["Monitor, Plan, Report"], weight=2, disk=("read-only", "missing", "is a file"), output=OUTPUTS
)
def read_only_folder(case: Case) -> str:
    return bad_disk(case)


@kind("file size limit", ["Monitor, Plan, Report"], weight=2, disk=("limited",), output=OUTPUTS)
def size_limit(case: Case) -> str:
    return bad_disk(case)


class JumpingClock:
    """A clock that jumps."""

    def __init__(self, case: Case) -> None:
        self.time, self.jump, self.chance = 1000.0, case.values["jump"], case.chance

    def now(self) -> float:
        self.time += 0.01
        if self.chance.random() < 0.2:
            self.time += {
                "back": -500.0,
                "ahead": 1e6,
                "stops": -0.01,
                "century": 3e9,
                "both": self.chance.choice([-900.0, 900.0]),
            }[self.jump]
        return self.time


@kind(
    "clock jumps",
    ["Monitor"],
    weight=3,
    jump=("back", "ahead", "stops", "century", "both"),
    output=("log", "html", "none"),
    workers=(0, 0, 0, 1),
)
def clock_jumps(case: Case) -> str:
    options: dict[str, Any] = {} if case.values["output"] == "none" else {case.values["output"]: case.folder / "out"}
    loader = case.loader([clip(k) for k in range(COUNT)])
    with Monitor(loader, live=False, every=0.001, clock=JumpingClock(case), **options) as monitor:
        for _ in range(3):
            check_all(indices(monitor))
    steps = sum(window.steps for window in monitor.windows)
    if steps > 9:
        raise Violation("lost or twice", f"{steps} steps of 9")
    to_json(monitor.run)
    if case.values["output"] == "log":
        from audioaug.monitor import read_log
        from audioaug.report import monitor as page

        page.render(*read_log(case.folder / "out"))
    return "delivered"


ENVIRONMENT = {
    "AUDIOAUG_BANK_BYTES": ("2G", "-1", "x", "9" * 400, "", "1e99"),
    "AUDIOAUG_DECODE_BYTES": ("0", "x", "-5", "1 TB", "\udcff"),
    "AUDIOAUG_BACKEND": ("torch", "x", ""),
    "AUDIOAUG_PATCHES": ("off", "0", "x"),
    "LOCAL_WORLD_SIZE": ("0", "-1", "x", "99999"),
    "RANK": ("x", "-1", "7"),
    "WORLD_SIZE": ("0", "x"),
    "HOME": ("", "/nonexistent", "relative"),
    "XDG_CACHE_HOME": ("", "/proc/nowhere", "relative", "/dev/null"),
    "TMPDIR": ("/nonexistent",),
    "COLUMNS": ("0", "-1", "x"),
    "OMP_NUM_THREADS": ("0", "x", "-3"),
}


@kind(
    "odd environment",
    ["python -c"],
    weight=0.5,
    limit=120,
    variable=tuple(f"{name}={k}" for name, each in ENVIRONMENT.items() for k in range(len(each))),
)
def environment(case: Case) -> str:
    """A new Python process, since most is read when it starts."""
    name, _, place = case.values["variable"].partition("=")
    value = ENVIRONMENT[name][int(place)]
    code = (
        "import torch\nfrom audioaug import Chain, Loader, Plan, ops\n"
        "chain = Chain([ops.Gain(p=1.0)], 16000)\n"
        "loader = Loader([torch.ones(400)] * 12, chain, Plan(cut=1), batch_size=4, device='cpu')\n"
        "print(len(list(loader)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, name: value}, capture_output=True, text=True)
    if ran.stderr.splitlines()[-1:] and ran.stderr.splitlines()[-1].startswith("audioaug.errors.UsageError: "):
        return "UsageError"  # in a Python program, with its traceback
    if ran.returncode or ran.stdout.split()[-1:] != ["3"]:
        raise Violation(
            "traceback" if "Traceback" in ran.stderr else "exit code", f"{name}={value[:20]!r}: {ran.stderr[-600:]}"
        )
    return "warned" if ran.stderr else "delivered"
