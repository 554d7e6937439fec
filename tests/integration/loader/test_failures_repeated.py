"""Repeated failures: full shared memory, files that are damaged during training. No hang, nothing left behind.

Workers that are killed, and Ctrl-C, are in test_failures_of_workers; Ctrl-C in a whole program in scripts/test_train.
"""

import os
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from audioaug import AudioFolder, Chain, Loader, Plan, ops
from audioaug.errors import AudioaugWarning, DataError
from tests.integration.loader.material import DEMO, RATE
from tests.integration.loader.test_failures_of_workers import nothing_left

ROOT = Path(__file__).parents[3]
OWN_MOUNTS = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
SMALL = "mount -t tmpfs -o size=4m tmpfs /dev/shm"


def in_small_shared_memory(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with its own /dev/shm of 4 MiB."""
    text = [*OWN_MOUNTS, "sh", "-c", f'{SMALL} && exec "$@"', "sh", *command]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(text, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=1700)


def full_shared_memory(rounds: int) -> None:
    if not shutil.which("unshare") or in_small_shared_memory("true").returncode:
        pytest.skip("a /dev/shm of our own needs unshare and the right to mount")
    with nothing_left():
        done = in_small_shared_memory(sys.executable, "-m", "tests.integration.loader.full_shared_memory", str(rounds))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(number) for number in range(rounds)]


def test_full_shared_memory_a_few_times():
    full_shared_memory(3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_full_shared_memory_a_hundred_times():
    full_shared_memory(100)


class Unsendable:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"audio": torch.ones(9), "how": (lambda: 1) if index == 5 else 0}


def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"audio": torch.stack([each["audio"] for each in examples]), "how": [each["how"] for each in examples]}


def test_unpicklable_batch_raises_instead_of_hanging():
    with nothing_left():
        plan = Plan(cut=1, num_workers=2)
        loader = Loader(
            Unsendable(), Chain([ops.Gain(p=1.0)], RATE), plan, device="cpu", batch_size=2, collate_fn=collate
        )
        seen = []
        with pytest.raises(
            DataError, match=r"A worker cannot send a batch: .*(pickle|lambda).* or use num_workers=0"
        ) as caught:
            for batch in loader:
                seen.append(batch["how"])
        assert seen == [[0, 0], [0, 0]] and "\n" not in str(caught.value)
        del loader, caught


def damage(file: Path, chance: random.Random) -> None:
    """Damage a file in one of several ways."""
    content = bytearray(file.read_bytes())
    way = chance.choice(["cut", "empty", "gone", "head", "middle", "folder"])
    file.unlink()
    if way == "cut":
        file.write_bytes(content[: chance.randrange(len(content))])
    elif way == "empty":
        file.touch()
    elif way in ("head", "middle"):
        start = 0 if way == "head" else len(content) // 2
        content[start : start + 100] = chance.randbytes(100)
        file.write_bytes(content)
    elif way == "folder":
        file.mkdir()


def corrupt_files(rounds: int, folder: Path) -> None:
    words = sorted((DEMO / "speech" / "go").glob("*.flac"))[:8]
    skipped = 0
    for number in range(rounds):
        chance, place = random.Random(number), folder / str(number)
        shutil.copytree(words[0].parent, place, ignore=lambda _, names: set(names) - {word.name for word in words})
        plan = Plan(cut=chance.choice([0, 1]), num_workers=chance.choice([0, 1, 2]))
        chain = Chain([ops.Gain(p=1.0)], RATE)
        with nothing_left(), warnings.catch_warnings():
            warnings.simplefilter("ignore", AudioaugWarning)
            folder_of_words = AudioFolder(place, RATE, seconds=0.25)
            loader = Loader(folder_of_words, chain, plan, batch_size=3, device="cpu", on_error="skip")
            for epoch in range(4):
                if epoch == 2:
                    for name in chance.sample(words, chance.randint(1, 7)):
                        damage(place / name.name, chance)
                before = loader.skipped
                seen = sum(len(wave) for wave, _ in loader)
                assert seen + loader.skipped - before == 8 and (epoch >= 2 or seen == 8)
            skipped += loader.skipped
            del loader
    assert skipped > rounds  # most damage is noticed


def test_damaged_files_during_training_a_few_times(tmp_path):
    corrupt_files(4, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_damaged_files_during_training_a_hundred_times(tmp_path):
    corrupt_files(100, tmp_path)
