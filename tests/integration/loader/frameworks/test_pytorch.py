"""A plain loop trains with what docs/how-to/pytorch.md says: the Loader, and both halves with another DataLoader."""

import torch

from audioaug import Loader
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


def test_how_to_with_loader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yours = names(device="cpu")
    saw = Witness(yours["model"])
    page = run("pytorch", 0, yours)
    assert saw.learned()
    assert_equal(saw.trained, plain(page["dataset"], 0) + plain(page["dataset"], 1))
    assert_no_clip_twice(saw.trained[:2], saw.trained[2:])
    assert_dry(saw.validated, page["valid"])
    loader = Loader(page["dataset"], page["chain"], page["plan"], batch_size=32, shuffle=True, device="cpu")
    loader.load_state_dict(torch.load("checkpoint.pt")["loader"])
    assert loader.state_dict()["epoch"] == 2
    assert_equal([audio for audio, _ in loader], plain(page["dataset"], 2))


def test_how_to_with_split():
    yours = names(device="cpu")
    saw = Witness(yours["model"])
    page = run("pytorch", 1, yours)
    assert saw.learned()
    for epoch in range(2):
        assert_same_clips(saw.trained[2 * epoch : 2 * epoch + 2], plain(page["dataset"], epoch))
    page["module"].eval()
    dry = torch.utils.data.DataLoader(page["valid"], batch_size=8)
    assert_dry([page["module"](audio) for audio, _ in dry], page["valid"])
