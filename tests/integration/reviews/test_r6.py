"""What review 6 found, by its numbers: each finding has a test that failed before its fix."""

import json
import multiprocessing
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audioaug import Chain, Loader, Monitor, Plan, ops
from audioaug.advise.__main__ import main
from audioaug.advise.cache import Cache
from audioaug.advise.model_file import load_training_job
from audioaug.audio import files
from audioaug.audio.encoded import decode
from audioaug.audio.files import list_recordings, read_audio, read_frames, read_header
from audioaug.audio.folder import AudioFolder
from audioaug.core import arguments
from audioaug.errors import AudioaugWarning, ChainError, DataError, OutputError, UsageError
from audioaug.loader.failures_of_examples import SkippedExamples
from audioaug.loader.processes import local_size, share_of
from audioaug.monitor import read_log
from audioaug.records import MonitoredRun, Report, Window, read_record, to_json
from audioaug.report import monitor, to_text
from audioaug.units import parse_bytes
from audioaug.writing import write_file
from tests.helpers.planted_reports import planted_report

ROOT = Path(__file__).parents[3]


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


def test_r6_01_a_file_cannot_name_custom_classes():
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


def test_r6_02_loop_of_links_raises(tmp_path):
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


def test_r6_02_full_device_raises():
    with pytest.raises(OutputError, match=r"Cannot write /dev/full: No space left on device\."):
        write_file("new", "/dev/full")


# 3. What is no regular file


@pytest.fixture
def within_seconds():
    """Fail, instead of hanging, if a test takes more than 20 s."""

    def hangs(*_):
        raise AssertionError("hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def make_device_link(path):
    path.symlink_to("/dev/zero")


SPECIAL = pytest.mark.parametrize("make", [make_fifo, make_socket, make_device_link])


@SPECIAL
@pytest.mark.usefixtures("within_seconds")
def test_r6_03_audio_is_read_from_regular_files_only(make, here):
    make(here / "x.wav")
    (file,) = list_recordings(here).files
    for read in (read_header, lambda path: read_audio(path, 16000), lambda path: read_frames(path, 0, 9, True)):
        with pytest.raises(DataError, match=r"x\.wav cannot be decoded: Not a regular file\."):
            read(file)


@SPECIAL
@pytest.mark.usefixtures("within_seconds")
def test_r6_03_so_are_manifests_plans_chains_and_reports(make, here, refused):
    for name in ("list.csv", "plan.json", "chain.yaml", "log.jsonl"):
        make(here / name)
    with pytest.raises(DataError, match=r"Cannot read .*list\.csv: Not a regular file\."):
        AudioFolder("list.csv", 16000)
    with pytest.raises(UsageError, match=r"Cannot read plan\.json: Not a regular file\."):
        Plan.load("plan.json")
    with pytest.raises(ChainError, match=r"Cannot read the chain chain\.yaml: Not a regular file\."):
        Chain.from_yaml("chain.yaml")
    with pytest.raises(UsageError, match=r"Cannot read log\.jsonl: Not a regular file\."):
        read_log("log.jsonl")
    assert "Cannot read plan.json: Not a regular file." in refused("--load", "plan.json")


@pytest.mark.usefixtures("within_seconds")
def test_r6_03_links_to_folders_above_are_entered_once(here):
    for name in ("a", "b"):
        (here / name).symlink_to(".")
    (here / "yes").mkdir()
    (here / "alias").symlink_to("yes")
    (here / "yes" / "x.wav").touch()
    assert list_recordings(here).files == (str(here / "yes" / "x.wav"),)


def test_r6_03_links_to_other_folders_are_followed(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "there" / "x.wav").touch()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    assert list_recordings(tmp_path / "here").files == (str(tmp_path / "here" / "link" / "x.wav"),)


def test_r6_03_link_to_itself_raises(here):
    (here / "x.wav").symlink_to("x.wav")
    with pytest.raises(DataError, match=r"x\.wav cannot be decoded: Too many levels of symbolic links\."):
        read_audio(list_recordings(here).files[0], 16000)


# 4. Headers that cannot be true


def flac_that_declares(path, frames):
    """Write a short FLAC, and another number of samples into its header (36 bits, at the end of byte 21)."""
    soundfile.write(path, np.zeros(1000), 16000)
    content = bytearray(path.read_bytes())
    word = int.from_bytes(content[18:26], "big") >> 36 << 36 | frames
    content[18:26] = word.to_bytes(8, "big")
    path.write_bytes(content)


def refuses_to_decode(path, sentence):
    """Every way to read the file, in a process with little memory, ends in this sentence."""
    code = (
        "import resource, sys; from audioaug.audio import files; from audioaug.errors import DataError\n"
        "import soundfile, soxr, numpy\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20,) * 2)\n"
        "for read in (files.read_header, lambda path: files.read_audio(path, 16000)):\n"
        "    try: read(sys.argv[1])\n"
        "    except DataError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 2 and all(sentence in line for line in ran.stdout.splitlines()), ran.stdout


def test_r6_04_a_sample_rate_of_1_hz_is_refused(tmp_path):
    soundfile.write(tmp_path / "x.wav", np.zeros(10_000), 1)
    refuses_to_decode(tmp_path / "x.wav", "its header declares 1 Hz, outside of 1000 Hz to 1000000 Hz.")


def test_r6_04_more_samples_than_a_file_can_hold_are_refused(tmp_path):
    flac_that_declares(tmp_path / "x.flac", 2**36 - 1)
    refuses_to_decode(tmp_path / "x.flac", "its header declares 68719476735 samples, but the file has")


def test_r6_04_decoded_size_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1000 * 4)
    soundfile.write(tmp_path / "x.wav", np.full(8000, 0.5), 8000)
    path = str(tmp_path / "x.wav")
    sentence = r"x\.wav takes 31\.2 KiB once decoded, but the limit is 3\.9 KiB\. .*AUDIOAUG_DECODE_BYTES"
    with pytest.raises(DataError, match=sentence):
        read_audio(path, 8000)
    assert read_audio(path, 8000, seconds=0.1).shape == (1, 800)
    with pytest.raises(DataError, match=r"x\.wav takes 6\.2 KiB once decoded"):
        read_audio(path, 16000, seconds=0.1)


def test_r6_04_bytes_of_a_file_have_the_same_limits(tmp_path):
    soundfile.write(tmp_path / "slow.wav", np.zeros(1000), 1)
    flac_that_declares(tmp_path / "long.flac", 2**36 - 1)
    for name, sentence in (("slow.wav", "its header declares 1 Hz"), ("long.flac", "declares 68719476735 samples")):
        with pytest.raises(DataError, match=sentence):
            decode({"bytes": (tmp_path / name).read_bytes(), "path": None}, 16000)


def test_r6_04_a_loader_skips_such_files(tmp_path):
    soundfile.write(tmp_path / "good.wav", np.full(1000, 0.5), 16000)
    soundfile.write(tmp_path / "slow.wav", np.zeros(1000), 1)
    flac_that_declares(tmp_path / "x.flac", 2**36 - 1)
    folder = AudioFolder(tmp_path, 16000)
    loader = Loader(folder, Chain([], 16000), batch_size=1, device="cpu", on_error="skip")
    with pytest.warns(AudioaugWarning, match="cannot be decoded"):
        assert len(list(loader)) == 1
    assert loader.skipped == 2


# 5. A full disk while training


class Ticks:
    """A clock that the loop advances."""

    time = 0

    def now(self):
        return float(self.time)


@pytest.fixture
def monitored(tiny_disk):
    """Train under a monitor that writes to a disk that fills up."""

    def run(**outputs):
        clock = Ticks()
        with Monitor([torch.ones(4, 2)] * 40, device="cpu", live=False, every=0.5, clock=clock, **outputs) as monitor:
            for clock.time, _ in enumerate(monitor):
                if clock.time == 2:
                    fill(tiny_disk)
        return monitor

    return run


def fill(folder):
    with (folder / "rest").open("wb", buffering=0) as rest, pytest.raises(OSError):
        while True:
            rest.write(bytes(512))


def test_r6_05_a_full_disk_drops_the_log_and_not_the_training(tiny_disk, monitored, recwarn):
    monitor = monitored(log=tiny_disk / "run.jsonl")
    assert sum(window.steps for window in monitor.windows) == 40
    (warning,) = recwarn
    assert warning.category is AudioaugWarning and warning.filename == __file__
    sentence = f"Monitor stopped writing the log {tiny_disk}/run.jsonl: No space left on device. Training continues."
    assert str(warning.message) == sentence
    _, windows = read_log(tiny_disk / "run.jsonl")
    assert windows == monitor.windows[: len(windows)] and len(windows) >= 2


def test_r6_05_a_full_disk_drops_the_page_and_keeps_the_old_one(tiny_disk, monitored, recwarn):
    page = tiny_disk / "run.html"
    page.write_text("old")
    assert sum(window.steps for window in monitored(html=page).windows) == 40
    (warning,) = recwarn
    assert "Monitor stopped writing the page" in str(warning.message) and page.read_text() == "old"


def test_r6_05_an_old_page_stays_until_there_is_a_new_one(tmp_path):
    page = tmp_path / "run.html"
    page.write_text("old")
    with Monitor([torch.ones(4, 2)], device="cpu", live=False, html=page) as monitor:
        assert page.read_text() == "old"
        list(monitor)
    assert "<html" in page.read_text()
    with pytest.raises(OutputError, match="Cannot write"):
        Monitor([], device="cpu", live=False, log="/dev/full")


# 6. The cache of compiled loops

LOOP = """
import numpy as np
from audioaug.dsp.loops import loop

@loop
def half(x):
    return x / 2

@loop
def quarter(x):
    return half(x) / 2

if __name__ == "__main__":
    print(quarter(8.0), sum(quarter.compiled.stats.cache_hits.values()))
"""


@pytest.fixture
def compiled(tmp_path):
    """Run two compiled loops in a process of their own; return the result, the hits of the cache, and stderr."""
    (tmp_path / "loops.py").write_text(LOOP)

    def run(cache):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(cache)}
        command = [sys.executable, "loops.py"]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return (*ran.stdout.split(), ran.stderr)

    return run


def test_r6_06_a_damaged_entry_is_compiled_again(compiled, tmp_path):
    cache = tmp_path / "cache"
    assert compiled(cache) == ("2.0", "0", "")
    for file in (*cache.rglob("*.half*.nbi"), *cache.rglob("*.quarter*.nbc")):  # an index, and what another names
        file.write_bytes(file.read_bytes()[:-20])
    assert compiled(cache) == ("2.0", "0", "") and compiled(cache) == ("2.0", "1", "")


def test_r6_06_a_full_disk_costs_one_warning(compiled, tiny_disk):
    (tiny_disk / "rest").write_bytes(bytes(2**16 - 3 * 2**12))
    result, hits, said = compiled(tiny_disk)
    assert (result, hits) == ("2.0", "0") and said.count("AudioaugWarning") == 1
    assert "Compiled loops cannot be kept in" in said and "NUMBA_CACHE_DIR" in said


# 8. Manifests


@pytest.mark.parametrize("name", ["a\u2028b.wav", "a\x85b.wav", "a\x0cb.wav", "a\x1eb.wav"])
def test_r6_08_lines_end_where_those_of_a_text_file_do(name, tmp_path):
    (tmp_path / "list.csv").write_text(f"path,label\n{name},x\n", encoding="utf-8")
    (tmp_path / "list.jsonl").write_text(json.dumps({"path": name}, ensure_ascii=False), encoding="utf-8")
    for manifest in ("list.csv", "list.jsonl") if name.isprintable() or ord(name[1]) > 31 else ("list.csv",):
        assert AudioFolder(tmp_path / manifest, 16000).files == (str(tmp_path / name),)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_r6_08_all_three_line_ends_are_known(end, tmp_path):
    (tmp_path / "list.csv").write_bytes(f"label\tpath{end}x\ta.wav{end}y\tb.wav{end}".encode())
    (tmp_path / "list.jsonl").write_bytes(f'{{"path": "a.wav"}}{end}{end}{{"path": "b.wav"}}'.encode())
    for manifest in ("list.csv", "list.jsonl"):
        assert AudioFolder(tmp_path / manifest, 16000).files == (str(tmp_path / "a.wav"), str(tmp_path / "b.wav"))


@pytest.mark.parametrize("inside", ["\n", "\r\n", "\r"])
def test_r6_08_a_quoted_line_break_belongs_to_the_path(inside, tmp_path):
    (tmp_path / "list.csv").write_bytes(f'path,label\n"a{inside}b.wav",x\n'.encode())
    assert AudioFolder(tmp_path / "list.csv", 16000).files == (str(tmp_path / f"a{inside}b.wav"),)


# 9. Terminal escapes

EVIL = "\x1b]0;owned\x07\u202e.wav"
SHOWN = r"\x1b]0;owned\x07\u202e.wav"


def test_r6_09_errors_and_warnings_show_escapes_escaped(tmp_path):
    with pytest.raises(DataError) as caught:
        read_audio(str(tmp_path / EVIL), 16000)
    assert SHOWN in str(caught.value) and str(caught.value).isprintable()
    with pytest.warns(AudioaugWarning) as warned:
        skipped = SkippedExamples("skip")
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


# 10. Files made to break a reader


def yaml_bomb(levels: int, head: str = "") -> str:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join([*lines, f"transforms: *l{levels - 1}", "sample_rate: 16000"])


MANY = "a: &a Gain\nsample_rate: 16000\ntransforms: [" + "*a, " * 150_000 + "]"
MERGES = "m0: &m0 {a: 1}\n" + "\n".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, 60))
PATHOLOGICAL = {
    "aliases of aliases": (yaml_bomb(12), "holds more than 100000 values"),
    "many aliases": (MANY, "holds more than 100000 values"),
    "merges of merges": (MERGES, "holds more than 100000 values"),
    "deep lists": ("[" * 5000 + "]" * 5000, "nested deeper than 50 levels"),
    "deep enough": ("[" * 100 + "]" * 100, "nested deeper than 50 levels"),
    "itself": ("&a [*a]", "nested deeper than 50 levels"),
    "a long file": ("# " + "x" * 2**20, "bytes, but a chain has at most 1048576"),
    "400 digits": ("sample_rate: 16000\ntransforms: [Gain: {min_gain_db: -" + "9" * 400 + "}]", "must be a number"),
    "5000 digits": ("sample_rate: " + "9" * 5000, "digits"),
    "a count without limit": (
        "sample_rate: 16000\ntransforms: [SpliceOut: {num_time_intervals: 1000000000}]",
        "num_time_intervals is 1000000000, but it must be between 1 and 1000.",
    ),
    "400 digits of hertz": ("transforms: []\nsample_rate: " + "9" * 400, "must be a whole number of hertz"),
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
@pytest.mark.usefixtures("within_seconds")
def test_r6_10_pathological_chain_files_get_one_sentence(name, tmp_path):
    text, sentence = PATHOLOGICAL[name]
    with pytest.raises(ChainError, match=r"chain\.yaml") as caught:
        Chain.from_yaml(chain_file(tmp_path, text))
    assert sentence in str(caught.value) and len(str(caught.value)) < 700


def test_r6_10_depth_through_aliases_gets_one_sentence(tmp_path):
    rows = ["- &a0 {Gain: {}}"]
    for number in range(30):
        rows.append(f"- &a{number + 1} {{OneOf: {{transforms: [{{OneOf: {{transforms: [*a{number}]}}}}]}}}}")
    (tmp_path / "chain.yaml").write_text("\n".join(["sample_rate: 16000", "transforms:", *rows]))
    with pytest.raises(ChainError, match="nested deeper than 50 levels"):
        Chain.from_yaml(tmp_path / "chain.yaml")


@pytest.mark.parametrize("value", ["[1]", "{a: 1}", "x", "2020-01-01", "true", "1.5"])
def test_r6_10_optional_numbers_of_an_op_are_checked_too(value, tmp_path):
    text = f"sample_rate: 16000\ntransforms: [AdjustDuration: {{duration_samples: {value}}}]"
    with pytest.raises(ChainError, match=r"AdjustDuration: duration_samples is .*, but it must be a whole number"):
        Chain.from_yaml(chain_file(tmp_path, text))


def test_r6_10_aliases_and_merges_of_due_size_are_read(tmp_path):
    text = (
        "sample_rate: 16000\ntransforms:\n- Gain: &g {p: 1.0, min_gain_db: -3}\n- Gain: {<<: *g, p: 0.5}\n- Gain: *g\n"
    )
    chain = Chain.from_yaml(chain_file(tmp_path, text))
    assert [arguments(op) for op in chain.ops] == [
        {"p": p, "min_gain_db": -3, "max_gain_db": 12.0} for p in (1.0, 0.5, 1.0)
    ]


@pytest.mark.parametrize("kind", [Plan, Report])
@pytest.mark.parametrize("text", ["[" * 200_000, '{"cut":' * 200_000, '{"x": ' + "[" * 5000 + "]" * 5000 + "}"])
def test_r6_10_deep_json_gets_one_sentence(kind, text, here):
    (here / "deep.json").write_text(text)
    with pytest.raises(UsageError, match=r"^deep\.json: (This is not the JSON of a |Unknown field 'x' in a plan)"):
        read_record("deep.json", kind)


def test_r6_10_a_deep_manifest_and_a_long_label_are_no_traceback(here):
    Path("deep.jsonl").write_text("[" * 200_000 + "\n")
    with pytest.raises(DataError, match=r"deep\.jsonl is not a valid manifest: it is nested too deeply\."):
        AudioFolder("deep.jsonl", 16000)
    Path("list.csv").write_text(f"path,label\nx,{'9' * 5000}\ny,10\n")
    assert AudioFolder("list.csv", 16000).labels == ("10", "9" * 5000)


IMPOSSIBLE = {
    "chain.worker_until": (10**9, "worker_until"),
    "chain.device_from": (-1, "device_from"),
    "ceiling.step_ms": (0.0, "step_ms is 0.0, but it must be above 0."),
    "workload.batch_size": (0, "batch_size is 0, but it must be above 0."),
    "host.torch_threads": (0, "torch_threads is 0, but it must be above 0."),
    "host.ram_bytes": (10**400, "ram_bytes is 1000"),
    "workload.sample_rate": (10**400, "sample_rate is 1000"),
}


@pytest.mark.parametrize("field", IMPOSSIBLE)
@pytest.mark.usefixtures("within_seconds")
def test_r6_10_impossible_numbers_in_a_report_get_one_sentence(field, planted, refused, here):
    room, name = field.split(".")
    value, sentence = IMPOSSIBLE[field]
    content = json.loads(to_json(planted))
    content[room][name] = value
    (here / "report.json").write_text(json.dumps(content))
    assert sentence in refused("--load", "report.json", "--html", "page.html")
    assert not Path("page.html").exists()


@pytest.mark.parametrize("changes", [{"bottleneck": "unheard_of"}, {"step_ms": 0.0, "steps": 0}])
def test_r6_10_a_log_with_odd_windows_has_a_page(changes, planted):
    window = Window(**{"seconds": 1.0, "step": 5, "steps": 5, "step_ms": 10.0, "wait_ms": 1.0, **changes})
    page = monitor.render(MonitoredRun(planted.host), [window, window])
    assert changes.get("bottleneck", "0.0 %") in page


# 11. The environment


def in_python(code: str, **environment: str):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.parametrize(("text", "size"), [("2G", 2**31), ("500 MB", 500 * 2**20), ("1.5gib", 3 * 2**29), ("0", 0)])
def test_r6_11_sizes_have_units(text, size):
    assert parse_bytes(text) == size
    ran = in_python("from audioaug.audio import bank; print(bank.MOST_BYTES)", AUDIOAUG_BANK_BYTES=text)
    assert (ran.stdout, ran.stderr) == (f"{size}\n", "")


@pytest.mark.parametrize("text", ["lots", "-1", "1e9", "", "2 X", "nan", "9" * 400])
def test_r6_11_invalid_size_warns_and_uses_the_default(text, monkeypatch):
    monkeypatch.setenv("AUDIOAUG_BANK_BYTES", text)
    with pytest.warns(AudioaugWarning, match=r"^Expected AUDIOAUG_BANK_BYTES to be a size such as 500M or 2G, got "):
        assert files.bytes_from_environment("AUDIOAUG_BANK_BYTES", 7) == 7


@pytest.mark.parametrize("text", ["0", "-2", "two", ""])
def test_r6_11_a_number_of_processes_that_is_none_counts_as_one(text, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", text)
    assert local_size() == 1 and share_of(4) == 4


def test_r6_11_without_a_home_folder_nothing_is_cached(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    cache = Cache("fingerprint")
    assert cache.path is None and cache.load() is None


def test_r6_11_data_paths_need_not_be_utf_8(tmp_path):
    folder = os.fsencode(tmp_path) + b"/sp\xe9ech"
    os.mkdir(folder)
    soundfile.write(folder + b"/x.wav", np.full(1000, 0.5), 16000, format="WAV")
    (tmp_path / "mymodel.py").write_text("import torch\nmodel = torch.nn.Linear(1, 1)\n")
    job = load_training_job(str(tmp_path / "mymodel.py"), torch.device("cpu"), data=os.fsdecode(folder))
    assert job.data_name == f"{tmp_path}/sp\\udce9ech" and job.dataset[0][0].any()
    assert to_json(job.data_name)


class WithItsOwnQueue:
    """A dataset whose examples put something into a queue of its own, the first of which cannot be pickled."""

    def __init__(self) -> None:
        self.queue = multiprocessing.get_context("fork").Queue()

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        self.queue.put((lambda: None) if index == 0 else torch.full((3,), float(index)).tolist())
        return torch.ones(9)


def test_r6_07_a_datasets_own_queue_is_as_torch_has_it(capfd):
    dataset, plan = WithItsOwnQueue(), Plan(cut=1, num_workers=1, start_method="fork")
    assert len(list(Loader(dataset, Chain([ops.Gain()], sample_rate=16000), plan, device="cpu"))) == 3
    assert [dataset.queue.get(timeout=120) for _ in range(2)] == [[1.0] * 3, [2.0] * 3]
    assert re.search("Can't (pickle|get local object)", capfd.readouterr().err)  # as Python's queue says of the first
    dataset.queue.close()
