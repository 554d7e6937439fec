"""The CPU build: audiomentations itself, clip by clip, fed with our draws."""

from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    BatchInfo,
    Chain,
    DeviceBatchInfo,
    Draws,
    Feature,
    Key,
    Node,
    Op,
    Params,
    Timeline,
    follow,
    is_ours,
    leaves,
    why_not_on_device,
)
from audioaug.core.params import of_one
from audioaug.engine.checks import check_channels, checked, rate_of
from audioaug.engine.device import build_device
from audioaug.engine.float32 import in_float32
from audioaug.engine.stream import DrawStream
from audioaug.errors import ClipRefused, DataError, LibraryMissing, UsageError
from audioaug.process import keep_random_state

NOISE = 12000
"""Samples."""

ROW_OF_ONE = np.zeros(1, np.int64)
"""The only row of the draws of one example."""


class WorkerChain:
    """The first ``cut`` ops of a chain as a callable on one clip. Made by ``build_cpu``.

    It can be pickled; the audiomentations transforms are built on first use, in the process that uses them. ``running``
    is the op that it runs, or ran last, with its draw: the one that raised an exception. ``seed`` is that of draws by
    key, ``stream`` makes the others. ``fallback``: a clip gets what the device build does where the reference refuses
    it, or is a transform of torch-audiomentations and that is not installed.
    """

    def __init__(self, chain: Chain, cut: int, seed: int | None = None, fallback: bool = True) -> None:
        self.chain, self.cut, self.fallback = chain, cut, fallback
        self.stream = DrawStream(chain, seed)
        self.seed = self.stream.seed or 0
        self.running: tuple[Op, Params] | None = None
        self._references: dict[str, Any] = {}
        self._measured: dict[str, Params] | None = None  # by path, while there is something to follow

    def __call__(
        self,
        samples: NDArray[np.float32],
        sample_rate: int | None = None,
        *,
        key: Key | None = None,
        epoch: int = 0,
        draws: Draws | None = None,
    ) -> NDArray[np.float32]:
        """Augment one clip: with a new draw at every call, unless ``key`` or ``draws`` is given.

        Args:
            samples: (T,) or (C, T), floating point. Features of it are (F, N) or (C, F, N).
            sample_rate: in Hz; the chain's by default.
            key: of the example: its number in the dataset, a string or bytes. With it, the draw follows from seed,
                epoch and key alone.
            epoch: counts passes over the dataset; only used with ``key``.
            draws: of this one example, instead of drawing them here.

        Raises:
            DataError: the samples have another shape or type, or several channels where an op takes one, the sample
                rate is not a positive integer, or the draws are not for one example.
            UsageError: the epoch is not an integer.
        """
        samples, sample_rate = checked(samples), rate_of(self.chain, sample_rate)
        draws = self._draws(key, epoch, draws)
        shape = samples.shape
        if len(shape) == 2 and shape[0] == 1:  # one channel is mono, which the references want as (T,)
            samples = samples[0]
        with in_float32("cpu"):
            for node in self.chain.nodes[: self.cut]:
                samples = self._run(node, draws, samples, sample_rate)
        samples = _contiguous(np.asarray(samples, dtype=np.float32))
        axes = len(shape) + self.chain.has_features(self.cut)
        return samples[None] if axes > samples.ndim else samples

    def warm_up(self) -> None:
        """Run each op once on noise: what it imports and compiles is there then. Code of users is not called."""
        noise, draws = np.random.default_rng(0).normal(0, 0.1, NOISE).astype(np.float32), self.chain.draw([0])
        for node in self.chain.nodes[: self.cut]:
            for leaf in node.walk():
                if not leaf.children and is_ours(leaf.op):
                    with suppress(Exception):  # the op itself reports it when it runs
                        self._replay(leaf, draws, noise, self.chain.sample_rate)

    def follow(
        self,
        samples: NDArray[np.float32],
        sample_rate: int | None = None,
        *,
        key: Key | None = None,
        epoch: int = 0,
        draws: Draws | None = None,
        stop: int | None = None,
    ) -> tuple[NDArray[np.float32], Timeline]:
        """Augment one clip, and return where its time goes, so that its labels can follow.

        Args:
            samples, sample_rate, key, epoch, draws: as for calling it.
            stop: how much of the chain the timeline is for: all of it by default, the device part too. There each clip
                must keep its own length: give the module the ``lengths`` of a padded batch.

        Raises:
            PlanError: the device part has an op whose cuts depend on the audio (``Trim``).
            UsageError: the device part may move the time, and neither ``key`` nor ``draws`` says what it draws.
            DataError: as for calling it; or user code made the clip longer or shorter.

        Examples:
            >>> from audioaug import ops
            >>> worker = build_cpu(Chain([ops.Reverse(p=1.0), ops.Shift(p=1.0)], sample_rate=16000), cut=1)
            >>> wave, timeline = worker.follow(np.ones(16000, np.float32), key=7)
            >>> beats = timeline.stamps(np.array([0.1, 0.6]) * 16000)[0] / 16000  # in seconds, after both ops
        """
        self.chain.check_followed(self.cut)
        if key is None and draws is None:
            self._check_still(stop)
        sample_rate, draws = rate_of(self.chain, sample_rate), self._draws(key, epoch, draws)
        channels = 1 if np.ndim(samples) == 1 else len(samples)
        self._measured = {}
        try:
            wave = self(samples, sample_rate, draws=draws)
            begun = [Timeline.identity(np.shape(samples)[-1])]
            where: dict[str, Any] = {"channels": channels, "sample_rate": sample_rate}
            [[here]] = follow(self.chain, draws, begun, stop=self.cut, measured=self._measured, **where)
            begun = [here.timeline]
        finally:
            self._measured = None
        if self._length_after(begun[0].length_out) != wave.shape[-1]:
            raise DataError(
                f"Your code has changed a clip's length (to {wave.shape[-1]} samples, where "
                f"{begun[0].length_out} were expected), and targets cannot follow that.",
                "Let your own transforms keep the length, or change it in the dataset, with its targets.",
            )
        [[whole]] = follow(self.chain, draws, begun, start=self.cut, stop=stop, **where)
        return wave, whole.timeline

    def _length_after(self, samples: int) -> int:
        """Return the length of what the worker makes of a clip that has this many samples after its other ops."""
        feature = self.chain.feature if self.chain.has_features(self.cut) else None
        return samples if feature is None else int(feature.frames(np.asarray([samples]))[0])

    def _draws(self, key: Key | None, epoch: int, draws: Draws | None) -> Draws:
        """Return the draws of one example: those given, or those of its key, or new ones."""
        if draws is None:
            return self.stream.draw(1) if key is None else self.chain.draw([key], epoch, self.seed)
        if len(draws) != 1:
            raise DataError(f"There are draws for {len(draws)} examples, but this is one clip.", "Pick one: draws[0].")
        return draws

    def _check_still(self, stop: int | None) -> None:
        """Raise ``UsageError`` if an op after the cut may move the time of a clip."""
        for op in (leaf for top in self.chain.ops[self.cut : stop] for leaf in leaves(top)):
            if op.capabilities.changes_timing:
                raise UsageError(
                    f"Labels cannot follow {op.name}, which runs on the device, without key: its draw is not known "
                    "here.",
                    "Give follow and the device module the same key= and epoch=.",
                )

    def _run(self, node: Node, draws: Draws, samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
        if not draws[f"{node.path}:apply"][0] or not (samples.shape[-1] or isinstance(node.op, Feature)):
            return samples
        if not node.children:
            return self._replay(node, draws, samples, sample_rate)
        for child in node.order(draws, ROW_OF_ONE)[0]:
            if child >= 0:
                samples = self._run(node.children[child], draws, samples, sample_rate)
        return samples

    def _replay(self, node: Node, draws: Draws, samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
        samples = _contiguous(samples)  # some references end the process over other views
        channels = 1 if samples.ndim == 1 else len(samples)
        check_channels(node, channels)
        self.running = node.op, node.drawn(draws, ROW_OF_ONE)
        is_first = node.path not in self._references
        reference = self._reference(node)
        if reference is None:
            return _by_device_build(node, draws, samples, sample_rate)
        batch = BatchInfo(sample_rate, np.asarray([samples.shape[-1]]), channels)
        params = of_one(node.resolve(draws, ROW_OF_ONE, batch))
        if self._measured is not None and node.capabilities.length_depends_on_audio:
            self._measured[node.path] = _measured(node.op, params, samples, sample_rate)
        try:
            with keep_random_state() if is_first and is_ours(node.op) else nullcontext():  # it imports what it needs
                return np.asarray(node.op.apply_reference(reference, params, samples, sample_rate))
        except ClipRefused as error:  # as some do with clips shorter than their filter or shift
            if self.fallback and not why_not_on_device(node.op):
                return _by_device_build(node, draws, samples, sample_rate)
            reason = f"audiomentations refuses a clip of {samples.shape[-1]} samples: {error.message.rstrip('.')}."
            raise DataError(f"{node.op.name}: {reason}", "Leave such clips out.") from None

    def _reference(self, node: Node) -> Any:
        """Return the transform that an op must equal; ``None`` where its library is missing and there is a fallback."""
        if node.path not in self._references:
            try:
                reference = node.op.reference()
                reference.freeze_parameters()
            except LibraryMissing:
                if not self.fallback or why_not_on_device(node.op):
                    raise
                reference = None
            self._references[node.path] = reference
        return self._references[node.path]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_references": {}, "_measured": None, "running": None}


def build_cpu(chain: Chain, cut: int | None = None, seed: int | None = None) -> WorkerChain:
    """Build the part of a chain that runs in the workers.

    ``worker(samples)`` augments with a new draw at every call, in every worker, process and epoch;
    ``worker(samples, key=7, epoch=2)`` with the draw of that example, which ``build_device`` repeats anywhere.

    Args:
        chain: the declaration.
        cut: how many ops run there; all of them by default.
        seed: of draws by key, 0 by default, and the same for the device part; of other draws in place of
            ``torch.initial_seed()``.

    Raises:
        PlanError: the chain has no such cut.
        UsageError: the seed is not an integer.

    Examples:
        >>> from audioaug import ops
        >>> worker, clip = build_cpu(Chain([ops.Gain(p=1.0)], sample_rate=16000)), np.ones(4, np.float32)
        >>> bool(worker(clip)[0] == worker(clip)[0]), bool(worker(clip, key=7)[0] == worker(clip, key=7)[0])
        (False, True)
    """
    return WorkerChain(chain, chain.checked_cut(cut), seed)


def _contiguous(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return contiguous samples that may be written to; to numpy, one sample is contiguous whatever its stride."""
    ready = np.require(samples, requirements=["C", "W"])
    return ready if all(stride >= 0 for stride in ready.strides) else ready.copy()


def _measured(op: Op, params: Params, samples: NDArray[np.float32], sample_rate: int) -> Params:
    """Return one clip's parameters with those that depend on the audio itself."""
    x_1CT = torch.from_numpy(samples).reshape(1, -1, samples.shape[-1])
    measured = op.measure(x_1CT, params, DeviceBatchInfo(sample_rate, torch.tensor([samples.shape[-1]], device="cpu")))
    return {name: value.item() if isinstance(value, torch.Tensor) else value for name, value in measured.items()}


def _by_device_build(node: Node, draws: Draws, samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Return what the device build makes of a clip that the reference cannot augment: placement must not matter."""
    alone = Chain([node.op], sample_rate)
    table = np.stack([draws[f"{node.path}:{name}"] for name in ("apply", *node.distributions)], axis=1)
    x_BT = torch.from_numpy(samples)[None]
    result: NDArray[np.float32] = build_device(alone, seed=0)(x_BT, draws=Draws(alone.columns, table))[0].numpy()
    return result
