"""What the experiments share: claims and verdicts, the command line, races of training loops, tables for notebooks.

Each ``experiment_*.py`` puts published claims to the test on this machine: it measures, judges, prints, and writes a
record that a notebook draws.
"""

import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import torch

from audioaug.advise.candidates import open_loader, queued_batches
from audioaug.advise.training_job import TrainingJob
from audioaug.decide.race import paired_ratio
from audioaug.errors import AudioaugError, MeasurementError, OutputError
from audioaug.loader.processes import torch_threads
from audioaug.measure import Clock, race
from audioaug.records import Candidate, HostFacts, Interval, Measurement, read_record, write_record
from audioaug.units import format_bytes, format_interval, significant

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "scripts/models/keyword_cnn.py"
"""The example model, which the experiments train."""

Record = TypeVar("Record")


# Claims


VERDICTS = ("yes", "no", "in part", "not tested")

Finding = tuple[str, str]
"""What was found, in a sentence, and the verdict. "Not tested" is not "no"."""


@dataclass(frozen=True)
class Claim:
    """What is said, what was found here, and whether it holds: one of ``VERDICTS``."""

    id: str
    says: str
    found: str
    holds: str


def judge(says: Mapping[str, str], findings: Mapping[str, Finding]) -> tuple[Claim, ...]:
    """Put a finding beside each claim; raise ``KeyError`` where one was forgotten."""
    return tuple(Claim(id, words, *findings[id]) for id, words in says.items())


def graded(*holds: bool) -> str:
    """Return "yes" if all of it holds, "in part" if some of it does, else "no"."""
    return "yes" if all(holds) else "in part" if any(holds) else "no"


def to_lines(claims: Iterable[Claim]) -> list[str]:
    """Lay the claims out for a terminal."""
    lines = ["", "The claims, and what was found here"]
    for claim in claims:
        lines += [f"  {claim.id}  {claim.says}  [{claim.holds}]", f"      {claim.found}"]
    return lines


# The command line


Say = Callable[[str], None]
"""Takes what is being measured now."""


def quiet(_: str) -> None:
    """Say nothing."""


def experiment(doc: str | None) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function of ``quick``, ``device``, ``json_`` and ``load``; its help is the first line."""

    def decorate(function: Callable[..., None]) -> click.Command:
        for option in reversed(_OPTIONS):
            function = option(function)
        first = (doc or "").partition("\n\n")[0]
        return click.command(help=first, context_settings={"max_content_width": 100})(function)

    return decorate


_OPTIONS = (
    click.option("--quick", is_flag=True, help="Measure less, with wider intervals."),
    click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."),
    click.option("--json", "json_", metavar="FILE", help="Write the results as JSON."),
    click.option("--load", metavar="FILE", help="Show the JSON of an earlier run instead of measuring."),
)


def perform(
    kind: type[Record],
    measure: Callable[[Say], Record],
    to_text: Callable[[Record], str],
    json_: str | None,
    load: str | None,
    also: str | None = None,
) -> None:
    """Measure or load, write, print. Ends the process with the error's exit code, or 130 where it was interrupted.

    Args:
        kind: of the record that is measured.
        measure: takes a function that reports progress.
        to_text: lays a record out for the terminal.
        json_: a file for the record.
        load: a file to read it from instead.
        also: a file that ``measure`` will write.
    """
    warnings.filterwarnings("ignore", module="audiomentations|librosa|torch_audiomentations|julius|torchaudio")
    warnings.filterwarnings("ignore", message="This DataLoader will create", module="torch")
    try:
        for path in filter(None, (json_, also)):
            _open_for_writing(path)  # fail before minutes of measuring
        found = read_record(load, kind) if load else measure(_tell)
        if json_:
            write_record(found, json_)
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise SystemExit(130) from None
    click.echo(to_text(found))


def _tell(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def _open_for_writing(path: str) -> None:
    try:
        with Path(path).open("a"):
            pass
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name a file in a folder that exists.") from None


# Numbers


def timed(value: float | None, interval: Interval | None) -> str:
    """Format milliseconds with their interval: ``12.3 (11.9 .. 12.8)``."""
    return "-" if value is None or interval is None else f"{significant(value, 3)} ({format_interval(*interval)})"


def times(value: float, interval: Interval) -> str:
    """Format a ratio with its interval: ``1.73 x (1.60 .. 1.88)``."""
    return f"{value:.2f} x ({interval[0]:.2f} .. {interval[1]:.2f})"


def machine(host: HostFacts) -> str:
    """Return a line about the machine."""
    torch = host.versions.get("torch", "")
    gpu = host.device_name if host.has_gpu else "no GPU"
    return f"{host.cpu}, {host.usable_cores:g} usable cores, {format_bytes(host.ram_bytes)}, {gpu}; torch {torch}"


# Races


SETTLE_BLOCKS = 1.5
"""At most this many blocks run before a timed one: until the workers of the one before have filled their queues."""

Step = Callable[[Any], object]


@dataclass(frozen=True)
class Setup:
    """Batches without end, what trains on one, and torch's threads meanwhile (``None``: as they are).

    ``queued`` is how many batches may be queued, ``clips`` how many examples a batch holds.
    """

    name: str
    feed: Callable[[], Iterator[Any]]
    step: Step
    clips: int
    queued: int = 2
    threads: int | None = None


@dataclass(frozen=True)
class Speed:
    """What a race found of a setup. ``times`` is how many times the throughput of ``of`` it has, in paired rounds."""

    name: str
    step_ms: float
    ci_ms: Interval
    clips_per_second: float
    of: str = ""
    times: float = 1.0
    times_ci: Interval = (1.0, 1.0)

    @property
    def clearly_faster(self) -> bool:
        """Whether all of the interval is above 1."""
        return self.times_ci[0] > 1


def candidate_setup(name: str, target: TrainingJob, candidate: Candidate, step: Step | None = None) -> Setup:
    """Return the Loader of a candidate's plan as a setup."""
    feed = partial(_batches, target, candidate)
    return Setup(name, feed, step or target.step, target.batch_size, queued_batches(candidate), candidate.threads)


def _batches(target: TrainingJob, candidate: Candidate) -> Iterator[Any]:
    return iter(open_loader(target, replace(candidate, threads=None)))  # threads are set here, since setups take turns


def race_setups(
    setups: Sequence[Setup], clock: Clock, seconds: float, block_seconds: float, at_least: int
) -> dict[str, Measurement]:
    """Race the setups, in blocks of about ``block_seconds`` (at least two steps), at least ``at_least`` rounds.

    Raises:
        MeasurementError: one of them fails.
    """
    usual = torch.get_num_threads()
    with torch_threads(usual):
        feeders = {setup.name: _on_threads(setup, usual) for setup in setups}
        warm = {setup.name: max(1e-6, _warm(feeders[setup.name], setup.step, clock)) for setup in setups}
        refill = min(SETTLE_BLOCKS * block_seconds, max(setup.queued * warm[setup.name] for setup in setups))
        result = race(
            feeders,
            lambda fed: fed[0](fed[1]),
            clock,
            block_steps={name: max(2, min(50, round(block_seconds / took))) for name, took in warm.items()},
            discard={setup.name: max(setup.queued, math.ceil(refill / warm[setup.name])) for setup in setups},
            rounds=100,
            seconds=seconds,
            at_least_rounds=at_least,
        )
    if result.failures:
        raise MeasurementError(f"Training failed: {result.failures}.")
    return result.measurements


def _on_threads(setup: Setup, usual: int) -> Iterator[tuple[Step, Any]]:
    """Yield the setup's step with each of its batches, torch's threads set for both."""
    torch.set_num_threads(setup.threads or usual)
    for batch in setup.feed():
        torch.set_num_threads(setup.threads or usual)
        yield setup.step, batch


def _warm(feeder: Iterator[tuple[Step, Any]], step: Step, clock: Clock) -> float:
    """Train on two batches, the first of which starts workers; return the seconds of the second."""
    step(next(feeder)[1])
    clock.synchronize()
    begin = clock.now()
    step(next(feeder)[1])
    clock.synchronize()
    return clock.now() - begin


def speed(setup: Setup, base: Setup, measurements: dict[str, Measurement]) -> Speed:
    """Return a setup's throughput beside another's."""
    ours, theirs = measurements[setup.name], measurements[base.name]
    ratio, share = paired_ratio(theirs, ours), setup.clips / base.clips
    return Speed(
        name=setup.name,
        step_ms=ours.step.ms,
        ci_ms=ours.step.ci_ms,
        clips_per_second=setup.clips / ours.step.median,
        of=base.name,
        times=ratio.value * share,
        times_ci=(ratio.low * share, ratio.high * share),
    )


# Notebooks


QUICK = os.environ.get("AUDIOAUG_NOTEBOOK", "full") == "small"
"""Whether to measure less, and less surely."""


def measured(script: str, kind: type[Record], *options: str) -> Record:
    """Run a script of ``scripts/`` in a process of its own and return the record that it writes.

    Raises:
        RuntimeError: the script failed; what it said last is in the message.
    """
    options = (*options, *(["--quick"] if QUICK else []))
    print(" ".join(["python", f"scripts/{script}.py", *options]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        command = [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *options, "--json", str(path)]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{script}.py failed:\n{done.stderr[-2000:]}")
        return read_record(path, kind)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Show rows as a table."""
    from IPython.display import Markdown, display

    lines = [header, ["---"] * len(header), *rows]
    display(Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)))


def claims_table(claims: Iterable[Claim]) -> None:
    """Show each claim beside what was measured."""
    rows = [[claim.id, claim.says, claim.found, claim.holds] for claim in claims]
    table(["", "the claim", "measured here", "holds here"], rows)
