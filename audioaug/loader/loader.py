"""Loader: batches of augmented audio on the device, by a plan. Users train with it, and the advisor races it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

from audioaug.core import Chain, Op, as_chain
from audioaug.core.chain import integer
from audioaug.core.draws import uniforms
from audioaug.errors import AudioaugError, DataError, PlanError, UsageError
from audioaug.internals import is_failed_start
from audioaug.loader.examples import Field, KeyOf
from audioaug.loader.failures_of_examples import OnError, SkippedExamples
from audioaug.loader.pickling import WorkerBatch
from audioaug.loader.pipeline import LoaderConfig, Pipeline, check_dataset, check_order, check_rate
from audioaug.loader.prefetch import as_device, run_ahead
from audioaug.loader.processes import warn_of_identical_shares, with_threads
from audioaug.loader.sampling import (
    BatchSamplerView,
    EpochSampler,
    EpochSlice,
    Position,
    Repeats,
    is_stream,
    position_from,
    refuse_collating,
)
from audioaug.loader.targets import LabelTransform
from audioaug.loader.trial import Trial, plans_to_try
from audioaug.measure import clock_for
from audioaug.process import listen_for_interrupts, raise_dropped_interrupt
from audioaug.records import Plan

MOST_UNREADABLE = 64
"""After this many unreadable examples without a usable batch, an epoch ends with an error."""


class Loader:
    """Iterate over batches of a dataset, augmented, on the device; the next batch is prepared meanwhile.

    Workers read the examples and run the chain up to the plan's cut, on each clip or (``worker_engine="batched"``) on
    the collated batch; the rest runs on the device, on whole batches. The same seed gives the same audio (within each
    op's contract) for any cut, worker engine, number of workers and batch size.

    A plan's ``threads`` are set with ``torch.set_num_threads``, for the whole process, from an iteration's first batch
    until it ends or its iterator is dropped; then the previous number is restored.

    Args:
        dataset: map-style or iterable (``Stream`` says how the examples of an iterable one are numbered). An example is
            a wave (T,) or (C, T), a tuple that starts with one, or a dict with one under ``"audio"`` (see
            ``audio_key``); waves are floating point, at the chain's sample rate. Undecoded audio of Hugging Face
            (``Audio(decode=False)``) is decoded with soundfile, mixed down to mono and converted to that rate.
        chain: the augmentation: a ``Chain``, an audiomentations ``Compose``, or a list of ops or of its transforms.
        plan: where and how the chain runs; ``Plan()`` by default: on the device as far as possible, without workers. A
            plan's workers are those of the machine: several processes that train on it (torchrun) share them.
            ``"auto"`` tries a few plans in the first steps, including your own training step, and keeps the fastest, or
            the simplest of those that tie with it, within 3 %: that is ``plan`` from then on. A trial takes at most
            5 % of an epoch's batches, or 60 s. If these batches are too few to time each plan three times, it continues
            in the next epoch, at least one block of batches in each; in between, the best plan so far is used. When a
            ``Monitor`` of this Loader sees the bottleneck move, there is another trial in the next epoch. The logger
            ``audioaug`` says (INFO, first process) when a trial begins and what it chose. No batch is lost or repeated,
            and each is the same as with any plan. Each of several processes that train together
            chooses for itself.
        sample_rate: of the audio, in Hz: required unless the augmentation is a ``Chain``, which has its own.
        batch_size: examples in a batch.
        device: where batches end up; the GPU if there is one.
        shuffle: a new order in every epoch, from the seed.
        sampler: as in torch's DataLoader; its ``set_epoch`` is called if it has one.
        batch_sampler: as in torch's DataLoader, in place of ``batch_size``, ``shuffle``, ``sampler`` and ``drop_last``;
            ``BucketBatchSampler`` makes batches of clips of similar length.
        drop_last: as in torch's DataLoader.
        collate_fn: makes a batch of examples, keeping their order, and the audio in its field, padded with silence at
            the end. It runs after all ops that change clips' lengths, so a plan must cut after them. Which others have
            run by then depends on the plan: so crop or normalize audio in the dataset instead, or the audio depends on
            the plan, too. A batch, or a part of one, may be of a custom type (transformers'
            ``BatchEncoding``, a class of your own, with the audio in its attribute ``audio`` or the one that
            ``audio_key`` names): its ``to(device)`` moves it, with ``non_blocking=True`` if it accepts that, and its
            ``pin_memory()`` pins it. Both return the batch.
        pad: allow clips of different lengths: shorter ones are padded with silence at their end, and the batch gets
            their lengths (as the last item of a tuple, ``"lengths"`` in a dict).
        lengths: the field of an example, a key or a position, with its own length in samples, if its wave is padded:
            the padding is dropped first. The batch has the new lengths in this field. Implies ``pad``.
        targets: labels that follow the audio, wherever it is augmented, by their fields: ``Frames``, ``Stamps``,
            ``Segments`` and ``Label`` define how each is transformed. Their times are in seconds of the clip as the
            dataset returns it; labels outside of it are dropped. After ``Resample`` they refer to the audio as played
            at the chain's rate. Custom ops are assumed not to change timing.
        audio_key: the field of an example and of a batch with the audio: a key of a dict, or a position in a tuple. By
            default, the first item of a tuple; in a dict ``"audio"``, else audio of Hugging Face, else the only
            floating-point tensor, array or list with 1 to 3 axes, or the one that is more than 10 times longer than
            every other. It is found in the first example, and is the same for all others.
        key: what identifies an example wherever it is read: the field with it, a key of a dict or a position in a
            tuple, or a function of an example as the dataset returns it. It is a string, bytes or an integer
            (``core.keys`` says how it is hashed). An example's audio then follows from seed, epoch and key alone, for
            any order, shard, worker and process, and after any retry. Examples of an epoch that share a key get the
            same draws: they are counted (``repeated``), with one warning. By default the key is the index in the
            dataset, or that which ``Stream`` gives the examples of an iterable one. An example that the sampler repeats
            in an epoch (of one process) has the key ``"7#2"`` the second time, and so on, and so different draws.
        augment: ``False`` for validation: the same loader without augmentation; features are made all the same.
        seed: of the training run.
        on_error: what happens when an example cannot be decoded. ``"raise"`` raises the exception; ``"skip"`` leaves
            the example out (one warning; counted in ``skipped`` and reported by ``summary``); ``"replace"`` takes
            another one, drawn from the seed, and counts it too. The latter two cover ``DataError``, ``OSError``, and
            exceptions of soundfile, torchcodec and torchaudio; any other exception of the dataset is raised. An
            iterable dataset that raises ends with an error in any case.

    Shape:
        audio in a batch: (B, T) or (B, C, T), for waves (T,) or (C, T) in the dataset; of a chain that ends in
        ``LogMel``, (B, F, N) or (B, C, F, N): then lengths are in frames.

    Raises:
        ChainError: the augmentation is invalid, or its sample rate is missing or contradicts ``sample_rate``.
        PlanError: the plan does not match the chain, has an invalid cut, or does not let targets follow.
        DataError: the dataset is empty, its examples have no audio, or it is an ``AudioFolder`` with another sample
            rate.
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
    """The dataset that was passed in."""

    sampler: Iterable[int]
    """The order of the examples, as in torch's DataLoader. Not set for an iterable dataset."""

    batch_size: int | None
    """Examples in a batch; ``None`` with a batch_sampler."""

    drop_last: bool
    """Whether a last batch with fewer examples is left out."""

    collate_fn = staticmethod(refuse_collating)
    """Raises ``UsageError``: a DataLoader made of this Loader's attributes calls it, and would not augment."""

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
        lengths: Field | None = None,
        targets: Mapping[Field, LabelTransform] | None = None,
        audio_key: Field | None = None,
        key: KeyOf | None = None,
        augment: bool = True,
        seed: int = 0,
        on_error: OnError = "raise",
    ) -> None:
        if not (plan is None or plan == "auto" or isinstance(plan, Plan)):
            raise PlanError(f"Expected plan to be a Plan, None or 'auto', got {plan!r}.", "Plan.load reads a file.")
        chain = as_chain(chain, sample_rate)
        if not augment:
            plan = _without_augmentation(plan, chain) if isinstance(plan, Plan) else plan
            chain = chain.without_augmentation()
        check_dataset(dataset)
        check_rate(dataset, chain.sample_rate)
        check_order(dataset, shuffle, sampler, batch_sampler, batch_size, drop_last)
        self._skipped = SkippedExamples(on_error)
        self._next = self._done = Position()
        self._shuffle_generator = torch.Generator()
        self._iteration = object()  # the latest one
        self._repeats = Repeats() if key is not None else None
        self._usable = self._skipped_before = 0  # batches of this epoch; skipped examples of earlier epochs
        self.dataset, self.drop_last = dataset, drop_last
        self.batch_size = batch_size if batch_sampler is None else None
        order = None
        if not is_stream(dataset):
            if augment and sampler is None and batch_sampler is None:
                warn_of_identical_shares(stacklevel=2)
            self.sampler = self._order(shuffle) if sampler is None else sampler
            batches = BatchSampler(self.sampler, batch_size, drop_last) if batch_sampler is None else batch_sampler
            order = EpochSampler(batches, len(dataset), shuffle)
        self.device, pad = as_device(device), pad or lengths is not None
        self._audio_key: Field | None = None  # found in the first batch
        self._config = config = LoaderConfig(
            dataset=dataset,
            chain=chain,
            device=self.device,
            sampler=order,
            batch_size=batch_size,
            drop_last=drop_last,
            collate_fn=collate_fn,
            pad=pad,
            lengths=lengths,
            targets=targets,
            seed=integer("seed", seed),
            on_error=on_error,
            audio_key=audio_key,
            key=key,
        )
        self._pipelines: dict[Plan, Pipeline] = {}
        self._plans_to_try = plans_to_try(config) if plan == "auto" else []
        self._trial = self._new_trial() if plan == "auto" else None
        self._tries_again = False
        first = plan if isinstance(plan, Plan) else Plan(cut=config.least_cut)
        self._use(first if self._trial is None else self._trial.plans[0])

    def _order(self, shuffle: bool) -> Sampler[int]:
        if shuffle:
            return RandomSampler(self.dataset, generator=self._shuffle_generator)
        return SequentialSampler(self.dataset)

    def _new_trial(self, again: bool = False) -> Trial:
        return Trial(self._plans_to_try, len(self._config.chain), clock_for(self.device), again)

    def _use(self, plan: Plan) -> None:
        """Switch to a plan; its pipeline is built the first time."""
        if plan not in self._pipelines:
            self._pipelines[plan] = Pipeline(self._config, plan)
        self._pipeline = self._pipelines[plan]

    @property
    def plan(self) -> Plan:
        """Where and how the chain runs; while plans are tried, the current one."""
        return self._pipeline.plan

    @property
    def is_trying_plans(self) -> bool:
        """Whether the plans of ``plan="auto"`` take turns at the moment."""
        return self._trial is not None and self._trial.is_in_block

    def try_plans_again(self) -> None:
        """Let ``plan="auto"`` try its plans again in the next epoch; with any other plan, nothing happens.

        ``Monitor`` does this when the bottleneck has moved. Do it after a change of your own that makes training steps
        longer or shorter, such as unfreezing layers.
        """
        self._tries_again = bool(self._plans_to_try)

    @property
    def audio_key(self) -> Field | None:
        """The field of an example and of a batch with the audio.

        ``None`` if they are the audio themselves, or none has been read yet.
        """
        return self._config.audio_key if self._audio_key is None else self._audio_key

    def __len__(self) -> int:
        return self._batches_in_epoch(self._next)

    def _batches_in_epoch(self, start: Position) -> int:
        """Return the number of batches in an epoch, those before ``start`` included."""
        sampler = self._config.sampler
        return sampler.batches_after(start.offset) if start.offset and sampler else len(self._pipeline.source)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; by default it is one more than that of the last iteration."""
        if epoch != self._next.epoch:  # else the next iteration may be the rest of this epoch
            self._next = self._done = Position(epoch)

    @property
    def batch_sampler(self) -> BatchSamplerView:
        """Its length is the number of batches; Lightning calls ``set_epoch`` of its ``sampler``."""
        return BatchSamplerView(self.__len__, self.set_epoch)

    @property
    def num_workers(self) -> int:
        """The DataLoader workers of this process; while plans are tried, those of the current one."""
        return self._pipeline.data_loader.num_workers

    @property
    def prefetch_factor(self) -> int | None:
        """Batches that each worker prepares ahead; ``None`` without workers."""
        return self._pipeline.data_loader.prefetch_factor

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the run for a checkpoint. Batches that were yielded count, prefetched ones do not."""
        return {**self._done._asdict(), "seed": self._config.seed, **self._pipeline.source.layout()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration be the rest of the epoch in which ``state_dict`` was called.

        It yields the same batches as if the run had not stopped, with any plan; with your own sampler, if that
        produces the same order again. Examples of earlier batches are not read again, except those of an iterable
        dataset.

        Batch size and number of processes may have changed with ``DistributedSampler``, ``shuffle`` or no sampler: the
        rest of the epoch's examples is dealt out among the processes, and what is done counts in batches of the new
        size.

        Raises:
            UsageError: this is not the state of a Loader, it has another seed, or it is in the middle of an epoch that
                this Loader cannot continue: of another dataset or order, or of another number of batches with your own
                sampler or an iterable dataset.
        """
        self._next = self._done = position_from(state, self._config.seed, self._pipeline.source.layout())

    def __iter__(self) -> Iterator[Any]:
        return self._epoch()

    def _epoch(self) -> Iterator[Any]:
        """Yield the batches of the next epoch, or of the rest of it.

        An epoch begins with its first batch, not with ``iter``: Lightning calls that just to check that it works.
        """
        start, self._next = self._next, Position(self._next.epoch + 1)
        current = self._iteration = object()
        if self._tries_again and self._trial is None:
            self._trial = self._new_trial(again=True)
        self._tries_again = False
        trial = self._trial
        shared = trial is not None or self._pipeline.data_loader.persistent_workers
        batches = self._trial_batches(trial, start) if trial else self._on_threads(self._batches(EpochSlice(start)))
        for batch in batches:
            yield batch
            if shared and self._iteration is not current:
                raise UsageError(
                    "This iteration cannot continue: a later iteration over this Loader uses its workers.",
                    "Make a second Loader for it, or give a Plan with persistent_workers=False.",
                )

    def _on_threads(self, batches: Iterator[Any]) -> Iterator[Any]:
        return batches if self.plan.threads is None else with_threads(batches, self.plan.threads)

    def _trial_batches(self, trial: Trial, start: Position) -> Iterator[Any]:
        """Yield the batches of an epoch: while plans take turns, and then with the chosen plan or the best so far."""
        continues = False
        batches_in_epoch = self._batches_in_epoch(start)
        trial.begin_epoch(batches_in_epoch)
        while block := trial.block(batches_in_epoch - start.batch):
            self._use(block.plan)
            batches = self._batches(EpochSlice(start, block.batches, continues))
            yield from trial.timed(block, self._on_threads(batches))
            start, continues = start._replace(batch=start.batch + block.batches), True
            self._keep_pipelines(trial.plans)
        self._use(trial.best)
        self._keep_pipelines(trial.plans)
        if trial.chosen is not None:
            self._trial = None
        yield from self._on_threads(self._batches(EpochSlice(start, None, continues)))

    def _keep_pipelines(self, plans: Sequence[Plan]) -> None:
        """End the workers of all other plans."""
        for plan in self._pipelines.keys() - set(plans):
            self._pipelines.pop(plan).close()

    @property
    def capacity(self) -> int | None:
        """The most batches that workers can have ready; ``None`` without workers."""
        return self._pipeline.capacity

    @property
    def ready(self) -> int | None:
        """The number of finished batches that have not been taken; ``None`` if it is unknown."""
        return self._pipeline.ready

    @property
    def workers(self) -> frozenset[int]:
        """The process ids of the running workers."""
        return self._pipeline.workers

    def _batches(self, part: EpochSlice) -> Iterator[Any]:
        """Yield batches of an epoch on the device, and record the progress."""
        pipeline = self._pipeline

        def finish(received: tuple[Position, WorkerBatch]) -> tuple[Position, Any]:
            position, batch = received
            return position, pipeline.finish(batch)

        listen_for_interrupts(is_failed_start)
        for position, batch in run_ahead(self._received(pipeline, part), self.device, finish):
            raise_dropped_interrupt()
            self._done = position
            yield batch
        start, limit = part.start, part.limit
        self._done = Position(start.epoch + 1) if limit is None else start._replace(batch=start.batch + limit)

    def worker_batches(self, epoch: int = 0) -> Iterator[WorkerBatch]:
        """Yield what the workers send in an epoch, before it is copied to the device and the device part runs."""
        return (batch for _, batch in self._received(self._pipeline, EpochSlice(Position(epoch))))

    def _received(self, pipeline: Pipeline, part: EpochSlice) -> Iterator[tuple[Position, WorkerBatch]]:
        """Yield what workers send for a slice of an epoch, each with the position after it."""
        start = part.start
        repeated = pipeline.source.select(part)
        if not part.continues:
            self._usable, self._skipped_before = start.batch, self.skipped
            uniform = uniforms(self._config.seed, start.epoch, [0], [2**31], [0])[0, 0]
            self._shuffle_generator.manual_seed(int(uniform * 2**53))
            if self._repeats:
                self._repeats.begin(start.epoch)
        for number, batch in enumerate(pipeline.worker_batches(), start.batch - repeated + 1):
            if isinstance(batch, AudioaugError):
                try:
                    raise batch
                finally:
                    del batch  # or its traceback and this frame would refer to each other, and keep the workers alive
            if number <= start.batch:
                continue
            self._skipped.add(batch.skipped)
            if batch.prepared is not None:
                self._check_audio_key(batch)
                self._usable += 1
                if self._repeats:
                    self._repeats.add(batch.keys)
                yield start._replace(batch=number), batch
            else:
                self._check_usable(MOST_UNREADABLE)
        if part.limit is None:
            self._check_usable(1)
            if self._repeats:
                self._repeats.count_all()

    def _check_audio_key(self, batch: WorkerBatch) -> None:
        """Raise ``DataError`` if workers have found the audio of their examples in different fields."""
        if self._audio_key is None:
            self._audio_key = batch.audio_key
        if batch.audio_key != self._audio_key:
            raise DataError(
                f"The audio is at {batch.audio_key!r} in some examples, and at {self._audio_key!r} in others.",
                "Give Loader audio_key=, and let the dataset return examples of one form.",
            )

    def _check_usable(self, limit: int) -> None:
        """Raise ``DataError`` if this epoch has no usable batch yet and at least ``limit`` unreadable examples."""
        if not self._usable and self.skipped - self._skipped_before >= limit:
            raise DataError(f"No example of the dataset could be read. The last one: {self._skipped.last}")

    @property
    def skipped(self) -> int:
        """How many examples could not be read so far."""
        return self._skipped.count

    @property
    def repeated(self) -> int:
        """How many examples of the latest epoch had the key of an earlier one, as far as counted; 0 without ``key``."""
        return self._repeats.count if self._repeats else 0

    def summary(self) -> str:
        """Return a sentence on how many examples could not be read so far, and why the last one could not."""
        return str(self._skipped)


def _without_augmentation(plan: Plan, chain: Chain) -> Plan:
    """Return the plan for what is left of the chain: its features, if it makes some."""
    return replace(plan, cut=int(chain.has_features(plan.cut)), device_engine="batched", chain_hash="")
