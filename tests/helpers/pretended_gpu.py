"""A pretended GPU on the CPU: tensors that the host cannot read, streams that run later, events, reused memory.

Within ``pretended_gpu(order)``, ``torch.device("cuda")`` exists. Its tensors are torch's fake tensors, so the host sees
shapes only; their values are in memory of its own, where work queued on streams computes them, in an order that a real
GPU could choose: as late as possible, or each side stream or the training stream as early as possible. What depends on
the order differs between these, or from the CPU.

It cannot show: how long anything takes; what kernels compute (operations run as on the CPU); races within an operation;
copies by other threads; torch's own backward pass; several GPUs; CUDA graphs.
"""

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from audioaug.measure.trace import Trace

Order = Literal["late", "side streams early", "training stream early"]
READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "repeat_interleave"}
"""Operators whose result, or its shape, the host needs."""


class Event:
    """The work that a stream had been given when it was recorded. Times are numbers of operations, as milliseconds."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.stream: Stream | None = None
        self.place = 0

    def record(self, stream: "Stream | None" = None) -> None:
        self.stream = stream or self.gpu.current
        self.place = self.stream.given

    def query(self) -> bool:
        return self.stream is None or self.stream.done >= self.place

    def synchronize(self) -> None:
        self.gpu.waits.append("event.synchronize")
        if self.stream is not None:
            self.stream.run_to(self.place)

    def elapsed_time(self, other: "Event") -> float:
        return float(other.place - self.place)

    gpu: "PretendedGpu"


class Stream:
    """A queue of work, of which ``done`` pieces have been done."""

    gpu: "PretendedGpu"

    def __init__(self, device: Any = None, **_: Any) -> None:
        self.queue: deque[Callable[[], object]] = deque()
        self.given, self.done, self.is_running = 0, 0, False
        self.free: dict[int, list[torch.Tensor]] = {}
        self.gpu.streams.append(self)

    def submit(self, work: Callable[[], object]) -> None:
        self.queue.append(work)
        self.given += 1
        if self.gpu.runs_early(self) and not self.is_running:
            self.run_to(self.given)

    def run_to(self, place: int) -> None:
        """Do work up to that piece, and what it waits for."""
        before, self.is_running = self.is_running, True
        while self.done < place:
            work = self.queue.popleft()
            self.done += 1
            work()
        self.is_running = before

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        assert event.stream is not None
        other, place = event.stream, event.place
        if other is not self:
            self.submit(lambda: other.run_to(place))

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        self.gpu.waits.append("stream.synchronize")
        self.run_to(self.given)


class Block:
    """Memory on the device, of a stream, which may use it again from the moment when no tensor has it any more."""

    def __init__(self, stream: Stream, size: int) -> None:
        free = stream.free.setdefault(size, [])
        self.memory = free.pop() if free else torch.empty(size, dtype=torch.uint8)
        weakref.finalize(self, free.append, self.memory)
        memory = self.memory
        stream.submit(lambda: memory.fill_(255))  # not a number: what was there before is lost


class PretendedGpu(TorchDispatchMode):
    """Queues all operators on the device; ``waits`` are the calls that the host had to wait for."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order, self.waits, self.streams = order, list[str](), list[Stream]()
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        with self.fake_mode:  # which lets torch do without a driver, while it knows that there is none
            pass
        Stream.gpu = Event.gpu = self
        self.pinned = weakref.WeakSet[torch.Tensor]()
        self.training = self.current = Stream()

    def runs_early(self, stream: Stream) -> bool:
        return self.order != "late" and (stream is self.training) == (self.order == "training stream early")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        target = next((each for each in leaves if isinstance(each, torch.device)), None)
        if not any(isinstance(each, FakeTensor) for each in leaves) and (target is None or target.type != "cuda"):
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in READS or (target is not None and target.type == "cpu") or self._copies_to_host(name, args):
            return self._read(func, args, kwargs)
        with self.fake_mode:
            fake_args, fake_kwargs = tree_map_only(torch.Tensor, self._fake, (args, kwargs))
            result = func(*fake_args, **fake_kwargs)
        if not any(isinstance(each, FakeTensor) for each in tree_leaves(result)):
            return result  # a device, a size
        host = [each for each in leaves if isinstance(each, torch.Tensor) and not isinstance(each, FakeTensor)]
        real_args, real_kwargs = self._real((args, kwargs), copied=self._unpinned(host, name, args, kwargs))
        if func.is_view:
            self._attach(result, func(*real_args, **real_kwargs), args)
        elif func._schema.is_mutable:
            self.current.submit(lambda: func(*real_args, **real_kwargs))
        else:
            outs = [self._allocated(each) for each in tree_leaves(result)]
            self.current.submit(lambda: _fill(outs, func(*real_args, **real_kwargs)))
        return result

    def _fake(self, tensor: torch.Tensor) -> FakeTensor:
        return tensor if isinstance(tensor, FakeTensor) else self.fake_mode.from_tensor(tensor)

    def _copies_to_host(self, name: str, args: Any) -> bool:
        return name == "copy_" and not isinstance(args[0], FakeTensor)

    def _unpinned(self, host: list[torch.Tensor], name: str, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """Return those of the host's tensors that are read before the call returns; others are read by the copy."""
        is_async = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        kept = [each for each in host if is_async and any(each is pinned for pinned in self.pinned)]
        if host and not is_async and any(each.ndim for each in host):
            self.waits.append(f"{name} from the host")
        return [each for each in host if all(each is not pinned for pinned in kept)]

    def _real(self, values: Any, copied: Sequence[torch.Tensor] = ()) -> Any:
        """Return arguments with the device's memory for its tensors, and the CPU for the device."""
        taken = {id(each): each.clone() for each in copied}
        values = tree_map_only(FakeTensor, lambda each: each._real, values)
        values = tree_map_only(torch.Tensor, lambda each: taken.get(id(each), each), values)
        return tree_map_only(torch.device, lambda _: torch.device("cpu"), values)

    def trace(self, work: Callable[[], object], device: torch.device) -> Trace:
        """Return what the host waits for during ``work``, as the profiler would; kernels are not counted."""
        before = len(self.waits)
        work()
        return Trace(0, tuple(self.waits[before:]))

    def _read(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Wait for all that the current stream was given, then do this for the host."""
        self.waits.append(func.overloadpacket.__name__)
        self.current.run_to(self.current.given)
        real_args, real_kwargs = self._real((args, kwargs))
        return func(*real_args, **real_kwargs)

    def _allocated(self, fake: FakeTensor) -> torch.Tensor:
        """Give a tensor memory of the current stream."""
        last = 1 + sum((size - 1) * stride for size, stride in zip(fake.shape, fake.stride())) if fake.numel() else 0
        block = Block(self.current, -(-max(1, last * fake.element_size()) // 512) * 512)
        flat = block.memory[: last * fake.element_size()].view(fake.dtype)
        fake._real, fake._block = flat.as_strided(fake.shape, fake.stride()), block
        return fake._real

    def _attach(self, result: Any, real: Any, args: Any) -> None:
        """Let views be views of the device's memory."""
        block = next(each._block for each in tree_leaves(args) if isinstance(each, FakeTensor))
        for fake, own in zip(tree_leaves(result), tree_leaves(real)):
            fake._real, fake._block = own, block


def _fill(outs: list[torch.Tensor], results: Any) -> None:
    for out, result in zip(outs, tree_leaves(results), strict=True):
        out.copy_(result)


@contextlib.contextmanager
def pretended_gpu(order: Order = "late") -> Iterator[PretendedGpu]:
    """Let this machine have one GPU for a while; operations run as on the CPU, without loops and kernels."""
    gpu, cuda = PretendedGpu(order), "torch.cuda."

    @contextlib.contextmanager
    def stream(chosen: Stream | None) -> Iterator[None]:
        before, gpu.current = gpu.current, chosen or gpu.current
        try:
            yield
        finally:
            gpu.current = before

    def synchronize(device: Any = None) -> None:
        gpu.waits.append("synchronize")
        for each in gpu.streams:
            each.run_to(each.given)

    def pin_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        pinned = tensor.clone()
        gpu.pinned.add(pinned)
        return pinned

    patches: dict[str, Any] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "current_stream": lambda device=None: gpu.current,
        "is_current_stream_capturing": lambda: False,
        "stream": stream,
        "synchronize": synchronize,
        "Stream": Stream,
        "Event": Event,
        "device_of": lambda _: contextlib.nullcontext(),
        "get_device_name": lambda device=None: "a pretended GPU",
        "get_device_properties": lambda device=None: SimpleNamespace(total_memory=2**34, multi_processor_count=1),
        "mem_get_info": lambda device=None: (2**33, 2**34),
        "utilization": lambda device=None: 50,
        **dict.fromkeys(("memory_allocated", "memory_reserved", "max_memory_allocated"), lambda device=None: 0),
        "reset_peak_memory_stats": lambda device=None: None,
    }
    accelerator: dict[str, Any] = {
        "is_available": lambda: True,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "set_device_index": lambda device: None,
    }
    with contextlib.ExitStack() as stack:
        for name, value in patches.items():
            stack.enter_context(mock.patch(cuda + name, value))
        for name, value in accelerator.items():
            if hasattr(torch, "accelerator"):  # since torch 2.6
                stack.enter_context(mock.patch(f"torch.accelerator.{name}", value))
        stack.enter_context(mock.patch.object(torch.Tensor, "pin_memory", pin_memory))
        stack.enter_context(mock.patch("torch._subclasses.fake_tensor.init_gpu_context", lambda device: None))
        stack.enter_context(mock.patch("audioaug.engine.rows.is_overwritable", _is_overwritable))
        stack.enter_context(mock.patch("audioaug.measure.trace._trace_cuda", gpu.trace))  # which has no profiler
        stack.enter_context(gpu)
        yield gpu


def _is_overwritable(y: torch.Tensor, x: torch.Tensor) -> bool:
    """Do what the engine's function does, for tensors that have no address."""
    return not y.requires_grad and y.untyped_storage()._cdata != x.untyped_storage()._cdata
