"""Functions that make tensors from data and sizes."""
