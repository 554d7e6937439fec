"""Tables of stage costs: the transforms in workers and on the device, and all other stages."""

from dataclasses import dataclass

from audioaug.records import Report, StageCost
from audioaug.report.parts import NOTHING, Column, Facts, Line, Part, Row, Table, spread
from audioaug.units import format_ms, plural

Side = tuple[str, str]


@dataclass(frozen=True)
class OpCost:
    """An op's cost in a worker and on the device with the recommended engines, and where it runs."""

    worker_ms: float | None
    device_ms: float | None
    in_worker: bool


def op_costs(report: Report) -> list[OpCost]:
    """Return the costs of the ops in ``op_parts``, in the same order."""
    stages = [stage for stage in report.stages if stage.op is not None]
    engines = advised_engines(report)

    def ms(op: int, where: str) -> float | None:
        there = [stage for stage in stages if (stage.op, stage.where) == (op, where) and stage.ms_per_batch is not None]
        there.sort(key=lambda stage: stage.engine != engines.get(where))
        return there[0].ms_per_batch if there else None

    places = range(len(op_names(report)))
    return [OpCost(ms(op, "worker"), ms(op, "device"), runs_in(report, op) == "worker") for op in places]


def advised_engines(report: Report) -> dict[str, str]:
    """Return the recommended engines of the workers and of the device."""
    advice = report.recommendation
    return {"worker": advice.worker_engine, "device": advice.device_engine} if advice else {}


def op_names(report: Report) -> list[str]:
    """Return the names of all ops of the chain or of the stages, in order."""
    measured = {stage.op: stage.name for stage in report.stages if stage.op is not None}
    named = measured | dict(enumerate(report.chain.ops))
    return [named[op] for op in sorted(named)]


def op_parts(report: Report) -> tuple[Part, ...]:
    """Return a table with a row for each transform and a column for each location and engine, fused ops, and
    reasons.
    """
    stages = [stage for stage in report.stages if stage.op is not None]
    if not stages:
        return ()
    sides = sorted({side(stage) for stage in stages}, key=lambda it: (it[0] != "worker", it))
    costs = {(stage.op, side(stage)): stage for stage in stages}
    advised = advised_engines(report).items()
    timed = (side_column(it, it in advised or not advised) for it in sides)
    columns = (Column("op", number=True, use="minor"), Column("transform"), *timed, Column("runs in"))
    rows = tuple(
        Row((str(op + 1), name, *(cost(costs.get((op, it))) for it in sides), runs_in(report, op)))
        for op, name in enumerate(op_names(report))
    )
    return Table(columns, rows).without_empty(), *fused_lines(report), *reasons(stages)


def side(stage: StageCost) -> Side:
    """Return the location and the engine of a stage."""
    return stage.where, stage.engine


def side_column(it: Side, is_main: bool) -> Column:
    """Return the column of a location and engine: ``worker / audiomentations``."""
    return Column("\n".join(filter(None, it)), number=True, use="main" if is_main else "minor")


def cost(stage: StageCost | None) -> str:
    """Return a stage's time with its interval."""
    return NOTHING if stage is None else spread(stage.ms_per_batch, stage.ci_ms)


def runs_in(report: Report, op: int) -> str:
    """Return the side of the recommended cut that an op is on."""
    if report.recommendation is None:
        return NOTHING
    return "worker" if op < report.recommendation.cut else "device"


def fused_lines(report: Report) -> tuple[Line, ...]:
    """Return a line for each group of fused ops in the recommended plan."""
    advice, names = report.recommendation, op_names(report)
    if advice is None:
        return ()
    workers = range(advice.cut if advice.worker_engine == "batched" else 0)
    device = range(advice.cut, len(names) if advice.device_engine != "torch-audiomentations" else advice.cut)
    sides = {"On the device": device, "In the workers": workers}
    found = (
        (where, names[max(start, side.start) : min(stop, side.stop)])
        for where, side in sides.items()
        for start, stop in report.chain.fused
    )
    return tuple(
        Line(f"{where}, {' + '.join(ops)} are fused: their separate times do not add up.")
        for where, ops in found
        if len(ops) > 1
    )


def reasons(stages: list[StageCost]) -> tuple[Part, ...]:
    """Return the reasons why some transforms have no time on some side."""
    missing = [stage for stage in stages if stage.ms_per_batch is None and stage.reason]
    items = tuple((stage.name, f"{', '.join(filter(None, side(stage)))}: {stage.reason}") for stage in missing)
    return (Facts(items),) if items else ()


def stage_parts(report: Report) -> tuple[Part, ...]:
    """Return a row for each stage that is not a transform: decoding, collating, the copy, the model."""
    stages = [stage for stage in report.stages if stage.op is None]
    words, ms = [Column("stage"), Column("runs in"), Column("engine")], Column("ms per batch", number=True)
    rows = tuple(Row((stage.name, stage.where, stage.engine, cost(stage), stage.reason)) for stage in stages)
    table = (Table((*words, ms, Column("note")), rows).without_empty(),) if rows else ()
    return *table, *contention_lines(report)


def contention_lines(report: Report) -> tuple[Line, ...]:
    """Return a line for each number of workers: how much they and training slow each other down."""
    alone = {(it.cut, it.worker_engine, it.num_workers): it.ms_per_batch for it in report.loader_costs}
    found = ((it, alone.get((it.cut, it.worker_engine, it.num_workers))) for it in report.contention)
    return tuple(
        Line(
            f"Beside {plural(it.num_workers, 'worker')} at full speed, a step on {plural(it.threads, 'thread')} "
            f"takes {format_ms(it.step_ms)} instead of {format_ms(it.alone_ms)}, and a batch of these workers "
            f"{format_ms(it.batch_ms)} instead of {format_ms(batch_ms)}."
        )
        for it, batch_ms in found
        if batch_ms is not None
    )
