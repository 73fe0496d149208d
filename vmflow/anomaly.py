"""`detect_anomaly`: find the op that makes nan or inf out of finite numbers."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

import numpy as np

from .context import MODE
from .errors import AnomalyDetected
from .instructions.blob import Array
from .instructions.op_call import Kernel

# Ops whose results are uninitialised memory, where nan and inf mean nothing.
_UNCOMPUTED: Final = ("empty",)


class detect_anomaly:
    """A block in which an op fails with `AnomalyDetected` if its result has nan or inf and its operands have none.

    The exception names the op, its shapes and the line that issued it.  A backward pass is checked if `backward` is
    called in the block.  Ops on CUDA devices, exchanges between ranks, steps of optimizers and calls of graphs are not
    checked.

    Args:
        enabled: False turns checking off in this block, also within a block that is checked.
        check_nan: PyTorch's argument; False turns checking off, too.

    Raises:
        AnomalyDetected: when a result made in the block is read.

    Example:
        >>> with flow.detect_anomaly():
        ...     flow.log(flow.tensor(-1.0)).item()
        Traceback (most recent call last):
        vmflow.errors.AnomalyDetected: log made nan out of finite numbers...
    """

    def __init__(self, enabled: bool = True, check_nan: bool = True) -> None:
        self.enabled = enabled and check_nan
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_set(self.enabled))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before.pop())


class set_detect_anomaly:
    """Switch the check of op results for nan and inf on or off, for this thread or task and tasks it starts later.

    The call itself switches, not ``with``; the end of a ``with`` block switches back.  See `detect_anomaly`.  Raises no
    errors itself.

    Args:
        mode: whether to check.
        check_nan: PyTorch's argument; False switches the check off, too.

    Example:
        >>> with flow.autograd.set_detect_anomaly(True):
        ...     flow.is_anomaly_enabled()
        True
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _set(mode and check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before)


def is_anomaly_enabled() -> bool:
    """Whether results of ops that this thread or task issues are checked for nan and inf; see `detect_anomaly`.

    Example:
        >>> flow.is_anomaly_enabled()
        False
    """
    return MODE.get().anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """The same as `is_anomaly_enabled`.

    Example:
        >>> flow.is_anomaly_check_nan_enabled()
        False
    """
    return MODE.get().anomaly


def _set(enabled: bool) -> bool:
    mode = MODE.get()
    if mode.anomaly != enabled:
        MODE.set(mode.replace(anomaly=enabled))
    return mode.anomaly


def checked(name: str, kernel: Kernel) -> Kernel:
    """Wrap the kernel of op `name`, except "empty", to raise `AnomalyDetected` if finite operands give nan or inf."""
    if name in _UNCOMPUTED:
        return kernel

    def check(*arguments: Any) -> Any:
        # Operands are checked before the kernel runs, since it may write its result over one of them.
        were_finite = all([_finite(argument) for argument in arguments[:-1]])
        result = kernel(*arguments)
        results = result if isinstance(result, tuple) else (result,)
        if were_finite and not all([_finite(array) for array in results]):
            kinds = "nan" if any([bool(np.isnan(array).any()) for array in results if _is_inexact(array)]) else "inf"
            raise AnomalyDetected(f"{name} made {kinds} out of finite numbers")
        return result

    return check


def _finite(value: Any) -> bool:
    return not _is_inexact(value) or bool(np.isfinite(value).all())


def _is_inexact(value: Any) -> bool:
    if isinstance(value, (float, complex)):
        return True
    # ml_dtypes' bfloat16 has numpy's kind "V" like a raw type, but np.isfinite and np.isnan take it.
    array: Array = value
    return isinstance(array, (np.ndarray, np.generic)) and (array.dtype.kind in "fc" or array.dtype.name == "bfloat16")
