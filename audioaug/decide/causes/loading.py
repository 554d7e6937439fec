"""Causes in the data path: reading, augmenting, collating and sending."""

from dataclasses import replace

from audioaug.decide.causes.case import Case, mean
from audioaug.decide.predict import device_ms, worker_stages
from audioaug.decide.race import MARGIN
from audioaug.records import Candidate, StageCost
from audioaug.units import format_ms, format_percent, plural

GC = 0.05
TAIL, TAIL_SHARE, TAIL_TIMES = 0.15, 0.4, 8.0
"""A slow tail: at most 15 % of the examples take 40 % of the time, each at least 8x the median."""

ON_A_CORE = 0.5
"""CPU share of reading below which it waits for storage."""

COLD = 3.0
"""Factor of the first read over the second above which the page cache matters."""

LARGEST = 0.4
"""Share of a worker's time above which a stage is the cause, rather than the number of workers."""

RECEIVES = 0.25
HARDLY_WAITS = 0.25
MOST_OF = 0.5
"""Share of the stall."""


def gc_stalls(case: Case) -> str:
    """Python's garbage collector takes a good part of a step."""
    share = case.signals.gc_share
    if share is None or share < GC:
        return ""
    return (
        f"Python's garbage collector takes {format_percent(share)} of a step, {format_ms(share * case.step_ms)}: it "
        "scans many objects. Call gc.freeze() before training, or hold the data in arrays."
    )


def slow_sample_tail(case: Case) -> str:
    """A few examples take most of the time and delay the others."""
    examples = case.examples
    if examples is None or not case.waits:
        return ""
    read = map(min, examples.first_ms, examples.again_ms)  # slow examples are slow both times
    total = sorted(a + b for a, b in zip(read, examples.augment_ms, strict=True))
    middle = total[len(total) // 2]
    slow = [value for value in total if value >= TAIL_TIMES * middle]
    share = sum(slow) / sum(total)
    few = 0 < len(slow) <= TAIL * len(total)
    if not few or share < TAIL_SHARE or not case.matters(mean(tuple(total)) * case.report.workload.batch_size):
        return ""
    return (
        f"{len(slow)} of {len(total)} examples take {format_percent(share)} of the loading time: {format_ms(slow[-1])} "
        f"with a median of {format_ms(middle)}. Cut or convert the slow ones, or prefetch "
        "more (prefetch_factor)."
    )


def thread_oversubscription(case: Case) -> str:
    """Torch's threads compete for cores, with workers or with each other."""
    best, current = case.best, case.current
    usual = case.report.host.torch_threads
    if best is None or best.measured_ms is None or (best.threads or usual) >= (current.threads or usual):
        return ""
    if not case.is_about("threads") or not (case.changes or current.num_workers):
        return ""
    count = plural(current.threads or usual, "thread")
    workers = f"{plural(current.num_workers, 'worker')} and " if current.num_workers else ""
    cores = plural(max(1, int(case.report.host.usable_cores)), "core")
    return (
        f"{workers}{count} of torch share {cores} and compete for them: a step takes "
        f"{format_ms(case.step_ms)}, with {best.name} {format_ms(best.measured_ms)}. Use that."
    )


def too_many_workers(case: Case) -> str:
    """Fewer workers are faster."""
    best, current = case.best, case.current
    if best is None or best.measured_ms is None or best.num_workers >= current.num_workers:
        return ""
    if not case.is_about("num_workers"):
        return ""
    if case.step_ms < (1 + MARGIN) * best.measured_ms:
        return ""
    return (
        f"{plural(current.num_workers, 'worker')} share {case.report.host.cores:.1f} effective cores: a step "
        f"takes {format_ms(case.step_ms)}, with {plural(best.num_workers, 'worker')} {format_ms(_alone(case, best))}. "
        f"Use {best.num_workers}."
    )


def too_few_workers(case: Case) -> str:
    """More workers at the same cut are faster."""
    best, current = case.best, case.current
    if best is None or best.measured_ms is None or best.num_workers <= current.num_workers:
        return ""
    if not case.is_about("num_workers"):
        return ""
    count = current.num_workers
    who = plural(count, "worker") if count else "The training process itself"
    return (
        f"{who} {'load' if count > 1 else 'loads'} too slowly: a step takes {format_ms(case.step_ms)}, with "
        f"{plural(best.num_workers, 'worker')} {format_ms(_alone(case, best))}; the model alone needs "
        f"{format_ms(case.model_ms)}. Use {best.num_workers}."
    )


def fetch_bound(case: Case) -> str:
    """Loading waits for storage more than it computes."""
    examples = case.examples
    decode = next((stage for stage in case.stages if stage.name == "decode"), None)
    if examples is None or decode is None or not case.waits:
        return ""
    again, first = mean(examples.again_ms), mean(examples.first_ms)
    augment = case.batch_ms - (decode.ms_per_batch or 0.0)
    waiting = again - mean(examples.cpu_ms) + max(0.0, first - again if first > COLD * again else 0.0)
    batch_waiting = waiting * case.report.workload.batch_size
    if waiting < (1 - ON_A_CORE) * max(first, again) or batch_waiting < LARGEST * (augment + batch_waiting):
        return ""
    if not case.matters(batch_waiting):
        return ""
    return (
        f"Reading an example waits {format_ms(waiting)} of {format_ms(max(first, again))} for storage, while cores "
        "are free. Use more workers, or move the data closer (local disk, memory, larger files)."
    )


def transport_bound(case: Case) -> str:
    """Batches are slow to send or to collate."""
    receive = case.receive_ms
    each = case.batch_ms / max(1, case.current.num_workers)
    if case.waits and case.current.num_workers and receive >= RECEIVES * case.step_ms and receive > each:
        return (
            f"Sending a batch from a worker to the training process takes {format_ms(receive)} of a "
            f"{format_ms(case.step_ms)} "
            "step; more workers do not help. Send less: crop clips in the workers, or send float16."
        )
    slowest = case.stages[0] if case.stages else None
    if not case.waits or slowest is None or slowest.name != "collate" or not case.matters(slowest.ms_per_batch or 0.0):
        return ""
    return (
        f"{_share(case, slowest)} is spent in collate ({_cost(slowest)}). Simplify collate_fn, or return fewer fields."
    )


def pin_noop(case: Case) -> str:
    """Batches are pinned, but not the tensors in their custom types."""
    types, plans = case.signals.unpinned_types, (case.current, case.best)
    pins = any(plan is not None and plan.pin_memory is not False for plan in plans)
    if not types or not pins or not case.report.host.device.startswith("cuda"):
        return ""
    return (
        f"Pinning does nothing for {plural(len(types), 'type')} in a batch without pin_memory(), {', '.join(types)}: "
        "the training process waits while the tensors in it are copied to the GPU. Define pin_memory(self), which pins "
        "them and returns the batch."
    )


def main_thread_bound(case: Case) -> str:
    """The training process is busy besides the step, so that workers wait for it."""
    device = device_ms(case.report, replace(case.current, threads=None))
    if not case.waits or not case.current.num_workers or device is None:
        return ""
    own = device[1] - case.model_ms + case.receive_ms
    if own < MOST_OF * (case.step_ms - case.model_ms):
        return ""
    return (
        f"The training process spends {format_ms(own)} of a {format_ms(case.step_ms)} step on receiving a batch and "
        "on the ops after the cut; more workers do not help. Run more of the chain in the workers, and "
        "send less."
    )


def sandbagged_wait(case: Case) -> str:
    """The step hardly waits but is slower than the model alone: workers compete for its cores."""
    if not case.waits or not case.current.num_workers or case.wait_ms is None:
        return ""
    if case.wait_ms > HARDLY_WAITS * (case.step_ms - case.model_ms):
        return ""
    return (
        f"Only {format_ms(case.wait_ms)} of a step is spent waiting for data, but the step takes "
        f"{format_ms(case.step_ms)} "
        f"and the model alone {format_ms(case.model_ms)}: workers slow it down. Run less in them, or use "
        "fewer."
    )


def order_blocks_split(case: Case) -> str:
    """An op could run on the device, but comes before one that cannot."""
    slowest, last = _slowest_op(case), case.report.chain.device_from - 1  # the op that has to run in a worker
    if slowest is None or slowest.op is None or slowest.op >= last or case.device_stage(slowest.op) is None:
        return ""
    reason = case.report.chain.device_from_reason.rstrip(".")
    return (
        f"{_share(case, slowest)} is spent in {slowest.name} ({_cost(slowest)}), which could run on the device "
        f"except for the order ({reason}). Move it after that op, if your data allows it."
    )


def cpu_only_transform(case: Case) -> str:
    """The slowest op has no device build."""
    slowest = _slowest_op(case)
    if slowest is None or slowest.op is None or case.device_stage(slowest.op) is not None:
        return ""
    return (
        f"{_share(case, slowest)} is spent in {slowest.name} ({_cost(slowest)}), which has no device build. Apply it "
        "less often (p), apply it once to the files, or add workers."
    )


def augment_cpu_bound(case: Case) -> str:
    """An op takes most of a worker's time."""
    slowest = _slowest_op(case)
    return (
        ""
        if slowest is None
        else f"{_share(case, slowest)} is spent in {slowest.name}{_cost_on_device(case, slowest)}."
    )


def decode_bound(case: Case) -> str:
    """Decoding takes most of a worker's time."""
    slowest = case.stages[0] if case.stages else None
    if not case.waits or case.is_unexplained or slowest is None:
        return ""
    if slowest.op is not None or slowest.name == "collate":
        return ""
    return f"{_share(case, slowest)} is spent in {slowest.name} ({_cost(slowest)}). {_faster_decoding(case)}"


def _faster_decoding(case: Case) -> str:
    """Describe how long the decoder takes and others take on the same clips, if they were timed, and what to do."""
    store = "Store clips at the length and rate used for training, in a format that decodes quickly (WAV)."
    timed = [stage for stage in case.report.stages if (stage.name, stage.where) == ("decode", "comparison")]
    if not timed:
        return store
    now, best = timed[0], min(timed, key=_ms)
    others = " and ".join(f"{format_ms(_ms(stage))} with {stage.engine}" for stage in timed[1:])
    found = f"The decoder is {now.engine}: the clips of a batch take {format_ms(_ms(now))} with it, {others}."
    if (1 + MARGIN) * _ms(best) >= _ms(now):
        return f"{found} None is faster: use more workers, or shorter clips."
    if best.engine.startswith("WAV"):
        return f"{found} {store}"
    return (
        f"{found} Decode with {best.engine} in the dataset, as AudioFolder(decoder='fastest') does with files of which "
        "that returns the same samples."
    )


def _ms(stage: StageCost) -> float:
    return stage.ms_per_batch or 0.0


def unverified(case: Case) -> str:
    """No measured cause explains the stall; applies to every case."""
    if case.is_unexplained:
        why = "no single change gives half of what all changes together gain."
    elif case.stages:
        most = case.stages[0].name
        why = f"no measured stage accounts for it (the slowest is {most}). Measure again on a quiet machine."
    else:
        why = "its cause was not measured. Use a larger --budget."
    return f"The stall is {format_percent(case.stall)} of a step; {why}"


def _alone(case: Case, best: Candidate) -> float:
    """Return the milliseconds of a step with the change that explains the gain, else of the recommended candidate."""
    return case.explanation.ms if case.explanation is not None else best.measured_ms or 0.0


def _slowest_op(case: Case) -> StageCost | None:
    """Return the slowest stage of loading a batch, if it is an op and single changes do not speak against it.

    If the gain comes from moving the cut, or from the workers' engine, it is the slowest op that moves, or that runs
    there, also if another stage takes longer, provided that these ops take a good part of the stall together.
    """
    if not case.waits or case.is_unexplained:
        return None
    stages, about = case.stages, list[StageCost]()
    knob = "" if case.explanation is None else case.explanation.knob
    if knob == "cut" and case.best is not None:
        about = [it for it in stages if it.op in range(*sorted((case.best.cut, case.current.cut)))]
    elif knob == "worker_engine":
        about = [it for it in stages if it.op is not None]
    if about and case.matters(sum(it.ms_per_batch or 0.0 for it in about)):
        stages = about
    return stages[0] if stages and stages[0].op is not None else None


def _share(case: Case, stage: StageCost) -> str:
    whose = "of a worker's time" if case.current.num_workers else "of the time to load a batch"
    return f"{format_percent((stage.ms_per_batch or 0.0) / case.batch_ms)} {whose}"


def _cost(stage: StageCost) -> str:
    return f"{format_ms(stage.ms_per_batch or 0.0)} a batch"


def _cost_on_device(case: Case, stage: StageCost) -> str:
    """Describe what the same op costs where the best candidate runs it: batched in a worker, or on the device."""
    best, batch = case.best, f" ({_cost(stage)})"
    there = worker_stages(case.report, best.cut, best.worker_engine) if best is not None else []
    ours = next((other.ms_per_batch for other in there if (other.op, other.engine) == (stage.op, "batched")), None)
    if ours and stage.engine != "batched":
        return f"{batch}; batched, it takes {format_ms(ours)} there"
    twin = case.device_stage(stage.op)
    if twin is None or not twin.ms_per_batch:
        return batch
    where = "the GPU" if case.report.host.has_gpu else "whole batches in the training process"
    total = case.model_ms + twin.ms_per_batch
    return f"{batch}; on {where} it costs {format_ms(twin.ms_per_batch)} of a {format_ms(total)} step"
