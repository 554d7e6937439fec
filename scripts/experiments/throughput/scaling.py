"""Training over processes: torchrun starts them, one, two and more of them train in turn."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from audioaug.errors import MeasurementError
from audioaug.records import Timing, from_json
from experiments.throughput.records import Size

SCRIPTS = Path(__file__).parents[2]
MOST, SECONDS = 8, 300


def usable_gpus(device: torch.device) -> int:
    """Return how many GPUs can share the work; none where there is only one."""
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    return gpus if gpus > 1 else 0


def over_processes(device: torch.device, cores: float, size: Size) -> dict[int, Timing]:
    """Return seconds an epoch by the number of processes, of which each has its share of the examples and one thread.

    Raises:
        MeasurementError: torchrun failed.
    """
    gpus = usable_gpus(device)
    processes = min(MOST, gpus or max(2, int(cores)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "times.json")
        worker = ["-m", "experiments.throughput.scaling_worker", str(size.examples), str(size.rounds), str(path)]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        paths = os.pathsep.join([str(SCRIPTS), str(SCRIPTS.parent), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        environ |= {"AUDIOAUG_SCALE_ON": "cuda" if gpus else "cpu"}
        done = subprocess.run([*torchrun, *worker], env=environ, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise MeasurementError(f"Training over {processes} processes failed: {last}")
        return from_json(path.read_bytes(), dict[int, Timing])
