"""Time one thing many times, or several things in turn so that drift is charged to none of them."""

import random
from collections.abc import Callable, Mapping

from audioaug.measure.clock import Clock
from audioaug.measure.rounds import rounds
from audioaug.records import Timing
from audioaug.units import Seconds

Work = Callable[[], object]

# Reading the clock and waiting for a device cost up to some 10 us, so a repetition lasts at least 1 ms.
SHORTEST_REPETITION: Seconds = 1e-3
MOST_CALLS = 1024


def repeat(
    work: Work, clock: Clock, *, seconds: Seconds, at_least: int = 5, at_most: int = 200, warm_up: int = 2
) -> Timing:
    """Time one call of ``work``, warm, over and over; the clock is synchronised around each repetition.

    A call that takes less than a millisecond is repeated within each repetition and its time divided, so what a
    device needs to *finish* such calls is measured, not what one of them takes to come back.

    Args:
        work: what to time; what it returns is thrown away.
        clock: says what time it is and waits for the device.
        seconds: how long all this may take, the warm-up included.
        at_least: repetitions that are made however long they take.
        at_most: repetitions that are enough.
        warm_up: calls before anything is timed.
    """
    deadline = clock.now() + seconds
    calls, first = _warm(work, clock, warm_up)
    more = rounds(clock, deadline, at_least=at_least - 1, at_most=at_most - 1)
    return Timing((first, *(seconds_per_call(work, clock, calls) for _ in more)))


def interleave(
    works: Mapping[str, Work],
    clock: Clock,
    *,
    seconds: Seconds,
    at_least: int = 5,
    warm_up: int = 1,
    seed: int = 0,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, Timing]:
    """Time several works under the same conditions: all of them once a round, in random order but in the first.

    Whatever drifts (clock rates, temperature, the neighbours) then falls on all alike. Entry i of every timing is from
    round i, so they can be compared in pairs.

    Args:
        works: what to time, by name. Each is warmed before the first round.
        clock: says what time it is and waits for the device.
        seconds: how long all this may take, the warm-up included.
        at_least: rounds that are made however long they take.
        warm_up: calls of each work before anything is timed.
        seed: of the order within each round.
        on_round: called after each round but the first with the number of rounds so far.
    """
    deadline = clock.now() + seconds
    warm = {name: _warm(work, clock, warm_up) for name, work in works.items()}
    times = {name: [first] for name, (_, first) in warm.items()}
    order, shuffle = list(works), random.Random(seed).shuffle
    for index in rounds(clock, deadline, at_least=at_least - 1) if works else ():
        shuffle(order)
        for name in order:
            times[name].append(seconds_per_call(works[name], clock, warm[name][0]))
        if on_round is not None:
            on_round(index + 2)
    return {name: Timing(tuple(entries)) for name, entries in times.items()}


def seconds_per_call(work: Work, clock: Clock, calls: int) -> Seconds:
    """Time ``calls`` calls between two synchronisations and return the seconds that one of them took."""
    clock.synchronize()
    start = clock.now()
    for _ in range(calls):
        work()
    clock.synchronize()
    return (clock.now() - start) / calls


def _warm(work: Work, clock: Clock, warm_up: int) -> tuple[int, Seconds]:
    """Call ``work`` until it is warm; then find how many calls make a repetition long enough, and time a first one."""
    for _ in range(warm_up):
        work()
    calls = 1
    while (seconds := seconds_per_call(work, clock, calls)) * calls < SHORTEST_REPETITION and calls < MOST_CALLS:
        calls *= 2
    return calls, seconds
