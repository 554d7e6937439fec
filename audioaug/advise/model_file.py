"""The model file: read, completed by the command line and the demo data, and turned into a ``TrainingJob``."""

import importlib.util
import inspect
import math
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import IterableDataset

from audioaug import ops
from audioaug.advise.clips import loader_setup
from audioaug.advise.training_job import TrainingJob, UsualLoss, in_one_line
from audioaug.audio.demo import SAMPLE_RATE, demo_folder
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain, Op, as_chain
from audioaug.errors import (
    AudioaugError,
    ChainError,
    DataError,
    ModelFileError,
    UsageError,
    did_you_mean,
    printable,
)
from audioaug.loader.pipeline import check_dataset
from audioaug.loader.targets import LabelTransforms
from audioaug.records import AugmentForm, Notice, Precision
from audioaug.units import format_hz

CALLABLE = ("build_model", "train_step", "collate_fn")
NUMBERS = ("batch_size", "num_workers", "clip_seconds", "sample_rate")
OTHERS = ("model", "optimizer", "loss", "dataset", "augment", "pad", "lengths", "targets", "audio_key")
KNOWN = (*CALLABLE, *NUMBERS, *OTHERS)
"""The names that the advisor reads from a model file."""

SHORTEST_COMPARED = 7
"""Shortest name that is checked for typos: too many ordinary names are one edit from ``pad``, ``loss`` or ``model``."""


def misspelt(defined: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each public name that is probably misspelt, with the name that was probably meant.

    These are one edit (insertion, deletion, substitution or swap of neighbours) from a known name that the file does
    not define. A plural and a numbered name (``target``, ``dataset2``) do not count, nor do classes, modules, and
    values of a type that the known name cannot have.
    """
    missing = [name for name in KNOWN if name not in defined and len(name) >= SHORTEST_COMPARED]
    for name, value in defined.items():
        if name.startswith("_") or name in KNOWN or inspect.isclass(value) or isinstance(value, ModuleType):
            continue
        near = (known for known in missing if _is_near(name.lower(), known) and _may_hold(known, value))
        if known := next(near, None):
            yield name, known


def _may_hold(known: str, value: Any) -> bool:
    if known in CALLABLE:
        return callable(value)
    return known not in NUMBERS or isinstance(value, Real)


def _is_near(name: str, known: str) -> bool:
    """Return whether a name is at most one edit from a known one, but not its plural, singular or numbered form."""
    is_variant = name.rstrip("_0123456789") == known and name != known
    is_plural = "_" not in known and known in (name + "s", name.removesuffix("s"))
    return not is_variant and not (is_plural and name != known) and _one_edit_apart(name, known)


def _one_edit_apart(a: str, b: str) -> bool:
    same = next((place for place, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    a, b = a[same:], b[same:]
    swapped = a[:2] == b[:2][::-1] and a[2:] == b[2:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or swapped


CLIP_SECONDS = 1.0


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


MODULE_NAME = "audioaug_model_file"

Definitions = Mapping[str, Any]
"""The public names of a model file, with their values."""


def load_training_job(
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
) -> TrainingJob:
    """Read the model file and fill in defaults.

    Raises:
        ModelFileError: the file is missing, raises, or has no trainable model.
        ChainError, DataError: the augmentation or the dataset is invalid.
    """
    threads = set(threading.enumerate())
    path, _, name = model.partition(".py:")
    path = path + ".py" if name else path
    module = load_module(path)
    defined = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    sources: dict[str, str] = {}
    rate = _pick("sample_rate", sample_rate, defined, None, sources)
    chain, form = _chain(augment, allow_code, defined, rate, sources)
    if rate is None:
        sources["sample_rate"] = sources["augment"]
    seconds = _number("clip_seconds", _pick("clip_seconds", clip_seconds, defined, CLIP_SECONDS, sources))
    dataset, data_name = _dataset(data, defined, chain.sample_rate, seconds, sources)
    is_folder = data_name != type(dataset).__name__
    if not is_folder:
        del sources["clip_seconds"]  # lengths come from the dataset
    is_position = audio_key is not None and audio_key.removeprefix("-").isdecimal()
    option = int(audio_key) if audio_key is not None and is_position else audio_key
    key = _pick("audio_key", option, defined, None, sources)
    _check_loader_arguments(path, defined, chain)
    setup, clip_lengths, reasons = loader_setup(dataset, chain, key, defined)
    if key is None:
        del sources["audio_key"]  # detected from the examples, if at all
    sources |= reasons
    network = _model(module, path, name).to(device).train()
    own_step = defined.get("train_step")
    sources |= {} if own_step is None else {"train_step": "model file"}
    return TrainingJob(
        path=path,
        model=network,
        chain=chain,
        dataset=dataset,
        batch_size=int(_number("batch_size", _pick("batch_size", batch_size, defined, 32, sources), least=1)),
        clip_seconds=clip_lengths or (seconds, seconds),
        device=device,
        precision=precision,
        num_workers=int(_number("num_workers", _pick("num_workers", None, defined, 0, sources), least=0)),
        collate_fn=defined.get("collate_fn"),
        loss=_pick("loss", None, defined, UsualLoss(), sources if own_step is None else {}),
        optimizer=_optimizer(defined, network, path, sources),
        own_step=own_step,
        setup=replace(
            setup,
            augment=form,
            augment_name=(augment or "augment").rpartition(".py:")[2],
            allow_code=allow_code,
            dataset_path=data_name if is_folder and sources["dataset"] != "demo data" else "",
        ),
        targets=defined.get("targets"),
        data_name=data_name,
        sources=sources,
        threads=tuple(sorted(thread.name for thread in set(threading.enumerate()) - threads)),
        notices=tuple(
            Notice("unknown_name", f"{path} defines {name!r}, which the advisor does not use. Did you mean {known!r}?")
            for name, known in misspelt(defined)
        ),
    )


def _check_loader_arguments(path: str, defined: Definitions, chain: Chain) -> None:
    """Raise ``ModelFileError`` if ``pad`` or ``targets`` has a wrong type."""
    if not isinstance(defined.get("pad"), bool | None):
        raise ModelFileError(f"{path}: pad is {defined['pad']!r}, but must be True or False.")
    try:
        LabelTransforms(defined.get("targets"), chain, 0)
    except UsageError as error:
        raise ModelFileError(f"{path}: {error.message}", error.next_step) from None


def load_module(path: str) -> ModuleType:
    """Import a Python file as a module; raise ``ModelFileError`` if that fails."""
    if not Path(path).is_file():
        near = (
            did_you_mean(Path(path).name, (p.name for p in Path(path).parent.glob("*.py")))
            if Path(path).parent.is_dir()
            else ""
        )
        raise ModelFileError(f"No such model file: {path}.", near if "mean" in near else "Give a Python file.")
    sys.path.insert(0, str(Path(path).resolve().parent))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelFileError(f"{path} is not a Python file.", "Give a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except AudioaugError as error:
        raise type(error)(f"{path}: {error.message}", error.next_step) from None
    except (Exception, SystemExit) as error:
        raise ModelFileError(
            f"{path} cannot be imported: {in_one_line(error, path)}", "Run it with python for the full traceback."
        ) from None
    return module


def _module_name(path: str) -> str:
    """Return a module name that workers can import when they are not forked, if there is one."""
    name, file = Path(path).stem, str(Path(path).resolve())
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) != file:
        return MODULE_NAME
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return MODULE_NAME
    return name if spec is not None and spec.origin == file else MODULE_NAME


def _pick(name: str, option: Any, defined: Definitions, default: Any, sources: dict[str, str]) -> Any:
    """Return the value from the command line, the model file, or the default, and record the source."""
    if option is not None:
        sources[name] = "command line"
        return option
    if defined.get(name) is not None:
        sources[name] = "model file"
        return defined[name]
    sources[name] = "default"
    return default


def _number(name: str, value: Any, least: int | None = None) -> float:
    """Return a number above 0 or, with ``least``, an integer of at least that; raise ``UsageError`` otherwise."""
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if least is None and not (real and value > 0):
        raise UsageError(f"{name} is {value!r}, but must be a number above 0.")
    if least is not None and not (real and value >= least and value == int(value)):
        raise UsageError(f"{name} is {value!r}, but must be an integer of at least {least}.")
    return float(value)


def _model(module: ModuleType, path: str, name: str) -> torch.nn.Module:
    found = _named(module, path, name) if name else _any_model(module, path)
    if callable(found) and not isinstance(found, torch.nn.Module):
        try:
            found = found()
        except Exception as error:
            raise ModelFileError(f"{path}: the model cannot be built: {in_one_line(error, path)}") from None
    if not isinstance(found, torch.nn.Module):
        raise ModelFileError(f"{path}: the model is {found!r}, but must be a torch.nn.Module.")
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in found.parameters()):
        raise ModelFileError(
            f"{path}: the model has uninitialized lazy layers.",
            "Run it once on a batch of zeros in the model file.",
        )
    return found


def _named(module: ModuleType, path: str, name: str) -> Any:
    if not hasattr(module, name):
        known = [key for key in vars(module) if not key.startswith("_")]
        raise ModelFileError(f"{path} does not define {name!r}.", did_you_mean(name, known))
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
            f"{path} defines several models ({names}).", f"Choose one: --model {path}:{ready[0].__name__}."
        )
    raise ModelFileError(
        f"{path} does not define a model.",
        "Define `model`, `build_model()`, or one torch.nn.Module class without required arguments.",
    )


def _needs_no_arguments(kind: type) -> bool:
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError):
        return False
    return True


def _chain(
    augment: str | None, allow_code: bool, defined: Definitions, sample_rate: int | None, sources: dict[str, str]
) -> tuple[Chain, AugmentForm]:
    """Return the chain, and the form it was declared in."""
    declared = defined.get("augment")
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
        raise ChainError("The augmentation has no sample rate.", "Define `sample_rate` or use --sample-rate.")
    return as_chain(declared, sample_rate), _form_of(declared)


def _form_of(declared: Any) -> AugmentForm:
    if isinstance(declared, list | tuple):
        return "ops" if all(isinstance(op, Op) for op in declared) else "audiomentations"
    return "op" if isinstance(declared, Op) else "audiomentations"


def _at_rate(chain: Chain, sample_rate: int | None, sources: dict[str, str]) -> Chain:
    """Return the chain at the requested rate; raise ``ChainError`` if the model file contradicts itself."""
    if sample_rate in (None, chain.sample_rate):
        return chain
    if sources["sample_rate"] != "command line":
        raise ChainError(
            f"The chain's rate is {format_hz(chain.sample_rate)}, but `sample_rate` in the model file is "
            f"{sample_rate!r}.",
            "Remove `sample_rate`, or use the same rate for the chain.",
        )
    return Chain(chain.ops, sample_rate)


def _augment_option(augment: str, allow_code: bool) -> Any:
    path, colon, name = augment.rpartition(":")
    if colon and path.endswith(".py"):
        return _named(load_module(path), path, name)
    if augment.endswith((".yaml", ".yml")):
        return Chain.from_yaml(augment, code=allow_code)
    raise UsageError(f"--augment {augment} must be FILE.yaml or FILE.py:NAME.")


def _dataset(
    data: str | None, defined: Definitions, sample_rate: int, seconds: float, sources: dict[str, str]
) -> tuple[Any, str]:
    declared = _pick("dataset", data, defined, None, sources)
    if declared is None:
        sources["dataset"] = "demo data"
        declared = demo_folder("speech")
    if isinstance(declared, str | Path):
        return AudioFolder(declared, sample_rate, seconds), printable(str(declared))
    if isinstance(declared, Iterator) and not isinstance(declared, IterableDataset):
        raise DataError(
            f"`dataset` ({type(declared).__name__}) is an iterator, which can only be read once.",
            "Define a class with __iter__ (torch's IterableDataset), or one with __getitem__ and __len__.",
        )
    check_dataset(declared)
    return declared, type(declared).__name__


def _optimizer(
    defined: Definitions, model: torch.nn.Module, path: str, sources: dict[str, str]
) -> torch.optim.Optimizer:
    made = _pick("optimizer", None, defined, None, sources)
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
