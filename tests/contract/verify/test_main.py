import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from click.testing import CliRunner

from audioaug import ops
from audioaug.command import run
from audioaug.errors import DeviceError
from audioaug.verify.__main__ import check_device, main
from audioaug.verify.contracts import Verdict


def test_the_table_is_on_stdout_and_progress_on_stderr(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--op", "Gain", "--op", "Mp3Compression", "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    header, *rows = result.stdout.splitlines()
    assert header.split()[:4] == ["op", "engine", "contract", "worst"]
    assert [row.split()[:2] for row in rows[::2]] == [["Gain", "batched"], ["Mp3Compression", "batched"]]
    assert " passed" in rows[0] and " skipped " in rows[2] and "LAME" in rows[2]
    assert "Gain, batched: passed (" in result.stderr

    content = json.loads((tmp_path / "out.json").read_text())
    assert next(iter(content)) == "schema_version"
    assert content["complete"] is True and content["device"] == "cpu"
    assert {"op": "Gain", "status": "passed"}.items() <= content["verdicts"][0].items()


def test_ops_without_a_comparison_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "audioaug.verify.replay.verify_op", lambda kind, engine, device: Verdict(kind.__name__, engine, "")
    )
    result = CliRunner().invoke(main, [])
    assert "Custom: not compared with anything: your own code runs only in the workers." in result.stderr
    assert "Custom" not in result.stdout and "Lambda" in result.stdout


def test_a_broken_contract_exits_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ops.Gain, "batched", lambda self, x, params, clips: x * torch.nan)
    result = CliRunner().invoke(main, ["--op", "Gain", "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 1
    assert "1 of 1 ops break their contract: Gain." in result.stdout
    assert json.loads((tmp_path / "out.json").read_text())["verdicts"][0]["error"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "Gian"], "Did you mean Gain?"),
        (["--device", "abacus"], "There is no device 'abacus'"),
        (["--op", "Gain", "--json", "/no/such/folder/out.json"], "Cannot write /no/such/folder/out.json"),
        (["--speed"], "--speed"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(main, arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err and not printed.out


def test_the_error_of_a_device_ends_in_a_sentence_of_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", Mock(side_effect=AssertionError("Torch not compiled with CUDA enabled")))
    with pytest.raises(DeviceError) as caught:
        check_device("cuda")
    expected = "here: Torch not compiled with CUDA enabled. Leave --device out for the CPU."
    assert str(caught.value).endswith(expected)


def test_interruption_keeps_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(kind: type, engine: str, device: str) -> Verdict:
        if kind is ops.Clip:
            raise KeyboardInterrupt
        return Verdict(kind.__name__, engine, "exact")

    monkeypatch.setattr("audioaug.verify.replay.verify_op", interrupted)
    assert run(main, ["--op", "Gain", "--op", "Clip", "--json", str(tmp_path / "out.json")]) == 130
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["complete"] is False and [verdict["op"] for verdict in content["verdicts"]] == ["Gain"] * 2
