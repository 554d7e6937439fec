"""The examples in docstrings are executed."""

import doctest
import importlib
import pkgutil

import pytest

import audioaug

MODULES = [
    module.name for module in pkgutil.walk_packages(audioaug.__path__, "audioaug.") if "__main__" not in module.name
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_examples_stand_under_examples(name):
    """Without that heading, the documentation takes ``>>>`` for a quotation and ``[...][0]`` for a link."""
    for test in doctest.DocTestFinder().find(importlib.import_module(name)):
        assert not test.examples or "Examples:\n" in test.docstring, test.name


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(examples) >= 2
