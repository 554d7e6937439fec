"""The report as one page: its sections in reading order, without those that have nothing to say."""

from audioaug.records import Report
from audioaug.report.bars import bar_parts
from audioaug.report.candidates import candidate_parts
from audioaug.report.costs import op_parts, stage_parts
from audioaug.report.parts import Section
from audioaug.report.sentences import headline_parts, setting_parts, trust_parts, what_if_parts
from audioaug.report.snippet import snippet_parts


def page(report: Report) -> tuple[Section, ...]:
    """Answer first, then the evidence, then what to do, then how far to trust it."""
    batch = report.workload.batch_size
    sections = (
        Section("", headline_parts(report)),
        Section("Ways to run this chain, fastest first (times of one training step)", candidate_parts(report)),
        Section(f"What each transform costs alone (ms for a batch of {batch})", op_parts(report)),
        Section("What else a step is made of, each alone", stage_parts(report)),
        Section("Where the time of one step goes", bar_parts(report)),
        Section("To use it, with your dataset and your chain", snippet_parts(report)),
        Section("What would change this", what_if_parts(report)),
        Section("What this rests on", trust_parts(report)),
        Section("Measured with", setting_parts(report)),
    )
    return tuple(section for section in sections if section.parts)
