"""Use of CPU, RAM and GPU while training, as ``audioaug.Monitor`` sees it."""

import time
import warnings

import torch

from audioaug import Monitor
from audioaug.errors import AudioaugWarning
from audioaug.loader.processes import torch_threads
from audioaug.records import Window
from experiments.races import Arm

LOOKS = 8


def watch(arm: Arm, device: torch.device, seconds: float) -> tuple[Window, ...]:
    """Train for so long and return what was seen, the start left out."""
    feeder = arm.feed()
    with torch_threads(arm.threads or torch.get_num_threads()), warnings.catch_warnings():
        for _ in range(arm.stock):
            arm.step(next(feeder))
        end = time.monotonic() + seconds
        warnings.simplefilter("ignore", AudioaugWarning)  # that the bottleneck moved; the windows say so, too
        with Monitor(feeder, device=device, live=False, every=seconds / LOOKS) as monitor:
            for batch in monitor:
                arm.step(batch)
                if time.monotonic() > end:
                    break
    return tuple(monitor.windows)
