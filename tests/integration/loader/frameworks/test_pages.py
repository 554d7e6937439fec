"""Every page of docs/how-to has code, and every block of it is run by some test here."""

from pathlib import Path

import pytest

from tests.integration.loader.frameworks.how_to import PAGES, code_of

TESTS = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
NAMES = sorted(path.stem for path in PAGES.glob("*.md"))
OURS = {
    "accelerate",
    "buckets",
    "daft",
    "features",
    "ddp",
    "huggingface",
    "keys",
    "lightning",
    "nodes",
    "precision",
    "pytorch",
    "ray-data",
    "ray-train",
    "spec-augment",
    "speechbrain",
    "webdataset",
}


def test_pages_exist():
    assert set(NAMES) >= OURS


@pytest.mark.parametrize("page", sorted(OURS))
def test_every_code_block_is_run(page):
    blocks = code_of(page)
    assert blocks
    for number in range(len(blocks)):
        assert f'"{page}", {number}, ' in TESTS or f'"{page}", block, ' in TESTS
