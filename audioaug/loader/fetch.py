"""What runs in the DataLoader workers: read examples, run the first part of the chain, collate, prepare the rest.

The first part runs on each example before they are collated, or on the whole batch afterwards: the worker engine.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from audioaug.core import Draws, Timeline
from audioaug.core.draws import uniforms
from audioaug.engine import DeviceChain, Prepared, Preparer, WorkerChain, checked
from audioaug.errors import AudioaugError, DataError, first_line
from audioaug.loader.examples import (
    Where,
    add_lengths,
    audio_field,
    form_of,
    get_wave,
    own_length,
    samples_of,
    with_item,
    with_lengths,
    with_wave,
    without_torchcodec,
)
from audioaug.loader.keys import Key
from audioaug.loader.op_failure import told, told_of_batch
from audioaug.loader.sending import no_room, packed
from audioaug.loader.skipped import OnError, is_unreadable
from audioaug.loader.targets import Followers

REPLACEMENT = 2**31 + 1
"""The position, behind those in any chain, from which it is drawn which example replaces another."""


class Message(NamedTuple):
    """What a worker sends: the batch, what the device is to do with it, and a sentence for each example left out.

    ``batch`` and ``prepared`` are ``None`` if no example was left. ``keys`` are those of the examples in it, and
    ``audio_key`` is where each of them has its audio.
    """

    batch: Any
    prepared: Prepared | None
    skipped: list[str]
    keys: list[Key]
    audio_key: Where | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return received, (packed(tuple(self)),)


def received(content: bytes) -> Message | AudioaugError:
    """Return the message that a worker has packed, or the error in its place."""
    found = pickle.loads(content)
    return found if isinstance(found, AudioaugError) else Message(*found)


@dataclass
class Fetched:
    """Examples after the worker's part, with what that did to their time, and the draws for the device part."""

    examples: list[Any]
    timelines: list[Timeline]
    draws: Draws
    skipped: list[str]
    keys: list[Key]
    audio_key: Where | None = None


class Fetcher:
    """The dataset as the DataLoader sees it: reads the examples of some keys and runs the ops that run on examples.

    Args:
        dataset: map-style.
        worker: what runs on examples.
        on_error: what becomes of an example that cannot be read.
        follows: whether there are targets, for which to note where time goes.
        lengths: where in an example its own length is, in samples, if its wave is padded.
        audio_key: where in an example its audio is; by default, where ``audio_field`` finds it in the first.
    """

    def __init__(
        self,
        dataset: Any,
        worker: WorkerChain,
        on_error: OnError,
        follows: bool = False,
        lengths: Where | None = None,
        audio_key: Where | None = None,
    ) -> None:
        self.dataset, self.worker, self.on_error = dataset, worker, on_error
        self.follows, self.lengths, self.audio_key = follows, lengths, audio_key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: list[Key]) -> "Fetched | AudioaugError":
        """Read and augment the examples; those that cannot be read are left out or replaced, or an error.

        Our own errors are returned, not raised, since a DataLoader would bury their sentence in a traceback.
        """
        try:
            return self._fetched(keys)
        except AudioaugError as error:
            return error

    def _fetched(self, keys: list[Key]) -> Fetched:
        draws = self.worker.chain.draw([index for _, index in keys], keys[0][0], self.worker.seed)
        examples: list[Any] = []
        timelines: list[Timeline] = []
        kept, skipped = [], []
        for row, (epoch, index) in enumerate(keys):
            try:
                example, wave = self._read(index)
            except Exception as error:
                if missing := without_torchcodec(error):
                    raise missing from None
                if self.on_error == "raise" or not is_unreadable(error):
                    raise
                skipped.append(_sentence(index, error))
                if self.on_error == "skip" or not (instead := self._instead_of(epoch, index)):
                    continue
                example, wave = instead
            with told(self.worker, index, epoch):  # what goes wrong here is the chain's fault
                if self.follows:
                    wave, timeline = self.worker.follow(wave, draws=draws.rows([row]), stop=self.worker.cut)
                    timelines.append(timeline)
                else:
                    wave = self.worker(wave, draws=draws.rows([row]))
            augmented = torch.from_numpy(np.require(wave, requirements="W"))
            examples.append(with_wave(example, augmented, self.audio_key))
            kept.append(row)
        return Fetched(examples, timelines, draws.rows(kept), skipped, [keys[row] for row in kept], self.audio_key)

    def _read(self, index: int) -> tuple[Any, NDArray[np.float32]]:
        example = self.dataset[index]
        self.audio_key = audio_field(example, self.audio_key)
        wave = checked(samples_of(example, self.worker.chain.sample_rate, self.audio_key))
        return example, wave if self.lengths is None else wave[..., : own_length(example, self.lengths, wave.shape[-1])]

    def _instead_of(self, epoch: int, index: int) -> tuple[Any, NDArray[np.float32]] | None:
        """Read another example, the same whoever asks; ``None`` if several were tried in vain."""
        numbers = list(self.dataset) if isinstance(self.dataset, dict) else range(len(self.dataset))
        for share in uniforms(self.worker.seed, epoch, [index], [REPLACEMENT] * 8, range(8))[0]:
            try:
                return self._read(numbers[int(share * len(numbers))])
            except Exception as error:
                if not is_unreadable(error):
                    raise
        return None


class Collate:
    """Makes a batch of examples and prepares the device part for it.

    Args:
        preparer: of the device part.
        collate_fn: the user's own, which must leave the audio where it was; torch's default otherwise.
        pad: whether clips may differ in length; then they get silence behind, and the batch gets their lengths.
        on_batches: the ops that run here, on the batch, if there are any.
        followers: the targets that follow the audio.
        lengths: where in an example, and in the batch, the clips' lengths belong; a place of their own by default.
        seed: of the training run, which an error names.
    """

    def __init__(
        self,
        preparer: Preparer,
        collate_fn: Callable[[list[Any]], Any] | None,
        pad: bool,
        on_batches: DeviceChain | None = None,
        followers: Followers | None = None,
        lengths: Where | None = None,
        seed: int = 0,
    ) -> None:
        self.preparer, self.collate_fn, self.pad, self.on_batches = preparer, collate_fn, pad, on_batches
        self.followers, self.lengths, self.seed = followers, lengths, seed

    def __call__(self, fetched: "Fetched | AudioaugError") -> "Message | AudioaugError":
        """Return the message for the main process, or the error to be raised there."""
        if isinstance(fetched, AudioaugError):
            return fetched
        try:
            return self._message(fetched)
        except AudioaugError as error:
            return error
        except RuntimeError as error:
            if told := no_room(error):  # torch's own collate_fn makes batches in shared memory
                return told
            raise

    def _message(self, fetched: Fetched) -> Message:
        if not fetched.examples:
            return Message(None, None, fetched.skipped, [])
        key = fetched.audio_key
        waves = [get_wave(example, key) for example in fetched.examples]
        lengths = [wave.shape[-1] for wave in waves]
        batch = self._batch(self._labelled(fetched, waves), waves, lengths, key)
        audio, ends = self._collated_audio(batch, lengths, key)
        if self.on_batches is not None:
            audio, ends = self._augmented(self.on_batches, audio, fetched, ends)
            batch = with_wave(batch, audio, key)
        prepared = self._prepared(self.preparer, audio, fetched, ends)
        if self.collate_fn is None:
            self._check_ragged(prepared, lengths)
            batch = self._with_lengths(batch, torch.tensor(ends)) if self.pad else batch
        return Message(batch, prepared, fetched.skipped, fetched.keys, key)

    def _collated_audio(self, batch: Any, lengths: list[int], key: Where | None) -> tuple[torch.Tensor, list[int]]:
        """Return the audio of a batch and where each clip ends in it; raise ``DataError`` if collate_fn spoiled it."""
        try:
            audio = get_wave(batch, key)
        except DataError:
            raise DataError(
                f"collate_fn made {form_of(batch)}, in which the audio is not at {key!r}, as in the examples.",
                "Let collate_fn keep the audio in its place; rename it in the training step.",
            ) from None
        if not isinstance(audio, torch.Tensor) or audio.ndim not in (2, 3) or len(audio) != len(lengths):
            raise DataError(
                f"collate_fn made {type(audio).__name__} {tuple(getattr(audio, 'shape', ()))} of {len(lengths)} clips, "
                "but the audio must become one tensor, (B, T) or (B, C, T).",
            )
        ends = np.minimum(lengths, audio.shape[-1]).tolist()
        if self.followers and ends != lengths:
            raise DataError(
                f"collate_fn has cut a clip ({max(lengths)} samples) to {audio.shape[-1]}: targets cannot follow that.",
                "Cut clips in the dataset, with their targets, or by AdjustDuration in the chain.",
            )
        return audio, ends

    def _check_ragged(self, prepared: Prepared, lengths: list[int]) -> None:
        """Raise ``DataError`` if clips have, or get, different lengths, and nobody said that they may."""
        if prepared.ragged and not self.pad:
            raise DataError(
                f"Clips of different lengths ({min(lengths)} and {max(lengths)} samples) cannot be one batch."
                if min(lengths) < max(lengths)
                else "Once collated, the clips would get different lengths, which cannot be one batch.",
                "Set pad=True (in Loader, or in a model file), or cut them to one length.",
            )

    def _prepared(self, preparer: Preparer, audio: torch.Tensor, fetched: Fetched, ends: list[int]) -> Prepared:
        """Return what the ops that the preparer is for are to do with the batch.

        Raise ``DataError`` if they change clips' lengths behind the back of the user's own ``collate_fn``.
        """

        def alone(row: int, draws: Draws) -> object:
            return preparer(draws, _shape(audio[row : row + 1, ..., : ends[row]]))

        with told_of_batch(preparer, fetched.keys, self.seed, alone):
            prepared = preparer(fetched.draws, _shape(audio), lengths=ends)
        if self.collate_fn is not None and prepared.changes_length:
            raise DataError(
                "Once collated, the clips would change their lengths, which collate_fn cannot know.",
                "Cut the chain behind the ops that do so, or give Loader pad=True instead of a collate_fn.",
            )
        return prepared

    def _augmented(
        self, module: DeviceChain, audio: torch.Tensor, fetched: Fetched, ends: list[int]
    ) -> tuple[torch.Tensor, list[int]]:
        """Return the batch after the ops that run here, and the lengths of its clips."""
        prepared = self._prepared(module.prepare, audio, fetched, ends)
        with torch.no_grad():
            audio, length_B = augmented(module, audio, prepared, fetched.keys, self.seed)
        return audio.contiguous(), length_B.tolist()

    def _labelled(self, fetched: Fetched, waves: list[torch.Tensor]) -> list[Any]:
        """Return the examples with their clips' lengths by now, and their targets where the whole chain puts them."""
        examples = fetched.examples
        if self.lengths is not None:
            examples = [with_item(example, self.lengths, wave.shape[-1]) for example, wave in zip(examples, waves)]
        if self.followers:
            channels = 1 if waves[0].ndim == 1 else len(waves[0])
            examples = self.followers.moved(examples, fetched.draws, fetched.timelines, channels, fetched.audio_key)
        return examples

    def _with_lengths(self, batch: Any, length_B: torch.Tensor) -> Any:
        return add_lengths(batch, length_B) if self.lengths is None else with_lengths(batch, length_B, self.lengths)

    def _batch(self, examples: list[Any], waves: list[torch.Tensor], lengths: list[int], key: Where | None) -> Any:
        if self.collate_fn is not None:
            return self.collate_fn(examples)
        shapes = {tuple(wave.shape[:-1]) for wave in waves}
        if len(shapes) > 1:
            raise DataError(f"Clips with different channels {sorted(shapes)} cannot be one batch.", "Mix them down.")
        longest = max(lengths)
        if min(lengths) < longest:  # padding by nothing copies, too
            waves = [torch.nn.functional.pad(wave, (0, longest - wave.shape[-1])) for wave in waves]
        targets = self.followers.collated(examples, self.pad) if self.followers else {}
        examples = [with_wave(example, wave, key) for example, wave in zip(examples, waves, strict=True)]
        for place in targets:  # ragged ones are nothing for torch's default
            examples = [with_item(example, place, 0) for example in examples]
        batch = default_collate(examples)
        for place, target in targets.items():
            batch = with_item(batch, place, target)
        return batch


def augmented(
    module: DeviceChain, audio: torch.Tensor, prepared: Prepared, keys: Sequence[Key], seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch after a part of the chain, and the lengths of its clips; raise ``OpError`` if an op fails."""

    def alone(row: int, draws: Draws) -> object:
        return module(audio[row : row + 1, ..., : prepared.length_of(row)], draws=draws)

    with told_of_batch(module.prepare, keys, seed, alone):
        return module.augment(audio, prepared)


def _shape(audio: torch.Tensor) -> tuple[int, ...]:
    """Return (B, C, T) of a batch (B, C, T) or (B, T)."""
    return tuple(audio.shape) if audio.ndim == 3 else (len(audio), 1, audio.shape[-1])


def _sentence(index: int, error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    return f"Example {index} cannot be read ({type(error).__name__}: {first_line(error)[:200]})."
