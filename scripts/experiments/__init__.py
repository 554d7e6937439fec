"""What the scripts ``experiment_*.py`` are made of: published claims, put to the test on this machine.

========== ===========================================================================
claims     what is claimed, beside what was found here, and whether it holds
command    the command line that all share: options, progress, JSON, errors
showing    how numbers are written that several of them print
races      ways to feed one training loop, raced, and their speeds as paired ratios
notebook   for the notebooks: a script's results, tables, players
listening  one clip through both builds of an op, to see and to hear
placement  where should augmentation run?
knobs      from torch's default DataLoader to the recommended plan, knob by knob
crossover  from how many parameters on does a GPU pay?
throughput how fast does a small network train, and what makes it faster?
========== ===========================================================================

Each experiment is a package: ``records`` (what was measured, as plain values), ``claims`` (what was found about each),
``showing`` (text for the terminal), and the rest measures.
"""
