"""Feed: what a plan makes of what a Loader was given: a DataLoader with its workers, and the part on the device."""

import atexit
import multiprocessing
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from audioaug.core import Chain
from audioaug.engine import build_device, build_worker, check_plan
from audioaug.errors import AudioaugError, DataError
from audioaug.internals import batches_ready, drop_iterator, worker_pids
from audioaug.loader.device_prefetch import to_device
from audioaug.loader.examples import Where, get_wave, with_lengths, with_wave
from audioaug.loader.fetch import Collate, Fetcher, Message, augmented
from audioaug.loader.keys import Keys
from audioaug.loader.pickling import why_not_picklable
from audioaug.loader.processes import share_of
from audioaug.loader.skipped import OnError
from audioaug.loader.stream import Stream
from audioaug.loader.targets import Followers, Target, check_followed, unpacked
from audioaug.loader.worker_death import watched
from audioaug.loader.worker_start import start_worker
from audioaug.records import Plan


@dataclass(frozen=True, eq=False)
class Given:
    """What a Loader was given, the same for any plan. ``keys`` are those of a dataset that is no stream."""

    dataset: Any
    chain: Chain
    device: torch.device
    keys: Keys | None
    batch_size: int
    drop_last: bool
    collate_fn: Callable[[list[Any]], Any] | None
    pad: bool
    lengths: Where | None
    targets: Mapping[Where, Target] | None
    seed: int
    on_error: OnError
    audio_key: Where | None

    @property
    def on_clips(self) -> int:
        """How many ops have to run on clips: for targets to follow them, and for collate_fn to see the last lengths."""
        followed = self.chain.followed_from if self.targets else 0
        return followed if self.collate_fn is None else max(followed, self.chain.sized_from)

    @property
    def least_cut(self) -> int:
        """The smallest cut there can be."""
        return self.chain.first_cut(self.on_clips)


class Feed:
    """Batches of what was given, by one plan.

    Args:
        given: to the Loader.
        plan: where and how the chain runs.

    Raises:
        PlanError: the plan does not belong to the chain, asks for something impossible, or does not let targets follow.
    """

    def __init__(self, given: Given, plan: Plan) -> None:
        chain = given.chain
        check_plan(chain, plan)
        if given.targets:
            check_followed(chain, plan)
        self.given, self.plan = given, plan
        on_clips, on_batches = build_worker(chain, plan, given.seed, given.on_clips)
        followers = Followers(given.targets, chain, on_clips.cut)
        fetcher = Fetcher(given.dataset, on_clips, given.on_error, bool(followers), given.lengths, given.audio_key)
        self.module = build_device(chain, plan.cut, plan.device_engine, given.seed)
        collate = Collate(
            self.module.prepare, given.collate_fn, given.pad, on_batches, followers, given.lengths, given.seed
        )
        self.source: Keys | Stream = (
            Stream(fetcher, given.batch_size, given.drop_last, plan.persistent_workers)
            if given.keys is None
            else given.keys
        )
        self.batches = self._data_loader(fetcher, collate)
        self._running: Callable[[], Any] = lambda: None  # torch's iterator, while there is one
        self._end = weakref.finalize(self, _end_workers, self.batches)

    def _data_loader(self, fetcher: Fetcher, collate: Collate) -> "DataLoader[Any]":
        plan, source = self.plan, self.source
        workers = share_of(plan.num_workers)
        if workers and fetcher.worker.cut:
            import audiomentations  # noqa: F401  (takes a second; workers that are forked need not do it again)
        batching: dict[str, Any] = {"batch_size": None} if isinstance(source, Stream) else {"batch_sampler": source}
        return DataLoader(
            source if isinstance(source, Stream) else fetcher,  # type: ignore[arg-type]
            **batching,
            collate_fn=collate,  # type: ignore[arg-type]
            num_workers=workers,
            prefetch_factor=plan.prefetch_factor if workers else None,
            persistent_workers=plan.persistent_workers and workers > 0,
            pin_memory=self.given.device.type == "cuda" and plan.pin_memory is not False,
            multiprocessing_context=plan.start_method if workers else None,
            worker_init_fn=start_worker,
            generator=torch.Generator().manual_seed(self.given.seed),  # or torch would draw from the global generator
        )

    def messages(self) -> "Iterator[Message | AudioaugError]":
        """Start the workers where they do not run yet, and return what they send."""
        with self._naming_the_unpicklable():
            messages, self._running = watched(self.batches)
        atexit.unregister(self._end)
        atexit.register(self._end)  # the last to be registered runs first: before the hooks that torch sets just now
        return messages

    @contextmanager
    def _naming_the_unpicklable(self) -> Iterator[None]:
        """Raise ``DataError`` where workers cannot be started because something that they need cannot be pickled."""
        try:
            yield
        except Exception:
            method, given = self.plan.start_method or multiprocessing.get_start_method(), self.given
            parts = {"dataset": given.dataset, "collate_fn": given.collate_fn, "chain": given.chain}
            reason = why_not_picklable({**parts, "targets": given.targets}) if method != "fork" else ""
            if not reason or not self.batches.num_workers:
                raise
            raise DataError(
                f"{reason}, but workers started by {method!r} receive a pickled copy.",
                "Define it at the top level of a module, or give a Plan with start_method='fork' or num_workers=0.",
            ) from None

    def finish(self, message: Message) -> Any:
        """Copy a batch to the device and run the device part on its audio. Never waits for the device."""
        batch = unpacked(to_device(message.batch, self.given.device))
        assert message.prepared is not None
        if not message.prepared.steps:
            return batch
        audio = get_wave(batch, message.audio_key)
        wave, length_B = augmented(self.module, audio, message.prepared, message.keys, self.given.seed)
        if message.prepared.changes_length and self.given.pad and self.given.collate_fn is None:
            batch = with_lengths(batch, length_B, self.given.lengths)
        return with_wave(batch, wave, message.audio_key)

    def close(self) -> None:
        """End the workers."""
        atexit.unregister(self._end)
        self._end()

    @property
    def capacity(self) -> int | None:
        """The most batches that workers can have ready; ``None`` without workers."""
        return self.batches.num_workers * (self.batches.prefetch_factor or 0) or None

    @property
    def ready(self) -> int | None:
        """The batches that workers have finished and nobody has taken; ``None`` where that cannot be known."""
        return batches_ready(self._running())

    @property
    def workers(self) -> frozenset[int]:
        """The process ids of the workers that run now."""
        return worker_pids(self._running()) or frozenset()


def _end_workers(batches: "DataLoader[Any]") -> None:
    """End workers that live on between epochs, at once.

    Left alone, torch may wait 5 s for each: when a loader dies in a reference cycle (its queues are gone before it asks
    the workers to end), and at exit with pinned memory (nobody asks them, pytorch/pytorch#81794).
    """
    drop_iterator(batches)
