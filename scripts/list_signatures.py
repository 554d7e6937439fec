"""List the public surface: every public name, its parameters and their defaults, and its methods and properties.

    python scripts/list_signatures.py                                   what there is now
    python scripts/list_signatures.py --write tests/unit/signatures.txt    after a change, with a line in CHANGELOG.md

Types are left out, since Python's versions write them differently.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

import audioaug
from audioaug import errors, ops


@click.command()
@click.option("--write", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write them to a file.")
def main(path: Path | None) -> None:
    """List the public surface."""
    text = "".join(f"{line}\n" for line in signatures())
    if path is None:
        click.echo(text, nl=False)
    else:
        path.write_text(text, encoding="utf-8")


def signatures() -> list[str]:
    """Return a line for everything public, in order."""
    from audioaug.integrations import ray

    named = {name: getattr(audioaug, name) for name in audioaug.__all__ if name not in ("errors", "ops")}
    named |= {f"ops.{name}": getattr(ops, name) for name in dir(ops) if _is_public(name)}
    named |= {f"integrations.ray.{name}": getattr(ray, name) for name in ray.__all__}
    lines = [line for name in sorted(named) for line in _lines(name, named[name])]
    own = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
    return lines + sorted(f"errors.{each.__name__}: {each.__bases__[0].__name__}" for each in own)


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _lines(name: str, value: Any) -> Iterator[str]:
    """Yield a line for a function, or for a class and each of its own public members."""
    yield f"{name}{_parameters(value)}"
    if not inspect.isclass(value) or name.startswith("ops."):
        return
    for member, found in sorted(vars(value).items()):
        if not _is_public(member):
            continue
        if isinstance(found, classmethod | staticmethod) or inspect.isfunction(found):
            yield f"{name}.{member}{_parameters(getattr(value, member))}"
        elif isinstance(found, property) or type(found).__name__ == "cached_property":
            yield f"{name}.{member}"


def _parameters(value: Callable[..., Any]) -> str:
    """Return the parameters, each with its default, as Python would write them."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(value).parameters.values()
        if each.name != "self"
    ]
    return str(inspect.Signature(parameters))


if __name__ == "__main__":
    main()
