"""``doctor --dataset`` sees repeats that are planted in a dataset, and none in sound ones."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from audioaug import doctor
from audioaug.dataset_check import find_repeats
from audioaug.errors import DataError, ModelFileError

DATASETS = """
import random

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


class Fixed:
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return {"audio": np.full(8, index, np.float32) + self.noise(), "name": f"clip {index}"}

    def noise(self):
        return 0.0


class Copied(Fixed):
    def noise(self):
        return self.generator.normal()


class RarelyCopied(Fixed):
    def noise(self):
        return self.generator.normal() * (self.generator.random() < 0.02)


class Torch(Fixed):
    def noise(self):
        return float(torch.rand(()))


class Python(Fixed):
    def noise(self):
        return random.random()


class Numpy(Fixed):
    def noise(self):
        return np.random.rand()


class SeededByEpoch(Fixed):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return torch.full((8,), float(index)) + np.random.default_rng((self.epoch, index)).normal()


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (torch.full((8,), float(index)) + self.noise() for index in range(first, 100, step))

    def noise(self):
        return 0.0


class RandomStream(Stream):
    def noise(self):
        return torch.rand(())


class CopiedStream(Stream):
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def noise(self):
        return self.generator.normal()


class EachReadsAll(IterableDataset):
    def __iter__(self):
        return (torch.full((8,), float(index)) for index in range(100))


class Raises(Fixed):
    def noise(self):
        raise LookupError("no noise")


def made():
    return Fixed()


dataset = Torch()
empty = []
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("datasets") / "sets_to_check.py"
    path.write_text(DATASETS, encoding="utf-8")
    return str(path)


def examined(named: str) -> Any:
    return CliRunner().invoke(doctor.main, ["--dataset", named])


@pytest.mark.parametrize(
    "name", ["Fixed", "Torch", "Python", "Numpy", "SeededByEpoch", "Stream", "RandomStream", "made"]
)
def test_sound_datasets_repeat_nothing(name, file):
    result = examined(f"{file}:{name}")
    assert result.exit_code == 0 and "repeats" not in result.output and "unclear" not in result.output, result.output


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("Copied", ["Workers draw the same numbers: all 48", "Every epoch draws the same numbers again: all 48"]),
        ("CopiedStream", ["Every epoch draws the same numbers again: all 48"]),
        ("EachReadsAll", ["Workers read the same examples: 48 of 48"]),
    ],
)
def test_planted_repeats_are_seen(name, sentences, file):
    result = examined(f"{file}:{name}")
    repeats = [line for line in result.output.splitlines() if line.startswith("repeats")]
    assert result.exit_code == 1 and len(repeats) == len(sentences)
    for line, sentence in zip(repeats, sentences):
        assert sentence in line


def test_few_random_examples_are_no_proof(file):
    result = examined(f"{file}:RarelyCopied")
    assert result.exit_code == 0 and "All 48 examples are the same in both workers, but few" in result.output


def test_a_file_has_its_dataset_under_that_name(file):
    assert examined(file).exit_code == 0
    with pytest.raises(ModelFileError, match="does not define 'Nothing'"):
        doctor.main(["--dataset", f"{file}:Nothing"], standalone_mode=False)
    with pytest.raises(ModelFileError, match="No such file"):
        doctor.main(["--dataset", str(Path(file).with_name("other.py"))], standalone_mode=False)


@pytest.mark.parametrize("wrong", [[], 3, iter([1])], ids=["empty", "a number", "an iterator"])
def test_what_is_no_dataset_is_one_sentence(wrong):
    with pytest.raises(DataError):
        find_repeats(wrong)


def test_what_the_dataset_raises_is_shown(file):
    assert isinstance(examined(f"{file}:Raises").exception, LookupError)
