"""What a GPU would have to do, counted without one, in a table: more than there is a fault, less is to be recorded."""

import json

import pytest
import torch
from bench_engine_work import IMAGE_SOURCES
from count_gpu_work import RECORD, Counts, chosen, counted, over_the_floor, plans, shape_of

from audioaug.dsp import dispatch
from tests.contract.engine.test_no_sync import fake_copies_work

if not fake_copies_work() or not dispatch.kernels_are_usable():
    pytest.skip(f"torch {torch.__version__} cannot pretend to have a GPU, or not its kernels", allow_module_level=True)

KNOWN = json.loads(RECORD.read_text(encoding="utf-8"))
CHAINS = chosen()
MOST_LAUNCHES = {
    **{"PitchShift": 20, "TimeStretch": 20, "Limiter": 10, "SpliceOut": 6, "RepeatPart": 6, IMAGE_SOURCES: 50},
    **{"speech chain": 80, "music chain": 120},
}
ROUNDING = 1.02
"""Bytes differ from one version of torch to the next by what its operators allocate."""


@pytest.mark.parametrize("name", KNOWN["counts"])
def test_the_work_is_that_of_the_table(name):
    known = Counts(**{**KNOWN["counts"][name], "ffts": tuple(KNOWN["counts"][name]["ffts"])})
    found, _ = counted(CHAINS[name], shape_of(name))
    assert found.launches <= known.launches, f"{name} needs more launches"
    assert found.bytes <= ROUNDING * known.bytes, f"{name} moves more bytes"
    assert len(found.ffts) <= len(known.ffts), f"{name} needs more FFT plans"
    if torch.__version__ == KNOWN["torch"]:
        better = found.launches < known.launches or found.bytes * ROUNDING < known.bytes
        assert not better, f"{name} needs less: record it with scripts/count_gpu_work.py --json {RECORD.name}"


@pytest.mark.parametrize("name", MOST_LAUNCHES)
def test_goals_are_kept(name):
    assert KNOWN["counts"][name]["launches"] <= MOST_LAUNCHES[name]


MORE_THAN_FLOOR = {"Lambda": 6.0}
"""Bytes over an op's floor, where they are more than three times that: what a user's function does is not ours."""


@pytest.mark.parametrize("name", KNOWN["counts"])
def test_bytes_are_few(name):
    over = over_the_floor(name, Counts(**KNOWN["counts"][name]))
    assert over is None or over <= MORE_THAN_FLOOR.get(name, 3.0)


@pytest.mark.parametrize("ragged", [False, True], ids=["of one length", "of many lengths"])
@pytest.mark.parametrize("name", ["demo chain", "speech chain"])
@pytest.mark.parametrize("batches", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_few_fft_plans_serve_all_batches(name, ragged, batches):
    assert len(plans(CHAINS[name], batches, ragged)) <= 16


def test_a_planted_operation_is_counted(monkeypatch):
    chain = CHAINS["Gain"]
    op = type(chain.ops[0])
    honest, before = op.batched, counted(chain, (4, 1, 8000))[0]
    monkeypatch.setattr(op, "batched", lambda self, x, params, batch: honest(self, x, params, batch).clone())
    after = counted(chain, (4, 1, 8000))[0]
    assert after.launches == before.launches + 1 and after.bytes == before.bytes + 2 * 4 * 4 * 8000
