"""Shared by the tests of the loader: demo clips, a chain of every kind of op, a dataset with indices, programs."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from audioaug import AudioFolder, Chain, Loader, ops

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "datasets" / "demo"
RATE = 16000


def exact_chain() -> Chain:
    """Return seven ops, with banks, a filter and a container, whose contract is sample-exact equality."""
    return Chain(
        [
            ops.Gain(p=1.0),
            ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), p=0.7),
            ops.ApplyImpulseResponse(ir_path=str(DEMO / "rooms"), p=0.5),
            ops.LowPassFilter(p=0.6),
            ops.OneOf([ops.HighPassFilter(p=1.0), ops.PolarityInversion(p=1.0), ops.Shift(p=1.0)], p=0.7),
            ops.Normalize(p=0.3),
            ops.TimeMask(p=0.5),
        ],
        sample_rate=RATE,
    )


class Words:
    """Some clips of the demo speech as (wave (1, T), label, index): the index identifies an example in a batch."""

    def __init__(self, count: int = 12, seconds: float | None = 0.5) -> None:
        self.folder = AudioFolder(DEMO / "speech", RATE, seconds=seconds)
        self.places = np.linspace(0, len(self.folder) - 1, count).astype(int)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, int]:
        return (*self.folder[int(self.places[index])], index)


def by_index(loader: Loader) -> dict[int, np.ndarray]:
    """Run one epoch and return each example's audio under its index; that is the last item of an example."""
    return {index: wave for batch in loader for index, wave in zip(batch[-1].tolist(), batch[0].cpu().numpy())}


def assert_same_audio(found: dict[int, Any], expected: dict[int, Any], tolerance: float) -> None:
    """Check that the same examples have the same audio, up to ``tolerance`` times the peak of each."""
    assert sorted(found) == sorted(expected)
    for index, wave in expected.items():
        assert found[index].shape == wave.shape
        error = np.abs(found[index] - wave).max() / max(1e-9, np.abs(wave).max())
        assert error <= tolerance, f"example {index} differs by {error:.1e} of its peak"


def run_programs(commands: Sequence[Sequence[str]], seconds: float, cwd: Path = ROOT, **environment: str) -> None:
    """Run programs side by side; fail if one fails or takes too long. None of their processes is left."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
        **environment,
    }
    with tempfile.TemporaryFile("w+") as output, ExitStack() as ends:
        programs = []
        for command in commands:
            programs.append(subprocess.Popen(command, cwd=cwd, env=environment, stdout=output, stderr=output))
            ends.callback(_kill, psutil.Process(programs[-1].pid))
        for program in programs:
            with suppress(subprocess.TimeoutExpired):
                program.wait(seconds)
        codes = [program.poll() for program in programs]  # None: it took too long
        output.seek(0)
        assert codes == [0] * len(programs), output.read()


def _kill(program: psutil.Process) -> None:
    """Kill a program and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        for process in [*program.children(recursive=True), program]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        program.wait()
