"""Pure batched functions on audio, without randomness: filters and FFTs, levels, noise from keys, fades.

Each primitive has its implementations side by side: torch operations, a loop for CPUs, a kernel for NVIDIA GPUs, which
is in a file of its own, since Triton may be missing. ``dispatch`` picks one.
"""
