"""What review 6 found, by its numbers: each finding has a test that failed before its fix."""

import os
import stat
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from audioaug.advise.cli import main
from audioaug.audio.files import read_audio
from audioaug.core import Chain
from audioaug.errors import AudioaugWarning, ChainError, DataError, OutputError
from audioaug.records import Report
from audioaug.report import to_text
from audioaug.train.skipped import Skipped
from audioaug.writing import write_file
from tests.decide.planted import planted_report

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(here, capsys):
    """Run the advisor, which must refuse in one line on stderr, and return that."""

    def run(*arguments: str) -> str:
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.startswith("error: ") and captured.err.count("\n") == 1, captured
        return captured.err

    return run


def chain_file(folder: Path, text: str) -> Path:
    (folder / "chain.yaml").write_text(text)
    return folder / "chain.yaml"


@pytest.fixture
def planted() -> Report:
    """A finished report."""
    return replace(planted_report(), complete=True)


# 1. Code in chain files

NAMES_CODE = (
    "Lambda: {transform: 'planted:f'}",
    "OneOf: {transforms: [Gain, {Compose: {transforms: [{Lambda: {transform: 'planted:f', p: 1.0}}]}}]}",
)


@pytest.mark.parametrize("transform", NAMES_CODE)
def test_r6_01_a_chain_file_imports_no_code_unless_allowed(transform, here, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(here), *sys.path])
    (here / "planted.py").write_text("open('ran', 'w').close()\ndef f(samples, sample_rate):\n    return samples\n")
    path = chain_file(here, f"sample_rate: 16000\ntransforms: [{{{transform}}}]\n")
    with pytest.raises(ChainError, match=r"chain\.yaml: Lambda would import and run code .*code=True.*--allow-code"):
        Chain.from_yaml(path)
    assert not Path("ran").exists() and "planted" not in sys.modules
    chain = Chain.from_yaml(path, code=True)
    assert Path("ran").exists() and Chain.from_dict(chain.to_dict(), code=True) == chain
    sys.modules.pop("planted")


def test_r6_01_the_command_line_has_a_flag_for_it(refused, here, monkeypatch):
    chain_file(here, "sample_rate: 16000\ntransforms: [{Lambda: {transform: 'planted:f'}}]\n")
    (here / "mymodel.py").write_text("")
    command = ("--model", "mymodel.py", "--augment", "chain.yaml")
    assert "--allow-code" in refused(*command)
    assert "there is no function 'planted:f'" in refused(*command, "--allow-code")


def test_r6_01_classes_of_yours_cannot_be_named_in_a_file():
    with pytest.raises(ChainError, match="no transform 'Custom'"):
        Chain.from_dict({"sample_rate": 16000, "transforms": [{"Custom": {"transform": "os:system"}}]}, code=True)


# 2. Writing


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 KB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_r6_02_a_planted_link_is_not_followed(tmp_path):
    victim, report = tmp_path / "victim", tmp_path / "report.json"
    victim.write_text("precious")
    (tmp_path / f"report.json.{os.getpid()}.new").symlink_to(victim)
    write_file("new", report)
    assert victim.read_text() == "precious" and report.read_text() == "new" and not report.is_symlink()


def test_r6_02_threads_write_one_file_without_errors(tmp_path):
    file, texts, errors = tmp_path / "x.json", [str(digit) * 5000 for digit in range(4)], []

    def write(text):
        try:
            for _ in range(30):
                write_file(text, file)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=[text]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and file.read_text() in texts and list(tmp_path.iterdir()) == [file]


def test_r6_02_processes_write_one_file_without_errors(tmp_path):
    code = (
        "import sys; from audioaug.writing import write_file\nfor _ in range(30): write_file(sys.argv[1] * 5000, 'x')"
    )
    command = [sys.executable, "-c", code]
    running = [
        subprocess.Popen([*command, digit], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}) for digit in "12"
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert (tmp_path / "x").read_text() in ("1" * 5000, "2" * 5000) and len(list(tmp_path.iterdir())) == 1


def test_r6_02_a_link_keeps_naming_its_file_whose_mode_is_kept(tmp_path):
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "x.json", tmp_path / "link.json"
    file.write_text("old")
    file.chmod(0o604)
    link.symlink_to("folder/x.json")
    write_file("new", link)
    assert link.is_symlink() and file.read_text() == "new" and stat.S_IMODE(file.stat().st_mode) == 0o604
    new, plain = tmp_path / "new", tmp_path / "plain"
    write_file("new", new)
    plain.touch()
    assert new.stat().st_mode == plain.stat().st_mode


def test_r6_02_a_loop_of_links_is_told(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match=r"Cannot write .*a: Too many levels of symbolic links\."):
        write_file("new", tmp_path / "a")


def test_r6_02_a_full_disk_leaves_the_old_file(tiny_disk):
    file = tiny_disk / "report.json"
    write_file("old", file)
    with pytest.raises(OutputError, match=r"Cannot write .*report\.json: No space left on device\."):
        write_file("x" * 100_000, file)
    assert file.read_text() == "old" and list(tiny_disk.iterdir()) == [file]


def test_r6_02_a_device_without_room_is_told():
    with pytest.raises(OutputError, match=r"Cannot write /dev/full: No space left on device\."):
        write_file("new", "/dev/full")


# 9. Terminal escapes

EVIL = "\x1b]0;owned\x07\u202e.wav"
SHOWN = r"\x1b]0;owned\x07\u202e.wav"


def test_r6_09_errors_and_warnings_show_escapes_escaped(tmp_path):
    with pytest.raises(DataError) as caught:
        read_audio(str(tmp_path / EVIL), 16000)
    assert SHOWN in str(caught.value) and str(caught.value).isprintable()
    with pytest.warns(AudioaugWarning) as warned:
        skipped = Skipped("skip")
        skipped.add([f"Cannot read {EVIL}."])
    assert SHOWN in warnings.formatwarning(warned[0].message, AudioaugWarning, "x.py", 1)
    assert SHOWN in str(skipped) and str(skipped).isprintable()


def test_r6_09_the_command_line_shows_them_escaped(refused):
    assert r"Cannot read \x1b[2J.json" in refused("--load", "\x1b[2J.json")


def test_r6_09_a_report_shows_them_escaped(planted):
    text = to_text.render(replace(planted, verdict=f"Use {EVIL}"))
    assert SHOWN in text and "\x1b" not in text


def test_r6_09_line_feeds_of_a_message_are_kept():
    assert str(DataError("two\nlines")) == "two\nlines"
