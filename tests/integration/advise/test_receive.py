"""How fast batches come from other nodes: measured through a real Ray, and told in the report."""

import pytest
import torch

from audioaug.advise import recommend
from audioaug.errors import MeasurementError
from audioaug.measure import clock_for
from audioaug.measure.receive import receive_rates
from audioaug.ops import Gain
from tests.helpers.local_ray import local_ray

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::Warning")]  # warnings of Ray itself


def test_batches_come_from_a_second_node() -> None:
    ray, device = pytest.importorskip("ray"), torch.device("cpu")
    rates = receive_rates(32, 16000, device, clock_for(device), 1.0, connections=(1, 2))
    assert [rate.connections for rate in rates] == [1, 2] and not ray.is_initialized()
    for rate in rates:
        low, high = rate.ci
        assert 1 < low <= rate.mb_per_second <= high < 1e5


def test_actors_that_find_no_core_are_one_sentence(monkeypatch) -> None:
    pytest.importorskip("ray.data")
    monkeypatch.setattr("audioaug.measure.receive.PATIENCE", 5)
    device = torch.device("cpu")
    with local_ray(num_cpus=1) as ray:
        before = ray.data.DataContext.get_current().wait_for_min_actors_s
        with pytest.raises(MeasurementError, match=r"^2 actors did not start in 5 s; has the cluster free cores\?$"):
            receive_rates(8, 400, device, clock_for(device), 1.0, connections=(2,))
        assert ray.data.DataContext.get_current().wait_for_min_actors_s == before


def test_the_advisor_tells_how_fast_batches_come(monkeypatch) -> None:
    pytest.importorskip("ray.data")
    monkeypatch.setattr("audioaug.advise.survey.RECEIVING_SECONDS", 1.0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16000, 12))
    dataset = [(torch.randn(1, 16000), 3)] * 32
    how = {"batch_size": 8, "sample_rate": 16000, "workers": [0, 1], "budget": 2, "progress": False}
    report = recommend(model, [Gain(p=1.0)] * 3, dataset, remote=2, **how)
    assert len(report.receive_rates) == 3 and not {"receive_failed"} & {notice.id for notice in report.notices}
    [told, *_] = [line for line in report.what_if if line.startswith("With remote = 2, ")]
    assert "was not measured" not in " ".join(report.what_if) and "(predicted)" in told


def test_without_ray_the_prediction_says_that_it_was_not_measured(monkeypatch) -> None:
    def missing(*_: object) -> None:
        raise ImportError("No module named 'ray'")

    monkeypatch.setattr("audioaug.advise.survey.receive_rates", missing)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16000, 12))
    how = {"batch_size": 8, "sample_rate": 16000, "workers": [0, 1], "budget": 2, "progress": False}
    report = recommend(model, [Gain(p=1.0)], [(torch.randn(1, 16000), 3)] * 32, remote=2, **how)
    assert not report.receive_rates and "was not measured" in " ".join(report.what_if)
