"""Accelerate trains with what docs/how-to/accelerate.md says, on the audio of the plain Loader."""

from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

pytest.importorskip("accelerate")

from accelerate import Accelerator, skip_first_batches

from audioaug import Loader
from audioaug.errors import UsageError
from tests.integration.loader.frameworks.how_to import (
    CHAIN,
    PLAN,
    Witness,
    assert_dry,
    assert_equal,
    assert_no_clip_twice,
    names,
    plain,
    run,
    speech,
)


class Streamed(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self):
        return iter([torch.ones(400)] * 6)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    yours = names()
    return {**run("accelerate", 0, {**yours, "saw": Witness(yours["model"])})}


def test_train_and_validate(page):
    saw = page["saw"]
    assert saw.learned()
    assert_equal(saw.trained, plain(page["dataset"], 0) + plain(page["dataset"], 1))
    assert_no_clip_twice(saw.trained[:2], saw.trained[2:])
    assert_dry(saw.validated, page["valid"])


def test_resume_in_the_middle_of_an_epoch(tmp_path):
    def loader_of(accelerator: Accelerator) -> Loader:
        loader = Loader(speech(), CHAIN, PLAN, batch_size=8, shuffle=True, device=accelerator.device)
        accelerator.register_for_checkpointing(loader)
        return loader

    before = Accelerator(cpu=True)
    loader = loader_of(before)
    assert len(list(islice(loader, 2))) == 2
    before.save_state(tmp_path)
    after = Accelerator(cpu=True)
    loader = loader_of(after)
    after.load_state(tmp_path)
    assert loader.state_dict()["epoch"] == 0
    assert_equal([audio for audio, _ in loader], plain(speech(), 0, batch_size=8)[2:])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [[torch.ones(400)] * 6, Streamed()], ids=["map-style", "stream"])
def test_skipping_the_first_batches_is_refused(dataset, workers):
    Accelerator(cpu=True)
    loader = Loader(dataset, CHAIN, PLAN if workers else None, batch_size=2, device="cpu")
    with pytest.raises(UsageError, match=r"would not augment\. .* give the Loader its state \(load_state_dict\)"):
        list(skip_first_batches(loader, 1))


def test_prepare_keeps_loader_and_gradients_of_an_odd_batch(page):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(1, 1)
    loader = Loader(speech(3), CHAIN, batch_size=1, device="cpu")
    prepared, same = accelerator.prepare(model, loader)
    assert same is loader
    steps = []
    for _ in loader:
        with accelerator.accumulate(prepared):
            steps.append(accelerator.sync_gradients)
    assert steps == [False, True, False]
