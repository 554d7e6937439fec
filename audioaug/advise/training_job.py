"""TrainingJob: what is trained, and the facts of it that a report states before anything is measured."""

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Chain, leaves
from audioaug.engine.fuse import grouped
from audioaug.errors import AudioaugWarning, ModelFileError, in_one_line, printable
from audioaug.loader import targets as kinds
from audioaug.loader.examples import Field, get_wave, own_length, samples_of
from audioaug.loader.pipeline import ops_on_clips
from audioaug.loader.prefetch import map_leaves, tensors
from audioaug.loader.sampling import length_if_known
from audioaug.measure.lockstep import Leader
from audioaug.records import ChainFacts, Interval, LoaderSetup, Notice, Precision, Workload

WITHOUT_DDP = (
    "The ranks train at the same pace but exchange no gradients, since the model is not a DistributedDataParallel. "
    "Wrap it as in your training to include the time that this takes."
)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class TrainingJob:
    """What is trained, and the source of each part (model file, command line, default).

    ``pad``, ``lengths``, ``targets`` and ``audio_key`` are Loader's; ``audio_key`` is detected if the user does not
    give it. ``clip_seconds``: the shortest and the longest clip inspected. ``leader``: lets the other ranks of this
    machine train, too, if there are any. ``last_loss``: the loss of the last step, if known. ``changes_batches``: a
    step changes the tensors of its batch.
    """

    path: str
    model: torch.nn.Module
    chain: Chain
    dataset: Any
    batch_size: int
    clip_seconds: Interval
    device: torch.device
    precision: Precision
    num_workers: int
    collate_fn: Callable[[list[Any]], Any] | None
    loss: Callable[[Any, Any], torch.Tensor]
    optimizer: torch.optim.Optimizer
    own_step: Callable[..., Any] | None
    setup: LoaderSetup
    targets: Mapping[Field, kinds.LabelTransform] | None
    data_name: str
    sources: dict[str, str] = field(default_factory=dict)
    threads: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    leader: Leader | None = None
    last_loss: Any = field(default=None, init=False)
    changes_batches: bool = False

    @property
    def name(self) -> str:
        """The model file without its folder; the model's class if there is no file."""
        return printable(Path(self.path).name) or type(self.model).__name__

    @property
    def pad(self) -> bool:
        """Whether clips of a batch may differ in length."""
        return self.setup.pad or self.lengths is not None

    @property
    def lengths(self) -> Field | None:
        """The field of an example that holds its own length."""
        return self.setup.lengths

    @property
    def audio_key(self) -> Field | None:
        """The field of an example that holds its audio."""
        return self.setup.audio_key

    @property
    def is_stream(self) -> bool:
        """Whether the dataset is iterable-style."""
        return self.setup.is_stream

    def wave_of(self, batch: Any) -> torch.Tensor:
        """Return the audio of a batch."""
        wave: torch.Tensor = get_wave(batch, self.audio_key)
        return wave

    def clip_of(self, example: Any) -> NDArray[np.float32]:
        """Return the audio of an example, (T,) or (C, T), without its padding."""
        wave = samples_of(example, self.chain.sample_rate, self.audio_key)
        return wave if self.lengths is None else wave[..., : own_length(example, self.lengths, wave.shape[-1])]

    @property
    def least_cut(self) -> int:
        """The smallest possible cut."""
        return self.chain.first_cut(ops_on_clips(self.chain, self.targets, self.collate_fn))

    def step(self, batch: Any) -> None:
        """Train on one batch, with the file's ``train_step`` or the default one, while the other ranks do the same.

        Batches are used again, so the step gets containers of its own and, if it changes tensors, copies of them.
        """
        self._step_on(_copied(batch) if self.changes_batches else _detached(batch), batch)

    def _step_on(self, own: Any, batch: Any) -> None:
        """Train on a copy of a batch, which the step may change, while the other ranks train on theirs."""
        if self.leader is None:
            self._step(own)
            return
        with self.leader.step(self.wave_of(batch), precision=self.precision, changes_batches=self.changes_batches):
            self._step(own)

    def _step(self, batch: Any) -> None:
        if self.own_step is not None:
            found = self.own_step(self.model, batch, self.optimizer)
            self.last_loss = found.detach() if isinstance(found, torch.Tensor) else found
            return
        with torch.autocast(self.device.type, DTYPES.get(self.precision), enabled=self.precision != "fp32"):
            loss = self.loss(self.model(self.wave_of(batch)), batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.last_loss = loss.detach()

    def try_step(self, batch: Any) -> None:
        """Train on the first batch, and note whether that changes its tensors.

        Raises:
            ModelFileError: it fails, because of a wrong shape, for example.
        """
        given = list(tensors(own := _copied(batch)))
        try:
            self._step_on(own, batch)
            self.changes_batches = any(map(_differ, given, tensors(batch)))
        except torch.cuda.OutOfMemoryError:
            raise ModelFileError(
                f"{self.name}: a batch of {self.batch_size} does not fit into the memory of {self.device}.",
                "Use a smaller --batch-size.",
            ) from None
        except (Exception, SystemExit) as error:
            wave, labels = self.wave_of(batch), labels_of(batch)
            raise ModelFileError(
                f"{self.name}: the first step, on a batch of shape {tuple(wave.shape)}, {wave.dtype}, fails: "
                f"{in_one_line(error)}",
                f"The labels are strings, such as {labels[0]!r}: if the loss fails, convert them to integers."
                if are_strings(labels)
                else f"Batches are {self._axes(wave)}.{self._own_loss()}",
            ) from None

    def _axes(self, wave: torch.Tensor) -> str:
        """Return the axes of a batch, in words."""
        last = ("time",) if self.chain.feature is None else ("features", "frames")
        return f"({', '.join(('batch', *('channels',) * (wave.ndim > 1 + len(last)), *last))})"

    def _own_loss(self) -> str:
        """Return that the user may define a loss, or what theirs is called with."""
        if self.own_step is not None:
            return ""
        if isinstance(self.loss, UsualLoss):
            return " Define `loss` or `train_step` if the default does not fit."
        return " `loss` is called with the model's output and the whole batch."

    def why_not_finite(self) -> str:
        """Return what is NaN or infinite after the last step: the loss or, if that is unknown, a parameter.
        Synchronizes.
        """
        loss = float(self.last_loss.float().mean()) if isinstance(self.last_loss, torch.Tensor) else self.last_loss
        if isinstance(loss, float) and not math.isfinite(loss):
            return f"The loss is {loss}"
        broken = (name for name, value in self.model.named_parameters() if not bool(value.isfinite().all()))
        return next((f"The model's parameter {name} is not finite" for name in broken), "")


def led_by(leader: Leader | None, job: TrainingJob) -> TrainingJob:
    """Return the job as the ranks that are led train it, once all of them have built it; the job itself if alone."""
    if leader is None:
        return job
    leader.wait()
    exchanges = job.own_step is not None or any(
        isinstance(each, torch.nn.parallel.DistributedDataParallel) for each in job.model.modules()
    )
    notices = () if exchanges else (Notice("ranks_without_ddp", WITHOUT_DDP),)
    return replace(job, leader=leader, notices=(*job.notices, *notices))


def _copied(batch: Any) -> Any:
    return map_leaves(torch.clone, copy.deepcopy, batch)


def _detached(batch: Any) -> Any:
    """Return a batch in other containers and tensors, which share the memory of these."""
    return map_leaves(torch.Tensor.detach, copy.copy, batch)


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have other values; sparse and nested ones cannot be compared, and count as equal."""
    if one.layout != torch.strided or one.is_nested:
        return False
    if one.is_floating_point():
        one, other = one.nan_to_num(), other.nan_to_num()
    return not torch.equal(one, other)


class UsualLoss:
    """Cross entropy for class scores with integer labels, else the mean square of the output.

    Which one is decided on the first batch only, since reading labels synchronizes with the device.
    """

    def __init__(self) -> None:
        self._classifies: bool | None = None

    def __call__(self, output: Any, batch: Any) -> torch.Tensor:
        """Return the loss."""
        if isinstance(output, Mapping):
            output = output.get("loss", next(iter(output.values())))
        if isinstance(output, tuple | list):
            output = output[0]
        labels = labels_of(batch)
        if self._classifies is None:
            self._classifies = isinstance(labels, torch.Tensor) and _are_scores_of(output, labels)
            if are_strings(labels):
                warnings.warn(
                    f"The labels are strings, such as {labels[0]!r}, which the default loss cannot use; the loss is "
                    "the mean square of the output instead. Convert them to integers in the dataset, or define `loss`.",
                    AudioaugWarning,
                    stacklevel=2,
                )
        if self._classifies and isinstance(labels, torch.Tensor):
            return torch.nn.functional.cross_entropy(output.float(), labels.long())
        return output.float().square().mean()


def labels_of(batch: Any) -> Any:
    """Return a batch's labels (``label``, ``labels`` or the second item); ``None`` if absent."""
    if isinstance(batch, Mapping):
        return batch.get("label", batch.get("labels"))
    if isinstance(batch, tuple | list):
        return batch[1] if len(batch) > 1 else None
    return getattr(batch, "label", getattr(batch, "labels", None))


def are_strings(labels: Any) -> bool:
    """Return whether a batch's labels are strings, which torch's default ``collate_fn`` leaves as a list."""
    return isinstance(labels, tuple | list) and bool(labels) and all(isinstance(label, str) for label in labels)


def _are_scores_of(output: torch.Tensor, labels: torch.Tensor) -> bool:
    """Return whether the output may be class scores (B, K) for labels (B,) below K."""
    if labels.is_floating_point() or labels.dtype == torch.bool:
        return False
    fits = labels.ndim == 1 and output.ndim == 2 and len(output) == len(labels)
    return fits and int(labels.max()) < output.shape[1]


def chain_facts(job: TrainingJob) -> ChainFacts:
    """Return the chain's ops and where it may be cut, with the reasons."""
    chain, first, last = job.chain, job.least_cut, job.chain.worker_until
    return ChainFacts(
        ops=tuple(op.name for op in chain.ops),
        sample_rate=int(chain.sample_rate),
        hash=chain.hash,
        declaration=chain.describe(),
        device_from=first,
        device_from_reason=_why_not_before(chain, first) if first else "",
        worker_until=last if last < len(chain) else None,
        worker_until_reason=chain.why_not_cut(last + 1) if last < len(chain) else "",
        fused=_fused(chain),
    )


def _fused(chain: Chain) -> tuple[tuple[int, int], ...]:
    """Return the ranges of ops that are fused."""
    sizes = [len(part.members) for part in grouped(chain.nodes)]
    return tuple((stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True) if size > 1)


def _why_not_before(chain: Chain, first: int) -> str:
    """Return why the chain cannot be cut earlier."""
    if reason := chain.why_not_cut(first - 1):
        return reason
    resizing = next(leaf.name for leaf in leaves(chain.ops[first - 1]) if leaf.capabilities.changes_length)
    return f"{resizing} changes the length of clips, and collate_fn must see the final lengths."


def workload(job: TrainingJob) -> Workload:
    """Return the model, its data and their sources as a record."""
    shortest, longest = job.clip_seconds
    return Workload(
        model=job.name,
        parameters=sum(parameter.numel() for parameter in job.model.parameters()),
        batch_size=job.batch_size,
        clip_seconds=longest,
        sample_rate=int(job.chain.sample_rate),
        precision=job.precision,
        dataset=job.data_name,
        clips=length_if_known(job.dataset),
        sources=job.sources,
        shortest_seconds=shortest if shortest < longest else None,
        setup=job.setup,
    )
