"""Streams of NVIDIA GPUs, and what stands in for a GPU where there is none."""
