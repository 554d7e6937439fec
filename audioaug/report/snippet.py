"""The code to paste: the recommended plan and the Loader that runs it."""

import dataclasses
import json
import textwrap

from audioaug.records import Plan, Recommendation, Report
from audioaug.report.parts import Code, Part

LINE_LENGTH = 80

PLAN_FIELDS = ("cut", "worker_engine", "device_engine", "num_workers", "prefetch_factor", "pin_memory", "threads")


def snippet_parts(report: Report) -> tuple[Part, ...]:
    """The snippet, where there is something to change."""
    advice, today = report.recommendation, report.current
    if advice is None or (today is not None and advice.name == today.name):
        return ()
    return (Code(snippet(report, advice)),)


def snippet(report: Report, advice: Recommendation) -> str:
    """Some eight lines with the real numbers, none longer than ``LINE_LENGTH``."""
    settings = f"batch_size={report.workload.batch_size}, device={json.dumps(report.host.device)}"
    return "\n".join(
        (
            "import audioaug",
            "",
            call("plan = audioaug.Plan", plan_arguments(advice)),
            '# or, with --plan plan.json: plan = audioaug.Plan.load("plan.json")',
            call("loader = audioaug.Loader", f"dataset, chain, plan, {settings}"),
            "for epoch in range(epochs):",
            "    loader.set_epoch(epoch)",
            "    for batch in loader: ...  # augmented, on the device",
        )
    )


def plan_arguments(advice: Recommendation) -> str:
    """The arguments of ``Plan`` for this cell: where and how many always, the rest where it is not the default."""
    defaults = {field.name: field.default for field in dataclasses.fields(Plan)}
    chosen = {name: getattr(advice, name) for name in PLAN_FIELDS}
    chosen["pin_memory"] = advice.pin_memory or None  # as the plan has it
    always = ("cut", "num_workers")
    return ", ".join(f"{name}={value!r}" for name, value in chosen.items() if name in always or value != defaults[name])


def call(function: str, arguments: str) -> str:
    """A call on one line, or with its arguments indented below where one line is too short for it."""
    line = f"{function}({arguments})"
    if len(line) <= LINE_LENGTH:
        return line
    inner = textwrap.fill(f"{arguments},", LINE_LENGTH, initial_indent="    ", subsequent_indent="    ")
    return f"{function}(\n{inner}\n)"
