"""The lines of docs/how-to/keys.md give the same audio wherever an example is read."""

import torch

from audioaug import AudioFolder, Loader, build_cpu
from tests.integration.loader.frameworks.how_to import CHAIN, PLAN, assert_same_clips, run
from tests.integration.loader.material import DEMO, RATE


def test_how_to(tmp_path):
    manifest, files = tmp_path / "clips.csv", AudioFolder(DEMO / "speech", RATE).files[:40]
    manifest.write_text("path,label\n" + "".join(f"{file},word\n" for file in files), encoding="utf-8")
    page = run("keys", 0, {"chain": CHAIN, "plan": PLAN, "manifest": manifest})
    loader: Loader = page["loader"]
    found = {key: wave for batch in loader for key, wave in zip(batch[2], batch[0])}
    assert set(found) == set(files) and loader.repeated == 0
    for wave, _, key in page["folder"]:
        expected = torch.from_numpy(build_cpu(CHAIN)(wave, key=key))
        assert_same_clips([found[key][None]], [expected[None]])
    halves = run("keys", 1, page)
    whole = halves["module"](torch.from_numpy(halves["same"])[None], key=[halves["key"]], epoch=0)
    assert_same_clips([whole], [found[halves["key"]][None]])
