"""A loop trains with what docs/how-to/auto.md says: plan="auto", announced, on the audio of the plain Loader."""

import logging

from tests.integration.loader.frameworks.how_to import Witness, assert_same_clips, names, plain, run


def test_how_to_with_auto_plan(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("audioaug"), "level", logging.NOTSET)  # the page sets it
    yours = names(device="cpu")
    saw = Witness(yours["model"])
    page = run("auto", 0, yours)
    assert saw.learned() and page["loader"].plan.chain_hash == page["chain"].hash
    assert_same_clips(saw.trained, plain(page["dataset"], 0) + plain(page["dataset"], 1))
    assert "trying 4 plans, in at most 2 of the 2 batches of an epoch" in caplog.text
