"""Augment: the worker part of a chain, for actors of Ray Data.

Shapes: B examples, C channels, T samples.
"""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Chain, Draws, Op, Timeline, as_chain, key_number, key_of
from audioaug.engine import build_worker, check_plan, checked
from audioaug.errors import DataError, UsageError, did_you_mean
from audioaug.integrations.ray.epochs import SharedEpoch
from audioaug.integrations.ray.wire import CUT, EPOCH, Wire, encoded, with_timelines
from audioaug.loader.examples import padded
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
        epoch: counts passes over the dataset: a number, or a ``SharedEpoch`` for a dataset that Ray executes again in
            every epoch. With a number, each of these passes has the same audio.
        sample_rate: of the audio, in Hz; required unless the augmentation is a ``Chain``.
        wire: how the audio is sent: as it is (``"float32"``), or in half the bytes, rounded: ``"int16"`` by at most
            1.6e-5 of a clip's peak, ``"float16"`` by 2^-11 (0.05 %) of each sample. ``batches`` undoes it.
        follow: also send where the time of each clip goes, for ``batches(targets=...)``.

    Shape:
        returns all columns, with as many rows; the audio is an array (B, T) or (B, C, T), or one of objects if lengths
        differ. There are new columns, whose names begin with that of the audio: its cut and epoch, and what ``wire``
        and ``follow`` need.

    Raises:
        ChainError: the augmentation is invalid.
        PlanError: the plan was made for another chain, the chain cannot be cut there, or labels cannot follow it.
        UsageError: there is no such ``wire``.

    Examples:
        >>> from audioaug import Chain, ops
        >>> augment = Augment(Chain([ops.Gain(p=1.0)], sample_rate=16000))
        >>> batch = augment({"audio": np.ones((2, 4), np.float32), "key": np.array(["a", "b"]), "label": np.arange(2)})
        >>> batch["audio"].shape, batch["label"].tolist(), batch["audio_epoch"].tolist()
        ((2, 4), [0, 1], [0, 0])
    """

    def __init__(
        self,
        chain: Chain | Op | Sequence[Any],
        plan: Plan | None = None,
        cut: int | None = None,
        audio: str = "audio",
        key: str = "key",
        seed: int = 0,
        epoch: int | SharedEpoch = 0,
        sample_rate: int | None = None,
        wire: Wire = "float32",
        follow: bool = False,
    ) -> None:
        self.chain = as_chain(chain, sample_rate)
        plan = Plan(cut=self.chain.worker_until) if plan is None else plan
        self.plan = plan if cut is None else replace(plan, cut=cut)
        check_plan(self.chain, self.plan)
        if wire not in (known := typing.get_args(Wire)):
            raise UsageError(f"There is no wire {wire!r}.", did_you_mean(wire, known))
        if follow:
            self.chain.check_followed(self.plan.cut)
        self.audio, self.key, self.seed, self.wire, self.follow = audio, key, seed, wire, follow
        self.epoch = epoch.get() if isinstance(epoch, SharedEpoch) else epoch
        self.on_clips, self.on_batches = build_worker(self.chain, self.plan, seed)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with augmented audio.

        Raises:
            DataError: it lacks the audio or the keys, or these are something else; or ``wire`` cannot hold the audio.
        """
        waves = [checked(np.asarray(wave)) for wave in _column(batch, self.audio, "audio")]
        keys = [key_of(key, f"A key in {self.key!r}") for key in _column(batch, self.key, "key")]
        if len(keys) != len(waves):
            raise DataError(
                f"The batch has {len(waves)} clips in {self.audio!r}, but {len(keys)} keys in {self.key!r}."
            )
        draws = self.chain.draw([key_number(key) for key in keys], self.epoch, self.seed)
        timelines = list[Timeline]()
        for row, (wave, draw) in enumerate(zip(waves, draws, strict=True)):
            if self.follow:
                waves[row], timeline = self.on_clips.follow(wave, draws=draw, stop=self.plan.cut)
                timelines.append(timeline)
            else:
                waves[row] = self.on_clips(wave, draws=draw)
        if self.on_batches is not None and waves:
            waves = self._augmented_together(waves, draws)
        stamps = {self.audio + CUT: self.plan.cut, self.audio + EPOCH: self.epoch}
        return {
            **batch,
            **encoded(waves, self.wire, self.audio),
            **{name: np.full(len(waves), number) for name, number in stamps.items()},
            **(with_timelines(timelines, self.audio) if self.follow else {}),
        }

    def _augmented_together(self, waves: list[NDArray[np.float32]], draws: Draws) -> list[NDArray[np.float32]]:
        assert self.on_batches is not None
        lengths = [wave.shape[-1] for wave in waves]
        clips = [torch.from_numpy(np.require(wave, requirements="W")) for wave in waves]
        with torch.no_grad():
            y, length_B = self.on_batches(torch.stack(padded(clips)), lengths=lengths, draws=draws, return_lengths=True)
        return [clip[..., :length].numpy() for clip, length in zip(y, length_B.tolist())]


def _column(batch: Mapping[str, Any], name: str, argument: str) -> Any:
    if not hasattr(batch, "keys"):
        raise DataError(
            f"Expected a dict of columns, got {type(batch).__name__}.", "Leave batch_format of map_batches as it is."
        )
    if name not in batch:
        raise DataError(f"The batch has no column {name!r}.", did_you_mean(name, batch) + f" Name it with {argument}=.")
    return batch[name]
