"""What the tests of frameworks share: the code of a page of docs/how-to, run unchanged, and what its model saw."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

from audioaug import AudioFolder, Loader, Plan
from audioaug.loader.examples import get_wave
from scripts.models.keyword_cnn import KeywordCNN
from tests.integration.loader.material import DEMO, RATE, exact_chain

PAGES = Path(__file__).parents[4] / "docs" / "how-to"
CHAIN = exact_chain()
PLAN = Plan(cut=3, num_workers=1)
ROUNDING = 1e-7
"""Of full scale: more than float32 errs by where a low-pass and a high-pass leave 1 / 4000 of a clip."""


def code_of(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)


def run(page: str, block: int, names: dict[str, Any], gpu: bool = False) -> dict[str, Any]:
    """Run a block of a page with these names defined, on a GPU only if asked; return them and those it defines."""
    names = {"__name__": "__main__", **names}
    with pytest.MonkeyPatch.context() as patch:
        if not gpu:
            patch.setattr(torch.cuda, "is_available", lambda: False)
        exec(compile(code_of(page)[block], f"docs/how-to/{page}.md", "exec"), names)
    return names


def speech(count: int = 40, first: int = 0) -> Any:
    """Return clips of all words, half a second each, as (wave (1, T), label)."""
    folder = AudioFolder(DEMO / "speech", RATE, seconds=0.5)
    return Subset(folder, [(first + 7 * k) % len(folder) for k in range(count)])


@dataclass
class Witness:
    """Notes the audio that a model is given, in training and in validation, and whether it learns."""

    model: torch.nn.Module
    trained: list[torch.Tensor] = field(default_factory=list)
    validated: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = [each.detach().clone() for each in self.model.parameters()]
        self.model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, model: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        audio = args[0] if args else named["input_values"]
        (self.trained if model.training else self.validated).append(audio.detach().float().cpu().clone())

    def learned(self) -> bool:
        after = [each.detach().to(before.device) for each, before in zip(self.model.parameters(), self.before)]
        return all(each.isfinite().all() for each in after) and not all(map(torch.equal, after, self.before))


def keyword_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return KeywordCNN(width=4)


def names(**others: Any) -> dict[str, Any]:
    """Return what a page takes for granted: the user's datasets, chain, plan and model."""
    yours = {"dataset": speech(), "valid": speech(8, first=3), "chain": CHAIN, "plan": PLAN, "model": keyword_model()}
    return {**yours, **others}


def plain(dataset: Any, epoch: int, **options: Any) -> list[torch.Tensor]:
    """Return the batches of audio that a plain Loader gives in an epoch: the reference, without workers."""
    options = {"batch_size": 32, "shuffle": True, "device": "cpu", **options}
    loader = Loader(dataset, CHAIN, Plan(cut=PLAN.cut), **options)
    loader.set_epoch(epoch)
    return [get_wave(batch) for batch in loader]


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Check that batches are the same, bit for bit."""
    assert [each.shape for each in found] == [each.shape for each in expected]
    assert all(map(torch.equal, found, expected))


def clips(batches: list[torch.Tensor]) -> list[Any]:
    """Return the clips of some batches, without padding."""
    return [np.trim_zeros(clip.reshape(-1).numpy(), "b") for batch in batches for clip in batch]


def assert_same_clips(found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 5e-5) -> None:
    """Check that batches have the same clips in any order, up to ``tolerance`` times the peak of each."""
    left = clips(expected)
    assert len(clips(found)) == len(left)
    for clip in clips(found):
        errors = [np.abs(clip - other).max() if clip.shape == other.shape else np.inf for other in left]
        nearest = int(np.argmin(errors))
        assert errors[nearest] <= tolerance * np.abs(left.pop(nearest)).max() + ROUNDING


def assert_no_clip_twice(first: list[torch.Tensor], second: list[torch.Tensor]) -> None:
    """Check that no clip of one epoch is in the other."""
    assert clips(first) and not {clip.tobytes() for clip in clips(first)} & {clip.tobytes() for clip in clips(second)}


def assert_dry(found: list[torch.Tensor], dataset: Any, wave: Any = lambda example: example[0]) -> None:
    """Check that validation saw the dataset's own clips in their order."""
    dry = [torch.from_numpy(np.asarray(wave(dataset[k]), np.float32)) for k in range(len(dataset))]
    assert {clip.tobytes() for clip in clips(found)} == {clip.tobytes() for clip in clips([torch.stack(dry)])}
