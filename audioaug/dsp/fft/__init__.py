"""FFTs: their sizes, by few plans on a GPU; a response applied to a batch; and FFTs that loops call.

These are MKL's, which torch's own library holds on Linux with an x86 processor. Their plans last; torch plans anew for
every call. Reference: oneMKL's developer reference for C, "FFT functions" (DFTI).

Shapes: R rows, C channels, T samples, K blocks, F = n // 2 + 1 frequencies of an FFT of n samples.
"""

import ctypes
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Loop

COMPLEX, REAL = 32, 33
"""MKL's domains of an FFT: complex or real numbers."""
COMPLEX_STORAGE, THREAD_LIMIT = (10, 39), (27, 1)
"""Settings of a plan and their values: spectra as complex numbers; the calling thread does all by itself."""
FORWARD, BACKWARD = "DftiComputeForward", "DftiComputeBackward"


@functools.lru_cache(maxsize=1024)
def fast_length(at_least: int) -> int:
    """Return the smallest FFT length of only factors 2, 3 and 5 that is large enough: few sizes, fast everywhere."""
    best = 1 << max(0, at_least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            size = three << max(0, -(-at_least // three) - 1).bit_length()
            best = min(best, size) if size >= at_least else best
            three *= 3
        five *= 5
    return best


PLANNED = {"cuda"}
"""Devices where FFTs are planned for each length and number of rows: a plan takes milliseconds, and memory."""

ONE_PASS = 8192
"""Up to this length a GPU reads and writes the numbers once."""
SECOND_PASS = 0.7
"""What it costs to do so again, in units of the first time."""
BLOCK_BITS = 13, 15, 18, 20
"""Where FFTs are planned, blocks of a row are powers of two with these bits: others would gain little, for more plans.

A row that is a block by itself, with its tail, gets 5/4 of a power of two, unless it fits into the shortest.
"""
LEAST_NUMBERS = 2**22
"""An FFT of fewer numbers takes hardly less time."""


def planned_rows(rows: int, width: int, x: torch.Tensor) -> int:
    """Return how many rows an FFT of rows like x, or of their spectra, gets: where each count is a plan, one of few.

    That is a power of two or, of large ones, three quarters of it.
    """
    if x.device.type not in PLANNED:
        return rows
    n = 2 * (width - 1) if x.is_complex() else width
    whole, least = (1 << max(0, each - 1).bit_length() for each in (rows, LEAST_NUMBERS // n))
    less = whole * 3 // 4
    return max(less if rows <= less and whole * n > 2 * LEAST_NUMBERS else whole, least)


def with_room(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """Return an empty tensor whose memory has room for all rows that an FFT of it gets, so that it is not copied."""
    rows = math.prod(shape[:-1])
    return x.new_empty(planned_rows(rows, shape[-1], x), shape[-1])[:rows].view(shape)


def rfft(x: torch.Tensor, n: int | None = None) -> torch.Tensor:
    """Return what ``torch.fft.rfft`` does, by one of few plans."""
    n = x.shape[-1] if n is None else n
    if x.device.type not in PLANNED:
        return torch.fft.rfft(x, n)
    rows = x.shape[:-1]
    return torch.fft.rfft(_planned(x, n))[: rows.numel()].view(*rows, n // 2 + 1)


def irfft(spectrum: torch.Tensor, n: int, scaled: bool = True) -> torch.Tensor:
    """Return what ``torch.fft.irfft`` does, by one of few plans; unless ``scaled``, n times that.

    torch scales on a GPU in a kernel of its own.
    """
    norm, rows = "backward" if scaled else "forward", spectrum.shape[:-1]
    if spectrum.device.type not in PLANNED:
        return torch.fft.irfft(spectrum, n, norm=norm)
    return torch.fft.irfft(_planned(spectrum, n // 2 + 1), n, norm=norm)[: rows.numel()].view(*rows, n)


def _planned(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return the numbers with as many rows as FFTs are planned for, (rows, width): their own memory, if it has room.

    What is in the other rows does not matter.
    """
    rows = x.shape[:-1].numel()
    wanted = planned_rows(rows, width, x)
    room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if x.is_contiguous() and x.shape[-1] == width and room >= wanted * width and not x.requires_grad:
        return x.as_strided((wanted, width), (width, 1))
    flat = x.reshape(rows, -1)[:, :width]
    return torch.nn.functional.pad(flat, (0, width - flat.shape[1], 0, wanted - rows))


def block_length(
    samples: int, tail: int, weight: float = 0.0, samples_out: int | None = None, device: torch.device | None = None
) -> int:
    """Return the FFT length at which it is cheapest to filter rows of that many samples with ``apply_response``.

    Args:
        samples: of each row.
        tail: how long the filter rings.
        weight: cost of a filter's response, in units of an FFT of the same length and back.
        samples_out: how many samples are wanted; as many by default.
        device: where; where FFTs are planned, there are few lengths.
    """
    needed, shortest = samples + tail, (2 * max(tail, 1) - 1).bit_length()
    is_planned = device is not None and device.type in PLANNED
    if is_planned:
        least = 1 << BLOCK_BITS[0]
        whole = least if needed <= least else 5 << (-(-needed // 5) - 1).bit_length()
        sizes = [whole, *(1 << bits for bits in BLOCK_BITS if shortest <= bits and 1 << bits < needed)]
    else:
        whole = fast_length(needed)
        sizes = [whole, *(1 << bits for bits in range(shortest, (whole - 1).bit_length()))]

    def cost(n: int) -> float:
        blocks = 1 if n >= needed else -(-(samples_out or samples) // (n - tail))
        return n * (blocks + weight) * (1 + SECOND_PASS * (is_planned and n > ONE_PASS))

    return min(sizes, key=cost)


def apply_response(
    x_RCT: torch.Tensor,
    multiply: Callable[[torch.Tensor], torch.Tensor],
    n: int,
    tail: int,
    samples_out: int | None = None,
    steady: bool = False,
    rows_R: torch.Tensor | None = None,
    into_RCT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Filter each channel by a response at the frequencies of an FFT of n samples.

    A row that does not fit into n samples with its tail is filtered in overlapping blocks (overlap-save).

    Args:
        x_RCT: the rows.
        multiply: returns spectra, (R, C, K, F), times the response over n, perhaps in their own memory.
        n: as ``block_length`` advises.
        tail: how long the filter rings.
        samples_out: how many samples to return, at most T + tail; T by default.
        steady: every sample before the first one has its value; else they are 0.
        rows_R: which rows to filter; all by default.
        into_RCT: of T samples, also x itself: these rows of it are overwritten with the result, and it is returned.
            By default the result is returned alone.
    """
    samples = x_RCT.shape[-1]
    samples_out = samples if samples_out is None else samples_out
    if n >= samples + tail:  # what is before the row lies at the end, around which an FFT goes
        before, count = 0, 1
    else:
        before, count = tail, -(-samples_out // (n - tail))
    blocks = _blocks(x_RCT, n, before, count, steady, rows_R)
    found = irfft(multiply(rfft(blocks)), n, scaled=False)
    if rows_R is None or into_RCT is None:
        return found[..., before:].flatten(-2)[..., :samples_out]
    return _put(found, before, rows_R, into_RCT)


@primitive
def _blocks(
    x_RCT: torch.Tensor, n: int, tail: int, count: int, steady: bool, rows_R: torch.Tensor | None = None
) -> torch.Tensor:
    """Return blocks of n samples, (R, C, K, n), each ``n - tail`` after the last; the first holds ``tail`` before.

    Reads memory once, where padding the rows first reads it twice. A step is no shorter than ``tail``, and, if there
    are several, no longer than a row.
    """
    x_RCT = x_RCT if rows_R is None else x_RCT.index_select(0, rows_R)
    step, samples = n - tail, x_RCT.shape[-1]
    before_RC1 = x_RCT[..., :1] if steady else x_RCT.new_zeros(1, 1, 1)
    if n >= samples + tail:
        return torch.cat([x_RCT, before_RC1.expand(*x_RCT.shape[:2], n - samples)], dim=-1)[:, :, None]
    inside = min(samples // step, count)  # blocks that end within the row, the first one included
    parts = [torch.cat([before_RC1.expand(*x_RCT.shape[:2], tail), x_RCT[..., :step]], dim=-1)[:, :, None]]
    if inside > 1:
        parts.append(x_RCT[..., step - tail :].unfold(-1, n, step)[:, :, : inside - 1])
    if inside < count:
        rest = x_RCT[..., inside * step - tail :]
        missing = (count - inside) * step + tail - rest.shape[-1]
        parts.append(torch.nn.functional.pad(rest, (0, missing)).unfold(-1, n, step))
    return torch.cat(parts, dim=2)


@_blocks.kernel()
def _cut_by_kernel(
    x_RCT: torch.Tensor, n: int, tail: int, count: int, steady: bool, rows_R: torch.Tensor | None = None
) -> torch.Tensor:
    from audioaug.dsp.fft import kernel

    return kernel.cut(x_RCT, n, tail, count, steady, rows_R)


@primitive
def multiply_by(
    spectrum_RCKF: torch.Tensor, response_SCF: torch.Tensor, which_R: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply spectra, in place, by their row's response, or by the one of S that it has; for each channel, or all."""
    response_RCF = response_SCF if which_R is None else response_SCF.index_select(0, which_R)
    return spectrum_RCKF.mul_(response_RCF[:, :, None])


def _are_chosen(spectrum_RCKF: torch.Tensor, response_SCF: torch.Tensor, which_R: torch.Tensor | None = None) -> bool:
    return which_R is not None and spectrum_RCKF.is_contiguous()  # or a copy would be multiplied


@multiply_by.kernel(when=_are_chosen)
def _multiply_by_kernel(
    spectrum_RCKF: torch.Tensor, response_SCF: torch.Tensor, which_R: torch.Tensor | None = None
) -> torch.Tensor:
    from audioaug.dsp.fft import kernel

    assert which_R is not None
    return kernel.multiply(spectrum_RCKF, response_SCF, which_R)


@primitive
def _put(found_RCKN: torch.Tensor, before: int, rows_R: torch.Tensor, into_RCT: torch.Tensor) -> torch.Tensor:
    """Write blocks without the samples ``before`` each, one after the other, into rows of a batch; return that."""
    return into_RCT.index_copy_(0, rows_R, found_RCKN[..., before:].flatten(-2)[..., : into_RCT.shape[-1]])


@_put.kernel(when=lambda found_RCKN, before, rows_R, into_RCT: found_RCKN.is_contiguous() and into_RCT.is_contiguous())
def _put_by_kernel(found_RCKN: torch.Tensor, before: int, rows_R: torch.Tensor, into_RCT: torch.Tensor) -> torch.Tensor:
    from audioaug.dsp.fft import kernel

    return kernel.join(found_RCKN, before, rows_R, into_RCT)


@functools.cache
def mkl() -> ctypes.CDLL | None:
    """Return the library whose FFTs loops call; ``None`` where it is missing."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    found = ctypes.CDLL(str(path)) if path.exists() else None
    return found if hasattr(found, "DftiCreateDescriptor_s_1d") else None


def has_mkl(*_: object, **__: object) -> bool:
    """Return whether loops may call FFTs: a condition of those that do."""
    return mkl() is not None


@functools.cache
def mkl_plan(n: int, domain: int = REAL) -> int:
    """Return the address of a plan for ``to_spectrum`` and ``from_spectrum``; it lasts as long as the process.

    In place, these turn n float32 into n // 2 + 1 complex64 and back, or n complex64 into as many if the domain is
    ``COMPLEX``. The inverse is not normalized: its result is n times the input. Any number of threads may use a plan at
    the same time.

    Raises:
        RuntimeError: the library refuses.
    """
    dfti, address = mkl(), ctypes.c_void_p()
    assert dfti is not None
    wrong = dfti.DftiCreateDescriptor_s_1d(ctypes.byref(address), domain, ctypes.c_long(n))
    for setting, value in [THREAD_LIMIT] + ([COMPLEX_STORAGE] if domain == REAL else []):
        wrong = wrong or dfti.DftiSetValue(address, setting, ctypes.c_long(value))
    wrong = wrong or dfti.DftiCommitDescriptor(address)
    if wrong:
        raise RuntimeError(f"MKL refuses to plan an FFT of {n} numbers: status {wrong}.")
    assert address.value is not None
    _link_mkl()
    return address.value


@functools.cache
def _link_mkl() -> None:
    """Let compiled loops find MKL's functions, also those that numba reads from its cache."""
    import llvmlite.binding

    for name in (FORWARD, BACKWARD):
        llvmlite.binding.add_symbol(name, ctypes.cast(getattr(mkl(), name), ctypes.c_void_p).value)


class MklFunction(Loop[[int, int], int]):
    """A function of MKL that loops call with a plan and the address of the numbers, which it transforms in place.

    It returns 0, or what is wrong. numba keeps what it compiled until the file of the calling loop changes: after a
    change here, change those files too.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @functools.cached_property
    def compiled(self) -> Any:
        """A function for numba.

        In C it takes two pointers and ``...``, and has to be called as such: a call that leaves ``...`` out does not
        set the register that counts arguments in vector registers, and crashes with the MKL of torch 2.4.
        """
        import numba
        from llvmlite import ir
        from numba import types
        from numba.extending import intrinsic

        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word, word], var_arg=True)

        def call(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            function = builder.module.globals.get(self.name) or ir.Function(builder.module, kind, self.name)
            return builder.call(function, arguments)

        @intrinsic
        def transform(context: Any, plan: Any, address: Any) -> Any:
            return types.int64(types.int64, types.uintp), call

        inside: Any = transform
        return numba.njit(nogil=True)(lambda plan, address: inside(plan, address))


to_spectrum, from_spectrum = MklFunction(FORWARD), MklFunction(BACKWARD)
