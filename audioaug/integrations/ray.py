"""Ray Data: the worker part of a chain on any number of nodes, with the audio that the Loader gives by key.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Chain, Draws, Op, as_chain, key_number, key_of
from audioaug.engine import build_worker, check_plan, checked
from audioaug.errors import DataError, did_you_mean
from audioaug.records import Plan


class Augment:
    """Augments dict batches of NumPy arrays, as ``ray.data.Dataset.map_batches`` hands them to a class.

    An example's audio follows from seed, epoch and key alone: it does not depend on the number of actors and nodes, on
    the size of batches, on their order, or on retries after a failure. It is that of ``Loader(key=...)``, bit for
    bit; with the batched worker engine up to rounding, which depends on what else is in a batch. Works on a plain dict,
    too, without a cluster.

    Args:
        chain: the augmentation, as for ``Loader``.
        plan: where the chain is cut, and the engine of its worker part; by default all of it runs here that can.
        cut: how many ops run here, in place of the plan's.
        audio: the column with the waves, (T,) or (C, T) each: an array of them, or of objects if their lengths differ.
        key: the column with the examples' keys: strings, bytes or integers.
        seed: of the training run.
        epoch: counts passes over the dataset.
        sample_rate: of the audio, in Hz; required unless the augmentation is a ``Chain``.

    Shape:
        returns all columns, with as many rows; the audio is float32, an array (B, T) or (B, C, T), or one of objects if
        lengths differ.

    Raises:
        ChainError: the augmentation is invalid.
        PlanError: the plan was made for another chain, or the chain cannot be cut there.

    Examples:
        >>> from audioaug import Chain, ops
        >>> augment = Augment(Chain([ops.Gain(p=1.0)], sample_rate=16000))
        >>> batch = augment({"audio": np.ones((2, 4), np.float32), "key": np.array(["a", "b"]), "label": np.arange(2)})
        >>> batch["audio"].shape, batch["label"].tolist()
        ((2, 4), [0, 1])
    """

    def __init__(
        self,
        chain: Chain | Op | Sequence[Any],
        plan: Plan | None = None,
        cut: int | None = None,
        audio: str = "audio",
        key: str = "key",
        seed: int = 0,
        epoch: int = 0,
        sample_rate: int | None = None,
    ) -> None:
        self.chain = as_chain(chain, sample_rate)
        plan = Plan(cut=self.chain.worker_until) if plan is None else plan
        plan = plan if cut is None else replace(plan, cut=cut)
        check_plan(self.chain, plan)
        self.audio, self.key, self.seed, self.epoch = audio, key, seed, epoch
        self.on_clips, self.on_batches = build_worker(self.chain, plan, seed)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with augmented audio.

        Raises:
            DataError: it lacks the audio or the keys, or these are something else.
        """
        waves = [checked(np.asarray(wave)) for wave in _column(batch, self.audio, "audio")]
        keys = (key_of(key, f"A key in {self.key!r}") for key in _column(batch, self.key, "key"))
        draws = self.chain.draw([key_number(key) for key in keys], self.epoch, self.seed)
        waves = [self.on_clips(wave, draws=draw) for wave, draw in zip(waves, draws, strict=True)]
        if self.on_batches is not None and waves:
            waves = self._augmented_together(waves, draws)
        return {**batch, self.audio: _as_column(waves)}

    def _augmented_together(self, waves: list[NDArray[np.float32]], draws: Draws) -> list[NDArray[np.float32]]:
        assert self.on_batches is not None
        lengths = [wave.shape[-1] for wave in waves]
        clips = [torch.from_numpy(np.require(wave, requirements="W")) for wave in waves]
        x = torch.stack([torch.nn.functional.pad(clip, (0, max(lengths) - clip.shape[-1])) for clip in clips])
        with torch.no_grad():
            y, length_B = self.on_batches(x, lengths=lengths, draws=draws, return_lengths=True)
        return [clip[..., :length].numpy() for clip, length in zip(y, length_B.tolist())]


def _column(batch: Mapping[str, Any], name: str, argument: str) -> Any:
    if name not in batch:
        raise DataError(f"The batch has no column {name!r}.", did_you_mean(name, batch) + f" Name it with {argument}=.")
    return batch[name]


def _as_column(waves: list[NDArray[np.float32]]) -> NDArray[Any]:
    """Return waves as one array, or, if their lengths differ, as one of objects."""
    if len({wave.shape for wave in waves}) == 1:
        return np.stack(waves)
    column = np.empty(len(waves), dtype=object)
    for row, wave in enumerate(waves):
        column[row] = wave
    return column
