"""The model file becomes a training job; the facts that a report states about it."""

import os
import sys
from collections import UserDict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from torch.nn.functional import cross_entropy

from audioaug import Chain, build_device, ops
from audioaug.advise.model_file import load_module, load_training_job
from audioaug.advise.training_job import UsualLoss, chain_facts, workload
from audioaug.audio.demo import demo_folder
from audioaug.audio.folder import AudioFolder
from audioaug.errors import ChainError, DataError, ModelFileError, UsageError, in_one_line
from audioaug.records import to_json

HEAD = "import torch\nfrom torch import nn\n"
CLASS = "class {0}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(3, 1)\n"
CPU = torch.device("cpu")


def load(path, **options):
    return load_training_job(path, CPU, **options)


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
    job = load(model(whole=f"{HEAD}{text}\n"))
    assert isinstance(job.model, torch.nn.Module) and job.model.training
    assert sum(parameter.numel() for parameter in job.model.parameters()) == 4
    assert job.name == "mymodel.py"


def test_an_imported_model_is_not_used(model) -> None:
    with pytest.raises(ModelFileError, match="does not define a model"):
        load(model(whole="from torch.nn import Identity\n"))


def test_several_models_are_named_with_the_way_to_choose(model) -> None:
    path = model(whole=HEAD + CLASS.format("One") + CLASS.format("Two"))
    with pytest.raises(ModelFileError, match=rf"several models \(One, Two\)\. Choose one: --model {path}:One\."):
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
    job = load(model("calls = []\ndef train_step(model, batch, optimizer):\n    calls.append(batch)\n"))
    before = [parameter.clone() for parameter in job.model.parameters()]
    job.step("a batch")
    assert job.own_step.__globals__["calls"] == ["a batch"]
    assert all(torch.equal(a, b) for a, b in zip(before, job.model.parameters(), strict=True))


def test_own_loss_and_optimizer(model) -> None:
    path = model(
        "def loss(output, batch):\n    return output.mean()\n"
        "def optimizer(model):\n    return torch.optim.SGD(model.parameters(), lr=1.0)\n"
    )
    job = load(path)
    assert isinstance(job.optimizer, torch.optim.SGD)
    bias = job.model.head.bias.detach().clone()
    job.step((torch.zeros(2, 1, 8), torch.zeros(2, dtype=torch.long)))
    assert torch.allclose(job.model.head.bias, bias - 1 / 12)  # the gradient of a mean over 12 outputs
    assert job.sources["loss"] == job.sources["optimizer"] == "model file"


def test_an_optimizer_object_is_used_unchanged(model) -> None:
    job = load(model("model = Tiny()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.5)\n"))
    assert isinstance(job.optimizer, torch.optim.SGD)


def test_the_default_optimizer_leaves_frozen_parameters_alone(model) -> None:
    job = load(model("model = Tiny()\nmodel.head.weight.requires_grad_(False)\n"))
    assert isinstance(job.optimizer, torch.optim.AdamW)
    assert len(job.optimizer.param_groups[0]["params"]) == 1
    assert job.sources["optimizer"] == "default (AdamW)"


def test_a_step_with_labels_trains(model) -> None:
    job = load(model())
    batch = (torch.randn(4, 1, 4000), torch.arange(4))
    before = UsualLoss()(job.model(batch[0]), batch)
    for _ in range(50):
        job.step(batch)
    assert UsualLoss()(job.model(batch[0]), batch) < before


class WithOwnTo(UserDict):
    """As the batches of transformers are."""

    def to(self, *arguments, **options):
        return type(self)({name: value.to(*arguments, **options) for name, value in self.items()})


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("batch.pop('label')", False),
        ("batch['audio'] = batch['audio'][..., ::2]", False),
        ("batch['audio'].requires_grad_()", False),
        ("batch['audio'].mul_(32768)", True),
    ],
)
@pytest.mark.parametrize("kind", [dict, WithOwnTo], ids=lambda kind: kind.__name__)
def test_a_step_may_change_its_batch(model, kind, text, changes) -> None:
    if kind is WithOwnTo and "requires_grad_" in text:
        return  # its tensors are its own matter
    job = load(model(f"seen = []\ndef train_step(model, batch, optimizer):\n    {text}\n    seen.append(batch)\n"))
    batch = kind({"audio": torch.ones(4, 1, 4000), "label": torch.arange(4)})
    job.try_step(batch)
    job.step(batch)
    job.step(batch)
    first, *others = job.own_step.__globals__["seen"]
    assert all(each.keys() == first.keys() for each in others)
    assert all(torch.equal(each["audio"], first["audio"]) for each in others)
    assert batch.keys() == {"audio", "label"} and torch.equal(batch["audio"], torch.ones(4, 1, 4000))
    assert job.changes_batches == changes == replace(job).changes_batches and not batch["audio"].requires_grad


def test_nan_in_a_batch_is_no_change_of_it(model) -> None:
    job = load(model("def train_step(model, batch, optimizer):\n    return batch[0].sum()\n"))
    job.try_step([torch.ones(4, 1, 4000), torch.tensor([torch.nan, 1.0])])
    assert not job.changes_batches


def test_a_batch_may_have_tensors_that_cannot_be_compared(model) -> None:
    job = load(model("def train_step(model, batch, optimizer):\n    return batch[0].sum()\n"))
    job.try_step([torch.ones(4, 1, 4000), torch.eye(4).to_sparse()])
    assert not job.changes_batches


def test_train_may_return_nothing(model) -> None:
    frozen = "class Frozen(Tiny):\n    def train(self, mode=True):\n        super().train(mode)\nmodel = Frozen()\n"
    assert load(model(frozen)).model.training


def test_a_model_that_cannot_be_moved_is_an_error(model) -> None:
    text = "def build_model():\n    with torch.device('meta'):\n        return Tiny()\n"
    with pytest.raises(ModelFileError, match=r"mymodel\.py: the model cannot be moved to cpu: NotImplementedError: "):
        load(model(text))


def test_something_large_that_is_not_a_model_is_not_printed(model) -> None:
    with pytest.raises(ModelFileError) as caught:
        load(model("model = [torch.zeros(9)] * 99\n"))
    assert "must be a torch.nn.Module" in str(caught.value) and len(str(caught.value)) < 300


def test_an_own_loss_that_fails_says_what_it_is_called_with(model) -> None:
    job = load(model("loss = nn.CrossEntropyLoss()\n"))
    with pytest.raises(ModelFileError, match="`loss` is called with the model's output and the whole batch"):
        job.try_step([torch.randn(4, 1, 4000), torch.arange(4)])


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
        (SCORES, ("audio", LABELS.int())),
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
        ("audio", LABELS > 3),
        ("audio", LABELS + 7),  # more labels than scores
        ("audio", LABELS[:3]),
        ("audio", torch.zeros(4, 7, dtype=torch.long)),
    ],
)
def test_anything_else_gives_the_mean_square(batch) -> None:
    assert torch.equal(UsualLoss()(SCORES, batch), SCORES.square().mean())


def test_the_loss_of_a_model_output_has_precedence() -> None:
    assert UsualLoss()({"logits": SCORES, "loss": torch.tensor(3.0)}, torch.zeros(1)) == 9.0


def test_precision(model) -> None:
    path = model(
        "seen = []\ndef loss(output, batch):\n    seen.append(output.dtype)\n    return output.float().sum()\n"
    )
    job = load(path, precision="bf16")
    job.step((torch.zeros(2, 1, 8),))
    assert job.loss.__globals__["seen"] == [torch.bfloat16]


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
    job = load(model(f"from audioaug import ops\n{text}\n"))
    assert [op.name for op in job.chain.ops] == ["Gain", "Clip"]
    assert job.chain.sample_rate == 16000
    assert job.sources["augment"] == "model file"


@pytest.mark.parametrize("text", ["ops.Gain(p=1.0)", "am.Gain(p=1.0)"])
def test_a_single_transform_is_a_chain_too(model, text) -> None:
    job = load(model(f"from audioaug import ops\nimport audiomentations as am\naugment = {text}\n"))
    assert [op.name for op in job.chain.ops] == ["Gain"]


def test_no_augmentation_is_not_the_demo_chain(model) -> None:
    assert len(load(model("augment = []\n")).chain) == 0


def test_an_augmentation_without_a_rate_needs_one(model) -> None:
    path = model(whole=HEAD + "model = nn.Linear(1, 1)\nimport audiomentations as am\naugment = [am.Gain()]\n")
    with pytest.raises(ChainError, match=r"has no sample rate\. Define `sample_rate` or use --sample-rate"):
        load(path)
    assert load(path, sample_rate=8000).chain.sample_rate == 8000


def test_the_command_line_overrides_the_sample_rate(model) -> None:
    path = model("import audioaug\naugment = audioaug.Chain([audioaug.ops.Gain()], 16000)\n")
    job = load(path, sample_rate=8000)
    assert (job.chain.sample_rate, job.dataset.sample_rate) == (8000, 8000)
    assert [op.name for op in job.chain.ops] == ["Gain"]
    assert job.sources["sample_rate"] == "command line"
    assert load(path).sources["sample_rate"] == "model file"


def test_the_augment_option_wins_over_the_file(model, here) -> None:
    Chain.from_dict({"sample_rate": 16000, "transforms": ["Reverse"]}).to_yaml(here / "chain.yaml")
    (here / "mychain.py").write_text("from audioaug import ops\nlouder = [ops.Gain()]\n")
    path = model("from audioaug import ops\naugment = [ops.Clip()]\n")
    for option, name in (("chain.yaml", "Reverse"), ("mychain.py:louder", "Gain")):
        job = load(path, augment=option)
        assert [op.name for op in job.chain.ops] == [name]
        assert job.sources["augment"] == f"command line ({option})"


# The data


def test_a_model_alone_is_enough(model) -> None:
    job = load(model(whole=HEAD + "model = nn.Linear(16000, 1)\n"))
    assert isinstance(job.dataset, AudioFolder) and job.data_name == demo_folder("speech")
    assert len(job.chain) > 1 and job.chain.sample_rate == 16000
    assert job.dataset[0][0].shape == (1, 16000)
    assert (job.batch_size, job.num_workers, job.clip_seconds) == (32, 0, (1.0, 1.0))
    assert job.sources == {
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
    job = load(model(f"dataset = {text}\n"))
    assert len(job.dataset) == 2 and job.dataset[0][0].shape == (1, 4000)
    assert (job.data_name, job.sources["dataset"], job.pad) == ("audio", "model file", False)


def test_the_command_line_wins_over_the_file(model, folder) -> None:
    path = model("dataset = 'nowhere'\nnum_workers = 2\n")
    job = load(path, data="audio", batch_size=3, clip_seconds=0.1)
    assert (len(job.dataset), job.batch_size, job.dataset[0][0].shape) == (2, 3, (1, 1600))
    assert {job.sources[name] for name in ("dataset", "batch_size", "clip_seconds")} == {"command line"}
    assert (job.num_workers, job.sources["num_workers"]) == (2, "model file")


def test_a_dataset_object_and_collate_fn(model) -> None:
    job = load(model("dataset = [(torch.zeros(1, 8), 0)] * 5\ncollate_fn = list\n"))
    assert len(job.dataset) == 5 and job.collate_fn is list
    assert (job.data_name, job.pad) == ("list", False)


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


@pytest.mark.parametrize(("lengths", "shortest"), [((8000, 12000), 0.5), ((12000, 12000), None)])
def test_the_workload_has_the_longest_clip_and_the_shortest_if_they_differ(model, lengths, shortest) -> None:
    found = workload(load(model(f"dataset = [torch.zeros(1, length) for length in {lengths}]\n"), precision="bf16"))
    assert (found.clip_seconds, found.shortest_seconds) == (0.75, shortest)
    assert (found.clips, found.batch_size, found.precision, found.parameters) == (2, 4, "bf16", 24)


def test_unreadable_examples_do_not_prevent_the_inspection_of_lengths(model) -> None:
    lines = (
        "class Data:",
        "    def __len__(self): return 3",
        "    def __getitem__(self, i): return [torch.zeros(8), torch.zeros(8)][i]",
        "dataset = Data()",
    )
    job = load(model("\n".join(lines)))
    assert job.pad is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3", r"^mymodel\.py: Expected a dataset .* or with __iter__, got int"),
        ("iter([1])", r"\(list_iterator\) is an iterator, which can only be read"),
        ("list", r"^mymodel\.py: Expected a dataset, got the class list\. Make an instance of it\."),
        ("[]", r"^mymodel\.py: The dataset is empty\. It needs at least one example\."),
    ],
)
def test_an_object_that_is_not_a_dataset_is_refused(model, text, words) -> None:
    with pytest.raises(DataError, match=words):
        load(model(f"dataset = {text}\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("batch_size = 'x'", "batch_size is 'x', but it must be an integer of at least 1"),
        ("batch_size = 0", "batch_size is 0"),
        ("batch_size = 2.5", "batch_size is 2.5"),
        ("num_workers = -1", "num_workers is -1, but it must be an integer of at least 0"),
        ("num_workers = 'two'", "num_workers is 'two'"),
        ("clip_seconds = 'a'", "clip_seconds is 'a', but it must be a number above 0"),
        ("clip_seconds = float('inf')", "clip_seconds is inf"),
        ("clip_seconds = 0", "clip_seconds is 0"),
        ("sample_rate = '16k'", "sample_rate is '16k', but it must be a whole number of hertz"),
        ("sample_rate = -5", "sample_rate is -5"),
    ],
)
def test_invalid_numbers(model, line, message) -> None:
    with pytest.raises(UsageError, match=message):
        load(model(f"{line}\n"))


def test_numbers_may_be_numpys(model) -> None:
    assert load(model("import numpy as np\nbatch_size = np.int64(3)\n")).batch_size == 3


# The model file as a program


def test_a_model_file_gets_a_command_line_of_its_own(model, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["audioaug", "advise", "--model", "mymodel.py"])
    assert load_module(model("import sys\nseen = sys.argv\n")).seen == sys.argv == ["mymodel.py"]


MOVES = """
import os

os.makedirs("elsewhere")
os.chdir("elsewhere")
"""


def test_a_model_file_may_change_the_working_directory(model, here) -> None:
    (here / "chain.yaml").write_text("sample_rate: 16000\ntransforms: [Gain: {}]\n")
    (here / "clips").mkdir()
    soundfile.write(here / "clips" / "a.wav", np.zeros(4000), 16000)
    path = model(MOVES)
    job = load(path, augment="chain.yaml", data="clips")
    assert Path.cwd() == here / "elsewhere" and len(job.dataset) == len(job.chain) == 1
    assert (job.path, job.name) == (str(here / path), path)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("raise ValueError('no')", "mymodel.py cannot be imported"),
        ("def build_model():\n    raise ValueError('no')", "mymodel.py: the model cannot be built"),
        ("def optimizer(model):\n    raise ValueError('no')", "mymodel.py: the optimizer cannot be built"),
    ],
)
def test_an_error_after_that_names_the_line_of_the_model_file(model, last, words) -> None:
    with pytest.raises(ModelFileError, match=rf"^{words}: ValueError: no \(line \d+ of mymodel\.py\)"):
        load(model(MOVES + last))


def test_names_of_files_need_not_be_utf_8(model, here) -> None:
    chain = here / os.fsdecode(b"cha\xefn.yaml")
    chain.write_text("sample_rate: 16000\ntransforms: []\n")
    job = load(model("num_wokers = 2\n", name=os.fsdecode(b"mod\xe8l.py")), augment=str(chain))
    facts = workload(job)
    assert facts.model == "mod\\udce8l.py" and "cha\\udcefn.yaml" in facts.sources["augment"]
    assert to_json(facts) and "mod\\udce8l.py defines 'num_wokers'" in job.notices[0].text
    assert in_one_line(ValueError("mod\udce8l")) == "ValueError: mod\\udce8l."


# What is printed of an error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pad = 'yes'", r"mymodel\.py: `pad` is 'yes', but it must be True or False\."),
        ("targets = 3", r"mymodel\.py: Expected targets to map keys or positions .* got 3\."),
        ("targets = {'label': 3}", r"mymodel\.py: Expected targets to map keys .* got {'label': 3}\."),
    ],
)
def test_pad_and_targets_of_a_wrong_type_name_the_model_file(model, text, words) -> None:
    with pytest.raises(ModelFileError, match=words):
        load(model(text))


def test_an_error_in_one_line() -> None:
    assert in_one_line(ValueError("one.\ntwo")) == "ValueError: one."
    assert in_one_line(RuntimeError()) == "RuntimeError."
    raised = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    frames = f'  File "/my data.py", line 7, in f\n    ...\n  File "{torch.__file__}", line 8, in g\n    ...\n'
    in_worker = ValueError(f"{raised}{frames}ValueError: no such key")
    assert in_one_line(in_worker) == "ValueError: no such key (line 7 of my data.py)."
    own_kind = RuntimeError(f"{raised}{frames}mydata.Broken: no such key")
    assert in_one_line(own_kind) == "mydata.Broken: no such key (line 7 of my data.py)."
    unprintable = soundfile.LibsndfileError("System error.")  # as torch sends it from a worker: its code is no number
    assert in_one_line(unprintable) == "LibsndfileError: System error."


def test_an_error_names_the_line_of_the_model_file(here) -> None:
    (here / "m.py").write_text("\n\ndef fail():\n    [].pop()\n")
    for path in ("m.py", str(here / "m.py"), "./m.py"):
        fail = load_module(path).fail
        with pytest.raises(IndexError) as caught:
            fail()
        assert in_one_line(caught.value) == "IndexError: pop from empty list (line 4 of m.py)."


def test_fused_ops_are_those_that_the_module_prints() -> None:
    gain, mask = ops.Gain(p=1.0), ops.TimeMask(p=1.0)
    chain = Chain([mask, gain, ops.LowPassFilter(p=1.0), mask, gain, ops.PolarityInversion(p=1.0), gain], 16000)
    facts = chain_facts(SimpleNamespace(chain=chain, least_cut=0))
    assert facts.fused == ((1, 3), (4, 7))
    printed = str(build_device(chain))
    for start, stop in facts.fused:
        assert " + ".join(facts.ops[start:stop]) in printed
    assert chain_facts(SimpleNamespace(chain=Chain([mask, gain], 16000), least_cut=0)).fused == ()
