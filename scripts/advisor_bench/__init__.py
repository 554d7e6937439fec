"""The parts of ``scripts/bench_advisor.py``.

========= ================================================================================
records   what was found, as plain values that go to JSON and back
workloads real models, chains and data, and files that must be decoded
planted   faults with a known answer: work of known cost, a step that frees the cores
truth     every cell raced long enough; the advice beside it; a plan raced against itself
showing   tables and the sentences under them
========= ================================================================================
"""
