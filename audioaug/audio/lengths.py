"""Lengths: the length of each file in samples, from the headers, which are read once and cached.

Shapes: N files.
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from audioaug.audio.files import Header, read_header, stamp
from audioaug.process import keep_random_state
from audioaug.writing import cache_file, is_terminal, keep_in_cache, read_file

THREADS = 8
"""Headers that are read together: on network storage, most of the time is latency."""

MANY = 10_000
"""New files from which on there is progress to be seen."""

Entry: TypeAlias = tuple[int, int, int, int, int]
"""Size and time of change of a file, in bytes and nanoseconds, and its header."""

log = logging.getLogger("audioaug")


def file_lengths(files: Sequence[str], sample_rate: int) -> NDArray[np.int64]:
    """Return the length of each audio file in samples at a rate, (N,), rounded up.

    The headers of new files, and of those whose size or time of change differs, are read and cached.

    Raises:
        DataError: a file does not exist, or has no valid header.
    """
    stamps = [stamp(file) for file in files]
    cache = _cache_path(files)
    known = _load(cache)
    unread = [
        place for place, (file, stamp) in enumerate(zip(files, stamps)) if tuple(known.get(file, ()))[:2] != stamp
    ]
    for place, header in zip(unread, _read([files[place] for place in unread])):
        known[files[place]] = (*stamps[place], header.frames, header.sample_rate, header.channels)
    if unread:
        keep_in_cache(json.dumps(known), cache)
    return np.asarray([Header(*known[file][2:]).frames_at(sample_rate) for file in files], dtype=np.int64)


def _read(files: Sequence[str]) -> Iterator[Header]:
    """Yield the headers, with progress if they are many."""
    if len(files) >= MANY:
        log.info("Reading the headers of %d audio files. Their lengths are cached.", len(files))
    with ThreadPoolExecutor(THREADS) as threads:
        for start in _shown(range(0, len(files), MANY), len(files)):
            yield from threads.map(read_header, files[start : start + MANY])


def _shown(steps: Sequence[int], count: int) -> Iterable[int]:
    """Show the progress of reading many headers, if stderr is a terminal."""
    if count < MANY or not is_terminal(sys.stderr):
        return steps
    with keep_random_state():
        from rich.console import Console
        from rich.progress import track

    return track(steps, f"Reading the headers of {count:,} files", console=Console(stderr=True), transient=True)


def _cache_path(files: Sequence[str]) -> Path | None:
    """Return the cache of all files in their common folder."""
    if not files:
        return None
    common = os.path.commonpath([os.path.dirname(file) for file in files])
    return cache_file(f"lengths-{hashlib.sha256(os.fsencode(common)).hexdigest()[:16]}.json")


def _load(cache: Path | None) -> dict[str, Entry]:
    """Return what is cached; nothing if there is no cache, or it is damaged."""
    with suppress(OSError, ValueError):
        known = json.loads(read_file(cache)) if cache else {}
        if isinstance(known, dict) and all(_is_entry(entry) for entry in known.values()):
            return known
    return {}


def _is_entry(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 5 and all(type(number) is int for number in entry)
