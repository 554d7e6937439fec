"""Causes to know of beside the first: how far the advice carries, and what would be in vain."""

import math

from audioaug.decide.causes.case import PROBE, Case, mean
from audioaug.units import format_percent, plural

EPOCHS = 10
"""Advice that takes longer to pay for itself may not be worth it."""

PROBE_OFF = 0.3
NOT_READY = 0.5


def fork_unsafe(case: Case) -> str:
    """Threads are alive where workers are forked."""
    threads, host = case.signals.threads_alive, case.report.host
    if not threads or host.start_method != "fork":
        return ""
    return (
        f"{plural(len(threads), 'thread')} of yours ({', '.join(threads)}) {'is' if len(threads) == 1 else 'are'} "
        "alive when workers are forked: a lock held at that moment stays locked in them. Start threads after the "
        "workers, or use Plan(start_method='forkserver')."
    )


def probe_unrepresentative(case: Case) -> str:
    """The examples that stages are timed with differ from others."""
    examples = case.examples
    if examples is None or len(examples.again_ms) < 2 * PROBE:
        return ""
    total = tuple(a + b for a, b in zip(examples.again_ms, examples.augment_ms, strict=True))
    ratio = mean(total[:PROBE]) / max(1e-9, mean(total[PROBE:]))
    if max(ratio, 1 / max(ratio, 1e-9)) < 1 + PROBE_OFF:
        return ""
    spread = math.sqrt(sum((value - mean(total)) ** 2 for value in total) / len(total)) / max(1e-9, mean(total))
    return (
        f"The {PROBE} clips that transforms are timed with take {ratio:.2f} times as long as "
        f"{plural(len(total) - PROBE, 'other')} (single ones vary by {format_percent(spread)}): what is only predicted "
        "may be off as much. Trust what was raced."
    )


def prefetch_useless(case: Case) -> str:
    """Workers never get ahead."""
    ready = case.signals.ready
    if not case.waits or not case.current.num_workers or ready is None or ready >= NOT_READY:
        return ""
    return (
        f"{ready:.1f} of the {case.current.queue} batches that may lie ready do: workers never get ahead, so a larger "
        "prefetch_factor gains nothing. Make loading faster first."
    )


def advice_costs_more_than_it_saves(case: Case) -> str:
    """The advice pays for itself late, in terms of epochs."""
    steps, epoch = case.report.break_even_steps, case.epoch_steps
    if steps is None or epoch is None or steps <= EPOCHS * epoch:
        return ""
    return (
        f"This advice has paid for itself only after {steps:,} steps, {steps / epoch:,.0f} epochs of "
        f"{plural(epoch, 'step')}. For a shorter training, keep it for the next one (--plan FILE)."
    )
