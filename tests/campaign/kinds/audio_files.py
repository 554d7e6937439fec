"""Audio files that are damaged, hostile, gone, replaced or block, while a Loader reads them."""

import io
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from audioaug import AudioFolder
from audioaug.errors import AudioaugError, printable
from tests.campaign.case import LOADERS, RATE, Case, check_all, check_once, check_sentence, indices, skipped
from tests.campaign.faults import Violation, kind

FORMATS = ("wav", "flac", "ogg", "mp3")
FILES = 8
WORKERS = (0, 0, 0, 0, 0, 0, 1, 2)
SAMPLES = 1600
"""In each file: a tenth of a second."""
OPTIONS: dict[str, Any] = {"on_error": ("raise", "skip", "replace"), "workers": WORKERS, "bad": (1, 1, 2, 5, 8)}


@cache
def good(suffix: str) -> bytes:
    """Return a short file of audio."""
    written = io.BytesIO()
    tone = 0.5 * np.sin(np.arange(SAMPLES) * 0.3)
    soundfile.write(written, tone, RATE, format=suffix)
    return written.getvalue()


class Files:
    """A folder of good files, as examples, some of which are damaged and mended again."""

    def __init__(self, case: Case, suffix: str, names: list[str] | None = None) -> None:
        self.case, self.suffix = case, suffix
        self.folder = case.folder / "audio"
        self.folder.mkdir()
        names = names or [f"clip {k}.{suffix}" for k in range(FILES)]
        for name in names:
            (self.folder / name).write_bytes(good(suffix))
        self.examples = AudioFolder(self.folder, RATE, seconds=SAMPLES / RATE)
        self.bad = sorted(case.chance.sample(range(FILES), case.values.get("bad", 1)))

    def read(self, index: int) -> dict[str, Any]:
        """Return an example."""
        return {"audio": self.examples[index][0][0], "index": index, "key": f"clip-{index}"}

    def path(self, index: int) -> Path:
        """Return the file of an example."""
        return Path(self.examples.files[index])

    def damage(self, how: Callable[[Path], None]) -> None:
        """Damage the bad ones."""
        for index in self.bad:
            how(self.path(index))

    def mend(self) -> None:
        """Make all good again."""
        shutil.rmtree(self.folder)
        for file in map(Path, self.examples.files):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(good(self.suffix))


def iterate(case: Case, files: Files, batches: Any) -> str:
    """Run an epoch over files of which some may be unreadable; return how it ended."""
    names = [printable(files.path(index).name) for index in files.bad]
    before = skipped(batches)
    try:
        found = indices(batches)
    except AudioaugError as error:
        if case.has_workers_of_torch:
            return f"{type(error).__name__} of torch"  # whose message has the worker's traceback
        return check_sentence(error, *names, *(f"Example {index}" for index in files.bad))
    except Exception as error:
        raise Violation("traceback", f"{type(error).__name__}: {str(error)[:300]}") from error
    left_out = skipped(batches) - before
    if case.values.get("on_error") == "replace":
        may_lack = len(files.bad) > 2  # a replacement is sought eight times
        if len(found) > FILES or (len(found) < FILES and not may_lack):
            raise Violation("lost or twice", f"{len(found)} of {FILES} with replacements")
    else:
        check_once(found, range(FILES))
        if len(found) + left_out != FILES or set(range(FILES)) - set(found) - set(files.bad):
            raise Violation("lost or twice", f"delivered {sorted(found)}, {left_out} left out, {files.bad} damaged")
    return {"replace": "replaced"}.get(str(case.values.get("on_error")), "left out") if left_out else "delivered"


def damaged(case: Case, how: Callable[[Path], None], suffix: str = "wav", names: list[str] | None = None) -> str:
    """Read damaged files, then the same after they were mended."""
    files = Files(case, suffix, names)
    batches = case.batches(files.read, FILES)
    if case.values.get("when") == "between epochs":
        check_all(indices(batches), FILES)
    files.damage(how)
    ended = iterate(case, files, batches)
    files.mend()
    check_all(indices(batches), FILES, "next run")
    return ended


def changing(content_of: Callable[[bytes, random.Random], bytes], chance: random.Random) -> Callable[[Path], None]:
    """Return a damage that writes other content."""
    return lambda path: path.write_bytes(content_of(path.read_bytes(), chance)) and None


def overwritten(content: bytes, chance: random.Random) -> bytes:
    """Return the content with random bytes in some places, the header more often than not."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 3, 30])):
        place = chance.randrange(min(len(changed), chance.choice([64, len(changed)])))
        changed[place : place + 4] = chance.randbytes(len(changed[place : place + 4]))
    return bytes(changed)


@kind("corrupt audio", LOADERS, weight=9, format=FORMATS, when=("at first", "between epochs"), **OPTIONS)
def corrupt(case: Case) -> str:
    return damaged(case, changing(overwritten, case.chance), case.values["format"])


@kind("truncated audio", LOADERS, weight=7, format=FORMATS, when=("at first", "between epochs"), **OPTIONS)
def truncated(case: Case) -> str:
    return damaged(
        case,
        changing(lambda content, chance: content[: chance.randrange(len(content))], case.chance),
        case.values["format"],
    )


@kind("empty audio", LOADERS, weight=3, format=FORMATS, content=("", "zeros", "no samples"), **OPTIONS)
def empty(case: Case) -> str:
    def change(path: Path) -> None:
        if case.values["content"] == "no samples":
            soundfile.write(path, np.zeros(0), RATE, format=case.values["format"])
        else:
            path.write_bytes(b"" if not case.values["content"] else bytes(2000))

    return damaged(case, change, case.values["format"])


def huge_wav(content: bytes) -> bytes:
    """Return an RF64 file that declares 2^40 frames."""
    sizes = b"ds64" + struct.pack("<IQQQI", 28, 2**41 + 100, 2**41, 2**40, 0)
    return b"RF64\xff\xff\xff\xffWAVE" + sizes + content[12:36] + b"data\xff\xff\xff\xff" + content[44:]


def huge_flac(content: bytes) -> bytes:
    """Return a FLAC file that declares all samples that its header can hold, 2^36 - 1."""
    word = int.from_bytes(content[18:26], "big") >> 36 << 36 | 2**36 - 1
    return content[:18] + word.to_bytes(8, "big") + content[26:]


def ogg_sum(page: bytes) -> int:
    """Return the checksum of an Ogg page: CRC-32 without reflection, from 0."""
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1) ^ 0x04C11DB7 if value & 0x80000000 else value << 1
        value &= 0xFFFFFFFF
    return value


def huge_ogg(content: bytes) -> bytes:
    """Return an Ogg file whose last page ends at sample 2^40."""
    start = content.rindex(b"OggS")
    page = bytearray(content[start:])
    page[6:14] = struct.pack("<Q", 2**40)
    page[22:26] = bytes(4)
    page[22:26] = struct.pack("<I", ogg_sum(page))
    return content[:start] + bytes(page)


def huge_mp3(content: bytes) -> bytes:
    """Return an MP3 file whose Xing header declares 2^32 - 1 frames."""
    for mark in (b"Xing", b"Info"):
        if (start := content.find(mark)) >= 0:
            return content[: start + 8] + b"\xff" * 4 + content[start + 12 :]
    return content + zlib.compress(content)


HUGE = {"wav": huge_wav, "flac": huge_flac, "ogg": huge_ogg, "mp3": huge_mp3}


@kind("huge header", LOADERS, weight=4, format=FORMATS, **OPTIONS)
def huge(case: Case) -> str:
    return damaged(
        case,
        lambda path: path.write_bytes(HUGE[case.values["format"]](path.read_bytes())) and None,
        case.values["format"],
    )


NAMES = (
    "\x1b[2J\x1b[31mred",
    "two\nlines",
    "carriage\rreturn",
    "\u202egnp.exe",
    "-rf",
    "a" * 240,
    "<script>alert(1)</script>".replace("/", "\u2044"),
    "{{ 7 * 7 }}",
    "$(reboot)",
    "%s%n",
    "quote'\"quote",
    "\udcff\udcfe",
    "tab\there",
    " ",
    "bell\x07",
    "nul\u2400",
    "..wav",
)


@kind("hostile name", LOADERS, weight=4, format=FORMATS, name=tuple(range(len(NAMES))), **OPTIONS)
def hostile(case: Case) -> str:
    suffix = case.values["format"]
    names = [f"{k}{NAMES[case.values['name']]}.{suffix}" for k in range(FILES)]
    return damaged(case, changing(overwritten, case.chance), suffix, names)


@kind(
    "file vanishes",
    LOADERS,
    weight=3,
    what=("file", "folder", "link to nowhere"),
    when=("at first", "between epochs"),
    **OPTIONS,
)
def vanishes(case: Case) -> str:
    def vanish(path: Path) -> None:
        path.unlink()
        if case.values["what"] == "folder":
            path.mkdir()
        if case.values["what"] == "link to nowhere":
            path.symlink_to("nowhere")

    return damaged(case, vanish)


@kind(
    "file changes",
    LOADERS,
    weight=3,
    to=("stereo", "1 Hz", "8 kHz", "longer", "other format", "text"),
    when=("between epochs",),
    **OPTIONS,
)
def changes(case: Case) -> str:
    def change(path: Path) -> None:
        to = case.values["to"]
        if to == "text":
            path.write_text("no audio at all")
        elif to == "other format":
            path.write_bytes(good(case.chance.choice(FORMATS)))
        else:
            samples = np.full({"longer": 5 * SAMPLES}.get(to, SAMPLES), 0.1)
            samples = np.stack([samples, samples], axis=1) if to == "stereo" else samples
            soundfile.write(path, samples, {"1 Hz": 1, "8 kHz": 8000}.get(to, RATE))

    return damaged(case, change)


@kind(
    "file blocks", LOADERS, weight=2, limit=30, what=("pipe", "/dev/zero", "/dev/random", "link to itself"), **OPTIONS
)
def blocks(case: Case) -> str:
    def block(path: Path) -> None:
        path.unlink()
        if case.values["what"] == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(case.values["what"] if case.values["what"].startswith("/") else path.name)

    return damaged(case, block)
