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
from audioaug.advise.training_job import TrainingJob, in_one_line
from audioaug.audio.folder import AudioFolder
from audioaug.core import Chain, Contract, Draws, Op
from audioaug.report.parts import NOTHING, Column, Line, Row, Table
from audioaug.report.sounds import Example, Listening, Sound, rendered_sounds
from audioaug.verify.contracts import Clips, check
from audioaug.verify.replay import on_cpu, on_device

AUDIO_BYTES = 800_000
"""Bytes of audio on the page; spectrograms add a quarter of that."""

MOST_EXAMPLES = 4
SHORTEST_SECONDS = 1.5
LONGEST_SECONDS = 4.0
EXAMPLES_TRIED = 64
"""Examples whose draws are inspected, to find those with the most transforms."""

FLAC_RATIO = 0.7

INTRODUCTION = (
    "The same draws through both builds: audiomentations, clip by clip, and the device build, as one batch. Transforms "
    "that only run in workers are identical in both."
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
    chain = Chain(whole.ops[: whole.worker_until], whole.sample_rate)
    if chain.device_from >= len(chain):
        return Listening(
            (Line("No transform of this chain runs both in a worker and on the device: nothing to compare."),)
        )
    try:
        return _listen(job, chain)
    except Exception as error:
        return Listening((Line(f"No examples to listen to: {in_one_line(error, job.path)}", "warning"),))


def _listen(job: TrainingJob, chain: Chain) -> Listening:
    names, clips, draws, longest = examples(job, chain)
    if not clips:
        return Listening((Line("No examples to listen to: none of the sampled examples could be read.", "warning"),))
    rate, device, cut = chain.sample_rate, str(job.device), chain.device_from
    reference = on_cpu(chain, clips, rate, draws, cut)
    built = on_device(chain, reference, rate, draws, cut, device=device)
    rows = []
    for place in range(cut, len(chain)):
        alone, own = Chain([chain.ops[place]], rate), own_draws(draws, place)
        before, reference = reference, on_cpu(alone, reference, rate, own)
        rows.append(judge(alone, before, reference, own, device))
    found = [
        Example(name, example_words(chain, draw, *pair), rendered_sounds(named(dry, *pair), rate))
        for name, draw, dry, pair in zip(names, draws, clips, zip(reference, built))
    ]
    played = max(x_CT.shape[1] for x_CT in clips)
    note = f" Only the first {played / rate:.2g} s of clips of up to {longest / rate:.2g} s are played and compared."
    introduction = Line(INTRODUCTION + (note if played < longest else ""), "note")
    return Listening((introduction,), tuple(found), Table(COLUMNS, tuple(rows)))


def own_draws(draws: Draws, place: int) -> Draws:
    """Return the draws of one transform as those of a chain of it alone."""
    own = [(at, name) for at, name in enumerate(draws.columns) if re.match(rf"{place}[.:]", name)]
    columns = tuple(f"0{name.removeprefix(str(place))}" for _, name in own)
    return Draws(columns, draws.table[:, [at for at, _ in own]])


def named(dry: Sound, reference: Sound, built: Sound) -> dict[str, Sound]:
    """Return the three sounds of an example by label."""
    return {"dry": dry, "reference build": reference, "device build": built}


def examples(job: TrainingJob, chain: Chain) -> tuple[list[str], Clips, Draws, int]:
    """Choose the examples whose draws apply the most transforms.

    Return their names, the starts of their clips, their draws, and the length of the longest clip, in samples.
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
    longest = max((found[row].shape[1] for row in rows), default=0)
    return names, [found[row][:, :samples] for row in rows], draws.rows(rows), longest


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
