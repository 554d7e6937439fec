"""Tests of ops against their references: where torch-audiomentations is not installed, those that need it skip."""

from collections.abc import Iterator

import pytest

from audioaug.errors import UsageError
from audioaug.ops._torch_reference import why_unavailable


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that ends with the error of a missing reference, with the reason."""
    try:
        return (yield)
    except UsageError as error:
        if why_unavailable() and "is a transform of torch-audiomentations" in str(error):
            pytest.skip(why_unavailable())
        raise
