"""Names that users of PyTorch, OneFlow and numpy reach for: each is called, and compared with its oracle."""
