"""Placement in lines for the terminal."""

from audioaug.units import plural
from experiments.claims import to_lines
from experiments.placement.claims import model_name
from experiments.placement.records import Experiment
from experiments.showing import timed


def to_text(experiment: Experiment) -> str:
    """Lay the results out in lines."""
    report = experiment.report
    assert report.ceiling is not None
    rows = [f"Cores that training and workers get: {report.host.cores:.1f}", ""]
    rows += ["What each stage costs alone (ms for a batch, 95 % interval)"]
    for stage in report.stages:
        where = f"{stage.where} {stage.engine}".strip()
        rows.append(f"  {stage.name:24} {where:30} {timed(stage.ms_per_batch, stage.ci_ms)}")
    rows += ["", "Training, end to end (ms a step, 95 % interval)"]
    for point in experiment.points:
        rows.append(
            f"  {model_name(point)}, chain {plural(point.repeats, 'time')} over; model alone "
            f"{timed(point.ceiling.step_ms, point.ceiling.ci_ms)}"
        )
        for cell in point.cells:
            rows.append(
                f"    {cell.name:36} measured {timed(cell.measured_ms, cell.measured_ci_ms):28} "
                f"predicted {timed(cell.predicted_ms, cell.predicted_ci_ms)}"
            )
    rows += ["", "Convolution (ms for a batch)"]
    for c in experiment.convolutions:
        rows.append(
            f"  {c.response_seconds:5.2f} s   worker {timed(c.worker_ms, c.worker_ci_ms):28} "
            f"device {timed(c.device_ms, c.device_ci_ms)}"
        )
    return "\n".join(rows + to_lines(experiment.claims))
