"""From torch's default DataLoader to the recommended plan, knob by knob and together, on this machine.

    python scripts/experiment_knobs.py                          about three minutes, report on stdout
    python scripts/experiment_knobs.py --quick --json result.json
    python scripts/experiment_knobs.py --load result.json

Trained is a small keyword spotter behind a chain whose augmentation is the bottleneck. The plan is the advisor's. Every
way to feed the training is raced against the default, in turn and in pairs; a ladder turns one knob after the other
until the default has become the plan. ``notebooks/03_working_together.ipynb`` draws what this measures.
"""

from dataclasses import replace
from typing import Any

import torch
from experiments.command import Say, experiment, perform, quiet
from experiments.knobs import feeding
from experiments.knobs.claims import claims
from experiments.knobs.hierarchy import levels, reads
from experiments.knobs.ladder import ladder, setting, shares
from experiments.knobs.model_step import step_costs
from experiments.knobs.records import FULL, QUICK, Knobs, Rung, Size
from experiments.knobs.showing import to_text
from experiments.knobs.starting import epoch_starts
from experiments.knobs.watching import watch
from experiments.placement.target import MODEL
from experiments.races import Arm, cell_arm, race_arms, speed

from audioaug.advise.arms import cached_batches
from audioaug.advise.progress import Progress
from audioaug.advise.survey import Options, Survey
from audioaug.advise.target import Target, load_target
from audioaug.decide.recommend import allocation
from audioaug.loader.examples import get_wave
from audioaug.loader.prefetch import as_device
from audioaug.measure import clock_for, host_facts, measure_transfer
from audioaug.records import Ceiling, Cell, Measurement, Report
from audioaug.units import plural

CHAIN = MODEL.parents[1] / "chains" / "speech.yaml"


def run(size: Size, device: torch.device, say: Say = quiet) -> Knobs:
    """Measure everything."""
    target = load_target(str(MODEL), device, batch_size=size.batch)
    target = replace(target, chain=feeding.declared_chain(CHAIN))
    say("the advisor: which plan?")
    report = Survey(target, Options(size.advise_seconds), Progress(quiet=True), lambda _: None).run()
    assert report.recommendation is not None
    plan = Cell(**{name: getattr(report.recommendation, name) for name in Cell.__dataclass_fields__})
    say("a race of all knobs, alone and one after the other")
    batches = cached_batches(target, plan)
    knobs = _raced(target, report, plan, batches, size)
    say("workers: none and one, four and eight")
    knobs = replace(knobs, **_workers(target, size))
    say("the model's own step")
    clock = clock_for(device)
    knobs = replace(
        knobs,
        steps=step_costs(target, batches[0], clock, size.step_seconds),
        copies_ms={
            name: timing.ms
            for name, timing in measure_transfer(get_wave(batches[0]).cpu(), device, clock, seconds=1.0).items()
        },
        starts_seconds=epoch_starts(target, max(1, plan.num_workers), size.rounds),
        steps_per_epoch=len(target.dataset) // target.batch_size,
    )
    say("the levels of memory")
    knobs = replace(knobs, levels=levels(device, size.file_bytes), reads_ms=reads(target, batches[0], 1.0))
    say("use of the machine while training")
    arms = {"default": feeding.torch_arm("default", target), "recommended": cell_arm("recommended", target, plan)}
    knobs = replace(knobs, windows={name: watch(arm, device, size.watch_seconds) for name, arm in arms.items()})
    return replace(knobs, claims=claims(knobs))


def _raced(target: Target, report: Report, plan: Cell, batches: list[Any], size: Size) -> Knobs:
    """Race the default, the ceiling, each knob alone and each rung of the ladder."""
    default = Cell("cpu", len(target.chain))
    base, ceiling = feeding.torch_arm(feeding.DEFAULT, target), feeding.ceiling_arm(target, batches)
    alone, rungs = feeding.alone(target, plan), ladder(default, plan, len(target.chain))
    climbed = [cell_arm(cell.name, target, cell) for _, cell in rungs]
    found = race_arms(
        [base, ceiling, *alone, *climbed], clock_for(target.device), size.race_seconds, size.block_seconds, size.rounds
    )
    arms = {arm.name: arm for arm in (base, *alone)}
    speeds = [speed(arm, base, found) for arm in climbed]
    parts = shares([one.times for one in speeds]) if speeds else []
    report = replace(report, ceiling=_ceiling(found["ceiling"], target))
    return Knobs(
        host=host_facts(target.device),
        chain=tuple(op.name for op in target.chain.ops),
        model=target.name,
        batch=target.batch_size,
        plan=plan,
        ceiling_ms=found["ceiling"].step.ms,
        default=_allocated(report, default, found[base.name]),
        ladder=tuple(
            Rung(knob, setting(knob, cell), one, part, _allocated(report, cell, found[cell.name]))
            for (knob, cell), one, part in zip(rungs, speeds, parts, strict=True)
        ),
        alone=tuple(speed(arm, arms[feeding.base_of(arm)], found) for arm in alone),
    )


def _ceiling(found: Measurement, target: Target) -> Ceiling:
    return Ceiling(found.step.ms, found.step.ci_ms, target.batch_size / found.step.median)


def _allocated(report: Report, cell: Cell, found: Measurement) -> Any:
    return allocation(report, replace(cell, measured_ms=found.step.ms, measured_ci_ms=found.step.ci_ms))


def _workers(target: Target, size: Size) -> dict[str, Any]:
    """Race torch's DataLoader with none and one worker, and with few and twice as many, in pairs."""
    counts = {0, 1, *size.workers}
    arms: dict[int, Arm] = {n: feeding.torch_arm(plural(n, "worker"), target, num_workers=n) for n in counts}
    clock, found = clock_for(target.device), dict[str, Measurement]()
    fewer, more = size.workers
    for pair in ((0, 1), size.workers):
        found |= race_arms([arms[n] for n in pair], clock, size.race_seconds / 5, size.block_seconds, size.rounds)
    return {"overlap": speed(arms[1], arms[0], found), "more_workers": speed(arms[more], arms[fewer], found)}


@experiment(__doc__)
def main(quick: bool, device: str, json_: str | None, load: str | None) -> None:
    """Measure or load, then print."""
    size = QUICK if quick else FULL
    perform(Knobs, lambda say: run(size, as_device(device), say), to_text, json_, load)


if __name__ == "__main__":
    main()
