"""Loader: batches of augmented audio on the device, by a plan. What users train with, and what the advisor races."""

import atexit
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from audioaug.build import build_device, build_worker, check_plan
from audioaug.core import Chain
from audioaug.core.draws import uniforms
from audioaug.errors import AudioaugError, DataError, UsageError
from audioaug.records import Plan
from audioaug.train import interrupt
from audioaug.train.device_prefetch import as_device, run_ahead, to_device
from audioaug.train.examples import get_wave, with_lengths, with_wave
from audioaug.train.fetch import Collate, Fetcher, Keys, Message, augmented, start_worker
from audioaug.train.place import Place, from_state, to_state
from audioaug.train.processes import share_of, warn_of_the_same_examples
from audioaug.train.skipped import POLICIES, OnError, Skipped
from audioaug.train.stream import Stream, is_stream
from audioaug.train.threads import with_threads
from audioaug.train.worker_death import watched

GIVE_UP_AFTER = 64
"""So many unusable examples without a usable batch are not bad luck any more."""


class Loader:
    """Iterate over batches of a dataset, augmented, on the device, the next one already on its way.

    Workers read the examples and run the chain up to the plan's cut, clip by clip or (``worker_engine="batched"``) once
    the clips are a batch; the rest runs on the device, on whole batches. The same seed gives the same audio (within
    each op's contract) for any cut, worker engine, number of workers and batch size.

    A plan's ``threads`` are set with ``torch.set_num_threads``, for the whole process, from an iteration's first batch
    until it ends or its iterator is dropped; then they are put back.

    Args:
        dataset: map-style or iterable (``Stream`` says how the examples of one are numbered). An example is a wave (T,)
            or (C, T), a tuple that starts with one, or a dict with one under ``"audio"``; waves are floating point, at
            the chain's sample rate.
        chain: the augmentation.
        plan: where and how it runs; ``Plan()`` by default: all of it on the device that can run there, no workers. Its
            workers are those of the machine: several processes that train on one (torchrun) share them.
        batch_size: examples in a batch.
        device: where batches end up; the GPU if there is one.
        shuffle: a new order every epoch, from the seed.
        sampler, batch_sampler, drop_last: as in torch's DataLoader. A sampler with ``set_epoch`` is told the epoch.
        collate_fn: makes a batch of examples, leaving the audio where it was in each.
        pad: allow clips of different lengths: silence behind the shorter ones, and the batch gets their lengths (a last
            item in a tuple, ``"lengths"`` in a dict).
        augment: ``False`` for validation: the same loader without augmentation.
        seed: of the training run.
        on_error: ``"skip"`` leaves out examples that cannot be read (one warning; counted in ``skipped`` and told by
            ``summary``); ``"replace"`` takes another, drawn from the seed, in the place of each, and counts them too;
            ``"raise"`` raises what reading them raised.

    Shape:
        audio in a batch: (B, T) or (B, C, T), as the dataset's waves are (T,) or (C, T).

    Raises:
        PlanError: the plan does not belong to the chain or asks for something impossible.
        DataError: the dataset is empty, or returns something that is no audio.
        DeviceError: there is no such device.
        UsageError: options that exclude each other.

    >>> import torch
    >>> from audioaug import Chain, Loader, ops
    >>> chain = Chain([ops.Gain(p=1.0)], sample_rate=16000)
    >>> loader = Loader([(torch.ones(4), 7)] * 6, chain, batch_size=3, device="cpu")
    >>> [(wave.shape, label.tolist()) for wave, label in loader]
    [(torch.Size([3, 4]), [7, 7, 7]), (torch.Size([3, 4]), [7, 7, 7])]
    """

    def __init__(
        self,
        dataset: Any,
        chain: Chain,
        plan: Plan | None = None,
        *,
        batch_size: int = 1,
        device: str | torch.device | None = None,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pad: bool = False,
        augment: bool = True,
        seed: int = 0,
        on_error: OnError = "skip",
    ) -> None:
        if not augment:
            chain, plan = Chain([], chain.sample_rate), _without_cut(plan)
        self.plan = plan if plan is not None else Plan(cut=chain.device_from)
        check_plan(chain, self.plan)
        _check_dataset(dataset)
        _check_order(dataset, shuffle, sampler, batch_sampler)
        if on_error not in POLICIES:
            raise UsageError(f"on_error is {on_error!r}, but it must be 'skip', 'replace' or 'raise'.")
        self.device = as_device(device)
        self._skipped = Skipped(on_error)
        self._gives_lengths = pad and collate_fn is None
        self._seed = seed
        self._next = self._behind = Place()
        self._shuffle_generator = torch.Generator()
        self._running: Callable[[], Any] = lambda: None  # torch's iterator, while there is one
        on_clips, on_batches = build_worker(chain, self.plan, seed)
        fetcher = Fetcher(dataset, on_clips, on_error)
        self._module = build_device(chain, self.plan.cut, self.plan.device_engine, seed)
        collate = Collate(self._module.prepare, collate_fn, pad, on_batches, seed)
        if is_stream(dataset):
            self._source: Keys | Stream = Stream(fetcher, batch_size, drop_last, self.plan.persistent_workers)
        else:
            if augment and sampler is None and batch_sampler is None:
                warn_of_the_same_examples(stacklevel=2)
            if batch_sampler is None:
                sampler = sampler if sampler is not None else self._sampler(dataset, shuffle)
                batch_sampler = BatchSampler(sampler, batch_size, drop_last)
            self._source = Keys(batch_sampler)
        self._batches = self._data_loader(fetcher, collate)
        self._end = weakref.finalize(self, _end_workers, self._batches)

    def _sampler(self, dataset: Any, shuffle: bool) -> Sampler[int]:
        return RandomSampler(dataset, generator=self._shuffle_generator) if shuffle else SequentialSampler(dataset)

    def _data_loader(self, fetcher: Fetcher, collate: Collate) -> "DataLoader[Any]":
        plan, workers = self.plan, share_of(self.plan.num_workers)
        if workers and fetcher.worker.cut:
            import audiomentations  # noqa: F401  (takes a second; workers that are forked need not do it again)
        source = self._source
        batching: dict[str, Any] = {"batch_size": None} if isinstance(source, Stream) else {"batch_sampler": source}
        return DataLoader(
            source if isinstance(source, Stream) else fetcher,  # type: ignore[arg-type]
            **batching,
            collate_fn=collate,  # type: ignore[arg-type]
            num_workers=workers,
            prefetch_factor=plan.prefetch_factor if workers else None,
            persistent_workers=plan.persistent_workers and workers > 0,
            pin_memory=plan.pin_memory and self.device.type == "cuda",
            multiprocessing_context=plan.start_method if workers else None,
            worker_init_fn=start_worker,
            generator=torch.Generator().manual_seed(self._seed),  # or torch would draw from the global generator
        )

    def __len__(self) -> int:
        return len(self._source)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is; otherwise each iteration is one epoch further than the last."""
        if epoch != self._next.epoch:  # else it may be the rest of this epoch that is to come
            self._next = self._behind = Place(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the run is, for a checkpoint. Batches handed out count, those under way do not."""
        return to_state(self._behind, self._seed, self._batches_per_epoch())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration be the rest of the epoch in which ``state_dict`` was called.

        It gives the same batches as if the run had not stopped, with any plan; with a sampler of your own, if that
        gives the same order again. Nothing behind us is read again, but for the examples of a stream.

        Raises:
            UsageError: the state is none, of another seed, or in the middle of an epoch that has other batches here.
        """
        self._next = self._behind = from_state(state, self._seed, self._batches_per_epoch())

    def _batches_per_epoch(self) -> int | None:
        try:
            return len(self)
        except TypeError:  # a stream or a sampler without a length
            return None

    def __iter__(self) -> Iterator[Any]:
        start, self._next = self._next, Place(self._next.epoch + 1)
        batches = self._handed_out(start)
        return batches if self.plan.threads is None else with_threads(batches, self.plan.threads)

    @property
    def capacity(self) -> int | None:
        """The most batches that workers can have ready; ``None`` without workers."""
        return self._batches.num_workers * (self._batches.prefetch_factor or 0) or None

    @property
    def ready(self) -> int | None:
        """The batches that workers have finished and nobody has taken; ``None`` where that cannot be known."""
        running = self._running()
        if running is None or self.capacity is None:
            return None
        queues = {running._worker_result_queue, running._data_queue}  # one, or two with pinned memory
        try:
            waiting = sum(queue.qsize() for queue in queues)
        except NotImplementedError:  # macOS
            return None
        return waiting + sum(len(task) == 2 for task in running._task_info.values())  # and those out of turn

    def _handed_out(self, start: Place) -> Iterator[Any]:
        """Yield the batches of an epoch from some place on, and note how far that is."""

        def finish(placed: tuple[Place, Message]) -> tuple[Place, Any]:
            return placed[0], self._finish(placed[1])

        interrupt.listen()
        for place, batch in run_ahead(self._placed(start), self.device, finish):
            interrupt.raise_if_dropped()
            self._behind = place
            yield batch
        self._behind = Place(start.epoch + 1)

    def messages(self, epoch: int = 0) -> Iterator[Message]:
        """Yield what the workers send in an epoch, before it is copied and the device part runs."""
        return (message for _, message in self._placed(Place(epoch)))

    def _placed(self, start: Place) -> Iterator[tuple[Place, Message]]:
        """Yield the messages of an epoch from some place on, each with the place behind it."""
        again = self._source.start(*start)
        self._shuffle_generator.manual_seed(int(uniforms(self._seed, start.epoch, [0], [2**31], [0])[0, 0] * 2**53))
        usable, skipped_before = start.batch, self.skipped
        batches, self._running = watched(self._batches)
        atexit.unregister(self._end)
        atexit.register(self._end)  # the last to be registered runs first: before the hooks that torch sets just now
        for number, message in enumerate(batches, start.batch - again + 1):
            if isinstance(message, AudioaugError):
                raise message
            if number <= start.batch:
                continue
            self._skipped.add(message.skipped, stacklevel=4)  # at the loop over the batches
            if message.batch is not None:
                usable += 1
                yield Place(start.epoch, number), message
            elif not usable and self.skipped - skipped_before >= GIVE_UP_AFTER:
                break
        if not usable and self.skipped > skipped_before:
            raise DataError(f"No example of the dataset could be used. The last one: {self._skipped.last}")

    @property
    def skipped(self) -> int:
        """How many examples could not be read so far."""
        return self._skipped.count

    def summary(self) -> str:
        """Say in a sentence how many examples could not be read so far, and why the last could not."""
        return str(self._skipped)

    def _finish(self, message: Message) -> Any:
        """Copy a batch to the device and run the device part on its audio. Never waits for the device."""
        batch = to_device(message.batch, self.device)
        assert message.prepared is not None
        if not message.prepared.steps:
            return batch
        wave, length_B = augmented(self._module, get_wave(batch), message.prepared, message.keys, self._seed)
        if message.prepared.resizes and self._gives_lengths:
            batch = with_lengths(batch, length_B)
        return with_wave(batch, wave)


def _end_workers(batches: "DataLoader[Any]") -> None:
    """End workers that live on between epochs, at once.

    Left alone, torch may wait 5 s for each: when a loader dies in a reference cycle (its queues are gone before it asks
    the workers to end), and at exit with pinned memory (nobody asks them, pytorch/pytorch#81794).
    """
    batches._iterator = None


def _without_cut(plan: Plan | None) -> Plan:
    return replace(plan or Plan(), cut=0, device_engine="batched", chain_hash="")


def _check_dataset(dataset: Any) -> None:
    if hasattr(dataset, "__next__"):
        raise DataError(
            f"{type(dataset).__name__} is an iterator, which has nothing left after one epoch.",
            "Give Loader a dataset with __getitem__ and __len__, or an IterableDataset.",
        )
    if is_stream(dataset):
        return
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise DataError(
            f"{type(dataset).__name__} is no dataset: Loader needs one with __getitem__ and __len__, or an __iter__."
        )
    if not len(dataset):
        raise DataError("The dataset is empty.")


def _check_order(dataset: Any, shuffle: bool, sampler: Any, batch_sampler: Any) -> None:
    given = shuffle + (sampler is not None) + (batch_sampler is not None)
    if given > 1:
        raise UsageError("Loader takes only one of shuffle, sampler and batch_sampler.")
    if given and is_stream(dataset):
        raise UsageError(
            f"{type(dataset).__name__} is a stream, which has an order of its own: Loader takes no shuffle, sampler or "
            "batch_sampler for it.",
            "Shuffle in the dataset.",
        )
