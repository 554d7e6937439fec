"""SpeechBrain trains with what docs/how-to/speechbrain.md says, on the audio of the plain Loader."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("speechbrain")

from speechbrain.dataio.dataset import DynamicItemDataset
from speechbrain.utils.checkpoints import Checkpointer
from speechbrain.utils.epoch_loop import EpochCounter
from speechbrain.utils.importutils import LazyModule

from audioaug import Chain, Loader, Plan, ops
from tests.integration.loader.frameworks.how_to import (
    CHAIN,
    PLAN,
    Witness,
    assert_equal,
    assert_no_clip_twice,
    clips,
    keyword_model,
    plain,
    run,
    speech,
)
from tests.integration.loader.material import RATE

for name in [name for name, module in sys.modules.items() if isinstance(module, LazyModule)]:
    del sys.modules[name]  # stand-ins for old names, which warn when all modules are inspected (as hypothesis does)

SIZES = {"train_loader_kwargs": {"batch_size": 16}, "valid_loader_kwargs": {"batch_size": 4}, "progressbar": False}


def dynamic(pairs: Any) -> DynamicItemDataset:
    """Return clips of many lengths as SpeechBrain has them."""
    dataset = DynamicItemDataset({str(k): {"row": k} for k in range(len(pairs))})
    dataset.add_dynamic_item(lambda row: torch.from_numpy(pairs[row][0][0, : 4000 + 97 * row]), "row", "sig")
    dataset.add_dynamic_item(lambda row: pairs[row][1], "row", "label")
    dataset.set_output_keys({"audio": "sig", "label": "label"})
    return dataset


class Spotter(torch.nn.Module):
    """The keyword model; notes the relative lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.relative_lengths = keyword_model(), []

    def forward(self, audio: torch.Tensor, relative: torch.Tensor) -> torch.Tensor:
        self.relative_lengths.append(relative)
        return self.net(audio[:, None])


DATASET, VALID = dynamic(speech()), dynamic(speech(8, first=3))


def brain_of(chain: Chain = CHAIN, plan: Plan = PLAN, **options: Any) -> tuple[Any, Witness]:
    names = run("speechbrain", 0, {"chain": chain, "plan": plan})

    class Brain(names["AugmentedBrain"]):
        def compute_objectives(self, predictions: Any, batch: Any, stage: Any) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(predictions, batch["label"])

    model = Spotter()
    brain = Brain(
        {"model": model}, lambda these: torch.optim.SGD(these, lr=0.01), run_opts={"device": "cpu"}, **options
    )
    return brain, Witness(model)


def expected(epoch: int) -> list[torch.Tensor]:
    return plain(DATASET, epoch, batch_size=16, pad=True)


def assert_dry_clips(found: list[torch.Tensor]) -> None:
    dry = [VALID[k]["audio"][None] for k in range(len(VALID))]
    assert {clip.tobytes() for clip in clips(found)} == {clip.tobytes() for clip in clips(dry)}


def test_train_validate_and_test():
    brain, saw = brain_of()
    brain.fit(EpochCounter(2), DATASET, VALID, **SIZES)
    assert saw.learned()
    assert_equal(saw.trained, expected(0) + expected(1))
    assert_no_clip_twice(saw.trained[:3], saw.trained[3:])
    assert_dry_clips(saw.validated)
    saw.validated.clear()
    brain.evaluate(VALID, progressbar=False, test_loader_kwargs={"batch_size": 8})
    assert_dry_clips(saw.validated)


@pytest.mark.parametrize("cut", [0, 2])
def test_lengths_are_those_after_the_chain(cut):
    chain = Chain([ops.Gain(p=1.0), ops.AdjustDuration(duration_samples=5000, p=0.5), ops.Gain(p=1.0)], RATE)
    brain, saw = brain_of(chain, Plan(cut=cut))
    brain.fit(EpochCounter(1), DATASET, **SIZES)
    loader = Loader(DATASET, chain, Plan(cut=cut), batch_size=16, pad=True, shuffle=True, device="cpu")
    for audio, relative, batch in zip(saw.trained, saw.model.relative_lengths, loader, strict=True):
        assert torch.equal(relative * audio.shape[-1], batch["lengths"].float()) and relative.max() <= 1.0
        assert 5000 in batch["lengths"] and len(set(batch["lengths"].tolist())) > 2
        assert not any(clip[length:].any() for clip, length in zip(audio, batch["lengths"].tolist()))


class Stop(Exception):
    """Ends training immediately."""


def fit_in(folder: Path, epochs: int, stop_after: int | None = None) -> Witness:
    """Train with checkpoints in a folder, up to some epoch or some batch; return what the model saw."""
    brain, saw = brain_of(checkpointer=Checkpointer(folder))
    counter = EpochCounter(epochs)
    brain.checkpointer.add_recoverables({"counter": counter, "model": saw.model})

    def after_batch(*_: Any) -> None:
        if len(saw.trained) == stop_after:
            brain._save_intra_epoch_ckpt()
            raise Stop

    brain.on_fit_batch_end = after_batch
    brain.on_stage_end = lambda *_: brain.checkpointer.save_checkpoint()
    with suppress(Stop):
        brain.fit(counter, DATASET, **SIZES)
    return saw


@pytest.mark.parametrize("epochs, stop_after", [(1, None), (2, 2), (2, 4)], ids=["end of an epoch", "first", "second"])
def test_run_resumes_where_it_stopped(epochs, stop_after, tmp_path):
    before, after = fit_in(tmp_path, epochs, stop_after), fit_in(tmp_path, 2)
    assert len(before.trained) == (stop_after or 3)
    assert_equal(before.trained + after.trained, expected(0) + expected(1))
