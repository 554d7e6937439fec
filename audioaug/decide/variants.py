"""Variants: what another precision, batch size, device engine or start of the workers makes of a step, in words.

The first two change training: they are not advised. An engine is raced, and advised where it wins.
"""

from audioaug.decide.predict import loader_ms
from audioaug.decide.recommend import NEVER_RECOMMENDED
from audioaug.records import Interval, Report, Variant
from audioaug.units import format_interval, format_ms, format_rate, format_seconds


def variant_sentences(report: Report) -> tuple[str, ...]:
    """Say what was measured of each variant, and whether loading would keep up with it."""
    return tuple(_sentence(report, variant) for variant in report.variants)


def _sentence(report: Report, variant: Variant) -> str:
    if variant.step_ms is None or variant.ci_ms is None:
        return f"{variant.name} was not measured: {variant.reason}"
    if variant.start_seconds is not None and variant.now_start_seconds is not None:
        return (
            f"{variant.name}: a step takes {format_ms(variant.step_ms)} ({format_interval(*variant.ci_ms)}) instead of "
            f"{format_ms(variant.now_ms)}; the first batch comes after {format_seconds(variant.start_seconds)} instead "
            f"of {format_seconds(variant.now_start_seconds)} (measured)."
        )
    if not variant.changes_training:
        return _engine_sentence(report, variant, variant.step_ms, variant.ci_ms)
    now, then = variant.now_batch / variant.now_ms, variant.batch_size / variant.step_ms
    return (
        f"{variant.name} (it changes training): the model's step takes {format_ms(variant.step_ms)} "
        f"({format_interval(*variant.ci_ms)}) instead of {format_ms(variant.now_ms)}, {format_rate(1e3 * then)} "
        f"instead of {format_rate(1e3 * now)}, {then / now:.2f} times as many (measured).{_loading(report, variant)}"
    )


def _engine_sentence(report: Report, variant: Variant, step_ms: float, ci_ms: Interval) -> str:
    plan = report.recommendation
    found = (
        f"{variant.name}: a step takes {format_ms(step_ms)} ({format_interval(*ci_ms)}) instead of "
        f"{format_ms(variant.now_ms)} with our ops as they are (measured)"
    )
    if any(variant.name == f"device_engine={engine!r}" for engine in NEVER_RECOMMENDED):
        return f"{found}. Its audio differs from that of audiomentations, so it is never recommended."
    wins = plan is not None and variant.name == f"device_engine={plan.device_engine!r}"
    return f"{found}: {'it is in the plan' if wins else 'it does not win here'}."


def _loading(report: Report, variant: Variant) -> str:
    """Say whether the loader of the advice delivers a batch as quickly (predicted)."""
    assert variant.step_ms is not None
    candidate = report.recommendation or report.current
    loader = loader_ms(report, candidate) if candidate is not None and report.loader_costs else None
    if candidate is None or loader is None or not candidate.num_workers:
        return ""
    needs = loader[1] * variant.batch_size / variant.now_batch
    if needs <= variant.step_ms:
        return ""
    return f" Loading ({candidate.name}) would then be the bottleneck, with {format_ms(needs)} a batch (predicted)."
