"""Ops that reduce dimensions, sort, search or accumulate along them."""
