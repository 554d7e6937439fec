"""Causes in the training step itself, independent of placement."""

import numpy as np

from audioaug.batching import expected_padding, make_buckets
from audioaug.decide.causes.case import Case, mean
from audioaug.records import Signals
from audioaug.units import format_ms, format_percent, format_seconds, plural

PADDED = 0.2
CHURN = 1.5
"""Factor of the first step on a shape over the next."""

SLOW_START = 0.2
"""Share of an epoch."""

SHORTEST_START = 1.0
"""Seconds below which the start of workers is negligible."""

GAP = 0.05
"""Share of an epoch."""

MANY_PAGES, IN_KERNEL = 1000, 0.1
"""Page faults a step, and the kernel's share of CPU time, above which they are reported."""


def model_bound(case: Case) -> str:
    """Data arrives in time."""
    if not case.in_time:
        return ""
    return (
        f"The model's own step takes {format_ms(case.model_ms)} of {format_ms(case.step_ms)}: the most that any "
        f"placement could gain is {format_percent(case.stall)}. Only a faster step helps (--also bf16 measures one)."
    )


def shape_churn(case: Case) -> str:
    """Batches have many shapes, and the first step on each is slow."""
    signals = case.signals
    first, again = (format_ms(ms or 0.0) for ms in (signals.first_step_ms, signals.again_step_ms))
    shapes = plural(signals.batch_shapes or 0, "shape")
    return (
        f"The first step on a new batch shape takes {first}, the next one {again}, and {shapes} occurred in a few "
        "batches. Pad clips to a few fixed lengths."
        if are_new_shapes_slow(signals)
        else ""
    )


def are_new_shapes_slow(signals: Signals) -> bool:
    """Return whether several batches had several shapes, and the first step on each was slow."""
    first, again = signals.first_step_ms or 0.0, signals.again_step_ms or 0.0
    return (signals.batch_shapes or 0) >= 3 and 0.0 < CHURN * again <= first


def only_shape_churn(case: Case) -> str:
    """The same, unless a change of the configuration gives most of a gain."""
    return "" if case.explanation is not None else shape_churn(case)


def padding_waste(case: Case) -> str:
    """Clips of different lengths share a batch, so the model processes padding."""
    examples = case.examples
    if examples is None or not case.in_time:
        return ""
    batch_size = case.report.workload.batch_size
    wasted = padding(examples.samples, batch_size)
    if wasted < PADDED:
        return ""
    bucketed = bucketed_padding(examples.samples, batch_size)
    similar = (
        ""
        if bucketed is None
        else f" In batches of similar length it would be {format_percent(bucketed)} (computed for the "
        f"{len(examples.samples)} clips that were examined)."
    )
    return (
        f"{format_percent(wasted)} of a batch is padding, which the model processes in each of its "
        f"{format_ms(case.model_ms)} steps.{similar} Put clips of similar length into one batch: "
        f"Loader(batch_sampler=audioaug.BucketBatchSampler(lengths, batch_size={batch_size}), pad=True)."
    )


def bucketed_padding(samples: tuple[int, ...], batch_size: int) -> float | None:
    """Return the expected share of padding if ``BucketBatchSampler`` puts these clips into batches.

    ``None`` if they do not fill two batches. A whole dataset has more clips of each length, and so less padding.
    """
    if len(samples) < 2 * batch_size or not any(samples):
        return None
    length_N = np.asarray(samples, dtype=np.int64)
    return expected_padding(length_N, make_buckets(length_N, batch_size))


def padding(samples: tuple[int, ...], batch_size: int) -> float:
    """Return the expected share of padding in batches of such clips: 1 - mean / expected longest.

    The longest of n samples from m values is at most the k-th with probability (k / m) ** n.
    """
    ordered, count = sorted(samples), len(samples)
    longest = sum(
        length * ((place / count) ** batch_size - ((place - 1) / count) ** batch_size)
        for place, length in enumerate(ordered, start=1)
    )
    return 1.0 - mean(tuple(samples)) / longest if longest > 0 else 0.0


def step_syncs(case: Case) -> str:
    """The step makes the host wait for the device."""
    waits = case.signals.step_waits
    if not waits:
        return ""
    names = ", ".join(sorted(set(waits)))
    on_gpu = case.report.host.has_gpu
    return (
        f"The training step {'makes' if on_gpu else 'would make'} the host wait for {'the' if on_gpu else 'a'} GPU "
        f"{plural(len(waits), 'time')} ({names}). Log loss.item() every few dozen steps only."
    )


def page_faults(case: Case) -> str:
    """Memory that the step frees returns to the system, which clears it for the next step."""
    pages, share = case.signals.page_faults, case.signals.kernel_share
    if not pages or not share or pages < MANY_PAGES or share < IN_KERNEL:
        return ""
    return (
        f"The kernel takes {format_percent(share)} of the step's CPU time: freed memory returns to the system, which "
        f"clears {pages:,.0f} pages for each step. Keep the memory: start Python with "
        "MALLOC_TRIM_THRESHOLD_=2147483647 and MALLOC_MMAP_THRESHOLD_=2147483647 in the environment (with glibc)."
    )


def slow_start(case: Case) -> str:
    """Starting workers takes longer than an epoch waits for data."""
    start, steps = case.signals.start_seconds, case.epoch_steps
    if not case.current.num_workers or start is None or steps is None:
        return ""
    starting = start - case.batch_ms / 1e3
    waiting = steps * (case.step_ms - case.model_ms) / 1e3
    if starting < max(SHORTEST_START, SLOW_START * steps * case.step_ms / 1e3, waiting):
        return ""
    workers = plural(case.current.num_workers, "worker")
    return (
        f"{workers} {'takes' if case.current.num_workers == 1 else 'take'} {format_seconds(starting)} to start, as "
        f"long as {plural(round(starting * 1e3 / case.step_ms), 'step')}; an epoch has {steps:,}. Keep them from "
        "epoch to epoch (persistent_workers=True), and open large resources of the dataset lazily."
    )


def epoch_gap(case: Case) -> str:
    """No batch is queued at the start of an epoch."""
    gap, steps = case.signals.epoch_gap_ms, case.epoch_steps
    if not case.current.num_workers or gap is None or steps is None or gap < GAP * steps * case.step_ms:
        return ""
    return (
        f"At the start of each epoch the workers take {format_ms(gap)} for a first batch, "
        f"{format_percent(gap / (steps * case.step_ms))} of an epoch of {plural(steps, 'step')}. Use longer epochs "
        "(several passes over the data)."
    )
