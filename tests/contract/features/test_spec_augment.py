"""SpecAugment as a module: the same masks for a key everywhere, within each example, and nothing else changes.

Losses fall with masks in the padding, with the same masks for the whole batch, or with masks at validation, too.
"""

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from audioaug import SpecAugment
from audioaug.errors import DataError, UsageError
from audioaug.features.policy import warp_pieces
from audioaug.features.spec_augment import warped

ROOT = Path(__file__).parents[3]
LENGTHS = [120, 90, 37, 12, 1, 0]
KEYS = [3, "a/b", b"c", -1, 2**70, 0]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
MANY_MASKS = {"time_masks": 3, "time_mask_width": 30, "frequency_masks": 3, "frequency_mask_width": 6}


def batch(channels=None, dtype=torch.float32, bins=20):
    shape = (len(LENGTHS), *(() if channels is None else (channels,)), bins, max(LENGTHS))
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 1
    return x.to(dtype)  # from 1 to 2, so that no value is 0


def spans_by_hand(module, bins, keys=KEYS, lengths=LENGTHS, epoch=0):
    """Return where each example is masked, (B, F, N), by slices."""
    draws = module.policy.draw(keys, epoch, module.seed)
    expected = torch.zeros(len(keys), bins, max(lengths), dtype=torch.bool)
    every = module.policy.frequency_spans(draws, bins), module.policy.time_spans(draws, np.asarray(lengths))
    for row, length in enumerate(lengths):
        for start, width in zip(*(part[row] for part in every[0])):
            expected[row, start : start + width, :length] = True
        for start, width in zip(*(part[row] for part in every[1])):
            expected[row, :, start : start + width] = True
    return expected


@DTYPES
@pytest.mark.parametrize("channels", [None, 1, 2])
def test_masks_lie_within_each_example_and_all_else_stays(channels, dtype):
    module, x = SpecAugment(**MANY_MASKS), batch(channels, dtype)
    y = module(x, lengths=LENGTHS, key=KEYS, epoch=2)
    is_masked = spans_by_hand(module, 20, epoch=2)
    assert 0.2 < is_masked[0].float().mean() < 0.9 and not is_masked[5].any()
    for each, result in zip(x.unbind(1) if channels else [x], y.unbind(1) if channels else [y]):
        assert torch.equal(result, torch.where(is_masked, 0, each))
    assert y.dtype == dtype and y.shape == x.shape and not (x == 0).any()


def test_masks_of_a_padded_example_are_those_of_it_alone():
    module, x = SpecAugment(**MANY_MASKS, time_warp=5, mask_value="mean"), batch()
    together = module(x, lengths=torch.tensor(LENGTHS), key=KEYS)
    for row, (length, key) in enumerate(zip(LENGTHS, KEYS)):
        alone = module(x[row : row + 1, :, :length], key=[key])
        assert torch.allclose(together[row, :, :length], alone[0], atol=1e-6)
        assert torch.equal(together[row, :, length:], x[row, :, length:])


def test_order_and_batch_size_change_no_mask():
    module, x = SpecAugment(**MANY_MASKS), torch.ones(64, 20, 120)
    y = module(x, key=range(64), epoch=1)
    assert torch.equal(module(x, key=torch.arange(63, -1, -1), epoch=1), y.flip(0))
    assert torch.equal(torch.cat([module(x[:16], key=range(k, k + 16), epoch=1) for k in range(0, 64, 16)]), y)
    assert len({each.numpy().tobytes() for each in y}) == 64
    other = module(x, key=range(64), epoch=2), SpecAugment(**MANY_MASKS, seed=1)(x, key=range(64), epoch=1)
    assert all(not torch.equal(each, y) for each in other)


def test_another_process_draws_the_same():
    code = "import torch, audioaug; y = audioaug.SpecAugment()(torch.ones(3, 80, 400), key=['x', 5, b'y'], epoch=4)"
    command = [sys.executable, "-c", f"{code}; print(y.nonzero().sum(0).tolist())"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=200).stdout
    torch.manual_seed(99)
    y = SpecAugment()(torch.ones(3, 80, 400), key=["x", 5, b"y"], epoch=4)
    assert said.strip() == str(y.nonzero().sum(0).tolist())


def test_eval_is_the_identity():
    module, x = SpecAugment.librispeech_double().eval(), batch()
    assert module(x) is x and module(x, lengths=LENGTHS, key=KEYS) is x and module.stream.drawn == 0
    assert not torch.equal(module.train()(x), x)


@pytest.mark.parametrize(
    "arguments",
    [
        {"time_masks": 0, "frequency_masks": 0},
        {"time_mask_width": 0, "frequency_mask_width": 0},
        {"time_mask_share": 0.0, "frequency_masks": 0},
    ],
)
def test_without_masks_nothing_changes(arguments):
    x = batch()
    assert torch.equal(SpecAugment(**arguments)(x), x)


# The value of a mask


@pytest.mark.parametrize("value", [0, -4.5, float("-inf")])
def test_mask_value_is_the_number(value):
    module, x = SpecAugment(**MANY_MASKS, mask_value=value), batch()
    y = module(x, lengths=LENGTHS, key=KEYS)
    assert set(y[y != x].tolist()) == {float(value)}


@DTYPES
@pytest.mark.parametrize("channels", [None, 2])
def test_mean_is_that_of_each_example_within_its_length(channels, dtype):
    module, x = SpecAugment(**MANY_MASKS, mask_value="mean"), batch(channels, dtype)
    padded = x.clone()
    for row, length in enumerate(LENGTHS):
        padded[row, ..., length:] = float("-inf")  # the logarithm of silence
    y = module(padded, lengths=LENGTHS, key=KEYS)
    is_masked = spans_by_hand(module, 20)
    for row, length in enumerate(LENGTHS[:4]):
        within = is_masked[row, :, :length].expand(x[row, ..., :length].shape)
        expected = x[row, ..., :length].double().mean()
        assert torch.allclose(y[row, ..., :length][within].double(), expected, rtol=torch.finfo(dtype).eps + 1e-6)
        assert torch.equal(y[row, ..., :length][~within], x[row, ..., :length][~within])
        assert torch.equal(y[row, ..., length:], padded[row, ..., length:])


@pytest.mark.parametrize("value", [0.0, "mean"])
def test_gradients_reach_what_is_kept_and_nothing_else(value):
    module, x = SpecAugment(**MANY_MASKS, mask_value=value), batch().requires_grad_()
    module(x, lengths=LENGTHS, key=KEYS).sum().backward()
    assert torch.equal(x.grad, (~spans_by_hand(module, 20)).float())


# The warp


@DTYPES
def test_warp_moves_the_centre_and_keeps_both_ends(dtype):
    """A ramp of time shows for each frame where it comes from."""
    ramp = torch.arange(100).expand(3, 2, 100).to(dtype)
    last, centre, target = np.array([99, 79, 99]), np.array([40, 40, 1]), np.array([55, 33, 1])
    y = warped(ramp, *map(torch.from_numpy, warp_pieces(last, centre, target)))
    assert y.dtype == dtype and y.shape == ramp.shape and torch.equal(y[:, 0], y[:, 1])
    for row in range(2):
        end, moved, to = (int(each[row]) for each in (last, centre, target))
        expected = np.interp(np.arange(100), [0, to, end], [0, moved, end])
        expected[end:] = np.arange(end, 100)
        tolerance = 100 * max(torch.finfo(dtype).eps, 1e-7)
        assert np.allclose(y[row, 0].double().numpy(), expected, atol=tolerance)
        assert (y[row, 0, to], y[row, 0, 0], y[row, 0, end]) == (moved, 0, end)
    assert torch.equal(y[2], ramp[2])


def test_module_warps_each_example_within_its_length_by_key():
    module = SpecAugment(time_warp=8, time_masks=0, frequency_masks=0)
    ramp = torch.arange(120.0).expand(6, 1, 20, 120)
    y = module(ramp, lengths=LENGTHS, key=KEYS)
    centre_B, target_B = module.policy.warps(module.policy.draw(KEYS), np.asarray(LENGTHS))
    assert (centre_B != target_B).sum() >= 2
    for row, length in enumerate(LENGTHS):
        assert torch.equal(y[row, ..., length:], ramp[row, ..., length:])
        if length >= 19:
            assert (y[row, ..., target_B[row]] == float(centre_B[row])).all()
            assert (y[row, ..., 0] == 0).all() and (y[row, ..., length - 1] == length - 1).all()
            assert (y[row, ..., :length].diff() > 0).all()
        else:
            assert torch.equal(y[row], ramp[row])


def test_warp_takes_nothing_from_the_padding():
    module, x = SpecAugment(time_warp=8, time_masks=0, frequency_masks=0), batch()
    padded = x.clone()
    for row, length in enumerate(LENGTHS):
        padded[row, :, length:] = float("nan")
    y, expected = (module(each, lengths=LENGTHS, key=KEYS) for each in (padded, x))
    assert all(torch.equal(y[row, :, :n], expected[row, :, :n]) for row, n in enumerate(LENGTHS))


def test_gradients_flow_through_the_warp():
    module = SpecAugment(time_warp=8, time_masks=0, frequency_masks=0)
    x = batch(dtype=torch.float64)[:3].requires_grad_()
    assert torch.autograd.gradcheck(lambda each: module(each, lengths=LENGTHS[:3], key=KEYS[:3])[:, :1], x[:, :1, ::1])


# Presets


@pytest.mark.parametrize(
    ("preset", "expected"),  # W, F, mF, T, p, mT of table 1 of the paper
    [
        (SpecAugment.librispeech_basic, (80, 27, 1, 100, 1.0, 1)),
        (SpecAugment.librispeech_double, (80, 27, 2, 100, 1.0, 2)),
        (SpecAugment.librispeech_adaptive, (80, 27, 2, None, 0.04, 20)),
        (SpecAugment.switchboard_mild, (40, 15, 2, 70, 0.2, 2)),
        (SpecAugment.switchboard_strong, (40, 27, 2, 70, 0.2, 2)),
    ],
)
def test_presets_are_those_of_the_paper(preset, expected):
    policy = preset().policy
    frequency, time = (policy.frequency_mask_width, policy.frequency_masks), (policy.time_mask_width,)
    assert (policy.time_warp, *frequency, *time, policy.time_mask_share, policy.time_masks) == expected
    changed = preset(time_warp=0, mask_value="mean", seed=3)
    assert (changed.policy.time_warp, changed.policy.mask_value, changed.seed) == (0, "mean", 3)


# Without keys


def new_masks(module, calls=2, **arguments):
    return [module(torch.ones(2, 40, 90), **arguments) for _ in range(calls)]


def test_without_keys_every_call_and_module_has_new_masks():
    modules = SpecAugment(time_mask_width=20), SpecAugment(time_mask_width=20)  # wider ones may cover all, twice
    every = [each for module in modules for each in new_masks(module, 3)]
    assert len({example.numpy().tobytes() for each in every for example in each}) == 12


def test_without_keys_an_epoch_can_be_repeated_and_resumed():
    first, resumed = SpecAugment(seed=5), SpecAugment(seed=5)
    epochs = [torch.cat(new_masks(first, epoch=epoch)) for epoch in (0, 1, 2)]
    assert not torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[1], epochs[2])
    assert torch.equal(torch.cat(new_masks(resumed, epoch=2)), epochs[2])
    assert torch.equal(torch.cat(new_masks(resumed, epoch=0)), epochs[0])
    assert torch.equal(torch.cat(new_masks(resumed, epoch=np.int64(1))), epochs[1])


def test_copies_and_pickles_continue_equally():
    module = SpecAugment()
    new_masks(module)
    twins = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
    expected = new_masks(module)
    assert all(torch.equal(torch.cat(new_masks(twin)), torch.cat(expected)) for twin in twins)


# As a part of a model


def test_checkpoints_load_with_and_without_it():
    plain, augmented = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Sequential(torch.nn.Linear(4, 4))
    augmented.append(SpecAugment.librispeech_double())
    assert augmented.state_dict().keys() == plain.state_dict().keys() and not list(SpecAugment().buffers())
    buffer = io.BytesIO()
    torch.save(augmented.state_dict(), buffer)
    buffer.seek(0)
    plain.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
    augmented.load_state_dict(plain.state_dict(), strict=True)


def test_global_random_state_is_not_used():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    new_masks(SpecAugment.librispeech_double())
    assert torch.equal(torch.get_rng_state(), before[0]) and np.random.get_state()[1].tolist() == before[1]


def test_autocast_changes_nothing():
    module, x = SpecAugment(**MANY_MASKS, time_warp=5, mask_value="mean"), batch()
    plain = module(x, lengths=LENGTHS, key=KEYS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(x, lengths=LENGTHS, key=KEYS), plain)


def test_torchs_default_type_changes_nothing():
    module, x = SpecAugment(**MANY_MASKS, time_warp=5, mask_value="mean"), batch()
    plain = module(x, lengths=LENGTHS, key=KEYS)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(module(x, lengths=LENGTHS, key=KEYS), plain)
    finally:
        torch.set_default_dtype(torch.float32)


def test_compiled_models_draw_the_same():
    module = SpecAugment(**MANY_MASKS)
    model = torch.nn.Sequential(module, torch.nn.Flatten())
    expected = model(batch())
    other = SpecAugment(**MANY_MASKS)
    other.stream = copy.deepcopy(module.stream)
    other.stream.drawn = 0
    compiled = torch.compile(torch.nn.Sequential(other, torch.nn.Flatten()), backend="eager")
    assert torch.equal(compiled(batch()), expected) and not torch.equal(compiled(batch()), expected)


def test_a_model_in_eval_can_be_exported():
    model, x = torch.nn.Sequential(SpecAugment.librispeech_double(), torch.nn.Flatten()).eval(), batch()
    assert torch.equal(torch.export.export(model, (x,)).module()(x), x.flatten(1))


@pytest.mark.parametrize("shape", [(0, 4, 5), (2, 0, 5), (2, 4, 0), (1, 1, 1), (2, 3, 4, 1)])
@pytest.mark.parametrize("value", [1.0, "mean"])
def test_batches_of_any_size(shape, value):
    x = torch.ones(shape)
    assert torch.equal(SpecAugment.librispeech_double(mask_value=value)(x), x)


def test_strided_batch_gives_the_same():
    module, x = SpecAugment.switchboard_strong(mask_value="mean"), batch()
    y = module(x.transpose(1, 2).contiguous().transpose(1, 2), key=KEYS)
    assert torch.allclose(y, module(x, key=KEYS), atol=1e-6)


def test_the_arguments_are_printed():
    assert "time_warp=40" in repr(SpecAugment.switchboard_mild()) and "'mean'" in repr(SpecAugment(mask_value="mean"))


# Mistakes


@pytest.mark.parametrize(
    ("x", "arguments", "said"),
    [
        (
            [[1.0]],
            {},
            "as a tensor of shape (B, F, N) or (B, C, F, N), got builtins.list.",
        ),
        (torch.ones(4, 5), {}, "got torch.float32 of shape (4, 5)."),
        (torch.ones(2, 4, 5, dtype=torch.int64), {}, "got torch.int64 of shape (2, 4, 5)."),
        (torch.ones(2, 4, 5, dtype=torch.complex64), {}, "got torch.complex64 of shape (2, 4, 5)."),
        (torch.ones(2, 4, 5), {"lengths": [5, 6]}, "lengths must be 2 numbers from 0 to 5, but they are [5, 6]."),
        (torch.ones(2, 4, 5), {"lengths": torch.tensor([1.0, 0.5])}, "Expected lengths in frames, as integers"),
        (torch.ones(2, 4, 5), {"key": [1]}, "There are 1 keys, but the batch has 2 examples."),
        (torch.ones(2, 4, 5), {"key": [1.5, 2]}, "A key must be a string, bytes or an integer"),
        (
            torch.ones(2, 4, 5),
            {"draws": SpecAugment().policy.draw([1])},
            "There are draws for 1 examples, but the",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(x, arguments, said):
    with pytest.raises(DataError) as caught:
        SpecAugment()(x, **arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize("arguments", [{"key": [1, 2], "epoch": "one"}, {"epoch": 0.5}])
def test_epoch_must_be_an_integer(arguments):
    with pytest.raises(UsageError, match=r"^epoch is .*, but it must be an integer"):
        SpecAugment()(torch.ones(2, 4, 5), **arguments)


def test_seed_must_be_an_integer():
    with pytest.raises(UsageError, match=r"^seed is 'x', but it must be an integer"):
        SpecAugment(seed="x")


def test_draws_of_another_policy_are_refused():
    draws = SpecAugment(time_masks=1).policy.draw([1, 2])
    with pytest.raises(DataError, match="no column 'time_1:width'"):
        SpecAugment(time_masks=2)(torch.ones(2, 4, 5), draws=draws)
