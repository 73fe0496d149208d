"""``vmflow.cuda``: CUDA devices under PyTorch's names.

Tensors go to ``device="cuda"``.  A GPU needs CuPy (``pip install 'vmflow[cuda]'``).  For tests,
``VMFLOW_CUDA=emulated`` runs the same programs on devices that are emulated on the CPU, which needs NVRTC
(``vmflow[cuda-check]``).  Support of CUDA is experimental.
"""

from __future__ import annotations

from vmflow.errors import OutOfMemory as OutOfMemory

from . import amp as amp
from .availability import why_not as why_not
from .memory import (
    empty_cache as empty_cache,
    max_memory_allocated as max_memory_allocated,
    max_memory_reserved as max_memory_reserved,
    mem_get_info as mem_get_info,
    memory_allocated as memory_allocated,
    memory_reserved as memory_reserved,
    memory_stats as memory_stats,
    reset_peak_memory_stats as reset_peak_memory_stats,
    set_per_process_memory_fraction as set_per_process_memory_fraction,
)
from .properties import (
    device_count as device_count,
    get_device_capability as get_device_capability,
    get_device_name as get_device_name,
    get_device_properties as get_device_properties,
    is_available as is_available,
    is_bf16_supported as is_bf16_supported,
    is_initialized as is_initialized,
)
from .random import (
    get_rng_state as get_rng_state,
    get_rng_state_all as get_rng_state_all,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    manual_seed_all as manual_seed_all,
    seed as seed,
    set_rng_state as set_rng_state,
    set_rng_state_all as set_rng_state_all,
)
from .selection import current_device as current_device, device as device, set_device as set_device
from .streams import (
    Event as Event,
    ExternalStream as ExternalStream,
    Stream as Stream,
    current_stream as current_stream,
    default_stream as default_stream,
    set_stream as set_stream,
    stream as stream,
)
from .synchronizing import synchronize as synchronize
from .typed_tensors import (
    BFloat16Tensor as BFloat16Tensor,
    BoolTensor as BoolTensor,
    ByteTensor as ByteTensor,
    CharTensor as CharTensor,
    DoubleTensor as DoubleTensor,
    FloatTensor as FloatTensor,
    HalfTensor as HalfTensor,
    IntTensor as IntTensor,
    LongTensor as LongTensor,
    ShortTensor as ShortTensor,
)

OutOfMemoryError = OutOfMemory
