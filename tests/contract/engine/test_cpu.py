"""The CPU build: a callable on one clip, a pure function of its draws, that can be pickled and bites on bad input."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from audioaug import ops
from audioaug.core import Chain, why_not_in_worker
from audioaug.engine import build_cpu, build_device
from audioaug.errors import DataError, PlanError
from audioaug.verify.replay import replay
from tests.helpers.op_examples import DEMO, OPS, example

RATE = 16000
NOISY = Chain(
    [ops.AddGaussianNoise(p=1.0), ops.OneOf([ops.Gain(p=1.0), ops.AddGaussianSNR(p=1.0)]), ops.Shift(p=0.5)], RATE
)


@pytest.mark.parametrize("shape", [(16000,), (1, 16000)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_shape_is_kept_and_the_result_is_float32(shape, dtype, exact_chain, speech):
    result = build_cpu(exact_chain)(speech[0].reshape(shape).astype(dtype), RATE, key=3)
    assert result.shape == shape and result.dtype == np.float32 and result.flags.c_contiguous
    assert np.isfinite(result).all()


def test_one_channel_is_mono(exact_chain, speech):
    worker = build_cpu(exact_chain)
    for index in range(8):
        assert np.array_equal(worker(speech[0][None], key=index)[0], worker(speech[0], key=index))


def test_index_epoch_and_seed_decide(speech):
    results = [
        build_cpu(NOISY, seed=seed)(speech[0], key=index, epoch=epoch)
        for seed in (0, 1)
        for index in (0, 1)
        for epoch in (0, 1)
    ]
    assert len({result.tobytes() for result in results}) == 8
    assert np.array_equal(build_cpu(NOISY, seed=1)(speech[0], RATE, key=1, epoch=1), results[-1])


def test_warming_up_runs_every_op_but_the_users(monkeypatch):
    ran = []
    monkeypatch.setattr(ops.Clip, "apply_reference", lambda op, *_: ran.append(op.name))
    theirs = ops.Lambda(transform=lambda *_: ran.append("theirs"), p=1.0)
    build_cpu(Chain([ops.OneOf([ops.Gain(p=0.0), ops.Clip(p=0.0)]), theirs, ops.Clip(p=0.0)], RATE)).warm_up()
    assert ran == ["Clip", "Clip"]


def test_the_order_of_calls_does_not_matter(speech, exact_chain):
    for chain in (NOISY, exact_chain):
        worker = build_cpu(chain)
        forward = [worker(speech[index], key=index) for index in range(8)]
        backward = [worker(speech[index], key=index) for index in reversed(range(8))][::-1]
        assert all(np.array_equal(one, other) for one, other in zip(forward, backward))
        assert np.array_equal(build_cpu(chain)(speech[5], key=5), forward[5])


def test_explicit_draws_are_used(speech):
    draws = NOISY.draw([17], epoch=4, seed=9)
    expected = build_cpu(NOISY, seed=9)(speech[0], key=17, epoch=4)
    assert np.array_equal(build_cpu(NOISY)(speech[0], draws=draws), expected)


def test_only_the_first_ops_run(speech):
    chain = Chain([ops.PolarityInversion(p=1.0), ops.Gain(min_gain_db=20.0, max_gain_db=20.0, p=1.0)], RATE)
    assert np.array_equal(build_cpu(chain, cut=0)(speech[0]), speech[0])
    assert np.array_equal(build_cpu(chain, cut=1)(speech[0]), -speech[0])
    assert build_cpu(chain)(speech[0]) == pytest.approx(-10 * speech[0], rel=1e-5)
    with pytest.raises(PlanError, match="a cut lies between 0 and 2, not at 3"):
        build_cpu(chain, cut=3)


@pytest.mark.parametrize("writeable", [True, False], ids=["writeable", "memory-mapped"])
@pytest.mark.parametrize(
    "kind", [kind for kind in OPS if not why_not_in_worker(example(kind))], ids=lambda kind: kind.__name__
)
def test_no_op_changes_its_input_or_needs_to(kind, writeable, speech):
    worker = build_cpu(Chain([example(kind, p=1.0)], RATE))
    clip = speech[0].copy()
    clip.flags.writeable = writeable
    result = worker(clip, key=2)
    assert np.array_equal(clip, speech[0]) and np.isfinite(result).all()


@pytest.mark.parametrize("used", [False, True])
def test_pickling(used, speech, exact_chain):
    for chain in (NOISY, exact_chain):
        worker = build_cpu(chain, cut=2, seed=5)
        if used:
            worker(speech[0])
        again = pickle.loads(pickle.dumps(worker))
        assert (again.cut, again.seed, again.chain) == (2, 5, chain)
        assert np.array_equal(again(speech[1], key=3), worker(speech[1], key=3))


def test_a_pickled_worker_gives_the_same_in_another_process(tmp_path, speech):
    (tmp_path / "worker.pickle").write_bytes(pickle.dumps((build_cpu(NOISY, seed=3), speech[2])))
    code = "import pickle, sys; w, x = pickle.load(open(sys.argv[1], 'rb'))"
    code += "\nsys.stdout.buffer.write(w(x, key=4).tobytes())"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "worker.pickle"],
        capture_output=True,
        check=True,
        cwd=DEMO.parents[1],
        timeout=120,
    )
    assert np.array_equal(np.frombuffer(done.stdout, np.float32), build_cpu(NOISY, seed=3)(speech[2], key=4))


def test_silence_and_an_empty_clip(exact_chain):
    for chain in (NOISY, exact_chain):
        worker = build_cpu(chain)
        assert all(np.isfinite(worker(np.zeros(4000, np.float32), key=index)).all() for index in range(8))
        assert worker(np.zeros(0, np.float32)).shape == (0,) and worker(np.zeros((2, 0), np.float32)).shape == (2, 0)


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        (
            np.zeros(100, np.int16),
            r"type int16, but must be floating point\. Convert it: for 16-bit integers, divide it by 32768\.",
        ),
        (np.zeros((2, 3, 4)), r"shape \(2, 3, 4\)"),
        (np.float32(1.0), r"shape \(\)"),
        (np.zeros(100, np.complex64), "type complex64"),
        (["a"], "floating point"),
        (np.zeros((16000, 2), np.float32), r"shape \(16000, 2\): channels come first, \(C, T\)\. Transpose it\."),
    ],
    ids=["integers", "three dimensions", "a number", "complex", "text", "channels last"],
)
def test_user_code_that_returns_no_clip_raises(samples, sentence):
    with pytest.raises(DataError, match=sentence):
        build_cpu(NOISY)(samples)


@pytest.mark.parametrize("count", [0, 2])
def test_draws_for_another_number_of_examples_are_refused(count, speech):
    with pytest.raises(DataError, match=f"draws for {count} examples, but this is one clip"):
        build_cpu(NOISY)(speech[0], draws=NOISY.draw(range(count)))


def test_draws_of_another_chain_are_refused(speech):
    with pytest.raises(DataError, match="no column '0:apply'"):
        build_cpu(NOISY)(speech[0], draws=Chain([], RATE).draw([0]))


@pytest.mark.parametrize(
    "op",
    [
        ops.LowPassFilter(zero_phase=True, p=1.0),
        ops.Shift(min_shift=50, max_shift=60, shift_unit="samples", rollover=False, p=1.0),
    ],
)
def test_clips_the_reference_rejects_get_the_device_builds_result(op):
    chain, clip = Chain([op], 16000), np.arange(1, 6, dtype=np.float32)
    expected = build_device(chain)(torch.from_numpy(clip)[None], key=[0])[0]
    assert np.array_equal(build_cpu(chain)(clip, key=0), expected)
    with pytest.raises(DataError, match=rf"^{op.name}: audiomentations refuses a clip of 5 samples: .*Leave such"):
        replay(op, [clip[None]], 16000)  # which compares with the reference, and nothing else


@pytest.mark.parametrize(
    ("shape", "rate"), [((300,), RATE), ((6, RATE), RATE), ((96_000,), 96_000)], ids=["short", "channels", "rate"]
)
def test_clip_that_the_encoder_refuses_is_one_sentence(shape, rate):
    worker = build_cpu(Chain([ops.Mp3Compression(p=1.0)], rate))
    with pytest.raises(DataError, match=r"^Mp3Compression: audiomentations refuses a clip of \d+ .+ Leave such"):
        worker(np.full(shape, 0.1, np.float32), key=0)


@pytest.mark.parametrize("shape", [(1,), (2, 1)])
def test_one_sample_with_a_negative_stride_can_be_used_by_torch(shape):
    """It is what Reverse leaves; numpy calls it contiguous."""
    clip = np.full(shape, 0.5, np.float32)
    for more in ([], [ops.LowPassFilter(zero_phase=True, p=1.0)], [ops.Trim(p=1.0)]):
        worker = build_cpu(Chain([ops.Reverse(p=1.0), *more], RATE))
        assert torch.from_numpy(worker(clip, key=0)).shape[:-1] == shape[:-1]
        assert torch.from_numpy(worker.follow(clip, key=0)[0]).shape[:-1] == shape[:-1]
    assert torch.from_numpy(build_cpu(Chain([], RATE))(clip[..., ::-1])).shape == shape


@pytest.mark.parametrize("op", [ops.Identity(p=1.0), ops.ShuffleChannels(p=1.0), ops.SpliceOut(p=1.0)], ids=repr)
def test_without_torch_audiomentations_workers_use_the_device_build(op, monkeypatch):
    monkeypatch.setattr("audioaug.ops._torch_reference.why_unavailable", lambda: "it is not installed.")
    chain, x_BCT = Chain([op], sample_rate=16000), torch.rand(3, 2, 8000) - 0.5
    expected = build_device(chain)(x_BCT, key=[0, 1, 2])
    found = [build_cpu(chain)(x_CT.numpy(), key=k) for k, x_CT in enumerate(x_BCT)]
    assert not np.array_equal(found, x_BCT.numpy()) or op.name == "Identity"
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
