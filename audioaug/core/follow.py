"""Follow: what the draws do to the time of a batch's examples, and which examples they mix. No audio is touched.

Shapes: B examples.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from audioaug.core.batch import BatchInfo
from audioaug.core.chain import Chain, Node, why_not_followed
from audioaug.core.draws import Draws
from audioaug.core.params import Params, of_one
from audioaug.core.timeline import Timeline
from audioaug.errors import PlanError


class Origin(NamedTuple):
    """An example that an augmented one is made of: which of its batch, where its time lies now, its share of energy."""

    row: int
    timeline: Timeline
    share: float


def follow(
    chain: Chain,
    draws: Draws,
    begun: Sequence[Timeline],
    *,
    start: int = 0,
    stop: int | None = None,
    channels: int = 1,
    sample_rate: int | None = None,
    measured: Mapping[str, Params] | None = None,
) -> list[list[Origin]]:
    """Return what the ops of a chain from ``start`` on, up to ``stop``, make of the time of B examples.

    Args:
        chain: the declaration.
        draws: of the examples.
        begun: what has been done to the time of each before.
        start: how many ops have run before.
        stop: how many have run afterwards; all by default.
        channels: of the audio.
        sample_rate: in Hz; the chain's by default.
        measured: of one example, by the paths of their nodes: parameters of ops whose cuts depend on the audio.

    Returns the origins of each example: itself, then those that ops have mixed in and whose labels it gets.

    Raises:
        PlanError: an op would have to see the audio, and was not ``measured``.
    """
    rate = sample_rate or chain.sample_rate
    origins = [[Origin(row, timeline, 1.0)] for row, timeline in enumerate(begun)]
    for top in chain.nodes[start:stop]:
        for node, rows in top.steps(draws, np.arange(len(begun))):
            rows = rows[_lengths(origins, rows) > 0]  # no op changes an empty clip
            if node.capabilities.changes_timing:
                for row in rows.tolist():
                    after = _timeline(node, draws, row, _length(origins[row]), channels, rate, measured or {})
                    origins[row] = [each._replace(timeline=each.timeline.then(after)) for each in origins[row]]
            elif node.capabilities.mixes_examples:
                _mix(origins, node, draws, rows, BatchInfo(rate, _lengths(origins, rows), channels))
    return origins


def _timeline(
    node: Node, draws: Draws, row: int, length: int, channels: int, rate: int, measured: Mapping[str, Params]
) -> Timeline:
    if not node.capabilities.length_depends_on_audio:
        batch = BatchInfo(rate, np.asarray([length]), channels)
        return node.op.timeline(of_one(node.resolve(draws, np.asarray([row]), batch)), length, rate)
    if node.path not in measured:
        raise PlanError(why_not_followed(node.op.name))
    return node.op.timeline(measured[node.path], length, rate)


def _mix(origins: list[list[Origin]], node: Node, draws: Draws, rows: NDArray[np.int64], batch: BatchInfo) -> None:
    """Give the rows the origins of their partners, cut to their own lengths."""
    before = [origins[row] for row in rows.tolist()]
    partners, shares = node.op.mixing(node.drawn(draws, rows), batch)
    for place, (row, partner, share) in enumerate(zip(rows.tolist(), partners.tolist(), shares.tolist())):
        if partner == place:  # itself: nothing new
            continue
        fitted = Timeline.identity(_length(before[partner]), _length(before[place]))
        own = [each._replace(share=each.share * share) for each in before[place]]
        others = [Origin(each.row, each.timeline.then(fitted), each.share * (1 - share)) for each in before[partner]]
        origins[row] = own + others


def _length(origins: Sequence[Origin]) -> int:
    return origins[0].timeline.length_out


def _lengths(origins: Sequence[Sequence[Origin]], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray([_length(origins[row]) for row in rows.tolist()], dtype=np.int64)
