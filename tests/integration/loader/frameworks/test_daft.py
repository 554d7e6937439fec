"""The lines of docs/how-to/daft.md give each row of a table the audio of the worker part."""

import numpy as np
import pytest

from audioaug import build_cpu
from tests.integration.loader.frameworks.how_to import CHAIN, run, speech


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::Warning")  # of Daft itself
def test_how_to():
    daft = pytest.importorskip("daft")
    words = speech(12)
    waves = {f"{k:04}": words[k][0][0, : 8000 - 300 * k] for k in range(len(words))}
    table = daft.from_pydict({"audio": list(waves.values()), "key": list(waves), "label": list(range(12))})
    found = run("daft", 0, {"chain": CHAIN, "table": table})["augmented"].to_pydict()
    assert found["key"] == list(waves) and found["label"] == list(range(12))
    worker = build_cpu(CHAIN, 3)
    for key, wave in zip(found["key"], found["audio"]):
        assert np.array_equal(np.asarray(wave, np.float32), worker(waves[key], key=key))
