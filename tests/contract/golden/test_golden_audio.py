"""The audio of a seed, an epoch and a key is the same on every torch and Python: it is compared with a record.

Both builds of every op, and a chain of several; sums in another order may round otherwise, so each within its contract.
A change is a break: name it in CHANGELOG.md and docs/migrating.md, and record anew:

    PYTHONPATH=. python tests/contract/golden/test_golden_audio.py
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from audioaug import Chain, build_cpu, build_device, ops
from audioaug.core import REGISTRY, Op, why_not_in_worker, why_not_on_device
from audioaug.verify import material

RATE, SEED, EPOCH = 16000, 5, 3
KEYS = ("spk1/utt7", "spk2/utt1")
FILE = Path(__file__).with_name("audio.json")
PLACES = 24
"""Values that are kept of each example, evenly spaced."""
ELSEWHERE = {"RoomSimulator"}
"""Ops whose random numbers are those of another library's own generator, which other compilers may change."""
TOLERANCE = 2e-4
"""Of the peak: two limits of the loosest exact contract, on either side."""

SEVERAL = [ops.Gain(p=0.7), ops.HighPassFilter(p=0.7), ops.Shift(p=0.7), ops.TanhDistortion(p=0.7), ops.Limiter()]
PLAIN = Chain(SEVERAL, RATE)


def clips() -> list[np.ndarray]:
    """Return a word and a part of another, (T,) each, as they are in the package."""
    return [clip[0] for clip in material.signals(RATE)[:2]]


def chains() -> dict[str, Chain]:
    """Return a chain for each op that has a device build, always applied, and one of several."""
    found = {"several": PLAIN}
    for name, kind in sorted(REGISTRY.items()):
        op: Op = dataclasses.replace(next(material.variants(kind)), p=1.0)
        if not (why_not_on_device(op) or why_not_in_worker(op)) and name not in ELSEWHERE:
            found[name] = Chain([op], RATE)
    return found


def made(chain: Chain, build: str) -> list[np.ndarray]:
    """Return what a build makes of both clips by key."""
    if build == "worker":
        worker = build_cpu(chain, seed=SEED)
        return [worker(clip, key=key, epoch=EPOCH) for clip, key in zip(clips(), KEYS)]
    lengths = [len(clip) for clip in clips()]
    x_BT = torch.from_numpy(np.stack([np.pad(clip, (0, max(lengths) - len(clip))) for clip in clips()]))
    module = build_device(chain, seed=SEED)
    y, length_B = module(x_BT, lengths=lengths, key=KEYS, epoch=EPOCH, return_lengths=True)
    return [row[..., :length].numpy() for row, length in zip(y, length_B.tolist())]


def sampled(wave: np.ndarray) -> dict[str, Any]:
    """Return what is kept of an example: its shape, its peak, and some of its values."""
    flat = wave.ravel()
    places = np.linspace(0, len(flat) - 1, PLACES).astype(int)
    peak = float(np.abs(flat).max())
    return {
        "shape": list(wave.shape),
        "peak": float(f"{peak:.6g}"),
        "values": [float(f"{x:.6g}") for x in flat[places]],
    }


def golden() -> dict[str, list[dict[str, Any]]]:
    """Return the golden values of every chain: those of the worker build, which is the reference itself."""
    return {name: [sampled(wave) for wave in made(chain, "worker")] for name, chain in chains().items()}


@pytest.mark.parametrize("name", sorted(chains()))
@pytest.mark.parametrize("build", ["worker", "device"])
def test_audio_is_that_of_the_file(name: str, build: str) -> None:
    chain = chains()[name]
    kind = chain.ops[0].contract.kind if len(chain) == 1 else "exact"
    for wave, expected in zip(made(chain, build), json.loads(FILE.read_text())[name], strict=True):
        found = sampled(wave)
        assert found["shape"] == expected["shape"]
        if build == "device" and kind not in ("exact", "log_spectrum"):
            continue  # equal to the ear, or other noise
        scale = 1.0 if kind == "log_spectrum" else expected["peak"]
        limit = 0.02 if kind == "log_spectrum" else TOLERANCE
        assert np.abs(np.subtract(found["values"], expected["values"])).max() <= limit * scale
        assert abs(found["peak"] - expected["peak"]) <= limit * scale


def test_every_op_that_can_is_in_the_file() -> None:
    assert set(json.loads(FILE.read_text())) == set(chains())


def test_another_key_seed_or_epoch_gives_other_audio() -> None:
    expected = json.loads(FILE.read_text())["several"]
    for change in ({"key": "spk1/utt8"}, {"epoch": EPOCH + 1}):
        wave = build_cpu(PLAIN, seed=SEED)(clips()[0], **{"key": KEYS[0], "epoch": EPOCH, **change})
        assert sampled(wave) != expected[0]
    assert sampled(build_cpu(PLAIN, seed=SEED + 1)(clips()[0], key=KEYS[0], epoch=EPOCH)) != expected[0]


if __name__ == "__main__":
    FILE.write_text(json.dumps(golden(), separators=(",", ":")).replace('],"', '],\n"') + "\n")
