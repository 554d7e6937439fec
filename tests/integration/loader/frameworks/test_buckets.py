"""The lines of docs/how-to/buckets.md train on every clip, in batches of similar length."""

import numpy as np
import pytest
import soundfile
import torch

from tests.integration.loader.frameworks.how_to import CHAIN, PLAN, Witness, run
from tests.integration.loader.material import RATE


class Mean(torch.nn.Module):
    """A linear model of a clip's power."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 2)

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        return self.layer(audio.square().mean(dim=(1, 2))[:, None])


def test_how_to(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    lengths = random.integers(RATE // 10, 3 * RATE, 200)
    for number, length in enumerate(lengths):
        file = tmp_path / "clips" / "ab"[number % 2] / f"{number:03}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, 0.1 * random.standard_normal(length), RATE)
    witness = Witness(Mean())
    page = run("buckets", 0, {"folder": tmp_path / "clips", "chain": CHAIN, "plan": PLAN, "model": witness.model})
    assert witness.learned()
    assert sum(len(audio) for audio in witness.trained) == 2 * 200
    assert all(audio.shape[0] * audio.shape[-1] <= 20 * RATE for audio in witness.trained)
    assert 0.01 < page["batches"].padding < 0.25 and "of an epoch is padding" in capsys.readouterr().out
    assert list((tmp_path / "cache" / "audioaug").glob("lengths-*.json"))
    second = run("buckets", 1, page)
    in_seconds, length_N = second["batches"], np.array(second["seconds"])
    assert sorted(index for batch in in_seconds for index in batch) == list(range(200))
    assert all(len(batch) * length_N[batch].max() <= 20 for batch in in_seconds)
    assert sorted(length_N) == pytest.approx(sorted(lengths / RATE))
    assert in_seconds.padding == pytest.approx(page["batches"].padding, abs=0.01)
