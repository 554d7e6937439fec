"""``audioaug doctor``: which dependencies are installed, which of them work, and facts on this machine.

With ``--dataset`` it examines a dataset instead.

A dependency "works" only if it has just been run: its check is in ``CHECKS``. A failure becomes a sentence with the
next step.
"""

import importlib
import io
import platform
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from types import FunctionType
from typing import TYPE_CHECKING, Any

import click

from audioaug.command import run
from audioaug.compilers import c_compiler, missing_for_c
from audioaug.errors import AudioaugError, UsageError, first_line
from audioaug.records import HostFacts, to_json
from audioaug.units import format_bytes
from audioaug.writing import is_terminal

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Dependency:
    """A package that audioaug can use.

    ``consequence``: what does not work while it is missing or broken. ``gpu_only``: used on NVIDIA GPUs only.
    """

    name: str
    consequence: str
    required: bool = False
    needs: str = ""
    gpu_only: bool = False

    @property
    def module(self) -> str:
        """The name to import."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Finding:
    """The result of one check: a version (empty if it is not installed) and a sentence."""

    name: str
    version: str
    ok: bool
    sentence: str
    required: bool = False


@dataclass(frozen=True)
class Checkup:
    """All findings, and facts about the machine if they are available. ``ok``: every required dependency works."""

    ok: bool
    findings: tuple[Finding, ...]
    host: HostFacts | None


NO_TORCH_AUDIOMENTATIONS = "the torch-audiomentations engine is unavailable, all else runs"
WORKING_PAIR = "install torch 2.11.0 with torchaudio 2.11.0"

DEPENDENCIES = (
    Dependency("torch", "nothing runs", required=True),
    Dependency("audiomentations", "nothing runs", required=True),
    Dependency("soundfile", "no audio file can be read", required=True),
    Dependency("soxr", "no audio can be resampled", required=True),
    Dependency("numba", "filters, noise and other ops are about 3x slower on a CPU"),
    Dependency("triton", "filters, noise and fades need about 4x more operations on the GPU", gpu_only=True),
    Dependency("torchaudio", NO_TORCH_AUDIOMENTATIONS, needs="torch"),
    Dependency("torch-audiomentations", NO_TORCH_AUDIOMENTATIONS, needs="torchaudio"),
    Dependency("torchcodec", "Hugging Face's datasets.Audio cannot decode files, soundfile reads them instead"),
    Dependency("fast-mp3-augment", "Mp3Compression with its default backend cannot run"),
    Dependency("pyroomacoustics", "RoomSimulator cannot run"),
    Dependency("numpy-audio-limiter", "Limiter cannot run"),
    Dependency("loudness", "LoudnessNormalization cannot run"),
)


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
    return f"wrote and read {len(soundfile.read(file)[0])} samples of FLAC; {_codecs()}"


def _codecs() -> str:
    """Return which codecs the op ``Codec`` has here."""
    from audioaug.audio.codecs import CODECS, why_missing

    missing = [encoding.title for name, encoding in CODECS.items() if why_missing(name)]
    return f"Codec lacks {', '.join(missing)}" if missing else f"Codec has all {len(CODECS)} codecs"


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
        build_cpu(Chain([getattr(ops, name)(p=1.0, **arguments)], sample_rate=16000))(clip, key=0)
        return f"ran {name} on a clip"

    return run


def _run_torch_audiomentations() -> str:
    from audioaug import Chain, build_device, ops

    build_device(Chain([ops.Gain(p=1.0)], sample_rate=16000), engine="torch-audiomentations")(_clips("cpu"))
    return "ran Gain on a batch"


def _run_loop() -> str:
    from audioaug.dsp.dispatch import numba_compiles

    if not numba_compiles():
        raise UsageError("NUMBA_DISABLE_JIT is set, with which numba compiles nothing.", "Unset it.")
    return _beside_torch("cpu", "compiled loop")


def _run_kernel() -> str:
    from audioaug.dsp.dispatch import triton_compiles

    if not triton_compiles():
        raise UsageError("TRITON_INTERPRET is set, with which Triton compiles nothing.", "Unset it.")
    return _beside_torch("cuda", "kernel")


def _beside_torch(device: str, what: str) -> str:
    """Run a filter as it runs fastest on a device and as torch operations; raise if the results differ."""
    import torch

    from audioaug import Chain, ops
    from audioaug.dsp import dispatch
    from audioaug.engine.device import run_once
    from audioaug.engine.proof import EXAMPLES, SAMPLES, check

    with dispatch.backend("auto"):
        if dispatch.implementation_for(torch.empty(0, device=device)) == "torch":
            raise RuntimeError(f"no {what} runs on {device}")
        chain, shape = Chain([ops.LowPassFilter(p=1.0)], sample_rate=16000), (EXAMPLES, 1, SAMPLES)
        found = check(chain, shape, torch.device(device), run_once)
    if found.wrong or not found.ran:
        raise AssertionError("; ".join(f"{name} {reason}" for name, reason in found.wrong) or "the filter does not run")
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
    "torch-audiomentations": _run_torch_audiomentations,
    "fast-mp3-augment": _run_op("Mp3Compression"),
    "pyroomacoustics": _run_op("RoomSimulator"),
    "numpy-audio-limiter": _run_op("Limiter"),
    "loudness": _run_op("LoudnessNormalization"),
}
"""What each dependency has to run before it is reported to work; it returns what that was."""


def probe(
    load: Callable[[str], object] = importlib.import_module, checks: Mapping[str, Callable[[], str]] = CHECKS
) -> tuple[Finding, ...]:
    """Check every dependency that audioaug can use on this machine, required or not; nothing is raised.

    Args:
        load: imports a module by its name; raises if that fails.
        checks: what each dependency has to run; one without a check is only imported.
    """
    findings: dict[str, Finding] = {}
    for dependency in DEPENDENCIES:
        name = dependency.name
        if dependency.gpu_only and not _has_gpu():
            continue
        needed = findings.get(dependency.needs)
        if needed is not None and not needed.ok:
            sentence = f"Needs {dependency.needs}; until that works, {dependency.consequence}."
            findings[name] = Finding(name, _version(name), False, sentence, dependency.required)
        else:
            findings[name] = _check(dependency, load, checks.get(name))
    return tuple(findings.values())


def _compiler() -> Finding:
    """Look for a C compiler and Python's headers, which torch.compile and Triton need."""
    missing = missing_for_c()
    if not missing:
        return Finding("C compiler", "", True, f"Found {c_compiler()}.")
    consequence = "the torch_compile engine and, on an NVIDIA GPU, Triton's kernels are unavailable"
    return Finding("C compiler", "", False, f"{missing} Until then {consequence}.")


def _check_loader() -> Finding:
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
        return Finding("Loader", _version("audioaug"), False, f"Does not work: {_message(error)}.", required=True)


def _check_internals() -> Finding:
    """List the private parts of libraries that audioaug uses and the installed versions lack."""
    from torch.utils.data import DataLoader

    from audioaug.internals import INTERNALS, end_workers, missing_internals

    loader: DataLoader[int] = DataLoader(range(1), num_workers=1)  # type: ignore[arg-type]
    try:
        iterator = iter(loader)
    except Exception as error:  # no worker can start, which is reported by another finding
        return Finding("internals", _version("torch"), False, f"Could not be checked: {_message(error)}.")
    missing = missing_internals(iterator)
    end_workers(iterator)
    consequences = " ".join(f"{each.name} is missing: {each.fallback}." for each in missing)
    sentence = consequences or f"All {len(INTERNALS)} private parts of libraries that audioaug uses exist."
    return Finding("internals", _version("torch"), not missing, sentence)


def _has_gpu() -> bool:
    try:
        import torch
    except Exception:  # which is reported by another finding
        return False
    return torch.cuda.is_available()


def check_up(load: Callable[[str], object] = importlib.import_module) -> Checkup:
    """Check all dependencies and, if torch works, the Loader, private parts and the machine."""
    findings = (*probe(load), _compiler())
    host = None
    if next(finding for finding in findings if finding.name == "torch").ok:
        findings = (*findings, _check_loader(), _check_internals())
        host = _machine_facts()
    return Checkup(all(finding.ok for finding in findings if finding.required), findings, host)


def _check(dependency: Dependency, load: Callable[[str], object], check: Callable[[], str] | None) -> Finding:
    name, version = dependency.name, _version(dependency.name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(dependency.module)
            sentence = f"Works: {check()}." if check else "Can be imported."
    except Exception as error:  # a broken build can raise anything: OSError, RuntimeError, AttributeError ...
        return Finding(name, version, False, _why_not(dependency, error), dependency.required)
    return Finding(name, version, True, sentence, dependency.required)


def _why_not(dependency: Dependency, error: Exception) -> str:
    name, consequence = dependency.name, dependency.consequence
    if isinstance(error, ModuleNotFoundError) and error.name == dependency.module:
        return f"Not installed: pip install {name}. Until then {consequence}."
    if isinstance(error, AudioaugError) and error.next_step:
        return f"Does not work: {error} Until then {consequence}."
    message = _message(error)
    if name == "torchaudio":
        torch_version = _version("torch") or "?"
        return f"Does not work with torch {torch_version} ({message}): {WORKING_PAIR}. Until then {consequence}."
    return f"Does not work ({message}): pip install --force-reinstall {name}. Until then {consequence}."


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _machine_facts() -> HostFacts:
    import torch

    from audioaug.measure import host_facts

    if torch.cuda.is_available():
        return host_facts(torch.device("cuda", torch.cuda.current_device()))
    return host_facts(torch.device("mps" if torch.backends.mps.is_available() else "cpu"))


def _machine_rows(host: HostFacts) -> list[tuple[str, str]]:
    """Return the names and formatted values of the known facts about the machine."""
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

    dependencies = Table("name", "version", "", "result", box=SIMPLE, title="Dependencies", title_justify="left")
    for finding in checkup.findings:
        colour = "green" if finding.ok else "red" if finding.required else "yellow"
        dependencies.add_row(finding.name, finding.version, f"[{colour}]{_mark(finding)}[/]", escape(finding.sentence))
    machine = Table("fact", "value", box=SIMPLE, title="Machine", title_justify="left")
    for name, value in _machine_rows(checkup.host) if checkup.host is not None else ():
        machine.add_row(name, value)
    console = Console()
    console.print(dependencies)
    console.print(machine)


def _show_plainly(checkup: Checkup) -> None:
    for finding in checkup.findings:
        click.echo(f"{finding.name:22} {finding.version or '-':14} {_mark(finding):9} {finding.sentence}")
    click.echo()
    for name, value in _machine_rows(checkup.host) if checkup.host is not None else ():
        click.echo(f"{name:22} {value}")


def _self_test() -> bool:
    """Test all compiled implementations on the GPU, or the CPU without one; print them, and return whether all work."""
    import torch

    from audioaug.dsp.dispatch import implementation_for
    from audioaug.verify.self_test import self_test

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = implementation_for(torch.empty(0, device=device))
    if kind == "torch":
        click.echo(f"No compiled implementation runs on {device}: torch operations do.")
        return True
    tested = self_test(
        device, lambda op: click.echo(f"\r{op:30}", nl=False, err=True) if is_terminal(sys.stderr) else None
    )
    for each in tested:
        result = f"FAILED: it {each.wrong}" if each.wrong else "same as torch"
        where = "all, where clips are padded" if "Identity" in each.ops else ", ".join(each.ops)
        click.echo(f"{each.name:34} {kind:7} {result:14} in {where}")
    failed = sum(bool(each.wrong) for each in tested)
    click.echo(f"{len(tested) - failed} of {len(tested)} compiled implementations work on {device}.")
    return not failed


def _examine_dataset(where: str) -> bool:
    """Print whether the dataset at ``FILE.py[:NAME]`` repeats itself; return whether it does not."""
    from audioaug.advise.model_file import load_module, named, split_name
    from audioaug.dataset_check import find_repeats

    path, name = split_name(where)
    found = named(load_module(path), path, name or "dataset")
    observations = find_repeats(found() if isinstance(found, type | FunctionType) else found)
    for each in observations:
        click.echo(f"{each.verdict:8} {each.sentence}")
    for next_step in dict.fromkeys(each.next_step for each in observations if each.next_step):
        click.echo(next_step)
    return not any(each.verdict == "repeats" for each in observations)


@click.command(short_help="List what is installed, and what works.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--self-test", is_flag=True, help="Instead, compare each compiled loop or kernel with torch operations.")
@click.option(
    "--dataset",
    metavar="FILE.py[:NAME]",
    help="Instead, look for examples and random numbers of a dataset that repeat across workers and epochs.",
)
def main(as_json: bool, self_test: bool, dataset: str | None) -> None:
    """List what is installed, what works, and what this machine offers. Exit code 0 if audioaug can run."""
    if dataset is not None:
        sys.exit(0 if _examine_dataset(dataset) else 1)
    if self_test:
        sys.exit(0 if _self_test() else 1)
    checkup = check_up()
    if as_json:
        click.echo(to_json(checkup))
    elif is_terminal(sys.stdout):
        _show(checkup)
    else:
        _show_plainly(checkup)
    sys.exit(0 if checkup.ok else 1)


if __name__ == "__main__":
    sys.exit(run(main, None))
