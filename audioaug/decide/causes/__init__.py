"""Causes: why a training step takes longer than the model alone.

Each is a function of a ``Case`` that returns a sentence with a number and the next step, or an empty string if it does
not apply. ``machine``: limits and load of the machine; ``model``: the training step itself; ``loading``: the data path;
``advice``: the reliability of the advice. ``audioaug.decide.diagnose`` orders them.
"""
