"""Loader: batches of augmented audio on the device, by a plan. What users train with, and what the advisor races."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

from audioaug.core import Chain, Op, as_chain
from audioaug.core.draws import uniforms
from audioaug.errors import AudioaugError, DataError, PlanError, UsageError
from audioaug.loader import interrupt
from audioaug.loader.checks import check_dataset, check_order
from audioaug.loader.device_prefetch import as_device, run_ahead
from audioaug.loader.examples import Where
from audioaug.loader.feed import Feed, Given
from audioaug.loader.fetch import Message
from audioaug.loader.keys import Keys
from audioaug.loader.place import Place, from_state, to_state
from audioaug.loader.processes import local_size, warn_of_the_same_examples
from audioaug.loader.rebuilding import Batches, refuse_rebuilding
from audioaug.loader.skipped import OnError, Skipped
from audioaug.loader.stream import is_stream
from audioaug.loader.targets import Target
from audioaug.loader.threads import with_threads
from audioaug.loader.trial import Trial, plans_for
from audioaug.measure import clock_for, usable_cores
from audioaug.records import Plan

GIVE_UP_AFTER = 64
"""So many unusable examples without a usable batch are not bad luck any more."""


class Part(NamedTuple):
    """What one iteration gives of an epoch: at most so many batches, behind the last iteration or from the start."""

    most: int | None = None
    goes_on: bool = False


WHOLE = Part()


class Loader:
    """Iterate over batches of a dataset, augmented, on the device, the next one already on its way.

    Workers read the examples and run the chain up to the plan's cut, clip by clip or (``worker_engine="batched"``) once
    the clips are a batch; the rest runs on the device, on whole batches. The same seed gives the same audio (within
    each op's contract) for any cut, worker engine, number of workers and batch size.

    A plan's ``threads`` are set with ``torch.set_num_threads``, for the whole process, from an iteration's first batch
    until it ends or its iterator is dropped; then they are put back.

    Args:
        dataset: map-style or iterable (``Stream`` says how the examples of one are numbered). An example is a wave (T,)
            or (C, T), a tuple that starts with one, or a dict with one under ``"audio"`` (see ``audio_key``); waves are
            floating point, at the chain's sample rate. Undecoded audio of Hugging Face (``Audio(decode=False)``) is
            decoded with soundfile, to mono and that rate.
        chain: the augmentation: a ``Chain``, an audiomentations ``Compose``, or a list of ops or of its transforms.
        plan: where and how it runs; ``Plan()`` by default: all of it on the device that can run there, no workers. Its
            workers are those of the machine: several processes that train on one (torchrun) share them. ``"auto"``
            tries a few in the first steps, your own step included, and keeps the fastest, or the simplest where
            several are as fast: from then on that is ``plan``, and the logger ``audioaug`` says which and why. No batch
            is lost or comes twice, and each is the same as with any plan.
        sample_rate: of the audio, in Hz: needed where the augmentation is no ``Chain``, which has its own.
        batch_size: examples in a batch.
        device: where batches end up; the GPU if there is one.
        shuffle: a new order every epoch, from the seed.
        sampler: as in torch's DataLoader; one with ``set_epoch`` is told the epoch.
        batch_sampler: as in torch's DataLoader.
        drop_last: as in torch's DataLoader.
        collate_fn: makes a batch of examples, leaving the audio where it was in each. Ops that change clips' lengths
            come before it, so a plan's cut has to lie behind them.
        pad: allow clips of different lengths: silence behind the shorter ones, and the batch gets their lengths (a last
            item in a tuple, ``"lengths"`` in a dict).
        lengths: where in an example, a key or a position, its own length is, in samples, if its wave comes padded: what
            lies behind is dropped before anything happens. The batch has the new lengths there. Implies ``pad``.
        targets: labels that follow the audio, wherever it is augmented, by where they are in an example: ``Frames``,
            ``Stamps``, ``Segments`` and ``Label`` say what becomes of each. Their times are those of the clip as the
            dataset gives it, in seconds; what lies outside of it is dropped. After ``Resample`` they are those that one
            hears who plays the audio at the chain's rate. Code of yours is taken to leave time where it is.
        audio_key: where the audio is in an example and in a batch: a key of a dict, or a position in a tuple. By
            default, the first item of a tuple; in a dict ``"audio"``, else Hugging Face's audio, else the only
            floating-point tensor, array or list with 1 to 3 axes, or the one that is more than 10 times as long as
            every other. It is found in the first example, and is the same for all others.
        augment: ``False`` for validation: the same loader without augmentation.
        seed: of the training run.
        on_error: what becomes of an example that cannot be decoded. ``"raise"`` raises what reading it raised;
            ``"skip"`` leaves it out (one warning; counted in ``skipped`` and told by ``summary``); ``"replace"`` takes
            another, drawn from the seed, in its place, and counts it too. Both cover ``DataError``, ``OSError``, and
            what soundfile, torchcodec and torchaudio raise; any other exception of the dataset is raised. A stream ends
            with an error in any case.

    Shape:
        audio in a batch: (B, T) or (B, C, T), as the dataset's waves are (T,) or (C, T).

    Raises:
        ChainError: the augmentation is none, its sample rate is missing, or it is for another one.
        PlanError: the plan does not belong to the chain, asks for something impossible, or does not let targets follow.
        DataError: the dataset is empty, or returns something that is no audio.
        DeviceError: there is no such device.
        UsageError: options that exclude each other.

    Examples:
        >>> import torch
        >>> from audioaug import Chain, Loader, ops
        >>> chain = Chain([ops.Gain(p=1.0)], sample_rate=16000)
        >>> loader = Loader([(torch.ones(4), 7)] * 6, chain, batch_size=3, device="cpu")
        >>> [(wave.shape, label.tolist()) for wave, label in loader]
        [(torch.Size([3, 4]), [7, 7, 7]), (torch.Size([3, 4]), [7, 7, 7])]
    """

    dataset: Any
    """As given."""

    sampler: Iterable[int]
    """The order of the examples, as in torch's DataLoader. A stream has none."""

    batch_size: int | None
    """Examples in a batch; ``None`` with a batch_sampler."""

    drop_last: bool
    """Whether a last batch with fewer examples is left out."""

    collate_fn = staticmethod(refuse_rebuilding)
    """Raises ``UsageError``: what a DataLoader made of this Loader's parts calls. It would not augment."""

    def __init__(
        self,
        dataset: Any,
        chain: Chain | Op | Sequence[Any] | Callable[..., Any],
        plan: Plan | Literal["auto"] | None = None,
        *,
        sample_rate: int | None = None,
        batch_size: int = 1,
        device: str | torch.device | None = None,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pad: bool = False,
        lengths: Where | None = None,
        targets: Mapping[Where, Target] | None = None,
        audio_key: Where | None = None,
        augment: bool = True,
        seed: int = 0,
        on_error: OnError = "raise",
    ) -> None:
        if not (plan is None or plan == "auto" or isinstance(plan, Plan)):
            raise PlanError(f"plan is {plan!r}, but it must be a Plan, None or 'auto'.", "Plan.load reads a file.")
        chain = as_chain(chain, sample_rate)
        if not augment:
            chain, plan = Chain([], chain.sample_rate), _without_cut(plan) if plan != "auto" else plan
        check_dataset(dataset)
        check_order(dataset, shuffle, sampler, batch_sampler)
        self._skipped = Skipped(on_error)
        self._next = self._behind = Place()
        self._shuffle_generator = torch.Generator()
        self._iteration = object()  # the latest
        self._usable = self._skipped_before = 0  # batches of this epoch; skipped examples of those before
        self.dataset, self.drop_last = dataset, drop_last
        self.batch_size = batch_size if batch_sampler is None else None
        keys = None
        if not is_stream(dataset):
            if augment and sampler is None and batch_sampler is None:
                warn_of_the_same_examples(stacklevel=2)
            self.sampler = self._order(shuffle) if sampler is None else sampler
            keys = Keys(BatchSampler(self.sampler, batch_size, drop_last) if batch_sampler is None else batch_sampler)
        self.device, pad = as_device(device), pad or lengths is not None
        self._audio_key: Where | None = None  # where it was found
        self._given = given = Given(
            dataset=dataset,
            chain=chain,
            device=self.device,
            keys=keys,
            batch_size=batch_size,
            drop_last=drop_last,
            collate_fn=collate_fn,
            pad=pad,
            lengths=lengths,
            targets=targets,
            seed=seed,
            on_error=on_error,
            audio_key=audio_key,
        )
        self._feeds: dict[Plan, Feed] = {}
        self._trial = _trial_of(given) if plan == "auto" else None
        fixed = plan if isinstance(plan, Plan) else Plan(cut=given.least_cut)
        self._use(fixed if self._trial is None else self._trial.plans[0])

    def _order(self, shuffle: bool) -> Sampler[int]:
        if shuffle:
            return RandomSampler(self.dataset, generator=self._shuffle_generator)
        return SequentialSampler(self.dataset)

    def _use(self, plan: Plan) -> None:
        """Go on with a plan, for which all is built the first time."""
        if plan not in self._feeds:
            self._feeds[plan] = Feed(self._given, plan)
        self._feed = self._feeds[plan]

    @property
    def plan(self) -> Plan:
        """Where and how the chain runs; while plans are tried, the one whose turn it is."""
        return self._feed.plan

    @property
    def audio_key(self) -> Where | None:
        """Where the audio is in an example and in a batch; ``None`` if they are the audio, or none was read so far."""
        return self._given.audio_key if self._audio_key is None else self._audio_key

    def __len__(self) -> int:
        return len(self._feed.source)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is; otherwise each iteration is one epoch further than the last."""
        if epoch != self._next.epoch:  # else it may be the rest of this epoch that is to come
            self._next = self._behind = Place(epoch)

    @property
    def batch_sampler(self) -> Batches:
        """Its length is the number of batches; Lightning notifies its ``sampler`` of the epoch."""
        return Batches(self.__len__, self.set_epoch)

    @property
    def num_workers(self) -> int:
        """The DataLoader workers of this process; while plans are tried, of the one whose turn it is."""
        return self._feed.batches.num_workers

    @property
    def prefetch_factor(self) -> int | None:
        """Batches that each worker prepares ahead; ``None`` without workers."""
        return self._feed.batches.prefetch_factor

    def state_dict(self) -> dict[str, Any]:
        """Return how far the run is, for a checkpoint. Batches handed out count, those under way do not."""
        return to_state(self._behind, self._given.seed, _length(self._feed.source))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration be the rest of the epoch in which ``state_dict`` was called.

        It gives the same batches as if the run had not stopped, with any plan; with a sampler of your own, if that
        gives the same order again. Nothing behind us is read again, but for the examples of a stream.

        Raises:
            UsageError: the state is none, of another seed, or in the middle of an epoch that has other batches here.
        """
        self._next = self._behind = from_state(state, self._given.seed, _length(self._feed.source))

    def __iter__(self) -> Iterator[Any]:
        return self._epoch()

    def _epoch(self) -> Iterator[Any]:
        """Yield the batches of the next epoch, or of its rest.

        It begins with its first batch, not with ``iter``: Lightning calls that only to see whether it can.
        """
        start, self._next = self._next, Place(self._next.epoch + 1)
        mine = self._iteration = object()
        shared = self._trial is not None or self._feed.batches.persistent_workers
        for batch in self._on_threads(self._handed_out(start)) if self._trial is None else self._tried(start):
            yield batch
            if shared and self._iteration is not mine:
                raise UsageError(
                    "Another iteration over this Loader has begun and has its workers: this one cannot go on.",
                    "Make a second Loader for it, or give a Plan with persistent_workers=False.",
                )

    def _on_threads(self, batches: Iterator[Any]) -> Iterator[Any]:
        return batches if self.plan.threads is None else with_threads(batches, self.plan.threads)

    def _tried(self, place: Place) -> Iterator[Any]:
        """Yield the batches of an epoch from some place on while plans take turns, and with the one kept once it is."""
        goes_on = False
        while self._trial is not None and place.batch < len(self):
            block = self._trial.block(len(self) - place.batch, len(self))
            self._use(block.plan)
            batches = self._handed_out(place, Part(block.batches, goes_on))
            yield from self._trial.timed(block, self._on_threads(batches))
            place, goes_on = Place(place.epoch, place.batch + block.batches), True
            self._keep(self._trial)
        yield from self._on_threads(self._handed_out(place, Part(None, goes_on)))

    def _keep(self, trial: Trial) -> None:
        """End the workers of plans that are out of the trial; once one is kept, use it."""
        kept = trial.plans if trial.chosen is None else [trial.chosen]
        for plan in self._feeds.keys() - set(kept):
            self._feeds.pop(plan).close()
        if trial.chosen is not None:
            self._use(trial.chosen)
            self._trial = None

    @property
    def capacity(self) -> int | None:
        """The most batches that workers can have ready; ``None`` without workers."""
        return self._feed.capacity

    @property
    def ready(self) -> int | None:
        """The batches that workers have finished and nobody has taken; ``None`` where that cannot be known."""
        return self._feed.ready

    @property
    def workers(self) -> frozenset[int]:
        """The process ids of the workers that run now."""
        return self._feed.workers

    def _handed_out(self, start: Place, part: Part = WHOLE) -> Iterator[Any]:
        """Yield the batches of an epoch from some place on, or a part of them, and note how far that is."""
        feed = self._feed

        def finish(placed: tuple[Place, Message]) -> tuple[Place, Any]:
            return placed[0], feed.finish(placed[1])

        interrupt.listen()
        for place, batch in run_ahead(self._placed(feed, start, part), self.device, finish):
            interrupt.raise_if_dropped()
            self._behind = place
            yield batch
        self._behind = Place(start.epoch + 1) if part.most is None else Place(start.epoch, start.batch + part.most)

    def messages(self, epoch: int = 0) -> Iterator[Message]:
        """Yield what the workers send in an epoch, before it is copied and the device part runs."""
        return (message for _, message in self._placed(self._feed, Place(epoch)))

    def _placed(self, feed: Feed, start: Place, part: Part = WHOLE) -> Iterator[tuple[Place, Message]]:
        """Yield the messages of an epoch from some place on, each with the place behind it."""
        again = 0
        if not part.goes_on:
            again = feed.source.start(*start)
            self._usable, self._skipped_before = start.batch, self.skipped
            seed = uniforms(self._given.seed, start.epoch, [0], [2**31], [0])[0, 0]
            self._shuffle_generator.manual_seed(int(seed * 2**53))
        feed.source.most = part.most
        for number, message in enumerate(feed.messages(), start.batch - again + 1):
            if isinstance(message, AudioaugError):
                try:
                    raise message
                finally:
                    del message  # else its traceback and this frame would hold each other, and the workers
            if number <= start.batch:
                continue
            self._skipped.add(message.skipped)
            if message.batch is not None:
                self._check_audio_key(message)
                self._usable += 1
                yield Place(start.epoch, number), message
            else:
                self._give_up_after(GIVE_UP_AFTER)
        if part.most is None:
            self._give_up_after(1)

    def _check_audio_key(self, message: Message) -> None:
        """Raise ``DataError`` if workers have found the audio of their examples in different places."""
        if self._audio_key is None:
            self._audio_key = message.audio_key
        if message.audio_key != self._audio_key:
            raise DataError(
                f"The audio is at {message.audio_key!r} in some examples, and at {self._audio_key!r} in others.",
                "Give Loader audio_key=, and the dataset one form.",
            )

    def _give_up_after(self, skipped: int) -> None:
        """Raise ``DataError`` if an epoch has no batch so far and as many examples were skipped."""
        if not self._usable and self.skipped - self._skipped_before >= skipped:
            raise DataError(f"No example of the dataset could be used. The last one: {self._skipped.last}")

    @property
    def skipped(self) -> int:
        """How many examples could not be read so far."""
        return self._skipped.count

    def summary(self) -> str:
        """Say in a sentence how many examples could not be read so far, and why the last could not."""
        return str(self._skipped)


def _without_cut(plan: Plan | None) -> Plan:
    return replace(plan or Plan(), cut=0, device_engine="batched", chain_hash="")


def _trial_of(given: Given) -> Trial:
    """Return the trial of the plans for this machine; raise ``UsageError`` where batches cannot be counted."""
    if given.keys is None or _length(given.keys) is None:
        raise UsageError(
            'plan="auto" lets several plans feed parts of an epoch in turn, but the batches of a stream, or of a '
            "sampler without a length, cannot be divided beforehand.",
            "Give Loader a Plan, such as the one that python -m audioaug.advise --plan writes.",
        )
    cores = max(1, int(usable_cores()) // local_size())
    plans = plans_for(given.chain, given.least_cut, given.device, cores, torch.get_num_threads())
    return Trial(plans, len(given.chain), clock_for(given.device))


def _length(source: Any) -> int | None:
    """Return how many batches an epoch has; ``None`` for a stream or a sampler without a length."""
    try:
        return len(source)
    except TypeError:
        return None
