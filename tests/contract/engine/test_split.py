"""Cutting: a prefix in the worker and the rest on the device give what either gives alone."""

import numpy as np
import pytest
import torch

from audioaug import ops
from audioaug.core import Chain
from audioaug.engine import build_cpu, build_device, split
from audioaug.engine.split import build_worker
from audioaug.errors import PlanError
from audioaug.records import Plan

RATE = 16000
INDICES, EPOCH, SEED = range(100, 108), 3, 7


def run(chain, plan, clips):
    worker, module = split(chain, plan, seed=SEED)
    first = [worker(clip, RATE, key=index, epoch=EPOCH) for index, clip in zip(INDICES, clips)]
    lengths = [len(clip) for clip in first]
    padded = torch.zeros(len(first), max(lengths))
    for row, clip in enumerate(first):
        padded[row, : len(clip)] = torch.from_numpy(clip)
    return module(padded, lengths=lengths, draws=chain.draw(INDICES, EPOCH, SEED)).numpy()


@pytest.mark.parametrize("cut", range(6))
@pytest.mark.parametrize("ragged", [False, True], ids=["equal lengths", "ragged"])
def test_every_cut_gives_the_same_audio(cut, ragged, exact_chain, speech):
    clips = [clip[: len(clip) - 1111 * row * ragged] for row, clip in enumerate(speech)]
    all_in_workers, here = (run(exact_chain, Plan(cut=place), clips) for place in (6, cut))
    assert here.shape == all_in_workers.shape
    assert np.abs(here - all_in_workers).max() < 3e-5 * np.abs(all_in_workers).max()
    assert not any(np.allclose(here[row, : len(clip)], clip) for row, clip in enumerate(clips))


def test_the_check_sees_a_wrong_seed_epoch_or_cut(exact_chain, speech):
    right = run(exact_chain, Plan(cut=3), speech)
    worker, module = split(exact_chain, Plan(cut=3), seed=SEED)
    first = np.stack([worker(clip, key=index, epoch=EPOCH) for index, clip in zip(INDICES, speech)])
    for draws in (exact_chain.draw(INDICES, EPOCH, SEED + 1), exact_chain.draw(INDICES, EPOCH + 1, SEED)):
        wrong = module(torch.from_numpy(first), draws=draws).numpy()
        assert np.abs(wrong - right).max() > 0.01
    late = build_device(exact_chain, start=4)(torch.from_numpy(first), draws=exact_chain.draw(INDICES, EPOCH, SEED))
    assert np.abs(late.numpy() - right).max() > 0.01


def test_the_worker_part_keeps_its_place_in_the_draws(exact_chain, speech):
    worker, module = split(exact_chain, Plan(cut=2), seed=SEED)
    assert (worker.cut, module.start, worker.seed, module.seed) == (2, 2, SEED, SEED)
    expected = build_cpu(exact_chain, 2, SEED)(speech[0], key=1)
    assert np.array_equal(worker(speech[0], key=1), expected)


def test_the_device_engine_of_the_plan_is_used(exact_chain):
    pytest.importorskip("torch_audiomentations")
    _, module = split(exact_chain, Plan(cut=2, device_engine="torch-audiomentations"))
    assert module.engine == "torch-audiomentations"


def test_a_plan_for_another_chain_is_refused(exact_chain):
    plan = Plan(cut=1, chain_hash=exact_chain.hash)
    assert split(exact_chain, plan)[0].cut == 1
    other = Chain(exact_chain.ops, 8000)
    with pytest.raises(PlanError, match=rf"made for the chain {exact_chain.hash}, but this chain is {other.hash}"):
        split(other, plan)


@pytest.mark.parametrize(("cut", "sentence"), [(1, "Mp3Compression: LAME"), (4, "not at 4"), (99, "not at 99")])
def test_an_impossible_cut_is_refused(cut, sentence):
    chain = Chain([ops.Gain(), ops.Mp3Compression(), ops.Clip()], RATE)
    with pytest.raises(PlanError, match=sentence):
        split(chain, Plan(cut=cut))
    worker, module = split(chain, Plan(cut=2))
    assert worker.cut == 2 and [node.op.name for node in module.prepare.nodes] == ["Clip"]


def test_ops_without_a_batched_build_and_those_before_them_run_on_clips():
    chain = Chain([ops.Gain(), ops.Mp3Compression(), ops.Clip(), ops.Reverse()], RATE)
    for on_clips, expected in ((0, 2), (3, 3)):
        worker, on_batches = build_worker(chain, Plan(cut=4, worker_engine="batched"), on_clips=on_clips)
        assert worker.cut == on_batches.start == expected
    assert build_worker(chain, Plan(cut=2, worker_engine="batched"))[1] is None


def test_an_engine_that_does_not_exist_is_refused(exact_chain):
    with pytest.raises(PlanError, match=r"no worker engine 'batchd'\. Did you mean batched"):
        split(exact_chain, Plan(worker_engine="batchd"))


def test_worker_part_on_batches_cannot_be_called_on_clips(exact_chain):
    call = r"audioaug\.build_device\(chain, start=0, stop=2\)"
    with pytest.raises(PlanError, match=rf"it cannot be called on a clip\. Use audioaug\.Loader, or call {call}"):
        split(exact_chain, Plan(cut=2, worker_engine="batched"))
    assert split(exact_chain, Plan(cut=0, worker_engine="batched"))[1].start == 0  # nothing runs in the workers


def test_the_first_part_on_batches_is_the_first_part_on_clips(exact_chain, speech):
    clips, draws = np.stack(speech), exact_chain.draw(INDICES, EPOCH, SEED)
    for start, stop in ((0, 4), (2, 4), (3, 3)):
        before = np.stack(
            [build_cpu(exact_chain, start)(clip, draws=draws.rows([row])) for row, clip in enumerate(clips)]
        )
        after = np.stack(
            [build_cpu(exact_chain, stop)(clip, draws=draws.rows([row])) for row, clip in enumerate(clips)]
        )
        found = build_device(exact_chain, start, stop=stop)(torch.from_numpy(before), draws=draws).numpy()
        assert np.abs(found - after).max() < 3e-5 * np.abs(after).max()
