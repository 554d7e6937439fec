"""The tables of the documentation, as Markdown: made from the registry of ops and the records in datasets/profiles."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import bench_advisor_records
import click
import count_gpu_work
import fault_tables
import list_mps
import test_matrix

import audioaug
from audioaug.__main__ import commands
from audioaug.audio.codecs import CODECS, through_codec, why_missing
from audioaug.audio.files import read_audio
from audioaug.core import CUSTOM_OPS, REGISTRY, Op, arguments
from audioaug.decide import predict
from audioaug.records import HostFacts, read_record
from audioaug.report.sounds import rendered_sounds
from audioaug.verify import material

PROFILES = Path(__file__).resolve().parents[1] / "datasets/profiles"
WORD = PROFILES.parent / "demo/speech/center/alsa_speaker_01.flac"
RATE = 16000


def markdown_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; a pipe in a cell stays one, and cells that a row lacks are empty."""
    names = list(header)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


# Equivalence


def equivalence() -> str:
    """Return what ``audioaug verify`` found, device by device."""
    return "\n".join(_verification(path) for path in sorted(PROFILES.glob("verify_*.json")))


def _verification(path: Path) -> str:
    found = json.loads(path.read_text(encoding="utf-8"))
    ours = [verdict["status"] for verdict in found["verdicts"] if verdict["engine"] == "batched"]
    counts = ", ".join(f"{ours.count(status)} {status}" for status in ("passed", "failed", "skipped"))
    return (
        f"## On {found['device']}\n\n{len(ours)} transforms: {counts}. Recorded in `datasets/profiles/{path.name}`.\n\n"
        + verdict_table(found["verdicts"])
    )


def verdict_table(verdicts: list[dict[str, Any]]) -> str:
    """Return the Markdown table: what each transform keeps, by how much, and what the other library has for it."""
    by_op: dict[str, dict[str, dict[str, Any]]] = {}
    for verdict in verdicts:
        by_op.setdefault(verdict["op"], {})[verdict["engine"]] = verdict
    header = "| transform | on the device | worst error | in torch-audiomentations |\n|---|---|---|---|\n"
    return header + "".join(
        _verdict_row(op, **{k.replace("-", "_"): v for k, v in engines.items()}) for op, engines in by_op.items()
    )


def _verdict_row(op: str, batched: dict[str, Any], torch_audiomentations: dict[str, Any]) -> str:
    """Return the line of one transform."""
    if batched["status"] == "skipped":
        return f"| {op} | no: {batched['reason'].rstrip('.')} | - | {torch_audiomentations['status']} |\n"
    error = f"{batched['error']:.2g} {batched['unit']}"
    found = torch_audiomentations["status"]
    words = f"{found}: {torch_audiomentations['reason']}" if found in ("differs", "unavailable") else found
    return f"| {op} | {batched['contract']}, {batched['status']} | {error} | {words} |\n"


# The advisor, checked


def machine(host: HostFacts) -> str:
    """Name a machine by its processor and cores."""
    return f"{host.device_name}, {host.usable_cores:g} cores"


def _bullets(sentences: Iterable[str]) -> str:
    """Return sentences as a list; one that is indented belongs to the one before it."""
    return "".join(f"{'    ' if text.startswith(' ') else ''}- {text.strip()}\n" for text in sentences)


def advice() -> str:
    """Return what ``bench_advisor.py`` found of the advisor, on each machine: sentences, and its real workloads."""
    return "\n".join(_advice(path) for path in sorted(PROFILES.glob("advisor_*.json")))


def _advice(path: Path) -> str:
    result = read_record(path, bench_advisor_records.Result)
    rows = (bench_advisor_records.regret_cells(row) for row in result.rows if not row.answers)
    return (
        f"On {machine(result.host)}, {result.date[:10]}, asked for {result.seconds:g} s each; recorded in "
        f"`datasets/profiles/{path.name}`:\n\n{_bullets(bench_advisor_records.summary(result))}\n"
        + markdown_table(bench_advisor_records.COLUMNS, rows)
    )


# Transforms


def transforms() -> str:
    """Return a line for each op: what it does, what it equals, how equal it is, and where it can run."""
    header = (
        "transform",
        "what it does",
        "reference",
        "contract",
        "device",
        "changes lengths",
        "torch-audiomentations",
    )
    return markdown_table(header, (_transform(kind) for _, kind in sorted(REGISTRY.items())))


def _transform(kind: type[Op]) -> list[str]:
    op = next(material.variants(kind, RATE))
    first_sentences = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    counterpart = op.torch_audiomentations()
    return [
        f"[{kind.__name__}][{kind.__module__}.{kind.__name__}]",
        first_sentences,
        op.capabilities.library.replace("_", "-"),
        promise(kind),
        "no" if kind.contract.kind == "cpu_only" else "yes",
        lengths(kind),
        "none" if counterpart is None else f"{counterpart.name}: {counterpart.differs}".rstrip(": "),
    ]


def promise(kind: type[Op]) -> str:
    """Return the contract in words."""
    contract = kind.contract
    words = {
        "exact": f"exact, {contract.tolerance:.0e} of the peak" if contract.tolerance else "exact, no difference",
        "spectral": f"spectral, {contract.tolerance:.0e} of the peak but for a band",
        "log_spectrum": f"log_spectrum, {contract.tolerance:g} dB down to -{contract.down_to_db:g} dB",
        "statistical": f"statistical, level within {contract.tolerance:g} dB",
        "perceptual": f"perceptual, spectrum within {contract.tolerance:g} dB",
        "cpu_only": contract.reason.rstrip("."),
    }
    return words[contract.kind]


def lengths(kind: type[Op]) -> str:
    """Return whether clips come out longer or shorter: by default, or with which option."""
    usual, *variants = material.variants(kind, RATE)
    if usual.children:
        return "as what is in it"
    if usual.capabilities.changes_length:
        return "yes"
    options = [_option(usual, variant) for variant in variants if variant.capabilities.changes_length]
    return f"with {' or '.join(options)}" if options else "no"


def _option(usual: Op, variant: Op) -> str:
    ours, theirs = arguments(usual), arguments(variant)
    name = next(name for name in theirs if theirs[name] != ours[name])
    return f"`{name}={theirs[name]!r}`"


def only_in_workers() -> str:
    """Name the ops without a device build, and why."""
    lines = (f"- {kind.__name__}: {kind.contract.reason}\n" for kind in _every_op() if kind.contract.kind == "cpu_only")
    return "".join(lines)


# The advisor


def formulas() -> str:
    """Return what the module that predicts says of itself, but for its first line."""
    text = (predict.__doc__ or "").partition("\n\n")[2]
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


# Reference


def public_names() -> str:
    """Return the directives for everything that ``audioaug`` exports, but for its modules."""
    names = (name for name in audioaug.__all__ if name not in ("errors", "ops"))
    return "\n".join(f"::: audioaug.{name}" for name in names)


def every_op() -> str:
    """Return the directives for all ops, without their faces, which are documented once, on ``Op``."""
    names = (f"{kind.__module__}.{kind.__name__}" for kind in _every_op())
    return "\n".join(f"::: {name}\n    options:\n      members: false\n" for name in names)


def _every_op() -> Iterator[type[Op]]:
    yield from (kind for _, kind in sorted({**REGISTRY, **CUSTOM_OPS}.items()))


def command_lines() -> str:
    """Return what each command prints with ``--help``."""
    context = click.Context(commands, info_name="audioaug", max_content_width=100)
    names = commands.list_commands(context)
    return "\n".join(f"## {name}\n\n```text\n{_help(name, context)}```\n" for name in names)


def _help(name: str, context: click.Context) -> str:
    command = commands.get_command(context, name)
    assert command is not None
    return command.get_help(click.Context(command, parent=context, info_name=name)) + "\n"


# What a GPU has to do


def gpu_counts() -> str:
    """Return what was counted of each op and chain, and what that would take."""
    found = json.loads(count_gpu_work.RECORD.read_text(encoding="utf-8"))["counts"]
    rows = []
    for name, values in found.items():
        counts = count_gpu_work.Counts(**values)
        over = count_gpu_work.over_the_floor(name, counts)
        times = f"{counts.batches:.1f}", "" if over is None else f"{over:.1f}"
        rest = str(len(counts.ffts)), f"{counts.microseconds_a_clip:.2f}"
        rows.append([name, str(counts.launches), f"{counts.bytes / 1e6:.0f}", *times, *rest])
    header = (
        "",
        "kernel launches",
        "MB moved",
        "over reading and writing the batch once",
        "over the op's floor",
        "FFT plans",
        "predicted us a clip",
    )
    return markdown_table(header, rows)


def gpu_checks() -> str:
    """Return what each recorded run of ``scripts/check_gpu.sh`` found, beside what was predicted from counts."""
    return "\n".join(map(_gpu_check, sorted(PROFILES.glob("gpu_check_*.json"))))


def _gpu_check(path: Path) -> str:
    found = json.loads(path.read_text(encoding="utf-8"))
    counted = json.loads(count_gpu_work.RECORD.read_text(encoding="utf-8"))["counts"]
    rows = []
    for name, each in found["profile"].items():
        if name != "warnings":
            counts = count_gpu_work.Counts(**counted[name if name in counted else f"{name} chain"])
            measured = (each["us_a_clip"], each["kernel_us_a_clip"], each["host_us_a_clip"])
            cells = f"{counts.microseconds_a_clip:.1f}", *(f"{value:.1f}" for value in measured)
            rows.append([name, *cells, f"{counts.launches}", f"{each['launches']}"])
    header = "", "predicted us a clip", "measured", "its kernels", "its launching", "predicted launches", "measured"
    steps = "; ".join(f"{name}: {result}" for name, result in found["steps"].items())
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("torch", "cuda", "nvidia driver"))
    return (
        f"### {found['card']}, {found['date'][:10]}\n\n{versions}; recorded in `datasets/profiles/{path.name}`. Steps: "
        f"{steps}.\n\n{markdown_table(header, rows)}"
    )


def apple_gpus() -> str:
    """Return what each transform needs that torch lacks on Apple GPUs."""
    found = json.loads(list_mps.RECORD.read_text(encoding="utf-8"))
    whole = [name for name, lacks in found["missing"].items() if not lacks]
    rows = [(name, ", ".join(f"`{each}`" for each in lacks)) for name, lacks in found["missing"].items() if lacks]
    return f"There, by the list of torch {found['torch']}: {', '.join(whole)}.\n\n" + markdown_table(
        ("on the CPU instead", "for want of"), rows
    )


def codec_sounds() -> str:
    """Return a player for a word of the demo as it is, and through each codec at its lowest quality."""
    dry_CT = read_audio(str(WORD), RATE)
    titles = {encoding.title: name for name, encoding in CODECS.items() if not why_missing(name)}
    through = {title: through_codec(dry_CT, RATE, name, quality=0.0) for title, name in titles.items()}
    players = (
        (sound.label, f'<audio controls preload="metadata" aria-label="{sound.label}" src="{sound.audio}"></audio>')
        for sound in rendered_sounds({"as it is": dry_CT, **through}, RATE)
    )
    return markdown_table(("codec", "the word"), players)


# Supported versions


def environments() -> str:
    """Return what the tests found in each environment that the wheel was tested in, and why tests were skipped."""
    found = json.loads(test_matrix.RECORD.read_text(encoding="utf-8"))
    names = [name for name in test_matrix.VERSIONS_OF if any(name in each["versions"] for each in found)]
    header = ("environment", *names, "tests", "passed", "failed", "skipped", "date")
    rows = [
        (
            each["name"],
            *(each["versions"].get(name, "none") for name in names),
            each["form"],
            *(str(count) for count in (each["passed"], each["failed"], sum(each["skipped"].values()))),
            each["date"],
        )
        for each in found
    ]
    reasons = [(each["name"], str(count), why) for each in found for why, count in each["skipped"].items()]
    skipped = markdown_table(("environment", "tests skipped", "reason"), reasons)
    return markdown_table(header, rows) + "\n### Skipped, and why\n\n" + skipped


# Random inputs and long runs


def fuzzed() -> str:
    """Return how the recorded hour of random inputs ended, a row for each thing that is read."""
    record = json.loads((PROFILES / "fuzz.json").read_text(encoding="utf-8"))
    rows = [
        (each["target"], f"{each['seconds'] / 60:.1f}", f"{each['inputs']:,}", each["found"] or "nothing")
        for each in record["targets"]
    ]
    return (
        f"Recorded in `datasets/profiles/fuzz.json` on {record['date']} with Python {record['python']}.\n\n"
    ) + markdown_table(("read", "minutes", "inputs", "found"), rows)


def soaked() -> str:
    """Return what grew in the recorded long run, a row for each quantity."""
    record = json.loads((PROFILES / "soak.json").read_text(encoding="utf-8"))
    rows = [
        (
            name,
            f"{each['first']:,.0f}",
            f"{each['last']:,.0f}",
            "{:+.2g} ({:+.2g} .. {:+.2g})".format(each["slope"], *each["ci"]),
        )
        for name, each in record["slopes"].items()
    ]
    return (
        f"{record['batches']:,} batches in {record['seconds'] / 60:.0f} minutes, recorded in "
        f"`datasets/profiles/soak.json` on {record['date']}.\n\n"
    ) + markdown_table(("of the program and its workers", "first", "last", "slope in 100,000 batches (95 %)"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "environments": environments,
    "equivalence": equivalence,
    "advice": advice,
    "transforms": transforms,
    "only in workers": only_in_workers,
    "codec sounds": codec_sounds,
    "formulas": formulas,
    "gpu counts": gpu_counts,
    "gpu checks": gpu_checks,
    "faults": fault_tables.recorded,
    "random inputs": fuzzed,
    "long run": soaked,
    "apple gpus": apple_gpus,
    "public names": public_names,
    "every op": every_op,
    "command lines": command_lines,
}
"""By the name that a page asks for it with."""
