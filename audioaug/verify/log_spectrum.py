"""Comparing features in dB: equal wherever they are not far below the loudest of their frame.

A frame's spectrum is computed in float32, so each frequency holds rounding errors of the loudest: 130 dB below it, and
in a band that is quieter still they are all there is. What is near them is not compared, except that it stays quiet.

Shapes: a batch is a sequence of B clips, each (C, F, N) with its own N: F features of N frames.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.core import Contract
from audioaug.verify.noise import Finding

Features: TypeAlias = Sequence[NDArray[np.float32]]


def compare(contract: Contract, reference: Features, built: Features) -> Finding:
    """Test each clip's features; return the largest difference, in dB."""
    found = [finding for row, clips in enumerate(zip(reference, built)) for finding in _clip(contract, row, *clips)]
    return max(found, key=lambda finding: finding.error, default=Finding("", 0.0, contract.tolerance, "dB"))


def _clip(contract: Contract, row: int, expected: NDArray[np.float32], got: NDArray[np.float32]) -> Iterator[Finding]:
    if not expected.size:
        return
    quiet = expected.max(axis=-2, keepdims=True) - contract.down_to_db
    different = np.abs(np.maximum(expected, quiet).astype(np.float64) - np.maximum(got, quiet))
    frame = int(different.max(axis=(0, 1)).argmax())
    yield Finding(f"clip {row} is off in frame {frame}", float(different.max()), contract.tolerance, "dB")
