"""The advisor: ``audioaug advise --model mymodel.py``, or ``audioaug.recommend(model, chain, dataset)``.

``__main__`` reads the command line; ``model_file`` and ``settings`` turn the user's file or objects into a
``training_job``; ``survey`` measures in order and fills a ``Report``: ``today``, then ``stages``, then races
(``racing``) of the ``candidates`` that a ``schedule`` selects. ``progress`` shows what is being measured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from audioaug.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import torch

    from audioaug.records import Plan, Precision, Report

DEFAULT_BUDGET = 112.0
QUICK_BUDGET = 20.0
VERIFY_BUDGET = 6.0
"""Seconds of measuring. With the start and the end of Python that is about two minutes, 30 seconds, and 15 seconds."""

LEAST_BUDGET, MOST_BUDGET = 1, 86400


def recommend(
    model: "torch.nn.Module | Callable[[], torch.nn.Module]",
    chain: Any = None,
    dataset: Any = None,
    *,
    loss: "Callable[[Any, Any], torch.Tensor] | None" = None,
    optimizer: Any = None,
    train_step: Callable[..., Any] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    targets: Mapping[str | int, Any] | None = None,
    batch_size: int | None = None,
    num_workers: int | None = None,
    sample_rate: int | None = None,
    clip_seconds: float | None = None,
    audio_key: str | int | None = None,
    pad: bool | None = None,
    lengths: str | int | None = None,
    precision: "Precision" = "fp32",
    device: str = "auto",
    workers: Sequence[int] | None = None,
    budget: float | None = None,
    also: str | Sequence[str] = (),
    verify: "Plan | None" = None,
    remote: int | None = None,
    progress: bool = True,
) -> "Report":
    """Measure where the augmentation should run: ``audioaug advise`` for Python objects.

    A copy of the model is trained (and of its optimizer), so yours does not change, and the random generators of
    Python, numpy and torch are restored. Where workers are not forked, call it under ``if __name__ == "__main__":``.

    In a script that torchrun starts, call it in every process: all of them train at the same time, only the first shows
    its progress, and each returns the same report, for which numbers of workers are per rank.

    Args:
        model: what to train, or a function that builds it.
        chain: the augmentation: a ``Chain``, ops, or transforms of audiomentations. Default: a demo chain for speech.
        dataset: map-style or iterable, or the path of a folder or manifest of audio. Default: demo speech.
        loss: of (output, batch). Default: cross entropy for class scores, else the mean square of the output.
        optimizer: an optimizer of the model, or a function that builds one of a model. Default: AdamW.
        train_step: your own step, of (model, batch, optimizer), instead of ``loss``.
        collate_fn: as in torch's DataLoader.
        targets: label transforms, as in ``Loader``.
        batch_size: examples in a batch. Default: 32.
        num_workers: the workers that you use today, in each process. Default: 0.
        sample_rate: of the audio, in Hz; needed if ``chain`` has none.
        clip_seconds: length of the clips of a folder or manifest, in seconds. Default: 1.
        audio_key: key or position of the audio in an example; detected by default.
        pad: whether clips of a batch may differ in length; detected by default.
        lengths: key or position of a clip's own length in an example.
        precision: fp32, bf16 or fp16; of the default step.
        device: auto, cpu, cuda, cuda:N or mps.
        workers: worker counts to consider. Default: by the number of cores.
        budget: seconds to measure, from 1 to 86400. Default: 112, about two minutes in all; 6 with ``verify``.
        also: extra variants to measure: bf16, fp16, batch_size=N, cuda_graph, torch_compile, torch-audiomentations,
            fork, spawn, forkserver.
        verify: only compare this plan with what you use today.
        remote: also predict the step with this many workers on other nodes, up to 10,000 (``report.what_if``); with
            Ray, how fast this machine receives batches is measured for that.
        progress: whether to show what is being measured.

    Returns:
        The report: ``report.plan`` for ``Loader``, ``print(report)``, ``report.to_html(path)``, ``report.save(path)``.
        A notebook shows it as a page.

    Raises:
        ModelFileError: the model cannot be copied, built or trained.
        ChainError, DataError: the augmentation or the dataset is invalid.
        UsageError: an argument is out of range.
        MeasurementError: a measurement failed, or another process has ended or not called this.
    """
    from audioaug.advise.settings import ARGUMENTS, Settings, build_job, copy_model, preserve_random_state
    from audioaug.advise.survey import Options, survey
    from audioaug.advise.training_job import TrainingJob
    from audioaug.advise.variants import parse_also
    from audioaug.decide.remote import MOST_REMOTE
    from audioaug.decide.what_if import what_if
    from audioaug.loader.prefetch import as_device
    from audioaug.measure.lockstep import following
    from audioaug.measure.ranks import device_of_rank, local_rank
    from audioaug.records import Plan, Precision

    options = Options(
        measuring_seconds(budget, DEFAULT_BUDGET if verify is None else VERIFY_BUDGET),
        _worker_counts(workers),
        verify,
        parse_also(also if isinstance(also, str) else ",".join(also)),
        fresh=True,
        receive=remote is not None,
    )
    if precision not in get_args(Precision):
        raise UsageError(f"precision is {precision!r}.", did_you_mean(str(precision), get_args(Precision)))
    if remote is not None and not (isinstance(remote, int) and 1 <= remote <= MOST_REMOTE):
        raise UsageError(f"remote is {remote!r}, but it must be an integer from 1 to {MOST_REMOTE:,}.")
    if not isinstance(verify, Plan | None):
        raise UsageError(
            f"verify is {verify!r}, but it must be a Plan.", "Read one from a file: audioaug.Plan.load(path)."
        )
    settings: dict[str, Any] = {
        "augment": chain,
        "dataset": dataset,
        "loss": loss,
        "train_step": train_step,
        "collate_fn": collate_fn,
        "targets": targets,
        "batch_size": batch_size,
        "num_workers": num_workers,
        "sample_rate": sample_rate,
        "clip_seconds": clip_seconds,
        "audio_key": audio_key,
        "pad": pad,
        "lengths": lengths,
    }

    def build() -> TrainingJob:
        copied, settings["optimizer"] = copy_model(model, optimizer)
        chosen = as_device(device_of_rank(device))
        return build_job(Settings([(ARGUMENTS, settings)]), lambda: copied, chosen, precision)

    with preserve_random_state():
        if local_rank():
            with following() as follower:
                report: Report = follower.follow(build())
        else:
            report = survey(build, options, quiet=not progress)
    if remote is None:
        return report
    return replace(report, what_if=(*report.what_if, *what_if(report, {"remote": remote})))


def measuring_seconds(seconds: float | None, usual: float) -> float:
    """Return the budget, by default the usual one; raise ``UsageError`` if it is out of range."""
    if seconds is None:
        return usual
    if not isinstance(seconds, int | float) or not LEAST_BUDGET <= seconds <= MOST_BUDGET:  # also refuses NaN
        raise UsageError(
            f"budget is {seconds!r}, but it must be a number of seconds from {LEAST_BUDGET} to {MOST_BUDGET}."
        )
    return float(seconds)


def _worker_counts(counts: Sequence[int] | None) -> tuple[int, ...] | None:
    if counts is None:
        return None
    counts = tuple(counts) if isinstance(counts, Sequence) else (-1,)
    if not counts or not all(isinstance(count, int) and count >= 0 for count in counts):
        raise UsageError(f"workers is {counts!r}, but it must be a list of counts such as [0, 2, 4].")
    return tuple(sorted({*counts}))
