"""The command line of the advisor: progress on stderr, the report on stdout, both from rank 0 only.

Exit codes: 0 a recommendation was made; 1 a measurement failed; 2 wrong usage; 130 interrupted.
"""

import os
import sys
import typing
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from audioaug.advise import DEFAULT_BUDGET, LEAST_BUDGET, MOST_BUDGET, QUICK_BUDGET, VERIFY_BUDGET, measuring_seconds
from audioaug.command import run
from audioaug.errors import UsageError
from audioaug.records import Plan, Precision, Report, read_record, to_json
from audioaug.writing import is_terminal

if TYPE_CHECKING:
    from audioaug.advise.progress import Outputs, Progress
    from audioaug.advise.training_job import TrainingJob

PRECISIONS = typing.get_args(Precision)
MOST_RANKS = 64
LISTENING_SECONDS = 3.0
NAMED = "augment", "allow_code", "data", "batch_size", "sample_rate", "clip_seconds", "audio_key", "precision"
"""The options that determine what is trained."""

FILES = "model", "augment", "data", "verify", "load", "json_", "markdown", "html", "plan"
"""The options that name a file or a folder."""


@click.command(short_help="Measure where your augmentation should run.", context_settings={"max_content_width": 100})
@click.option("--model", metavar="FILE.py[:NAME]", help="What to train; the only required option.")
@click.option("--augment", metavar="FILE", help="A chain: FILE.yaml or FILE.py:NAME.")
@click.option("--allow-code", is_flag=True, help="Allow the YAML of --augment to import functions (Lambda).")
@click.option("--data", metavar="PATH", help="A folder of audio, or a manifest (CSV, TSV, JSON lines).")
@click.option("--batch-size", type=click.IntRange(1), help="Examples in a batch.")
@click.option("--sample-rate", type=click.IntRange(1), help="Sample rate of the audio, in Hz.")
@click.option("--clip-seconds", type=click.FloatRange(0, min_open=True), help="Length of a clip, in seconds.")
@click.option("--audio-key", metavar="KEY", help="Key or position of the audio in an example.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--workers", default="auto", show_default=True, help="Worker counts to consider, such as 0,2,4.")
@click.option(
    "--ranks",
    type=click.IntRange(1, MOST_RANKS),
    help="Train with this many processes of this machine at the same time, as torchrun does. Numbers of workers, in "
    "--workers and in the report, are per rank; a plan's num_workers counts those of all ranks.",
)
@click.option(
    "--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help="Precision to train with."
)
@click.option(
    "--budget",
    type=click.FloatRange(LEAST_BUDGET, MOST_BUDGET),
    help=f"Seconds to measure [default: {DEFAULT_BUDGET:.0f}].",
)
@click.option("--quick", is_flag=True, help=f"Measure for {QUICK_BUDGET:.0f} seconds.")
@click.option("--fresh", is_flag=True, help="Ignore cached results of earlier runs.")
@click.option("--verify", metavar="PLAN", help="Only compare this plan with your current configuration.")
@click.option(
    "--what-if",
    metavar="K=V,...",
    help="Also predict for cores=N, step_ms=X (the model's step), batch_size=N, clips=N (the length of an epoch), "
    "gpu=FILE (the --json report of this model and chain from a machine with another GPU), ranks=N (on this machine), "
    "remote=N (workers on other nodes, with receive=MB/s, core_price=X and machine_price=X an hour).",
)
@click.option(
    "--also",
    metavar="A,B",
    help="Also measure bf16, fp16, batch_size=N, cuda_graph, torch_compile, torch-audiomentations, fork, spawn, "
    "forkserver.",
)
@click.option("--json", "json_", metavar="FILE|-", help="Write the report as JSON.")
@click.option("--markdown", metavar="FILE", help="Write the report as Markdown.")
@click.option("--html", metavar="FILE", help="Write the report as an HTML page.")
@click.option("--plan", metavar="FILE", help="Write the recommended plan, for audioaug.Loader.")
@click.option("--load", metavar="FILE", help="Show the JSON of an earlier run instead of measuring.")
def advise(**options: Any) -> None:
    """Find where your augmentation should run, and with how many workers, by measuring your training step.

    With several GPUs, start it as you start your training, by torchrun, or with --ranks.
    """
    if empty := next((name.strip("_") for name in FILES if options[name] == ""), None):  # --data "$UNSET"
        raise UsageError(f"--{empty} is empty.", "Name a file, or leave the option out.")
    if options["load"]:
        report = read_record(options["load"], Report)
        outputs = _outputs(options)
        if outputs.has_page:
            from audioaug.report.sounds import NOT_SAVED

            click.echo(f"note: {NOT_SAVED}", err=True)
        _conclude(report, outputs, options, *_what_if(options["what_if"]))
        return
    if not options["model"]:
        raise UsageError("Missing option --model.", "Give a Python file that defines a model: --model FILE.py.")
    try:
        _follow(options) if _local_rank() else _measure(options)
    except KeyboardInterrupt:
        raise click.Abort("partial results are in the output files, if any were requested") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; every error is one sentence on stderr."""
    return run(advise, arguments)


def show(report: Report, json: str | None = None) -> None:
    """Print the report, or its JSON if ``json`` is ``-``."""
    from audioaug.report import to_text

    if json == "-":
        print(to_json(report))
        return
    terminal = is_terminal(sys.stdout)
    width = os.get_terminal_size().columns if terminal else 100
    print(to_text.render(report, width=max(60, min(width, 140)), colour=terminal and "NO_COLOR" not in os.environ))


def _measure(options: dict[str, Any]) -> None:
    """Run the survey and write its results, also when interrupted. Only the report goes to stdout."""
    from audioaug.advise.progress import printed_to_stderr
    from audioaug.advise.survey import Options, survey
    from audioaug.advise.variants import parse_also

    workers, outputs = _workers(options["workers"]), _outputs(options)
    values, profile = _what_if(options["what_if"])  # report mistakes before measuring
    also = parse_also(options["also"] or "")
    usual = VERIFY_BUDGET if options["verify"] else QUICK_BUDGET if options["quick"] else DEFAULT_BUDGET
    seconds = measuring_seconds(options["budget"], usual)  # click lets NaN pass
    verify = Plan.load(options["verify"]) if options["verify"] else None
    _ignore_warnings()
    with printed_to_stderr():
        report = survey(
            lambda: _noted(_job(options)),
            Options(seconds, workers, verify, also, options["fresh"], _needs_rate(values)),
            ranks=options["ranks"],
            command=_arguments_of_rank(options),
            on_update=outputs.update,
            at_end=partial(_listen, outputs),
        )
    _conclude(report, outputs, options, values, profile)


def _needs_rate(values: Mapping[str, float]) -> bool:
    """Return whether a prediction needs to know how fast this machine receives."""
    return "remote" in values and "receive" not in values


def _noted(job: "TrainingJob") -> "TrainingJob":
    """Print the notices of the model file early: they may explain why the run fails."""
    for notice in job.notices:
        click.echo(f"note: {notice.text}", err=True)
    return job


def _listen(outputs: "Outputs", job: "TrainingJob", progress: "Progress") -> None:
    """Make the audio examples of the page, if one is requested."""
    if outputs.has_page:
        from audioaug.advise.listen import listen  # imports that take a second, only needed for a page

        with progress.stage("examples to listen to", LISTENING_SECONDS):
            outputs.listening = listen(job)


def _follow(options: dict[str, Any]) -> None:
    """Train as rank 0 does, and print nothing."""
    from audioaug.measure.lockstep import following
    from audioaug.process import leave_interrupts_to_rank_0

    leave_interrupts_to_rank_0()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nowhere, output)
    with following() as follower:
        follower.follow(_job(options))


def _local_rank() -> int:
    """Return which of this machine's ranks this is, without importing torch if it is alone."""
    if "LOCAL_WORLD_SIZE" not in os.environ:
        return 0
    from audioaug.measure.ranks import local_rank

    return local_rank()


def _job(options: dict[str, Any]) -> "TrainingJob":
    from audioaug.advise.model_file import load_training_job
    from audioaug.loader.prefetch import as_device
    from audioaug.measure.ranks import device_of_rank

    named = {name: options[name] for name in NAMED}
    return load_training_job(options["model"], as_device(device_of_rank(options["device"])), **named)


def _arguments_of_rank(options: dict[str, Any]) -> list[str]:
    """Return the command line of another rank: the options that determine what is trained."""
    given = {f"--{name.replace('_', '-')}": options[name] for name in ("model", "device", *NAMED)}
    flags = [name for name, value in given.items() if value is True]
    values = [f"{name}={value}" for name, value in given.items() if value not in (None, True, False)]
    return ["audioaug.advise", *flags, *values]


def _ignore_warnings() -> None:
    warnings.filterwarnings("ignore", module="audiomentations|librosa|torch_audiomentations|julius")
    warnings.filterwarnings("ignore", message="This DataLoader will create", module="torch")


def _outputs(options: dict[str, Any]) -> "Outputs":
    """Open the requested output files, each of which must have a name of its own."""
    from audioaug.advise.progress import Outputs

    paths = {"json": options["json_"], **{name: options[name] for name in ("markdown", "html", "plan")}}
    named = dict[str, str]()
    for name, path in paths.items():
        if path == "-" and name != "json":
            raise UsageError(
                f"--{name} is -, but only --json can be written to standard output.", f"Name a file: --{name} FILE."
            )
        if path in (None, os.devnull):
            continue
        if (other := named.setdefault(os.path.realpath(path), name)) != name:
            raise UsageError(f"--{other} and --{name} name the same file, {path}.", "Name a file for each.")
    return Outputs(**paths)


def _conclude(
    report: Report,
    outputs: "Outputs",
    options: dict[str, Any],
    values: Mapping[str, float],
    profile: Report | None,
) -> None:
    """Add the what-if predictions, write the files and show the report."""
    from audioaug.decide.what_if import what_if

    if values or profile:
        report = replace(report, what_if=(*report.what_if, *what_if(report, values, profile)))
    outputs.update(report, last=True)
    if report.recommendation is not None:
        outputs.save_plan(report.plan)
    show(report, options["json_"])


def _workers(text: str) -> tuple[int, ...] | None:
    if text == "auto":
        return None
    try:
        counts = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        counts = (-1,)
    if counts[0] < 0:
        raise UsageError(f"--workers is {text!r}, but it must be auto or integers such as 0,2,4.")
    return counts


def _what_if(text: str | None) -> tuple[dict[str, float], Report | None]:
    """Return the values of ``--what-if``, and the report of another machine, if it names one."""
    from audioaug.decide.what_if import parse

    values, path = parse(text or "")
    return values, read_record(path, Report) if path else None


if __name__ == "__main__":
    sys.exit(main())
