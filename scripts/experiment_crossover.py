"""From how many parameters on does a GPU pay for training? A published sweep again, and the same for audio.

    python scripts/experiment_crossover.py                          about a minute, report on stdout
    python scripts/experiment_crossover.py --quick --json result.json
    python scripts/experiment_crossover.py --load result.json

The sweep: 1,000 points in the unit square, inside or outside a circle; ReLU networks whose widths double from layer to
layer; SGD, batches of 100, 100 epochs. Without a GPU the CPU's curve is measured, and the GPU's taken from a profile
recorded on another machine (``datasets/profiles/crossover_*.json``), where there is one.
``notebooks/04_when_does_a_gpu_pay.ipynb`` draws what this measures.
"""

from dataclasses import replace

import torch
from experiments.command import Say, experiment, perform, quiet
from experiments.crossover import audio, circle
from experiments.crossover.claims import claims
from experiments.crossover.crossing import crossing
from experiments.crossover.recorded import with_recorded
from experiments.crossover.records import CPU, FULL, GPU, QUICK, Crossover, Size
from experiments.crossover.showing import to_text

from audioaug.loader.prefetch import as_device
from audioaug.measure import host_facts


def run(size: Size, device: torch.device, say: Say = quiet) -> Crossover:
    """Measure everything."""
    host = host_facts(device)
    say("points in a circle")
    nets = circle.sweep(size.layers, device, size.seconds, size.rounds)
    say("one network to the end")
    chosen = min(nets, key=lambda net: abs(net.layers - size.trained))
    trained = circle.train(chosen, device, size.epochs)
    say("the audio model")
    points = audio.sweep(size.clip_seconds, size.batches, device, size.seconds, size.rounds)
    found = Crossover(host, host.device_name if host.has_gpu else "", nets=nets, trained=trained, audio=points)
    return judged(found if host.has_gpu else with_recorded(found))


def judged(found: Crossover) -> Crossover:
    """Add where the curves cross, where there are two, and the claim."""
    nets = [net for net in found.nets if GPU in net.epoch]
    points = sorted((p for p in found.audio if GPU in p.step), key=lambda point: point.audio_seconds)
    if nets:
        times = ([net.epoch[device] for net in nets] for device in (CPU, GPU))
        found = replace(found, crossing=crossing([net.parameters for net in nets], *times))
    if points:
        times = ([point.step[device] for point in points] for device in (CPU, GPU))
        found = replace(found, audio_crossing=crossing([point.audio_seconds for point in points], *times))
    return replace(found, claims=claims(found))


@experiment(__doc__)
def main(quick: bool, device: str, json_: str | None, load: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Crossover, lambda say: run(size, as_device(device), say), to_text, json_, load)


if __name__ == "__main__":
    main()
