"""The GPU's curve from a recorded profile, for a machine that has none. Nothing is invented: without one, no curve."""

from dataclasses import replace
from pathlib import Path

from audioaug.records import read_record
from experiments.crossover.records import GPU, Crossover

PROFILES = Path(__file__).parents[3] / "datasets" / "profiles"
PATTERN = "crossover_*.json"
"""What ``experiment_crossover.py --json datasets/profiles/crossover_NAME.json`` leaves on a machine with a GPU."""


def with_recorded(found: Crossover, folder: Path = PROFILES) -> Crossover:
    """Return what was found with the times of a recorded GPU beside it, where there is a record of one."""
    for path in sorted(folder.glob(PATTERN)):
        record = read_record(path, Crossover)
        if record.gpu and not record.recorded:
            return _joined(found, record)
    return found


def _joined(found: Crossover, record: Crossover) -> Crossover:
    epochs = {net.layers: net.epoch[GPU] for net in record.nets}
    steps = {(point.clip_seconds, point.batch): point.step[GPU] for point in record.audio}
    nets = [replace(n, epoch={**n.epoch, GPU: epochs[n.layers]}) if n.layers in epochs else n for n in found.nets]
    audio = [
        replace(p, step={**p.step, GPU: steps[key]}) if (key := (p.clip_seconds, p.batch)) in steps else p
        for p in found.audio
    ]
    return replace(found, gpu=record.gpu, recorded=True, nets=tuple(nets), audio=tuple(audio))
