"""Packages that only those need who serve over HTTP."""

from __future__ import annotations

import importlib
from typing import Any


def required(module: str, extra: str, what: str) -> Any:
    """A module of a package that an extra installs.

    Args:
        module: its name.
        extra: of vmflow.
        what: needs it, for the message.

    Raises:
        ImportError: if it is not installed; says how to.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{what} needs the package {package}; in a checkout of vmflow, install it with: pip install '.[{extra}]'"
        ) from error
