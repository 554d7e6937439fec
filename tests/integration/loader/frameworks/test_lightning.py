"""Lightning trains with what docs/how-to/lightning.md says, on the audio of the plain Loader."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning")

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.integration.loader.frameworks.how_to import (
    Witness,
    assert_dry,
    assert_equal,
    assert_no_clip_twice,
    assert_same_clips,
    names,
    plain,
    run,
)

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")


class Spotter(L.LightningModule):
    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.training_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(block: int, folder: Path, go_on: str | None = None, **options: Any) -> tuple[Witness, dict[str, Any]]:
    """Train with a block of the page; return what the model saw, and the names of the page."""
    page = run("lightning", block, names())
    saw = Witness(page["model"])
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
        enable_checkpointing="callbacks" in options,
        **options,
    )
    trainer.fit(Spotter(page["model"]), datamodule=page["Words"](), ckpt_path=go_on)
    return saw, page


def test_loader_in_a_data_module(tmp_path):
    saw, page = fit(0, tmp_path, max_epochs=2)
    assert saw.learned()
    assert_equal(saw.trained, plain(page["dataset"], 0) + plain(page["dataset"], 1))
    assert_no_clip_twice(saw.trained[:2], saw.trained[2:])
    assert_dry(saw.validated, page["valid"])


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks")
@pytest.mark.parametrize(("every", "rest"), [({"every_n_epochs": 1}, 0), ({"every_n_train_steps": 3}, 1)])
def test_checkpoint_resumes_mid_epoch(every, rest, tmp_path):
    keep = ModelCheckpoint(tmp_path, filename="saved", enable_version_counter=False, **every)
    fit(0, tmp_path, max_epochs=1 + rest, callbacks=[keep])
    saw, page = fit(0, tmp_path, max_epochs=2 + rest, go_on=str(tmp_path / "saved.ckpt"))
    expected = plain(page["dataset"], 1)[rest:] + (plain(page["dataset"], 2) if rest else [])
    assert_equal(saw.trained, expected)


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")  # where there are many cores
def test_split_with_a_data_loader(tmp_path):
    saw, page = fit(1, tmp_path, max_epochs=2, reload_dataloaders_every_n_epochs=1)
    assert saw.learned()
    for epoch in range(2):
        assert_same_clips(saw.trained[2 * epoch : 2 * epoch + 2], plain(page["dataset"], epoch))
    assert_dry(saw.validated, page["valid"])
