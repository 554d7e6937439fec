"""Batches: what Ray Data delivers, as batches on the device after the rest of the chain.

Shapes: B examples, C channels, T samples.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import Chain, Key, Op, as_chain, key_numbers, key_of
from audioaug.engine import build_device, check_plan
from audioaug.errors import AudioaugError, DataError, UsageError, did_you_mean
from audioaug.integrations.ray.epochs import SharedEpoch
from audioaug.integrations.ray.wire import CUT, EPOCH, TIMELINE, decoded, own_columns, timeline_of
from audioaug.loader.examples import Field
from audioaug.loader.pickling import WorkerBatch
from audioaug.loader.pipeline import LoaderConfig, finish
from audioaug.loader.prefetch import as_device, map_leaves, run_ahead
from audioaug.loader.sampling import Repeats, check_state
from audioaug.loader.targets import LabelTransform, LabelTransforms, check_targets
from audioaug.loader.worker import Collate, Fetched
from audioaug.records import Plan

Row: TypeAlias = dict[str, Any]
"""An example: its value in each column."""


def batches(
    ds: Any,
    chain: Chain | Op | Sequence[Any],
    plan: Plan | None = None,
    *,
    batch_size: int = 1,
    device: str | torch.device | None = None,
    audio: str = "audio",
    key: str = "key",
    seed: int = 0,
    epoch: SharedEpoch | None = None,
    pad: bool = False,
    targets: Mapping[Field, LabelTransform] | None = None,
    sample_rate: int | None = None,
    **options: Any,
) -> "Batches":
    """Return the batches of a dataset of Ray Data, whose worker part ``Augment`` has run, as those of a ``Loader``.

    They are dicts, with a tensor (B, T) or (B, C, T) under ``audio`` and the other columns collated by torch. Each is
    padded and collated in a thread of Ray's, copied, and augmented on the device, one batch ahead of training. Every
    example has the audio of the ``Loader`` with this seed and key.

    Args:
        ds: after ``map_batches(Augment, ...)``: a ``Dataset``, or a ``DataIterator`` of ``streaming_split`` or of Ray
            Train, which gives each rank its share.
        chain: the augmentation.
        plan: the one that ``Augment`` was given: where the chain is cut, and the engine of its device part. By default
            there is no device part, if ``Augment`` has no plan either.
        batch_size: examples in a batch.
        device: where batches end up; the GPU if there is one.
        audio: the column with the audio.
        key: the column with the keys.
        seed: of the training run, as for ``Augment``.
        epoch: the one that ``Augment`` was given, if any.
        pad: allow clips of different lengths: shorter ones are padded with silence at their end, and a batch gets their
            lengths, ``"lengths"``.
        targets: labels that follow the audio, by their columns, as for ``Loader``; ``Augment`` needs ``follow=True``.
        sample_rate: of the audio, in Hz; required unless the augmentation is a ``Chain``.
        options: of ``iter_torch_batches``: ``prefetch_batches``, ``drop_last``, ``local_shuffle_buffer_size``, ...

    Raises:
        ChainError: the augmentation is invalid.
        PlanError: the plan does not match the chain, or does not let targets follow.
        DeviceError: there is no such device.
    """
    chain = as_chain(chain, sample_rate)
    plan = Plan(cut=chain.worker_until) if plan is None else plan
    check_plan(chain, plan)
    if targets:
        check_targets(chain, plan)
    config = LoaderConfig(
        dataset=ds,
        chain=chain,
        device=as_device(device),
        sampler=None,
        batch_size=batch_size,
        drop_last=bool(options.pop("drop_last", False)),
        collate_fn=None,
        pad=pad,
        lengths=None,
        targets=targets,
        seed=seed,
        on_error="raise",
        audio_key=audio,
        key=key,
    )
    return Batches(config, plan, epoch, options)


class Batches:
    """Iterates over the batches of an epoch, on ``device``. Made by ``batches``."""

    def __init__(self, config: LoaderConfig, plan: Plan, epoch: SharedEpoch | None, options: Mapping[str, Any]) -> None:
        self.config, self.plan, self.options, self.device = config, plan, options, config.device
        self._audio, self._key = str(config.audio_key), str(config.key)
        self._shared = epoch
        self._module = build_device(config.chain, plan.cut, plan.device_engine, config.seed)
        labels = LabelTransforms(config.targets, config.chain, plan.cut)
        self._collate = Collate(self._module.prepare, None, config.pad, None, labels, None, config.seed)
        self._lock = threading.Lock()  # Ray collates in several threads
        self._repeats = Repeats()
        self.set_epoch(0)

    @property
    def repeated(self) -> int:
        """How many examples of this epoch have the key, and so the draws, of an earlier one."""
        self._repeats.count_all()
        return self._repeats.count

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be all of this epoch; by default, epochs are counted."""
        self._epoch, self._yielded = epoch, [np.zeros(0, np.int64)]

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the run for a checkpoint: the epoch, and the keys of the examples that it has yielded.

        That takes eight bytes an example. Where several ranks train, join their ``"keys"``, and give all of them each.
        """
        keys = torch.from_numpy(np.concatenate(self._yielded))
        return {"seed": self.config.seed, "epoch": self._epoch, "keys": keys}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration be the rest of the epoch in which ``state_dict`` was called.

        It yields the missing examples, in the order in which Ray delivers them, on any number of nodes and ranks. Those
        before are read and augmented in workers again, and left out.

        Raises:
            UsageError: this is not the state of such batches, or it has another seed.
        """
        check_state(state, ("seed", "epoch", "keys"), "Ray batches")
        if state["seed"] != self.config.seed:
            raise UsageError(f"The state has the seed {state['seed']}, but these batches have {self.config.seed}.")
        keys = torch.as_tensor(state["keys"], dtype=torch.int64, device="cpu")
        self._epoch, self._yielded = int(state["epoch"]), [keys.numpy()]

    def __iter__(self) -> Iterator[Any]:
        epoch, before = self._epoch, np.unique(np.concatenate(self._yielded))
        if self._shared is not None:
            self._shared.set(epoch)
        self._repeats.begin(epoch)
        sent = self._rest(epoch, before) if len(before) else self._whole(epoch)
        for keys, batch in run_ahead(map(_raised, sent), self.config.device, self._finished):
            numbers = key_numbers(keys)
            self._repeats.add(numbers)
            self._yielded.append(numbers)
            yield batch
        self._repeats.count_all()
        self.set_epoch(epoch + 1)

    def _received(self, collate: Callable[[Mapping[str, Any]], Any], drop_last: bool = False) -> Iterator[Any]:
        """Yield what ``collate`` makes of the columns of each batch that Ray delivers."""
        from ray.data.collate_fn import NumpyBatchCollateFn

        class OfColumns(NumpyBatchCollateFn):
            def __call__(self, batch: Any) -> Any:
                return collate(batch)

        how = {"batch_size": self.config.batch_size, "drop_last": drop_last, **self.options}
        return iter(self.config.dataset.iter_torch_batches(collate_fn=OfColumns(), **how))

    def _whole(self, epoch: int) -> Iterator[WorkerBatch | AudioaugError]:
        """Yield all batches, which threads of Ray's collate."""
        return self._received(partial(self._collated, epoch), self.config.drop_last)

    def _rest(self, epoch: int, before: NDArray[np.int64]) -> Iterator[WorkerBatch | AudioaugError]:
        """Yield batches of the examples that are not among those before, which are sorted."""
        size, rows = self.config.batch_size, list[Row]()
        for columns in self._received(dict):
            found = self._checked(epoch, columns)
            is_new = ~np.isin(key_numbers(columns[self._key]), before)
            rows += [row for row, new in zip(found, is_new) if new]
            while len(rows) >= size:
                yield self._batch(epoch, rows[:size])
                rows = rows[size:]
        if rows and not self.config.drop_last:
            yield self._batch(epoch, rows)

    def _collated(self, epoch: int, columns: Mapping[str, Any]) -> WorkerBatch | AudioaugError:
        """Return a batch, or what is wrong with it, to be raised where the model trains."""
        try:
            return self._batch(epoch, self._checked(epoch, columns))
        except AudioaugError as error:
            return error

    def _checked(self, epoch: int, columns: Mapping[str, Any]) -> list[Row]:
        """Return the examples in these columns.

        Raises:
            DataError: a column is missing, or ``Augment`` has not run up to this cut, in this epoch.
        """
        audio = self._audio
        for column, name in ((audio, "audio"), (self._key, "key")):
            if column not in columns:
                known = did_you_mean(column, columns)
                raise DataError(f"There is no column {column!r}.", f"{known} Name it with {name}=.")
        for cut in {*columns.get(audio + CUT, [0])} - {self.plan.cut}:
            raise DataError(
                f"Augment has run the first {cut} ops, but the plan cuts the chain after {self.plan.cut}.",
                "Give Augment and batches the same plan.",
            )
        for found in {*columns.get(audio + EPOCH, [])} - {epoch}:
            raise DataError(
                f"Augment has run for epoch {found}, but this is epoch {epoch}.",
                "Give Augment and batches the same SharedEpoch as epoch=.",
            )
        if self.config.targets and audio + TIMELINE not in columns:
            raise DataError("Labels cannot follow the audio: its timeline is missing.", "Give Augment follow=True.")
        return [dict(zip(columns, values)) for values in zip(*columns.values(), strict=True)]

    def _batch(self, epoch: int, rows: Sequence[Row]) -> WorkerBatch | AudioaugError:
        """Return a batch of these examples, in pinned memory for a GPU."""
        with self._lock:
            sent = self._collate(self._fetched(epoch, rows))
        if self.config.device.type != "cuda" or isinstance(sent, AudioaugError):
            return sent
        assert sent.prepared is not None
        batch = map_leaves(torch.Tensor.pin_memory, lambda part: part.pin_memory(), sent.batch)
        return sent._replace(batch=batch, prepared=sent.prepared.pin_memory())

    def _fetched(self, epoch: int, rows: Sequence[Row]) -> Fetched:
        """Return examples with their draws for the rest of the chain."""
        audio, own = self._audio, own_columns(self._audio)
        keys = [key_of(row[self._key], f"A key in {self._key!r}") for row in rows]
        examples = [
            {name: _plain(value) for name, value in row.items() if name not in own}
            | {audio: torch.from_numpy(decoded(row, audio))}
            for row in rows
        ]
        timelines = [timeline_of(row, audio) for row in rows] if self.config.targets else []
        draws = self.config.chain.draw(keys, epoch, self.config.seed)
        return Fetched(examples, timelines, draws, [], keys, epoch, audio)

    def _finished(self, sent: WorkerBatch) -> tuple[list[Key], Any]:
        return sent.keys, finish(sent, self._module, self.config)


def _raised(sent: WorkerBatch | AudioaugError) -> WorkerBatch:
    """Return what was sent; raise it if it is an error."""
    if isinstance(sent, AudioaugError):
        raise sent
    return sent


def _plain(value: Any) -> Any:
    """Return text as Python's own, which torch's default collation leaves alone."""
    return value.item() if isinstance(value, np.str_ | np.bytes_) else value
