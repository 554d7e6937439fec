"""G.711 in torch operations and as a loop gives, bit for bit, what libsndfile decodes of the codes that it writes."""

import io

import numpy as np
import pytest
import soundfile
import torch

from audioaug.dsp import dispatch
from audioaug.dsp.companding import companded, full_scale

SUBTYPES = {"mulaw": "ULAW", "alaw": "ALAW"}
EVERY_16_BIT_VALUE = (np.arange(-(2**15), 2**15) / 2**15).astype(np.float32)


def by_libsndfile(x_T: np.ndarray, law: str) -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, x_T, 8000, format="WAV", subtype=SUBTYPES[law])
    file.seek(0)
    return soundfile.read(file, dtype="float32")[0]


def ours(x_T: np.ndarray, law: str, backend: str = "auto") -> np.ndarray:
    with dispatch.backend(backend):
        return companded(torch.from_numpy(x_T)[None, None], torch.ones(1), law, None)[0, 0].numpy()  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("law", SUBTYPES)
def test_every_16_bit_value_is_that_of_libsndfile(law, backend):
    found = ours(EVERY_16_BIT_VALUE, law, backend)
    assert np.array_equal(found, by_libsndfile(EVERY_16_BIT_VALUE, law))
    assert len(np.unique(found)) == {"mulaw": 255, "alaw": 256}[law]  # mu-law has two codes for zero
    assert found.max() * 2**15 == {"mulaw": 32124, "alaw": 32256}[law]  # the greatest value in the standard's tables


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("law", SUBTYPES)
def test_other_values_are_those_of_libsndfile(law, backend):
    rng = np.random.default_rng(0)
    x_T = np.concatenate([rng.uniform(-1, 1, 200_000), rng.normal(0, 1e-3, 50_000), [0, -0.0, 1, -1, 1e-40, -1e-40]])
    x_T = x_T.astype(np.float32)
    assert np.array_equal(ours(x_T, law, backend), by_libsndfile(x_T, law))


def test_a_product_that_is_not_rounded_before_it_is_counted_would_be_seen():
    """Why kernels must not fuse: in float64, which rounds no product to a half, some codes are others."""
    x_T = EVERY_16_BIT_VALUE
    count = [np.rint(np.abs(x_T.astype(kind)) * kind(8191.75)) for kind in (np.float32, np.float64)]
    assert (count[0] != count[1]).any()


@pytest.mark.parametrize(
    ("peak", "full"), [(0.0, 1), (0.3, 1), (1.0, 1), (1.0000001, 2), (2.0, 2), (2.5, 4), (4.0, 4), (1000.0, 1024)]
)
def test_full_scale_is_the_next_power_of_two(peak, full):
    x_BCT = torch.zeros(2, 2, 9)
    x_BCT[0, 1, 3] = -peak
    assert full_scale(x_BCT).flatten().tolist() == [full, 1]


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_loud_examples_are_scaled_each_by_its_own_full_scale(backend):
    x_BCT = torch.randn(3, 2, 501, generator=torch.Generator().manual_seed(0)).clamp(-1, 1) * 0.9
    loud = torch.tensor([1.0, 4.0, 64.0])
    with dispatch.backend(backend):
        quiet = companded(x_BCT, torch.ones(3), "mulaw", None)
        found = companded(x_BCT * loud[:, None, None], loud, "mulaw", None)
    assert torch.equal(found, quiet * loud[:, None, None])


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("law", SUBTYPES)
def test_values_that_are_not_numbers_stay_so(law, backend):
    x_T = np.asarray([0.5, np.nan, -0.25], np.float32)
    found, wanted = ours(x_T, law, backend), by_libsndfile(x_T[[0, 2]], law)
    assert np.isnan(found[1]) and np.array_equal(found[[0, 2]], wanted)


def test_the_result_may_be_where_the_samples_are():
    x_BCT = torch.rand(2, 1, 40) - 0.5
    wanted = companded(x_BCT, torch.ones(2), "alaw", None)
    assert companded(x_BCT, torch.ones(2), "alaw", x_BCT) is not None and torch.equal(x_BCT, wanted)
