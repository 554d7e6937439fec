"""The parts of ``scripts/bench_engine.py``.

========= ===========================================================================
records   what was measured, as plain values that go to JSON and back
engines   one chain as a callable on one batch, by each library
fitting   which sizes fit into memory and time
measuring times, kernels, waits and memory of them; how cost grows
workers   the worker engines, in workers
wrapper   what the engine costs the host for each op, whatever that does
showing   a table for the terminal, a chart for people
========= ===========================================================================
"""
