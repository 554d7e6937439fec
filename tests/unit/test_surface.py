"""The public surface: exported names, JSON fields, options, what importing costs, and the tree of errors."""

import dataclasses
import importlib
import importlib.util
import json
import pickle
import pkgutil
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest
import yaml

import audioaug
from audioaug import errors, records
from audioaug.__main__ import COMMANDS, commands
from audioaug.errors import AudioaugError, AudioaugWarning, UsageError, did_you_mean

ROOT = Path(__file__).parents[2]
EXPORTED = {
    "AudioFolder",
    "BucketBatchSampler",
    "Chain",
    "Draws",
    "Frames",
    "Label",
    "Loader",
    "Monitor",
    "Plan",
    "Report",
    "Segments",
    "SpecAugment",
    "Stamps",
    "build_cpu",
    "build_device",
    "errors",
    "ops",
    "prefetch",
    "recommend",
    "split",
}
HEAVY = (
    "audiomentations",
    "torch_audiomentations",
    "torchaudio",
    "matplotlib",
    "rich",
    "pyroomacoustics",
    "librosa",
    "numba",
    "scipy.signal",
)


def can_be_imported(name: str) -> bool:
    """Return whether a module can be imported here: kernels, and what compiles them, need Triton."""
    return not name.endswith((".kernel", ".jit")) or importlib.util.find_spec("triton") is not None


MODULES = sorted(
    module.name for module in pkgutil.walk_packages(audioaug.__path__, "audioaug.") if can_be_imported(module.name)
)


def fresh_python(code, *arguments):
    """Run code in a new interpreter that sees this checkout; return what it prints."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=200).stdout


def test_the_exported_names():
    assert set(audioaug.__all__) == EXPORTED and len(audioaug.__all__) == len(EXPORTED)
    namespace: dict[str, object] = {}
    exec("from audioaug import *", namespace)
    assert EXPORTED <= set(namespace) and all(f"``{name}``" in audioaug.__doc__ for name in EXPORTED)


SURFACE = yaml.safe_load(Path(__file__).with_name("surface.yaml").read_text(encoding="utf-8"))


def test_the_fields_of_every_record_are_listed():
    kinds = [kind for kind in vars(records).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    found = {kind.__name__: [field.name for field in dataclasses.fields(kind)] for kind in kinds}
    assert found == {name: fields.split() for name, fields in SURFACE["records"].items()}


def options_of(command: click.Command) -> list[str]:
    options = [option for option in command.params if isinstance(option, click.Option)]
    arguments = [argument.name.upper() for argument in command.params if isinstance(argument, click.Argument)]
    return [*arguments, *(name for option in options for name in (*option.opts, *option.secondary_opts))]


def test_the_options_of_every_command_are_listed():
    found = {name: options_of(commands.get_command(click.Context(commands), name)) for name in COMMANDS}
    assert found == {name: options.split() for name, options in SURFACE["commands"].items()}


def test_nothing_else_is_listed():
    assert set(dir(audioaug)) == {*EXPORTED, "__version__"}
    assert not hasattr(audioaug, "Lodaer")


def test_names_are_the_objects_themselves_and_can_be_pickled():
    assert audioaug.Chain is importlib.import_module("audioaug.core.chain").Chain
    assert isinstance(audioaug.ops, types.ModuleType) and isinstance(audioaug.errors, types.ModuleType)
    chain = audioaug.Chain([audioaug.ops.Gain()], sample_rate=16000)
    assert pickle.loads(pickle.dumps(chain)) == chain and pickle.loads(pickle.dumps(audioaug.Loader)) is audioaug.Loader


LIGHT = """
import json, sys
import audioaug
imported = list(sys.modules)
transforms = [{"Gain": {}}, {"AddBackgroundNoise": {"sounds_path": "datasets/demo/noise"}}]
chain = audioaug.Chain.from_dict({"sample_rate": 16000, "transforms": transforms})  # before any op was named
audioaug.build_cpu(chain), audioaug.build_device(chain), chain.draw([0]), audioaug.Chain.from_dict(chain.to_dict())
from audioaug import *
declared = list(sys.modules)
import rich
print(json.dumps([imported, declared, list(sys.modules)]))
"""


def test_importing_declaring_and_drawing_stay_light():
    imported, declared, with_rich = json.loads(fresh_python(LIGHT))
    assert not {"torch", "numpy", "audioaug.ops", *HEAVY} & set(imported)
    assert "audioaug.ops.gain" in declared
    assert not set(HEAVY) & set(declared)
    assert "rich" in set(HEAVY) & set(with_rich)  # the test would see one


def test_every_module_has_a_docstring():
    modules = [importlib.import_module(name) for name in MODULES if not name.endswith("__main__")]
    assert [module.__name__ for module in modules if len(module.__doc__ or "") <= 20] == []


def test_the_modules_are_found():
    assert len(MODULES) > 60 and {"audioaug.core.chain", "audioaug.ops.gain", "audioaug.units"} <= set(MODULES)


def every_error(kind=AudioaugError):
    yield kind
    for child in kind.__subclasses__():
        yield from every_error(child)


for _name in MODULES:
    if not _name.endswith("__main__"):
        importlib.import_module(_name)
ERRORS = list(every_error())
EVERY_ERROR = pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)


@EVERY_ERROR
def test_exit_codes(kind):
    usage = issubclass(kind, UsageError)
    assert kind.exit_code == kind("message").exit_code == (2 if usage else 1)


@EVERY_ERROR
def test_errors_state_the_next_step_and_pickle(kind):
    error = kind("The value is 3, but the limit is 2.", "Use 2 or less.")
    assert str(error) == "The value is 3, but the limit is 2. Use 2 or less."
    assert str(kind("Only this.")) == "Only this."
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and again.next_step == error.next_step


@EVERY_ERROR
def test_all_errors_are_in_the_tree_of_the_docstring(kind):
    assert kind.__module__ == errors.__name__ and kind.__doc__
    line = next(line for line in errors.__doc__.splitlines() if line.split()[:1] == [kind.__name__])
    depth = (len(line) - len(line.lstrip()) - 4) // 2
    assert depth == len([parent for parent in kind.__mro__ if issubclass(parent, AudioaugError)]) - 1
    drawn = [int(word) for word in line.split() if word.isdigit()]
    assert drawn in ([kind.exit_code], []) and (drawn or kind.exit_code == kind.__mro__[1].exit_code)


def test_warnings_are_user_warnings():
    assert issubclass(AudioaugWarning, UserWarning) and not issubclass(AudioaugWarning, AudioaugError)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("Gian", "Did you mean Gain?"),
        ("gain", "Did you mean Gain?"),
        ("xyz", "Known: Clip, Gain, Shift."),
        ("", "Known: Clip, Gain, Shift."),
    ],
)
def test_did_you_mean(word, sentence):
    assert did_you_mean(word, ["Shift", "Gain", "Clip"]) == sentence
