"""PyTorch's switches for algorithms whose results do not change from run to run.

All of vmflow's algorithms are deterministic: sums are taken in a fixed order, and random numbers depend on the seed and
the ops issued before.  The same program computes the same bits in every run on the same machine with the same
libraries, once its C kernels are compiled.  So the switches are remembered, and change nothing.
"""

from __future__ import annotations

from typing import Final

_MODES: Final = ("default", "warn", "error")


class _Setting:
    mode = 0


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for algorithms that give the same bits in every run; changes no results, since vmflow has no others.

    Set ``flow.backends.codegen.mode = "wait"`` for a first run, in which C kernels are still being compiled.

    Args:
        mode: whether to ask for such algorithms.
        warn_only: whether a nondeterministic algorithm would cause a warning instead of an error.

    Raises:
        TypeError: if an argument is no bool.

    Example:
        >>> flow.use_deterministic_algorithms(False)
    """
    for name, given in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(given, bool):
            raise TypeError(f"use_deterministic_algorithms: {name} must be True or False, not {given!r}")
    _Setting.mode = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """Whether the program has asked for deterministic algorithms; vmflow always uses them.

    Example:
        >>> flow.are_deterministic_algorithms_enabled()
        False
    """
    return _Setting.mode != 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether deterministic algorithms were asked for with ``warn_only=True``, or by the debug mode "warn".

    Example:
        >>> flow.is_deterministic_algorithms_warn_only_enabled()
        False
    """
    return _Setting.mode == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Set the mode of `use_deterministic_algorithms` by a number or a name: 0 "default", 1 "warn", 2 "error".

    Raises:
        TypeError: if `debug_mode` is no int or string, or is a bool.
        ValueError: for another number or name.

    Example:
        >>> flow.set_deterministic_debug_mode("default")
    """
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, (int, str)):
        raise TypeError(f"set_deterministic_debug_mode: expected a number or a name, not {debug_mode!r}")
    if debug_mode not in (*_MODES, 0, 1, 2):
        raise ValueError(
            f"set_deterministic_debug_mode: expected 0 or 'default', 1 or 'warn', or 2 or 'error', not {debug_mode!r}"
        )
    _Setting.mode = _MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode


def get_deterministic_debug_mode() -> int:
    """The number that `set_deterministic_debug_mode` or `use_deterministic_algorithms` has set: 0, 1 or 2; at first 0.

    Example:
        >>> flow.get_deterministic_debug_mode()
        0
    """
    return _Setting.mode
