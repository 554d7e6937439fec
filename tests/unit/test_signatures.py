"""The public surface stays as it is, or the changelog says what changed since the last release."""

import re
from pathlib import Path

import pytest
from list_signatures import signatures

HERE = Path(__file__).parent
CHANGELOG = HERE.parents[1] / "CHANGELOG.md"


def lines_of(name: str) -> set[str]:
    return set((HERE / name).read_text(encoding="utf-8").splitlines())


def changed_names(before: set[str], now: set[str]) -> set[str]:
    """Return the names whose lines differ: "Loader" for a method of it."""
    found = (re.match(r"(?:integrations\.ray\.|ops\.|errors\.)?(\w+)", line) for line in before ^ now)
    return {each[1] for each in found if each}


def newest_section(text: str) -> str:
    """Return the changelog's newest section."""
    return re.split(r"^## \[", text, flags=re.M)[1]


def test_the_list_is_what_there_is() -> None:
    now, listed = set(signatures()), lines_of("signatures.txt")
    assert now == listed, (
        f"The public surface has changed: {sorted(now ^ listed)}. If that is meant, add a line to CHANGELOG.md and run "
        "scripts/list_signatures.py --write tests/unit/signatures.txt"
    )


def test_the_changelog_names_every_change_since_the_last_release() -> None:
    section = newest_section(CHANGELOG.read_text(encoding="utf-8"))
    changed = changed_names(lines_of("signatures_of_last_release.txt"), lines_of("signatures.txt"))
    assert not {name for name in changed if not re.search(rf"\b{name}\b", section)}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("Loader(dataset, chain)", "Loader(dataset, chain, plan=None)", {"Loader"}),
        ("Loader.plan", "", {"Loader"}),
        ("", "ops.Gain(*, p=0.5)", {"Gain"}),
        ("errors.DataError: AudioaugError", "errors.DataError: UsageError", {"DataError"}),
        ("split(chain, plan)", "split(chain, plan)", set()),
    ],
)
def test_a_change_is_seen(before: str, now: str, expected: set[str]) -> None:
    assert changed_names({before}, {now}) == expected


def test_only_the_newest_section_counts() -> None:
    assert "Gain" not in newest_section("# Changelog\n\n## [0.3.0]\n\n- Loader\n\n## [0.2.0]\n\n- Gain\n")
