"""What if: predictions for another machine or model, and what would change the advice, in words."""

import math
from dataclasses import replace
from itertools import product

from audioaug.decide.predict import predict, threads_beside, worker_engines
from audioaug.decide.shortlist import placement_of
from audioaug.errors import UsageError, did_you_mean
from audioaug.records import Ceiling, Cell, Report
from audioaug.units import format_ms, plural

KNOWN = ("cores", "step_ms")
MOST_WORKERS = 64
CLOSE = 1.03


def parse(text: str) -> dict[str, float]:
    """Read ``cores=16,step_ms=12``; raise ``UsageError`` for what is unknown or no positive number."""
    values: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if name not in KNOWN:
            raise UsageError(f"--what-if knows no {name!r}.", did_you_mean(name, KNOWN))
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = -1.0
        if not 0 < values[name] < math.inf:
            raise UsageError(f"--what-if {name}={value}: it must be a finite number above 0.")
    return values


def what_if(report: Report, values: dict[str, float]) -> tuple[str, ...]:
    """Predict the best cell of each placement where these facts were different."""
    asked = ", ".join(f"{name} = {value:g}" for name, value in values.items())
    unknown = (f"With {asked}: nothing can be predicted, since not every stage was measured.",)
    if report.ceiling is None:
        return unknown
    changed = report if "cores" not in values else _with_cores(report, values["cores"])
    if "step_ms" in values:
        changed = replace(changed, ceiling=_ceiling(report.ceiling, values["step_ms"]))
    workers = max(1, int(min(MOST_WORKERS, changed.host.usable_cores)))
    best = [_best(changed, kind, workers) for kind in ("cpu", "split", "gpu")]
    return (
        unknown
        if not any(best)
        else tuple(
            f"With {asked}, {cell.name} would take {format_ms(ms)} a step (predicted)."
            for ms, cell in sorted(filter(None, best), key=lambda pair: pair[0])
        )
    )


def crossovers(report: Report) -> tuple[str, ...]:
    """Say from how many cores up running the whole chain in the workers would be as fast as anything (predicted)."""
    if report.ceiling is None or not report.host.has_gpu:
        return ()
    for cores in range(1, MOST_WORKERS + 1):
        machine = _with_cores(report, float(cores))
        ours, others = _best(machine, "cpu", cores), [_best(machine, kind, cores) for kind in ("split", "gpu")]
        rest = [found[0] for found in others if found]
        if ours and rest and ours[0] <= CLOSE * min(rest):
            return (f"All in the loader would be as fast as anything from {plural(cores, 'core')} up (predicted).",)
    return (f"All in the loader would be slower on any machine of up to {MOST_WORKERS} cores (predicted).",)


def _with_cores(report: Report, cores: float) -> Report:
    return replace(report, host=replace(report.host, usable_cores=cores, effective_cores=None))


def _best(report: Report, kind: str, most_workers: int) -> tuple[float, Cell] | None:
    ops = len(report.chain.ops)
    found = []
    for cut in report.chain.cuts:
        if placement_of(cut, ops) != kind:
            continue
        for engine, workers in product(worker_engines(report, cut), range(1, most_workers + 1)):
            threads = threads_beside(report, workers)
            cell = Cell(placement_of(cut, ops), cut, engine, num_workers=workers, threads=threads)
            prediction = predict(report, cell)
            if prediction is not None:
                found.append((prediction.ms, workers, cell))
    fastest = min(found, key=lambda item: (round(item[0], 2), item[1]), default=None)
    return None if fastest is None else (fastest[0], fastest[2])


def _ceiling(ceiling: Ceiling, step_ms: float) -> Ceiling:
    factor = step_ms / ceiling.step_ms
    return Ceiling(step_ms, (ceiling.ci_ms[0] * factor, ceiling.ci_ms[1] * factor), ceiling.clips_per_second / factor)
