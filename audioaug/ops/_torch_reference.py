"""What ops share whose reference is torch-audiomentations: its transforms, made to behave like audiomentations' own."""

import functools
import importlib
import importlib.util
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.errors import LibraryMissing


@functools.cache
def why_unavailable() -> str:
    """Return why torch-audiomentations cannot be used here, or an empty string. Imports it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch_audiomentations  # noqa: F401
    except Exception as error:  # whatever a broken pair of torch and torchaudio raises
        lines = str(error).strip().splitlines() or [""]
        return f"torch-audiomentations cannot be imported ({type(error).__name__}: {lines[0][:200]})."
    return ""


def how_to_install() -> str:
    """Return what makes torch-audiomentations usable: the extra, or versions of torch and torchaudio that it needs."""
    if importlib.util.find_spec("torch_audiomentations") is None:
        return "Install audioaug[torch-audiomentations]."
    return "Install torch 2.11.0 with torchaudio 2.11.0."


def transform_class(name: str) -> Any:
    """Return torch-audiomentations' class of that name, exported or not; raise ``LibraryMissing`` if it is missing."""
    if reason := why_unavailable():
        raise LibraryMissing(
            f"{name} is a transform of torch-audiomentations, and {reason}",
            how_to_install(),
        )
    module = importlib.import_module("torch_audiomentations")
    if not hasattr(module, name):
        file = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        module = importlib.import_module(f"torch_audiomentations.augmentations.{file}")
    return getattr(module, name)


class TorchReference:
    """A transform of torch-audiomentations on one clip, in the manner of audiomentations.

    Its ``parameters`` are plain numbers by name; entry k of a row of them is called ``name_k``.

    Raises:
        LibraryMissing: torch-audiomentations cannot be imported.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.transform = transform_class(name)(**arguments, mode="per_example", output_type="dict")
        self.transform.freeze_parameters()
        self.parameters: dict[str, Any] = {}

    def freeze_parameters(self) -> None:
        """Do nothing: it is frozen, and draws only in ``randomize_parameters``."""

    def randomize_parameters(self, samples: NDArray[np.float32], sample_rate: int) -> None:
        """Draw as the transform does for a batch of one."""
        coin = self.transform.bernoulli_distribution.sample(sample_shape=(1,)).bool()
        self.transform.transform_parameters = {}
        self.transform.randomize_parameters(torch.from_numpy(np.atleast_2d(samples))[None], sample_rate)
        self.parameters = {"should_apply": bool(coin)}
        for name, value_1N in self.transform.transform_parameters.items():
            values = value_1N[0].tolist()
            rows = {f"{name}_{k}": value for k, value in enumerate(values)} if value_1N.ndim > 1 else {name: values}
            self.parameters.update(rows)

    def __call__(self, samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
        """Apply it to one clip, (T,) or (C, T), with the present parameters."""
        x_1CT = torch.from_numpy(np.array(samples, ndmin=2))[None]
        rows: dict[str, list[Any]] = {}
        for name, value in self.parameters.items():
            base, _, number = name.rpartition("_")
            rows.setdefault(base if number.isdigit() else name, []).append(value)
        tables = {name: torch.tensor(row if name in self.parameters else [row]) for name, row in rows.items()}
        return self.on_batch(x_1CT, tables, sample_rate)[0].numpy().reshape(samples.shape)

    def on_batch(self, x_BCT: torch.Tensor, parameters: Mapping[str, torch.Tensor], sample_rate: int) -> torch.Tensor:
        """Apply it to a whole batch, with these parameters; without its warnings, of mono and of very short clips."""
        every = torch.ones(len(x_BCT), dtype=torch.bool)
        self.transform.transform_parameters = {**parameters, "should_apply": every}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.transform(x_BCT, sample_rate).samples
