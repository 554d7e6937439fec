"""Secondary causes: how reliable the advice is, and what would not help."""

import math

from audioaug.decide.causes.case import PROBE, Case, mean
from audioaug.units import format_percent, plural

EPOCHS = 10
"""Epochs until the advice pays for itself above which it may not be worth it."""

PROBE_OFF = 0.3
NOT_READY = 0.5


def fork_unsafe(case: Case) -> str:
    """User threads are alive when workers are forked."""
    threads, host = case.signals.threads_alive, case.report.host
    if not threads or host.start_method != "fork":
        return ""
    return (
        f"{plural(len(threads), 'thread')} of yours ({', '.join(threads)}) {'is' if len(threads) == 1 else 'are'} "
        "alive when workers are forked: a lock held at that moment stays locked in them. Start threads after the "
        "workers, or use Plan(start_method='forkserver')."
    )


def probe_unrepresentative(case: Case) -> str:
    """The examples used for stage timings are not representative."""
    examples = case.examples
    if examples is None or len(examples.again_ms) < 2 * PROBE:
        return ""
    total = tuple(a + b for a, b in zip(examples.again_ms, examples.augment_ms, strict=True))
    ratio = mean(total[:PROBE]) / max(1e-9, mean(total[PROBE:]))
    if max(ratio, 1 / max(ratio, 1e-9)) < 1 + PROBE_OFF:
        return ""
    spread = math.sqrt(sum((value - mean(total)) ** 2 for value in total) / len(total)) / max(1e-9, mean(total))
    return (
        f"The {PROBE} clips that transforms are timed with take {ratio:.2f}x the time of "
        f"{plural(len(total) - PROBE, 'other')} (standard deviation {format_percent(spread)}): predictions "
        "may be off by as much. Rely on raced candidates."
    )


def prefetch_useless(case: Case) -> str:
    """Prefetched batches never accumulate."""
    ready = case.signals.ready
    if not case.waits or not case.current.num_workers or ready is None or ready >= NOT_READY:
        return ""
    return (
        f"On average {ready:.1f} of at most {case.current.queue} batches are queued: workers never get ahead, so a "
        "larger prefetch_factor does not help. Make loading faster first."
    )


def advice_costs_more_than_it_saves(case: Case) -> str:
    """The advice takes many epochs to pay for itself."""
    steps, epoch = case.report.break_even_steps, case.epoch_steps
    if steps is None or epoch is None or steps <= EPOCHS * epoch:
        return ""
    return (
        f"This advice pays for itself after {plural(steps, 'step')}, {plural(round(steps / epoch), 'epoch')} of "
        f"{plural(epoch, 'step')}. For a shorter run, save it for the next one (--plan FILE)."
    )
