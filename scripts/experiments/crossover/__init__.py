"""From how many parameters on does a GPU pay? The parts of ``scripts/experiment_crossover.py``.

======== ========================================================================
circle   the data set, the networks whose widths double, an epoch of training
audio    the example model over clip length and batch size
crossing where one curve overtakes another, with an interval
recorded the GPU's times from another machine, where this one has none
======== ========================================================================
"""
