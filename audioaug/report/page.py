"""The report as one page, in words: its sections in reading order, without empty ones."""

from audioaug.records import HostFacts, Report, Workload
from audioaug.report.candidates import candidate_parts, runnable_candidates
from audioaug.report.charts import bar_parts
from audioaug.report.costs import op_parts, stage_parts
from audioaug.report.parts import Facts, Line, Part, Section
from audioaug.report.snippet import snippet_parts
from audioaug.units import format_bytes, format_hz, format_seconds, plural

NO_VERDICT = "No recommendation: nothing was compared yet."


def headline_parts(report: Report) -> tuple[Line, ...]:
    """Return the verdict, and whether the run is incomplete."""
    incomplete = () if report.complete else (Line("incomplete: interrupted or failed", "warning"),)
    return Line(report.verdict or NO_VERDICT, "verdict"), *rank_lines(report), *incomplete


def cause_parts(report: Report) -> tuple[Line, ...]:
    """Return the primary cause with its id and what each single change gains, if known."""
    text = cause(report)
    return (Line(text, aside=report.cause),) if text or report.cause else ()


def rank_lines(report: Report) -> tuple[Line, ...]:
    """Return what the numbers of the report refer to if several ranks trained."""
    ranks, advice = report.host.local_ranks, report.recommendation
    if ranks == 1:
        return ()
    total = f": {report.plan.num_workers} here" if advice else ""
    text = (
        f"Measured with {ranks} ranks that train at the same time. Numbers of workers, cores and clips are per rank; "
        f"only num_workers in the plan, and in the code below, counts the workers of all ranks{total}."
    )
    return (Line(text),)


def cause(report: Report) -> str:
    """Return the cause in words: the recommendation's sentence, else the notice of the primary cause."""
    because = report.recommendation.because if report.recommendation else ""
    return because or next((notice.text for notice in report.notices if notice.id == report.cause), "")


def trust_parts(report: Report) -> tuple[Part, ...]:
    """Return what was measured, the cost of the advice, and the notices."""
    because = cause(report)
    notices = tuple((notice.id, notice.text) for notice in report.notices if notice.text != because)
    return Line(evidence(report)), *price_lines(report), *([Facts(notices)] if notices else [])


def what_if_parts(report: Report) -> tuple[Part, ...]:
    """Return the what-if predictions, a line each."""
    return tuple(Line(sentence) for sentence in report.what_if)


def evidence(report: Report) -> str:
    """Return what was measured and what was only predicted, in one sentence."""
    stages = sum(stage.ms_per_batch is not None for stage in report.stages)
    candidates = runnable_candidates(report)
    raced = sum(candidate.measured_ms is not None for candidate in candidates)
    guessed = sum(candidate.measured_ms is None and candidate.predicted_ms is not None for candidate in candidates)
    measured = {
        "the ceiling": report.ceiling is not None,
        f"{plural(stages, 'stage')} alone": stages > 0,
        f"{plural(raced, 'candidate')} end to end{race_size(report)}": raced > 0,
    }
    found = ", ".join(text for text, holds in measured.items() if holds)
    return f"Measured: {found or 'nothing'}; only predicted: {plural(guessed, 'candidate') if guessed else 'nothing'}."


def race_size(report: Report) -> str:
    """Return the size of the race: `` (120 blocks, 2,400 steps)``."""
    blocks = [(len(candidate.step.seconds), candidate.steps_per_block) for candidate in report.measurements]
    if not blocks:
        return ""
    steps = sum(count * size for count, size in blocks)
    return f" ({plural(sum(count for count, _ in blocks), 'block')}, {plural(steps, 'step')})"


def price_lines(report: Report) -> tuple[Line, ...]:
    """Return the cost of the advice and when it pays for itself."""
    if report.cost_seconds <= 0:
        return ()
    took = f"This advice took {format_seconds(report.cost_seconds)}"
    if report.break_even_steps is None:
        return (Line(f"{took}."),)
    steps = plural(report.break_even_steps, "step")
    return (Line(f"{took}; it pays for itself after {steps}{training_time(report, report.break_even_steps)}."),)


def training_time(report: Report, steps: int) -> str:
    """Return the time of this many recommended steps: `` (1 min 40 s of training)``."""
    advice = report.recommendation
    step_ms = advice.known_ms if advice else None
    return "" if step_ms is None else f" ({format_seconds(steps * step_ms / 1e3)} of training)"


def setting_parts(report: Report) -> tuple[Part, ...]:
    """Return the date, and the machine, the training and the chain that the results apply to."""
    sources = ", ".join(f"{what} from {source}" for what, source in report.workload.sources.items())
    versions = ", ".join(f"{name} {version}" for name, version in report.host.versions.items())
    items = {
        "date": date_words(report),
        "machine": host_words(report.host),
        "versions": versions,
        "training": training(report),
        "sources": sources,
        "chain": " > ".join(report.chain.ops) or "no transforms",
    }
    return (Facts(tuple((name, text) for name, text in items.items() if text)),)


def date_words(report: Report) -> str:
    """Return when the run began: ``2026-11-25 14:19:10 UTC``, or an empty string."""
    return report.date.replace("T", " ").replace("+00:00", " UTC")


def host_words(host: HostFacts) -> str:
    """Return the machine facts in one line."""
    vram = f" ({format_bytes(host.vram_bytes)})" if host.vram_bytes is not None else ""
    each = " by each" if host.local_ranks > 1 else ""
    facts = (
        f"{host.device_name or host.device}{vram}" if host.has_gpu else "no GPU",
        host.cpu,
        *([f"{host.local_ranks} ranks"] if host.local_ranks > 1 else []),
        f"{host.usable_cores:g} of {plural(host.logical_cores, 'core')} usable{each}{together(host.effective_cores)}",
        f"{format_bytes(host.ram_bytes)} RAM",
        host.platform,
        f"workers by {host.start_method}",
    )
    return ", ".join(filter(None, facts))


def together(effective_cores: float | None) -> str:
    """Return the effective cores, if measured: `` (together 1.6x the work of one)``."""
    return "" if effective_cores is None else f" (together {effective_cores:.1f}x the work of one)"


def training(report: Report) -> str:
    """Return the model, its batches and its data in one line."""
    work = report.workload
    model = f"{work.model} ({plural(work.parameters, 'parameter')}, {work.precision})"
    clips = f"{plural(work.batch_size, 'clip')} of {clip_length(work)} at {format_hz(work.sample_rate)}"
    size = "a stream" if work.clips is None else plural(work.clips, "clip")
    key = work.setup.audio_key
    audio = "" if key in (None, 0) else f", audio at {key!r}"
    return f"{model}, batches of {clips}, {work.dataset} ({size}{audio})"


def clip_length(work: Workload) -> str:
    """Return the length of clips: ``4 s``, or ``0.5 to 3.2 s``."""
    longest = f"{round(work.clip_seconds, 3):g} s"
    return longest if work.shortest_seconds is None else f"{round(work.shortest_seconds, 3):g} to {longest}"


def page(report: Report) -> tuple[Section, ...]:
    """Return the sections: the verdict, the evidence, the code to paste, and the limits of the results."""
    batch = report.workload.batch_size
    sections = (
        Section("", (*headline_parts(report), *cause_parts(report))),
        Section("Ways to run this chain, fastest first (times of one training step)", candidate_parts(report)),
        Section(f"What each transform costs alone (ms for a batch of {batch})", op_parts(report)),
        Section("Other stages, each alone", stage_parts(report)),
        Section("Where the time of one step goes", bar_parts(report)),
        Section("To use it, with your dataset and your chain", snippet_parts(report)),
        Section("What would change this", what_if_parts(report)),
        Section("What this rests on", trust_parts(report)),
        Section("Measured with", setting_parts(report)),
    )
    return tuple(section for section in sections if section.parts)
