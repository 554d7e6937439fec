"""The doctor: each broken dependency becomes a sentence with the next step, never a traceback."""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from audioaug import doctor, internals, ops
from audioaug.compilers import COMPILERS
from audioaug.doctor import CHECKS, DEPENDENCIES, Checkup, Finding, check_up, probe
from audioaug.dsp import dispatch
from audioaug.internals import Internal
from audioaug.loader.worker import Collate


def loads_all_but(failures: dict[str, Exception]) -> Callable[[str], object]:
    def load(name: str) -> object:
        if name in failures:
            raise failures[name]
        return object()

    return load


def missing(name: str) -> Exception:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def found(failures: dict[str, Exception]) -> dict[str, Finding]:
    return {finding.name: finding for finding in probe(loads_all_but(failures), {})}


@pytest.mark.parametrize("gpu", [False, True])
def test_every_dependency_that_loads_is_ok(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_has_gpu", lambda: gpu)
    findings = found({})
    assert list(findings) == [each.name for each in DEPENDENCIES if gpu or each.name != "triton"]
    assert all(finding.ok for finding in findings.values())


def test_gpu_only_dependency_is_checked_only_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_has_gpu", lambda: True)
    finding = found({"triton": missing("triton")})["triton"]
    assert finding.sentence.startswith("Not installed: pip install triton. Until then filters, noise and fades")
    assert check_up(loads_all_but({"triton": missing("triton")})).ok
    monkeypatch.setattr(doctor, "_has_gpu", lambda: False)
    assert "triton" not in found({"triton": missing("triton")})


def test_incompatible_torchaudio_disables_only_its_engine() -> None:
    findings = found({"torchaudio": OSError("undefined symbol: _ZN3c10\nmore\nlines")})
    assert findings["torchaudio"].sentence.endswith(
        "(OSError: undefined symbol: _ZN3c10): install torch 2.11.0 with torchaudio 2.11.0. "
        "Until then the torch-audiomentations engine is unavailable, all else runs."
    )
    assert findings["torch-audiomentations"].sentence.startswith("Needs torchaudio;")
    assert {name for name, finding in findings.items() if not finding.ok} == {"torchaudio", "torch-audiomentations"}
    assert check_up(loads_all_but({"torchaudio": OSError("x")})).ok


def test_missing_package_is_named() -> None:
    finding = found({"fast_mp3_augment": missing("fast_mp3_augment")})["fast-mp3-augment"]
    assert "pip install fast-mp3-augment" in finding.sentence and "Mp3Compression" in finding.sentence


def test_missing_codecs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._run_soundfile() == "wrote and read 160 samples of FLAC; Codec has all 7 codecs"
    monkeypatch.setattr("audioaug.audio.codecs.why_missing", lambda name: "none." * (name in ("mp3", "opus")))
    assert doctor._run_soundfile().endswith("of FLAC; Codec lacks MP3, Opus")


def test_missing_indirect_dependency_is_named() -> None:
    finding = found({"audiomentations": missing("librosa")})["audiomentations"]
    assert finding.sentence.startswith("Does not work (") and "librosa" in finding.sentence


@pytest.mark.parametrize("part", [part for part in DEPENDENCIES if part.required], ids=lambda part: part.name)
def test_each_required_dependency_is_required(part: doctor.Dependency) -> None:
    checkup = check_up(loads_all_but({part.module: missing(part.module)}))
    assert not checkup.ok
    assert checkup.host is None or part.name != "torch"


def test_working_dependencies_have_been_run() -> None:
    findings = {finding.name: finding for finding in check_up().findings}
    for name in {"torch", "audiomentations", "soundfile", "soxr"} | {"Loader"}:
        assert findings[name].ok and findings[name].sentence.startswith("Works: "), findings[name]
    assert findings["Loader"].sentence == "Works: 2 workers sent 4 batches of 2 clips."
    assert set(CHECKS) <= {part.name for part in DEPENDENCIES}


def test_numba_that_may_not_compile_is_not_reinstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audioaug.dsp.dispatch.numba_compiles", lambda: False)
    finding = {each.name: each for each in check_up().findings}["numba"]
    assert not finding.ok and finding.sentence == (
        "Does not work: NUMBA_DISABLE_JIT is set, with which numba compiles nothing. Unset it. Until then filters, "
        "noise and other ops are about 3x slower on a CPU."
    )


def test_dependency_without_check_is_only_importable() -> None:
    [torch_finding, *_] = probe(loads_all_but({}), {})
    assert torch_finding.sentence == "Can be imported."


def test_dependency_that_fails_its_check_is_broken() -> None:
    def fails() -> str:
        raise OSError("no backend for FLAC")

    findings = {finding.name: finding for finding in probe(loads_all_but({}), {"soundfile": fails})}
    assert not findings["soundfile"].ok
    assert "Does not work (OSError: no backend for FLAC)" in findings["soundfile"].sentence


@pytest.mark.parametrize("wrong", [0.9, float("nan")])
def test_wrong_compiled_loop_is_detected(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    filtered = ops.LowPassFilter.batched

    def planted(self: ops.LowPassFilter, x_BCT: torch.Tensor, *others: Any) -> torch.Tensor:
        return filtered(self, x_BCT, *others) * (wrong if dispatch.implementation_for(x_BCT) == "loop" else 1.0)

    monkeypatch.setattr(ops.LowPassFilter, "batched", planted)
    monkeypatch.setattr(dispatch, "_off", set())  # what is switched off is for this test only
    with pytest.raises(AssertionError):
        CHECKS["numba"]()


def test_failing_loader_is_one_sentence_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("'Tensor' object has no attribute 'has_names'")

    monkeypatch.setattr(Collate, "__call__", broken)
    result = CliRunner().invoke(doctor.main, ["--json"])
    [finding] = [part for part in json.loads(result.output)["findings"] if part["name"] == "Loader"]
    assert result.exit_code == 1 and not finding["ok"]
    assert finding["sentence"].startswith("Does not work: AttributeError") and "\n" not in finding["sentence"]


def test_worker_that_cannot_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(torch.utils.data.DataLoader, "__iter__", refused)
    for finding in (doctor._check_loader(), doctor._check_internals()):
        assert not finding.ok and "Function not implemented" in finding.sentence


def test_disabled_loop_is_not_reported_to_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dispatch.FASTEST, "cpu", "torch")
    with pytest.raises(RuntimeError, match="no compiled loop runs on cpu"):
        CHECKS["numba"]()


def test_missing_private_part_states_the_consequence(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Internal("torch.secret", "does a thing", "batches are not counted", lambda _: False)
    monkeypatch.setattr(internals, "INTERNALS", (lost,))
    assert doctor._check_internals().sentence == "torch.secret is missing: batches are not counted."


def test_missing_c_compiler_states_the_consequence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    headers, found = Path(sysconfig.get_path("include"), "Python.h"), doctor._compiler()
    assert found.ok == (headers.is_file() and any(map(shutil.which, COMPILERS)))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    finding = doctor._compiler()
    assert not finding.ok and "install gcc" in finding.sentence and "torch_compile" in finding.sentence
    monkeypatch.setenv("CC", "ccache gcc")  # as Triton would call it
    assert doctor._compiler().sentence.startswith("CC is 'ccache gcc', which is not a program: unset it, or name one.")


def test_missing_headers_of_python_state_the_consequence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "gcc").write_text("#!/bin/sh\n")
    (tmp_path / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    finding = doctor._compiler()
    assert not finding.ok and finding.sentence.startswith(f"{tmp_path}/Python.h is missing: install python3-dev")
    (tmp_path / "Python.h").touch()
    assert doctor._compiler().sentence == f"Found {tmp_path}/gcc."


def fake(checkup: Checkup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_up", lambda: checkup)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_broken_required_dependency_has_exit_code_1(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fake(Checkup(False, (Finding("torch", "", False, "Not installed.", True),), None), monkeypatch)
    result = CliRunner().invoke(doctor.main, arguments)
    assert result.exit_code == 1
    assert "Not installed." in result.output


def test_json_output_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = probe(loads_all_but({"loudness": missing("loudness")}), {})
    fake(Checkup(True, findings, check_up().host), monkeypatch)
    result = CliRunner().invoke(doctor.main, ["--json"])
    content = json.loads(result.output)
    assert result.exit_code == 0 and content["ok"] is True
    assert [part["name"] for part in content["findings"] if not part["ok"]] == ["loudness"]
    assert content["host"]["usable_cores"] > 0


def test_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Finding("torchaudio", "2.9.0", False, "Does not work [E1].")
    doctor._show(Checkup(True, (broken,), check_up(loads_all_but({})).host))
    output = capsys.readouterr().out
    assert "broken" in output and "Does not work [E1]." in output and "usable cores" in output


def test_rich_is_not_imported_with_the_doctor() -> None:
    code = "import sys, audioaug.doctor; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_doctor_runs_on_this_machine() -> None:
    run = subprocess.run([sys.executable, "-m", "audioaug.doctor"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert "usable cores" in run.stdout and "\x1b" not in run.stdout
