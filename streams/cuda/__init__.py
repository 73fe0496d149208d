"""CUDA below the virtual machine: drivers, streams, events and memory, on a GPU or emulated on the CPU."""
