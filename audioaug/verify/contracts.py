"""Checkers: whether a build's result is as equal to the reference's as the op's contract promises.

Pure functions of numpy arrays. Each has been seen to reject planted faults
(``tests/contract/verify/test_canaries.py``).

Shapes: a batch is a sequence of B clips, each (C, T) with its own T.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Contract
from audioaug.verify import log_spectrum, noise, perceptual, spectral
from audioaug.verify.noise import Clips

Status: TypeAlias = Literal["passed", "failed", "skipped", "same", "differs", "none", "unavailable"]
"""The first three judge our builds; the others describe torch-audiomentations, which promises nothing."""


@dataclass(frozen=True)
class Verdict:
    """What a comparison found. ``error`` and ``limit`` are in ``unit``; ``reason``: what is wrong, or why skipped."""

    op: str
    engine: str
    contract: str
    error: float | None = None
    limit: float | None = None
    status: Status = "passed"
    reason: str = ""
    unit: str = "of peak"

    @property
    def strain(self) -> float:
        """How much of the limit the error uses up: above 1 is a failure."""
        if self.error is None or self.limit is None:
            return -1.0
        if self.error == 0 or math.isnan(self.error):
            return 0.0 if self.error == 0 else math.inf
        return self.error / self.limit if self.limit else math.inf


def check(
    contract: Contract,
    dry: Clips,
    reference: Clips,
    built: Clips,
    *,
    op: str = "",
    engine: str = "batched",
    intended: Sequence[float | None] | None = None,
    again: Clips | None = None,
    fed: Clips | None = None,
    sample_rate: int = 16000,
) -> Verdict:
    """Compare a build with the reference, both made from the same clips with the same draws.

    Args:
        contract: what is promised.
        dry: the clips before augmentation.
        reference: what the reference made of them.
        built: what the build made of them.
        op: whose results these are, for the verdict.
        engine: which build it is, for the verdict.
        intended: for noise: the standard deviation that the parameters ask for, one for each clip.
        again: for noise: what the build made of the same clips with other draws.
        fed: for coloured noise: what the reference made of the same clips, given the build's random numbers.
        sample_rate: of the clips, in Hz, for what is compared as the ear does.
    """
    verdict = Verdict(op, engine, contract.kind)
    if contract.kind == "cpu_only":
        return dataclasses.replace(verdict, status="skipped", reason=contract.reason)
    if reason := misfit(dry, reference, built):
        return dataclasses.replace(verdict, error=math.inf, limit=contract.tolerance, status="failed", reason=reason)
    if contract.kind == "exact":
        return exact(verdict, contract.tolerance, dry, reference, built)
    if contract.kind == "spectral":
        finding = spectral.compare(contract, dry, reference, built)
    elif contract.kind == "log_spectrum":
        finding = log_spectrum.compare(contract, reference, built)
    elif contract.kind == "perceptual":
        finding = perceptual.compare(reference, built, contract.tolerance, sample_rate)
    else:
        coloured = contract.noise_tolerance > 0
        finding = noise.compare(dry, reference, built, contract.tolerance, intended, again, coloured=coloured)
    reason = f"{finding.what} ({finding.error:.2g} {finding.unit}, limit {finding.limit:.2g})"
    judged = dataclasses.replace(
        verdict,
        error=finding.error,
        limit=finding.limit,
        unit=finding.unit,
        status="passed" if finding.passed else "failed",
        reason="" if finding.passed else reason,
    )
    return judged if fed is None else worst([judged, _same_noise(verdict, contract, dry, fed, built)])


def _same_noise(verdict: Verdict, contract: Contract, dry: Clips, fed: Clips, built: Clips) -> Verdict:
    """Compare coloured noise with what the reference makes of the same random numbers, sample for sample."""
    found = check(Contract.exact(contract.noise_tolerance), dry, fed, built)
    reason = found.reason and f"given the same random numbers, {found.reason}"
    return dataclasses.replace(found, op=verdict.op, engine=verdict.engine, contract=verdict.contract, reason=reason)


def misfit(dry: Clips, reference: Clips, built: Clips) -> str:
    """Return why these batches cannot even be compared: counts, shapes, values that are no numbers; or nothing."""
    if not len(dry) == len(reference) == len(built):
        return f"there are {len(dry)} clips, {len(reference)} from the reference and {len(built)} from the build"
    for row, (expected, got) in enumerate(zip(reference, built)):
        if expected.shape != got.shape:
            return f"clip {row} has shape {got.shape}, but the reference's has {expected.shape}"
        if not np.isfinite(expected).all():
            return f"clip {row}: the reference returns values that are not finite"
        if not np.isfinite(got).all():
            return f"clip {row} holds values that are not finite"
    return ""


def exact(verdict: Verdict, tolerance: float, dry: Clips, reference: Clips, built: Clips) -> Verdict:
    """Compare sample for sample; the error is the largest difference over the larger peak of input and reference.

    No false alarms: nothing here is random. Clips of other lengths, and values that are no numbers, never pass.
    """
    errors = [_relative_error(*clips) for clips in zip(dry, reference, built)]
    row = int(np.argmax(errors)) if errors else 0
    error = errors[row] if errors else 0.0
    reason = "" if error <= tolerance else f"clip {row} is off by {error:.2g} of the peak"
    status: Status = "failed" if reason else "passed"
    return dataclasses.replace(verdict, error=error, limit=tolerance, status=status, reason=reason)


def _relative_error(dry: NDArray[np.float32], expected: NDArray[np.float32], got: NDArray[np.float32]) -> float:
    difference = float(np.abs(expected.astype(np.float64) - got).max(initial=0.0))
    peak = float(max(np.abs(expected).max(initial=0.0), np.abs(dry).max(initial=0.0)))
    return 0.0 if difference == 0 else difference / peak if peak else math.inf


def check_fresh(columns: Sequence[str], first: NDArray[np.float64], second: NDArray[np.float64]) -> Verdict:
    """Compare two tables of draws of the same examples in two epochs: no random column may repeat.

    Columns that hold one value in nine rows of ten or more say nothing and are left out. False alarms: below 1e-20
    for 256 rows.
    """
    repeated = [
        name
        for name, before, after in zip(columns, first.T, second.T)
        if np.unique(before, return_counts=True)[1].max() < 0.9 * len(before) and np.array_equal(before, after)
    ]
    reason = f"the draws of {', '.join(repeated)} are the same in two epochs" if repeated else ""
    return Verdict("", "", "draws", float(len(repeated)), 0.0, "failed" if repeated else "passed", reason, "columns")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the failed verdict, or the one closest to failing."""
    return max(verdicts, key=lambda verdict: (verdict.status == "failed", verdict.strain))
