"""Keeps pytest from importing the programs, which import torch."""

collect_ignore = ["scripts"]
