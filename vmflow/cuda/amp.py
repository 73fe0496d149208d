"""``vmflow.cuda.amp``: the older names of `vmflow.amp`, for CUDA devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmflow.amp import (
    GradScaler as _GradScaler,
    autocast as _autocast,
    custom_bwd as _custom_bwd,
    custom_fwd as _custom_fwd,
)
from vmflow.dtypes import dtype as DType, float16

from .properties import is_available


def autocast(enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> _autocast:
    """The same as ``vmflow.autocast("cuda", ...)``."""
    return _autocast("cuda", dtype, enabled, cache_enabled)


def GradScaler(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    enabled: bool = True,
) -> _GradScaler:
    """The same as ``vmflow.amp.GradScaler("cuda", ...)``; disabled also if no CUDA device can be used."""
    on = enabled and is_available()
    return _GradScaler("cuda", init_scale, growth_factor, backoff_factor, growth_interval, on)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: DType | None = None) -> Callable[..., Any]:
    """The same as ``vmflow.amp.custom_fwd(..., device_type="cuda")``."""
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The same as ``vmflow.amp.custom_bwd(..., device_type="cuda")``."""
    return _custom_bwd(bwd, device_type="cuda")
