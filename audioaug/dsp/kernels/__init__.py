"""Kernels for NVIDIA GPUs, compiled by Triton; run by ``dsp.kernel``, whose twins of torch operations run elsewhere.

Modules here import triton: they are imported where a kernel runs, not before.
"""
