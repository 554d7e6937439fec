"""What review 5 found, by its numbers: each finding has a test that failed before its fix."""

import re
import subprocess
import sys
from pathlib import Path

import audioaug

ROOT = Path(__file__).resolve().parents[2]


def test_r5_16_a_section_that_the_site_generates_says_so_in_the_file():
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    below = [
        (name, found) for name, text in pages.items() for found in re.findall(r"<!-- generated: .* -->\n(.*)", text)
    ]
    assert len(below) > 8
    assert [(name, line) for name, line in below if "`make docs` puts" not in line] == []


def test_r5_18_the_package_is_a_command():
    declared = re.search(r'^audioaug = "audioaug.__main__:main"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    done = subprocess.run([sys.executable, "-m", "audioaug", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert declared and done.stdout.rstrip().endswith(audioaug.__version__), done.stderr
