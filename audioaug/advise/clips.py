"""Clips: where the audio of a dataset's examples is, how long their clips are, and whether batches need padding."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from audioaug.advise.drawn import Reader
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain, leaves
from audioaug.engine import Preparer
from audioaug.loader.examples import Where, audio_field, own_length, samples_of
from audioaug.loader.stream import is_stream
from audioaug.ops import AdjustDuration
from audioaug.records import Interval, LoaderSetup

PROBED = 32
"""Examples that are read to see whether clips differ in length."""

DRAWS = (2, 16, 128)
"""Examples whose draws are looked at, in steps, to see whether the chain makes clips differ in length."""


@dataclass(frozen=True)
class Clips:
    """What some examples of a dataset show: where their audio is (``None``: unknown, or they are the audio themselves),
    and the lengths of their clips in samples."""

    audio_key: Where | None
    samples: tuple[int, ...]

    @property
    def differ(self) -> bool:
        """Whether the clips differ in length."""
        return len(set(self.samples)) > 1

    def seconds(self, sample_rate: int) -> Interval | None:
        """Return the shortest and the longest length; ``None`` if no example could be read."""
        return (min(self.samples) / sample_rate, max(self.samples) / sample_rate) if self.samples else None


def look_at_clips(dataset: Any, sample_rate: int, audio_key: Where | None, lengths: Where | None) -> Clips:
    """Read some examples; unreadable ones are ignored.

    Args:
        dataset: map-style or a stream.
        sample_rate: of the chain, in Hz.
        audio_key: where the audio is, if the user says so.
        lengths: where in an example its own length is, if its wave is padded.
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
    """Return the name of an op that gives clips of one length, in samples, different ones; empty if there is none."""
    fixed = (place for place, op in enumerate(chain.ops) if isinstance(op, AdjustDuration) and op.p == 1)
    start = max(fixed, default=0)
    names = [leaf.name for op in chain.ops[start:] for leaf in leaves(op) if leaf.capabilities.changes_length]
    if not names or not samples:
        return ""
    prepare = Preparer(chain, start, fused=False)
    ragged = any(prepare(chain.draw(range(count)), (count, 1, samples)).ragged for count in DRAWS)
    return names[-1] if ragged else ""


def loader_setup(
    dataset: Any, chain: Chain, audio_key: Where | None, given: Mapping[str, Any]
) -> tuple[LoaderSetup, Interval | None, dict[str, str]]:
    """Return what Loader is given besides a plan, the shortest and longest clip in seconds, and where that is from.

    Args:
        dataset: map-style or a stream.
        chain: the augmentation.
        audio_key: where the audio is, if the user says so.
        given: what the model file defines.
    """
    lengths, sources = given.get("lengths"), dict[str, str]()
    clips = look_at_clips(dataset, chain.sample_rate, audio_key, lengths)
    op = "" if given.get("collate_fn") else resizing_op(chain, max(clips.samples, default=0))
    pad = given.get("pad")
    if pad is not None:
        sources["pad"] = "model file"
    elif pad := clips.differ or bool(op):
        sources["pad"] = "clips of different lengths" if clips.differ else f"{op}, which changes clips' lengths"
    if audio_key is None and isinstance(clips.audio_key, str):
        sources["audio_key"] = "the examples"
    setup = LoaderSetup(
        is_stream=is_stream(dataset),
        audio_key=clips.audio_key if audio_key is None else audio_key,
        pad=bool(pad),
        lengths=lengths,
        collate_fn=given.get("collate_fn") is not None,
        targets=bool(given.get("targets")),
    )
    return setup, clips.seconds(chain.sample_rate), sources
