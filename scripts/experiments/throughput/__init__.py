"""How fast does a small network train, and what makes it faster? The parts of ``scripts/experiment_throughput.py``.

============== ===========================================================================
network        the network, its data, an epoch in either precision and any batch size
loading        the same data through DataLoaders, and copies on a stream of their own
tracing        a profiler's trace of an epoch, and where its time goes
scaling        over processes with torchrun; ``scaling_worker`` is what torchrun starts
choices        kinds of work on each device: when to choose which
============== ===========================================================================
"""
