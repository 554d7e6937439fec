"""What tests of loops share."""

import pytest
import torch


@pytest.fixture(params=[1, 2, 3], ids=lambda threads: f"{threads} threads")
def threads(request):
    """Give torch that many threads for a while."""
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)
