"""Unreadable examples: an error by default; on request left out or replaced, counted, and warned of once."""

import shutil
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audioaug import AudioFolder, Chain, Loader, Plan, ops
from audioaug.errors import AudioaugWarning, DataError
from tests.integration.loader.material import DEMO, RATE

CHAIN = Chain([ops.Gain(p=1.0), ops.TimeMask(p=1.0)], sample_rate=RATE)


def folder_with(path: Path, good: int, bad: tuple[str, ...]) -> AudioFolder:
    """Return a folder of demo words and some files of random bytes."""
    for file in sorted((DEMO / "speech" / "go").glob("*.flac"))[:good]:
        shutil.copy(file, path)
    for name in bad:
        (path / name).write_bytes(np.random.default_rng(0).bytes(2000))
    return AudioFolder(path, RATE, seconds=0.25)


def number_of(seen):
    """Return how many of the warnings are audioaug's: Python 3.12 and later also warns about fork."""
    return sum(issubclass(warning.category, AudioaugWarning) for warning in seen)


def loader_of(dataset: Any, **options: Any) -> Loader:
    """Return a Loader that leaves out what cannot be read."""
    defaults = {"batch_size": 3, "plan": Plan(cut=1), "on_error": "skip"}
    return Loader(dataset, CHAIN, device="cpu", **{**defaults, **options})


@pytest.mark.parametrize("plan", [Plan(cut=0), Plan(cut=2), Plan(cut=1, num_workers=1)], ids=["0", "2", "worker"])
def test_corrupt_file_is_skipped_counted_and_warned_of_once(plan, tmp_path):
    dataset = folder_with(tmp_path, good=5, bad=("espeak_zzz.wav",))
    bad = dataset.files.index(str(tmp_path / "espeak_zzz.wav"))
    assert 0 < bad
    loader = loader_of(dataset, plan=plan)
    with pytest.warns(AudioaugWarning, match=r"espeak_zzz\.wav cannot be decoded: .* It was left out") as seen:
        sizes = [len(wave) for wave, _ in loader]
    assert sizes == ([2, 3] if bad < 3 else [3, 2])
    assert number_of(seen) == 1 and loader.skipped == 1
    assert [each.filename for each in seen if issubclass(each.category, AudioaugWarning)] == [__file__]
    assert sum(len(wave) for wave, _ in loader) == 5 and loader.skipped == 2  # no second warning: it would be an error


def test_other_examples_are_not_affected_by_a_skipped_one(tmp_path):
    dataset = folder_with(tmp_path, good=5, bad=("alsa_zzz.wav",))
    good = [k for k, file in enumerate(dataset.files) if file.endswith(".flac")]
    whole = torch.cat([wave for wave, _ in loader_of(dataset, sampler=good)])
    for cut in (0, 2):
        with pytest.warns(AudioaugWarning):
            found = torch.cat([wave for wave, _ in loader_of(dataset, plan=Plan(cut=cut))])
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("workers", [0, 1])
def test_on_error_raise_has_no_traceback_in_message(workers, tmp_path):
    dataset = folder_with(tmp_path, good=2, bad=("zzz.wav",))
    with pytest.raises(DataError) as caught:
        list(loader_of(dataset, on_error="raise", plan=Plan(cut=1, num_workers=workers)))
    assert str(caught.value).startswith(f"{tmp_path / 'zzz.wav'} cannot be decoded: ")
    assert "Traceback" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_only_corrupt_files_is_an_error(workers, tmp_path):
    dataset = folder_with(tmp_path, good=0, bad=("a.wav", "b.wav", "c.wav", "d.wav"))
    loader = loader_of(dataset, plan=Plan(cut=1, num_workers=workers))
    with pytest.warns(AudioaugWarning), pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value).startswith("No example of the dataset could be read. The last one: ")
    assert "d.wav cannot be decoded" in str(caught.value) and loader.skipped == 4


def test_first_batch_may_be_unreadable(tmp_path):
    dataset = folder_with(tmp_path, good=3, bad=("aaa.wav",))
    assert dataset.files[0].endswith("aaa.wav")
    loader = loader_of(dataset, batch_size=1)
    with pytest.warns(AudioaugWarning, match=r"aaa\.wav"):
        assert len(list(loader)) == 3


class Scripted:
    """A dataset that raises the scripted exceptions, and counts how many examples were read."""

    def __init__(self, script: list[Exception | None]) -> None:
        self.script, self.reads = script, 0

    def __len__(self) -> int:
        return len(self.script)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads += 1
        if (error := self.script[index]) is not None:
            raise error
        return torch.ones(100)


def test_many_unreadable_examples_end_the_epoch():
    dataset = Scripted([DataError(f"no. {k} is broken.") for k in range(1000)])
    with pytest.warns(AudioaugWarning), pytest.raises(DataError, match=r"The last one: no\. 65 is broken"):
        list(loader_of(dataset))
    assert dataset.reads < 100


def test_unreadable_examples_are_counted_per_epoch():
    dataset = Scripted([DataError("broken."), None, *[DataError("broken.")] * 70])
    loader = loader_of(dataset, batch_size=1)
    with pytest.warns(AudioaugWarning):
        assert len(list(loader)) == 1
    assert loader.skipped == 71 and len(list(loader)) == 1


def test_unreadable_example_raises_by_default(tmp_path):
    dataset = folder_with(tmp_path, good=2, bad=("zzz.wav",))
    with pytest.raises(DataError, match=r"zzz\.wav cannot be decoded"):
        list(Loader(dataset, CHAIN, device="cpu"))


class Read:
    """A dataset that reads files with a given function."""

    def __init__(self, files: list[str], read: Callable[[str], Any]) -> None:
        self.files, self.read = files, read

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.read(self.files[index])


def by_soundfile(file: str) -> Any:
    return soundfile.read(file, dtype="float32")[0]


def by_torchcodec(file: str) -> Any:
    from torchcodec.decoders import AudioDecoder

    return AudioDecoder(file).get_all_samples().data


def by_torchaudio(file: str) -> Any:
    """Do what torchaudio.load does."""
    try:
        return by_torchcodec(file)
    except Exception as error:
        raise RuntimeError(f"Failed to create AudioDecoder for {file}: {error}") from error


TORCHCODEC = """
import soundfile, torch

class AudioDecoder:
    def __init__(self, file):
        try:
            self.data = torch.from_numpy(soundfile.read(file, dtype="float32")[0])
        except Exception:
            self.data = None

    def get_all_samples(self):
        if self.data is None:
            torch.ops.aten.add.Tensor(torch.ones(2), torch.ones(3))  # raises a RuntimeError inside torch, in C++
        return self
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("read", [by_soundfile, by_torchcodec, by_torchaudio])
def test_errors_of_decoders_are_skipped(read, workers, tmp_path, monkeypatch):
    package = tmp_path / "site" / "torchcodec" / "decoders"  # the real one needs FFmpeg
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TORCHCODEC)
    (package.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    dataset = Read(list(folder_with(tmp_path, good=2, bad=("zzz.wav",)).files), read)
    with pytest.warns(AudioaugWarning, match=r"Example \d cannot be read \(\w+Error: .*\)\. It was left out"):
        assert sum(len(wave) for wave in loader_of(dataset, batch_size=1, plan=Plan(cut=1, num_workers=workers))) == 2


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "error", [RuntimeError("wrong"), ValueError("wrong"), KeyError("wrong"), TypeError("wrong"), IndexError("wrong")]
)
def test_other_exceptions_of_the_dataset_are_always_raised(error, workers, on_error):
    loader = loader_of(Scripted([None, None, error]), on_error=on_error, plan=Plan(cut=1, num_workers=workers))
    with pytest.raises(type(error), match="wrong") as caught:
        list(loader)
    shown = "".join(traceback.format_exception(caught.value))
    assert f'File "{__file__}", line ' in shown and "raise error" in shown


def test_missing_file_is_skipped(tmp_path):
    files = [str(sorted((DEMO / "speech" / "go").glob("*.flac"))[0]), str(tmp_path / "gone.wav")]
    with pytest.warns(AudioaugWarning, match=r"Example 1 cannot be read \(FileNotFoundError: "):
        assert len(list(loader_of(Read(files, lambda file: (open(file).close(), by_soundfile(file))[1])))) == 1


def test_torch_error_in_the_dataset_is_raised():
    with pytest.raises(RuntimeError, match="must match the size"):
        list(loader_of(Read(["", ""], lambda _: torch.ones(2) + torch.ones(3))))


@pytest.mark.parametrize("workers", [0, 1])
def test_replace_fills_the_batch(workers, tmp_path):
    dataset = folder_with(tmp_path, good=5, bad=("aaa.wav",))
    loader = loader_of(dataset, on_error="replace", plan=Plan(cut=1, num_workers=workers))
    message = r"aaa\.wav cannot be decoded: .* It was replaced by another example \(on_error=.replace.\); Loader"
    with pytest.warns(AudioaugWarning, match=message) as seen:
        first = list(loader)
    second = list(loader)
    assert number_of(seen) == 1 and loader.skipped == 2
    assert [len(wave) for wave, _ in first + second] == [3, 3, 3, 3]
    assert loader.summary().startswith(
        f"2 examples could not be read and were replaced. The last one: {tmp_path}/aaa.wav"
    )
    again = loader_of(dataset, on_error="replace", batch_size=6)
    with pytest.warns(AudioaugWarning):
        (whole,) = again
    torch.testing.assert_close(whole[0], torch.cat([wave for wave, _ in first]), rtol=1e-5, atol=1e-6)


def test_replacement_changes_with_epoch_and_uses_draws_of_original_index():
    dataset = [torch.full((100,), float(k)) for k in range(1, 20)] + [torch.ones(1, 1, 1)]
    gain = Chain([ops.Gain(p=1.0)], RATE)
    loader = Loader(dataset, gain, Plan(cut=1), device="cpu", batch_size=20, on_error="replace")
    found = []
    for epoch in range(6):
        expected = 10 ** (gain.draw([19], epoch)["0:gain_db"][0] / 20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (batch,) = loader
        assert len(batch) == 20
        found.append(batch[19, 0].item() / expected)
    assert all(min(abs(each - k) for k in range(1, 20)) < 1e-3 for each in found)
    assert len({round(each) for each in found}) > 2


def test_replace_raises_if_no_example_can_be_read():
    loader = loader_of(Scripted([DataError("broken.")] * 6), on_error="replace")
    with pytest.warns(AudioaugWarning), pytest.raises(DataError, match="No example of the dataset could be read"):
        list(loader)


def test_summary_counts_and_names_the_last_example(tmp_path):
    loader = loader_of(folder_with(tmp_path, good=3, bad=("aaa.wav",)))
    assert loader.summary() == "Every example could be read."
    with pytest.warns(AudioaugWarning):
        list(loader)
    assert loader.summary().startswith("1 example could not be read and was left out. The last one: ")
    assert "aaa.wav cannot be decoded" in loader.summary()


@pytest.mark.parametrize("workers", [0, 2])
def test_file_damaged_during_training_is_skipped(workers, tmp_path):
    dataset = folder_with(tmp_path, good=6, bad=())
    loader = loader_of(dataset, plan=Plan(cut=1, num_workers=workers), batch_size=2)
    seen = []
    for epoch in range(4):
        if epoch == 2:
            with open(dataset.files[3], "r+b") as file:
                file.truncate(500)
            with pytest.warns(AudioaugWarning, match=r"It was left out"):
                seen.append(sum(len(wave) for wave, _ in loader))
        else:
            seen.append(sum(len(wave) for wave, _ in loader))
    assert seen == [6, 6, 5, 5] and loader.skipped == 2


@pytest.mark.parametrize("cut", [0, 1])
def test_broken_noise_file_raises_instead_of_skipping(cut, tmp_path):
    shutil.copy(DEMO / "noise" / "fan.flac", tmp_path)
    (tmp_path / "zzz.wav").write_bytes(b"no audio")
    chain = Chain([ops.AddBackgroundNoise(sounds_path=str(tmp_path), p=0.5)], RATE)
    loader = Loader([torch.ones(100)] * 20, chain, Plan(cut=cut), device="cpu", batch_size=10)
    with warnings.catch_warnings(), pytest.raises(DataError, match=r"zzz\.wav cannot be decoded"):
        list(loader)
    assert loader.skipped == 0
