"""Elementwise ops, by family."""
