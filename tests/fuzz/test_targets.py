"""A short round without coverage: the seeds, and seeds that were changed at random; and the guard of the fuzzer."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, run, seeds

ROOT = Path(__file__).parents[2]
CHANGED = 150
"""Inputs for each target."""
GUARDED = """
import sys
from tests.fuzz.targets import FOLDER, forbid_code, run, seeds
for name in ("chain", "plan"):
    for seed in seeds(name):
        run(name, seed)
forbid_code()
(FOLDER / "own").write_text("may be written")
"""


def changed(seed: bytes, rng: random.Random) -> bytes:
    """Return the seed with a few bytes changed, left out, repeated or put in, or text that parsers stumble over."""
    data = bytearray(seed[: rng.randint(0, len(seed))] if rng.random() < 0.3 else seed)
    for _ in range(rng.randint(1, 8)):
        at = rng.randint(0, len(data))
        piece = rng.choice(
            [
                b"\0",
                b"\xff" * 4,
                b"&a *a ",
                b"[" * 200,
                b"{" * 200,
                b"1e999",
                b"-0",
                b"!!python/name:os.system ",
                b"\xe2\x80\xa8",
            ]
        )
        data[at : at + rng.choice([0, 1, 30])] = rng.choice(
            [piece, bytes(data[at : at + 40]) * 3, b"", rng.randbytes(3)]
        )
    return bytes(data)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_read_is_used_or_refused(name: str) -> None:
    if name == "also":
        pytest.importorskip("torch_audiomentations")  # which one of its seeds names
    rng, known = random.Random(7), list(seeds(name))
    if not known and not (ROOT / "audioaug").is_dir():
        pytest.skip("its seeds are files of the package")
    assert known
    for seed in known:
        TARGETS[name](seed)
    for _ in range(CHANGED):
        run(name, changed(rng.choice(known), rng))


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("import this", "import"),
        ("exec('1')", "compile"),
        ("import os; os.system('true')", "os.system"),
        ("open('/dev/shm/audioaug-planted', 'w')", ""),
        ("import yaml; yaml.unsafe_load('!!python/object/apply:os.system [\"true\"]')", "os.system"),
        ("open(FOLDER.parent / 'audioaug-planted', 'w')", "open"),
        ("import pickle; pickle.loads(b'cos\\nsystem\\n(S\"true\"\\ntR.')", "pickle.find_class"),
    ],
)
def test_the_guard_sees_code_that_runs(code: str, event: str) -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED + code], cwd=ROOT, capture_output=True, text=True, timeout=200)
    Path("/dev/shm/audioaug-planted").unlink(missing_ok=True)
    assert (done.returncode == 70) is bool(event), done.stderr
    assert event in done.stderr


def test_no_file_makes_audioaug_run_code() -> None:
    planted = [
        b"transforms: !!python/object/apply:os.system [true]\nsample_rate: 16000\n",
        b"sample_rate: 16000\ntransforms: [{Lambda: {transform: 'this:s'}}]\n",
        b"sample_rate: 16000\ntransforms: [{Gain: {p: '{{ 7*7 }}'}}]\n",
        b'{"cut": 1, "chain_hash": "__import__(\'os\').system(\'true\')"}',
    ]
    code = GUARDED + "".join(f"run({name!r}, {data!r})\n" for data in planted for name in ("chain", "plan"))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
