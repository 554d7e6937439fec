"""Where should augmentation run? The claims of the audiomentations guide "CPU vs. GPU", measured on this machine.

    python scripts/experiment_placement.py                          about two minutes, report on stdout
    python scripts/experiment_placement.py --quick --json result.json
    python scripts/experiment_placement.py --load result.json

Measured: what every op costs on both sides, what a loader delivers, a few training runs end to end (models of several
sizes, the chain once and several times over), and convolution over the length of the impulse response. Predicted:
everything between, by ``audioaug.decide.predict``. ``notebooks/02_cpu_or_gpu.ipynb`` draws what this measures.

Without a GPU, "device" is the same batched ops in the training process, on the CPU. That process then gets one thread,
so that training and workers have cores of their own, as they have beside a GPU.
"""

from dataclasses import replace

import torch
from experiments.command import Say, experiment, perform, quiet
from experiments.placement.claims import claims
from experiments.placement.convolution import convolution
from experiments.placement.records import FULL, QUICK, Experiment, Size
from experiments.placement.showing import to_text
from experiments.placement.stages import survey
from experiments.placement.target import make_target, widths, worker_counts
from experiments.placement.training import measure_point

from audioaug.loader.prefetch import as_device
from audioaug.units import plural


def run(size: Size, device: torch.device, say: Say = quiet) -> Experiment:
    """Measure everything."""
    target = make_target(device)
    counts = worker_counts(target)
    found = Experiment(survey(target, size.stage_seconds, counts, say))
    points = []
    for repeats in size.repeats:
        for width in widths(device)[: size.models]:
            say(f"training: width {width}, chain {plural(repeats, 'time')} over")
            points.append(measure_point(target, found.report, width, repeats, counts, size.point_seconds))
    say("convolution")
    responses = convolution(target, size.response_seconds, size.convolution_seconds)
    found = replace(found, points=tuple(points), convolutions=responses)
    return replace(found, claims=claims(found, target.chain))


@experiment(__doc__)
def main(quick: bool, device: str, json_: str | None, load: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Experiment, lambda say: run(size, as_device(device), say), to_text, json_, load)


if __name__ == "__main__":
    main()
