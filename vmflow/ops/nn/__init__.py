"""Ops of layers."""
