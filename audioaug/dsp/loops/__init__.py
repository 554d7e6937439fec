"""Loops over samples, compiled for CPUs; run by ``dsp.compiled``, whose twins of torch operations run elsewhere.

Modules here import numba: they are imported where a loop runs, not before.

Each loop takes as its last two arguments from which row to which it goes, and needs no lock of Python's.
"""
