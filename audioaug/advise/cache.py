"""Cache: the stages and screening results of earlier runs, by a fingerprint of everything that they depend on."""

import hashlib
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from audioaug.advise.training_job import TrainingJob
from audioaug.errors import LIBRARIES, AudioaugError
from audioaug.records import Report, read_record, to_json
from audioaug.units import Seconds
from audioaug.writing import cache_file, keep_in_cache

CHANGING = ("ram_available_bytes", "effective_cores")
"""Host facts that differ between runs on the same machine."""


def fingerprint(job: TrainingJob, report: Report, asked: Any) -> str | None:
    """Return a hash of everything that the stages depend on; ``None`` if the model file cannot be read.

    That is the chain, the model file, what it imports from its folder, the model's structure, the data's name, size and
    shape, the machine and its versions, and the options (``asked``).
    """
    host = {name: value for name, value in msgspec.to_builtins(report.host).items() if name not in CHANGING}
    shapes = [(name, tuple(each.shape), str(each.dtype)) for name, each in job.model.named_parameters()]
    try:
        sources = [hashlib.sha256(file.read_bytes()).hexdigest() for file in _files_of(Path(job.path))]
    except OSError:
        return None
    facts = (report.chain, report.workload, host, str(job.model), shapes, sources, asked)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def _files_of(model_file: Path) -> list[Path]:
    """Return a model file, and the files of imported modules in its folder and below; not those of libraries there."""
    names = [getattr(module, "__dict__", {}).get("__file__") for module in tuple(sys.modules.values())]
    imported = {Path(name).resolve() for name in names if isinstance(name, str) and not LIBRARIES.match(name)}
    folder = model_file.resolve().parent
    return [model_file, *sorted(file for file in imported if file.is_relative_to(folder) and file.is_file())]


class Cache:
    """The cached results for one fingerprint."""

    def __init__(self, fingerprint: str | None) -> None:
        self.path = cache_file(f"survey-{fingerprint}.json") if fingerprint else None

    def load(self) -> tuple[Report, Seconds] | None:
        """Return the cached report and its age; ``None`` if there is none or it cannot be read."""
        if self.path is not None:
            with suppress(OSError, AudioaugError):
                return read_record(self.path, Report), max(0.0, time.time() - self.path.stat().st_mtime)
        return None

    def save(self, report: Report) -> None:
        """Save the stages and candidates measured so far; failures are ignored."""
        keep_in_cache(to_json(replace(report, notices=(), complete=False)), self.path)
