"""Signals: what is seen beside the times, for a diagnosis to read."""

from dataclasses import replace
from functools import partial
from statistics import median

from audioaug.advise.bench import Bench
from audioaug.advise.example_probe import look_at_examples
from audioaug.advise.worker_probe import receive_ms, start_and_gap
from audioaug.loader.pickling import WorkerBatch
from audioaug.measure import page_faults, trace
from audioaug.measure.repeat import seconds_per_call
from audioaug.records import Cell, Signals


def look_beside(bench: Bench, today: Cell, message: WorkerBatch, signals: Signals, seconds: float) -> Signals:
    """Return the signals with what examples and today's workers tell, in about so many seconds."""
    target, clock = bench.target, bench.clock
    signals = replace(signals, examples=look_at_examples(target, clock, seconds / 2), threads_alive=target.threads)
    if not today.num_workers:
        return signals
    start, gap = start_and_gap(target, today, clock)
    received = receive_ms(message, today.num_workers, clock, seconds / 4)
    return replace(signals, start_seconds=start, epoch_gap_ms=gap * 1e3, receive_ms=received)


def look_at_step(bench: Bench, seconds: float) -> Signals:
    """Return what the training step does on batches whose shapes, but for the first batch's, it has not seen yet."""
    target, clock, batches = bench.target, bench.clock, bench.batches
    end = clock.now() + seconds
    seen, first, again = {tuple(target.wave_of(batches[0]).shape)}, list[float](), list[float]()
    for batch in batches[1:]:
        shape = tuple(target.wave_of(batch).shape)
        if shape not in seen and clock.now() < end:
            seen.add(shape)
            times = [seconds_per_call(partial(target.step, batch), clock, 1) * 1e3 for _ in range(2)]
            first.append(times[0])
            again.append(times[1])
    on_cpu = target.device.type == "cpu"
    fresh = page_faults(partial(target.step, batches[0]), clock, seconds) if on_cpu else None
    waits = trace(lambda: target.step(batches[0]), target.device).waits if target.device.type == "cuda" else ()
    return Signals(
        batch_shapes=len({tuple(target.wave_of(batch).shape) for batch in batches}),
        first_step_ms=median(first) if first else None,
        again_step_ms=median(again) if again else None,
        step_waits=waits,
        page_faults=fresh.per_call if fresh else None,
        kernel_share=fresh.kernel_share if fresh else None,
    )
