"""The device build: batched ops on whole batches of tensors, as one nn.Module.

It works in two steps. On the host, ``prepare`` decides what to do (in a DataLoader worker, if you like). On the device,
``run`` does it, and never asks the device anything.

Shapes: B examples, R rows that an op touches, C channels, T samples.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import LENGTHS, MEASURED_LENGTHS, Chain, DeviceBatchInfo, Draws, Feature, Key, Node, Params
from audioaug.core.params import View
from audioaug.dsp.dispatch import implementation_for, needs_torch_ops
from audioaug.engine.checks import as_batch, check_engine, lengths_of, numbers_of
from audioaug.engine.float32 import in_float32
from audioaug.engine.graph_backends import CudaGraphs, TorchCompile
from audioaug.engine.graph_cache import GraphBackend, GraphCache
from audioaug.engine.prepare import Prepared, Preparer, Step
from audioaug.engine.proof import TRUSTED, prove, unsupported
from audioaug.engine.rows import Rows, fit, rows_of, silenced
from audioaug.engine.stream import DrawStream
from audioaug.engine.torch_audiomentations import TorchAudiomentationsEngine
from audioaug.errors import UsageError
from audioaug.ops.identity import Identity
from audioaug.process import keep_some_freed_memory
from audioaug.records import DeviceEngine

GRAPH_BACKENDS: Mapping[DeviceEngine, Callable[[], GraphBackend]] = {
    "cuda_graph": CudaGraphs,
    "torch_compile": TorchCompile,
}
"""The engines that keep a graph of the kernels for each layout of a batch."""


class DeviceChain(torch.nn.Module):
    """The ops of a chain from ``start`` on, up to ``stop``, for batches on any device. Made by ``build_device``.

    In training mode it augments; in ``eval`` mode it returns its input, or its features if these ops make some.
    ``seed`` is that of draws by key; ``stream`` makes the others, and ``state_dict`` keeps how far it is.
    ``torch.compile`` leaves all of it as it is.
    """

    def __init__(
        self, chain: Chain, start: int, engine: DeviceEngine, seed: int | None = None, stop: int | None = None
    ) -> None:
        super().__init__()
        self.chain, self.start, self.engine = chain, start, engine
        self.stream = DrawStream(chain, seed)
        self.seed = self.stream.seed or 0
        self._is_restored = False
        self._proven: set[tuple[torch.device, int, int]] = set()
        self._elsewhere: dict[torch.device, set[str]] = {}
        self.register_load_state_dict_post_hook(_allow_plain_checkpoint)  # type: ignore[no-untyped-call]
        by_library = engine == "torch-audiomentations"
        self.prepare = Preparer(chain, start, stop, fused=not by_library, constant_rows=engine in GRAPH_BACKENDS)
        ops = [node.op for node in self.prepare.leaves]
        self._gets_features = chain.has_features(start)
        self._makes_features = any(isinstance(op, Feature) for op in ops)
        self._library = TorchAudiomentationsEngine(ops, chain.sample_rate) if by_library else None
        self._graphs = GraphCache(GRAPH_BACKENDS[engine]) if engine in GRAPH_BACKENDS else None

    def forward(
        self,
        x: torch.Tensor,
        sample_rate: int | None = None,
        lengths: torch.Tensor | Sequence[int] | None = None,
        draws: Draws | None = None,
        return_lengths: bool = False,
        key: torch.Tensor | Sequence[Key] | None = None,
        epoch: int = 0,
    ) -> Any:
        """Augment a batch: with new draws at every call, unless ``key`` or ``draws`` is given.

        Args:
            x: (B, C, T) or (B, T), floating point, on any device.
            sample_rate: in Hz; the chain's by default.
            lengths: of the clips, integers in samples, if the batch is padded; on the CPU (a CUDA tensor makes it
                wait).
            draws: for these B examples, instead of drawing here.
            return_lengths: return (batch, lengths), for chains that make clips longer or shorter.
            key: of each example: numbers in the dataset, (B,), or a list of B integers, strings or bytes. With it, the
                draws follow from seed, epoch and key alone, as those of the worker part do; on the CPU, like the
                lengths.
            epoch: which the worker part was given; only used with ``key``.

        Shape:
            returns the shape, type and device of x; x itself is not changed. Past the end of a clip is silence. T is
            another number if the chain has changed the clips' lengths, which are (B,), in samples, on x's device.
            Features, if the chain ends with them, are (B, C, F, N) or (B, F, N), and lengths in frames.

        Raises:
            DataError: x is not a batch of audio; draws, lengths or keys are not for B examples; lengths are not
                integers, or keys are something else than integers, strings and bytes; or the sample rate is not
                positive.
            UsageError: the epoch is not an integer, or new draws would be wrong here (``DrawStream.draw``).
        """
        if not self.training and not return_lengths and not self._makes_features:
            return x
        arguments = x, sample_rate, lengths, draws, key, epoch
        if "torch._dynamo" in sys.modules:  # torch.compile imports it
            from audioaug.engine.uncompiled import uncompiled

            y, length_B = uncompiled(self._augmented, *arguments)
        else:
            y, length_B = self._augmented(*arguments)
        return (y, length_B) if return_lengths else y

    def _augmented(
        self,
        x: torch.Tensor,
        sample_rate: int | None,
        lengths: torch.Tensor | Sequence[int] | None,
        draws: Draws | None,
        key: torch.Tensor | Sequence[Key] | None,
        epoch: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch, augmented in training mode, and its lengths; features of it, if that is the last op."""
        if self._gets_features:
            return x, _copied(lengths_of(lengths, len(x), x.shape[-1], "frames"), x.device)
        x_BCT = as_batch(x)
        if not (self.training or self._makes_features):
            return x, _copied(lengths_of(lengths, len(x), x.shape[-1]), x.device)
        if not self.training:
            draws = self.chain.draw_nothing(len(x))
        elif draws is None and key is not None:
            draws = self.chain.draw(numbers_of(key, len(x)), epoch, self.seed)
        elif draws is None:
            draws = self.stream.draw(len(x))
        pack = not x.is_cpu or self._graphs is not None
        prepared = self.prepare(draws, tuple(x_BCT.shape), sample_rate, lengths, pack)
        return self.augment(x, prepared.pin_memory() if x.is_cuda else prepared)

    def augment(
        self, x: torch.Tensor, prepared: Prepared, may_overwrite: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Do what was prepared for this batch, (B, C, T) or (B, T); whatever the training mode. Also return lengths.

        ``may_overwrite``: the batch is not needed any more, so the result may lie in its memory.
        """
        y_BCT, length_B = self.run(as_batch(x), prepared, may_overwrite)
        return (y_BCT if x.ndim == 3 else y_BCT[:, 0]), length_B

    def run(
        self, x_BCT: torch.Tensor, prepared: Prepared, may_overwrite: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply prepared steps to a batch (B, C, T), in float32 whatever torch prefers; also return its lengths."""
        self.prepare.mark_running(())
        if x_BCT.device.type == "cpu":
            keep_some_freed_memory()
        self._prove(x_BCT, prepared.sample_rate)
        if self._graphs is None:
            return self._run(prepared, x_BCT, prepared.numbers.on(x_BCT.device), may_overwrite)
        packed = prepared.numbers.pack().to(x_BCT.device, non_blocking=True)
        numbers = prepared.numbers.views_of(packed)
        graph = self._graphs.find(partial(self._work, prepared), x_BCT, packed, prepared)
        if graph is None:
            return self._run(prepared, x_BCT, numbers, may_overwrite)
        with torch.inference_mode(False), torch.no_grad():
            return graph(x_BCT, packed), numbers(prepared.lengths)

    def prove_on(self, device: torch.device, channels: int = 1) -> None:
        """Compile and prove on a device what runs there, which would otherwise delay the first batch."""
        self._prove(torch.empty(1, channels, 1, device=device), self.chain.sample_rate)

    def _prove(self, x_BCT: torch.Tensor, sample_rate: int) -> None:
        """Prove the ops on the batch's device before the first batch that other than torch operations run on.

        Where even these may be missing, note which ops do not run there.
        """
        where = device, channels, _ = x_BCT.device, min(x_BCT.shape[1], 2), sample_rate
        is_trusted = device.type in TRUSTED
        if where in self._proven or needs_torch_ops(x_BCT) or (is_trusted and implementation_for(x_BCT) == "torch"):
            return
        self._proven.add(where)
        ops = [node.op for leaf in self.prepare.leaves for node in leaf.members]
        if is_trusted:
            prove([Identity(), *ops], sample_rate, device, channels, run_once)
        else:
            self._elsewhere[device] = {*unsupported(ops, sample_rate, device, channels, run_once)}

    def has_graph(self, x: torch.Tensor, prepared: Prepared) -> bool:
        """Return whether there is a graph for batches of this layout."""
        return self._graphs is not None and self._graphs.has(as_batch(x), prepared)

    def _work(self, prepared: Prepared, x_BCT: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        return self._run(prepared, x_BCT, prepared.numbers.views_of(packed))[0]

    def _run(
        self, prepared: Prepared, x_BCT: torch.Tensor, numbers: View, may_overwrite: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kept = x_BCT.new_empty(0) if may_overwrite else x_BCT
        with in_float32(x_BCT.device.type):
            y_BCT = x_BCT.float()
            length_B = numbers(prepared.lengths)
            if prepared.padded:
                y_BCT = silenced(y_BCT, length_B, kept)
            rows = rows_of(y_BCT, kept)
            elsewhere = self._elsewhere.get(y_BCT.device)
            for step in prepared.steps:
                members = self.prepare.leaves[step.op].members
                self.prepare.mark_running(members)
                moves = elsewhere and any(member.op.name in elsewhere for member in members)
                if moves:
                    length_B = self._run_step_on_cpu(step, rows, length_B, prepared)
                else:
                    length_B = self._run_step(step, rows, length_B, numbers, prepared.sample_rate)
        y_BCT = rows.whole()
        return (y_BCT if y_BCT.dtype == x_BCT.dtype else y_BCT.to(x_BCT.dtype)), length_B

    def _run_step(self, step: Step, batch: Rows, length_B: torch.Tensor, numbers: View, rate: int) -> torch.Tensor:
        """Let an op change its rows of the batch, or make features of them all; return the new lengths."""
        node = self.prepare.leaves[step.op]
        rows = None if step.rows is None else numbers(step.rows)
        before_RCT, free = batch.take(rows)
        length_R = length_B
        if rows is not None:
            length_R = length_B.index_select(0, rows) if step.lengths is None else numbers(step.lengths)
        info = DeviceBatchInfo(rate, length_R, before_RCT.shape[-1] if step.padded else None, free)
        params = _params(node, step, numbers)
        if node.capabilities.length_depends_on_audio:
            params = node.op.measure(before_RCT, params, info)
        batched = node.op.batched if self._library is None else self._library.get(step.op, node.op.batched)
        y_RCT = batched(before_RCT, params, info)
        if isinstance(node.op, Feature):
            assert step.width is not None
            batch.put(None, y_RCT[..., : step.width])
            return params["length_out"]
        if step.width is not None:
            length_R, y_RCT = _new_lengths(node, params), fit(y_RCT, step.width)
            y_RCT = silenced(y_RCT, length_R, before_RCT)
            length_B = length_R if rows is None else length_B.index_copy(0, rows, length_R)
        elif step.padded and (self._library is not None or not node.capabilities.keeps_silence):
            y_RCT = silenced(y_RCT, length_R, before_RCT)
        if rows is not None and y_RCT.requires_grad:  # a row that repeats another would count twice
            rows, y_RCT = rows[: step.examples], y_RCT[: step.examples]
        batch.put(rows, y_RCT)
        return length_B

    def _run_step_on_cpu(self, step: Step, batch: Rows, length_B: torch.Tensor, prepared: Prepared) -> torch.Tensor:
        """Run a step that the batch's device cannot run."""
        device, x_BCT = batch.whole().device, batch.whole().cpu()
        on_cpu, numbers = rows_of(x_BCT, x_BCT), prepared.numbers.on(x_BCT.device)
        length_B = self._run_step(step, on_cpu, length_B.cpu(), numbers, prepared.sample_rate)
        batch.put(None, on_cpu.whole().to(device))
        return length_B.to(device)

    def get_extra_state(self) -> torch.Tensor:
        """Return where the stream of draws is."""
        return self.stream.state()

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Let the stream of draws continue there.

        Raises:
            UsageError: it is not what ``get_extra_state`` returns.
        """
        if not isinstance(state, torch.Tensor) or state.shape != (2,):
            raise UsageError(
                f"The state of a device module is a tensor of two integers, got {type(state).__name__}.",
                "A state of an earlier version cannot be loaded: leave it out of the checkpoint.",
            )
        self.stream.load(state)
        self._is_restored = True

    def extra_repr(self) -> str:
        """List the ops, for ``print(module)``; those that are fused with a plus between them."""
        names = [part.op.name for part in self.prepare.parts]
        return ", ".join([*names, f"engine={self.engine!r}"])


def run_once(chain: Chain, x_BCT: torch.Tensor) -> torch.Tensor:
    """Return a batch after our ops of a chain, with the draws of its first examples: (2B, C, T).

    It runs twice, since other code runs if clips are padded: all of the same length, and each shorter than the last.
    """
    module = DeviceChain(chain, 0, "batched", seed=0)  # with a seed, so that it is not counted among the streams
    draws, (examples, _, samples) = chain.draw(range(len(x_BCT))), x_BCT.shape
    results = []
    for lengths in (None, [samples * (examples - n) // examples for n in range(examples)]):
        prepared = module.prepare(draws, tuple(x_BCT.shape), lengths=lengths)
        with torch.no_grad():
            results.append(module._run(prepared, x_BCT, prepared.numbers.on(x_BCT.device))[0])
    return torch.cat([fit(y_BCT, max(each.shape[-1] for each in results)) for y_BCT in results])


def _allow_plain_checkpoint(module: torch.nn.Module, keys: Any) -> None:
    """Let a checkpoint that was saved without the module load strictly: without its state, the stream stays as it is.

    The module has no other entry and no children, so when torch calls this, a missing one is the last in the list.
    """
    assert isinstance(module, DeviceChain)
    if not module._is_restored and keys.missing_keys and keys.missing_keys[-1].endswith("_extra_state"):
        keys.missing_keys.pop()
    module._is_restored = False


def build_device(
    chain: Chain, start: int = 0, engine: DeviceEngine = "batched", seed: int | None = None, stop: int | None = None
) -> DeviceChain:
    """Build the part of a chain that runs on the device, on whole batches.

    ``module(batch)`` augments with new draws at every call, in every module, worker and process;
    ``module(batch, key=[7, 3], epoch=2)`` with the draws of these examples, as ``build_cpu`` does anywhere.
    ``module.state_dict()`` holds how far the new draws are, so that a resumed run continues with the next ones.

    Args:
        chain: the declaration.
        start: how many ops have run before, in the workers.
        engine: ``"batched"`` (our ops) or ``"torch-audiomentations"`` (that library where it has a counterpart, our
            ops elsewhere; its effects differ, see ``Op.torch_audiomentations``). ``"cuda_graph"`` and
            ``"torch_compile"`` are our ops, too: batches that need the same kernels replay them as a CUDA graph (on
            other devices, ops run one by one), or compiled by ``torch.compile``, which takes seconds for each.
        seed: of draws by key, 0 by default, and the same for the worker part; of other draws in place of
            ``torch.initial_seed()``.
        stop: run the ops up to this cut; all by default. With it, a worker can run the first part of a chain on whole
            batches, too.

    Raises:
        PlanError: there is no such engine or cut, or an op from ``start`` on can only run in a worker.
        UsageError: torch-audiomentations is not usable here, or has no counterpart for any of the ops; or the seed is
            not an integer.
    """
    check_engine("device", engine, get_args(DeviceEngine))
    return DeviceChain(chain, chain.checked_cut(start), engine, seed, None if stop is None else chain.checked_cut(stop))


def _copied(length_B: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Copy lengths to the device; the host does not wait for it."""
    found = torch.from_numpy(length_B)
    return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found.to(device)


def _params(node: Node, step: Step, view: View) -> Params:
    types = node.param_types
    return {name: types[name].unpack(packed, view) for name, packed in step.params}


def _new_lengths(node: Node, params: Params) -> torch.Tensor:
    name = next(name for name, kind in node.param_types.items() if kind in (LENGTHS, MEASURED_LENGTHS))
    lengths: torch.Tensor = params[name]
    return lengths
