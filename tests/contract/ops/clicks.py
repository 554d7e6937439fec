"""Clicks at known places, sent through a chain: where do they come out, and is that where its timeline says?

Each chain runs twice, with the same draws, on clips that differ only in where their click is. So whatever the ops add
themselves is gone from the difference of both results, in which only the two clicks are left, wherever they went.

Shapes: C channels, T samples.
"""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from audioaug import Chain, Draws, build_cpu
from audioaug.core import Origin, Timeline, follow
from audioaug.verify.replay import Clips, on_cpu, on_device

RATE = 16000
WIDTH = 24
"""Of a click, in samples."""

TOLERANCE = 0.010 * RATE
SMEARED = 0.080 * RATE
"""The tolerance for librosa's phase vocoder, which smears a click over a frame of 128 ms."""

AROUND = 0.025 * RATE
ECHO = 0.060 * RATE
"""Rooms repeat a click, nearly as loud, so long behind it."""

SEAM = 0.012 * RATE
"""Of clicks that are so near to where a piece of the clip begins or ends, only a part may be there, or a faded copy."""

SPAN = 48
"""Power is that of this many samples."""

FAINT, LOUD = 1e-3, 0.3
"""Shares of the greatest power: less is no click; more must be one that the timeline knows."""


class Clicks(NamedTuple):
    """Two versions of some clips: with the click of each at one place, and at the other."""

    clips: tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]
    places: tuple[list[int], list[int]]


def clicks(count: int, seed: int) -> Clicks:
    """Return clips of about a second, of unequal lengths: very quiet noise, and one click."""
    rng = np.random.default_rng(seed)
    both = Clicks(([], []), ([], []))
    for _ in range(count):
        samples = int(RATE * rng.uniform(0.9, 1.3))
        floor_T = rng.normal(0.0, 0.0003, samples)
        click_W = np.hanning(WIDTH) * rng.normal(size=WIDTH)
        places = (1 + rng.permutation(6)[:2] + rng.uniform(0.4, 0.6, 2)) / 8 * samples
        for side, place in enumerate(places.astype(int).tolist()):
            x_T = floor_T.copy()
            shape_W = click_W[::-1] if side else click_W  # as loud, but two at one place do not cancel
            x_T[place - WIDTH // 2 : place + WIDTH // 2] += 0.8 * shape_W / np.abs(click_W).max()
            both.clips[side].append(x_T.astype(np.float32)[None])
            both.places[side].append(place)
    return both


def through(chain: Chain, clips: Clips, draws: Draws, cut: int) -> Clips:
    """Run the first ``cut`` ops by the CPU build, the rest by the device build."""
    with warnings.catch_warnings():  # of rates and lengths that stretching does not like
        warnings.simplefilter("ignore")
        begun = on_cpu(chain, clips, RATE, draws, cut)
        return on_device(chain, begun, RATE, draws, cut) if cut < len(chain) else begun


def origins_of(chain: Chain, clips: Clips, draws: Draws) -> list[list[Origin]]:
    """Return what the timelines of the whole chain say of each clip."""
    cut = chain.followed_from if chain.followed_from else chain.device_from
    worker = build_cpu(chain, cut)
    begun = [worker.follow(x_CT, RATE, draws=draw, stop=cut)[1] for x_CT, draw in zip(clips, draws)]
    return follow(chain, draws, begun, start=cut)


def contradictions(
    chain: Chain, cut: int, count: int = 6, seed: int = 0, tolerance: float = TOLERANCE
) -> Iterator[str]:
    """Yield a sentence for each result of these builds that is not where the timelines have it."""
    both, draws = clicks(count, seed), chain.draw(np.arange(count), seed=seed)
    results = [through(chain, clips, draws, cut) for clips in both.clips]
    origins = [origins_of(chain, clips, draws) for clips in both.clips]
    for row in range(count):
        lines = [origins[side][row] for side in (0, 1)]
        pair = [results[side][row] for side in (0, 1)]
        lengths = [each[0].timeline.length_out for each in lines]
        if lengths != [y_CT.shape[-1] for y_CT in pair]:
            yield f"clip {row}: {[y_CT.shape[-1] for y_CT in pair]} samples, not {lengths}"
            continue
        places = [(each.timeline, both.places[side][each.row]) for side in (0, 1) for each in lines[side]]
        for sentence in _judged(pair, places, tolerance):
            yield f"clip {row}: {sentence}"


def _judged(pair: Clips, places: list[tuple[Timeline, int]], tolerance: float) -> Iterator[str]:
    """Compare the difference of two results with where clicks should be in it."""
    power_T, own_T = _power(pair[0], pair[1]), np.maximum(*(_power(y_CT) for y_CT in _equally_long(pair)))
    silent_T = own_T < 1e-12
    noise = 30 * float(np.median(own_T[~silent_T])) if not silent_T.all() else 1.0
    expected, unsure = [], []
    for timeline, place in places:
        found, _ = timeline.stamps([place])
        seams = np.append(timeline.pieces[:, :2].ravel(), np.inf)
        near = np.abs(seams - place).min() < SEAM
        (unsure if near else expected).extend(found.tolist())
        if near:  # what is faded out on one side of a seam may be heard on the other
            unsure += [t for shift in (-SEAM, SEAM) for t in timeline.stamps([place + shift])[0].tolist()]
    for place in expected:
        lone = all(abs(place - other) > 2 * (AROUND + tolerance) for other in [*expected, *unsure] if other != place)
        yield from _missing(power_T, silent_T, place, lone, tolerance)
    for place in _peaks(power_T, max(1e-9, noise)):
        if not any(-tolerance < place - known < ECHO + tolerance for known in expected) and not any(
            abs(place - known) < SEAM + tolerance for known in unsure
        ):
            yield f"a click at {place:.0f}, but the timeline has {np.round(sorted(expected)).tolist()}"


def _missing(
    power_T: NDArray[np.float64], silent_T: NDArray[np.bool_], place: float, lone: bool, tolerance: float
) -> Iterator[str]:
    low, high = (int(np.clip(place + side, 0, len(power_T))) for side in (-AROUND - tolerance, AROUND + tolerance))
    near = power_T[low:high]
    if silent_T[low:high].all():  # the op has made it silent
        return
    if not len(near) or near.max() < FAINT * power_T.max():
        yield f"no click at {place:.0f}"
    elif lone:
        onset = low + int((near > 0.25 * near.max()).argmax()) + SPAN // 2
        if abs(onset - place) > tolerance:
            yield f"the click that should be at {place:.0f} begins at {onset}"


def _power(y_CT: NDArray[np.float32], other_CT: NDArray[np.float32] | None = None) -> NDArray[np.float64]:
    """Return the power of a result, or of the difference of two, over 3 ms around each sample; (T,)."""
    if other_CT is not None:
        y_CT, other_CT = _equally_long([y_CT, other_CT])
        y_CT = y_CT - other_CT
    return np.convolve(np.square(y_CT, dtype=np.float64).sum(axis=0), np.ones(SPAN), "same")


def _equally_long(pair: Clips) -> list[NDArray[np.float32]]:
    longest = max(y_CT.shape[-1] for y_CT in pair)
    return [np.pad(y_CT, ((0, 0), (0, longest - y_CT.shape[-1]))) for y_CT in pair]


def _peaks(power_T: NDArray[np.float64], quiet: float) -> Iterator[float]:
    """Yield where the power is greatest, and greatest next to that, as long as it is loud."""
    left_T = power_T.copy()
    while len(left_T) and left_T.max() > max(quiet, LOUD * power_T.max()):
        place = int(left_T.argmax())
        yield place + 0.5
        left_T[max(0, place - int(TOLERANCE)) : place + int(TOLERANCE)] = 0.0
