"""Automatic mixed precision: `autocast` chooses each op's dtype, `GradScaler` keeps small gradients from becoming 0."""

from .autocasting import (
    autocast as autocast,
    custom_bwd as custom_bwd,
    custom_fwd as custom_fwd,
    get_autocast_dtype as get_autocast_dtype,
    is_autocast_available as is_autocast_available,
    is_autocast_enabled as is_autocast_enabled,
)
from .grad_scaler import GradScaler as GradScaler
