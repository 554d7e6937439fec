"""The model file: read, completed by the command line and the demo data, and turned into a ``TrainingJob``."""

import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from audioaug.advise.settings import COMMAND_LINE, MODEL_FILE, Settings, build_job, usable_model
from audioaug.advise.training_job import TrainingJob
from audioaug.core import Chain
from audioaug.errors import (
    AudioaugError,
    ModelFileError,
    UsageError,
    did_you_mean,
    in_one_line,
    printable,
)
from audioaug.records import AugmentForm, Notice, Precision

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


MODULE_NAME = "audioaug_model_file"


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
    """Read the model file and fill in defaults; the other arguments are the command line's options.

    Raises:
        ModelFileError: the file is missing, raises, or has no trainable model.
        ChainError, DataError: the augmentation or the dataset is invalid.
    """
    threads = set(threading.enumerate())
    path, name = split_name(model)
    file, start = os.path.abspath(path), os.getcwd()
    module = load_module(path)
    if os.getcwd() != start:  # changed by the model file
        data, augment = (each and os.path.join(start, each) for each in (data, augment))
    defined = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    options = {
        "dataset": data,
        "batch_size": batch_size,
        "sample_rate": sample_rate,
        "clip_seconds": clip_seconds,
        "audio_key": audio_key,
    }
    if audio_key is not None and audio_key.removeprefix("-").isdecimal():
        options["audio_key"] = int(audio_key)
    chain = None if augment is None else _augment_option(augment, allow_code)
    layers = (
        (printable(f"{COMMAND_LINE} ({augment})"), {"augment": chain}),
        (COMMAND_LINE, options),
        (MODEL_FILE, defined),
    )
    job = build_job(Settings(layers, path, file), lambda: _model(module, path, name), device, precision)
    setup = job.setup
    if augment is not None:
        form: AugmentForm = setup.augment if ".py:" in augment else "yaml"
        setup = replace(
            setup, augment=form, augment_name=printable(augment.rpartition(".py:")[2]), allow_code=allow_code
        )
    return replace(
        job,
        setup=setup,
        threads=tuple(sorted(thread.name for thread in set(threading.enumerate()) - threads)),
        notices=tuple(
            Notice(
                "unknown_name",
                f"{printable(path)} defines {name!r}, which the advisor does not use. Did you mean {known!r}?",
            )
            for name, known in misspelt(defined)
        ),
    )


def split_name(named: str) -> tuple[str, str]:
    """Return the file and the name of ``FILE.py:NAME``; the name is empty if there is none."""
    path, _, name = named.partition(".py:")
    return path + ".py" if name else path, name


def load_module(path: str) -> ModuleType:
    """Import a Python file as a module; raise ``ModelFileError`` if that fails.

    As with ``python FILE``, ``sys.argv`` has no options of ours, and the file's folder is on ``sys.path``. Both stay:
    functions of the file may parse options later, and workers that are not forked import it again.
    """
    if not Path(path).is_file():
        near = (
            did_you_mean(Path(path).name, (p.name for p in Path(path).parent.glob("*.py")))
            if Path(path).parent.is_dir()
            else ""
        )
        raise ModelFileError(f"No such file: {path}.", near if "mean" in near else "Give a Python file.")
    sys.argv = [path]
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
    except (Exception, SystemExit, GeneratorExit) as error:
        raise ModelFileError(
            f"{path} cannot be imported: {in_one_line(error)}", "Run it with python for the full traceback."
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


def _model(module: ModuleType, path: str, name: str) -> torch.nn.Module:
    return usable_model(named(module, path, name) if name else _any_model(module, path), path)


def named(module: ModuleType, path: str, name: str) -> Any:
    """Return what a file defines by this name.

    Raises:
        ModelFileError: it defines no such name.
    """
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


def _augment_option(augment: str, allow_code: bool) -> Any:
    path, colon, name = augment.rpartition(":")
    if colon and path.endswith(".py"):
        command_line = sys.argv
        module = load_module(path)
        sys.argv = command_line  # of the model file, for what it calls later
        return named(module, path, name)
    if augment.endswith((".yaml", ".yml")):
        return Chain.from_yaml(augment, code=allow_code)
    raise UsageError(f"--augment {augment} must be FILE.yaml or FILE.py:NAME.")
