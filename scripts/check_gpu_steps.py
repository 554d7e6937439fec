"""The steps of scripts/check_gpu.sh that need code; each prints one line of JSON and exits with 1 if it fails.

    python scripts/check_gpu_steps.py memory --device cuda
    python scripts/check_gpu_steps.py smoke --device cpu       a rehearsal where there is no GPU

smoke: the first batch of each benchmark chain, with nothing compiled; memory: 300 batches of many shapes need no more
memory or FFT plans than 100; epochs: 40 short epochs through a Loader need no more than 5; syncs: the host never waits
in 200 training steps; capture: CUDA graphs beside the Loader, and one that fails; profile: the kernels of the slowest.
"""

import contextlib
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import torch
from bench_engine_work import declared_chains

from audioaug import Chain, Loader, Plan, build_device, ops
from audioaug.advise.settings import demo_chain
from audioaug.dsp import dispatch
from audioaug.engine import DeviceChain
from audioaug.measure import clock_for, trace

RATE, BATCH, SAMPLES = 16000, 32, 32000
GROWTH = 1.1
"""How much more memory later batches may need: what is rounded up to blocks of the allocator."""
MOST_PLANS = 64
"""Of FFTs, in 300 batches of many lengths."""
MB = 2**20


def chains() -> dict[str, Chain]:
    """Return the benchmark's chains and the demo's."""
    return {**declared_chains(RATE), "demo": demo_chain(RATE)}


def batches(module: DeviceChain, device: torch.device, count: int, first: int = 0) -> Iterator[Callable[[], Any]]:
    """Yield the device's work on batches of many widths, padded, prepared on the host as in training."""
    rng = np.random.default_rng(first)
    for number in range(first, first + count):
        lengths = rng.integers(SAMPLES // 4, SAMPLES + 1, BATCH)
        shape = BATCH, 1, int(lengths.max())
        prepared = module.prepare(module.chain.draw(np.arange(BATCH) + BATCH * number), shape, lengths=lengths.tolist())
        prepared, x_BCT = (
            prepared.pin_memory() if device.type == "cuda" else prepared,
            torch.randn(shape, device=device),
        )
        yield lambda: module.augment(x_BCT, prepared)  # noqa: B023 (it is called before the next one)


def memory_of(device: torch.device) -> dict[str, float]:
    """Return what is in use, in MB: by torch's allocator and on the card, or by the process where there is none."""
    if device.type != "cuda":
        return {"process": psutil.Process().memory_info().rss / MB}
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info(device)
    plans = torch.backends.cuda.cufft_plan_cache[device.index or 0].size
    return {"reserved": torch.cuda.memory_reserved(device) / MB, "card": (total - free) / MB, "plans": float(plans)}


def smoke(device: torch.device) -> dict[str, Any]:
    """Run the first batch of each chain; say how long it took and what was switched off."""
    took = {}
    for name, chain in chains().items():
        begin, module = time.perf_counter(), build_device(chain)
        for work in batches(module, device, 1):
            y_BCT, _ = work()
        assert bool(torch.isfinite(y_BCT).all()), f"{name}: not finite"
        took[name] = round(time.perf_counter() - begin, 2)
    return {"first_batch_seconds": took, "switched_off": sorted(each.name for each in dispatch.switched_off("kernel"))}


def memory(device: torch.device) -> dict[str, Any]:
    """Run 300 batches of the demo and the speech chain, and look at the memory every 50."""
    modules, seen = [build_device(chains()[name]) for name in ("demo", "speech")], list[dict[str, float]]()
    for part in range(6):
        for module in modules:
            for work in batches(module, device, 25, first=25 * part):
                work()
        seen.append({name: round(value, 1) for name, value in memory_of(device).items()})
    for name, value in seen[-1].items():
        assert value <= max(GROWTH * seen[1][name], seen[1][name] + 32), f"{name} grows from {seen[1][name]} to {value}"
    assert seen[-1].get("plans", 0) <= MOST_PLANS, f"{seen[-1]['plans']} FFT plans"
    return {"every_50_batches": seen}


def loader_of(device: torch.device) -> Loader:
    """Return a Loader with 8 batches an epoch, all ops on the device."""
    data = torch.utils.data.TensorDataset(torch.randn(8 * BATCH, 1, SAMPLES // 2) * 0.1, torch.zeros(8 * BATCH))
    return Loader(data, demo_chain(RATE), Plan(cut=0, num_workers=2), batch_size=BATCH, device=device)


def epochs(device: torch.device) -> dict[str, Any]:
    """Run 40 epochs of 8 batches through a Loader, its side stream and its pinned memory."""
    loader, seen = loader_of(device), list[dict[str, float]]()
    for epoch in range(40):
        loader.set_epoch(epoch)
        for x_BCT, _ in loader:
            x_BCT.square().mean()
        seen.append(memory_of(device))
    gc.collect()
    for name, value in seen[-1].items():
        assert value <= max(GROWTH * seen[4][name], seen[4][name] + 32), (
            f"{name}: {seen[4][name]:.0f}, then {value:.0f}"
        )
    return {"after_5_epochs": seen[4], "after_40_epochs": seen[-1]}


def syncs(device: torch.device) -> dict[str, Any]:
    """Train 200 steps; on CUDA each wait of the host raises, elsewhere what would wait there is counted once."""
    module, model = build_device(demo_chain(RATE)), torch.nn.Conv1d(1, 8, 64, 8).to(device)
    optimizer, work = torch.optim.SGD(model.parameters(), 1e-3), list(batches(module, device, 20))

    def step(augment: Callable[[], Any]) -> None:
        optimizer.zero_grad(set_to_none=True)
        model(augment()[0]).square().mean().backward()
        optimizer.step()

    for each in work:
        step(each)
    if device.type != "cuda":
        return {"waits": [name for each in work[:5] for name in trace(each, device).waits]}
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(200):
            step(work[number % len(work)])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"steps_without_a_wait": 200}


def capture(device: torch.device) -> dict[str, Any]:
    """Capture CUDA graphs beside a Loader with pinned memory; then let a capture fail, and go on without."""
    found: dict[str, Any] = {}
    for name, wrong in (("captured", False), ("failed", True)):
        chain = Chain([ops.Gain(p=1.0), ops.LowPassFilter(p=1.0), ops.Clip(p=1.0)], RATE)
        module = build_device(chain, engine="cuda_graph", seed=0)
        plain = build_device(module.chain, seed=0)
        before = memory_of(device)
        with _failing_clip() if wrong else contextlib.nullcontext():
            for number, (x_BCT, _) in zip(range(40), _endless(loader_of(device))):
                index = torch.arange(len(x_BCT)) + BATCH * number
                y_BCT, expected = module(x_BCT, key=index), plain(x_BCT, key=index)
                assert torch.allclose(y_BCT, expected, atol=1e-5), f"batch {number} differs"
        found[name] = {"graphs": len(module._graphs or ()), "before": before, "after": memory_of(device)}
        assert device.type != "cuda" or (found[name]["graphs"] > 0) != wrong, f"{name}: {found[name]['graphs']} graphs"
    return found


@contextlib.contextmanager
def _failing_clip() -> Iterator[None]:
    """Let Clip wait for the device while it is captured, which CUDA refuses."""
    honest = ops.Clip.batched

    def planted(self: Any, x_BCT: torch.Tensor, params: Mapping[str, Any], batch: Any) -> torch.Tensor:
        if x_BCT.is_cuda and torch.cuda.is_current_stream_capturing():
            x_BCT.sum().item()
        return honest(self, x_BCT, params, batch)

    ops.Clip.batched = planted  # type: ignore[method-assign]
    try:
        yield
    finally:
        ops.Clip.batched = honest  # type: ignore[method-assign]


def _endless(loader: Loader) -> Iterator[Any]:
    while True:
        yield from loader


def profile(device: torch.device) -> dict[str, Any]:
    """Time the ops with the most launches, and the chains, at 128 clips of 4 s; list the kernels that take most.

    The host's part is until it has launched all: where that is nearly the whole, the card waits for the host.
    """
    names = "PitchShift", "TimeStretch", "Limiter", "LowPassFilter"
    wanted = {name: Chain([getattr(ops, name)(p=1.0)], RATE) for name in names}
    shape, clock, found = (128, 1, 4 * RATE), clock_for(device), {}
    if device.type != "cuda":
        shape = 8, 1, RATE
    for name, chain in {**wanted, **chains()}.items():
        module, x_BCT = build_device(chain, seed=0), torch.randn(shape, device=device) * 0.1
        prepared = module.prepare(chain.draw(np.arange(shape[0])), shape)
        prepared = prepared.pin_memory() if device.type == "cuda" else prepared
        for _ in range(3):
            module.augment(x_BCT, prepared)
        clock.synchronize()
        begin = clock.now()
        for _ in range(10):
            module.augment(x_BCT, prepared)
        launched = clock.now()
        clock.synchronize()
        micros_a_clip = 1e5 / shape[0]
        found[name] = {
            "us_a_clip": round(micros_a_clip * (clock.now() - begin), 2),
            "host_us_a_clip": round(micros_a_clip * (launched - begin), 2),
        }
        if device.type == "cuda":
            found[name] |= _kernels(lambda: module.augment(x_BCT, prepared), shape[0])  # noqa: B023
    return found


def _kernels(work: Callable[[], Any], clips: int) -> dict[str, Any]:
    """Return the time of all kernels, and those that take most, each with how often it runs and its microseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        work()
        torch.cuda.synchronize()
    averages = sorted(profiled.key_averages(), key=lambda each: -each.self_device_time_total)
    return {
        "kernel_us_a_clip": round(sum(each.self_device_time_total for each in averages) / clips, 2),
        "launches": sum(each.count for each in averages if each.self_device_time_total),
        "kernels": [(each.key[:80], each.count, round(each.self_device_time_total, 1)) for each in averages[:16]],
    }


STEPS = {each.__name__: each for each in (smoke, memory, epochs, syncs, capture, profile)}


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.argument("step", type=click.Choice(list(STEPS)))
@click.option("--device", default="cuda", show_default=True, help="cpu rehearses it where there is no GPU.")
@click.option("--json", "json_", type=click.Path(path_type=Path), help="Write the result.")
def main(step: str, device: str, json_: Path | None) -> None:
    """Run one step."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = STEPS[step](torch.device(device))
    result["warnings"] = sorted({str(each.message) for each in caught if "audioaug" in str(each.category)})
    print(json.dumps(result))
    if json_:
        json_.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
