"""Replay: the same draws through both builds, clip by clip through the reference and as one batch on the device.

Shapes: a batch is a sequence of B clips, each (C, T) with its own T; padded, it is one array (B, C, T).
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import BatchInfo, Chain, Contract, Draws, Op, Params
from audioaug.core.params import of_one
from audioaug.engine import WorkerChain, build_device
from audioaug.engine.torch_audiomentations import has_counterpart, why_unavailable
from audioaug.errors import ContractError, DataError, UsageError, first_line
from audioaug.records import DeviceEngine
from audioaug.verify import material
from audioaug.verify.contracts import Verdict, check, check_fresh, worst
from audioaug.verify.noise import Clips

STANDARD_DEVIATIONS = ("noise_std", "amplitude", "desired_noise_rms")
"""What references call the level of the noise they add."""

SAMPLE_RATES = (16000, 8000, 44100)

REPEATS = 2
"""How often each batch is drawn anew."""


class Replayed(NamedTuple):
    """The clips, what the reference made of them, and what the build made of them."""

    dry: Clips
    reference: Clips
    built: Clips


def replay(
    what: Chain | Op,
    clips: Clips,
    sample_rate: int,
    *,
    engine: DeviceEngine = "batched",
    cut: int = 0,
    seed: int = 0,
    epoch: int = 0,
    device: str = "cpu",
) -> Replayed:
    """Run the same draws through the CPU build, clip by clip, and through the device build, as one batch.

    Args:
        what: a chain, or an op as a chain of one.
        clips: the audio; the batch is padded to the longest.
        sample_rate: in Hz.
        engine: of the device build.
        cut: how many ops of the built side run in the worker.
        seed: of the draws.
        epoch: of the draws; example k of the batch has index k.
        device: where the device build runs.
    """
    chain = what if isinstance(what, Chain) else Chain([what], sample_rate)
    draws = chain.draw(np.arange(len(clips)), epoch, seed)
    begun = on_cpu(chain, clips, sample_rate, draws, cut)
    built = on_device(chain, begun, sample_rate, draws, cut, engine, device)
    return Replayed(clips, by_reference(chain, clips, sample_rate, draws), built)


def by_reference(chain: Chain, clips: Clips, sample_rate: int, draws: Draws) -> Clips:
    """Return what the references make of the clips; together, for an op alone that no worker can run."""
    if len(chain) != 1 or chain.worker_until == 1:
        return on_cpu(chain, clips, sample_rate, draws)
    node, results, reference = chain.nodes[0], list(clips), chain.ops[0].reference()
    rows = np.flatnonzero(draws["0:apply"] > 0)
    touched = [clips[row] for row in rows.tolist()]
    batch = BatchInfo(sample_rate, np.asarray([x_CT.shape[1] for x_CT in touched]), len(clips[0]))
    params = node.resolve(draws, rows, batch)
    for place, row in enumerate(rows.tolist()):
        own = of_one({name: value[place : place + 1] for name, value in params.items()})
        results[row] = node.op.apply_reference(reference, own, clips[row], sample_rate, touched)
    return results


def on_cpu(chain: Chain, clips: Clips, sample_rate: int, draws: Draws, cut: int | None = None) -> Clips:
    """Run the first ``cut`` ops, or all, clip by clip; mono clips go in as (T,), the way audiomentations has them."""
    worker = WorkerChain(chain, chain.checked_cut(cut), fallback=False)  # or the device build is compared with itself
    inputs = [x_CT[0] if len(x_CT) == 1 else x_CT for x_CT in clips]
    with warnings.catch_warnings():  # audiomentations warns of silent noise and of rates that it converts
        warnings.simplefilter("ignore")
        outputs = [worker(x, sample_rate, draws=draw) for x, draw in zip(inputs, draws)]
    return [y[None] if x.ndim == 1 else y for x, y in zip(inputs, outputs)]


def on_device(
    chain: Chain,
    clips: Clips,
    sample_rate: int,
    draws: Draws,
    cut: int = 0,
    engine: DeviceEngine = "batched",
    device: str = "cpu",
) -> Clips:
    """Run the ops from ``cut`` on, as one batch; raise ``ContractError`` if the batch itself is changed."""
    module, lengths = build_device(chain, cut, engine, seed=0).to(device), [x_CT.shape[-1] for x_CT in clips]
    x_BCT = torch.from_numpy(padded(clips, chain.silence if chain.has_features(cut) else 0.0)).to(device)
    before_BCT = x_BCT.clone()
    with torch.no_grad():
        y_BCT, length_B = module(
            x_BCT, sample_rate, lengths if min(lengths) < max(lengths) else None, draws, return_lengths=True
        )
    if not torch.equal(x_BCT, before_BCT):
        raise ContractError(f"The device build of {chain.ops} changes its input in place.")
    return [trimmed(y_CT, n, chain.silence) for y_CT, n in zip(y_BCT.cpu().numpy(), length_B.tolist())]


def padded(clips: Clips, silence: float = 0.0) -> NDArray[np.float32]:
    """Return the clips as one batch (B, C, T), silence after the shorter ones; so with features, (B, C, F, N)."""
    batch = np.full((len(clips), *clips[0].shape[:-1], max(x_CT.shape[-1] for x_CT in clips)), silence, np.float32)
    for y_CT, x_CT in zip(batch, clips, strict=True):
        y_CT[..., : x_CT.shape[-1]] = x_CT
    return batch


def trimmed(y_CT: NDArray[np.float32], length: int, silence: float = 0.0) -> NDArray[np.float32]:
    """Cut a row of a batch to its clip's length if silence follows; else leave it whole, which no contract forgives."""
    is_silent = np.array_equal(y_CT[..., length:], np.full_like(y_CT[..., length:], silence))
    return y_CT[..., :length] if is_silent else y_CT


@dataclass(frozen=True)
class Case:
    """One batch to try an op on."""

    op: Op
    sample_rate: int
    channels: int
    ragged: bool
    seed: int

    @property
    def clips(self) -> Clips:
        """The audio: of unequal lengths, or all of 0.8 s."""
        clips = material.signals(self.sample_rate, self.channels)
        if self.op.contract.kind == "perceptual":  # what is about pitch needs sounds that have one
            clips = [*clips, *material.tones(self.sample_rate, self.channels)]
        return clips if self.ragged else material.equal_lengths(clips, int(0.8 * self.sample_rate))


def cases(kind: type[Op], sample_rates: Sequence[int] = SAMPLE_RATES, repeats: int = REPEATS) -> Iterator[Case]:
    """Yield the batches for an op: at p=1 all rates, mono and stereo, padded and not; then its defaults and options."""
    multichannel = next(material.variants(kind)).capabilities.multichannel
    shapes = [(channels, ragged) for channels in ((1, 2) if multichannel else (1,)) for ragged in (True, False)]
    for rate in sample_rates:
        op = next(material.variants(kind, rate))
        always = dataclasses.replace(op, p=1.0)
        yield from (Case(always, rate, *shape, seed) for shape in shapes for seed in range(repeats))
    rate = sample_rates[0]
    for number, op in enumerate(material.variants(kind, rate)):
        option = dataclasses.replace(op, p=1.0) if number else op
        yield from (Case(option, rate, *shape, repeats + seed) for shape in shapes for seed in range(repeats))


def verify_op(
    kind: type[Op],
    engine: DeviceEngine = "batched",
    device: str = "cpu",
    sample_rates: Sequence[int] = SAMPLE_RATES,
) -> Verdict:
    """Compare an op's builds on all material and return the worst verdict.

    An op whose reference is not installed is ``"skipped"``, with the reason. The torch-audiomentations engine promises
    nothing: there the verdict is ``"same"``, ``"differs"`` (with how much), ``"none"`` without a counterpart, or
    ``"unavailable"``.
    """
    op = next(material.variants(kind))
    verdict = Verdict(kind.__name__, engine, kind.contract.kind)
    if kind.contract.kind == "cpu_only" and engine == "batched":
        return dataclasses.replace(verdict, status="skipped", reason=kind.contract.reason)
    if reason := _why_no_reference(op):
        return dataclasses.replace(verdict, status="skipped" if engine == "batched" else "unavailable", reason=reason)
    if engine == "batched":
        fresh = dataclasses.replace(_freshness(op), op=kind.__name__, engine=engine)
        return worst([*(judge(case, engine, device) for case in cases(kind, sample_rates)), fresh])
    if not has_counterpart(op):
        return dataclasses.replace(verdict, status="none", reason="torch-audiomentations has no counterpart")
    if reason := why_unavailable():
        return dataclasses.replace(verdict, status="unavailable", reason=reason)
    counterparts = (case for case in cases(kind, sample_rates) if has_counterpart(case.op))
    return _describe([(case, judge(case, engine, device)) for case in counterparts])


def _why_no_reference(op: Op) -> str:
    """Return why the library that an op must equal cannot be used here, or an empty string."""
    try:
        op.reference()
    except DataError:  # no demo audio
        raise
    except (ImportError, UsageError) as error:
        return first_line(error)
    return ""


def judge(case: Case, engine: DeviceEngine, device: str) -> Verdict:
    """Compare both builds on one batch; one that raises has failed."""
    clips, op = case.clips, case.op
    noisy = op.contract.kind == "statistical"
    try:
        dry, reference, built = replay(op, clips, case.sample_rate, engine=engine, seed=case.seed, device=device)
        again = None
        if noisy and case.seed == 0:
            chain = Chain([op], case.sample_rate)
            other = chain.draw(np.arange(len(clips)), epoch=1)
            again = on_device(chain, clips, case.sample_rate, other, 0, engine, device)
    except UsageError:  # no demo audio, no such device
        raise
    except Exception as error:
        reason = f"raises {type(error).__name__}: {' '.join(str(error).split())[:80]}"
        return Verdict(op.name, engine, op.contract.kind, float("inf"), op.contract.tolerance, "failed", reason)
    intended = intended_levels(op, clips, case.sample_rate, case.seed) if noisy else None
    same_noise = engine == "batched" and op.contract.numpy_draws is not None
    fed, numbers = fed_reference(op, clips, case.sample_rate, case.seed) if same_noise else (None, ())
    verdict = check(
        op.contract,
        dry,
        reference,
        built,
        op=op.name,
        engine=engine,
        intended=intended,
        again=again,
        fed=fed,
        sample_rate=case.sample_rate,
    )
    return worst([verdict, _judge_numbers(op, numbers, case.seed)]) if same_noise else verdict


def intended_levels(op: Op, clips: Clips, sample_rate: int, seed: int) -> list[float | None]:
    """Return the standard deviation of the noise that an op's draws ask for, clip by clip."""
    levels = list[float | None]()
    for x_CT, _, params in _drawn(op, clips, sample_rate, seed):
        replayed = op.replay(params, x_CT[0] if len(x_CT) == 1 else x_CT, sample_rate)
        levels.append(next((float(replayed[name]) for name in STANDARD_DEVIATIONS if name in replayed), None))
    return levels


def fed_reference(op: Op, clips: Clips, sample_rate: int, seed: int) -> tuple[Clips, Clips]:
    """Return what the reference makes of the clips if numpy's random functions give it the op's own noise, and that."""
    worker = WorkerChain(Chain([op], sample_rate), 1, fallback=False)
    outputs, white = list[NDArray[np.float32]](), list[NDArray[np.float32]]()
    for x_CT, draw, params in _drawn(op, clips, sample_rate, seed):
        x = x_CT[0] if len(x_CT) == 1 else x_CT
        assert op.contract.numpy_draws is not None
        numbers = op.contract.numpy_draws(op, params, x.shape)
        with contextlib.ExitStack() as stack:
            for name, values in numbers.items():
                values = values.astype(np.float64)
                stack.enter_context(mock.patch.object(np.random, name, lambda *_, values=values, **__: values))
            outputs.append(np.atleast_2d(worker(x, sample_rate, draws=draw)))
        white.append(np.atleast_2d(numbers["normal"]))
    return outputs, white


def _judge_numbers(op: Op, white: Clips, seed: int) -> Verdict:
    """Check that the numbers an op's coloured noise is made of are white Gaussian noise of level 1."""
    rng, silence = np.random.default_rng(seed), [np.zeros_like(x_CT) for x_CT in white]
    honest = [rng.standard_normal(x_CT.shape, np.float32) for x_CT in white]
    standard = Contract.statistical(op.contract.tolerance)
    return check(standard, silence, honest, white, op=op.name, intended=[1.0] * len(white))


def _drawn(op: Op, clips: Clips, sample_rate: int, seed: int) -> Iterator[tuple[NDArray[np.float32], Draws, Params]]:
    """Yield each clip with its draws and its parameters."""
    chain = Chain([op], sample_rate)
    node = chain.nodes[0]
    for x_CT, draw in zip(clips, chain.draw(np.arange(len(clips)), seed=seed)):
        batch = BatchInfo(sample_rate, np.asarray([x_CT.shape[1]]), len(x_CT))
        yield x_CT, draw, of_one(node.resolve(draw, np.zeros(1, np.int64), batch))


def _freshness(op: Op) -> Verdict:
    chain, indices = Chain([op], 16000), np.arange(256)
    first, second = (chain.draw(indices, epoch).table for epoch in (0, 1))
    return check_fresh(chain.columns, first, second)


def _describe(judged: list[tuple[Case, Verdict]]) -> Verdict:
    """Turn what was measured of torch-audiomentations into words."""
    full, padded = (worst(each for case, each in judged if case.ragged is ragged) for ragged in (False, True))
    if full.status == padded.status == "passed":
        return dataclasses.replace(worst([full, padded]), status="same")
    verdict, counterpart = (padded if full.status == "passed" else full), judged[0][0].op.torch_audiomentations()
    measured = verdict.reason if verdict is full else f"in padded batches only, {verdict.reason}"
    words = [counterpart.differs] if counterpart is not None and counterpart.differs else []
    return dataclasses.replace(verdict, status="differs", reason="; ".join([*words, measured]))
