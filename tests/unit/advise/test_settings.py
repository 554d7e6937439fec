"""Settings of a training job, the copies that ``recommend`` trains, and what it leaves as it was."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from audioaug import recommend
from audioaug.advise.settings import COMMAND_LINE, MODEL_FILE, Settings, copy_model, message, preserve_random_state
from audioaug.errors import ChainError, DataError, ModelFileError, UsageError


def test_the_first_layer_with_a_value_wins_and_is_recorded() -> None:
    layers = [(COMMAND_LINE, {"batch_size": 8, "pad": None}), (MODEL_FILE, {"batch_size": 4, "pad": False})]
    settings = Settings(layers, "m.py")
    assert settings.pick("batch_size") == 8 and settings.pick("pad") is False
    assert settings.pick("num_workers", 0) == 0 and settings.pick("lengths") is None and settings.get("targets") is None
    assert settings.sources == {"batch_size": COMMAND_LINE, "pad": MODEL_FILE, "num_workers": "default"}


def test_messages_name_the_model_file_only_if_there_is_one() -> None:
    assert (message("m.py", "the model is 3."), message("", "the model is 3.")) == (
        "m.py: the model is 3.",
        "The model is 3.",
    )


def test_a_copy_of_the_model_is_trained_by_a_copy_of_its_optimizer() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ours, its = copy_model(model, optimizer)
    before = model.weight.clone()
    ours(torch.ones(1, 3)).sum().backward()
    its.step()
    assert torch.equal(model.weight, before) and not torch.equal(ours.weight, before) and model.weight.grad is None


def test_a_function_builds_the_model_and_another_one_its_optimizer() -> None:
    def build(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    model, optimizer = copy_model(lambda: nn.Linear(2, 1), build)
    assert isinstance(model, nn.Linear) and optimizer is build


class Uncopyable(nn.Linear):
    def __deepcopy__(self, memo: object) -> "Uncopyable":
        raise RuntimeError("a handle cannot be copied")


OTHER = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("model", "optimizer", "kind", "says"),
    [
        (3, None, ModelFileError, r"The model is 3, but it must be a torch\.nn\.Module"),
        (lambda: 3, None, ModelFileError, r"The model is 3, but it must be a torch\.nn\.Module"),
        (nn.LazyLinear(2), None, ModelFileError, r"uninitialized lazy layers\. Run it once on a batch of zeros\."),
        (lambda: nn.Linear(2, 1), OTHER, UsageError, "The optimizer is SGD, but `model` is a function"),
        (nn.Linear(2, 1), OTHER, UsageError, "parameters that the model lacks"),
        (Uncopyable(2, 1), None, ModelFileError, r"cannot be copied: RuntimeError: a handle .* Give a function"),
        (lambda: 1 / 0, None, ModelFileError, "cannot be built: ZeroDivisionError"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_clear_error(model, optimizer, kind, says) -> None:
    with pytest.raises(kind, match=says):
        copy_model(model, optimizer)


def test_a_copied_optimizer_has_all_attributes_with_the_copied_parameters() -> None:
    model = nn.Linear(3, 1)
    copied, optimizer = copy_model(model, torch.optim.LBFGS(model.parameters()))
    assert {id(each) for each in optimizer._params} == {id(each) for each in copied.parameters()}


def test_random_generators_are_restored() -> None:
    def numbers() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    with preserve_random_state():
        first = numbers()
    assert numbers() == first != numbers()


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"batch_size": 0}, UsageError, "batch_size is 0, but it must be an integer of at least 1"),
        ({"chain": []}, ChainError, "has no sample rate. Give sample_rate=, in Hz"),
        ({"pad": "yes"}, ModelFileError, "^`pad` is 'yes', but it must be True or False"),
        ({"dataset": iter([1])}, DataError, "is an iterator, which can only be read once"),
        ({"also": ["bf17"]}, UsageError, "bf17"),
        ({"device": "tpu"}, UsageError, "tpu"),
        ({"budget": float("nan")}, UsageError, "budget is nan, but it must be a number of seconds from 1 to 86400"),
        ({"budget": 0}, UsageError, "budget is 0, but"),
        ({"remote": 0}, UsageError, "remote is 0, but it must be an integer from 1 to 10,000"),
        ({"remote": 1.5}, UsageError, "remote is 1.5, but"),
        ({"precision": "fp8"}, UsageError, "precision is 'fp8'"),
        ({"workers": 2}, UsageError, "must be a list of counts"),
        ({"workers": [-1]}, UsageError, "must be a list of counts"),
        ({"verify": "plan.json"}, UsageError, r"must be a Plan\. Read one from a file: audioaug\.Plan\.load"),
        ({"also": "bf17"}, UsageError, "bf17"),
    ],
)
def test_invalid_arguments_are_one_clear_error(arguments, kind, says) -> None:
    with pytest.raises(kind, match=says):
        recommend(nn.Linear(2, 1), progress=False, **arguments)


INTERACTIVE = """
import torch
from audioaug.loader.pickling import why_not_picklable
class Clips(torch.utils.data.Dataset):
    pass

print(why_not_picklable({"dataset": torch.utils.data.Subset(Clips(), [0])}))
print(why_not_picklable({"dataset": [1, torch.zeros(1)]}) == "")
"""


def test_what_only_an_interactive_session_defines_does_not_pickle() -> None:
    done = subprocess.run([sys.executable, "-"], input=INTERACTIVE, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "`dataset.dataset` (Clips) does not pickle (Clips is defined in a notebook or an interactive session)",
        "True",
    ]
