"""Draws never change: those of every op for a few keys, as they were recorded.

A run can only be repeated as long as they are the same. A change is a break: name it in CHANGELOG.md and
docs/migrating.md, and record anew:

    PYTHONPATH=. python tests/unit/core/test_golden_draws.py
"""

import json
from pathlib import Path

import numpy as np
import pytest

from audioaug import Chain
from audioaug.core import REGISTRY, Feature
from tests.helpers.op_examples import OPS, example

RECORD = Path(__file__).with_name("golden_draws.json")
KNOWN = json.loads(RECORD.read_text(encoding="utf-8"))
KEYS = [0, 7, "spk1/utt7", b"\x00\xff", 2**40]
EPOCH, SEED = 2, 5


def draws(kind):
    """Return the draws of an op by the names of its columns."""
    halved = {} if issubclass(kind, Feature) else {"p": 0.5}
    drawn = Chain([example(kind, **halved)], sample_rate=16000).draw(KEYS, EPOCH, SEED)
    return {column: drawn[column].tolist() for column in drawn.columns}


@pytest.mark.parametrize("name", KNOWN)
def test_draws_are_those_of_the_record(name):
    found = draws(REGISTRY[name])
    assert list(found) == list(KNOWN[name])
    for column, values in KNOWN[name].items():  # mels are of logarithms, whose last digit depends on the platform
        np.testing.assert_allclose(found[column], values, rtol=1e-12, err_msg=column)


def test_every_op_is_in_the_record():
    assert set(KNOWN) == {kind.__name__ for kind in OPS}


if __name__ == "__main__":
    content = {kind.__name__: draws(kind) for kind in OPS}
    RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
