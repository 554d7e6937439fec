"""The documentation: it builds without a warning, its tables are whole, its files run, every cause is explained."""

import ast
import base64
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bench_engine_report
import docs_pages
import docs_tables
import pytest
import soundfile
import yaml
from bench_engine_records import NATIVE, REFERENCE, Result
from mkdocs.exceptions import PluginError

import audioaug
from audioaug import ops
from audioaug.audio.codecs import CODECS
from audioaug.core import REGISTRY
from audioaug.records import BOTTLENECKS, read_record

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
LEAST_WORDS = 60
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "NO_MKDOCS_2_WARNING": "1",  # a notice about the theme's maintenance, which says nothing about this site
    "OMP_NUM_THREADS": "1",  # on busy cores, threads wait for each other far longer than they work
}


pytestmark = pytest.mark.timeout(1200)  # programs: some seconds, minutes only where others use the cores too


def run(*command: str, cwd: Path, expect: int = 0) -> str:
    """Run Python with these arguments; return what it prints."""
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    said = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), cwd=ROOT)
    assert "Documentation built" in said and not re.search("WARNING|ERROR|[Dd]eprecat", said), said
    return folder


def text_of(site: Path, page: str) -> str:
    """Return the words of a page itself, without navigation and tags."""
    html = (site / page).with_suffix(".html").read_text(encoding="utf-8")
    article = re.search(r"<article.*?>(.*?)</article>", html, re.DOTALL)
    assert article is not None
    return re.sub(r"<[^>]+>", " ", article[1])


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_there_with_content_and_nothing_left_to_fill_in(site: Path, page: str) -> None:
    text = text_of(site, page)
    assert len(text.split()) > LEAST_WORDS
    assert not re.search(r"generated:|make docs puts|:::|--8&lt;--|\bTODO\b|\]\[audioaug", text)


def test_every_page_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    links = set(re.findall(r'<a href="([^"#]+\.html)" class="md-nav__link', home))
    assert {page.replace(".md", ".html") for page in PAGES} - links <= {"index.html"}


def test_pages_fetch_nothing_from_other_sites(site: Path) -> None:
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        loads = re.findall(r"""(?:\bsrc=|<link [^>]*href=|url\()["']?(?:https?:)?//[^"')> ]+""", text)
        assert not loads, (path, loads)


def test_a_broken_link_and_an_unknown_table_fail_the_build(tmp_path: Path) -> None:
    settings = {**yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8")), "plugins": [], "watch": []}
    del settings["nav"], settings["extra_css"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({**settings, "hooks": [str(ROOT / "scripts/docs_pages.py")]}))
    for text, said in (("[gone](gone.md)", "gone.md"), ("<!-- generated: gone -->", "no table 'gone'"), ("fine", "")):
        (tmp_path / "docs/index.md").write_text(f"# Page\n\n{text}\n")
        assert said in run("-m", "mkdocs", "build", cwd=tmp_path, expect=1 if said else 0)


def test_a_folder_in_the_navigation_includes_its_pages(tmp_path: Path) -> None:
    (tmp_path / "how").mkdir()
    for name in ("b", "index", "a"):
        (tmp_path / "how" / f"{name}.md").touch()
    found = docs_pages.expanded(["index.md", {"How": "how/"}, {"Rest": ["x.md"]}], tmp_path)
    assert found == ["index.md", {"How": ["how/index.md", "how/a.md", "how/b.md"]}, {"Rest": ["x.md"]}]
    with pytest.raises(PluginError, match="none/ has no pages"):
        docs_pages.expanded([{"None": "none/"}], tmp_path)


def test_the_picture_of_the_report_is_small() -> None:
    picture = DOCS / "images/report.png"
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size < 150_000


# Generated tables


@pytest.mark.parametrize("page", ["transforms.md", "equivalence.md", "api/ops.md"])
def test_every_transform_is_on_the_page(site: Path, page: str) -> None:
    words = set(re.findall(r"\w+", text_of(site, page)))
    assert len(REGISTRY) > 40 and set(REGISTRY) <= words


def test_every_codec_can_be_heard(site: Path) -> None:
    html = (site / "transforms.html").read_text(encoding="utf-8")
    players = re.findall(r'<audio controls[^>]+aria-label="([^"]+)" src="data:audio/flac;base64,([^"]+)"', html)
    assert [label for label, _ in players] == ["as it is", *(encoding.title for encoding in CODECS.values())]
    clips = [soundfile.read(io.BytesIO(base64.b64decode(data)))[0] for _, data in players]
    assert len({clip.shape for clip in clips}) == 1 and len({clip.tobytes() for clip in clips}) == len(clips)


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    words = set(re.findall(r"\w+", text_of(site, "api/index.md")))
    assert set(audioaug.__all__) - {"ops", "errors"} <= words


def test_every_loss_in_the_recorded_benchmarks_is_printed_bold() -> None:
    losses = 0
    for path in docs_tables.PROFILES.glob("engine_*.json"):
        result = read_record(path, Result)
        table = bench_engine_report.benchmark(path)
        for engine in (NATIVE, REFERENCE):
            for name, ratio in result.ratios(engine).items():
                losses += ratio < 1
                line = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
                assert (f"**{ratio:.2f}**" in line) == (ratio < 1) or f" {ratio:.2f} " in line
    assert losses


def test_every_record_is_named_on_a_page(site: Path) -> None:
    text = "".join(
        text_of(site, page) for page in ("benchmarks.md", "equivalence.md", "supported-versions.md", "faults.md")
    )
    names = [path.name for path in docs_tables.PROFILES.iterdir()]
    assert names and all(name in text for name in names)


def test_the_equivalence_page_is_the_recorded_result() -> None:
    verdicts = json.loads((docs_tables.PROFILES / "verify_cpu.json").read_text(encoding="utf-8"))["verdicts"]
    ours = [verdict for verdict in verdicts if verdict["engine"] == "batched" and verdict["error"] is not None]
    table = docs_tables.equivalence()
    assert all(f"{verdict['error']:.2g} {verdict['unit']}" in table for verdict in ours) and len(ours) > 40


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (ops.Trim, "yes"),
        (ops.Gain, "no"),
        (ops.ApplyImpulseResponse, "with `leave_length_unchanged=False`"),
        (ops.OneOf, "as what is in it"),
    ],
)
def test_whether_an_op_changes_lengths_is_asked_of_the_op(op: type[ops.Gain], said: str) -> None:
    assert docs_tables.lengths(op) == said


# Causes


def emitted(module: ast.Module) -> Iterator[str]:
    """Yield the ids that a module gives to notices: ``Notice("id", ...)``, or what else in that place may be."""
    arguments = {arg.arg for node in ast.walk(module) if isinstance(node, ast.FunctionDef) for arg in node.args.args}
    for call in (node for node in ast.walk(module) if isinstance(node, ast.Call) and node.args):
        if getattr(call.func, "attr", getattr(call.func, "id", "")) in ("Notice", "_notice", "notice"):
            yield from values_of(call.args[0], module, arguments)


def values_of(place: ast.expr, module: ast.Module, arguments: set[str]) -> Iterator[str]:
    """Yield the ids that may appear there. A name that is no function's argument is of one of the module's tables."""
    if isinstance(place, ast.Constant):
        yield place.value
    elif isinstance(place, ast.IfExp):
        yield from (*values_of(place.body, module, arguments), *values_of(place.orelse, module, arguments))
    elif isinstance(place, ast.Name):
        yield from () if place.id in arguments else in_tables(module)
    else:
        assert isinstance(place, ast.Attribute), f"line {place.lineno}: which ids can this be?"  # of another notice


def in_tables(module: ast.Module) -> Iterator[str]:
    """Yield the keys of dicts of functions and the like, and the values of dicts of ids."""
    for table in (node for node in ast.walk(module) if isinstance(node, ast.Dict)):
        for key, value in zip(table.keys, table.values, strict=True):
            found = value if isinstance(value, ast.Constant) else key
            if isinstance(found, ast.Constant) and isinstance(found.value, str):
                yield found.value


def test_the_ids_in_a_module_are_found() -> None:
    code = """
def _notice(id, text): Notice(id, text)
def one(): self._notice("warning" if rare else "usual", "text")
TABLE = {"first": one, "second": partial(one)}
def any(): return next(Notice(name, text) for name, cause in TABLE.items())
def stage(name):
    found = {"decode": "decode_bound"}[name]
    return Notice(found, "text"), Notice(other.id, "text")
"""
    found = {*emitted(ast.parse(code))}
    assert found == {"warning", "usual", "first", "second", "decode_bound"}
    with pytest.raises(AssertionError, match="line 1: which ids"):
        list(emitted(ast.parse("Notice(one() + 'bound', 'text')")))


def test_every_cause_and_notice_has_an_entry_in_troubleshooting() -> None:
    ids = set(BOTTLENECKS) - {""}
    for path in (ROOT / "audioaug").rglob("*.py"):
        ids |= {*emitted(ast.parse(path.read_text(encoding="utf-8")))}
    assert {"augment_cpu_bound", "candidate_failed", "cpu_training", "cores_full"} <= ids
    entries = re.split(r"^### `(\w+)`\n", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    said = dict(zip(entries[1::2], entries[2::2], strict=True))
    assert ids - set(said) == set()
    assert all(len(text.split("\n## ")[0].strip().split("\n\n")) >= 2 for text in said.values())  # what, and what to do


# Commands and files


def files_of(page: str) -> dict[str, str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return dict(re.findall(r'```python title="(.+?)"\n(.*?)```', text, re.DOTALL))


def commands_of(page: str) -> list[list[str]]:
    """Return the commands of a page that Python runs, as its arguments."""
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = [re.sub("^audioaug ", "python -m audioaug ", line) for block in blocks for line in block.splitlines()]
    return [line.split()[1:] for line in lines if line.startswith("python ")]


def write(page: str, folder: Path) -> None:
    for name, text in files_of(page).items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.timeout(2400)  # six programs, 45 seconds of work where nothing else runs
def test_the_tutorial_runs_from_start_to_end(tmp_path: Path) -> None:
    write("tutorial.md", tmp_path)
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    said = {}
    for command in commands_of("tutorial.md"):
        short = ["--budget", "2", "--workers", "0,1"] if "advise" in command else []
        said[" ".join(command)] = run(*command, *short, cwd=tmp_path)
    assert len(said) == 6
    assert {"plan.json", "report.json", "report.html", "run.jsonl", "run.html"} <= {p.name for p in tmp_path.iterdir()}
    assert len(re.findall(r"epoch \d: loss \d", said["train.py"])) == 3
    assert audioaug.Plan.load(tmp_path / "plan.json").chain_hash


def test_the_op_of_the_page_keeps_its_contract_and_its_planted_fault_is_caught(tmp_path: Path) -> None:
    write("adding-a-transform.md", tmp_path)
    assert commands_of("adding-a-transform.md") == [["check.py"]]
    assert "Tremolo: passed" in run("check.py", cwd=tmp_path)
    assert "Tremolo: failed" in run("planted.py", cwd=tmp_path, expect=1)
    run("-W", "error", "use.py", cwd=tmp_path)


def test_readme_and_documentation_name_each_other() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((docs/[^)]+\.md)\)", readme)
    assert len(linked) >= 5 and all((ROOT / link).exists() for link in linked)


def test_the_advisor_runs_from_python_as_documented(tmp_path: Path) -> None:
    files = files_of("advisor.md")
    (tmp_path / "from_python.py").write_text(files["from_python.py"].replace("budget=20", "budget=2"), encoding="utf-8")
    assert "What each transform costs alone" in run("from_python.py", cwd=tmp_path)
    assert audioaug.Report.load(tmp_path / "report.json").complete
