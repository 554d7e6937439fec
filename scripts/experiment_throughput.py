"""How fast does a small network train on each device, and what raises its throughput? Published claims, measured here.

    python scripts/experiment_throughput.py --trace trace.json      about a minute, report on stdout
    python scripts/experiment_throughput.py --quick --json result.json
    python scripts/experiment_throughput.py --load result.json

A fully connected network (1000 -> 512 -> 256 -> 2) with Adam on 10,000 random examples, 10 full-batch epochs: in fp32
and mixed precision, in smaller batches, through DataLoaders, over processes with torchrun. The trace opens at
ui.perfetto.dev. ``notebooks/04_when_does_a_gpu_pay.ipynb`` draws what this measures.
"""

from dataclasses import replace

import click
import torch
from experiments.command import Say, experiment, perform, quiet
from experiments.throughput.choices import choices
from experiments.throughput.claims import claims
from experiments.throughput.loading import ways_to_load
from experiments.throughput.network import batch_sizes, full_batch_epoch, precisions
from experiments.throughput.records import FULL, QUICK, Size, Throughput
from experiments.throughput.scaling import over_processes, usable_gpus
from experiments.throughput.showing import to_text
from experiments.throughput.tracing import trace_epoch

from audioaug.loader.prefetch import as_device
from audioaug.measure import host_facts


def run(size: Size, device: torch.device, trace: str | None = None, say: Say = quiet) -> Throughput:
    """Measure everything."""
    devices = [torch.device("cpu"), *([device] if device.type != "cpu" else [])]
    found = Throughput(host_facts(device), size.examples)
    say("both precisions")
    found = replace(found, precisions=precisions(devices, size.examples, size.seconds, size.rounds))
    say("batch sizes")
    found = replace(found, batches=batch_sizes(device, size.batches, size.examples, size.seconds / 2, size.rounds))
    say("loading")
    found = replace(found, loading=ways_to_load(device, size.batches[0], size.examples, size.seconds / 2, size.rounds))
    say("a profiler's trace")
    operators, seconds = trace_epoch(full_batch_epoch(device, "fp32", size.examples), device, trace)
    say("over processes")
    cores = found.host.usable_cores
    on = "a GPU for each process" if usable_gpus(device) else f"a thread for each process, on {cores:g} cores"
    found = replace(found, processes=over_processes(device, cores, size), processes_on=on)
    say("kinds of work")
    table = choices(devices, size.examples, size.seconds / 2, size.rounds)
    found = replace(found, operators=operators, traced_seconds=seconds, choices=table)
    return replace(found, claims=claims(found))


@experiment(__doc__)
@click.option("--trace", metavar="FILE", help="Write the profiler's trace of an epoch.")
def main(quick: bool, device: str, json_: str | None, load: str | None, trace: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Throughput, lambda say: run(size, as_device(device), trace, say), to_text, json_, load, also=trace)


if __name__ == "__main__":
    main()
