"""vmflow: an eager-first deep-learning framework for Python programs that live on an event loop.

    import vmflow as flow

    y = model(x)      # issues instructions and returns at once
    y = await y       # suspends this coroutine until y is computed; in plain code just read it

The names and argument orders are PyTorch's and OneFlow's.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import autograd as autograd
from . import functions as _functions
from . import random as random
from .anomaly import detect_anomaly as detect_anomaly
from .anomaly import is_anomaly_enabled as is_anomaly_enabled
from .anomaly import set_detect_anomaly as set_detect_anomaly
from .autograd import enable_grad as enable_grad
from .autograd import inference_mode as inference_mode
from .autograd import is_grad_enabled as is_grad_enabled
from .autograd import no_grad as no_grad
from .autograd import set_grad_enabled as set_grad_enabled
from .devices import device as device
from .dtypes import bfloat16 as bfloat16
from .dtypes import bool_ as bool_
from .dtypes import complex64 as complex64
from .dtypes import complex128 as complex128
from .dtypes import dtype as dtype
from .dtypes import finfo as finfo
from .dtypes import float16 as float16
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import get_default_dtype as get_default_dtype
from .dtypes import iinfo as iinfo
from .dtypes import int8 as int8
from .dtypes import int16 as int16
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .dtypes import promote_types as promote_types
from .dtypes import set_default_dtype as set_default_dtype
from .dtypes import uint8 as uint8
from .errors import AnomalyDetected as AnomalyDetected
from .errors import BackPressureWarning as BackPressureWarning
from .errors import BlockingCallWarning as BlockingCallWarning
from .errors import Cancelled as Cancelled
from .errors import DeadlineExceeded as DeadlineExceeded
from .errors import DeviceLost as DeviceLost
from .errors import DeviceUnavailable as DeviceUnavailable
from .errors import InternalError as InternalError
from .errors import OutOfMemory as OutOfMemory
from .errors import RaceDetected as RaceDetected
from .errors import VirtualMachineClosed as VirtualMachineClosed
from .instructions.blob import Size as Size
from .kernels.intra_op import get_num_threads as get_num_threads
from .kernels.intra_op import set_num_threads as set_num_threads
from .ops import declaration as _declaration
from .random import Generator as Generator
from .random import default_generator as default_generator
from .scopes import current_scope as current_scope
from .scopes import scope as scope
from .tensors import Tensor as Tensor
from .vm.virtual_machine import VirtualMachine as VirtualMachine
from .vm.virtual_machine import checkpoint as checkpoint
from .vm.virtual_machine import synchronize as synchronize

# Second names.  Assigned, because type checkers take a name that was imported as another for a private one.
bool = bool_
cdouble = complex128
cfloat = complex64
double = float64
float = float32
half = float16
int = int32
long = int64
short = int16

globals().update(_declaration.FUNCTIONS)
_declaration.give_methods(Tensor)

if _TYPE_CHECKING:
    from . import amp as amp
    from . import array_api as array_api
    from . import backends as backends
    from . import cuda as cuda
    from . import distributions as distributions
    from . import einops as einops
    from . import fft as fft
    from . import func as func
    from . import graph_mode as graph
    from . import linalg as linalg
    from . import nn as nn
    from . import optim as optim
    from . import profiler as profiler
    from . import special as special
    from . import utils as utils
    from .amp.autocasting import autocast as autocast
    from .amp.autocasting import get_autocast_dtype as get_autocast_dtype
    from .amp.autocasting import is_autocast_enabled as is_autocast_enabled
    from .exchange import from_dlpack as from_dlpack
    from .functions import *
    from .graph_mode.functions import global_function as global_function
    from .graph_mode.loading import load_graph as load_graph
    from .graph_mode.session import clear_default_session as clear_default_session
    from .graph_mode.session import default_session as default_session
    from .info import show_config as show_config
    from .io import load as load
    from .io import save as save
    from .memory import empty_cache as empty_cache
    from .memory import max_memory_allocated as max_memory_allocated
    from .memory import memory_allocated as memory_allocated
    from .memory import memory_reserved as memory_reserved
    from .memory import memory_stats as memory_stats
    from .memory import reset_peak_memory_stats as reset_peak_memory_stats
    from .memory import set_memory_limit as set_memory_limit
    from .ops.einsum import einsum as einsum
    from .ops.ranges import empty_strided as empty_strided
    from .ops.ranges import logspace as logspace
    from .ops.ranges import tril_indices as tril_indices
    from .ops.ranges import triu_indices as triu_indices
    from .representation import get_printoptions as get_printoptions
    from .representation import printoptions as printoptions
    from .representation import set_printoptions as set_printoptions
    from .typed_tensors import BoolTensor as BoolTensor
    from .typed_tensors import ByteTensor as ByteTensor
    from .typed_tensors import DoubleTensor as DoubleTensor
    from .typed_tensors import FloatTensor as FloatTensor
    from .typed_tensors import HalfTensor as HalfTensor
    from .typed_tensors import IntTensor as IntTensor
    from .typed_tensors import LongTensor as LongTensor

__version__ = "0.1.0"

# Loaded on first use: many programs need none of them at once, and importing vmflow should cost little more than numpy.
_LAZY_MODULES = (
    "amp",
    "array_api",
    "backends",
    "cuda",
    "distributions",
    "einops",
    "fft",
    "func",
    "linalg",
    "nn",
    "optim",
    "profiler",
    "special",
    "utils",
)
_LAZY_NAMES = {
    "BoolTensor": ".typed_tensors",
    "ByteTensor": ".typed_tensors",
    "DoubleTensor": ".typed_tensors",
    "FloatTensor": ".typed_tensors",
    "HalfTensor": ".typed_tensors",
    "IntTensor": ".typed_tensors",
    "LongTensor": ".typed_tensors",
    "autocast": ".amp.autocasting",
    "clear_default_session": ".graph_mode.session",
    "default_session": ".graph_mode.session",
    "einsum": ".ops.einsum",
    "empty_cache": ".memory",
    "empty_strided": ".ops.ranges",
    "from_dlpack": ".exchange",
    "get_autocast_dtype": ".amp.autocasting",
    "get_printoptions": ".representation",
    "global_function": ".graph_mode.functions",
    "is_autocast_enabled": ".amp.autocasting",
    "load": ".io",
    "load_graph": ".graph_mode.loading",
    "logspace": ".ops.ranges",
    "max_memory_allocated": ".memory",
    "memory_allocated": ".memory",
    "memory_reserved": ".memory",
    "memory_stats": ".memory",
    "printoptions": ".representation",
    "reset_peak_memory_stats": ".memory",
    "save": ".io",
    "set_memory_limit": ".memory",
    "set_printoptions": ".representation",
    "show_config": ".info",
    "tril_indices": ".ops.ranges",
    "triu_indices": ".ops.ranges",
}


def __getattr__(name: str) -> object:
    if name == "graph":
        return _import_module(".graph_mode", __name__)
    if name in _LAZY_MODULES:
        return _import_module(f".{name}", __name__)
    if name in _LAZY_NAMES:
        found = globals()[name] = getattr(_import_module(_LAZY_NAMES[name], __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "graph", *_LAZY_MODULES, *_LAZY_NAMES])
