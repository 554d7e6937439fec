"""The code of docs/how-to/spec-augment.md: masks by key after the Loader's audio, and inside a model."""

import pytest
import torch

import audioaug
from audioaug import AudioFolder
from scripts.models.keyword_cnn import mel_filters
from tests.integration.loader.frameworks.how_to import CHAIN, PLAN, Witness, code_of, run
from tests.integration.loader.material import DEMO, RATE


class LogMel(torch.nn.Module):
    """(B, 1, T) audio to (B, 40, N) features, which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(400)
        spectrum = torch.stft(audio[:, 0], 512, hop_length=160, win_length=400, window=window, return_complex=True)
        self.made.append(torch.log(mel_filters(40, 257) @ spectrum.abs().square() + 1e-6))
        return self.made[-1]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Return what the page takes for granted, and what it defines, after its first block has run."""
    manifest, files = tmp_path_factory.mktemp("data") / "clips.csv", AudioFolder(DEMO / "speech", RATE).files[:40]
    manifest.write_text("path,label\n" + "".join(f"{file},{k % 3}\n" for k, file in enumerate(files)), encoding="utf-8")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv1d(40, 8, 3), torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten())
    yours = {"manifest": manifest, "chain": CHAIN, "plan": PLAN, "device": "cpu", "features": LogMel(), "model": model}
    saw = Witness(model)
    return {**run("spec-augment", 0, yours), "saw": saw}


def test_training_masks_the_features_by_key(names):
    saw, features = names["saw"], names["features"]
    assert saw.learned() and len(saw.trained) == len(features.made) == 6
    assert all(0.2 < (masked != made).float().mean() < 0.8 for masked, made in zip(saw.trained, features.made))
    epochs = []
    for epoch in range(2):
        names["loader"].set_epoch(epoch)
        again = audioaug.SpecAugment.switchboard_mild(time_warp=0, mask_value="mean")
        keys = [key for _, _, batch in names["loader"] for key in batch]
        made = torch.cat(features.made[3 * epoch : 3 * epoch + 3])
        expected = torch.cat([again(each[None], key=[key], epoch=epoch) for each, key in zip(made, keys)])
        epochs.append(torch.cat(saw.trained[3 * epoch : 3 * epoch + 3]))
        assert torch.allclose(epochs[-1], expected, atol=1e-5)
    assert not torch.equal(*epochs)


def test_model_with_lengths_masks_in_training_only(names):
    before = len(names["saw"].trained)
    page = run("spec-augment", 1, names)
    masked, made = names["saw"].trained[before], names["features"].made[-1]
    assert page["output"].shape == (2, 8) and made.shape == (2, 40, 101)
    assert not torch.equal(masked, made) and torch.equal(masked[1, :, 60:], made[1, :, 60:])
    page["recogniser"].eval()(page["padded"])
    assert torch.equal(names["saw"].validated[-1], names["features"].made[-1])


def test_presets_of_the_page_are_those_of_the_class():
    text = (DEMO.parents[1] / "docs/how-to/spec-augment.md").read_text(encoding="utf-8")
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    header, _, *presets = rows
    assert len(presets) == 5 and len(code_of("spec-augment")) == 2
    for name, *values in presets:
        policy = getattr(audioaug.SpecAugment, name)().policy
        assert [str(getattr(policy, field)) for field in header[1:]] == values
