"""Where should augmentation run? The parts of ``scripts/experiment_placement.py``.

=========== ==============================================================
target      what is trained
stages      what each stage costs alone
prediction  the map: step times of other models, chains, workers and cores
training    a point of the map, measured
convolution both sides over the length of the impulse response
=========== ==============================================================
"""
