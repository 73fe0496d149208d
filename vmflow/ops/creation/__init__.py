"""Functions that make tensors of no others."""
