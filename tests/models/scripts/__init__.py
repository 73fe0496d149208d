"""Programs as users of PyTorch write them; `tests.models.running` runs them, on vmflow with the imports changed."""
