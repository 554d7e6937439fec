"""``python -m audioaug.doctor``: what is installed, what works together, and what this machine may use.

Everything is found out by trying: each part is imported, and one that fails becomes a sentence with the next step.
"""

import importlib
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import metadata

import click

from audioaug.records import HostFacts, to_json
from audioaug.units import format_bytes


@dataclass(frozen=True)
class Part:
    """Something audioaug can use. ``otherwise``: what to know when it is not there or does not work.

    ``on_gpu``: it is of use on an NVIDIA GPU only.
    """

    name: str
    otherwise: str
    required: bool = False
    needs: str = ""
    on_gpu: bool = False

    @property
    def module(self) -> str:
        """The name to import it by."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Finding:
    """What was found out about one part: its version (empty when it is not installed) and a sentence about it."""

    name: str
    version: str
    ok: bool
    sentence: str
    required: bool = False


@dataclass(frozen=True)
class Checkup:
    """All findings, and the machine's facts where they could be had. ``ok``: every required part works."""

    ok: bool
    findings: tuple[Finding, ...]
    host: HostFacts | None


STOCK_ENGINE = "the torch-audiomentations engine is unavailable, all else runs"
WORKING_PAIR = "install torch 2.11.0 with torchaudio 2.11.0"

PARTS = (
    Part("torch", "nothing runs", required=True),
    Part("audiomentations", "nothing runs", required=True),
    Part("soundfile", "no audio file can be read", required=True),
    Part("soxr", "no audio can be resampled", required=True),
    Part("numba", "filters, noise and other ops take some three times as long on a CPU"),
    Part("triton", "filters, noise and fades are some four times as many operations on the GPU", on_gpu=True),
    Part("torchaudio", STOCK_ENGINE, needs="torch"),
    Part("torch-audiomentations", STOCK_ENGINE, needs="torchaudio"),
    Part("fast-mp3-augment", "Mp3Compression with its default backend cannot run"),
    Part("pyroomacoustics", "RoomSimulator cannot run"),
    Part("numpy-audio-limiter", "Limiter cannot run"),
    Part("loudness", "LoudnessNormalization cannot run"),
)


def probe(load: Callable[[str], object] = importlib.import_module) -> tuple[Finding, ...]:
    """Try every part that audioaug can use on this machine, required or not; nothing is raised.

    Args:
        load: imports a module by its name, and raises when that cannot be done.
    """
    findings: dict[str, Finding] = {}
    for part in PARTS:
        if part.on_gpu and not _has_gpu():
            continue
        needed = findings.get(part.needs)
        if needed is not None and not needed.ok:
            sentence = f"Waits for {part.needs}; until then {part.otherwise}."
            findings[part.name] = Finding(part.name, _version(part.name), False, sentence, part.required)
        else:
            findings[part.name] = _try(part, load)
    return tuple(findings.values())


def _has_gpu() -> bool:
    try:
        import torch
    except Exception:  # which is a finding of its own
        return False
    return torch.cuda.is_available()


def check_up(load: Callable[[str], object] = importlib.import_module) -> Checkup:
    """Probe all parts and, where torch works, look at the machine."""
    findings = probe(load)
    works = {finding.name for finding in findings if finding.ok}
    host = _look_at_machine() if "torch" in works else None
    return Checkup(all(finding.ok for finding in findings if finding.required), findings, host)


def _try(part: Part, load: Callable[[str], object]) -> Finding:
    version = _version(part.name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(part.module)
    except Exception as error:  # a broken build can raise anything: OSError, RuntimeError, AttributeError ...
        return Finding(part.name, version, False, _why_not(part, version, error), part.required)
    return Finding(part.name, version, True, "Works.", part.required)


def _why_not(part: Part, version: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == part.module:
        return f"Not installed: pip install {part.name}; until then {part.otherwise}."
    reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".: ")
    if part.name == "torchaudio":
        torch_version = _version("torch") or "?"
        return f"Does not work with torch {torch_version} ({reason}): {WORKING_PAIR}; until then {part.otherwise}."
    again = f"pip install --force-reinstall {part.name}"
    return f"Is installed but cannot be imported ({reason}): {again}; until then {part.otherwise}."


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _look_at_machine() -> HostFacts:
    import torch

    from audioaug.measure import host_facts

    if torch.cuda.is_available():
        return host_facts(torch.device("cuda", torch.cuda.current_device()))
    return host_facts(torch.device("mps" if torch.backends.mps.is_available() else "cpu"))


def _machine_rows(host: HostFacts) -> list[tuple[str, str]]:
    """Return the machine's facts for people; what is not there is left out."""
    rows = []
    for field in fields(host):
        value = getattr(host, field.name)
        name = field.name.replace("_", " ").replace("bytes", "").strip()
        if field.name == "versions" or value is None:
            continue
        if field.name.endswith("_bytes"):
            value = format_bytes(value)
        rows.append((name, f"{value:g}" if isinstance(value, float) else str(value)))
    python = host.versions.get("python", platform.python_version())
    return [*rows, ("python", python)]


def _mark(finding: Finding) -> str:
    return "ok" if finding.ok else "broken" if finding.version else "missing"


def _show(checkup: Checkup) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    parts = Table("part", "version", "", "what it means", box=SIMPLE, title="Parts", title_justify="left")
    for finding in checkup.findings:
        colour = "green" if finding.ok else "red" if finding.required else "yellow"
        parts.add_row(finding.name, finding.version, f"[{colour}]{_mark(finding)}[/]", escape(finding.sentence))
    machine = Table("fact", "value", box=SIMPLE, title="Machine", title_justify="left")
    for name, value in _machine_rows(checkup.host) if checkup.host is not None else ():
        machine.add_row(name, value)
    console = Console()
    console.print(parts)
    console.print(machine)


def _show_plainly(checkup: Checkup) -> None:
    for finding in checkup.findings:
        click.echo(f"{finding.name:22} {finding.version or '-':14} {_mark(finding):9} {finding.sentence}")
    click.echo()
    for name, value in _machine_rows(checkup.host) if checkup.host is not None else ():
        click.echo(f"{name:22} {value}")


@click.command(short_help="List what is installed, and what works.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def main(as_json: bool) -> None:
    """Say what is installed, what works together, and what this machine may use. Exit 0 when audioaug can run."""
    checkup = check_up()
    if as_json:
        click.echo(to_json(checkup))
    elif sys.stdout.isatty():
        _show(checkup)
    else:
        _show_plainly(checkup)
    sys.exit(0 if checkup.ok else 1)


if __name__ == "__main__":
    main()
