"""Pipeline: what a plan makes of a Loader's configuration: a DataLoader with its workers, and the device part."""

import atexit
import multiprocessing
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain
from audioaug.engine import DeviceChain, build_device, build_worker, check_plan
from audioaug.errors import AudioaugError, DataError, UsageError, WorkerError
from audioaug.internals import batches_ready, worker_pids
from audioaug.loader.buckets import BucketBatchSampler
from audioaug.loader.examples import Field, KeyOf, get_wave, with_lengths, with_wave
from audioaug.loader.failures_of_examples import OnError
from audioaug.loader.failures_of_workers import (
    end_and_clean_up,
    expect_deaths,
    has_dead_worker,
    watch_workers,
    worker_context,
    worker_death,
    worker_errors,
)
from audioaug.loader.pickling import WorkerBatch, too_many_tensors, why_not_picklable
from audioaug.loader.prefetch import to_device
from audioaug.loader.processes import share_of
from audioaug.loader.sampling import EpochSampler, Stream, is_stream
from audioaug.loader.targets import LabelTransform, LabelTransforms, check_targets, unpack_ragged
from audioaug.loader.worker import Collate, Fetcher, augment_batch
from audioaug.process import (
    hold_collection,
    hold_interrupts,
    raise_postponed_death,
    share_temporary_folder,
    start_worker,
)
from audioaug.records import Plan
from audioaug.units import format_hz


def ops_on_clips(chain: Chain, targets: Mapping[Field, LabelTransform] | None, collate_fn: object) -> int:
    """Return how many ops must run on clips: so that labels can follow, and collate_fn sees the final lengths."""
    followed = chain.followed_from if targets else 0
    return followed if collate_fn is None else max(followed, chain.sized_from)


@dataclass(frozen=True, eq=False)
class LoaderConfig:
    """The arguments of a Loader that do not depend on the plan. ``sampler`` is ``None`` for a stream."""

    dataset: Any
    chain: Chain
    device: torch.device
    sampler: EpochSampler | None
    batch_size: int
    drop_last: bool
    collate_fn: Callable[[list[Any]], Any] | None
    pad: bool
    lengths: Field | None
    targets: Mapping[Field, LabelTransform] | None
    seed: int
    on_error: OnError
    audio_key: Field | None
    key: KeyOf | None

    @property
    def ops_on_clips(self) -> int:
        """How many ops must run on clips."""
        return ops_on_clips(self.chain, self.targets, self.collate_fn)

    @property
    def least_cut(self) -> int:
        """The smallest possible cut."""
        return self.chain.first_cut(self.ops_on_clips)


class Pipeline:
    """Batches of a Loader by one plan.

    Args:
        config: of the Loader.
        plan: where and how the chain runs.

    Raises:
        PlanError: the plan does not match the chain, has an invalid cut, or does not let targets follow.
    """

    def __init__(self, config: LoaderConfig, plan: Plan) -> None:
        chain = config.chain
        check_plan(chain, plan)
        if config.targets:
            check_targets(chain, plan)
        self.config, self.plan = config, plan
        on_clips, on_batches = build_worker(chain, plan, config.seed, config.ops_on_clips)
        labels = LabelTransforms(config.targets, chain, on_clips.cut)
        self.module = build_device(chain, plan.cut, plan.device_engine, config.seed)
        self._fetcher = Fetcher(
            config.dataset, on_clips, config.on_error, bool(labels), config.lengths, config.audio_key, config.key
        )
        self._collate = Collate(
            self.module.prepare, config.collate_fn, config.pad, on_batches, labels, config.lengths, config.seed
        )
        with worker_errors(None):  # a stream may share its epoch with workers
            self.source: EpochSampler | Stream = (
                Stream(self._fetcher, config.batch_size, config.drop_last, plan.persistent_workers)
                if config.sampler is None
                else config.sampler
            )
        self._start()

    def _start(self) -> None:
        """Make what belongs to this process: the DataLoader, whose workers start with the first iteration."""
        self._generator = torch.Generator().manual_seed(self.config.seed)  # or torch would draw from the global one
        self.data_loader = self._make_data_loader()
        self._iterator: Callable[[], Any] = lambda: None  # torch's iterator, while it exists
        self._finalizer = weakref.finalize(self, end_and_clean_up, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs, which starts workers of its own."""
        of_process = "_generator", "data_loader", "_iterator", "_finalizer"
        return {name: value for name, value in self.__dict__.items() if name not in of_process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def _make_data_loader(self) -> "DataLoader[Any]":
        plan, source = self.plan, self.source
        workers = share_of(plan.num_workers)
        if workers and self._fetcher.worker.cut:
            import audiomentations  # noqa: F401  (takes a second; forked workers inherit it)
        batching: dict[str, Any] = {"batch_size": None} if isinstance(source, Stream) else {"batch_sampler": source}
        return DataLoader(
            source if isinstance(source, Stream) else self._fetcher,  # type: ignore[arg-type]
            **batching,
            collate_fn=self._collate,  # type: ignore[arg-type]
            num_workers=workers,
            prefetch_factor=plan.prefetch_factor if workers else None,
            persistent_workers=plan.persistent_workers and workers > 0,
            pin_memory=self.config.device.type == "cuda" and plan.pin_memory is not False,
            worker_init_fn=start_worker,
            generator=self._generator,
        )

    def worker_batches(self) -> "Iterator[WorkerBatch | AudioaugError]":
        """Start the workers unless they are running, and return what they send.

        A worker that dies is a ``WorkerError``; the next call starts new workers.
        """
        kept = self._iterator() if self.data_loader.persistent_workers else None
        if has_dead_worker(kept):
            self._end(kept)
            kept = None
        share_temporary_folder()
        with self._naming_unpicklable_objects(), worker_errors(kept), ExitStack() as held:
            if kept is None:  # others are waited for, which Ctrl-C may end
                held.enter_context(hold_interrupts())
                held.enter_context(hold_collection())
                if self.data_loader.num_workers:
                    self.data_loader.multiprocessing_context = worker_context(self.plan.start_method)
            if self.data_loader.num_workers:
                expect_deaths()
            iterator = iter(self.data_loader)
            if self.data_loader.num_workers:
                watch_workers(iterator)
        self._iterator = weakref.ref(iterator)
        self._end_later(iterator if self.data_loader.persistent_workers else None)
        return self._received(iterator)

    def _end_later(self, iterator: Any) -> None:
        """Let the workers of an iterator end when this object is deleted, or at exit.

        Otherwise torch may wait 5 s for each worker: when a loader is deleted in a reference cycle (its queues are gone
        before it asks the workers to end), and at exit with pinned memory (nothing asks them, pytorch/pytorch#81794).
        """
        atexit.unregister(self._finalizer)
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, end_and_clean_up, iterator)
        atexit.register(self._finalizer)  # the last one registered runs first: before the hooks of torch

    def _received(self, iterator: Iterator[Any]) -> "Iterator[WorkerBatch | AudioaugError]":
        failed = False

        def note(batch: Any) -> Any:
            nonlocal failed
            failed = isinstance(batch, WorkerError)
            raise_postponed_death()
            return batch

        try:
            # map() keeps no reference to a batch that was handed out.
            with self._naming_unpicklable_objects(), worker_errors(iterator):
                raise_postponed_death()
                yield from map(note, islice(iterator, 1))
            with worker_errors(iterator):
                yield from map(note, iterator)
        except WorkerError:
            failed = True
            raise
        except GeneratorExit:  # torch would end them too, but leave their shared memory if Ctrl-C interrupts it
            if not self.plan.persistent_workers and not sys.is_finalizing():
                end_and_clean_up(iterator)
            raise
        finally:
            # If shared memory is full, it is full for the other workers too. While Python exits they have ended.
            if failed or (not sys.is_finalizing() and worker_death(iterator)):
                self._end(iterator)

    def _end(self, iterator: Any) -> None:
        end_and_clean_up(iterator)
        self._renew()

    def _renew(self) -> None:
        """Replace a DataLoader with persistent workers, which would reuse those that have ended."""
        if self.data_loader.persistent_workers:
            self.data_loader = self._make_data_loader()
            self._end_later(None)

    @contextmanager
    def _naming_unpicklable_objects(self) -> Iterator[None]:
        """Raise ``DataError`` if workers cannot start because an object that they need cannot be pickled or found."""
        try:
            yield
        except Exception:
            method, config = self.plan.start_method or multiprocessing.get_start_method(), self.config
            if not self.data_loader.num_workers or method == "fork":
                raise
            names = "dataset", "collate_fn", "chain", "targets"
            objects = {name: getattr(config, name) for name in names}
            if many := too_many_tensors(objects, method):
                raise DataError(
                    f"{many}, each as an open file.",
                    "Stack them into one tensor, or give a Plan with start_method='fork' or num_workers=0.",
                ) from None
            reason = why_not_picklable(objects)
            if not reason:
                raise
            raise DataError(
                f"{reason}, but workers started by {method!r} receive a pickled copy.",
                "Define it at the top level of a module, or give a Plan with start_method='fork' or num_workers=0.",
            ) from None

    def finish(self, sent: WorkerBatch) -> Any:
        """Copy a batch to the device and run the device part on its audio."""
        return finish(sent, self.module, self.config)

    def close(self) -> None:
        """End the workers; another iteration would start new ones."""
        self._finalizer()
        self._renew()

    @property
    def capacity(self) -> int | None:
        """The most batches that workers can have ready; ``None`` without workers."""
        return self.data_loader.num_workers * (self.data_loader.prefetch_factor or 0) or None

    @property
    def ready(self) -> int | None:
        """The number of finished batches that have not been taken; ``None`` if it is unknown."""
        return batches_ready(self._iterator())

    @property
    def workers(self) -> frozenset[int]:
        """The process ids of the running workers."""
        return worker_pids(self._iterator()) or frozenset()


def finish(sent: WorkerBatch, module: DeviceChain, config: LoaderConfig) -> Any:
    """Copy a batch to the device and run the device part on its audio, without synchronizing with the device."""
    if sent.batch is None:
        raise DataError("pin_memory() of the batch returned None.", "Let it return the batch in pinned memory.")
    batch = unpack_ragged(to_device(sent.batch, config.device))
    assert sent.prepared is not None
    if not sent.prepared.steps:
        return batch
    audio = get_wave(batch, sent.audio_key)
    wave, length_B = augment_batch(module, audio, sent.prepared, sent, config.seed, config.collate_fn is None)
    if sent.prepared.changes_length and config.pad and config.collate_fn is None:
        batch = with_lengths(batch, length_B, config.lengths)
    return with_wave(batch, wave, sent.audio_key)


def check_dataset(dataset: Any) -> None:
    """Raise ``DataError`` if this is not a dataset, or an empty one."""
    kind = type(dataset).__name__
    if hasattr(dataset, "__next__"):
        raise DataError(
            f"{kind} is an iterator, which is exhausted after one epoch.",
            "Give Loader a dataset with __getitem__ and __len__, or an IterableDataset.",
        )
    stages = getattr(dataset, "pipeline", None)  # where a WebLoader holds its DataLoader
    if any(isinstance(each, DataLoader) for each in (dataset, *(stages if isinstance(stages, list) else ()))):
        raise DataError(
            f"{kind} is a loader, which yields batches: Loader needs the dataset in it.",
            "Give Loader the dataset and how to batch it: batch_size, sampler, collate_fn.",
        )
    if isinstance(dataset, type):
        raise DataError(f"Expected a dataset, got the class {dataset.__name__}.", "Make an instance of it.")
    if is_stream(dataset):
        return
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise DataError(f"Expected a dataset with __getitem__ and __len__, or with __iter__, got {kind}.")
    if not len(dataset):
        raise DataError("The dataset is empty.", "It needs at least one example.")


def check_rate(dataset: Any, sample_rate: int) -> None:
    """Raise ``DataError`` if an ``AudioFolder``, or the one that this is a part of, has another sample rate."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    if isinstance(dataset, AudioFolder) and dataset.sample_rate != sample_rate:
        raise DataError(
            f"The chain is for {format_hz(sample_rate)}, but the AudioFolder returns clips at "
            f"{format_hz(dataset.sample_rate)}.",
            "Give both the same sample rate: AudioFolder converts files to its own.",
        )


def check_order(
    dataset: Any, shuffle: bool, sampler: Any, batch_sampler: Any, batch_size: int, drop_last: bool
) -> None:
    """Raise ``UsageError`` if more than one order or size of batches is given, or any order for a stream."""
    orders = shuffle + (sampler is not None) + (batch_sampler is not None)
    if orders > 1:
        raise UsageError("Loader accepts only one of shuffle, sampler and batch_sampler.")
    if orders and is_stream(dataset):
        raise UsageError(
            f"{type(dataset).__name__} is iterable and defines its own order: Loader accepts no shuffle, sampler or "
            "batch_sampler for it.",
            "Shuffle in the dataset.",
        )
    if batch_sampler is not None and (batch_size != 1 or drop_last):
        raise UsageError(
            "Loader accepts neither batch_size nor drop_last with a batch_sampler, which makes the batches.",
            "Give them to the batch_sampler.",
        )
    if isinstance(batch_sampler, BucketBatchSampler):
        batch_sampler.check(dataset)
