"""Folder: a map-style dataset of labelled clips from a folder of audio files or a manifest."""

import csv
import io
import json
import math
import os
import typing
from collections.abc import Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from audioaug.audio.fastest import read_fastest
from audioaug.audio.files import find_audio, fit, read_audio
from audioaug.audio.lengths import file_lengths
from audioaug.errors import DataError, UsageError, did_you_mean
from audioaug.writing import read_file

PATH_COLUMNS = ("path", "audio_filepath", "file", "filename", "wav")
LABEL_COLUMNS = ("label", "class", "target", "text")

DURATION, OFFSET = "duration", "offset"
"""Columns of a manifest in seconds, as in those of NeMo and SpeechBrain: the length of the file, or of a part of it."""

PATH = "path"

Decoder = Literal["soundfile", "fastest"]

Entry = tuple[str, str, str, float | None]
"""Of a clip: its file, its label, its key, and its seconds: NaN if they are invalid, ``None`` if they are not given."""


class AudioFolder:
    """Clips with labels: ``folder[i]`` is ``(wave, label)``.

    Args:
        source: a folder (each file's label is the name of its sub-folder) or a manifest: a CSV or TSV file with a
            header, or JSON lines (``.json``, ``.jsonl``). The file is in the column ``path``, ``audio_filepath``,
            ``file``, ``filename`` or ``wav``, the class, if any, in ``label``, ``class``, ``target`` or ``text``. Paths
            are relative to the manifest, and may name any file that you can read.
        sample_rate: to which every file is resampled, in Hz.
        seconds: the length of every clip: longer files are cut at their end, shorter ones are padded with silence.
            ``None`` keeps the length of each file.
        key: also return what identifies the clip, for ``Loader(key=2)``: ``"path"``, relative to the folder, or as the
            manifest has it; or another column of the manifest, by its name.
        decoder: ``"fastest"`` decodes with torchcodec what that decodes faster and to the same samples (to 1e-6 of full
            scale; Vorbis, say), if it is installed. The first file of a kind shows which one is faster.

    Shape:
        wave: (1, T), float32; channels are averaged. label: an integer, the index in the sorted ``labels`` (integers
        are sorted by value, so that classes 0 to 11 keep their numbers). With ``key``, ``folder[i]`` is
        ``(wave, label, key)``, a string.

    Raises:
        DataError: the source does not exist, has no audio, or is a manifest without paths or that column; or the length
            or rate is not positive. A damaged file raises when it is read.
        UsageError: there is no such decoder.
    """

    def __init__(
        self,
        source: str | Path,
        sample_rate: int,
        seconds: float | None = None,
        key: str | None = None,
        decoder: Decoder = "soundfile",
    ) -> None:
        if decoder not in (known := typing.get_args(Decoder)):
            raise UsageError(f"There is no decoder {decoder!r}.", did_you_mean(decoder, known))
        numbers = isinstance(sample_rate, Real) and isinstance(seconds, Real | None)
        if not (numbers and sample_rate > 0 and (seconds is None or 1 <= seconds * sample_rate < math.inf)):
            given = f"{seconds!r} seconds at {sample_rate!r} Hz"
            raise DataError(f"Expected a positive length and sample rate, got {given}.")
        self.sample_rate, self.seconds, self.decoder = sample_rate, seconds, decoder
        path = os.path.abspath(source)
        entries = _read_folder(path, key) if os.path.isdir(path) else _read_manifest(path, key)
        self.files = tuple(file for file, *_ in entries)
        self.keys = tuple(name for _, _, name, _ in entries) if key is not None else None
        self.labels = tuple(sorted({label for _, label, *_ in entries}, key=_by_value))
        number = {label: index for index, label in enumerate(self.labels)}
        self.targets = tuple(number[label] for _, label, *_ in entries)
        self._source = path
        self._durations = np.array([seconds for *_, seconds in entries]) if entries[0][3] is not None else None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        read = read_fastest if self.decoder == "fastest" else read_audio
        wave_CT = read(self.files[index], self.sample_rate, mono=True, seconds=self.seconds)
        if self.seconds is not None:
            length = round(self.seconds * self.sample_rate)
            wave_CT = fit(wave_CT, length)
        if self.keys is None:
            return wave_CT, self.targets[index]
        return wave_CT, self.targets[index], self.keys[index]

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of each clip in samples at ``sample_rate``, (N,): that of ``folder[i][0]``, to a sample.

        They are read from the files' headers and cached, unless the manifest has a column ``duration`` in seconds,
        which is trusted. If it has an ``offset`` as well, durations are those of parts, but clips are whole files: then
        headers are read.

        Raises:
            DataError: a file is missing or damaged, or a duration in the manifest is not a number above 0.
        """
        if self.seconds is not None:
            return np.full(len(self), round(self.seconds * self.sample_rate), dtype=np.int64)
        if self._durations is None:
            return file_lengths(self.files, self.sample_rate)
        if not (valid_N := self._durations * self.sample_rate >= 0.5).all():
            number = int(np.argmin(valid_N)) + 1
            raise DataError(
                f"Entry {number} of the manifest {self._source} has no valid {DURATION}.",
                "Give seconds above 0, or remove the column: then headers are read.",
            )
        return np.rint(self._durations * self.sample_rate).astype(np.int64)


def _read_folder(path: str, key: str | None) -> list[Entry]:
    if key not in (None, PATH):
        raise DataError(f"{path} is a folder, where a clip has no {key!r}.", f"Use key={PATH!r}.")
    files = find_audio((path,))
    names = ["" if key is None else Path(os.path.relpath(file, path)).as_posix() for file in files]
    return [(file, os.path.basename(os.path.dirname(file)), name, None) for file, name in zip(files, names)]


def _read_manifest(path: str, key: str | None) -> list[Entry]:
    """Read the entries of CSV, TSV or JSON lines."""
    try:
        text = read_file(path).decode("utf-8-sig")
        rows = _json_rows(text) if path.lower().endswith((".json", ".jsonl")) else _csv_rows(text)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.", "Name a folder of audio or a manifest.") from None
    except RecursionError:
        raise DataError(f"{path} is not a valid manifest: it is nested too deeply.") from None
    except (ValueError, csv.Error) as error:
        raise DataError(
            f"{path} is not a valid manifest: {error}.", "Use CSV or TSV with a header, or JSON lines."
        ) from None
    if not rows:
        raise DataError(f"The manifest {path} lists no files.")
    path_column, label_column = (_first(rows[0], columns) for columns in (PATH_COLUMNS, LABEL_COLUMNS))
    if path_column is None:
        raise DataError(f"The manifest {path} has no column for paths.", f"Name one {' or '.join(PATH_COLUMNS)}.")
    for number, row in enumerate(rows, start=1):
        no_label = label_column is not None and row.get(label_column) is None
        if no_label or not row.get(path_column):
            column = label_column if no_label else path_column
            raise DataError(f"Entry {number} of the manifest {path} has no {column}.", "Add it or remove the entry.")
    key_column = path_column if key in (None, PATH) else key
    if number := next((number for number, row in enumerate(rows, start=1) if row.get(key_column) is None), 0):
        raise DataError(f"Entry {number} of the manifest {path} has no {key_column!r} to be its key.")
    has_durations = all(DURATION in row for row in rows) and not any(OFFSET in row for row in rows)
    base = os.path.dirname(path)
    return [
        (
            os.path.join(base, str(row[path_column])),
            str(row[label_column]) if label_column else "",
            str(row[key_column]),
            _seconds(row[DURATION]) if has_durations else None,
        )
        for row in rows
    ]


def _seconds(value: object) -> float:
    """Return a duration; NaN if it is not a finite number."""
    try:
        seconds = float(str(value))
    except ValueError:
        return math.nan
    return seconds if math.isfinite(seconds) else math.nan


def _by_value(label: str) -> tuple[bool, int, str]:
    """Return a sort key: integers by value, before everything else."""
    whole = label.removeprefix("-").isdecimal() and len(label) < 1000
    return not whole, int(label) if whole else 0, label


def _json_rows(text: str) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in _lines(text) if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is not a JSON object")
    return rows


def _csv_rows(text: str) -> list[dict[str, object]]:
    """Return the rows of CSV or TSV; raise ``ValueError`` if it is ambiguous where a field, or a row, ends."""
    delimiter = "\t" if "\t" in next(_lines(text), "") else ","
    reader = csv.DictReader(_lines(text), delimiter=delimiter, skipinitialspace=delimiter == ",", strict=True)
    reader.fieldnames = columns = [column.strip() for column in reader.fieldnames or ()]
    if twice := next((column for column in columns if column and columns.count(column) > 1), ""):
        raise ValueError(f"it has several columns {twice!r}")
    rows = list[dict[str, object]]()
    try:
        for row in reader:
            if any(row.pop(None, ())):
                raise ValueError(
                    f"entry {len(rows) + 1} has more fields than the header: one with a separator in it needs quotes"
                )
            if delimiter == "\t" and any({"\t", "\n"} <= set(value or "") for value in row.values()):
                raise ValueError(f"entry {len(rows) + 1} has a quote that ends on another line")
            rows.append(row)
    except csv.Error as error:
        raise ValueError(f"entry {len(rows) + 1} has a misplaced quote or separator: {error}") from None
    return rows


def _lines(text: str) -> Iterator[str]:
    """Yield lines with their line feeds; other line separators may be part of a path."""
    return iter(io.StringIO(text, newline=""))


def _first(row: dict[str, object], columns: Sequence[str]) -> str | None:
    return next((column for column in columns if column in row), None)
