"""Mixed precision and gradient accumulation, as docs/how-to/precision.md says, on the audio of the plain Loader."""

from typing import Any

import pytest
import torch

from tests.integration.loader.frameworks.how_to import (
    Witness,
    assert_equal,
    assert_no_clip_twice,
    assert_same_clips,
    names,
    plain,
    run,
)

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def train(gpu: bool = False) -> tuple[Witness, dict[str, Any]]:
    yours = names()
    saw = Witness(yours["model"])
    outputs: list[torch.dtype] = []
    yours["model"].register_forward_hook(lambda model, args, output: outputs.append(output.dtype))
    page = run("precision", 0, yours, gpu)
    assert set(outputs) == {page["dtype"]}
    assert saw.learned()
    return saw, page


@pytest.fixture(scope="module")
def trained() -> tuple[Witness, dict[str, Any]]:
    return train()


def test_bfloat16_on_the_cpu(trained):
    saw, page = trained
    assert page["dtype"] == torch.bfloat16 and not page["scaler"].is_enabled()
    assert_equal(saw.trained, plain(page["dataset"], 0, batch_size=16) + plain(page["dataset"], 1, batch_size=16))
    assert_no_clip_twice(saw.trained[:3], saw.trained[3:])


def test_accumulating_small_batches_gives_the_audio_of_large_ones(trained):
    saw, page = trained
    for epoch in range(2):
        assert_same_clips(saw.trained[3 * epoch : 3 * epoch + 3], plain(page["dataset"], epoch, batch_size=32))


@pytest.mark.cuda
@needs_cuda
def test_float16_on_the_gpu():
    saw, page = train(gpu=True)
    assert page["dtype"] == torch.float16 and page["scaler"].is_enabled() and page["scaler"].get_scale() > 0
    assert_same_clips(saw.trained[:3], plain(page["dataset"], 0, batch_size=16))


def test_the_same_steps_with_a_scaler_on_the_cpu(trained, monkeypatch):
    """Run the page's steps with an enabled GradScaler, which there is for the CPU, too."""
    scaler = torch.amp.GradScaler("cpu")
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, enabled: scaler)
    saw, page = train()
    assert page["scaler"].is_enabled() and page["scaler"].get_scale() == 65536.0
    assert_equal(saw.trained, trained[0].trained)
    for scaled, plain_weight in zip(saw.model.parameters(), trained[0].model.parameters()):
        assert torch.allclose(scaled, plain_weight, atol=1e-3)
