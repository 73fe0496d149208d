"""Imports of packages that only serving over HTTP needs."""

from __future__ import annotations

import importlib
from typing import Any


def required(module: str, extra: str, feature: str) -> Any:
    """Import a module of a package that an extra of vmflow installs.

    Args:
        module: the name of the module.
        extra: the extra that installs it.
        feature: the part of vmflow that needs the module; for the message.

    Raises:
        ImportError: if the module cannot be imported; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{feature} needs the package {package}; in a checkout of vmflow, install it with: pip install '.[{extra}]'"
        ) from error
