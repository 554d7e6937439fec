"""Listen: some examples of the data before and after augmentation, by both builds, with their contracts' verdicts.

Shapes: a clip is (C, T).
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from audioaug.advise.candidates import Reader
from audioaug.advise.training_job import TrainingJob
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain, Contract, Draws, Op
from audioaug.errors import in_one_line
from audioaug.report.parts import NOTHING, Column, Line, Row, Table
from audioaug.report.sounds import Example, Listening, Sound, rendered_sounds
from audioaug.verify.contracts import check
from audioaug.verify.noise import Clips
from audioaug.verify.replay import on_cpu, on_device

AUDIO_BYTES = 800_000
"""Bytes of audio on the page; spectrograms add a quarter of that."""

MOST_EXAMPLES = 4
SHORTEST_SECONDS = 1.5
LONGEST_SECONDS = 4.0
EXAMPLES_TRIED = 64
"""Examples whose draws are inspected, to find those with the most transforms."""

FLAC_RATIO = 0.7

SAME = 2**-15
"""Differences that the 16-bit audio of the page cannot hold."""

INTRODUCTION = (
    "The same draws through both builds: audiomentations, clip by clip, and the device build, as one batch. Transforms "
    "that only run in workers are identical in both. A sound that equals the one before it in 16 bits is left out."
)
COLUMNS = (
    Column("transform"),
    Column("contract"),
    Column("applied\nin", number=True),
    Column("error", number=True),
    Column("limit", number=True),
    Column("unit"),
    Column("verdict"),
)


def listen(job: TrainingJob) -> Listening:
    """Augment a few examples with both builds; if that fails, return the reason."""
    whole = job.chain
    last = len(whole) - (whole.feature is not None)  # features cannot be heard
    chain = Chain(whole.ops[: min(last, whole.worker_until)], whole.sample_rate)
    if not any(has_device_build(chain, place, place + 1) for place in range(len(chain))):
        return Listening(
            (Line("No transform of this chain runs both in a worker and on the device: nothing to compare."),)
        )
    try:
        return _listen(job, chain)
    except Exception as error:
        return Listening((Line(f"No examples to listen to: {in_one_line(error)}", "warning"),))


def _listen(job: TrainingJob, chain: Chain) -> Listening:
    names, clips, draws, lengths = examples(job, chain)
    if not clips:
        return Listening((Line("No examples to listen to: none of the sampled examples could be read.", "warning"),))
    rate, device = chain.sample_rate, str(job.device)
    reference, rows = clips, list[Row]()
    for place, op in enumerate(chain.ops):
        alone, own = Chain([op], rate), own_draws(draws, place, place + 1)
        before, reference = reference, on_cpu(alone, reference, rate, own)
        rows.append(judge(alone, before, reference, own, device))
    built = on_device_where_possible(chain, clips, draws, device)
    found = []
    for name, draw, dry, length, pair in zip(names, draws, clips, lengths, zip(reference, built)):
        played = dry.shape[1]
        cut = f", the first {played / rate:.2g} of {length / rate:.2g} s" if played < length else ""
        found.append(Example(name + cut, example_words(chain, draw, *pair), rendered_sounds(named(dry, *pair), rate)))
    played, longest = max(x_CT.shape[1] for x_CT in clips), max(lengths)
    note = f" Only the first {played / rate:.2g} s of clips of up to {longest / rate:.2g} s are played and compared."
    introduction = Line(INTRODUCTION + (note if played < longest else ""), "note")
    return Listening((introduction,), tuple(found), Table(COLUMNS, tuple(rows)))


def has_device_build(chain: Chain, start: int, stop: int) -> bool:
    """Return whether these ops of the chain can run on the device, all of them together."""
    return Chain(chain.ops[start:stop], chain.sample_rate).device_from == 0


def on_device_where_possible(chain: Chain, clips: Clips, draws: Draws, device: str) -> Clips:
    """Run the chain with as many neighbouring ops as possible together on the device, the others clip by clip."""
    start, rate = 0, chain.sample_rate
    while start < len(chain):
        stops = range(len(chain), start, -1)
        stop = next((stop for stop in stops if has_device_build(chain, start, stop)), None)
        end = stop or start + 1
        part, own = Chain(chain.ops[start:end], rate), own_draws(draws, start, end)
        clips = on_device(part, clips, rate, own, device=device) if stop else on_cpu(part, clips, rate, own)
        start = end
    return clips


def own_draws(draws: Draws, start: int, stop: int) -> Draws:
    """Return the draws of some transforms of a chain as those of a chain of them alone."""
    columns = [re.fullmatch(r"(\d+)([.:].*)", name) for name in draws.columns]
    own = {at: found for at, found in enumerate(columns) if found and start <= int(found[1]) < stop}
    names = tuple(f"{int(found[1]) - start}{found[2]}" for found in own.values())
    return Draws(names, draws.table[:, list(own)])


def named(dry: Sound, reference: Sound, built: Sound) -> dict[str, Sound]:
    """Return the sounds of an example by label; one that equals the sound before it shares that sound's label."""
    sounds = [(["dry"], dry)]
    for label, x_CT in (("reference build", reference), ("device build", built)):
        labels, before_CT = sounds[-1]
        if x_CT.shape == before_CT.shape and np.abs(x_CT - before_CT).max(initial=0.0) < SAME:
            labels.append(label)
        else:
            sounds.append(([label], x_CT))
    return {" = ".join(labels): x_CT for labels, x_CT in sounds}


def examples(job: TrainingJob, chain: Chain) -> tuple[list[str], Clips, Draws, list[int]]:
    """Choose the examples whose draws apply the most transforms.

    Return their names, the starts of their clips, their draws, and the lengths of their whole clips, in samples.
    """
    dataset, read = job.dataset, Reader(job.dataset)
    last = EXAMPLES_TRIED if job.is_stream else len(dataset)
    indices = np.unique(np.linspace(0, last - 1, EXAMPLES_TRIED).astype(int))
    draws = chain.draw(indices)
    order = by_new_transforms([frozenset(applied(chain, draw)) for draw in draws])
    found: dict[int, Sound] = {}
    for row in order:
        if len(found) < MOST_EXAMPLES:
            with suppress(Exception):  # skip unreadable files
                wave = job.clip_of(read(int(indices[row])))
                clip = np.atleast_2d(wave).astype(np.float32)
                found |= {row: clip} if clip.size else {}
    count, samples = size_that_fits(list(found.values()), chain.sample_rate)
    rows = list(found)[:count]
    names = [name_of(dataset, int(indices[row])) for row in rows]
    lengths = [found[row].shape[1] for row in rows]
    return names, [found[row][:, :samples] for row in rows], draws.rows(rows), lengths


def applied(chain: Chain, draw: Draws) -> list[str]:
    """Return the names of the transforms that an example's draws apply."""
    return [op.name for place, op in enumerate(chain.ops) if draw[f"{place}:apply"][0]]


def by_new_transforms(applied: Sequence[frozenset[str]]) -> list[int]:
    """Order examples so that each adds the most transforms not shown before."""
    order, left, seen = list[int](), list(range(len(applied))), frozenset[str]()
    while left:
        best = max(left, key=lambda row: (len(applied[row] - seen), len(applied[row])))
        left.remove(best)
        order, seen = [*order, best], seen | applied[best]
    return order


def size_that_fits(clips: Sequence[Sound], sample_rate: int) -> tuple[int, int]:
    """Return how many examples of how many samples fit on the page: three sounds each, as FLAC in base 64."""
    if not clips:
        return 0, 0
    channels, longest = min(2, max(len(x_CT) for x_CT in clips)), max(x_CT.shape[1] for x_CT in clips)
    samples = AUDIO_BYTES / (3 * channels * 2 * FLAC_RATIO * 4 / 3)
    enough = min(longest, SHORTEST_SECONDS * sample_rate)
    count = next((count for count in range(len(clips), 1, -1) if samples / count >= enough), 1)
    return count, int(min(samples / count, LONGEST_SECONDS * sample_rate))


def name_of(dataset: Any, index: int) -> str:
    """Return the display name of an example."""
    return "/".join(Path(dataset.files[index]).parts[-2:]) if isinstance(dataset, AudioFolder) else f"example {index}"


def example_words(chain: Chain, draw: Draws, reference: Sound, built: Sound) -> str:
    """Describe what was applied to an example, and how far the two results differ."""
    names = applied(chain, draw)
    loose = [op.name for op in chain.ops if op.name in names and not _is_exact(op)]
    promise = f" Not promised sample for sample: {', '.join(loose)}." if loose else ""
    return f"{', '.join(names) or 'no transform'}. {apart(reference, built)}{promise}"


def apart(reference: Sound, built: Sound) -> str:
    """Describe the difference of two results relative to the peak of the first."""
    if reference.shape != built.shape:
        return "The two results differ in length."
    largest, peak = (float(np.abs(x_CT).max(initial=0.0)) for x_CT in (reference - built, reference))
    if not largest:
        return "The two results are bit-identical."
    if not peak:
        return "The reference is silent, the device build is not."
    below_db = -20 * math.log10(largest / peak)
    return f"The largest difference between the two results is {below_db:.0f} dB below the peak."


def judge(alone: Chain, before: Clips, reference: Clips, draws: Draws, device: str) -> Row:
    """Check one transform's builds on the same input by its contract, and return the verdict as a row."""
    op, count = alone.ops[0], int(draws["0:apply"].sum())
    contract = contract_of(op)
    if alone.device_from:
        return Row((op.name, NOTHING, str(count), NOTHING, NOTHING, "", "runs only in workers"))
    if not count or contract is None:
        why = (
            "not applied in these examples"
            if contract
            else "not compared: its transforms have different kinds of contract"
        )
        return Row((op.name, contract.kind if contract else NOTHING, str(count), NOTHING, NOTHING, "", why))
    built = on_device(alone, before, alone.sample_rate, draws, device=device)
    found = check(contract, before, reference, built, op=op.name, sample_rate=alone.sample_rate)
    numbers = [NOTHING if value is None else f"{value:.2g}" for value in (found.error, found.limit)]
    words = {"passed": "kept", "failed": f"broken: {found.reason}"}.get(found.status, found.reason)
    return Row((op.name, contract.kind, str(count), *numbers, found.unit, words))


def contract_of(op: Op) -> Contract | None:
    """Return an op's contract; a container's is the sum of its transforms' tolerances if all are exact."""
    if not op.children:
        return op.contract
    parts = [contract_of(child) for child in op.children]
    together = Contract.exact(sum(part.tolerance for part in parts if part))
    return together if all(_is_exact(child) for child in op.children) else None


def _is_exact(op: Op) -> bool:
    contract = contract_of(op)
    return contract is not None and contract.kind == "exact"
