"""Signals: what is seen beside the times, for a diagnosis to read."""

from dataclasses import replace
from functools import partial
from statistics import median

from audioaug.advise.bench import Bench
from audioaug.advise.example_probe import time_examples
from audioaug.advise.worker_probe import receive_ms, start_and_gap
from audioaug.loader.fetch import Message
from audioaug.measure import page_faults, trace
from audioaug.measure.repeat import seconds_per_call
from audioaug.records import Candidate, Signals


def example_and_worker_signals(
    bench: Bench, today: Candidate, message: Message, signals: Signals, seconds: float
) -> Signals:
    """Return the signals with what examples and today's workers tell, in about so many seconds."""
    job, clock = bench.job, bench.clock
    signals = replace(signals, examples=time_examples(job, clock, seconds / 2), threads_alive=job.threads)
    if not today.num_workers:
        return signals
    start, gap = start_and_gap(job, today, clock)
    received = receive_ms(message, today.num_workers, clock, seconds / 4)
    return replace(signals, start_seconds=start, epoch_gap_ms=gap * 1e3, receive_ms=received)


def step_signals(bench: Bench, seconds: float) -> Signals:
    """Return what the training step does on batches whose shapes, but for the first batch's, it has not seen yet."""
    job, clock, batches = bench.job, bench.clock, bench.batches
    end = clock.now() + seconds
    seen, first, again = {tuple(job.wave_of(batches[0]).shape)}, list[float](), list[float]()
    for batch in batches[1:]:
        shape = tuple(job.wave_of(batch).shape)
        if shape not in seen and clock.now() < end:
            seen.add(shape)
            times = [seconds_per_call(partial(job.step, batch), clock, 1) * 1e3 for _ in range(2)]
            first.append(times[0])
            again.append(times[1])
    on_cpu = job.device.type == "cpu"
    fresh = page_faults(partial(job.step, batches[0]), clock, seconds) if on_cpu else None
    waits = trace(lambda: job.step(batches[0]), job.device).waits if job.device.type == "cuda" else ()
    return Signals(
        batch_shapes=len({tuple(job.wave_of(batch).shape) for batch in batches}),
        first_step_ms=median(first) if first else None,
        again_step_ms=median(again) if again else None,
        step_waits=waits,
        page_faults=fresh.per_call if fresh else None,
        kernel_share=fresh.kernel_share if fresh else None,
    )
