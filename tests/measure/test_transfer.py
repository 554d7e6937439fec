"""Copies to a device: which are timed, and how."""

import pytest
import torch

from audioaug.measure import FakeClock, WallClock, clock_for, measure_transfer


class Example:
    """Stands for a tensor in ordinary or page-locked memory; copying the first kind takes longer."""

    def __init__(self, clock: FakeClock, cost: float) -> None:
        self.clock, self.cost = clock, cost

    def pin_memory(self) -> "Example":
        return Example(self.clock, self.cost / 4)

    def to(self, device: torch.device, non_blocking: bool = False) -> None:
        (self.clock.launch if non_blocking else self.clock.advance)(self.cost)


def test_nothing_is_copied_to_the_cpu() -> None:
    assert measure_transfer(torch.zeros(8), torch.device("cpu"), WallClock(), seconds=1) == {}


def test_both_kinds_of_memory_on_cuda(clock: FakeClock) -> None:
    times = measure_transfer(Example(clock, 1.0), torch.device("cuda"), clock, seconds=20)
    assert {name: timing.median for name, timing in times.items()} == {"pageable": 1.0, "pinned": 0.25}


def test_no_page_locked_memory_elsewhere(clock: FakeClock) -> None:
    assert set(measure_transfer(Example(clock, 1.0), torch.device("mps"), clock, seconds=5)) == {"pageable"}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_copy() -> None:
    device = torch.device("cuda")
    times = measure_transfer(torch.zeros(1 << 24), device, clock_for(device), seconds=1)
    assert min(times["pinned"].seconds) > 0 and min(times["pageable"].seconds) > 0
