"""Ops that read or write chosen elements."""
