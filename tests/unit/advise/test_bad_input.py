"""Bad input: one sentence on stderr with what, where and the next step; exit code 2; no measurement."""

import json
import os
import re
import sys

import pytest
import torch

from audioaug.core import Chain
from audioaug.records import Plan

pytestmark = pytest.mark.usefixtures("nothing_measured")
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
HEAD = "import torch\nfrom torch import nn\n"


def check(ran, *words) -> None:
    """Check that the run was refused in one line with all these words, and no other output."""
    assert ran.code == 2, ran
    assert ran.out == ""
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err, ran.err


# The model file


def test_missing_model_option_is_an_error(advise) -> None:
    check(advise(), "Missing option --model.", "--model FILE.py")


def test_a_missing_file_gets_a_suggestion(advise, model, here) -> None:
    model()
    check(advise("--model", "mymodle.py"), "No such file: mymodle.py", "Did you mean mymodel.py?")
    check(advise("--model", "nowhere/mymodel.py"), "No such file: nowhere/mymodel.py")
    check(advise("--model", here), f"No such file: {here}")


def test_a_file_that_is_not_python(advise, model) -> None:
    check(advise("--model", model(name="model.txt")), "model.txt is not a Python file. Give a file that ends in .py.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "x = 1\n\nraise ValueError('boom')\n",
            "mymodel.py cannot be imported: ValueError: boom (line 3 of mymodel.py).",
        ),
        ("import nothing_like_it\n", "No module named 'nothing_like_it' (line 1 of mymodel.py)."),
        ("x = 1\ndef broken(:\n", "SyntaxError: invalid syntax (line 2 of mymodel.py)."),
        ("\0", "Error: source code string cannot contain null bytes."),  # a ValueError before Python 3.12
        ("raise SystemExit(3)\n", "SystemExit: 3 (line 1 of mymodel.py)."),
        ("from audioaug import ops\nops.Gain(p=2.0)\n", "mymodel.py: Gain: p is 2, but it must be between 0 and 1."),
        (
            "x = 1\n",
            "mymodel.py does not define a model. Define `model`, `build_model()`, or one torch.nn.Module class",
        ),
        ("model = 'a name'\n", "the model is 'a name', but it must be a torch.nn.Module."),
        ("def build_model():\n    return None\n", "the model is None, but it must be a torch.nn.Module."),
        (
            "\ndef build_model():\n    raise KeyError('weights')\n",
            "cannot be built: KeyError: 'weights' (line 3 of mymodel.py).",
        ),
        ("\ndef build_model():\n    raise SystemExit\n", "cannot be built: SystemExit (line 3 of mymodel.py)."),
        ("import torch\nmodel = torch.nn.ReLU()\n", "mymodel.py: the model has no parameters to train."),
        ("import torch\nmodel = torch.nn.LazyLinear(12)\n", "mymodel.py: the model has uninitialized lazy layers"),
        (
            HEAD + "class A(nn.Module): ...\nclass B(nn.Module): ...\n",
            "several models (A, B). Choose one: --model mymodel.py:A.",
        ),
    ],
)
def test_a_model_file_without_a_usable_model(advise, model, text, words) -> None:
    check(advise("--model", model(whole=text)), words)


def test_a_name_that_the_file_does_not_define(advise, model) -> None:
    check(advise("--model", model() + ":Tinny"), "mymodel.py does not define 'Tinny'. Did you mean Tiny?")
    check(advise("--model", model() + ":batch_size"), "the model is 4, but it must be a torch.nn.Module")


def test_an_optimizer_that_cannot_be_built(advise, model) -> None:
    path = model("def optimizer(model):\n    raise ValueError('which?')\n")
    check(advise("--model", path), "mymodel.py: the optimizer cannot be built: ValueError: which?", "(line ")
    check(advise("--model", model("optimizer = 3\n")), "the optimizer cannot be built", "'int' object is not callable")
    path = model("def optimizer(model):\n    raise SystemExit\n")
    check(advise("--model", path), "mymodel.py: the optimizer cannot be built: SystemExit (line ")


def test_an_invalid_number_in_the_model_file(advise, model) -> None:
    check(advise("--model", model("batch_size = 0\n")), "batch_size is 0, but it must be an integer of at least 1.")


@pytest.mark.parametrize("text", ["'a name'", "3", "[3]"])
def test_an_invalid_augmentation(advise, model, text) -> None:
    check(advise("--model", model(f"augment = {text}\n")), "is not a transform of audiomentations.")


# --augment


@pytest.fixture
def augmented(advise, model, here):
    """Run with these transforms in a YAML file."""

    def run(transforms: str, whole: str | None = None):
        (here / "chain.yaml").write_text(
            f"sample_rate: 16000\ntransforms: [{transforms}]\n" if whole is None else whole
        )
        return advise("--model", model(), "--augment", "chain.yaml")

    return run


@pytest.mark.parametrize(
    ("transforms", "words"),
    [
        ("Gian: {p: 1.0}", "There is no transform 'Gian'. Did you mean Gain?"),
        ("Gain: {min_gain: 1.0}", "Gain has no argument 'min_gain'. Did you mean min_gain_db?"),
        ("Gain: {p: 1.5}", "Gain: p is 1.5, but it must be between 0 and 1."),
        ("Gain: {p: often}", "Gain: p is 'often', but it must be a number."),
        ("Gain: {min_gain_db: 5, max_gain_db: 1}", "min_gain_db is 5, but it must not be greater than max_gain_db (1)"),
        ("OneOf: {transforms: [{Gian: {}}]}", "There is no transform 'Gian'."),
    ],
)
def test_an_impossible_chain(augmented, transforms, words) -> None:
    check(augmented(f"{{{transforms}}}"), "chain.yaml: ", words)


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        ("transforms: [b\n  - c", "chain.yaml is not YAML:"),
        ("hello", "A chain is written as a mapping with `sample_rate` and `transforms`."),
        ("transforms: []", "The chain has no sample_rate."),
        ("sample_rate: 16000\ntransform: []", "Did you mean transforms?"),
        ("", "A chain is written as a mapping"),
    ],
)
def test_a_file_that_is_not_a_chain(augmented, whole, words) -> None:
    check(augmented("", whole), "chain.yaml", words)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("nowhere.yaml", "Cannot read the chain nowhere.yaml: No such file or directory."),
        ("chain.json", "--augment chain.json must be FILE.yaml or FILE.py:NAME."),
        ("mymodel.py", "--augment mymodel.py must be FILE.yaml or FILE.py:NAME."),
        ("mymodle.py:chain", "No such file: mymodle.py. Did you mean mymodel.py?"),
        ("mymodel.py:batchsize", "mymodel.py does not define 'batchsize'. Did you mean batch_size?"),
    ],
)
def test_an_augment_option_with_an_unknown_name(advise, model, option, words) -> None:
    check(advise("--model", model(), "--augment", option), words)


@pytest.mark.parametrize("op", ["AddBackgroundNoise: {sounds_path: noises}", "ApplyImpulseResponse: {ir_path: noises}"])
def test_a_missing_noise_folder(augmented, here, op) -> None:
    check(augmented(f"{{{op}}}"), f"There is no {here / 'noises'}.", "Name an existing audio file or a folder")


@pytest.mark.parametrize("op", ["AddBackgroundNoise: {sounds_path: empty}", "ApplyImpulseResponse: {ir_path: empty}"])
def test_a_noise_folder_without_audio(augmented, here, op) -> None:
    (here / "empty").mkdir()
    check(augmented(f"{{{op}}}"), f"There is no audio in {here / 'empty'}.", ".flac .wav")


# --data


def test_missing_data(advise, model, here) -> None:
    check(
        advise("--model", model(), "--data", "nowhere"), f"Cannot read {here / 'nowhere'}", "a folder of audio or a man"
    )
    (here / "empty").mkdir()
    check(advise("--model", model(), "--data", "empty"), f"There is no audio in {here / 'empty'}.")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("list.csv", "a,b\n1,2\n", "has no column for paths. Name one path or"),
        ("list.csv", "path\n", "lists no files."),
        ("list.csv", "path,label\n,yes\n", "Entry 1 of the manifest"),
        ("list.jsonl", "{oops\n", "is not a valid manifest: Expecting property name"),
        ("list.jsonl", "[1]\n", "a line is not a JSON object"),
    ],
)
def test_a_broken_manifest(advise, model, here, name, text, words) -> None:
    (here / name).write_text(text)
    check(advise("--model", model(), "--data", name), str(here / name), words)


def test_clips_without_length(advise, model) -> None:
    check(advise("--model", model(), "--clip-seconds", "0.00001"), "1e-05 seconds at 16000 Hz")
    check(advise("--model", model(), "--clip-seconds", "inf"), "clip_seconds is inf")
    check(advise("--model", model(), "--clip-seconds", "nan"), "clip_seconds is nan")


@pytest.mark.parametrize(
    "option", ["--model", "--augment", "--data", "--verify", "--load", "--json", "--markdown", "--html", "--plan"]
)
def test_an_empty_name_is_refused(advise, option) -> None:
    check(advise("--model", "none.py", option, ""), f"{option} is empty. Name a file, or leave the option out.")


@pytest.mark.parametrize("more", [("--batch-size", "1" + "0" * 20), ("--also", "batch_size=1" + "0" * 20)])
def test_a_batch_larger_than_the_memory_is_refused(advise, model, more) -> None:
    check(advise("--model", model(), *more), f"Two batches of {10**20:,} clips of", "Use a smaller batch size.")


# Outputs


@pytest.mark.parametrize("kind", ["json", "plan", "html", "markdown"])
def test_an_unwritable_output_is_reported_before_measuring(advise, model, here, kind) -> None:
    path = model("raise AssertionError('the model file was run')\n")
    (here / "folder").mkdir()
    for file, reason in (("nowhere/x", "No such file or directory"), ("folder", "Is a directory")):
        check(advise("--model", path, f"--{kind}", file), f"Cannot write {file}: {reason}.", "Name a file")


@pytest.mark.parametrize("kind", ["plan", "html", "markdown"])
def test_only_json_can_be_written_to_stdout(advise, model, here, kind) -> None:
    ran = advise("--model", model(), f"--{kind}", "-")
    check(ran, f"--{kind} is -, but only --json can be written to standard output. Name a file: --{kind} FILE.")
    assert not (here / "-").exists()


@pytest.mark.parametrize(("one", "other"), [("json", "plan"), ("markdown", "html")])
def test_two_outputs_of_the_same_name_are_refused(advise, model, one, other) -> None:
    ran = advise("--model", model(), f"--{one}", "x.out", f"--{other}", "./x.out")
    check(ran, f"--{one} and --{other} name the same file, ./x.out. Name a file for each.")
    assert "same file" not in advise("--model", "none.py", f"--{one}", os.devnull, f"--{other}", os.devnull).err


def test_an_error_with_closed_stdout_is_reported(advise, model, monkeypatch) -> None:
    path = model("raise ValueError('boom')\n")
    monkeypatch.setattr(sys, "stdout", None)  # what Python has for `>&-`
    check(advise("--model", path), "ValueError: boom")


def test_a_rejected_run_leaves_no_files(advise, model, here) -> None:
    (here / "old.json").write_text("precious")
    path = model("raise ValueError('no')\n")
    before = set(here.iterdir())
    files = ("--json", "new.json", "--plan", "new.plan", "--html", "old.json", "--markdown", "nowhere/x")
    check(advise("--model", path, *files), "Cannot write nowhere/x")
    check(advise("--model", path, *files[:6]), "ValueError: no")
    assert {it for it in here.iterdir() if it.name != "__pycache__"} == before
    assert (here / "old.json").read_text() == "precious"


# The other options


@NO_CUDA
@pytest.mark.parametrize("device", ["cuda", "cuda:7"])
def test_a_missing_gpu(advise, model, device) -> None:
    check(advise("--model", model(), "--device", device), "no usable CUDA device. Use device cpu;", "audioaug doctor")


@pytest.mark.parametrize("device", ["tpu", "", "cuda:x"])
def test_an_unknown_device(advise, model, device) -> None:
    check(advise("--model", model(), "--device", device), f"There is no device {device!r}. Use auto, cpu, cuda")


def test_a_budget_that_is_not_a_number(advise, model) -> None:
    words = "budget is nan, but it must be a number of seconds from 1 to 86400."
    check(advise("--model", model(), "--budget", "nan"), words)


@pytest.mark.parametrize("workers", ["x", "-1", "0,-2", "", "1.5", "2,"])
def test_workers_that_are_not_numbers(advise, model, workers) -> None:
    check(advise("--model", model(), "--workers", workers), f"--workers is {workers!r}", "integers such as 0,2,4")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("core=3", "Did you mean cores?"),
        (
            "nonsense",
            "Known: batch_size, clips, core_price, cores, gpu, ",
        ),
        ("remote=1.5", "must be an integer from 1 to 10,000"),
        ("cores=-1", "a finite number above 0"),
    ],
)
def test_invalid_what_if(advise, model, text, words) -> None:
    check(advise("--model", model(), "--what-if", text), "--what-if", words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--precision", "int8"), "Invalid value for '--precision': 'int8' is not one of 'fp32', 'bf16', 'fp16'."),
        (("--modle", "x.py"), "No such option '--modle'"),
        (("--budget", "0"), "Invalid value for '--budget'"),
        (("--budget", "inf"), "Invalid value for '--budget'"),
        (("--batch-size", "0"), "Invalid value for '--batch-size'"),
        (("--sample-rate", "high"), "Invalid value for '--sample-rate'"),
        (("more",), "unexpected extra argument (more)"),
        (("--model",), "requires an argument"),
    ],
)
def test_click_errors_exit_with_usage_code(advise, arguments, words) -> None:
    ran = advise(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err and "Traceback" not in ran.err


# --load and --verify


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "Cannot read old.json: No such file or directory."),
        ("garbage", "old.json: This is not the JSON of a Report"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "missing required field"),
    ],
)
def test_a_report_that_cannot_be_loaded(advise, here, text, words) -> None:
    if text is not None:
        (here / "old.json").write_text(text)
    check(advise("--load", "old.json"), words)


def test_a_report_of_a_newer_version(advise, here, saved) -> None:
    content = json.loads(saved.read_text()) | {"schema_version": 99}
    (here / "new.json").write_text(json.dumps(content))
    check(advise("--load", "new.json"), "schema version 99, but this audioaug reads version 2. Update audioaug.")


def test_a_plan_of_another_chain_is_refused(advise, model, here) -> None:
    mine, other = (Chain.from_dict({"sample_rate": 16000, "transforms": [op]}) for op in ("Gain", "Reverse"))
    mine.to_yaml(here / "mine.yaml")
    Plan(cut=0, chain_hash=other.hash).save(here / "plan.json")
    ran = advise("--model", model(), "--augment", "mine.yaml", "--verify", "plan.json")
    check(ran, f"This plan was made for the chain {other.hash}, but this chain is {mine.hash}. Run the advisor again")


def test_an_invalid_plan(advise, model, here) -> None:
    path, plan = model("augment = []\n"), Plan(cut=7)
    plan.save(here / "plan.json")
    words = "The chain has 0 ops, so a cut lies between 0 and 0, not at 7."
    check(advise("--model", path, "--verify", "plan.json"), words)
    (here / "plan.json").write_text('{"cut": -1}')
    check(advise("--model", path, "--verify", "plan.json"), "plan.json")
    check(advise("--model", path, "--verify", "nowhere.json"), "Cannot read nowhere.json")


def test_check_is_seen_to_fail(advise) -> None:
    with pytest.raises(AssertionError):
        check(advise(), "words that are not there")
    assert re.match("error: ", advise().err)
