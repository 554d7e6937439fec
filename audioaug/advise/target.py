"""Target: the model file, the command line and the demo data, made into what is to be trained."""

import importlib.util
import inspect
import math
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from audioaug.advise.clips import loader_setup
from audioaug.advise.demo import CLIP_SECONDS, demo_chain
from audioaug.advise.names import misspelt
from audioaug.audio.demo import SAMPLE_RATE, demo_folder
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain, Op, as_chain
from audioaug.errors import (
    AudioaugError,
    AudioaugWarning,
    ChainError,
    DataError,
    ModelFileError,
    UsageError,
    did_you_mean,
    printable,
)
from audioaug.loader import targets as kinds
from audioaug.loader.examples import Field, get_wave, own_length, samples_of
from audioaug.loader.pipeline import check_dataset
from audioaug.records import AugmentForm, Interval, LoaderSetup, Notice, Precision
from audioaug.units import format_hz

MODULE_NAME = "audioaug_model_file"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

Given = Mapping[str, Any]


@dataclass
class Target:
    """What is to be trained, and where each part of it came from.

    ``pad``, ``lengths``, ``targets`` and ``audio_key`` are Loader's; ``audio_key`` is where the audio was found if the
    user does not say. ``clip_seconds``: the shortest and the longest clip that was looked at. ``last_loss`` is that of
    the last step, where the step tells.
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
    last_loss: Any = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The model file without its folder."""
        return Path(self.path).name

    @property
    def pad(self) -> bool:
        """Whether clips of a batch may differ in length."""
        return self.setup.pad or self.lengths is not None

    @property
    def lengths(self) -> Field | None:
        """Where in an example its own length is."""
        return self.setup.lengths

    @property
    def audio_key(self) -> Field | None:
        """Where in an example its audio is."""
        return self.setup.audio_key

    @property
    def is_stream(self) -> bool:
        """Whether the dataset can only be iterated over."""
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
        """The smallest cut there can be: targets have to follow, and a collate_fn has to see the last lengths."""
        followed = self.chain.followed_from if self.targets else 0
        return self.chain.first_cut(followed if self.collate_fn is None else max(followed, self.chain.sized_from))

    def step(self, batch: Any) -> None:
        """Train on one batch, the way the file says or the usual way."""
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
        """Train on the first batch; raise ``ModelFileError`` if that fails, say because the model rejects its shape."""
        try:
            self.step(batch)
        except torch.cuda.OutOfMemoryError:
            raise ModelFileError(
                f"{self.name}: a batch of {self.batch_size} does not fit on {self.device}.",
                "Give a smaller --batch-size.",
            ) from None
        except Exception as error:
            wave, labels = self.wave_of(batch), labels_of(batch)
            raise ModelFileError(
                f"{self.name}: the first step, on a batch of shape {tuple(wave.shape)}, {wave.dtype}, fails: "
                f"{in_one_line(error, self.path)}",
                f"If the loss is the reason: the labels are strings, such as {labels[0]!r}; turn them into numbers."
                if are_strings(labels)
                else "The batch comes first, time last; define `loss` or `train_step` if the model is not the reason.",
            ) from None

    def why_not_finite(self) -> str:
        """Say what is NaN or infinite after the last step: the loss or, where that is unknown, a parameter.

        This waits for the device.
        """
        loss = float(self.last_loss.float().mean()) if isinstance(self.last_loss, torch.Tensor) else self.last_loss
        if isinstance(loss, float) and not math.isfinite(loss):
            return f"The loss is {loss}"
        broken = (name for name, value in self.model.named_parameters() if not bool(value.isfinite().all()))
        return next((f"The model's parameter {name} is not finite" for name in broken), "")


def load_target(
    model: str,
    device: torch.device,
    *,
    augment: str | None = None,
    allow_code: bool = False,
    data: str | None = None,
    batch_size: int | None = None,
    sample_rate: int | None = None,
    clip_seconds: float | None = None,
    audio_key: str | None = None,
    precision: Precision = "fp32",
) -> Target:
    """Read the model file and fill in what it leaves open.

    Raises:
        ModelFileError: the file is missing, raises, or has no model that can be trained.
        ChainError, DataError: the augmentation or the dataset it names is faulty.
    """
    threads = set(threading.enumerate())
    path, _, name = model.partition(".py:")
    path = path + ".py" if name else path
    module = load_module(path)
    given = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    sources: dict[str, str] = {}
    rate = _pick("sample_rate", sample_rate, given, None, sources)
    chain, form = _chain(augment, allow_code, given, rate, sources)
    if rate is None:
        sources["sample_rate"] = sources["augment"]
    seconds = _number("clip_seconds", _pick("clip_seconds", clip_seconds, given, CLIP_SECONDS, sources))
    dataset, data_name = _dataset(data, given, chain.sample_rate, seconds, sources)
    is_folder = data_name != type(dataset).__name__
    if not is_folder:
        del sources["clip_seconds"]  # clips have their own lengths
    is_position = audio_key is not None and audio_key.removeprefix("-").isdecimal()
    option = int(audio_key) if audio_key is not None and is_position else audio_key
    key = _pick("audio_key", option, given, None, sources)
    setup, clip_lengths, reasons = loader_setup(dataset, chain, key, given)
    if key is None:
        del sources["audio_key"]  # or as the examples show it
    sources |= reasons
    network = _model(module, path, name).to(device).train()
    own_step = given.get("train_step")
    sources |= {} if own_step is None else {"train_step": "model file"}
    return Target(
        path=path,
        model=network,
        chain=chain,
        dataset=dataset,
        batch_size=int(_number("batch_size", _pick("batch_size", batch_size, given, 32, sources), least=1)),
        clip_seconds=clip_lengths or (seconds, seconds),
        device=device,
        precision=precision,
        num_workers=int(_number("num_workers", _pick("num_workers", None, given, 0, sources), least=0)),
        collate_fn=given.get("collate_fn"),
        loss=_pick("loss", None, given, UsualLoss(), sources if own_step is None else {}),
        optimizer=_optimizer(given, network, path, sources),
        own_step=own_step,
        setup=replace(
            setup,
            augment=form,
            augment_name=(augment or "augment").rpartition(".py:")[2],
            allow_code=allow_code,
            dataset_path=data_name if is_folder and sources["dataset"] != "demo data" else "",
        ),
        targets=given.get("targets"),
        data_name=data_name,
        sources=sources,
        threads=tuple(sorted(thread.name for thread in set(threading.enumerate()) - threads)),
        notices=tuple(
            Notice("unknown_name", f"{path} defines {name!r}, which is not used. Did you mean {known!r}?")
            for name, known in misspelt(given)
        ),
    )


def load_module(path: str) -> ModuleType:
    """Run a Python file as a module; raise ``ModelFileError`` with one sentence if that cannot be."""
    if not Path(path).is_file():
        near = (
            did_you_mean(Path(path).name, (p.name for p in Path(path).parent.glob("*.py")))
            if Path(path).parent.is_dir()
            else ""
        )
        raise ModelFileError(f"There is no model file {path}.", near if "mean" in near else "Name a Python file.")
    sys.path.insert(0, str(Path(path).resolve().parent))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelFileError(f"{path} is not a Python file.", "Name one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except AudioaugError as error:
        raise type(error)(f"{path}: {error.message}", error.next_step) from None
    except (Exception, SystemExit) as error:
        raise ModelFileError(
            f"{path} cannot be run: {in_one_line(error, path)}", "Run it with python to see more."
        ) from None
    return module


def _module_name(path: str) -> str:
    """Return the name by which workers that are not forked find the file on the path too, if there is one."""
    name, file = Path(path).stem, str(Path(path).resolve())
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) != file:
        return MODULE_NAME
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return MODULE_NAME
    return name if spec is not None and spec.origin == file else MODULE_NAME


class UsualLoss:
    """Cross entropy for class scores and whole-number labels, and the mean square of the output otherwise.

    Which of the two it is, is decided on the first batch: looking at labels makes the host wait for the device.
    """

    def __init__(self) -> None:
        self._classifies: bool | None = None

    def __call__(self, output: Any, batch: Any) -> torch.Tensor:
        """Return the number to minimise."""
        if isinstance(output, Mapping):
            output = output.get("loss", next(iter(output.values())))
        if isinstance(output, tuple | list):
            output = output[0]
        labels = labels_of(batch)
        if self._classifies is None:
            self._classifies = isinstance(labels, torch.Tensor) and _are_scores_of(output, labels)
            if are_strings(labels):
                warnings.warn(
                    f"The labels are strings, such as {labels[0]!r}, which the usual loss cannot use: it is the mean "
                    "square of the output instead. Turn them into whole numbers in the dataset, or define `loss`.",
                    AudioaugWarning,
                    stacklevel=2,
                )
        if self._classifies and isinstance(labels, torch.Tensor):
            return torch.nn.functional.cross_entropy(output.float(), labels)
        return output.float().square().mean()


def labels_of(batch: Any) -> Any:
    """Return what stands in the usual place of a batch's labels; ``None`` if there is none."""
    if isinstance(batch, Mapping):
        return batch.get("label", batch.get("labels"))
    return batch[1] if isinstance(batch, tuple | list) and len(batch) > 1 else None


def are_strings(labels: Any) -> bool:
    """Return whether a batch's labels are text, as torch's default collate_fn leaves it."""
    return isinstance(labels, tuple | list) and bool(labels) and all(isinstance(label, str) for label in labels)


def _are_scores_of(output: torch.Tensor, labels: torch.Tensor) -> bool:
    """Return whether these may be class scores (B, K) for labels (B,) below K."""
    if labels.is_floating_point() or labels.ndim != 1 or output.ndim != 2 or len(output) != len(labels):
        return False
    return int(labels.max()) < output.shape[1]


def _pick(name: str, option: Any, given: Given, default: Any, sources: dict[str, str]) -> Any:
    """Return the command line's value, the model file's, or the default, and note which it was."""
    if option is not None:
        sources[name] = "command line"
        return option
    if given.get(name) is not None:
        sources[name] = "model file"
        return given[name]
    sources[name] = "default"
    return default


def _number(name: str, value: Any, least: int | None = None) -> float:
    """Return a number above 0 or, where there is a least one, a whole number; raise ``UsageError`` if it is neither."""
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if least is None and not (real and value > 0):
        raise UsageError(f"{name} is {value!r}, but it must be a number above 0.")
    if least is not None and not (real and value >= least and value == int(value)):
        raise UsageError(f"{name} is {value!r}, but it must be a whole number of at least {least}.")
    return float(value)


def _model(module: ModuleType, path: str, name: str) -> torch.nn.Module:
    found = _named(module, path, name) if name else _any_model(module, path)
    if callable(found) and not isinstance(found, torch.nn.Module):
        try:
            found = found()
        except Exception as error:
            raise ModelFileError(f"{path}: the model cannot be built: {in_one_line(error, path)}") from None
    if not isinstance(found, torch.nn.Module):
        raise ModelFileError(f"{path}: the model is {found!r}, but it must be a torch.nn.Module.")
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in found.parameters()):
        raise ModelFileError(
            f"{path}: the model has lazy layers, which do not know their sizes yet.",
            "Call it once on a batch of zeros in the model file.",
        )
    return found


def _named(module: ModuleType, path: str, name: str) -> Any:
    if not hasattr(module, name):
        known = [key for key in vars(module) if not key.startswith("_")]
        raise ModelFileError(f"{path} defines no {name!r}.", did_you_mean(name, known))
    return getattr(module, name)


def _any_model(module: ModuleType, path: str) -> Any:
    for name in ("model", "build_model"):
        if hasattr(module, name):
            return getattr(module, name)
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]
    ready = [kind for kind in classes if _needs_no_arguments(kind)]
    if len(ready) == 1:
        return ready[0]
    if ready:
        names = ", ".join(kind.__name__ for kind in ready)
        raise ModelFileError(
            f"{path} defines several models ({names}).", f"Name one: --model {path}:{ready[0].__name__}."
        )
    raise ModelFileError(
        f"{path} defines no model.",
        "Define `model`, `build_model()`, or one torch.nn.Module class that needs no arguments.",
    )


def _needs_no_arguments(kind: type) -> bool:
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError):
        return False
    return True


def _chain(
    augment: str | None, allow_code: bool, given: Given, sample_rate: int | None, sources: dict[str, str]
) -> tuple[Chain, AugmentForm]:
    """Return the chain, and what it was made of."""
    declared = given.get("augment")
    sources["augment"] = "model file"
    if augment is not None:
        sources["augment"] = f"command line ({augment})"
        declared = _augment_option(augment, allow_code)
    if declared is None:
        sources["augment"] = "demo chain"
        return demo_chain(sample_rate or SAMPLE_RATE), "demo"
    if isinstance(declared, Chain):
        form: AugmentForm = "yaml" if augment and ".py:" not in augment else "chain"
        return _at_rate(declared, sample_rate, sources), form
    if sample_rate is None:
        raise ChainError(
            "The augmentation does not say its sample rate.", "Define `sample_rate` or give --sample-rate."
        )
    return as_chain(declared, sample_rate), _form_of(declared)


def _form_of(declared: Any) -> AugmentForm:
    if isinstance(declared, list | tuple):
        return "ops" if all(isinstance(op, Op) for op in declared) else "audiomentations"
    return "op" if isinstance(declared, Op) else "audiomentations"


def _at_rate(chain: Chain, sample_rate: int | None, sources: dict[str, str]) -> Chain:
    """Return the chain at the rate that was asked for; raise ``ChainError`` if the model file says two."""
    if sample_rate in (None, chain.sample_rate):
        return chain
    if sources["sample_rate"] != "command line":
        raise ChainError(
            f"The chain is for {format_hz(chain.sample_rate)}, but `sample_rate` of the model file is {sample_rate!r}.",
            "Remove `sample_rate`, or make the chain for the same rate.",
        )
    return Chain(chain.ops, sample_rate)


def _augment_option(augment: str, allow_code: bool) -> Any:
    path, colon, name = augment.rpartition(":")
    if colon and path.endswith(".py"):
        return _named(load_module(path), path, name)
    if augment.endswith((".yaml", ".yml")):
        return Chain.from_yaml(augment, code=allow_code)
    raise UsageError(f"--augment {augment} is neither FILE.yaml nor FILE.py:NAME.")


def _dataset(
    data: str | None, given: Given, sample_rate: int, seconds: float, sources: dict[str, str]
) -> tuple[Any, str]:
    declared = _pick("dataset", data, given, None, sources)
    if declared is None:
        sources["dataset"] = "demo data"
        declared = demo_folder("speech")
    if isinstance(declared, str | Path):
        return AudioFolder(declared, sample_rate, seconds), printable(str(declared))
    if isinstance(declared, Iterator) and not isinstance(declared, IterableDataset):
        raise DataError(
            f"`dataset` ({type(declared).__name__}) is an iterator, which can be read only once.",
            "Define a class with __iter__ (torch's IterableDataset), or one with __getitem__ and __len__.",
        )
    check_dataset(declared)
    return declared, type(declared).__name__


def _optimizer(given: Given, model: torch.nn.Module, path: str, sources: dict[str, str]) -> torch.optim.Optimizer:
    made = _pick("optimizer", None, given, None, sources)
    if isinstance(made, torch.optim.Optimizer):
        return made
    if made is not None:
        try:
            return made(model)
        except Exception as error:
            raise ModelFileError(f"{path}: the optimizer cannot be built: {in_one_line(error, path)}") from None
    sources["optimizer"] = "default (AdamW)"
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ModelFileError(f"{path}: the model has no parameters to train.")
    return torch.optim.AdamW(parameters, lr=1e-4)


def in_one_line(error: BaseException, path: str) -> str:
    """Say what was raised in one line, and on which line of the model file."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    said = (text.strip().splitlines() or [""])[-1 if "Original Traceback" in text else 0]  # in a DataLoader worker
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if os.path.realpath(frame.filename) == os.path.realpath(path)]
    if isinstance(error, SyntaxError) and error.lineno:
        lines = [error.lineno]
    kind = "" if said.startswith(type(error).__name__) else f"{type(error).__name__}: "
    where = f" (line {lines[-1]} of {Path(path).name})" if lines else ""
    return f"{kind}{said.rstrip('.')}".removesuffix(": ") + where + "."
