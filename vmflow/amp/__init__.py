"""Automatic mixed precision: ops in the dtype that suits them, and losses scaled so that small gradients survive."""

from .autocasting import autocast as autocast
from .autocasting import custom_bwd as custom_bwd
from .autocasting import custom_fwd as custom_fwd
from .autocasting import get_autocast_dtype as get_autocast_dtype
from .autocasting import is_autocast_available as is_autocast_available
from .autocasting import is_autocast_enabled as is_autocast_enabled
from .grad_scaler import GradScaler as GradScaler
