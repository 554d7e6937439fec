"""Count what a GPU would have to do for each op and chain, without a GPU: kernel launches, bytes, FFT plans, waits.

    python scripts/count_gpu_work.py                       128 clips of 4 s at 16 kHz
    python scripts/count_gpu_work.py --only PitchShift,speech
    python scripts/count_gpu_work.py --json datasets/profiles/gpu_counts.json       what the tests compare with

Torch's fake tensors say that they are on a GPU, but hold nothing: every operator counts as a launch, except views and
allocations, and so does every kernel of ours; an inverse FFT that scales is two. Of each, the bytes are those of the
tensors that it is given or returns, of a gather those of its result. The predicted time is for an H100: 4 us a launch,
and bytes at 2.6 TB/s.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from bench_engine_work import CHANNELS, IMAGE_SOURCES, declared_chains, declared_ops
from compact_records import write_compact
from rich.console import Console
from rich.table import Table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from audioaug import Chain, build_device
from audioaug.advise.settings import demo_chain
from audioaug.audio.bank import open_bank
from audioaug.core import REGISTRY, Container, why_not_on_device
from audioaug.dsp import dispatch
from audioaug.engine import rows
from audioaug.internals import DispatchMode
from audioaug.measure.trace import ALLOCATES

RATE, BATCH, SECONDS = 16000, 128, 4.0
LAUNCH_SECONDS, BYTES_A_SECOND = 4e-6, 2.6e12
"""Of an H100: what a small kernel takes from one launch to the next, and what its memory delivers of 3.35 TB/s."""

FFTS = {"_fft_r2c", "_fft_c2r", "_fft_c2c"}
FREE = {"device", "_unsafe_view"}
"""Further operators that launch nothing."""
GATHERS = {"gather", "index_select", "index", "take"}

FILTERED, FRAMED, RESAMPLED, SPED_UP, LOG_MEL = 3.0, 17.0, 8.0, 7.0, 8.6
"""Least bytes of these, over reading and writing a batch once: FFTs of a library, and kernels for what lies between.

Filtered: FFT, response, and back, 1 each. In frames, of which four overlap: cut 2.5, FFT, response and back 4 each,
added up 2.5. Resampled, up to 2.75 samples for one: cut and FFT 1 each, band limit 1.5, back to twice the rate 2, read
2.5. Sped up, up to 1.11 samples for one: the same, but read 1.5. LogMel: cut 2.5, FFT 4, and what becomes of it 2.1.
"""
ROOM = 4.0
"""How much longer than a clip it is with the decay of a simulated room."""
RAYS = 12.0
"""What it takes to filter and to dampen it: of seven bands a response, FFTs back of twice the length, and their sum."""
IMAGES = 2.0
"""What it takes to simulate a room by image sources: seven bands of 2048 samples, their FFTs, and a high-pass."""
FLOORS = {
    **dict.fromkeys(("LowPassFilter", "HighPassFilter", "BandPassFilter", "BandStopFilter"), FILTERED),
    **dict.fromkeys(("LowShelfFilter", "HighShelfFilter", "PeakingFilter", "SevenBandParametricEQ"), FILTERED),
    **{
        "ApplyImpulseResponse": FILTERED,
        "RoomSimulator": RAYS + IMAGES + ROOM * FILTERED,
        IMAGE_SOURCES: IMAGES + FILTERED,
        "AddColorNoise": 1.0 + FILTERED,
    },
    **{"AddBackgroundNoise": 2.5, "TanhDistortion": 2.0, "Trim": 1.5},  # which have to find levels first
    **{"AirAbsorption": FRAMED, "TimeStretch": FRAMED, "Resample": RESAMPLED, "PitchShift": FRAMED + RESAMPLED},
    "Speed": SPED_UP,
    "LogMel": LOG_MEL,
}
"""By op; what is not listed reads and writes the batch once."""

RECORD = Path(__file__).resolve().parents[1] / "datasets/profiles/gpu_counts.json"


@dataclass(frozen=True)
class Counts:
    """What one batch costs: launches, bytes that they read and write, and the plans of its FFTs.

    ``batches``: bytes over reading and writing the batch once.
    """

    launches: int
    bytes: int
    batches: float
    ffts: tuple[str, ...]

    @property
    def microseconds_a_clip(self) -> float:
        """Predicted for an H100 and ``BATCH`` clips."""
        return 1e6 * (self.launches * LAUNCH_SECONDS + self.bytes / BYTES_A_SECOND) / BATCH


class Watch(DispatchMode):
    """Counts operators, and through ``launch`` kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.clear()

    def clear(self) -> None:
        """Forget what was counted."""
        self.launches, self.bytes = 0, 0
        self.names, self.ffts = dict[str, int](), set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if func.is_view or name in ALLOCATES | FREE or _is_on_host(result):
            return result
        written = _bytes((result,))
        self._count(name, written + (written if name in GATHERS else _bytes((args, kwargs))))
        if name == "_fft_c2r" and args[2]:
            self._count("scale", 2 * written)
        if name in FFTS:
            self.ffts.add(f"{name} {'x'.join(map(str, args[0].shape))} to {result.shape[-1]}")
        return result

    def launch(self, kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
        """Count a kernel in place of launching it."""
        self._count(getattr(kernel, "__name__", str(kernel)), _bytes(arguments))

    def _count(self, name: str, moved: int) -> None:
        self.launches, self.bytes = self.launches + 1, self.bytes + moved
        self.names[name] = self.names.get(name, 0) + 1


def _is_on_host(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.device.type == "cpu"


def _bytes(values: Any) -> int:
    """Return how much memory tensors lie in: each once, what is repeated in a view not again."""
    tensors = [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
    found = {(each.untyped_storage()._cdata, each.shape, each.stride()): _size(each) for each in tensors}
    return sum(found.values())


def _size(tensor: torch.Tensor) -> int:
    distinct = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        distinct *= size if stride else 1
    return min(distinct * tensor.element_size(), int(tensor.untyped_storage().nbytes()))


@contextlib.contextmanager
def pretended_gpu(launch: Callable[..., None]) -> Iterator[None]:
    """Let fake tensors pass for those on a GPU, where kernels run."""
    before = dispatch.launch, torch.cuda.is_current_stream_capturing, torch.cuda.synchronize
    honest = rows.is_overwritable
    try:
        dispatch.launch = launch
        torch.cuda.is_current_stream_capturing = lambda: True  # so that kernels run though operators are watched
        torch.cuda.synchronize = lambda device=None: None
        rows.is_overwritable = lambda y, x: y.untyped_storage()._cdata != x.untyped_storage()._cdata
        open_bank.cache_clear()  # banks hold copies that are fake
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        dispatch.launch, torch.cuda.is_current_stream_capturing, torch.cuda.synchronize = before
        rows.is_overwritable = honest
        open_bank.cache_clear()


def counted(chain: Chain, shape: tuple[int, int, int]) -> tuple[Counts, dict[str, int]]:
    """Return what a batch (B, C, T) costs once banks are on the device, and how often each kernel is launched."""
    module, watch = build_device(chain), Watch()
    prepared = module.prepare(chain.draw(np.arange(shape[0])), shape)
    with pretended_gpu(watch.launch):
        x_BCT = torch.empty(shape, device="cuda")
        module.augment(x_BCT, prepared)
        watch.clear()
        with watch:
            module.augment(x_BCT, prepared)
    batches = watch.bytes / (2 * 4 * np.prod(shape))
    return Counts(watch.launches, watch.bytes, round(float(batches), 1), tuple(sorted(watch.ffts))), watch.names


def over_the_floor(name: str, counts: Counts) -> float | None:
    """Return the bytes over the least; ``None`` for chains and containers."""
    if name.endswith(" chain") or issubclass(REGISTRY[name.partition(" ")[0]], Container):
        return None
    return counts.batches / FLOORS.get(name, 1.0)


def plans(chain: Chain, batches: int, ragged: bool, batch: int = BATCH, samples: int = int(SECONDS * RATE)) -> set[str]:
    """Return the FFT plans that this many batches need; ragged ones are as long as the longest of their clips."""
    module, watch, rng, prepared = build_device(chain), Watch(), np.random.default_rng(0), []
    for number in range(batches):
        lengths = rng.integers(samples // 8, samples + 1, batch).tolist() if ragged else None
        shape = batch, 1, max(lengths) if lengths else samples
        prepared.append((shape, module.prepare(chain.draw(np.arange(batch) + batch * number), shape, lengths=lengths)))
    with pretended_gpu(watch.launch), watch:
        for shape, numbers in prepared:
            module.augment(torch.empty(shape, device="cuda"), numbers)
    return watch.ffts


def chosen(only: Sequence[str] = ()) -> dict[str, Chain]:
    """Return every op that runs on the device, always applied, and the chains, by name; only these, if any is named."""
    declared = {name: op for name, op in declared_ops([], RATE).items() if not why_not_on_device(op)}
    every = {name: Chain([op], RATE) for name, op in declared.items()}
    every |= {f"{name} chain": chain for name, chain in {**declared_chains(RATE), "demo": demo_chain(RATE)}.items()}
    return {name: chain for name, chain in every.items() if not only or any(part in name for part in only)}


def shape_of(name: str) -> tuple[int, int, int]:
    """Return the shape of the batch that an op or chain is counted with."""
    channels = CHANNELS.get(name, 1)
    return BATCH // channels, channels, int(SECONDS * RATE)


@click.command(help=(__doc__ or "").partition("\n\n")[0], context_settings={"max_content_width": 100})
@click.option("--only", default="", metavar="A,B", help="Only ops and chains with this in their names.")
@click.option("--kernels", is_flag=True, help="Also print how often each kernel is launched.")
@click.option("--plans", "batches", default=0, help="Also count the FFT plans of this many batches of the chains.")
@click.option("--json", "json_", metavar="FILE", help="Write the counts.")
def main(only: str, kernels: bool, batches: int, json_: str | None) -> None:
    """Count and print."""
    names = tuple(part.strip() for part in only.split(",") if part.strip())
    found: dict[str, Any] = {}
    table = Table("", "launches", "MB", "x batch", "x floor", "FFT plans", "predicted us a clip (H100)", box=None)
    for name, chain in chosen(names).items():
        counts, launched = counted(chain, shape_of(name))
        found[name] = asdict(counts)
        over = over_the_floor(name, counts)
        times = counts.batches, "" if over is None else f"{over:.1f}"
        row = counts.launches, f"{counts.bytes / 1e6:.0f}", *times, len(counts.ffts)
        table.add_row(name, *map(str, row), f"{counts.microseconds_a_clip:.2f}")
        if kernels:
            most = sorted(launched.items(), key=lambda item: -item[1])
            print(name, ", ".join(f"{count} {kernel}" for kernel, count in most))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for name, chain in chosen(names).items():
        if batches and name.endswith(" chain"):
            for ragged in (False, True):
                how = "of many lengths" if ragged else "of one length"
                print(f"{name}, {batches} batches {how}: {len(plans(chain, batches, ragged))} FFT plans")
    if json_:
        write_compact({"schema_version": 1, "torch": str(torch.__version__), "counts": found}, json_)


if __name__ == "__main__":
    main()
