"""The device build as a drop-in: what goes in comes out, changed, and nothing else changes."""

import copy
import io
import pickle
import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from audioaug import ops
from audioaug.core import Chain, Feature, why_not_in_worker, why_not_on_device
from audioaug.engine import build_cpu, build_device
from audioaug.engine.rows import RowsTogether
from audioaug.errors import DataError, PlanError
from audioaug.verify import material
from tests.helpers.op_examples import DEMO, OPS, example

RATE = 16000
ON_DEVICE = [kind for kind in OPS if not why_not_on_device(example(kind))]
EVERY_OP = pytest.mark.parametrize("kind", ON_DEVICE, ids=lambda kind: kind.__name__)
EVERY_AUDIO_OP = pytest.mark.parametrize(
    "kind", [kind for kind in ON_DEVICE if not issubclass(kind, Feature)], ids=lambda kind: kind.__name__
)
EVERY_OP_OF_ONE_EXAMPLE = pytest.mark.parametrize(  # an op that no worker can run looks at other examples too
    "kind", [kind for kind in ON_DEVICE if not why_not_in_worker(example(kind))], ids=lambda kind: kind.__name__
)
VARIANTS = [replace(op, p=1.0) for kind in ON_DEVICE for op in material.variants(kind)]
NO_DIFFERENCES = {
    **dict.fromkeys(("BitCrush", "G711"), "a staircase: its slope is 0"),
    **dict.fromkeys(
        ("ClippingDistortion", "TanhDistortion", "Limiter"), "which sample is a percentile, or a peak, changes"
    ),
    **dict.fromkeys(("PitchShift", "TimeStretch"), "phases count as constants"),
}
"""Ops whose gradient differences do not approximate, and why."""
NOISY = Chain([ops.AddGaussianNoise(p=1.0), ops.Gain(p=0.5), ops.AddGaussianSNR(p=0.5)], RATE)


def always(kind, **changes):
    return Chain([example(kind, p=1.0, **changes)], RATE)


@contextmanager
def unusual_defaults(device="meta"):
    """Where what has neither type nor device of its own is imprecise, and has no values."""
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype
        return torch.nested.nested_tensor([torch.zeros(100), torch.zeros(50)])


def unlike(one, other):
    return [not torch.equal(a, b) for a, b in zip(one, other)]


def fits(module, result, x):
    """Whether the result has the batch's shape, but for the length where the op changes it, and with features."""
    if module.chain.feature is not None:
        return result.shape[:-2] == x.shape[:-1]
    draws = module.chain.draw(range(len(x)))
    changes_length = module.prepare(
        draws, (len(x), *([1] if x.ndim == 2 else x.shape[1:2]), x.shape[-1])
    ).changes_length
    return result.shape[:-1] == x.shape[:-1] and (changes_length or result.shape[-1] == x.shape[-1])


# Shapes, types, places


@EVERY_OP
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_shape_type_and_device_are_kept(kind, dtype, batch):
    module, chain = build_device(always(kind)), always(kind)
    draws = chain.draw(range(8))
    x = batch[..., :4000].to(dtype)
    result = module(x, draws=draws)
    assert fits(module, result, x) and (result.dtype, result.device) == (dtype, x.device)
    assert result.isfinite().all()
    in_float32 = module(x.float(), draws=draws)
    assert torch.equal(result, in_float32.to(dtype))
    assert torch.equal(module(x[:, 0], draws=draws), result[:, 0])


@EVERY_OP
def test_two_channels_or_a_clear_refusal(kind, batch):
    chain = always(kind)
    stereo = torch.cat([batch, batch.flip(0)], dim=1)[..., :4000]
    if chain.ops[0].capabilities.multichannel:
        module = build_device(chain)
        assert fits(module, module(stereo), stereo)
    else:
        with pytest.raises(DataError, match="mono audio only"):
            build_device(chain)(stereo)


@EVERY_OP
def test_the_input_is_not_changed(kind, batch):
    module = build_device(always(kind))
    for x in (batch[..., :4000].clone(), batch[..., :4000].double(), batch[:, 0, :4000].clone()):
        before = x.clone()
        module(x)
        module(x, lengths=[4000, 3000, 2000, 1000, 500, 100, 10, 1])
        assert torch.equal(x, before)


@EVERY_AUDIO_OP
def test_in_place_work_does_not_change_the_result(kind, batch, monkeypatch):
    chain = Chain([ops.Gain(p=1.0), example(kind, p=0.5), ops.AddGaussianNoise(p=0.5)], RATE)
    draws, x = chain.draw(range(8)), batch[..., :4000]
    result = build_device(chain)(x, draws=draws)
    monkeypatch.setattr("audioaug.engine.rows.is_overwritable", lambda *_: False)
    assert torch.equal(result, build_device(chain)(x, draws=draws))


@EVERY_AUDIO_OP
def test_a_batch_that_is_not_needed_any_more_may_be_written_over(kind, batch, monkeypatch):
    module, x = build_device(Chain([example(kind, p=0.5), ops.Gain(p=0.5)], RATE)), batch[..., :4000].clone()
    prepared = module.prepare(module.chain.draw(range(8)), tuple(x.shape))
    result, _ = module.augment(x, prepared)
    into, _ = module.augment(x.clone(), prepared, may_overwrite=True)
    assert torch.equal(into, result)
    monkeypatch.setattr("audioaug.engine.device.rows_of", RowsTogether)  # as on a GPU
    into, _ = module.augment(x, prepared, may_overwrite=True)
    assert torch.equal(into, result)
    assert module.chain.nodes[0].capabilities.changes_length or into.data_ptr() == x.data_ptr()


@EVERY_OP
def test_batches_of_any_size(kind, batch):
    module = build_device(always(kind))
    for shape in ((0, 1, 4000), (0, 4000), (1, 1, 4000), (3, 1, 0), (3, 0), (0, 0), (1, 1, 1), (3, 1, 2), (2, 1, 37)):
        x = torch.full(shape, 0.25)
        result = module(x)
        assert result.isfinite().all() and (fits(module, result, x) or not len(x))
    assert torch.equal(module(batch[:1], draws=module.chain.draw([5])).isfinite().all(), torch.tensor(True))


@EVERY_OP_OF_ONE_EXAMPLE
def test_an_example_is_the_same_in_any_batch(kind, batch):
    chain = always(kind)
    module, draws = build_device(chain), chain.draw(range(8))
    together, lengths = module(batch, draws=draws, return_lengths=True)
    for row in (0, 3, 7):
        alone, (length,) = module(batch[row : row + 1], draws=draws.rows([row]), return_lengths=True)
        assert length == lengths[row]
        error = (alone[0, ..., :length] - together[row, ..., :length]).abs().max()
        assert error < 3e-6 * together[row].abs().max() + 1e-6


@EVERY_OP
def test_strided_or_expanded_batch_gives_same_result(kind, batch):
    chain = always(kind)
    module, draws = build_device(chain), chain.draw(range(8))
    wide = torch.zeros(8, 1, 8000)
    wide[..., ::2] = batch[..., :4000]
    assert torch.allclose(module(wide[..., ::2], draws=draws), module(batch[..., :4000], draws=draws), atol=1e-6)
    same = batch[:1, :, :4000].expand(8, -1, -1)
    assert torch.allclose(module(same, draws=draws), module(same.clone(), draws=draws), atol=1e-6)


@EVERY_OP
def test_autocast_changes_nothing(kind, batch):
    chain = always(kind)
    module, draws = build_device(chain), chain.draw(range(8))
    x = batch[..., :4000]
    plain = module(x, draws=draws)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(x, draws=draws), plain)
        assert module(x.bfloat16(), draws=draws).dtype == torch.bfloat16


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("op", VARIANTS, ids=lambda op: op.name)
def test_torchs_default_type_and_device_change_nothing(op, batch):
    module, x = build_device(Chain([op], RATE)), batch[..., :4000]
    plain = module(x, key=range(8))
    with unusual_defaults():
        found = module(x, key=range(8))
        assert torch.get_default_dtype() == torch.bfloat16
    assert torch.equal(found, plain)


@pytest.mark.parametrize("op", [op for op in VARIANTS if not why_not_in_worker(op)], ids=lambda op: op.name)
def test_torchs_default_type_changes_nothing_in_workers(op, batch):
    worker, clip = build_cpu(Chain([op], RATE)), batch[0, 0].numpy()
    plain = worker(clip, key=7)
    with unusual_defaults(device=None):
        assert np.array_equal(worker(clip, key=7), plain)


@EVERY_AUDIO_OP
def test_eval_is_identity_and_draws_nothing(kind, batch):
    module = build_device(always(kind), seed=1).eval()  # a seed with which no SomeOf draws nothing for all examples
    assert module(batch) is batch and module.stream.drawn == 0
    same, lengths = module(batch, return_lengths=True)
    assert same is batch and lengths.tolist() == [batch.shape[-1]] * len(batch)
    may_change_nothing = ("Clip", "Identity", "Normalize", "ShuffleChannels", "Trim")
    assert not torch.equal(module.train()(batch), batch) or kind.__name__ in may_change_nothing


# What may be in a batch


@EVERY_OP
def test_silence_stays_finite(kind):
    module = build_device(always(kind))
    for level in (0.0, 1e-30, 1e-12):
        assert module(torch.full((4, 1, 2000), level)).isfinite().all()


@pytest.mark.usefixtures("either_way")
@EVERY_OP_OF_ONE_EXAMPLE
@pytest.mark.parametrize("bad", [float("nan"), -float("nan"), float("inf")])
def test_a_bad_number_stays_in_its_row(kind, bad, batch):
    chain = always(kind)
    module, draws = build_device(chain), chain.draw(range(8))
    x = batch[..., :4000].clone()
    clean = module(x, draws=draws)
    x[2, 0, 1234] = bad
    x[5] = bad
    result = module(x, draws=draws)
    for row in (0, 1, 3, 4, 6, 7):
        assert torch.equal(result[row], clean[row])


@EVERY_OP
def test_padding_is_ignored_and_comes_out_silent(kind, batch):
    chain = always(kind)
    module, draws = build_device(chain), chain.draw(range(8))
    lengths = [4000, 3000, 2000, 1000, 500, 100, 1, 0]
    clips = batch[..., :4000].clone()
    inside = torch.arange(4000) < torch.tensor(lengths)[:, None, None]
    silent, ends = module(clips * inside, lengths=lengths, draws=draws, return_lengths=True)
    for rubbish in (9.0, float("nan")):
        result = module(clips.masked_fill(~inside, rubbish), lengths=torch.tensor(lengths), draws=draws)
        assert torch.equal(result, silent)
    assert silent.isfinite().all()
    for row, end in enumerate(ends.tolist()):
        assert (silent[row, ..., end:] == chain.silence).all()


@EVERY_OP_OF_ONE_EXAMPLE
def test_a_padded_clip_is_treated_like_one_that_fills_its_batch(kind, batch):
    chain = always(kind)
    module, draws = build_device(chain), chain.draw(range(8))
    lengths = [4000, 3000, 2500, 3999, 2000, 1000, 4000, 700]
    padded, ends = module(batch[..., :4000], lengths=lengths, draws=draws, return_lengths=True)
    for row, length in enumerate(lengths):
        alone, (end,) = module(batch[row : row + 1, :, :length], draws=draws.rows([row]), return_lengths=True)
        assert end == ends[row]
        assert (padded[row, ..., :end] - alone[0, ..., :end]).abs().max() < 3e-6 * alone.abs().max() + 1e-6


def test_padding_is_silent_where_no_op_is_applied(batch):
    for chain in (Chain([], RATE), Chain([ops.Gain(p=0.0)], RATE), Chain([ops.Gain(p=0.5)], RATE)):
        result = build_device(chain)(batch, lengths=[1000] * 8)
        assert not result[..., 1000:].any() and result[..., :1000].any()


def test_padding_is_silent_after_an_op_shortens_clips(batch):
    chain = Chain([ops.AdjustDuration(duration_samples=1000, p=0.5), ops.AddGaussianNoise(p=1.0)], RATE)
    result, ends = build_device(chain, seed=1)(batch, return_lengths=True)
    assert set(ends.tolist()) == {1000, batch.shape[-1]}
    for clip, end in zip(result, ends):
        assert not clip[:, end:].any() and clip[:, :end].any()


def test_prepared_batch_says_whether_lengths_may_differ(batch):
    adjust = {p: ops.AdjustDuration(duration_samples=1000, p=p) for p in (0.5, 1.0)}
    for op, lengths, differ in (
        (ops.Gain(p=1.0), None, False),
        (ops.Gain(p=1.0), [8000] * 8, False),
        (ops.Gain(p=1.0), [8000] * 7 + [7999], True),
        (adjust[0.5], None, True),
        (adjust[1.0], [8000] * 7 + [7999], False),
        (ops.Trim(p=1.0), None, True),  # by how much is found on the device
    ):
        chain = Chain([op], RATE)
        prepared = build_device(chain).prepare(chain.draw(range(8)), tuple(batch.shape), lengths=lengths)
        assert prepared.ragged is differ, (op, lengths)


# Draws


def test_draws_continue_from_call_to_call(batch):
    module = build_device(NOISY, seed=5)
    first, second = module(batch), module(batch)
    assert all(unlike(first, second)) and module.stream.drawn == 16
    again = build_device(NOISY, seed=5)
    halves = torch.cat([again(batch[:3]), again(batch[3:])])
    assert torch.equal(halves, first) and torch.equal(again(batch), second)
    assert all(unlike(build_device(NOISY, seed=6)(batch), first))


def test_every_example_draws_for_itself(batch):
    same = batch[:1].expand(8, -1, -1)
    result = build_device(NOISY)(same)
    assert all(not torch.equal(result[i], result[j]) for i in range(8) for j in range(i))


@pytest.mark.parametrize("kind", [ops.ApplyImpulseResponse, ops.LowPassFilter, ops.PitchShift, ops.TimeStretch])
def test_expensive_op_gets_only_the_rows_its_draws_select(kind, batch, monkeypatch):
    chain, seen = Chain([example(kind, p=0.5)], RATE), []
    module, draws = build_device(chain), chain.draw(range(8))
    [op] = [node.op for node in module.prepare.leaves]
    batched = type(op).batched
    monkeypatch.setattr(type(op), "batched", lambda self, x, *rest: seen.append(x.clone()) or batched(self, x, *rest))
    module(batch, draws=draws)
    [rows] = seen
    assert 0 < len(rows) < 8 and torch.equal(rows, batch[torch.from_numpy(draws["0:apply"] > 0)])


def test_state_dict_restores_the_draws_exactly(batch):
    module = build_device(NOISY, seed=2**63 + 5)
    module(batch)
    file = io.BytesIO()
    torch.save(torch.nn.Sequential(module, torch.nn.Linear(2, 2)).state_dict(), file)
    expected = [module(batch), module(batch[:3])]
    file.seek(0)
    fresh = build_device(NOISY, seed=1)
    torch.nn.Sequential(fresh, torch.nn.Linear(2, 2)).load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(batch), expected[0]) and torch.equal(fresh(batch[:3]), expected[1])


def test_copy_is_equal_and_independent(batch, exact_chain):
    for chain in (NOISY, exact_chain):
        module = build_device(chain, seed=3)
        module(batch)
        twin = copy.deepcopy(module)
        expected = module(batch)
        assert torch.equal(twin(batch), expected) and twin.stream.drawn == module.stream.drawn == 16
        twin(batch)
        assert module.stream.drawn == 16


def test_modules_draws_and_prepared_batches_pickle(batch, exact_chain):
    module = build_device(exact_chain, seed=3)
    draws = exact_chain.draw(range(8))
    prepared = module.prepare(draws, tuple(batch.shape), None, [12000] * 8)
    expected = module(batch, lengths=[12000] * 8, draws=draws)
    assert torch.equal(module.run(batch, pickle.loads(pickle.dumps(prepared)))[0], expected)
    assert pickle.loads(pickle.dumps(draws)) == draws
    assert torch.equal(pickle.loads(pickle.dumps(module))(batch, lengths=[12000] * 8, draws=draws), expected)


@pytest.mark.parametrize("count", [0, 7, 9])
def test_draws_for_another_number_of_examples_are_refused(count, batch):
    with pytest.raises(DataError, match=f"draws for {count} examples, but the batch has 8"):
        build_device(NOISY)(batch, draws=NOISY.draw(range(count)))


def test_draws_of_another_chain_are_refused(batch):
    with pytest.raises(DataError, match="no column '0:apply'"):
        build_device(NOISY)(batch, draws=Chain([], RATE).draw(range(8)))


# Refusals


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ([4000] * 7, "8 numbers from 0 to 4000"),
        ([4000] * 9, "8 numbers"),
        ([4001] + [4000] * 7, "4001"),
        ([-1] + [4000] * 7, "-1"),
        ([[4000] * 8], "8 numbers"),
        (4000, "8 numbers"),
        ([], "8 numbers"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, told, batch):
    with pytest.raises(DataError, match=told):
        build_device(NOISY)(batch[..., :4000], lengths=lengths)


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (torch.zeros(100), r"shape \(100,\), but must be \(B, T\) or \(B, C, T\)"),
        (torch.zeros(1, 2, 3, 4), r"shape \(1, 2, 3, 4\), but must be \(B, T\) or \(B, C, T\)"),
        (torch.zeros(2, 100, dtype=torch.int16), "type torch.int16, but must be floating point"),
        (torch.zeros(2, 100).bool(), "type torch.bool, but must be floating point"),
        (torch.zeros(2, 0, 100), r"A batch has shape \(2, 0, 100\), .*at least one channel"),
        (torch.zeros(2, 100).to_sparse(), "a dense tensor .*got a torch.sparse_coo tensor"),
        (torch.zeros(2, 100, device="meta"), "a dense tensor .*got a meta tensor"),
        (nested(), "a dense tensor .*got a nested tensor. Pad the clips"),
    ],
    ids=["(T,)", "four dimensions", "integers", "booleans", "no channels", "sparse", "meta", "nested"],
)
def test_invalid_batch_raises(x, told):
    with pytest.raises(DataError, match=told):
        build_device(NOISY)(x)


def test_stereo_for_a_mono_op_is_refused_by_both_builds_in_the_same_words(batch):
    chain = Chain([ops.OneOf([ops.AddBackgroundNoise(sounds_path=DEMO / "noise", p=1.0)])], RATE)
    stereo = batch.expand(-1, 2, -1)
    told = []
    for build in (lambda: build_device(chain)(stereo), lambda: build_cpu(chain)(stereo[0].numpy())):
        with pytest.raises(DataError) as caught:
            build()
        told.append(str(caught.value))
    assert told == ["AddBackgroundNoise takes mono audio only, but this clip has 2 channels. Mix it down first."] * 2


def test_a_chain_cannot_start_before_a_cpu_only_op():
    chain = Chain([ops.Gain(), ops.Mp3Compression(), ops.Clip()], RATE)
    with pytest.raises(PlanError, match=r"cannot be cut at 1\. Mp3Compression: .*Cut at 2 or later"):
        build_device(chain, start=1)
    assert "Clip" in repr(build_device(chain, start=2)) and "Gain" not in repr(build_device(chain, start=2))


def test_an_engine_that_does_not_exist_is_refused():
    with pytest.raises(PlanError, match=r"There is no device engine 'batchd'\. Did you mean batched\?"):
        build_device(Chain([ops.Gain()], RATE), engine="batchd")  # type: ignore[arg-type]


# Gradients


def test_gradients_flow_through_gain(batch):
    chain = Chain([ops.Gain(p=0.5)], RATE)
    draws = chain.draw(range(8))
    x = batch.clone().requires_grad_()
    build_device(chain)(x, draws=draws).sum().backward()
    expected = np.where(draws["0:apply"] > 0, 10 ** (draws["0:gain_db"] / 20), 1.0)
    assert 0 < draws["0:apply"].sum() < 8
    assert x.grad[:, 0, 7].tolist() == pytest.approx(expected, rel=1e-5)
    assert (x.grad == x.grad[:, :, :1]).all()


@pytest.mark.parametrize("zero_phase", [False, True])
def test_gradients_flow_through_a_filter_as_its_transpose(zero_phase, batch):
    chain = Chain([ops.LowPassFilter(zero_phase=zero_phase, p=1.0)], RATE)
    module, draws = build_device(chain), chain.draw(range(8))
    x = batch[..., :4000].clone().requires_grad_()
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    result = module(x, draws=draws)
    (result * weight).sum().backward()
    one, other = ((a * b).sum(dim=(1, 2)).tolist() for a, b in ((result.detach(), weight), (x.detach(), x.grad)))
    assert one == pytest.approx(other, rel=1e-3, abs=1e-3)  # a linear map: w . A x = A' w . x


@EVERY_OP
@pytest.mark.parametrize("lengths", [None, [4000, 3600, 2000, 1000, 600, 100, 1, 0]], ids=["full", "padded"])
def test_gradients_are_those_of_differences(kind, lengths):
    """Where two writes of a definition overlap, each sample of the result still counts once."""
    if kind.__name__ in NO_DIFFERENCES:
        pytest.skip(NO_DIFFERENCES[kind.__name__])
    module, generator = build_device(always(kind)), torch.Generator().manual_seed(0)
    x, step = (0.2 * torch.randn(2, 8, 1, 4000, generator=generator)).unbind()
    x.requires_grad_()
    y = module(x, lengths=lengths, key=range(8))
    weight = torch.randn(y.shape, generator=generator)
    (gradient,) = torch.autograd.grad((y * weight).sum(), x)
    with torch.no_grad():
        more, less = (module(x + by * step, lengths=lengths, key=range(8)).double() for by in (1e-3, -1e-3))
    expected = ((more - less) * weight / 2e-3).sum().item()
    spread = (gradient * step).norm().item()  # of such a sum, whose terms have either sign
    assert (gradient.double() * step).sum().item() == pytest.approx(expected, abs=0.02 * spread)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@EVERY_OP
def test_transforms_of_torch_func_give_the_same(kind, batch):
    if kind.__name__ == "RoomSimulator":
        pytest.skip("it simulates on the host, by tensors that torch.func replaces")
    module, x = build_device(always(kind)), batch[..., :4000].clone().requires_grad_()

    def power(x):
        return module(x, key=range(8)).square().sum()

    power(x).backward()
    x, gradient = x.detach(), x.grad
    torch.testing.assert_close(torch.func.grad(power)(x), gradient, rtol=1e-4, atol=1e-4 * gradient.abs().max().item())
    if kind.__name__ not in ("G711", "PitchShift", "TimeStretch"):  # torch.vmap has no rule for views of other types
        pair = torch.vmap(lambda x: module(x, key=range(8)))(torch.stack([x, x]))
        torch.testing.assert_close(pair[1], module(x, key=range(8)), rtol=1e-3, atol=1e-3)


@EVERY_OP
def test_gradients_are_finite_on_speech(kind, batch):
    x = batch[..., :4000].clone().requires_grad_()
    build_device(always(kind))(x).square().sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.any() != (kind.__name__ in ("BitCrush", "G711"))  # staircases: their slope is 0


@EVERY_OP
def test_gradients_are_finite_where_an_example_is_silent(kind, batch):
    clips = batch[..., :4000].clone()
    clips[1], clips[3, :, 1000:] = 0.0, 0.0
    x = clips.requires_grad_()
    build_device(always(kind))(x).square().sum().backward()
    assert x.grad.isfinite().all()
