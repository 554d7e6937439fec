"""Code of your own in a chain: functions for Lambda, and your subclasses of audiomentations' transforms."""

import functools
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import audiomentations as am
import numpy as np
import pytest
import torch
from audiomentations.core.transforms_interface import BaseWaveformTransform

from audioaug import build_cpu, build_device, ops
from audioaug.core import Chain, Op
from audioaug.errors import ChainError, DataError, PlanError
from audioaug.ops import _code
from audioaug.ops.lambda_ import on_device
from audioaug.verify.replay import verify_op

RATE = 16000
X = np.linspace(-1, 1, 500, dtype=np.float32)
WHAT = "tests.contract.ops.test_your_code:"


def jittered(samples: Any, sample_rate: int, spread: float = 0.1) -> Any:
    """Draw from all three global generators."""
    noise = np.random.normal(0.0, spread, samples.shape)
    return (samples * random.uniform(0.5, 1.5) + noise + torch.rand(1).item()).astype(np.float32)


def in_place(samples: Any, sample_rate: int) -> Any:
    samples *= 2.0
    return samples


class Jitter(BaseWaveformTransform):
    """A transform in audiomentations' manner that draws in both places, also from generators of its own."""

    supports_multichannel = True

    def __init__(self, spread: float = 0.1, colour: str = "white", p: float = 0.5) -> None:
        super().__init__(p)
        self.spread, self.colour = spread, colour
        self.rng, self.old, self.python = np.random.default_rng(), np.random.RandomState(), random.Random()
        self._calls = 0

    def randomize_parameters(self, samples: Any, sample_rate: int) -> None:
        super().randomize_parameters(samples, sample_rate)
        if self.parameters["should_apply"]:
            self.parameters["gain"] = random.uniform(0.5, 1.5) * self.python.uniform(0.9, 1.1)

    def apply(self, samples: Any, sample_rate: int) -> Any:
        self._calls += 1
        noise = self.rng.normal(0.0, self.spread, samples.shape) + self.old.normal(0.0, self.spread)
        return jittered(samples * self.parameters["gain"] + noise, sample_rate, self.spread)


class MonoOnly(BaseWaveformTransform):
    """Says nothing of channels, as most do."""

    def apply(self, samples: Any, sample_rate: int) -> Any:
        return -samples


def yours(p: float = 1.0, **arguments: Any) -> Op:
    return Chain.from_audiomentations(Jitter(p=p, **arguments), RATE).ops[0]


DRAWING = {
    "Lambda": lambda: Chain([ops.Lambda(transform=jittered, p=0.7)], RATE),
    "Custom": lambda: Chain([yours(p=0.7)], RATE),
    "in a container": lambda: Chain.from_audiomentations(
        am.OneOf([am.Compose([Jitter(p=0.7), am.Gain()]), am.Lambda(jittered, p=0.7, spread=0.2)]), RATE
    ),
}
EVERY = pytest.mark.parametrize("name", DRAWING)


class TestDraws:
    """Whatever your code draws is a pure function of seed, epoch and index."""

    @EVERY
    def test_seed_epoch_and_index_decide(self, name: str) -> None:
        chain = DRAWING[name]()
        cells = [(seed, epoch, index) for seed in (0, 1) for epoch in (0, 1) for index in range(6)]
        first = [build_cpu(chain, seed=seed)(X, epoch=epoch, key=index) for seed, epoch, index in cells]
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        worker = {seed: build_cpu(DRAWING[name](), seed=seed) for seed in (0, 1)}
        again = [worker[seed](X, epoch=epoch, key=index) for seed, epoch, index in reversed(cells)][::-1]
        assert all(np.array_equal(a, b) for a, b in zip(first, again))
        changed = [y.tobytes() for y in first if not np.array_equal(y, X)]
        assert len(set(changed)) == len(changed) > 8 and len(changed) < len(cells)

    @EVERY
    def test_the_global_generators_are_left_alone(self, name: str) -> None:
        worker = build_cpu(DRAWING[name]())
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        for index in range(6):
            worker(X, key=index)
        assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before

    def test_global_generators_are_restored_after_an_error(self) -> None:
        before = random.getstate(), np.random.get_state()[1].tolist()
        with pytest.raises(ZeroDivisionError):
            build_cpu(Chain([ops.Lambda(transform=lambda x, rate: 1 / 0, p=1.0)], RATE))(X)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before

    @EVERY
    def test_missing_seeding_is_detected(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_code, "seeded", lambda key: __import__("contextlib").nullcontext())
        worker = build_cpu(DRAWING[name]())
        assert any(not np.array_equal(worker(X, key=index), worker(X, key=index)) for index in range(6))

    def test_ops_that_draw_nothing_are_not_seeded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(np.random, "seed", lambda *args: pytest.fail("seeded"))
        build_cpu(Chain([ops.Gain(p=1.0), ops.LowPassFilter(p=1.0)], RATE))(X)

    def test_a_spawned_process_does_the_same(self, tmp_path: Path) -> None:
        worker = build_cpu(Chain([ops.Lambda(transform=jittered, p=1.0), yours(p=1.0)], RATE), seed=3)
        (tmp_path / "worker.pickle").write_bytes(pickle.dumps((worker, X)))
        code = "import pickle, sys; w, x = pickle.load(open(sys.argv[1], 'rb'))"
        code += "\nsys.stdout.buffer.write(w(x, key=4).tobytes())"
        arguments = [sys.executable, "-c", code, tmp_path / "worker.pickle"]
        done = subprocess.run(arguments, capture_output=True, check=True, cwd=Path(__file__).parents[3], timeout=120)
        assert np.array_equal(np.frombuffer(done.stdout, np.float32), worker(X, key=4))


class TestCustom:
    """Your own transforms."""

    def test_it_is_pinned_to_the_workers_with_a_reason(self) -> None:
        chain = Chain.from_audiomentations(am.Compose([am.Gain(), Jitter(), am.Clip()]), RATE)
        assert chain.device_from == 2 and [op.name for op in chain.ops] == ["Gain", "Jitter", "Clip"]
        with pytest.raises(PlanError, match=r"Jitter: your own code runs only in the workers\..*Cut at 2 or later"):
            build_device(chain, start=1)

    def test_your_object_is_neither_changed_nor_used(self) -> None:
        original = Jitter(spread=0.1, p=0.3)
        original.freeze_parameters()
        before = dict(vars(original))
        chain = Chain.from_audiomentations(original, RATE)
        worker = build_cpu(chain)
        results = [worker(X, key=index) for index in range(8)]
        assert vars(original) == before and len({y.tobytes() for y in results}) > 2
        original.spread = 9.0
        assert chain.ops[0].to_dict(for_file=False)["Jitter"]["spread"] == 0.1
        back = chain.to_audiomentations().transforms[0]
        assert (type(back), back.spread, back.p, back.are_parameters_frozen) == (Jitter, 0.1, 0.3, False)
        assert chain.ops == Chain.from_audiomentations(back, RATE).ops

    def test_p_is_the_transforms_own_or_another(self) -> None:
        assert (ops.Custom(transform=Jitter(p=0.25)).p, ops.Custom(transform=Jitter(p=0.25), p=1.0).p) == (0.25, 1.0)
        chain = Chain([yours(p=0.3)], RATE)
        worker, tossed = build_cpu(chain), chain.draw(range(200))["0:apply"] > 0
        changed = [not np.array_equal(worker(X, key=index), X) for index in range(200)]
        assert changed == tossed.tolist() and 40 < sum(changed) < 80

    def test_the_hash_changes_with_name_and_attributes_only(self) -> None:
        class Other(Jitter): ...

        same = [yours(), yours(), Chain.from_audiomentations(Jitter(p=1.0), RATE).ops[0]]
        used = Jitter(p=1.0)
        used(X, RATE)
        same.append(ops.Custom(transform=used))
        others = [yours(spread=0.2), yours(colour="pink"), yours(p=0.9), ops.Custom(transform=Other(p=1.0))]
        assert len({Chain([op], RATE).hash for op in same}) == 1 and all(op == same[0] for op in same)
        assert len({Chain([op], RATE).hash for op in [same[0], *others]}) == 5
        assert all(op != same[0] for op in others) and len({hash(op) for op in same}) == 1

    def test_custom_op_cannot_be_written_to_a_file(self, tmp_path: Path) -> None:
        for chain in (Chain([yours()], RATE), Chain([ops.OneOf([yours(), ops.Gain()])], RATE)):
            with pytest.raises(ChainError, match=r"Jitter: your own transform .* a file cannot hold\."):
                chain.to_yaml(tmp_path / "chain.yaml")
            assert not (tmp_path / "chain.yaml").exists() and len(chain.hash) == 16
        with pytest.raises(ChainError, match="no transform 'Custom'"):
            Chain.from_dict({"sample_rate": RATE, "transforms": [{"Custom": {}}]})

    def test_mono_or_a_clear_refusal(self) -> None:
        stereo = np.stack([X, X])
        assert build_cpu(Chain([yours()], RATE))(stereo).shape == stereo.shape
        with pytest.raises(DataError, match="MonoOnly takes mono audio only, but this clip has 2 channels"):
            build_cpu(Chain([ops.Custom(transform=MonoOnly(p=1.0))], RATE))(stereo)

    def test_transform_that_cannot_be_copied_raises(self) -> None:
        transform = Jitter()
        transform.lock = __import__("threading").Lock()
        with pytest.raises(ChainError, match=r"Jitter: your transform cannot be copied \(TypeError: .*first use"):
            Chain.from_audiomentations(transform, RATE)

    def test_subclasses_of_audiomentations_transforms_are_custom(self) -> None:
        class Louder(am.Gain):
            def apply(self, samples: Any, sample_rate: int) -> Any:
                return 2 * super().apply(samples, sample_rate)

        op = Chain.from_audiomentations(Louder(min_gain_db=0.0, max_gain_db=0.0, p=1.0), RATE).ops[0]
        assert isinstance(op, ops.Custom) and np.array_equal(build_cpu(Chain([op], RATE))(X), 2 * X)


class TestLambda:
    """Your own functions."""

    def test_it_may_be_declared_by_name(self, tmp_path: Path) -> None:
        named = Chain([ops.Lambda(transform=WHAT + "jittered", kwargs={"spread": 0.2, "p_": [1, {"a": None}]})], RATE)
        given = Chain([ops.Lambda(transform=jittered, kwargs={"p_": [1, {"a": None}], "spread": 0.2})], RATE)
        assert named == given and named.hash == given.hash
        named.to_yaml(tmp_path / "chain.yaml")
        assert WHAT + "jittered" in (tmp_path / "chain.yaml").read_text()
        assert Chain.from_yaml(tmp_path / "chain.yaml", code=True) == given

    def test_keyword_arguments_arrive(self) -> None:
        reference = ops.Lambda(transform=jittered, kwargs={"spread": 0.2}).reference()
        assert (reference.transform, reference.kwargs, reference.p) == (jittered, {"spread": 0.2}, 0.5)
        chain = Chain.from_audiomentations(am.Lambda(lambda x, rate, by: x * by, p=1.0, by=3.0), RATE)
        assert np.array_equal(build_cpu(chain)(X), 3 * X)

    @pytest.mark.parametrize(
        ("op", "told"),
        [
            (lambda: ops.Lambda(transform=lambda x, rate: x), r"<lambda> cannot be imported .* Define it with def"),
            (lambda: ops.Lambda(transform=functools.partial(jittered, spread=1)), "partial cannot be imported"),
            (
                lambda: ops.Lambda(transform=jittered, kwargs={"spread": abs(X)}),
                "of which a file cannot hold everything",
            ),
        ],
        ids=["lambda", "partial", "an array"],
    )
    def test_unserialisable_argument_raises(self, op: Callable[[], Op], told: str, tmp_path: Path) -> None:
        chain = Chain([op()], RATE)
        with pytest.raises(ChainError, match=told):
            chain.to_yaml(tmp_path / "chain.yaml")
        assert Chain([op()], RATE).hash == chain.hash and np.isfinite(build_cpu(chain)(X)).all()

    def test_a_function_of_the_program_itself_cannot_be_in_a_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.modules["__main__"], "here", lambda x, rate: x, raising=False)
        function = sys.modules["__main__"].here  # type: ignore[attr-defined]
        monkeypatch.setattr(function, "__module__", "__main__")
        monkeypatch.setattr(function, "__qualname__", "here")
        with pytest.raises(ChainError, match="here cannot be imported by its name"):
            ops.Lambda(transform=function).to_dict()

    @pytest.mark.parametrize("name", ["in_place", "jittered"])
    def test_the_clip_itself_is_not_changed(self, name: str) -> None:
        clip = X.copy()
        clip.flags.writeable = False
        result = build_cpu(Chain([ops.Lambda(transform=WHAT + name, p=1.0)], RATE))(clip)
        assert np.array_equal(clip, X) and not np.array_equal(result, X)

    @pytest.mark.parametrize(
        ("returned", "told"),
        [
            (None, r"returns shape \(\) and type object"),
            (X[None, None], r"returns shape \(1, 1, 500\)"),
            (X > 0, "type bool, but must return floating point"),
        ],
        ids=["nothing", "three dimensions", "booleans"],
    )
    def test_user_code_that_returns_no_clip_raises(self, returned: Any, told: str) -> None:
        with pytest.raises(DataError, match=told):
            build_cpu(Chain([ops.Lambda(transform=lambda x, rate: returned, p=1.0)], RATE))(X)

    def test_user_code_may_change_shape_and_dtype(self) -> None:
        for change in (lambda x, rate: x[:100].astype(np.float64), lambda x, rate: x[None, :100]):
            chain = Chain([ops.Lambda(transform=change, p=1.0), ops.PolarityInversion(p=1.0)], RATE)
            assert np.array_equal(build_cpu(chain)(X), -X[:100])

    def test_error_in_user_code_is_raised_unchanged(self) -> None:
        def wrong(samples: Any, sample_rate: int) -> Any:
            raise ValueError("no such thing")

        with pytest.raises(ValueError, match=r"^no such thing$"):
            build_cpu(Chain([ops.Lambda(transform=wrong, p=1.0)], RATE))(X)

    def test_without_a_twin_it_is_pinned_to_the_workers(self) -> None:
        chain = Chain([ops.Lambda(transform=jittered)], RATE)
        assert chain.device_from == 1
        with pytest.raises(PlanError, match=r"Lambda: jittered has no twin on the device \(see .*on_device\)\."):
            build_device(chain)

    def test_with_a_twin_it_runs_there(self) -> None:
        @on_device(lambda x_BCT, sample_rate, by: x_BCT * by + sample_rate)
        def scaled(samples: Any, sample_rate: int, by: float) -> Any:
            return samples * by + sample_rate

        chain = Chain([ops.Lambda(transform=scaled, p=1.0, kwargs={"by": 3.0})], RATE)
        x_BCT = torch.from_numpy(np.tile(X, (4, 1, 1)))
        assert torch.equal(build_device(chain)(x_BCT), x_BCT * 3 + RATE)
        assert build_cpu(chain)(X) == pytest.approx(3 * X + RATE)

    def test_tensor_kept_by_user_code_is_not_overwritten(self) -> None:
        kept = list[torch.Tensor]()

        @on_device(lambda x_BCT, sample_rate: kept.append(x_BCT * 2) or kept[-1])
        def doubled(samples: Any, sample_rate: int) -> Any:
            return samples * 2

        chain = Chain([ops.Lambda(transform=doubled, p=1.0), ops.PolarityInversion(p=1.0)], RATE)
        x_BCT = torch.from_numpy(np.tile(X, (4, 1, 1)))
        assert torch.equal(build_device(chain)(x_BCT), -kept[0]) and torch.equal(kept[0], x_BCT * 2)

    def test_verify_rejects_a_twin_that_differs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from audioaug.verify import material

        monkeypatch.setattr(material.softened, "on_device", lambda x, rate, **kwargs: x / (1.0 + 2.001 * x.abs()))
        assert verify_op(ops.Lambda, sample_rates=(RATE,)).status == "failed"
