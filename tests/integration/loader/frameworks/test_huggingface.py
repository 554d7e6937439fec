"""The Hugging Face Trainer trains with what docs/how-to/huggingface.md says, on the audio of the plain Loader."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("datasets.features")

from transformers import TrainingArguments, Wav2Vec2Config, Wav2Vec2ForSequenceClassification

import datasets
from audioaug.errors import UsageError
from tests.integration.loader.frameworks.how_to import (
    CHAIN,
    PLAN,
    Witness,
    assert_dry,
    assert_equal,
    assert_no_clip_twice,
    plain,
    run,
    speech,
)
from tests.integration.loader.material import RATE


def hugging_face(pairs: Any) -> datasets.Dataset:
    """Return a dataset whose examples are as a datasets.Audio column decodes them."""

    def decode(rows: dict[str, list[int]]) -> dict[str, list[Any]]:
        chosen = [pairs[k] for k in rows["row"]]
        audio = [{"path": "", "array": wave[0], "sampling_rate": RATE} for wave, _ in chosen]
        return {"audio": audio, "labels": [label for _, label in chosen]}

    return datasets.Dataset.from_dict({"row": list(range(len(pairs)))}).with_transform(decode)


DATASET, VALID = hugging_face(speech()), hugging_face(speech(8, first=3))


def tiny_model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = {"conv_dim": (8, 8), "conv_kernel": (10, 8), "conv_stride": (10, 8), "num_feat_extract_layers": 2}
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    positions = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    config = Wav2Vec2Config(**layers, **size, **positions, num_labels=12, apply_spec_augment=False)
    return Wav2Vec2ForSequenceClassification(config)


def trainer_of(folder: Path, workers: int = 0, **options: Any) -> tuple[Any, Witness]:
    plan = replace(PLAN, num_workers=workers)
    names = run("huggingface", 1, run("huggingface", 0, {"chain": CHAIN, "plan": plan}))
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=10,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=3,
        **options,
    )
    model = tiny_model()
    callbacks = [names["ResumeLoader"]()] if options.get("ignore_data_skip") else []
    trainer = names["AugmentedTrainer"](
        model, arguments, train_dataset=DATASET, eval_dataset=VALID, callbacks=callbacks
    )
    return trainer, Witness(model)


def expected(epoch: int) -> list[torch.Tensor]:
    return plain(DATASET, epoch, batch_size=10, seed=3)


def test_train_and_evaluate(tmp_path):
    trainer, saw = trainer_of(tmp_path, workers=1, save_strategy="no", eval_strategy="epoch")
    trainer.train()
    assert saw.learned()
    assert_equal(saw.trained, expected(0) + expected(1))
    assert_no_clip_twice(saw.trained[:4], saw.trained[4:])
    assert_dry(saw.validated, VALID, lambda example: example["audio"]["array"])
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(losses) == 2 and np.isfinite(losses).all()


MIDDLE = {"save_strategy": "steps", "save_steps": 1, "ignore_data_skip": True}


@pytest.mark.parametrize(
    ("options", "step", "batches"),
    [({"save_strategy": "epoch"}, 4, 4), (MIDDLE, 2, 2), ({**MIDDLE, "gradient_accumulation_steps": 2}, 1, 2)],
    ids=["end of an epoch", "middle", "middle, accumulating"],
)
def test_resume(options, step, batches, tmp_path):
    trainer_of(tmp_path, **options)[0].train()
    trainer, saw = trainer_of(tmp_path, **options)
    trainer.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert trainer.state.global_step == 8 * step // batches
    assert_equal(saw.trained, (expected(0) + expected(1))[batches:])


def test_resume_without_callback_is_refused(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2}
    trainer_of(tmp_path, max_steps=2, **options)[0].train()
    trainer, saw = trainer_of(tmp_path, **options)
    with pytest.raises(UsageError, match=r"would not augment.* give the Loader its state .load_state_dict"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert not saw.trained


def test_default_data_loader_of_trainer(tmp_path):
    trainer, _ = trainer_of(tmp_path, save_strategy="no")
    own = type(trainer).__bases__[0].get_train_dataloader
    with pytest.raises(ValueError, match="No columns in the dataset match the model's forward method signature"):
        own(trainer)
