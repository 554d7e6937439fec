"""The code of docs/how-to/features.md: mel spectrograms at the end of a chain, masked by key."""

import pytest
import torch

from audioaug import AudioFolder, Plan, build_cpu
from tests.integration.loader.frameworks.how_to import Witness, run
from tests.integration.loader.material import DEMO, RATE


@pytest.mark.parametrize("cut", [0, 2, 3])
def test_a_model_trains_on_masked_features_wherever_they_are_made(cut, tmp_path):
    manifest, files = tmp_path / "clips.csv", AudioFolder(DEMO / "speech", RATE).files[:20]
    manifest.write_text("path,label\n" + "".join(f"{file},{k % 3}\n" for k, file in enumerate(files)), encoding="utf-8")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(1, 2), torch.nn.Conv1d(40, 8, 3), torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten()
    )
    saw = Witness(model)
    page = run("features", 0, {"manifest": manifest, "plan": Plan(cut=cut), "device": "cpu", "model": model})
    assert saw.learned() and len(saw.trained) == 4
    waves = {key: wave for wave, _, key in (page["folder"][k] for k in range(20))}
    page["loader"].set_epoch(1)
    for number, (features, _, keys, frames) in enumerate(page["loader"]):
        assert_features(page["chain"], 1, features, frames, keys, waves)
        changed = (saw.trained[2 + number] != features).flatten(1).float().mean(dim=1)
        assert (0.02 < changed).all() and (changed < 0.9).all()
    for features, _, keys, frames in page["validation"]:
        assert_features(page["chain"].without_augmentation(), 0, features, frames, keys, waves)


def assert_features(chain, epoch, features, frames, keys, waves):
    """Compare a padded batch with what librosa makes of each clip."""
    worker = build_cpu(chain)
    for made, key, count in zip(features, keys, frames.tolist(), strict=True):
        expected = torch.from_numpy(worker(waves[key], key=key, epoch=epoch))
        loud = expected > expected.amax(dim=-2, keepdim=True) - 60
        assert count == expected.shape[-1]
        assert (made[..., :count] - expected)[loud].abs().max() < 0.05
        assert (made[..., count:] == chain.silence).all()
