"""The examples in docstrings are executed."""

import doctest
import importlib
import pkgutil

import pytest

import audioaug

MODULES = [each.name for each in pkgutil.walk_packages(audioaug.__path__, "audioaug.") if "__main__" not in each.name]


@pytest.fixture(scope="module")
def examples() -> list[doctest.DocTest]:
    """All docstrings with examples."""
    finder = doctest.DocTestFinder()
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 2
    return found


def test_the_examples_run(examples):
    runner = doctest.DocTestRunner()
    assert [test.name for test in examples if runner.run(test).failed] == []


def test_examples_are_under_their_heading(examples):
    """Without that heading, the documentation takes ``>>>`` for a quotation and ``[...][0]`` for a link."""
    assert [test.name for test in examples if "Examples:\n" not in test.docstring] == []
