from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch.nn.functional import cross_entropy

from audioaug.advise.target import UsualLoss, in_one_line, load_module, load_target
from audioaug.audio.demo import demo_folder
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain
from audioaug.errors import ChainError, DataError, ModelFileError, UsageError

HEAD = "import torch\nfrom torch import nn\n"
CLASS = "class {0}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(3, 1)\n"
CPU = torch.device("cpu")


def load(path, **options):
    return load_target(path, CPU, **options)


# The model


@pytest.mark.parametrize(
    "text",
    [
        "model = nn.Linear(3, 1)",
        "def build_model():\n    return nn.Linear(3, 1)",
        CLASS.format("Only"),
        CLASS.format("Only") + "class Part(nn.Module):\n    def __init__(self, width): ...\n",
        CLASS.format("Some") + CLASS.format("Other") + "model = Other()",
        CLASS.format("Some") + "def build_model():\n    return Some()",
        "class Wide(nn.Linear):\n    def __init__(self, inputs=3):\n        super().__init__(inputs, 1)",
    ],
)
def test_every_form_of_model(model, text) -> None:
    target = load(model(whole=f"{HEAD}{text}\n"))
    assert isinstance(target.model, torch.nn.Module) and target.model.training
    assert sum(parameter.numel() for parameter in target.model.parameters()) == 4
    assert target.name == "mymodel.py"


def test_a_model_that_is_only_imported_is_not_taken(model) -> None:
    with pytest.raises(ModelFileError, match="defines no model"):
        load(model(whole="from torch.nn import Identity\n"))


def test_several_models_are_named_with_the_way_to_choose(model) -> None:
    path = model(whole=HEAD + CLASS.format("One") + CLASS.format("Two"))
    with pytest.raises(ModelFileError, match=rf"several models \(One, Two\)\. Name one: --model {path}:One\."):
        load(path)
    assert type(load(f"{path}:Two").model).__name__ == "Two"


@pytest.mark.parametrize("name", ["Kind", "build", "ready"])
def test_a_name_may_be_a_class_a_function_or_a_model(model, name) -> None:
    path = model(whole=HEAD + CLASS.format("Kind") + "def build():\n    return Kind()\nready = Kind()\n")
    assert type(load(f"{path}:{name}").model).__name__ == "Kind"


def test_the_folder_of_the_model_file_can_be_imported_from(model, here) -> None:
    (here / "mylayers.py").write_text(HEAD + CLASS.format("Layer"))
    assert load(model(whole="from mylayers import Layer\nmodel = Layer()\n")).model.training


# How it is trained


def test_own_train_step(model) -> None:
    target = load(model("calls = []\ndef train_step(model, batch, optimizer):\n    calls.append(batch)\n"))
    before = [parameter.clone() for parameter in target.model.parameters()]
    target.step("a batch")
    assert target.own_step.__globals__["calls"] == ["a batch"]
    assert all(torch.equal(a, b) for a, b in zip(before, target.model.parameters(), strict=True))


def test_own_loss_and_optimizer(model) -> None:
    path = model(
        "def loss(output, batch):\n    return output.mean()\n"
        "def optimizer(model):\n    return torch.optim.SGD(model.parameters(), lr=1.0)\n"
    )
    target = load(path)
    assert isinstance(target.optimizer, torch.optim.SGD)
    bias = target.model.head.bias.detach().clone()
    target.step((torch.zeros(2, 1, 8), torch.zeros(2, dtype=torch.long)))
    assert torch.allclose(target.model.head.bias, bias - 1 / 12)  # the gradient of a mean over 12 outputs
    assert target.sources["loss"] == target.sources["optimizer"] == "model file"


def test_an_optimizer_object_is_used_as_it_is(model) -> None:
    target = load(model("model = Tiny()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.5)\n"))
    assert isinstance(target.optimizer, torch.optim.SGD)


def test_the_default_optimizer_leaves_frozen_parameters_alone(model) -> None:
    target = load(model("model = Tiny()\nmodel.head.weight.requires_grad_(False)\n"))
    assert isinstance(target.optimizer, torch.optim.AdamW)
    assert len(target.optimizer.param_groups[0]["params"]) == 1
    assert target.sources["optimizer"] == "default (AdamW)"


def test_a_step_with_labels_trains(model) -> None:
    target = load(model())
    batch = (torch.randn(4, 1, 4000), torch.arange(4))
    before = UsualLoss()(target.model(batch[0]), batch)
    for _ in range(50):
        target.step(batch)
    assert UsualLoss()(target.model(batch[0]), batch) < before


SCORES, LABELS = torch.randn(4, 7), torch.tensor([0, 6, 3, 3])


@pytest.mark.parametrize(
    ("output", "batch"),
    [
        (SCORES, ("audio", LABELS)),
        (SCORES, ["audio", LABELS, "lengths"]),
        (SCORES, {"audio": 0, "label": LABELS}),
        (SCORES, {"audio": 0, "labels": LABELS}),
        ((SCORES, "hidden"), ("audio", LABELS)),
        ({"logits": SCORES}, ("audio", LABELS)),
    ],
)
def test_scores_and_labels_give_cross_entropy(output, batch) -> None:
    assert torch.equal(UsualLoss()(output, batch), cross_entropy(SCORES, LABELS))


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(4, 8),
        (torch.zeros(4, 8),),
        {"audio": torch.zeros(4, 8)},
        ("audio", LABELS.float()),
        ("audio", LABELS + 7),  # more labels than scores
        ("audio", LABELS[:3]),
        ("audio", torch.zeros(4, 7, dtype=torch.long)),
    ],
)
def test_anything_else_gives_the_mean_square(batch) -> None:
    assert torch.equal(UsualLoss()(SCORES, batch), SCORES.square().mean())


def test_a_model_that_returns_its_loss_is_believed_first() -> None:
    assert UsualLoss()({"logits": SCORES, "loss": torch.tensor(3.0)}, torch.zeros(1)) == 9.0


def test_precision(model) -> None:
    path = model(
        "seen = []\ndef loss(output, batch):\n    seen.append(output.dtype)\n    return output.float().sum()\n"
    )
    target = load(path, precision="bf16")
    target.step((torch.zeros(2, 1, 8),))
    assert target.loss.__globals__["seen"] == [torch.bfloat16]


# The chain


@pytest.mark.parametrize(
    "text",
    [
        "import audioaug\naugment = audioaug.Chain([ops.Gain(p=1.0), ops.Clip(p=1.0)], 16000)",
        "augment = [ops.Gain(p=1.0), ops.Clip(p=1.0)]",
        "import audiomentations as am\naugment = am.Compose([am.Gain(p=1.0), am.Clip(p=1.0)])",
        "import audiomentations as am\naugment = [am.Gain(p=1.0), am.Clip(p=1.0)]",
    ],
)
def test_every_form_of_augmentation(model, text) -> None:
    target = load(model(f"from audioaug import ops\n{text}\n"))
    assert [op.name for op in target.chain.ops] == ["Gain", "Clip"]
    assert target.chain.sample_rate == 16000
    assert target.sources["augment"] == "model file"


@pytest.mark.parametrize("text", ["ops.Gain(p=1.0)", "am.Gain(p=1.0)"])
def test_a_single_transform_is_a_chain_too(model, text) -> None:
    target = load(model(f"from audioaug import ops\nimport audiomentations as am\naugment = {text}\n"))
    assert [op.name for op in target.chain.ops] == ["Gain"]


def test_no_augmentation_is_not_the_demo_chain(model) -> None:
    assert len(load(model("augment = []\n")).chain) == 0


def test_an_augmentation_without_a_rate_needs_one(model) -> None:
    path = model(whole=HEAD + "model = nn.Linear(1, 1)\nimport audiomentations as am\naugment = [am.Gain()]\n")
    with pytest.raises(ChainError, match=r"does not say its sample rate\. Define `sample_rate` or give --sample-rate"):
        load(path)
    assert load(path, sample_rate=8000).chain.sample_rate == 8000


def test_the_command_line_overrides_the_sample_rate(model) -> None:
    path = model("import audioaug\naugment = audioaug.Chain([audioaug.ops.Gain()], 16000)\n")
    target = load(path, sample_rate=8000)
    assert (target.chain.sample_rate, target.dataset.sample_rate) == (8000, 8000)
    assert [op.name for op in target.chain.ops] == ["Gain"]
    assert target.sources["sample_rate"] == "command line"
    assert load(path).sources["sample_rate"] == "model file"


def test_the_augment_option_wins_over_the_file(model, here) -> None:
    Chain.from_dict({"sample_rate": 16000, "transforms": ["Reverse"]}).to_yaml(here / "chain.yaml")
    (here / "mychain.py").write_text("from audioaug import ops\nlouder = [ops.Gain()]\n")
    path = model("from audioaug import ops\naugment = [ops.Clip()]\n")
    for option, name in (("chain.yaml", "Reverse"), ("mychain.py:louder", "Gain")):
        target = load(path, augment=option)
        assert [op.name for op in target.chain.ops] == [name]
        assert target.sources["augment"] == f"command line ({option})"


# The data


def test_a_model_alone_is_enough(model) -> None:
    target = load(model(whole=HEAD + "model = nn.Linear(16000, 1)\n"))
    assert isinstance(target.dataset, AudioFolder) and target.data_name == demo_folder("speech")
    assert len(target.chain) > 1 and target.chain.sample_rate == 16000
    assert target.dataset[0][0].shape == (1, 16000)
    assert (target.batch_size, target.num_workers, target.clip_seconds) == (32, 0, (1.0, 1.0))
    assert target.sources == {
        "sample_rate": "demo chain",
        "augment": "demo chain",
        "clip_seconds": "default",
        "dataset": "demo data",
        "batch_size": "default",
        "num_workers": "default",
        "loss": "default",
        "optimizer": "default (AdamW)",
    }


@pytest.fixture
def folder(here) -> Path:
    (here / "audio").mkdir()
    for name in ("a", "b"):
        soundfile.write(here / "audio" / f"{name}.wav", np.zeros(8000), 16000)
    return here / "audio"


@pytest.mark.parametrize("text", ["'audio'", "__import__('pathlib').Path('audio')"])
def test_a_dataset_may_be_a_path(model, folder, text) -> None:
    target = load(model(f"dataset = {text}\n"))
    assert len(target.dataset) == 2 and target.dataset[0][0].shape == (1, 4000)
    assert (target.data_name, target.sources["dataset"], target.pad) == ("audio", "model file", False)


def test_the_command_line_wins_over_the_file(model, folder) -> None:
    path = model("dataset = 'nowhere'\nnum_workers = 2\n")
    target = load(path, data="audio", batch_size=3, clip_seconds=0.1)
    assert (len(target.dataset), target.batch_size, target.dataset[0][0].shape) == (2, 3, (1, 1600))
    assert {target.sources[name] for name in ("dataset", "batch_size", "clip_seconds")} == {"command line"}
    assert (target.num_workers, target.sources["num_workers"]) == (2, "model file")


def test_a_dataset_object_and_collate_fn(model) -> None:
    target = load(model("dataset = [(torch.zeros(1, 8), 0)] * 5\ncollate_fn = list\n"))
    assert len(target.dataset) == 5 and target.collate_fn is list
    assert (target.data_name, target.pad) == ("list", False)


@pytest.mark.parametrize(
    ("examples", "pad"),
    [
        ("[torch.zeros(1, 8), torch.zeros(1, 8)]", False),
        ("[torch.zeros(1, 8), torch.zeros(1, 9)]", True),
        ("[{'audio': {'array': np.zeros(n), 'sampling_rate': 16000}} for n in (8, 9)]", True),
        ("[{'audio': {'array': np.zeros(n), 'sampling_rate': 16000}} for n in (8, 8)]", False),
    ],
)
def test_clips_of_different_lengths_are_padded(model, examples, pad) -> None:
    assert load(model(f"import numpy as np\ndataset = {examples}\n")).pad is pad


def test_examples_that_cannot_be_read_do_not_stop_the_look_at_lengths(model) -> None:
    lines = (
        "class Data:",
        "    def __len__(self): return 3",
        "    def __getitem__(self, i): return [torch.zeros(8), torch.zeros(8)][i]",
        "dataset = Data()",
    )
    target = load(model("\n".join(lines)))
    assert target.pad is False


@pytest.mark.parametrize(
    ("text", "words"),
    [("3", "or with __iter__, got int"), ("iter([1])", r"\(list_iterator\) is an iterator, which can be read")],
)
def test_what_is_no_dataset_is_refused(model, text, words) -> None:
    with pytest.raises(DataError, match=words):
        load(model(f"dataset = {text}\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("batch_size = 'x'", "batch_size is 'x', but it must be a whole number of at least 1"),
        ("batch_size = 0", "batch_size is 0"),
        ("batch_size = 2.5", "batch_size is 2.5"),
        ("num_workers = -1", "num_workers is -1, but it must be a whole number of at least 0"),
        ("num_workers = 'two'", "num_workers is 'two'"),
        ("clip_seconds = 'a'", "clip_seconds is 'a', but it must be a number above 0"),
        ("clip_seconds = float('inf')", "clip_seconds is inf"),
        ("clip_seconds = 0", "clip_seconds is 0"),
        ("sample_rate = '16k'", "sample_rate is '16k', but it must be a whole number of hertz"),
        ("sample_rate = -5", "sample_rate is -5"),
    ],
)
def test_numbers_that_are_none(model, line, message) -> None:
    with pytest.raises(UsageError, match=message):
        load(model(f"{line}\n"))


# What is said of an error


def test_an_error_in_one_line() -> None:
    assert in_one_line(ValueError("one.\ntwo"), "m.py") == "ValueError: one."
    assert in_one_line(RuntimeError(), "m.py") == "RuntimeError."
    raised = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  ...\n"
    assert in_one_line(ValueError(raised + "ValueError: no such key"), "m.py") == "ValueError: no such key."


def test_an_error_is_placed_in_the_model_file(here) -> None:
    (here / "m.py").write_text("\n\ndef fail():\n    [].pop()\n")
    for path in ("m.py", str(here / "m.py"), "./m.py"):
        fail = load_module(path).fail
        with pytest.raises(IndexError) as caught:
            fail()
        assert in_one_line(caught.value, path) == "IndexError: pop from empty list (line 4 of m.py)."
