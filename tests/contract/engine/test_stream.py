"""Draws without an index: new at every call, in every build, worker and process; repeatable by seed and by state."""

import copy
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from audioaug import Chain, build_cpu, build_device, ops
from audioaug.engine.locks import lock_of_process
from audioaug.engine.stream import DrawStream
from audioaug.errors import UsageError

ROOT = Path(__file__).parents[3]
CHAIN = Chain([ops.Gain(p=1.0)], 16000)


def gains(stream, count=3):
    return stream.draw(count)["0:gain_db"].tolist()


@pytest.fixture
def seeded():
    """Seed torch's global generator, and put it back afterwards."""
    before = torch.get_rng_state()
    yield torch.manual_seed
    torch.set_rng_state(before)


def test_the_size_of_batches_does_not_matter():
    every, stream = gains(DrawStream(CHAIN, 3), 158), DrawStream(CHAIN, 3)
    assert len(set(every)) == 158
    assert [gain for count in (5, 5, 1, 0, 30, 2, 40, 40, 35) for gain in gains(stream, count)] == every
    assert stream.drawn == 158


def test_threads_that_share_a_stream_get_different_draws():
    ended, overlapped, found = threading.Event(), [], []

    class Keys:
        def draw(self, keys, epoch=0, seed=0):
            if len(keys) and not overlapped:
                other.start()
                overlapped.append(ended.wait(0.2))
            return keys

    def draw():
        found.append(stream.draw(2).tolist())
        ended.set()

    stream, other = DrawStream(Keys(), 3), threading.Thread(target=draw)
    found.append(stream.draw(2).tolist())
    other.join()
    assert overlapped == [False] and sorted(found) == [[0, 1], [2, 3]]


def test_a_copy_of_the_process_does_not_wait_for_a_thread_that_it_lacks():
    stream = DrawStream(CHAIN, 3)
    with lock_of_process("stream"), multiprocessing.get_context("fork").Pool(1) as pool:
        assert len(pool.apply_async(gains, (stream,)).get(timeout=60)) == 3


def test_it_restarts_when_torch_is_seeded_with_another_number(seeded):
    stream = DrawStream(CHAIN, None)
    seeded(1)
    first = gains(stream), gains(stream)
    seeded(2)
    other = gains(stream), gains(stream)
    seeded(1)
    torch.rand(3)
    assert (gains(stream), gains(stream)) == first
    assert len({gain for part in (*first, *other) for gain in part}) == 12
    seeded(1)  # which cannot be seen: it continues
    assert gains(stream) not in (*first, *other)


def test_explicit_seed_replaces_torchs_seed(seeded):
    seeded(1)
    first = gains(DrawStream(CHAIN, 7))
    seeded(2)
    assert gains(DrawStream(CHAIN, 7)) == first != gains(DrawStream(CHAIN, 8))
    with pytest.raises(UsageError, match=r"^seed is 0\.5, but it must be an integer\.$"):
        DrawStream(CHAIN, 0.5)


def test_streams_of_one_process_differ():
    every = [gain for _ in range(4) for gain in gains(DrawStream(CHAIN, None))]
    assert len(set(every)) == 12


def test_copy_is_equal_and_independent():
    stream = DrawStream(CHAIN, None)
    gains(stream)
    twins = copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))
    expected = gains(stream)
    assert [gains(twin) for twin in twins] == [expected] * 2


def test_loaded_state_resumes_regardless_of_draws_made_ahead(seeded):
    """Draws made ahead must not survive another state, of the same stream or of another one, at the same place."""
    stream, other = DrawStream(CHAIN, None), DrawStream(CHAIN, None)
    state, expected = stream.state(), gains(stream, 2)
    strange = gains(other, 2)
    assert strange != expected
    other.load(state)
    assert gains(other, 2) == expected
    assert torch.equal(stream.state(), other.state()) and stream.state()[1] == 2
    seeded(torch.initial_seed() + 1)  # which ends what was loaded
    assert gains(other, 2) not in (expected, strange)


def test_another_epoch_restarts_with_draws_of_its_own():
    stream, other = DrawStream(CHAIN, 3), DrawStream(CHAIN, 3)
    epochs = [stream.draw(3, epoch)["0:gain_db"].tolist() for epoch in (0, 1, 1, 2)]
    assert len({gain for part in epochs for gain in part}) == 12 and epochs[0] == gains(DrawStream(CHAIN, 3))
    assert [other.draw(3, epoch)["0:gain_db"].tolist() for epoch in (2, 1, 1, 0)] == [epochs[k] for k in (3, 1, 2, 0)]
    with pytest.raises(UsageError, match=r"^epoch is 0\.5, but it must be an integer\.$"):
        stream.draw(1, 0.5)


# Processes

SCRIPT = """
import json, sys
import torch
import audioaug

options = json.loads(sys.argv[1])
torch.manual_seed(5)
module = audioaug.build_device(audioaug.Chain([audioaug.ops.Gain(p=1.0)], 16000))
if "state" in options:
    module.load_state_dict({"_extra_state": torch.tensor(options["state"])})
if "store" in options:
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + options["store"], rank=options["rank"], world_size=2
    )
print(json.dumps([module(torch.ones(2, 4))[:, 0].tolist() for _ in range(2)]))
"""


def start(by_environment=None, **options):
    """Start a new process, of that rank by the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(options)],
        cwd=ROOT,
        env={**environment, **({} if by_environment is None else {"RANK": by_environment})},
        stdout=subprocess.PIPE,
    )


def results(*processes):
    """Return what the modules in these processes make of ones."""
    return [json.loads(process.communicate(timeout=200)[0]) for process in processes]


def test_equally_seeded_ranks_differ_and_each_repeats(tmp_path):
    alone, first, second, again = results(start(), *map(start, "011"))
    assert alone == first != second == again
    store = str(tmp_path / "store")
    assert results(start(store=store, rank=0), start("0", store=store, rank=1)) == [first, second]


def test_a_state_gives_the_same_in_a_new_process_and_each_rank_its_own(seeded):
    seeded(99)
    module = build_device(CHAIN)
    module(torch.ones(5, 4))
    state = module.state_dict()["_extra_state"].tolist()
    expected = [module(torch.ones(2, 4))[:, 0].tolist() for _ in range(2)]
    same, other = results(start(state=state), start("1", state=state))
    assert same == expected != other


def test_a_rank_that_is_set_after_the_first_draw_counts(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    first = gains(DrawStream(CHAIN, 7))
    monkeypatch.setenv("RANK", "1")
    assert gains(DrawStream(CHAIN, 7)) != first


def send(stream, queue):
    queue.put(gains(stream))


@pytest.mark.parametrize("seed", [None, 7])
def test_child_processes_differ(seed):
    stream, context = DrawStream(CHAIN, seed), multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    here = gains(copy.deepcopy(stream))
    found = [here]
    for number in range(2):
        child = context.Process(target=send, args=(stream, queue), name=f"rank-{number}")
        child.start()
        found.append(queue.get())
        child.join()
    assert len({gain for part in found for gain in part}) == 9


class Dataset:
    """Ones, augmented one by one."""

    def __init__(self, worker):
        self.worker = worker

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.worker(np.ones(4, np.float32))[0].item()


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_worker_chain_draws_anew_in_each_worker_and_epoch(seed, workers):
    dataset = Dataset(build_cpu(CHAIN, seed=seed))
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(dataset, batch_size=2, num_workers=workers, generator=generator)
    every = [gain for _ in range(2) for batch in loader for gain in batch.tolist()]
    assert len(set(every)) == 16


def exported(model, x):
    torch.export.export(model, (x,), strict=False)


def traced(model, x):
    torch.jit.trace(model, (x,))


def checkpointed(model, x):
    checkpoint(model, x, use_reentrant=False).sum().backward()


def checkpointed_by_reentry(model, x):
    checkpoint(model, x.requires_grad_(), use_reentrant=True).sum().backward()


def vectorized(model, x):
    torch.vmap(model)(x[None])


CHECKPOINTS_WARN = pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")  # of torch 2.4 itself


@CHECKPOINTS_WARN
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (exported, "cannot be exported"),
        (traced, "cannot be exported"),
        (checkpointed, "activation checkpointing"),
        (checkpointed_by_reentry, "activation checkpointing"),
        (vectorized, "torch.vmap"),
    ],
)
def test_new_draws_are_refused_where_they_would_be_the_same_again_or_must_be(use, sentence):
    x = torch.ones(2, 1, 100)
    model = torch.nn.Sequential(build_device(CHAIN), torch.nn.Conv1d(1, 1, 1))
    with pytest.raises(UsageError, match=sentence):
        use(model, x)
    use(model.eval(), x)


@CHECKPOINTS_WARN
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_draws_by_key_hold_for_an_activation_checkpoint(use_reentrant):
    module, weight = build_device(CHAIN), torch.ones(1, requires_grad=True)
    x = torch.ones(2, 1, 100, requires_grad=True)
    checkpoint(lambda x: module(x, key=[1, 2]) * weight, x, use_reentrant=use_reentrant).sum().backward()
    assert weight.grad.item() == pytest.approx(module(x, key=[1, 2]).sum().item(), rel=1e-5)
