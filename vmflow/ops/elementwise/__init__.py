"""Ops that treat each element alone, by family."""
