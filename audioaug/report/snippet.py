"""The code to paste: the recommended plan and its Loader."""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from audioaug.records import Plan, Recommendation, Report, Workload, plan_of
from audioaug.report.parts import Code, Part

LINE_LENGTH = 80

ALWAYS = ("cut", "num_workers")
"""Fields of a plan that are always shown, also with default values."""

FOUND = (None, 0, "audio")
"""Audio keys that Loader detects without an argument."""


def snippet_parts(report: Report) -> tuple[Part, ...]:
    """Return the snippet, if there is something to change."""
    advice, today = report.recommendation, report.current
    if advice is None or (today is not None and advice.name == today.name):
        return ()
    return (Code(snippet(report, advice)),)


def snippet(report: Report, advice: Recommendation) -> str:
    """Return about ten lines that build the raced Loader from the names of the model file."""
    work = report.workload
    return "\n".join(
        (
            *import_lines(report),
            "",
            *chain_lines(work),
            *dataset_lines(work),
            *rank_lines(report),
            call("plan = audioaug.Plan", plan_arguments(report, advice)),
            '# or, with --plan plan.json: plan = audioaug.Plan.load("plan.json")',
            call("loader = audioaug.Loader", ("dataset", "chain", "plan", *loader_arguments(report))),
            "for epoch in range(epochs):",
            "    loader.set_epoch(epoch)",
            "    for batch in loader: ...  # augmented, on the device",
        )
    )


def import_lines(report: Report) -> tuple[str, ...]:
    """Return the imports."""
    if report.host.local_ranks == 1:
        return ("import audioaug",)
    own_device = ("import os", "") if report.host.has_gpu else ()
    sampler = () if report.workload.setup.is_stream else ("from torch.utils.data import DistributedSampler", "")
    return (*own_device, *sampler, "import audioaug")


def rank_lines(report: Report) -> tuple[str, ...]:
    """Return what several ranks need: each its share of the examples; ``Loader`` divides a stream itself."""
    if report.host.local_ranks == 1:
        return ()
    sampler = () if report.workload.setup.is_stream else ("sampler = DistributedSampler(dataset)",)
    return ("# In every rank, after torch.distributed.init_process_group:", *sampler)


def chain_lines(work: Workload) -> tuple[str, ...]:
    """Return the line that builds the chain from the user's declaration; none for the demo chain."""
    form, name = work.setup.augment, work.setup.augment_name
    if form == "demo" or not (form == "yaml" or name.isidentifier()):
        return ()
    rate = f"sample_rate={work.sample_rate}"
    if form == "audiomentations":
        return (call("chain = audioaug.Chain.from_audiomentations", (name, rate)),)
    if form in ("op", "ops"):
        return (call("chain = audioaug.Chain", (name if form == "ops" else f"[{name}]", rate)),)
    code = ", code=True" if work.setup.allow_code else ""
    chain = name if form == "chain" else f"audioaug.Chain.from_yaml({literal(name)}{code})"
    if work.sources.get("sample_rate") == "command line":
        return (call("chain = audioaug.Chain", (f"{chain}.ops", rate)),)
    return (f"chain = {chain}",)


def dataset_lines(work: Workload) -> tuple[str, ...]:
    """Return the line that builds the dataset, if it is a folder or a manifest."""
    path = work.setup.dataset_path
    if not path:
        return ()
    arguments = (literal(path), f"sample_rate={work.sample_rate}", f"seconds={work.clip_seconds!r}")
    return (call("dataset = audioaug.AudioFolder", arguments),)


def plan_arguments(report: Report, advice: Recommendation) -> list[str]:
    """Return the arguments of ``Plan``: those in ``ALWAYS``, and those without default values."""
    chain_hash = "" if report.workload.setup.augment == "demo" else report.chain.hash
    plan = plan_of(advice, chain_hash, report.workload.precision, report.host.local_ranks)
    usual = Plan()
    chosen = {field.name: getattr(plan, field.name) for field in dataclasses.fields(Plan)}
    return [
        f"{name}={literal(value)}" for name, value in chosen.items() if name in ALWAYS or value != getattr(usual, name)
    ]


def loader_arguments(report: Report) -> list[str]:
    """Return the further arguments of ``Loader``: those that it was raced with."""
    work, setup = report.workload, report.workload.setup
    arguments = {
        f"batch_size={work.batch_size}": True,
        f"device={device(report)}": True,
        "shuffle=True": not setup.is_stream and report.host.local_ranks == 1,
        "sampler=sampler": not setup.is_stream and report.host.local_ranks > 1,
        f"audio_key={literal(setup.audio_key)}": setup.audio_key not in FOUND,
        "pad=True": setup.pad and setup.lengths is None,
        f"lengths={literal(setup.lengths)}": setup.lengths is not None,
        "targets=targets": setup.targets,
        "collate_fn=collate_fn": setup.collate_fn,
        f"on_error={literal(setup.on_error)}": setup.on_error != "raise",
    }
    return [argument for argument, holds in arguments.items() if holds]


def device(report: Report) -> str:
    """Return the device as code: that of the rank, if there are several."""
    if report.host.local_ranks > 1 and report.host.device.startswith("cuda"):
        return "f\"cuda:{os.environ['LOCAL_RANK']}\""
    return literal(report.host.device)


def literal(value: Any) -> str:
    """Return a plain value as Python code."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def call(function: str, arguments: Iterable[str]) -> str:
    """Return a call on one line, or with indented arguments if it is too long."""
    arguments = tuple(arguments)
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= LINE_LENGTH:
        return line
    lines = ["   "]
    for argument in arguments:
        if len(lines[-1]) + len(argument) + 2 > LINE_LENGTH and lines[-1].strip():
            lines.append("   ")
        lines[-1] += f" {argument},"
    return "\n".join((f"{function}(", *lines, ")"))
