"""What pyproject.toml cannot say: that a part of the project may be compiled."""

from __future__ import annotations

from setuptools import setup

import compiled_core

setup(**compiled_core.arguments)
