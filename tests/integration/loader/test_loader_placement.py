"""The promise: training does not depend on where augmentation runs."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from audioaug import Chain, Loader, Plan, ops
from tests.integration.loader.material import RATE, Words, assert_same_audio, by_index, exact_chain

EPOCHS, SEED = 2, 5
CHAIN = exact_chain()
CUTS = [0, 3, len(CHAIN)]
TOLERANCE = sum(node.op.contract.tolerance for top in CHAIN.nodes for node in top.walk())
"""The tolerance of the whole chain: 5e-5 of the peak."""


@dataclass
class Run:
    """A training run: the augmented audio of each (epoch, index), the order of the indices, the losses."""

    audio: dict[tuple[int, int], np.ndarray]
    order: list[int]
    losses: list[float]


class TinyModel(torch.nn.Module):
    """Twelve classes from the mean of eight rectified filters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = torch.nn.Conv1d(1, 8, 64, stride=16), torch.nn.Linear(8, 12)

    def forward(self, x_BCT: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.conv(x_BCT)).mean(dim=-1))


def train(plan: Plan, batch_size: int) -> Run:
    """Train a few real steps in a plain loop."""
    torch.manual_seed(0)
    model = TinyModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = Loader(Words(), CHAIN, plan, batch_size=batch_size, device="cpu", shuffle=True, seed=SEED)
    run = Run({}, [], [])
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        for wave_BCT, label_B, index_B in loader:
            loss = torch.nn.functional.cross_entropy(model(wave_BCT), label_B)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.losses.append(loss.item())
            run.order += index_B.tolist()
            run.audio |= {(epoch, index): wave for index, wave in zip(index_B.tolist(), wave_BCT.numpy())}
    return run


@functools.cache
def reference() -> Run:
    """Train with audiomentations in the training process."""
    return train(Plan(cut=len(CHAIN)), batch_size=4)


SAME_BATCHES = [(cut, workers, 4) for cut in CUTS for workers in (0, 1, 2)]
OTHER_BATCHES = [(0, 0, 5), (3, 2, 5), (len(CHAIN), 1, 5)]


@pytest.mark.parametrize("engine", ["audiomentations", "batched"])
@pytest.mark.parametrize(("cut", "workers", "batch_size"), SAME_BATCHES + OTHER_BATCHES)
def test_training_does_not_depend_on_placement(cut, workers, batch_size, engine):
    run = train(Plan(cut=cut, worker_engine=engine, num_workers=workers), batch_size)
    assert len(run.audio) == EPOCHS * 12
    assert run.order == reference().order
    assert_same_audio(run.audio, reference().audio, TOLERANCE)
    if batch_size == 4:
        assert run.losses == pytest.approx(reference().losses, rel=1e-4)
        assert len(set(run.losses)) == len(run.losses) == 6


def test_reference_run_augments_every_epoch_differently():
    words, audio, order = Words(), reference().audio, reference().order
    for index in range(len(words)):
        dry = words[index][0]
        assert np.abs(audio[0, index] - dry).max() > 1e-3 and np.abs(audio[0, index] - audio[1, index]).max() > 1e-3
    assert sorted(order[:12]) == sorted(order[12:]) == list(range(12))
    assert order[:12] != order[12:] and order[:12] != sorted(order[:12])


def test_every_op_of_the_chain_is_applied():
    draws = [CHAIN.draw(range(12), epoch, SEED) for epoch in range(EPOCHS)]
    for column in CHAIN.columns:
        if column.endswith(":apply"):
            assert sum(draw[column].sum() for draw in draws) >= 2, column


@pytest.mark.parametrize("cut", CUTS)
def test_other_seed_gives_other_training(cut):
    first, second = (
        by_index(Loader(Words(), CHAIN, Plan(cut=cut), batch_size=6, device="cpu", seed=seed)) for seed in (SEED, 6)
    )
    assert all(np.abs(first[index] - second[index]).max() > 1e-3 for index in range(12))


@pytest.mark.parametrize("cut", CUTS)
def test_processes_augment_like_a_single_one(cut):
    words, both = Words(), {}
    for rank in range(2):
        sampler = DistributedSampler(words, num_replicas=2, rank=rank, shuffle=False)
        part = by_index(Loader(words, CHAIN, Plan(cut=cut), batch_size=4, device="cpu", sampler=sampler, seed=SEED))
        assert len(part) == 6
        both |= part
    assert_same_audio(both, {index: reference().audio[0, index] for index in range(12)}, TOLERANCE)


def test_noise_level_does_not_depend_on_placement():
    """The noise itself differs between builds (that is its contract), so its level is compared."""
    noise = ops.AddGaussianNoise(min_amplitude=0.001, max_amplitude=0.1, p=0.7)
    chain = Chain([ops.LowPassFilter(p=1.0), ops.PolarityInversion(p=0.5), noise], sample_rate=RATE)
    quiet = Chain([*chain.ops[:2], dataclasses.replace(noise, p=0.0)], sample_rate=RATE)
    draws = chain.draw(range(12), epoch=0, seed=SEED)
    intended = draws["2:amplitude"] * draws["2:apply"]
    assert 0 < np.count_nonzero(intended) < 12
    for plan, batch_size in [(Plan(cut=0), 5), (Plan(cut=2), 4), (Plan(cut=3, num_workers=1), 4)]:
        noisy, clean = (
            by_index(Loader(Words(), each, plan, batch_size=batch_size, device="cpu", seed=SEED))
            for each in (chain, quiet)
        )
        level = np.asarray([(noisy[index] - clean[index]).std() for index in range(12)])
        assert level == pytest.approx(intended, rel=10 ** (noise.contract.tolerance / 20) - 1, abs=1e-9)
