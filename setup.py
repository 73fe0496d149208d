"""Passes extension modules to setuptools, which pyproject.toml cannot declare."""

from __future__ import annotations

from setuptools import setup

import compiled_core

setup(**compiled_core.arguments)
