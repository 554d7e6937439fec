"""Chain file: YAML, which may be untrusted, read as plain values up to a limited size and depth."""

from pathlib import Path
from typing import Any

import yaml

from audioaug.errors import ChainError
from audioaug.writing import read_file

MOST_BYTES = 2**20
MOST_VALUES = 100_000
"""Values in a chain file, each alias counted as the values it refers to."""
MOST_LEVELS = 50
TOO_DEEP = f"The file is nested deeper than {MOST_LEVELS} levels"


def read_chain_file(path: str | Path) -> Any:
    """Return what a YAML file holds; raise ``ChainError``, naming the file, if it cannot be read or is too large."""
    try:
        return _plain_values(read_file(path))
    except OSError as error:
        raise ChainError(f"Cannot read the chain {path}: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ChainError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    except RecursionError:
        raise ChainError(f"{path}: {TOO_DEEP}.") from None
    except ValueError as error:  # too large, or a number with too many digits
        raise ChainError(f"{path}: {error}.") from None


def _plain_values(text: bytes) -> Any:
    if len(text) > MOST_BYTES:
        raise ValueError(f"The file has {len(text)} bytes, but a chain has at most {MOST_BYTES}")
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _measure(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _measure(node: yaml.Node, known: dict[int, tuple[int, int]], above: int = 0) -> tuple[int, int]:
    """Return how many values a node holds, and in how many levels, aliases included.

    Raises:
        ValueError: there are too many, or it holds itself.
    """
    if above >= MOST_LEVELS:
        raise ValueError(TOO_DEEP)
    if id(node) not in known:
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        below = [] if isinstance(node, yaml.ScalarNode) else [_measure(part, known, above + 1) for part in parts]
        known[id(node)] = 1 + sum(values for values, _ in below), 1 + max((levels for _, levels in below), default=0)
    values, levels = known[id(node)]
    if values > MOST_VALUES:
        raise ValueError(f"The file holds more than {MOST_VALUES} values")
    if above + levels > MOST_LEVELS:
        raise ValueError(TOO_DEEP)
    return values, levels
