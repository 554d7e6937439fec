"""Costs: what was timed as the record of a stage, for a whole batch."""

from audioaug.advise.pieces import CLIPS
from audioaug.advise.training_job import TrainingJob
from audioaug.core import Chain
from audioaug.records import Location, PartCost, StageCost, Timing


def worker_stage(job: TrainingJob, name: str, timing: Timing) -> StageCost:
    """Scale a time for ``CLIPS`` clips to a batch, and an op's to how often it is applied."""
    op = int(name) if name.isdigit() else None
    factor = job.batch_size / CLIPS * (1.0 if op is None else job.chain.ops[op].p)
    low, high = timing.ci_ms
    engine = "audiomentations" if op is not None else ""
    label = name if op is None else job.chain.ops[op].name
    samples = tuple(ms * factor for ms in timing.samples_ms)
    return StageCost(label, "worker", timing.ms * factor, (low * factor, high * factor), op, engine, "", samples)


def op_stage(chain: Chain, where: Location, name: str, timing: Timing) -> StageCost:
    """Return the cost of an op for a whole batch; the name is engine and place in the chain: ``batched 3``."""
    engine, op = name.split()
    label = chain.ops[int(op)].name
    return StageCost(label, where, timing.ms, timing.ci_ms, int(op), engine, samples_ms=timing.samples_ms)


def part_cost(where: Location, cut: int, threads: int, timing: Timing) -> PartCost:
    """Return the cost of all of our ops on one side of a cut."""
    return PartCost(where, cut, threads, timing.ms, timing.ci_ms, timing.samples_ms)
