"""CUDA devices emulated on the CPU: when work runs, what a kernel does, and what hardware would not tell."""
