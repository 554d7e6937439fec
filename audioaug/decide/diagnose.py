"""Diagnose: the causes that apply, in order of precedence. Each is a stable id and a sentence with a number."""

from collections.abc import Callable, Mapping
from functools import partial

from audioaug.decide.causes import advice, loading, machine, model
from audioaug.decide.causes.case import NOT_THE_BOTTLENECK, Case, stall
from audioaug.records import Candidate, Notice, Report

__all__ = ["SECONDARY", "PRIMARY", "NOT_THE_BOTTLENECK", "causes", "diagnose", "stall"]

Cause = Callable[[Case], str]

PRIMARY: Mapping[str, Cause] = {
    # prevents workers from running, or would end the run
    "not_picklable": partial(machine.refused, limit="not_picklable"),
    "shm_too_small": partial(machine.refused, limit="shm_too_small"),
    "fd_limit": partial(machine.refused, limit="fd_limit"),
    "ram_limit": partial(machine.refused, limit="ram_limit"),
    "cow_memory_growth": machine.memory_growth,
    # slows every candidate
    "quota_throttled": machine.quota_throttled,
    "gc_stalls": loading.gc_stalls,
    "thread_oversubscription": loading.thread_oversubscription,
    # data arrives in time
    "shape_churn": model.only_shape_churn,
    "slow_start": model.slow_start,
    "padding_waste": model.padding_waste,
    "model_bound": model.model_bound,
    # independent of cores
    "slow_sample_tail": loading.slow_sample_tail,
    "fetch_bound": loading.fetch_bound,
    # the numbers are unreliable
    "foreign_load": machine.only_foreign_load,
    "too_noisy": machine.too_noisy,
    # workers and the training process
    "transport_bound": loading.transport_bound,
    "too_many_workers": loading.too_many_workers,
    "main_thread_bound": loading.main_thread_bound,
    "sandbagged_wait": loading.sandbagged_wait,
    "too_few_workers": loading.too_few_workers,
    # stages of loading
    "order_blocks_split": loading.order_blocks_split,
    "cpu_only_transform": loading.cpu_only_transform,
    "augment_cpu_bound": loading.augment_cpu_bound,
    "decode_bound": loading.decode_bound,
    "unverified": loading.unverified,
}
"""The primary causes, in order of precedence. At least one applies to every case."""

SECONDARY: Mapping[str, Cause] = {
    **{name: PRIMARY[name] for name in ("too_noisy", "slow_sample_tail", "fetch_bound", "padding_waste")},
    "foreign_load": machine.foreign_load,
    "noisy_neighbour": machine.noisy_neighbour,
    "pin_noop": loading.pin_noop,
    "shape_churn": model.shape_churn,
    "step_syncs": model.step_syncs,
    "page_faults": model.page_faults,
    "epoch_gap": model.epoch_gap,
    "fork_unsafe": advice.fork_unsafe,
    "probe_unrepresentative": advice.probe_unrepresentative,
    "prefetch_useless": advice.prefetch_useless,
    "advice_costs_more_than_it_saves": advice.advice_costs_more_than_it_saves,
}
"""The causes that are reported in addition to the primary one."""


def diagnose(report: Report, current: Candidate, best: Candidate | None = None) -> Notice:
    """Return the primary cause for the current configuration; ``best`` is the recommended candidate."""
    return _primary(Case(report, current, best))


def causes(report: Report, current: Candidate, best: Candidate | None = None) -> tuple[Notice, ...]:
    """Return the primary cause, followed by the secondary ones that apply."""
    case = Case(report, current, best)
    first = _primary(case)
    others = (Notice(name, text) for name, cause in SECONDARY.items() if name != first.id and (text := cause(case)))
    return (first, *others)


def _primary(case: Case) -> Notice:
    return next(Notice(name, text) for name, cause in PRIMARY.items() if (text := cause(case)))
