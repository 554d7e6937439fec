"""An exception in an op, on a clip or a batch, names the op, the example and the draw, and how to reproduce it."""

import pickle
import re
import weakref
from typing import Any

import audiomentations
import numpy as np
import pytest
import torch

import audioaug
from audioaug import Chain, Loader, Plan, ops
from audioaug.errors import DataError, OpError
from tests.integration.loader.material import DEMO

RATE, SEED = 16000, 5


def divide(samples: Any, sample_rate: int) -> Any:
    if samples.max() > 12.5:  # as loud as example 12 or later
        raise ZeroDivisionError("by nothing.\nmore")
    return samples


class Picky(audiomentations.core.transforms_interface.BaseWaveformTransform):
    """A custom transform with a parameter that fails on some examples."""

    def randomize_parameters(self, samples: Any, sample_rate: int) -> None:
        super().randomize_parameters(samples, sample_rate)
        self.parameters["strength"] = 0.5

    def apply(self, samples: Any, sample_rate: int) -> Any:
        return divide(samples, sample_rate)


def tones() -> list[torch.Tensor]:
    return [torch.full((100,), float(k)) for k in range(1, 20)]


CHAINS = {
    "Lambda": Chain([ops.Reverse(p=1.0), ops.Lambda(transform=divide, p=1.0)], RATE),
    "Picky": Chain([ops.Reverse(p=1.0), ops.OneOf([ops.Custom(transform=Picky(p=1.0), p=1.0)], p=1.0)], RATE),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("op", CHAINS)
def test_reproducing_line_for_an_op_on_clips(op, workers):
    chain, dataset = CHAINS[op], tones()
    loader = Loader(dataset, chain, Plan(cut=2, num_workers=workers), batch_size=4, device="cpu", seed=SEED)
    loader.set_epoch(3)
    with pytest.raises(OpError) as caught:
        list(loader)
    message = str(caught.value)
    assert message.startswith(f"Example 12 of epoch 3: {op} with code_key=")
    assert f" raised ZeroDivisionError (by nothing; {__file__}, line " in message
    assert "\n" not in message and loader.skipped == 0
    line = re.search(r"To reproduce it: (audioaug\..*\)), with this example's samples\.$", message)
    assert line is not None
    names = {"audioaug": audioaug, "chain": chain, "samples": dataset[12].numpy()}
    with pytest.raises(ZeroDivisionError, match="by nothing"):
        eval(line[1], names)
    eval(line[1], {**names, "samples": dataset[11].numpy()})


def test_error_contains_the_draw(monkeypatch):
    chain = Chain([ops.Gain(min_gain_db=-3.0, max_gain_db=3.0, p=1.0)], RATE)

    def apply_reference(self: Any, *_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(ops.Gain, "apply_reference", apply_reference)
    with pytest.raises(OpError) as caught:
        list(Loader(tones(), chain, Plan(cut=1), device="cpu", sampler=[7], seed=SEED))
    gain_db = chain.draw([7], 0, SEED)["0:gain_db"][0].item()
    assert f"Example 7 of epoch 0: Gain with gain_db={gain_db!r} raised MemoryError (no reason given; " in str(
        caught.value
    )
    assert isinstance(caught.value.__cause__, MemoryError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_own_errors_are_not_wrapped():
    chain = Chain([ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise"), p=1.0)], RATE)
    with pytest.raises(DataError, match=r"^AddBackgroundNoise takes mono audio only, but this clip has 2 channels"):
        audioaug.build_cpu(chain)(np.ones((2, 400), np.float32))


BATCHED = Chain(
    [ops.Reverse(p=1.0), ops.Gain(min_gain_db=0.0, max_gain_db=0.0, p=1.0), ops.Padding(p=0.0), ops.TimeMask(p=1.0)],
    RATE,
)


@pytest.fixture
def failing_mask(monkeypatch):
    plain = ops.TimeMask.batched

    def batched(self: Any, x_RCT: torch.Tensor, params: Any, clips: Any) -> torch.Tensor:
        return plain(self, divide(x_RCT, clips.sample_rate), params, clips)

    monkeypatch.setattr(ops.TimeMask, "batched", batched)


WAYS = {
    "device": Plan(cut=0),
    "device, later": Plan(cut=2, num_workers=1),
    "batched worker": Plan(cut=4, num_workers=1, worker_engine="batched"),
    "batched, here": Plan(cut=4, worker_engine="batched"),
}


@pytest.mark.parametrize("way", WAYS)
def test_reproducing_line_for_an_op_on_batches(way, failing_mask):
    dataset = tones()
    loader = Loader(dataset, BATCHED, WAYS[way], batch_size=4, device="cpu", seed=SEED, sampler=[3, 11, 12, 13])
    loader.set_epoch(3)
    with pytest.raises(OpError) as caught:
        list(loader)
    message = str(caught.value)
    start_share = BATCHED.draw([12], 3, SEED)["3:start_share"][0].item()
    assert (
        message.startswith("Example 12 of epoch 3, in a batch of 4: TimeMask with ")
        and f"start_share={start_share!r}" in message
    )
    assert f" raised ZeroDivisionError (by nothing; {__file__}, line " in message and "\n" not in message
    line = re.search(r"To reproduce it: (audioaug\..*\)), with this example's samples\.$", message)
    assert line is not None
    names = {"audioaug": audioaug, "torch": torch, "chain": BATCHED, "samples": dataset[12].numpy()}
    with pytest.raises(ZeroDivisionError, match="by nothing"):
        eval(line[1], names)
    eval(line[1], {**names, "samples": dataset[11].numpy()})


@pytest.mark.parametrize("rows", [2, 8, 12])
def test_error_that_only_occurs_in_a_batch_lists_its_examples(rows, monkeypatch):
    def batched(self: Any, x_RCT: torch.Tensor, params: Any, clips: Any) -> torch.Tensor:
        if len(x_RCT) > 1:
            raise ArithmeticError("too many")
        return x_RCT

    monkeypatch.setattr(ops.TimeMask, "batched", batched)
    with pytest.raises(OpError) as caught:
        list(Loader(tones(), BATCHED, Plan(cut=0), batch_size=rows, device="cpu", seed=SEED))
    named = {2: "0, 1", 8: "0, 1, 2, 3, 4, 5, 6, 7", 12: "0, 1, 2, 3, 4, 5, 6, 7 and 4 more"}[rows]
    assert str(caught.value).startswith(
        f"Examples {named} of epoch 0, as a batch: TimeMask raised ArithmeticError (too many; "
    )
    assert f"Their draws: chain.draw({list(range(rows))}, epoch=0, seed=5)." in str(caught.value)


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA out of memory."), MemoryError("no room")])
def test_if_memory_is_short_no_example_is_tried_again_and_memory_is_freed(error, monkeypatch):
    audioaug.build_device(BATCHED).prove_on(torch.device("cpu"))  # which runs the ops, too
    runs, seen = [], []

    def batched(self: Any, x_RCT: torch.Tensor, params: Any, clips: Any) -> torch.Tensor:
        runs.append(len(x_RCT))
        large = torch.zeros(8)
        seen.append(weakref.ref(large))
        raise error

    monkeypatch.setattr(ops.TimeMask, "batched", batched)
    with pytest.raises(
        OpError, match=r"^TimeMask needs more memory for a batch of 4 than there is: .*Use smaller batches"
    ):
        list(Loader(tones(), BATCHED, Plan(cut=0), batch_size=4, device="cpu", seed=SEED))
    assert len(runs) == 1 and seen[0]() is None


@pytest.mark.parametrize("text", ["CUDA error: an illegal address", "Triton Error [CUDA]: sticky", "cuFFT error: 4"])
def test_on_a_device_that_has_failed_no_example_is_tried_again(text, monkeypatch):
    audioaug.build_device(BATCHED).prove_on(torch.device("cpu"))  # which runs the ops, too
    runs = []

    def batched(self: Any, x_RCT: torch.Tensor, params: Any, clips: Any) -> torch.Tensor:
        runs.append(len(x_RCT))
        raise RuntimeError(text)

    monkeypatch.setattr(ops.TimeMask, "batched", batched)
    with pytest.raises(OpError, match=r"^Examples 0, 1, 2, 3 of epoch 0, as a batch: TimeMask raised RuntimeError"):
        list(Loader(tones(), BATCHED, Plan(cut=0), batch_size=4, device="cpu", seed=SEED))
    assert len(runs) == 1


def test_fused_ops_are_named_together_if_applied(monkeypatch):
    def resolve(*_: Any) -> Any:
        raise OverflowError("too loud")

    chain = Chain([ops.Gain(p=1.0), ops.HighPassFilter(p=0.0), ops.PolarityInversion(p=1.0)], RATE)
    monkeypatch.setattr("audioaug.ops.fused.Fused.resolve", resolve)
    with pytest.raises(OpError) as caught:
        list(Loader(tones(), chain, Plan(cut=0), batch_size=2, device="cpu", seed=SEED))
    gain = chain.draw([0], 0, SEED)["0:gain_db"][0].item()
    named = (
        f"Example 0 of epoch 0, in a batch of 2: Gain with gain_db={gain!r} + PolarityInversion raised OverflowError"
    )
    assert str(caught.value).startswith(named)
