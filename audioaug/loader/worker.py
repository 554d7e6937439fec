"""Worker: reads examples, runs the first part of the chain, collates, and prepares the device part.

The first part runs on each example before collation, or on the whole batch afterwards: the worker engine. Without
workers all of it runs in the training process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from audioaug.core import Draws, Key, Timeline
from audioaug.core.draws import uniforms
from audioaug.engine import DeviceChain, Prepared, Preparer, WorkerChain, checked
from audioaug.errors import AudioaugError, DataError, first_line
from audioaug.loader.examples import (
    Field,
    KeyOf,
    add_lengths,
    audio_field,
    describe,
    get_wave,
    own_key,
    own_length,
    padded,
    samples_of,
    with_item,
    with_lengths,
    with_wave,
)
from audioaug.loader.failures_in_ops import batch_op_errors, op_errors
from audioaug.loader.failures_of_examples import OnError, is_unreadable, torchcodec_error
from audioaug.loader.failures_of_resources import shared_memory_error
from audioaug.loader.pickling import WorkerBatch
from audioaug.loader.targets import LabelTransforms

EpochIndex: TypeAlias = tuple[int, int, int]
"""What the DataLoader asks for: (epoch, index of an example, how often the epoch has had this example before)."""

REPLACEMENT = 2**31 + 1
"""The draw that selects which example replaces another: its position, past the end of any chain."""


@dataclass
class Fetched:
    """Examples after the ops that run on clips, with their timelines, and the draws for the rest of the chain."""

    examples: list[Any]
    timelines: list[Timeline]
    draws: Draws
    skipped: list[str]
    keys: list[Key]
    epoch: int
    audio_key: Field | None = None


class Fetcher:
    """The dataset as the DataLoader sees it: reads examples and runs the ops that run on clips.

    Args:
        dataset: map-style, or the iterable one of a ``Stream``, which passes its examples to ``fetch``.
        worker: the ops that run on clips.
        on_error: what happens when an example cannot be read.
        tracks_time: whether labels follow the audio, so that timelines are needed.
        lengths: the field of an example with its own length in samples, if its wave is padded.
        audio_key: the field of an example with its audio; by default, found in the first example.
        key: where an example has its key; by default, its index is its key.
    """

    def __init__(
        self,
        dataset: Any,
        worker: WorkerChain,
        on_error: OnError,
        tracks_time: bool = False,
        lengths: Field | None = None,
        audio_key: Field | None = None,
        key: KeyOf | None = None,
    ) -> None:
        self.dataset, self.worker, self.on_error = dataset, worker, on_error
        self.tracks_time, self.lengths, self.audio_key, self.key = tracks_time, lengths, audio_key, key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, wanted: list[EpochIndex]) -> "Fetched | AudioaugError":
        """Read and augment examples of the map-style dataset. See ``fetch``."""
        replacements = range(len(self.dataset)) if self.on_error == "replace" else ()
        return self.fetch(wanted, self.dataset, replacements)

    def fetch(
        self, wanted: Sequence[EpochIndex], source: Any, replacements: Sequence[int]
    ) -> "Fetched | AudioaugError":
        """Read and augment examples; those that cannot be read are left out, replaced, or an error.

        Our own errors are returned, not raised, since the DataLoader would bury their sentence in a traceback.

        Args:
            wanted: epoch, index and number of earlier occurrences of each example.
            source: has each example under its index.
            replacements: the indices of examples that may replace another.
        """
        try:
            return self._fetch(wanted, source, replacements)
        except StopIteration as error:  # which would end the epoch
            raise RuntimeError("the dataset, or the key function, raised StopIteration") from error
        except AudioaugError as error:
            return error

    def _fetch(self, wanted: Sequence[EpochIndex], source: Any, replacements: Sequence[int]) -> Fetched:
        epoch, skipped = wanted[0][0], list[str]()
        read = [self._read_or_replace(source, index, replacements, epoch, skipped) for _, index, _ in wanted]
        found = [each for each in read if each is not None]
        keys = [
            _key_of_index(index, repeat) if self.key is None else own_key(each[0], self.key)
            for (_, index, repeat), each in zip(wanted, read)
            if each is not None
        ]
        draws = self.worker.chain.draw(keys, epoch, self.worker.seed)
        examples, timelines = list[Any](), list[Timeline]()
        for key, (example, wave), draw in zip(keys, found, draws):
            with op_errors(self.worker, key, epoch):  # what fails here is the chain's fault, not the example's
                if self.tracks_time:
                    wave, timeline = self.worker.follow(wave, draws=draw, stop=self.worker.cut)
                    timelines.append(timeline)
                else:
                    wave = self.worker(wave, draws=draw)
            examples.append(with_wave(example, torch.from_numpy(wave), self.audio_key))
        return Fetched(examples, timelines, draws, skipped, keys, epoch, self.audio_key)

    def _read_or_replace(
        self, source: Any, index: int, replacements: Sequence[int], epoch: int, skipped: list[str]
    ) -> tuple[Any, NDArray[np.float32]] | None:
        """Read an example, or another one in its place; ``None`` if it is left out. ``skipped`` gets the reason."""
        try:
            return self._read(source, index)
        except Exception as error:
            if explained := torchcodec_error(error):
                raise explained from None
            if self.on_error == "raise" or not is_unreadable(error):
                raise
            skipped.append(_why_skipped(index, error))
        return None if self.on_error == "skip" else self._replacement(source, replacements, epoch, index)

    def _read(self, source: Any, index: int) -> tuple[Any, NDArray[np.float32]]:
        example = source[index]
        name = f"Example {index}" if self.key is None else f"The example at index {index}"  # which has another key
        if example is None:
            raise DataError(f"{name} is None.", "on_error='skip' leaves it out." if self.on_error == "raise" else "")
        self.audio_key = audio_field(example, self.audio_key, name)
        try:
            wave = checked(samples_of(example, self.worker.chain.sample_rate, self.audio_key))
            end = None if self.lengths is None else own_length(example, self.lengths, wave.shape[-1])
        except DataError as error:
            raise type(error)(f"{name}: {error.message}", error.next_step) from None
        return example, wave[..., :end]

    def _replacement(
        self, source: Any, replacements: Sequence[int], epoch: int, index: int
    ) -> tuple[Any, NDArray[np.float32]] | None:
        """Read another example, drawn from seed, epoch and index; ``None`` if eight of them cannot be read either."""
        for uniform in uniforms(self.worker.seed, epoch, [index], [REPLACEMENT] * 8, range(8))[0]:
            try:
                return self._read(source, replacements[int(uniform * len(replacements))])
            except Exception as error:
                if not is_unreadable(error):
                    raise
        return None


class Collate:
    """Collates examples to a batch, runs the ops that run on batches, and prepares the device part.

    Args:
        preparer: of the device part.
        collate_fn: the user's own, which must keep the audio in its field; torch's default otherwise.
        pad: whether clips may differ in length; then they are padded with silence, and the batch gets their lengths.
        batched_ops: the ops that run here, on the batch, if there are any.
        labels: the labels that follow the audio.
        lengths: the field, of an example and of the batch, for the clips' lengths; by default, a new one in the batch.
        seed: of the training run, for error messages.
    """

    def __init__(
        self,
        preparer: Preparer,
        collate_fn: Callable[[list[Any]], Any] | None,
        pad: bool,
        batched_ops: DeviceChain | None = None,
        labels: LabelTransforms | None = None,
        lengths: Field | None = None,
        seed: int = 0,
    ) -> None:
        self.preparer, self.collate_fn, self.pad, self.batched_ops = preparer, collate_fn, pad, batched_ops
        self.labels, self.lengths, self.seed = labels, lengths, seed
        self.of_features = batched_ops is None and preparer.chain.has_features(preparer.start)
        self.silence = preparer.chain.silence if self.of_features else 0.0

    def __call__(self, fetched: "Fetched | AudioaugError") -> "WorkerBatch | AudioaugError":
        """Return what is sent to the training process: a batch, or the error to be raised there."""
        if isinstance(fetched, AudioaugError):
            return fetched
        try:
            return self._collate(fetched)
        except StopIteration as error:  # which would end the epoch
            raise RuntimeError("collate_fn raised StopIteration") from error
        except AudioaugError as error:
            return error
        except RuntimeError as error:
            if explained := shared_memory_error(error):  # torch's default collate_fn allocates batches there
                return explained
            raise

    def _collate(self, fetched: Fetched) -> WorkerBatch:
        if not fetched.examples:
            return WorkerBatch(None, None, fetched.skipped, [], fetched.epoch)
        key = fetched.audio_key
        waves = [get_wave(example, key) for example in fetched.examples]
        lengths = [wave.shape[-1] for wave in waves]
        batch = self._batch(self._with_labels(fetched, waves), waves, key)
        audio, ends = self._collated_audio(batch, lengths, key)
        if self.batched_ops is not None:
            audio, ends = self._augmented(self.batched_ops, audio, fetched, ends)
            batch = with_wave(batch, audio, key)
        prepared = self._prepared(self.preparer, audio, fetched, ends)
        if self.collate_fn is None:
            self._check_ragged(prepared, lengths)
            batch = self._with_lengths(batch, torch.tensor(ends, device="cpu")) if self.pad else batch
        return WorkerBatch(batch, prepared, fetched.skipped, fetched.keys, fetched.epoch, key)

    def _collated_audio(self, batch: Any, lengths: list[int], key: Field | None) -> tuple[torch.Tensor, list[int]]:
        """Return the audio of a batch and where each clip ends in it.

        Raises:
            DataError: ``collate_fn`` has moved, removed or cut the audio, or has not padded it at its end.
        """
        try:
            audio = get_wave(batch, key)
        except DataError:
            raise DataError(
                f"collate_fn returned {describe(batch)}, without the audio at {key!r}, where the examples have it.",
                "Let collate_fn keep the audio in its field, or in `audio` of a type that has to(device); rename it in "
                "the training step.",
            ) from None
        known, shapes = ((3, 4), "(B, F, N) or (B, C, F, N)") if self.of_features else ((2, 3), "(B, T) or (B, C, T)")
        if not isinstance(audio, torch.Tensor) or audio.ndim not in known or len(audio) != len(lengths):
            raise DataError(
                f"Expected collate_fn to stack {len(lengths)} clips to one tensor, {shapes}, got "
                f"{type(audio).__name__} {tuple(getattr(audio, 'shape', ()))}.",
            )
        ends = np.minimum(lengths, audio.shape[-1]).tolist()
        if self.collate_fn is not None and (self.batched_ops is not None or self.preparer.parts):
            _check_padding(audio, ends)
        if self.labels and ends != lengths:
            raise DataError(
                f"collate_fn cut a clip of {max(lengths)} samples to {audio.shape[-1]}, which targets cannot follow.",
                "Cut clips in the dataset, with their targets, or with AdjustDuration in the chain.",
            )
        return audio, ends

    def _check_ragged(self, prepared: Prepared, lengths: list[int]) -> None:
        """Raise ``DataError`` if clips have, or get, different lengths without ``pad``."""
        if prepared.ragged and not self.pad:
            raise DataError(
                f"Clips of different lengths ({min(lengths)} and {max(lengths)} samples) cannot be one batch."
                if min(lengths) < max(lengths)
                else "Ops after collation would give the clips different lengths, which cannot be one batch.",
                "Set pad=True (in Loader, or in a model file), or cut them to one length.",
            )

    def _prepared(self, preparer: Preparer, audio: torch.Tensor, fetched: Fetched, ends: list[int]) -> Prepared:
        """Return what the preparer's ops are to do with the batch.

        Raises:
            DataError: they change clips' lengths after the user's own ``collate_fn`` has seen them.
        """

        def run_alone(row: int, draws: Draws) -> object:
            return preparer(draws, _shape(audio[row : row + 1, ..., : ends[row]]))

        with batch_op_errors(preparer, fetched.keys, fetched.epoch, self.seed, run_alone):
            prepared = preparer(fetched.draws, _shape(audio), lengths=ends)
        if self.collate_fn is not None and prepared.changes_length:
            raise DataError(
                "Ops after collation would change the clips' lengths, which collate_fn cannot take into account.",
                "Cut the chain after these ops, or give Loader pad=True instead of a collate_fn.",
            )
        return prepared

    def _augmented(
        self, module: DeviceChain, audio: torch.Tensor, fetched: Fetched, ends: list[int]
    ) -> tuple[torch.Tensor, list[int]]:
        """Return the batch after the ops that run here, and the lengths of its clips."""
        prepared = self._prepared(module.prepare, audio, fetched, ends)
        with torch.no_grad():
            audio, length_B = augment_batch(module, audio, prepared, fetched, self.seed, self.collate_fn is None)
        return audio.contiguous(), length_B.tolist()

    def _with_labels(self, fetched: Fetched, waves: list[torch.Tensor]) -> list[Any]:
        """Return the examples with their clips' current lengths, and labels as the whole chain moves them."""
        examples = fetched.examples
        if self.lengths is not None:
            examples = [with_item(example, self.lengths, wave.shape[-1]) for example, wave in zip(examples, waves)]
        if self.labels:
            channels = 1 if waves[0].ndim == 1 + self.of_features else len(waves[0])
            of_batch = fetched.draws, fetched.timelines, channels, fetched.keys, fetched.audio_key
            examples = self.labels.apply(examples, *of_batch)
        return examples

    def _with_lengths(self, batch: Any, length_B: torch.Tensor) -> Any:
        return add_lengths(batch, length_B) if self.lengths is None else with_lengths(batch, length_B, self.lengths)

    def _batch(self, examples: list[Any], waves: list[torch.Tensor], key: Field | None) -> Any:
        if self.collate_fn is not None:
            return self.collate_fn(examples)
        waves = padded(waves, self.silence)
        if key is None:
            return torch.stack(waves)
        collated: dict[Field, Any] = self.labels.collate(examples, self.pad) if self.labels else {}
        collated[key] = torch.stack(waves)  # torch's default would stack them in new shared memory
        for field in collated:  # torch's default cannot collate ragged ones
            examples = [with_item(example, field, 0) for example in examples]
        batch = default_collate(examples)
        for field, value in collated.items():
            batch = with_item(batch, field, value)
        return batch


def _key_of_index(index: int, repeat: int) -> Key:
    """Return the key of an example without one: its index, or another if an epoch has it again, with other draws."""
    return f"{index}#{repeat + 1}" if repeat else index


def _check_padding(audio: torch.Tensor, ends: list[int]) -> None:
    """Raise ``DataError`` unless each row of a batch is silent after the end of its clip, as the next ops make it."""
    for row, end in enumerate(ends):
        if end < audio.shape[-1] and audio[row, ..., end:].any():
            raise DataError(
                f"collate_fn returned a batch with sound after the end of clip {row}, which has {end} samples: it "
                "changes the order of the clips, or pads them with something other than silence at their end.",
                "Let it keep the order, and pad at the end, or run all ops before it: Plan(cut=len(chain)).",
            )


def augment_batch(
    module: DeviceChain,
    audio: torch.Tensor,
    prepared: Prepared,
    sent: "Fetched | WorkerBatch",
    seed: int,
    may_overwrite: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch after a part of the chain, and the lengths of its clips; raise ``OpError`` if an op fails.

    ``sent`` has the examples' keys and epoch. ``may_overwrite``: no one else has the batch, as is so unless the user's
    own ``collate_fn`` made it.
    """

    def run_alone(row: int, draws: Draws) -> object:
        return module(audio[row : row + 1, ..., : prepared.length_of(row)], draws=draws)

    with batch_op_errors(module.prepare, sent.keys, sent.epoch, seed, run_alone):
        return module.augment(audio, prepared, may_overwrite)


def _shape(audio: torch.Tensor) -> tuple[int, int, int]:
    """Return (B, C, T) of a batch (B, C, T) or (B, T)."""
    return len(audio), 1 if audio.ndim == 2 else audio.shape[1], audio.shape[-1]


def _why_skipped(index: int, error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    return f"Example {index} cannot be read ({type(error).__name__}: {first_line(error)[:200]})."
