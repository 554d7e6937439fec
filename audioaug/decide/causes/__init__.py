"""Causes: why a training step takes longer than the model alone, or why that is not to be had.

Each is a function of a ``Case`` that returns its sentence, with a number and the next step, or an empty string where it
does not hold. ``machine`` has what the machine allows, ``model`` what is in the step itself, ``loading`` what is in the
way of the data, ``advice`` what to know of the advice. ``audioaug.decide.diagnose`` puts them in order.
"""
