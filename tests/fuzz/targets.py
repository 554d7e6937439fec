"""What is fuzzed: all that audioaug reads from files and options. Each target takes bytes, and may only refuse them.

A target raises nothing but ``AudioaugError``, ends within seconds, and runs no code: an audit hook ends the process if
code is compiled, a module is imported, a process is started or a file outside of its own folder is opened for writing.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import soxr  # noqa: F401  (imported on first use, which counts as code that runs)

import audioaug.ops  # noqa: F401  (fills the registry)
from audioaug.advise.variants import parse_also
from audioaug.audio.files import read_audio, read_header
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain
from audioaug.decide.what_if import parse as parse_what_if
from audioaug.errors import AudioaugError
from audioaug.records import MonitoredRun, Plan, Report, Window, from_json
from audioaug.report import to_html, to_markdown, to_text

ROOT = Path(__file__).parents[2]
MOST_SAMPLES = 2**22
"""Of an audio file that a header may declare, so that what is decoded stays small."""

RUNS_CODE = {
    "compile",
    "exec",
    "import",
    "marshal.loads",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "pickle.find_class",
}
"""Events of Python's audit hooks that mean that code runs; ``import`` once everything is imported."""

FOLDER = Path(tempfile.mkdtemp(prefix="audioaug-fuzz-"))


def chain(data: bytes) -> None:
    """Read a chain from YAML; one that can be read is the same after it was written and read again."""
    path = _written(data, "chain.yaml")
    read = Chain.from_yaml(path)
    again = Chain.from_dict(read.to_dict())
    assert again == read and again.hash == read.hash


def plan(data: bytes) -> None:
    """Read a plan from JSON."""
    from_json(data, Plan)


def report(data: bytes) -> None:
    """Read a report from JSON, and show it in every form."""
    read = from_json(data, Report)
    for form in (to_text, to_markdown, to_html):
        form.render(read)


def monitor_log(data: bytes) -> None:
    """Read the lines of a monitor's log."""
    for line in data.splitlines()[:8]:
        for kind in (Window, MonitoredRun):
            with contextlib.suppress(AudioaugError):
                from_json(line, kind)


def manifest(data: bytes) -> None:
    """List the clips of a manifest: CSV or JSON lines."""
    kinds = (".csv", ".jsonl")
    path = _written(data[1:], "manifest" + kinds[data[0] % len(kinds)] if data else "manifest.csv")
    AudioFolder(path, 16000)


def audio(data: bytes) -> None:
    """Read a header and, if it does not declare too much, the audio."""
    kinds = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".au")
    path = str(_written(data[1:], "clip" + kinds[data[0] % len(kinds)] if data else "clip.wav"))
    header = read_header(path)
    if header.frames * header.channels <= MOST_SAMPLES:
        read_audio(path, 16000)


def what_if(data: bytes) -> None:
    """Parse the argument of ``--what-if``."""
    parse_what_if(_text(data))


def also(data: bytes) -> None:
    """Parse the argument of ``--also``."""
    parse_also(_text(data))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "chain": chain,
    "plan": plan,
    "report": report,
    "monitor-log": monitor_log,
    "manifest": manifest,
    "audio": audio,
    "what-if": what_if,
    "also": also,
}


def seeds(name: str) -> Iterator[bytes]:
    """Yield inputs that are valid, for the fuzzer to start from."""
    demo = ROOT / "audioaug/audio/demo_data"
    if name == "chain":
        yield from (path.read_bytes() for path in sorted((ROOT / "scripts/chains").glob("*.yaml")))
    elif name == "plan":
        yield b'{"cut": 2, "worker_engine": "batched", "num_workers": 4, "threads": 1, "chain_hash": "0123456789abcde"}'
    elif name == "report":
        yield (ROOT / "datasets/profiles/report_cpu_2_cores.json").read_bytes()
    elif name == "monitor-log":
        yield b'{"seconds": 1.0, "step": 10, "steps": 10, "step_ms": 4.0, "wait_ms": 1.0, "clips_per_second": 100.0}'
    elif name == "manifest":
        yield b"\0path,label,duration\na.wav,1,2.5\n"
        yield b'\1{"audio_filepath": "a.wav", "text": "go"}\n'
    elif name == "audio":
        kinds = {".wav": 0, ".flac": 1, ".ogg": 2, ".mp3": 3}
        for path in sorted(each for each in demo.rglob("*") if each.suffix in kinds)[::40]:
            yield bytes([kinds[path.suffix]]) + path.read_bytes()
    else:
        yield {"what-if": b"cores=8,step_ms=2.5,remote=4", "also": b"bf16,batch_size=64,torch-audiomentations"}[name]


def run(name: str, data: bytes) -> None:
    """Give a target some bytes. Anything but a refusal is raised."""
    with contextlib.suppress(AudioaugError):
        TARGETS[name](data)


def forbid_code() -> None:
    """From now on, end the process with a message if code runs; what is imported on first use is there by then."""

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        outside = writes and not str(arguments[0]).startswith((str(FOLDER), "/dev/"))
        if event in RUNS_CODE or outside:
            sys.stderr.write(f"fuzz: code ran, or a file was written: {event} {arguments!r:.300}\n")
            sys.stderr.flush()
            os._exit(70)

    sys.addaudithook(see)


def _written(data: bytes, name: str) -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
