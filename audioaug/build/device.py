"""The device build: batched ops on whole batches of tensors, as one nn.Module.

It works in two steps. On the host, ``prepare`` turns draws into steps: an op, the rows it touches, its parameters for
these rows; everything random or shape-dependent is decided there (in a DataLoader worker, if you like) and packed into
two small tensors. On the device, ``run`` applies the steps. It never asks the device anything.

Shapes: B examples, R rows that an op touches, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.build.cpu import check_channels
from audioaug.build.stock import StockEngine
from audioaug.core import Chain, DeviceClips, Draws, HostClips, Node, Op
from audioaug.errors import DataError
from audioaug.records import DeviceEngine

Span = tuple[str, int, int]
"""Where a packed parameter lies: which buffer ("floats" or "ints"), start, stop."""


@dataclass(frozen=True)
class Step:
    """An op on some rows. ``rows`` says where their numbers lie in the ints buffer; ``None`` is all rows."""

    op: int
    rows: Span | None
    params: dict[str, Span]
    static: dict[str, int]


@dataclass(frozen=True)
class Prepared:
    """What the device needs to know of one batch: steps, and all their numbers in two tensors.

    ``lengths`` is where the clips' lengths lie, ``None`` if every clip fills the batch.
    """

    steps: tuple[Step, ...]
    floats: torch.Tensor
    ints: torch.Tensor
    sample_rate: int
    lengths: Span | None

    def pin_memory(self) -> "Prepared":
        """Return a copy in page-locked memory (called by torch's DataLoader)."""
        return Prepared(self.steps, self.floats.pin_memory(), self.ints.pin_memory(), self.sample_rate, self.lengths)


class _Packer:
    """Collects arrays into two flat buffers: float32 for real numbers, int64 for whole ones."""

    def __init__(self) -> None:
        self.parts: dict[str, list[NDArray[Any]]] = {"floats": [], "ints": []}
        self.sizes = {"floats": 0, "ints": 0}

    def add(self, values: NDArray[Any], whole: bool) -> Span:
        buffer = "ints" if whole else "floats"
        start = self.sizes[buffer]
        self.parts[buffer].append(values)
        self.sizes[buffer] += len(values)
        return buffer, start, self.sizes[buffer]

    def tensor(self, buffer: str) -> torch.Tensor:
        dtype = np.int64 if buffer == "ints" else np.float32
        return torch.from_numpy(np.concatenate([np.zeros(0, dtype), *self.parts[buffer]], dtype=dtype, casting="unsafe"))


class DeviceChain(torch.nn.Module):
    """The ops of a chain from ``start`` on, for batches of tensors on any device. Made by ``build_device``.

    In training mode it augments; in ``eval`` mode it returns its input. It draws for itself, from its seed and a
    counter that ``state_dict`` keeps, unless it is given draws.
    """

    def __init__(self, chain: Chain, start: int, engine: DeviceEngine, seed: int) -> None:
        super().__init__()
        self.chain, self.start, self.engine, self.seed = chain, start, engine, seed
        self.drawn = 0
        self._nodes = chain.nodes[start:]
        leaves = [node for top in self._nodes for node in top.walk() if not node.children]
        self._ops: list[Op] = [node.op for node in leaves]
        self._place = {node.path: place for place, node in enumerate(leaves)}
        self._stock = StockEngine(self._ops, chain.sample_rate) if engine == "torch-audiomentations" else None

    def forward(
        self,
        x: torch.Tensor,
        sample_rate: int | None = None,
        lengths: torch.Tensor | Sequence[int] | None = None,
        draws: Draws | None = None,
    ) -> torch.Tensor:
        """Augment a batch.

        Args:
            x: (B, C, T) or (B, T), floating point, on any device.
            sample_rate: in Hz; the chain's by default.
            lengths: of the clips, in samples, if the batch is padded; on the CPU (a CUDA tensor makes it wait).
            draws: for these B examples, instead of drawing here.

        Shape:
            returns the shape, type and device of x; x itself is not changed. Behind the end of a clip is silence.

        Raises:
            DataError: x is no batch of audio, or draws or lengths are not for B examples.
        """
        if not self.training:
            return x
        x_BCT = _as_batch(x)
        if draws is None:
            draws = self.chain.draw(np.arange(self.drawn, self.drawn + len(x)), seed=self.seed)
            self.drawn += len(x)
        prepared = self.prepare(draws, tuple(x_BCT.shape), sample_rate, lengths)
        return self.run(x_BCT, prepared).reshape(x.shape)

    def prepare(
        self,
        draws: Draws,
        shape: tuple[int, ...],
        sample_rate: int | None = None,
        lengths: torch.Tensor | Sequence[int] | None = None,
    ) -> Prepared:
        """Decide on the host what to do with a batch of that shape (B, C, T). See ``forward`` for the arguments."""
        batch, channels, samples = shape
        if len(draws) != batch:
            raise DataError(f"There are draws for {len(draws)} examples, but the batch has {batch}.")
        host = HostClips(sample_rate or self.chain.sample_rate, _host_lengths(lengths, batch, samples), channels)
        packer, steps = _Packer(), list[Step]()
        padded = bool((host.lengths < samples).any())
        where = packer.add(host.lengths, whole=True) if padded else None
        for node in self._nodes if batch and samples else ():
            self._plan(node, np.arange(batch), draws, host, packer, steps)
        return Prepared(tuple(steps), packer.tensor("floats"), packer.tensor("ints"), host.sample_rate, where)

    def _plan(
        self, node: Node, rows: NDArray[np.int64], draws: Draws, host: HostClips, packer: _Packer, steps: list[Step]
    ) -> None:
        """Append the steps of a node for those of the rows whose coin fell its way."""
        rows = rows[draws[f"{node.path}:apply"][rows] > 0]
        if not len(rows):
            return
        draw = {name: draws[f"{node.path}:{name}"][rows] for name in ("apply", *node.distributions)}
        if not node.children:
            steps.append(self._step(node, rows, draw, host, packer))
            return
        order = node.op.order(draw)
        for slot in range(order.shape[1]):
            for child in np.unique(order[:, slot][order[:, slot] >= 0]):
                self._plan(node.children[child], rows[order[:, slot] == child], draws, host, packer, steps)

    def _step(
        self, node: Node, rows: NDArray[np.int64], draw: dict[str, Any], host: HostClips, packer: _Packer
    ) -> Step:
        check_channels(node.op, host.channels)
        draw.pop("apply")
        params = node.op.resolve(draw, HostClips(host.sample_rate, host.lengths[rows], host.channels))
        every_row = len(rows) == len(host.lengths)
        return Step(
            op=self._place[node.path],
            rows=None if every_row else packer.add(rows, whole=True),
            params={
                name: packer.add(value, whole=name.endswith("_key") or value.dtype.kind in "iu")
                for name, value in params.items()
                if isinstance(value, np.ndarray)
            },
            static={name: value for name, value in params.items() if isinstance(value, int)},
        )

    def run(self, x_BCT: torch.Tensor, prepared: Prepared) -> torch.Tensor:
        """Apply prepared steps to a batch (B, C, T); in float32, also under autocast."""
        buffers = {
            name: getattr(prepared, name).to(x_BCT.device, non_blocking=True) for name in ("floats", "ints")
        }
        with torch.autocast(x_BCT.device.type, enabled=False):
            y_BCT = x_BCT.float()
            every_length = _lengths(prepared, buffers, y_BCT)
            for step in prepared.steps:
                y_BCT = self._apply(step, y_BCT, x_BCT, every_length, buffers, prepared)
        return y_BCT.to(x_BCT.dtype)

    def _apply(
        self,
        step: Step,
        y_BCT: torch.Tensor,
        x_BCT: torch.Tensor,
        length_B: torch.Tensor,
        buffers: dict[str, torch.Tensor],
        prepared: Prepared,
    ) -> torch.Tensor:
        rows = None if step.rows is None else _view(buffers, step.rows)
        y_RCT, length_R = (y_BCT, length_B) if rows is None else (y_BCT[rows], length_B[rows])
        mask = None
        if prepared.lengths is not None:
            mask = (torch.arange(y_BCT.shape[-1], device=y_BCT.device) < length_R[:, None])[:, None]
        clips = DeviceClips(prepared.sample_rate, length_R, mask)
        params = {**{name: _view(buffers, span) for name, span in step.params.items()}, **step.static}
        op = self._ops[step.op]
        batched = op.batched if self._stock is None else self._stock.get(step.op, op)
        y_RCT = clips.masked(batched(y_RCT, params, clips))
        return y_RCT if rows is None else y_BCT.index_copy(0, rows, y_RCT)

    def get_extra_state(self) -> dict[str, int]:
        """Return the random state: the seed and how many examples were drawn."""
        return {"seed": self.seed, "drawn": self.drawn}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Restore the random state."""
        self.seed, self.drawn = state["seed"], state["drawn"]

    def extra_repr(self) -> str:
        """List the ops, for ``print(module)``."""
        return ", ".join([*(node.op.name for node in self._nodes), f"engine={self.engine!r}"])


def build_device(
    chain: Chain, start: int = 0, engine: DeviceEngine = "batched", seed: int | None = None
) -> DeviceChain:
    """Build the part of a chain that runs on the device, on whole batches.

    Args:
        chain: the declaration.
        start: how many ops have run before, in the workers.
        engine: ``"batched"`` (our ops) or ``"torch-audiomentations"`` (that library where it has a counterpart, our
            ops elsewhere; its effects differ, see ``Op.stock``).
        seed: of the module's own draws; torch's initial seed by default.

    Raises:
        PlanError: an op from ``start`` on can only run in a worker.
        UsageError: torch-audiomentations is not usable here, or has no counterpart for any of the ops.
    """
    return DeviceChain(chain, chain.checked_cut(start), engine, torch.initial_seed() if seed is None else seed)


def _as_batch(x: torch.Tensor) -> torch.Tensor:
    if x.ndim not in (2, 3) or not x.is_floating_point():
        raise DataError(
            f"A batch has shape {tuple(x.shape)} and type {x.dtype}, but it must be floating point, (B, T) or (B, C, T)."
        )
    return x if x.ndim == 3 else x[:, None]


def _host_lengths(lengths: torch.Tensor | Sequence[int] | None, batch: int, samples: int) -> NDArray[np.int64]:
    if lengths is None:
        return np.full(batch, samples, dtype=np.int64)
    host = torch.as_tensor(lengths).cpu().numpy().astype(np.int64)
    if host.shape != (batch,) or (batch and not (0 <= host.min() and host.max() <= samples)):
        raise DataError(f"lengths must be {batch} numbers from 0 to {samples}, but they are {host.tolist()}.")
    return host


def _lengths(prepared: Prepared, buffers: dict[str, torch.Tensor], y_BCT: torch.Tensor) -> torch.Tensor:
    if prepared.lengths is not None:
        return _view(buffers, prepared.lengths)
    return torch.full((len(y_BCT),), y_BCT.shape[-1], device=y_BCT.device)


def _view(buffers: dict[str, torch.Tensor], span: Span) -> torch.Tensor:
    buffer, start, stop = span
    return buffers[buffer][start:stop]
