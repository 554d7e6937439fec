"""Kernels of our own for NVIDIA GPUs, compiled by Triton: imported where one runs (``dsp.kernel``), not before."""
