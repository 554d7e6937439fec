"""Clips: which examples are sampled, where their audio is, how long they are, and whether batches need padding."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from torch.utils.data import IterableDataset

from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain, leaves
from audioaug.engine import Preparer
from audioaug.loader.examples import Field, audio_field, own_length, samples_of
from audioaug.loader.sampling import is_stream
from audioaug.ops import AdjustDuration
from audioaug.records import Interval, LoaderSetup

POOL = 4096
"""Most examples that loaders are measured with."""


def sample_indices(size: int, count: int, seed: int = 0) -> list[int]:
    """Return up to ``count`` random indices below ``size``, at most ``POOL``.

    A smaller count is a prefix of a larger one. The cost does not depend on the size of the dataset.
    """
    return random.Random(seed).sample(range(size), min(size, POOL))[:count]


class Restarting(IterableDataset[Any]):
    """A stream that restarts when it ends, so that a measurement never sees the end of an epoch.

    Args:
        dataset: the user's stream. Its ``set_epoch``, if it has one, is called before each pass.
        most: examples that an iteration yields in each worker; unlimited by default.
    """

    def __init__(self, dataset: Any, most: int | None = None) -> None:
        self.dataset, self.most = dataset, most

    def __iter__(self) -> Iterator[Any]:
        return islice(self._passes(), self.most)

    def _passes(self) -> Iterator[Any]:
        for epoch in count():
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(epoch)
            is_empty = True
            for example in self.dataset:
                is_empty = False
                yield example
            if is_empty:
                return


class Reader:
    """Read examples of a dataset by number. A stream returns its next example, whatever the number."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._stream = iter(Restarting(dataset)) if is_stream(dataset) else None

    def numbers(self, count: int) -> Sequence[int]:
        """Return the numbers of a sample of at most ``count`` examples."""
        return range(count) if self._stream is not None else sample_indices(len(self._dataset), count)

    def __call__(self, number: int) -> Any:
        """Return an example. Exceptions of the dataset pass through; an empty stream raises ``StopIteration``."""
        return self._dataset[number] if self._stream is None else next(self._stream)


PROBED = 32
"""Examples that are read to detect clips of different lengths."""

DRAWS = (2, 16, 128)
"""Numbers of examples, in steps, whose draws are inspected for ops that change the length of clips."""


@dataclass(frozen=True)
class Clips:
    """The audio field of examples (``None``: unknown, or they are audio themselves), and clip lengths in samples."""

    audio_key: Field | None
    samples: tuple[int, ...]

    @property
    def differ(self) -> bool:
        """Whether the clips differ in length."""
        return len(set(self.samples)) > 1

    def seconds(self, sample_rate: int) -> Interval | None:
        """Return the shortest and the longest length; ``None`` if no example could be read."""
        return (min(self.samples) / sample_rate, max(self.samples) / sample_rate) if self.samples else None


def inspect_clips(dataset: Any, sample_rate: int, audio_key: Field | None, lengths: Field | None) -> Clips:
    """Read some examples and return their audio field and lengths; unreadable ones are ignored.

    Args:
        dataset: map-style or a stream.
        sample_rate: of the chain, in Hz.
        audio_key: field of the audio, if the user gives it.
        lengths: field of an example's own length, if its wave is padded.
    """
    if isinstance(dataset, AudioFolder) and dataset.seconds is not None:
        return Clips(0, (round(dataset.seconds * sample_rate),))
    reader, samples = Reader(dataset), list[int]()
    for number in reader.numbers(PROBED):
        with suppress(Exception):
            example = reader(number)
            audio_key = audio_field(example, audio_key)
            length = samples_of(example, sample_rate, audio_key).shape[-1]
            samples.append(length if lengths is None else own_length(example, lengths, length))
    return Clips(audio_key, tuple(samples))


def resizing_op(chain: Chain, samples: int) -> str:
    """Return the name of an op that makes clips of equal length (in samples) unequal, or an empty string."""
    fixed = (place for place, op in enumerate(chain.ops) if isinstance(op, AdjustDuration) and op.p == 1)
    start = max(fixed, default=0)
    names = [leaf.name for op in chain.ops[start:] for leaf in leaves(op) if leaf.capabilities.changes_length]
    if not names or not samples:
        return ""
    prepare = Preparer(chain, start, fused=False)
    ragged = any(prepare(chain.draw(range(count)), (count, 1, samples)).ragged for count in DRAWS)
    return names[-1] if ragged else ""


def loader_setup(
    dataset: Any,
    chain: Chain,
    audio_key: Field | None,
    pad: bool | None,
    lengths: Field | None,
    collate_fn: Any,
    targets: Any,
) -> tuple[LoaderSetup, Interval | None, dict[str, str]]:
    """Return Loader's arguments other than the plan, the shortest and longest clip in seconds, and sources.

    ``audio_key`` and ``pad`` are detected from some examples if they are ``None``; then their source is returned, too.
    """
    sources = dict[str, str]()
    clips = inspect_clips(dataset, chain.sample_rate, audio_key, lengths)
    op = "" if collate_fn else resizing_op(chain, max(clips.samples, default=0))
    if pad is None and (pad := clips.differ or bool(op)):
        sources["pad"] = "clips of different lengths" if clips.differ else f"{op}, which changes clips' lengths"
    if audio_key is None and isinstance(clips.audio_key, str):
        sources["audio_key"] = "the examples"
    setup = LoaderSetup(
        is_stream=is_stream(dataset),
        audio_key=clips.audio_key if audio_key is None else audio_key,
        pad=bool(pad),
        lengths=lengths,
        collate_fn=collate_fn is not None,
        targets=bool(targets),
    )
    return setup, clips.seconds(chain.sample_rate), sources
