"""``python -m audioaug.doctor``: what is installed, what works together, and what this machine may use.

A part "works" only if it has just been run: the check of each part is in ``CHECKS``. One that fails becomes a sentence
with the next step.
"""

import importlib
import io
import platform
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from audioaug.records import HostFacts, to_json
from audioaug.units import format_bytes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Part:
    """A package that audioaug can use. ``otherwise``: what is lost while it is missing or broken.

    ``on_gpu``: it is used on an NVIDIA GPU only.
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


NO_TORCH_AUDIOMENTATIONS = "the torch-audiomentations engine is unavailable, all else runs"
WORKING_PAIR = "install torch 2.11.0 with torchaudio 2.11.0"

PARTS = (
    Part("torch", "nothing runs", required=True),
    Part("audiomentations", "nothing runs", required=True),
    Part("soundfile", "no audio file can be read", required=True),
    Part("soxr", "no audio can be resampled", required=True),
    Part("numba", "filters, noise and other ops take some three times as long on a CPU"),
    Part("triton", "filters, noise and fades are some four times as many operations on the GPU", on_gpu=True),
    Part("torchaudio", NO_TORCH_AUDIOMENTATIONS, needs="torch"),
    Part("torch-audiomentations", NO_TORCH_AUDIOMENTATIONS, needs="torchaudio"),
    Part("torchcodec", "Hugging Face's datasets.Audio cannot decode files, soundfile reads them instead"),
    Part("fast-mp3-augment", "Mp3Compression with its default backend cannot run"),
    Part("pyroomacoustics", "RoomSimulator cannot run"),
    Part("numpy-audio-limiter", "Limiter cannot run"),
    Part("loudness", "LoudnessNormalization cannot run"),
)

COMPILERS = ("cc", "gcc", "clang")


def _run_torch() -> str:
    import torch

    torch.fft.rfft(torch.ones(64))
    return "ran an FFT"


def _run_soundfile() -> str:
    import numpy as np
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.zeros(160), 16000, format="FLAC")
    file.seek(0)
    return f"wrote and read {len(soundfile.read(file)[0])} samples of FLAC"


def _run_soxr() -> str:
    import numpy as np

    from audioaug.audio.files import resample

    return f"resampled 160 samples to {resample(np.zeros((1, 160), np.float32), 16000, 8000).shape[1]}"


def _run_op(name: str, **arguments: Any) -> Callable[[], str]:
    """Return a check that runs the reference of one op on a clip of 0.5 s."""

    def run() -> str:
        import numpy as np

        from audioaug import Chain, build_cpu, ops

        clip = np.sin(np.arange(8000, dtype=np.float32) / 10)
        build_cpu(Chain([getattr(ops, name)(p=1.0, **arguments)], sample_rate=16000))(clip, index=0)
        return f"ran {name} on a clip"

    return run


def _run_stock() -> str:
    from audioaug import Chain, build_device, ops

    build_device(Chain([ops.Gain(p=1.0)], sample_rate=16000), engine="torch-audiomentations")(_clips("cpu"))
    return "ran Gain on a batch"


def _run_loop() -> str:
    return _beside_torch("cpu", "compiled loop")


def _run_kernel() -> str:
    return _beside_torch("cuda", "kernel")


def _beside_torch(device: str, what: str) -> str:
    """Run a filter as it runs fastest on a device and as torch operations; raise if the results differ."""
    import torch

    from audioaug import Chain, build_device, ops
    from audioaug.dsp import dispatch

    module, clips = build_device(Chain([ops.LowPassFilter(p=1.0)], sample_rate=16000)).to(device), _clips(device)
    with dispatch.backend("auto"):
        if dispatch.implementation_for(clips) == "torch":
            raise RuntimeError(f"no {what} runs on {device}")
        fast = module(clips, index=[0, 1])
    with dispatch.backend("torch"):
        by_torch = module(clips, index=[0, 1])
    torch.testing.assert_close(fast, by_torch, rtol=0, atol=1e-4)
    return f"ran one {what} beside its torch definition: they agree"


def _clips(device: str) -> "torch.Tensor":
    import torch

    return torch.sin(torch.arange(16000, device=device) / 10).view(2, 1, 8000)


CHECKS: Mapping[str, Callable[[], str]] = {
    "torch": _run_torch,
    "audiomentations": _run_op("Gain"),
    "soundfile": _run_soundfile,
    "soxr": _run_soxr,
    "numba": _run_loop,
    "triton": _run_kernel,
    "torch-audiomentations": _run_stock,
    "fast-mp3-augment": _run_op("Mp3Compression"),
    "pyroomacoustics": _run_op("RoomSimulator"),
    "numpy-audio-limiter": _run_op("Limiter"),
    "loudness": _run_op("LoudnessNormalization"),
}
"""What is run of a part before it is said to work; the sentence says what that was."""


def probe(
    load: Callable[[str], object] = importlib.import_module, checks: Mapping[str, Callable[[], str]] = CHECKS
) -> tuple[Finding, ...]:
    """Try every part that audioaug can use on this machine, required or not; nothing is raised.

    Args:
        load: imports a module by its name, and raises when that cannot be done.
        checks: what to run of each part; a part without one is only imported.
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
            findings[part.name] = _try(part, load, checks.get(part.name))
    return tuple(findings.values())


def _compiler() -> Finding:
    """Return whether there is a C compiler, which torch.compile and Triton need."""
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found:
        return Finding("C compiler", "", True, f"Found {found}.")
    lost = "the torch_compile engine and, on an NVIDIA GPU, Triton's kernels are unavailable"
    return Finding("C compiler", "", False, f"Not found ({', '.join(COMPILERS)}): install gcc; until then {lost}.")


def _run_loader() -> Finding:
    """Send batches through a Loader with two workers, as training does."""
    try:
        import torch

        from audioaug import Chain, Loader, Plan, ops

        chain = Chain([ops.Gain(p=1.0), ops.PolarityInversion(p=1.0)], sample_rate=16000)
        loader = Loader([torch.ones(1, 800)] * 8, chain, Plan(cut=1, num_workers=2), batch_size=2, device="cpu")
        count = sum(batch.shape == (2, 1, 800) for batch in loader)
        sentence = f"Works: 2 workers sent {count} batches of 2 clips."
        return Finding("Loader", _version("audioaug"), count == 4, sentence, required=True)
    except Exception as error:
        return Finding("Loader", _version("audioaug"), False, f"Does not work: {_reason(error)}.", required=True)


def _look_at_internals() -> Finding:
    """Say which private parts of torch and Python, that audioaug uses, the installed versions lack."""
    from torch.utils.data import DataLoader

    from audioaug.internals import INTERNALS, end_workers, missing_internals

    loader: DataLoader[int] = DataLoader(range(1), num_workers=1)  # type: ignore[arg-type]
    try:
        iterator = iter(loader)
    except Exception as error:  # no worker can start, which is a finding of its own
        return Finding("internals", _version("torch"), False, f"Could not be checked: {_reason(error)}.")
    missing = missing_internals(iterator, loader)
    end_workers(iterator)
    lost = " ".join(f"{each.name} is missing: {each.fallback}." for each in missing)
    sentence = lost or f"All {len(INTERNALS)} private parts of libraries that audioaug uses exist."
    return Finding("internals", _version("torch"), not missing, sentence)


def _has_gpu() -> bool:
    try:
        import torch
    except Exception:  # which is a finding of its own
        return False
    return torch.cuda.is_available()


def check_up(load: Callable[[str], object] = importlib.import_module) -> Checkup:
    """Probe all parts and, where torch works, look at the machine."""
    findings = (*probe(load), _compiler())
    host = None
    if next(finding for finding in findings if finding.name == "torch").ok:
        findings = (*findings, _run_loader(), _look_at_internals())
        host = _look_at_machine()
    return Checkup(all(finding.ok for finding in findings if finding.required), findings, host)


def _try(part: Part, load: Callable[[str], object], check: Callable[[], str] | None) -> Finding:
    version = _version(part.name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(part.module)
            sentence = f"Works: {check()}." if check else "Can be imported."
    except Exception as error:  # a broken build can raise anything: OSError, RuntimeError, AttributeError ...
        return Finding(part.name, version, False, _why_not(part, version, error), part.required)
    return Finding(part.name, version, True, sentence, part.required)


def _why_not(part: Part, version: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == part.module:
        return f"Not installed: pip install {part.name}; until then {part.otherwise}."
    reason = _reason(error)
    if part.name == "torchaudio":
        torch_version = _version("torch") or "?"
        return f"Does not work with torch {torch_version} ({reason}): {WORKING_PAIR}; until then {part.otherwise}."
    again = f"pip install --force-reinstall {part.name}"
    return f"Is installed but does not work ({reason}): {again}; until then {part.otherwise}."


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(".: ")


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
