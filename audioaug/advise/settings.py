"""Settings: the parts of a training job by name, from the command line, a model file or arguments, else defaults."""

import copy
import math
import random
import reprlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from audioaug import ops
from audioaug.advise.candidates import Reader
from audioaug.advise.training_job import TrainingJob, UsualLoss
from audioaug.audio.demo import SAMPLE_RATE, demo_folder
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain, Op, as_chain, leaves
from audioaug.engine import Preparer
from audioaug.errors import AudioaugError, ChainError, DataError, ModelFileError, UsageError, in_one_line, printable
from audioaug.loader.examples import Field, audio_field, own_length, samples_of
from audioaug.loader.pipeline import check_dataset
from audioaug.loader.sampling import is_stream
from audioaug.loader.targets import LabelTransforms
from audioaug.ops import AdjustDuration
from audioaug.records import AugmentForm, Interval, LoaderSetup, Precision
from audioaug.units import Seconds, format_hz

BATCH_SIZE = 32
CLIP_SECONDS = 1.0
COMMAND_LINE, MODEL_FILE, ARGUMENTS = "command line", "model file", "arguments"
"""Where a value may come from."""


def message(path: str, text: str) -> str:
    """Return a sentence that starts with the model file, if there is one."""
    return f"{path}: {text}" if path else text[0].upper() + text[1:]


class Settings:
    """Values by name; ``sources`` records where each one that was picked came from.

    Args:
        layers: pairs of an origin and its values, the most important first. ``None`` is the same as undefined.
        path: of the model file, for messages; empty if there is none.
        file: its absolute path.
    """

    def __init__(self, layers: Sequence[tuple[str, Mapping[str, Any]]], path: str = "", file: str = "") -> None:
        self.layers, self.path, self.file = layers, path, file
        self.sources: dict[str, str] = {}

    def get(self, name: str) -> Any:
        """Return a value; ``None`` if it is not set."""
        return next((values[name] for _, values in self.layers if values.get(name) is not None), None)

    def pick(self, name: str, default: Any = None) -> Any:
        """Return a value and record its source; nothing is recorded if there is none."""
        for origin, values in (*self.layers, ("default", {name: default})):
            if values.get(name) is not None:
                self.sources[name] = origin
                return values[name]
        return None

    def number(self, name: str, default: float, least: int | None = None) -> float:
        """Return a number above 0 or, with ``least``, an integer of at least that; raise ``UsageError`` otherwise."""
        value = self.pick(name, default)
        real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if least is None and not (real and value > 0):
            raise UsageError(f"{name} is {value!r}, but it must be a number above 0.")
        if least is not None and not (real and value >= least and value == int(value)):
            raise UsageError(f"{name} is {value!r}, but it must be an integer of at least {least}.")
        return float(value)


def build_job(
    settings: Settings, build_model: Callable[[], torch.nn.Module], device: torch.device, precision: Precision
) -> TrainingJob:
    """Return the job, with defaults for everything that is not set.

    Raises:
        ModelFileError: the model cannot be trained, or its optimizer cannot be built.
        ChainError, DataError: the augmentation or the dataset is invalid.
        UsageError: a number is out of range.
    """
    sources = settings.sources
    chain, form = _chain(settings)
    seconds = settings.number("clip_seconds", CLIP_SECONDS)
    dataset, data_name, folder = _dataset(settings, chain.sample_rate, seconds)
    if not isinstance(settings.get("dataset"), str | Path | None):
        del sources["clip_seconds"]  # lengths come from the dataset
    collate_fn, targets = settings.get("collate_fn"), _targets(settings, chain)
    setup, clip_lengths, reasons = loader_setup(
        dataset,
        chain,
        audio_key=settings.pick("audio_key"),
        pad=_pad(settings),
        lengths=settings.get("lengths"),
        collate_fn=collate_fn,
        targets=targets,
    )
    sources |= reasons
    model = build_model()
    try:
        model.to(device)
    except Exception as error:
        reason = in_one_line(error)
        raise ModelFileError(message(settings.path, f"the model cannot be moved to {device}: {reason}")) from None
    model.train()
    own_step = settings.pick("train_step")
    return TrainingJob(
        path=settings.file,
        model=model,
        chain=chain,
        dataset=dataset,
        batch_size=int(settings.number("batch_size", BATCH_SIZE, least=1)),
        clip_seconds=clip_lengths or (seconds, seconds),
        device=device,
        precision=precision,
        num_workers=int(settings.number("num_workers", 0, least=0)),
        collate_fn=collate_fn,
        loss=UsualLoss() if own_step is not None else settings.pick("loss", UsualLoss()),
        optimizer=_optimizer(settings, model),
        own_step=own_step,
        setup=replace(setup, augment=form, dataset_path=folder),
        targets=targets,
        data_name=data_name,
        sources=sources,
    )


def demo_chain(sample_rate: int) -> Chain:
    """Return a chain for speech in rooms with background noise."""
    return Chain(
        [
            ops.Shift(p=0.5),
            ops.ApplyImpulseResponse(ir_path=demo_folder("rooms"), p=0.5),
            ops.AddBackgroundNoise(sounds_path=demo_folder("noise"), p=0.7),
            ops.LowPassFilter(p=0.3),
            ops.Gain(p=0.5),
            ops.TimeMask(p=0.3),
        ],
        sample_rate,
    )


def _chain(settings: Settings) -> tuple[Chain, AugmentForm]:
    """Return the chain, and the form it was declared in."""
    declared, rate, sources = settings.pick("augment"), settings.pick("sample_rate"), settings.sources
    if declared is None:
        sources["augment"] = "demo chain"
    sources.setdefault("sample_rate", sources["augment"])
    if declared is None:
        return demo_chain(rate or SAMPLE_RATE), "demo"
    if isinstance(declared, Chain):
        return _at_rate(declared, rate, settings), "chain"
    if rate is None:
        what_to_do = "Define `sample_rate` or use --sample-rate." if settings.path else "Give sample_rate=, in Hz."
        raise ChainError("The augmentation has no sample rate.", what_to_do)
    return as_chain(declared, rate), _form_of(declared)


def _form_of(declared: Any) -> AugmentForm:
    if isinstance(declared, list | tuple):
        return "ops" if all(isinstance(op, Op) for op in declared) else "audiomentations"
    return "op" if isinstance(declared, Op) else "audiomentations"


def _at_rate(chain: Chain, rate: int | None, settings: Settings) -> Chain:
    """Return the chain at the requested rate; raise ``ChainError`` if the definitions contradict each other."""
    if rate in (None, chain.sample_rate):
        return chain
    if settings.sources["sample_rate"] != COMMAND_LINE:
        where = " in the model file" if settings.path else ""
        raise ChainError(
            f"The chain's rate is {format_hz(chain.sample_rate)}, but `sample_rate`{where} is {rate!r}.",
            "Remove `sample_rate`, or use the same rate for the chain.",
        )
    return Chain(chain.ops, rate)


def _dataset(settings: Settings, sample_rate: int, seconds: float) -> tuple[Any, str, str]:
    """Return the dataset, its name, and the user's folder or manifest; empty if the dataset is an object."""
    declared = settings.pick("dataset")
    if declared is None:
        settings.sources["dataset"] = "demo data"
        folder = demo_folder("speech")
        return AudioFolder(folder, sample_rate, seconds), printable(str(folder)), ""
    if isinstance(declared, str | Path):
        return AudioFolder(declared, sample_rate, seconds), printable(str(declared)), printable(str(declared))
    if isinstance(declared, Iterator) and not isinstance(declared, IterableDataset):
        raise DataError(
            f"`dataset` ({type(declared).__name__}) is an iterator, which can only be read once.",
            "Define a class with __iter__ (torch's IterableDataset), or one with __getitem__ and __len__.",
        )
    try:
        check_dataset(declared)
    except DataError as error:
        raise DataError(message(settings.path, error.message), error.next_step) from None
    return declared, type(declared).__name__, ""


def _pad(settings: Settings) -> bool | None:
    pad = settings.pick("pad")
    if not isinstance(pad, bool | None):
        raise ModelFileError(message(settings.path, f"`pad` is {pad!r}, but it must be True or False."))
    return pad


def _targets(settings: Settings, chain: Chain) -> Any:
    targets = settings.get("targets")
    try:
        LabelTransforms(targets, chain, 0)
    except UsageError as error:
        raise ModelFileError(message(settings.path, error.message), error.next_step) from None
    return targets


def _optimizer(settings: Settings, model: torch.nn.Module) -> torch.optim.Optimizer:
    made = settings.pick("optimizer")
    if isinstance(made, torch.optim.Optimizer):
        if made.state:
            made.load_state_dict(made.state_dict())  # moves the state to the device of the parameters
        return made
    if made is not None:
        try:
            return made(model)
        except (Exception, SystemExit) as error:
            reason = in_one_line(error)
            raise ModelFileError(message(settings.path, f"the optimizer cannot be built: {reason}")) from None
    settings.sources["optimizer"] = "default (AdamW)"
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ModelFileError(message(settings.path, "the model has no parameters to train."))
    return torch.optim.AdamW(parameters, lr=1e-4)


def usable_model(model: Any, path: str = "") -> torch.nn.Module:
    """Return a model or what a function builds; raise ``ModelFileError`` if that is not a model or has lazy layers."""
    if callable(model) and not isinstance(model, torch.nn.Module):
        try:
            model = model()
        except (Exception, SystemExit) as error:
            raise ModelFileError(message(path, f"the model cannot be built: {in_one_line(error)}")) from None
    if not isinstance(model, torch.nn.Module):
        raise ModelFileError(message(path, f"the model is {reprlib.repr(model)}, but it must be a torch.nn.Module."))
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        what_to_do = f"Run it once on a batch of zeros{' in the model file' if path else ''}."
        raise ModelFileError(message(path, "the model has uninitialized lazy layers."), what_to_do)
    return model


def copy_model(model: Any, optimizer: Any) -> tuple[torch.nn.Module, Any]:
    """Return a model and an optimizer to train in place of the user's; a function is called to build the model.

    Raises:
        ModelFileError: the model cannot be copied, built or trained.
        UsageError: the optimizer cannot be used with the model.
    """
    if not isinstance(model, torch.nn.Module):
        if isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(
                f"The optimizer is {type(optimizer).__name__}, but `model` is a function, whose model it cannot have.",
                "Give the model, or a function that builds the optimizer of a model.",
            )
        return usable_model(model), optimizer
    memo: dict[int, Any] = {}  # so that the copied optimizer has the copied parameters
    try:
        copied = copy.deepcopy(usable_model(model), memo)
        return copied, _copy_optimizer(optimizer, model, memo)
    except AudioaugError:
        raise
    except Exception as error:
        reason = in_one_line(error)
        raise ModelFileError(f"The model cannot be copied: {reason}", "Give a function that builds it.") from None


def _copy_optimizer(optimizer: Any, model: torch.nn.Module, memo: dict[int, Any]) -> Any:
    if not isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
    trained = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if not trained <= {id(parameter) for parameter in model.parameters()}:
        raise UsageError("The optimizer has parameters that the model lacks.", "Build it from model.parameters().")
    copied = copy.deepcopy(optimizer, memo)
    for name in vars(optimizer).keys() - vars(copied).keys():  # torch copies only the attributes that it knows
        setattr(copied, name, copy.deepcopy(getattr(optimizer, name), memo))
    return copied


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the global random generators of Python, numpy and torch at the end."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


PROBED, FEWEST_PROBED = 32, 4
"""Examples that are read to detect clips of different lengths; the fewest, after ``PROBE_SECONDS``."""

PROBE_SECONDS: Seconds = 2.0

DRAWS = (2, 16, 128)
"""Numbers of examples, in steps, whose draws are inspected for ops that change the length of clips."""


@dataclass(frozen=True)
class Clips:
    """The audio field of examples (``None``: unknown, or they are audio themselves), and clip lengths in samples."""

    audio_key: Field | None
    samples: tuple[int, ...]

    @property
    def differ(self) -> bool:
        """Whether the clips differ in length."""
        return len(set(self.samples)) > 1

    def seconds(self, sample_rate: int) -> Interval | None:
        """Return the shortest and the longest length; ``None`` if no example could be read."""
        return (min(self.samples) / sample_rate, max(self.samples) / sample_rate) if self.samples else None


def inspect_clips(dataset: Any, sample_rate: int, audio_key: Field | None, lengths: Field | None) -> Clips:
    """Read some examples and return their audio field and lengths; unreadable ones are ignored.

    Args:
        dataset: map-style or a stream.
        sample_rate: of the chain, in Hz.
        audio_key: field of the audio, if the user gives it.
        lengths: field of an example's own length, if its wave is padded.
    """
    if isinstance(dataset, AudioFolder) and dataset.seconds is not None:
        return Clips(0, (round(dataset.seconds * sample_rate),))
    reader, samples, end = Reader(dataset), list[int](), time.monotonic() + PROBE_SECONDS
    for number in reader.numbers(PROBED):
        if len(samples) >= FEWEST_PROBED and time.monotonic() > end:
            break
        with suppress(Exception, SystemExit):
            example = reader(number)
            audio_key = audio_field(example, audio_key)
            length = samples_of(example, sample_rate, audio_key).shape[-1]
            samples.append(length if lengths is None else own_length(example, lengths, length))
    return Clips(audio_key, tuple(samples))


def resizing_op(chain: Chain, samples: int) -> str:
    """Return the name of an op that makes clips of equal length (in samples) unequal, or an empty string."""
    fixed = (place for place, op in enumerate(chain.ops) if isinstance(op, AdjustDuration) and op.p == 1)
    start = max(fixed, default=0)
    resizing = (leaf for op in chain.ops[start:] for leaf in leaves(op) if leaf.capabilities.changes_length)
    names = [leaf.name for leaf in resizing if leaf is not chain.feature]
    if not names or not samples:
        return ""
    prepare = Preparer(chain, start, fused=False)
    ragged = any(prepare(chain.draw(range(count)), (count, 1, samples)).ragged for count in DRAWS)
    return names[-1] if ragged else ""


def loader_setup(
    dataset: Any,
    chain: Chain,
    audio_key: Field | None,
    pad: bool | None,
    lengths: Field | None,
    collate_fn: Any,
    targets: Any,
) -> tuple[LoaderSetup, Interval | None, dict[str, str]]:
    """Return Loader's arguments other than the plan, the shortest and longest clip in seconds, and sources.

    ``audio_key`` and ``pad`` are detected from some examples if they are ``None``; then their source is returned, too.
    """
    sources = dict[str, str]()
    clips = inspect_clips(dataset, chain.sample_rate, audio_key, lengths)
    op = "" if collate_fn else resizing_op(chain, max(clips.samples, default=0))
    if pad is None and (pad := clips.differ or bool(op)):
        sources["pad"] = "clips of different lengths" if clips.differ else f"{op}, which changes clips' lengths"
    if audio_key is None and isinstance(clips.audio_key, str):
        sources["audio_key"] = "the examples"
    setup = LoaderSetup(
        is_stream=is_stream(dataset),
        audio_key=clips.audio_key if audio_key is None else audio_key,
        pad=bool(pad),
        lengths=lengths,
        collate_fn=collate_fn is not None,
        targets=bool(targets),
    )
    return setup, clips.seconds(chain.sample_rate), sources
