"""From torch's default DataLoader to the recommended plan. The parts of ``scripts/experiment_knobs.py``.

========== =========================================================================
feeding    the default DataLoader and its knobs as arms of a race
ladder     from one plan to another, a knob at a time, and each knob's share
model_step the step itself: mixed precision, accumulation, time and memory
starting   what an epoch's start costs, with and without persistent workers
hierarchy  how fast each level of this machine's memory is
watching   use of CPU, RAM and GPU while training, by ``audioaug.Monitor``
========== =========================================================================
"""
