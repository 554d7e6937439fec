"""Both ways to run a cascade of filters: a CPU has loops, other devices have FFTs."""

import pytest


@pytest.fixture(params=["by a loop", "by FFT"])
def either_way(request) -> None:
    """Run the test in both ways."""
    if request.param == "by FFT":
        request.getfixturevalue("as_on_a_gpu")
