"""vmflow: an eager-first deep-learning framework for Python programs that live on an event loop.

    import vmflow as flow

    y = model(x)      # issues ops, and need not wait for their results
    y = await y       # suspends this coroutine until y is computed; in plain code just read it

The names and argument orders are PyTorch's and OneFlow's.
"""

from importlib import import_module as _import_module
from math import e as e, inf as inf, nan as nan, pi as pi
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import autograd as autograd, functions as _functions, random as random
from .anomaly import (
    detect_anomaly as detect_anomaly,
    is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled,
    is_anomaly_enabled as is_anomaly_enabled,
    set_detect_anomaly as set_detect_anomaly,
)
from .autograd import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from .devices import device as device
from .dtypes import (
    bfloat16 as bfloat16,
    bool_ as bool_,
    complex64 as complex64,
    complex128 as complex128,
    dtype as dtype,
    finfo as finfo,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    get_default_dtype as get_default_dtype,
    iinfo as iinfo,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    promote_types as promote_types,
    set_default_dtype as set_default_dtype,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from .errors import (
    AnomalyDetected as AnomalyDetected,
    BackPressureWarning as BackPressureWarning,
    BlockingCallWarning as BlockingCallWarning,
    Cancelled as Cancelled,
    DeadlineExceeded as DeadlineExceeded,
    DeviceLost as DeviceLost,
    DeviceUnavailable as DeviceUnavailable,
    InternalError as InternalError,
    OutOfMemory as OutOfMemory,
    RaceDetected as RaceDetected,
    VirtualMachineClosed as VirtualMachineClosed,
)
from .instructions.blob import Size as Size
from .kernels.intra_op import get_num_threads as get_num_threads, set_num_threads as set_num_threads
from .memory_formats import (
    channels_last as channels_last,
    channels_last_3d as channels_last_3d,
    contiguous_format as contiguous_format,
    memory_format as memory_format,
    preserve_format as preserve_format,
)
from .ops import declaration as _declaration
from .random import Generator as Generator, default_generator as default_generator
from .scopes import current_scope as current_scope, scope as scope
from .tensors import Tensor as Tensor
from .vm.virtual_machine import VirtualMachine as VirtualMachine, checkpoint as checkpoint, synchronize as synchronize

# PyTorch's second names of dtypes and an exception.  They are assigned, because type checkers take ``import x as y``
# for a private name.
bool = bool_
cdouble = complex128
cfloat = complex64
double = float64
float = float32
half = float16
int = int32
long = int64
short = int16
OutOfMemoryError = OutOfMemory

newaxis = None  # as in NumPy: an index that adds an axis of size 1

globals().update(_declaration.FUNCTIONS)
globals().update(_declaration.in_place_functions())
_declaration.give_methods(Tensor, _functions.LATE_METHODS)

if _TYPE_CHECKING:
    from . import (
        amp as amp,
        array_api as array_api,
        backends as backends,
        cuda as cuda,
        distributed as distributed,
        distributions as distributions,
        einops as einops,
        env as env,
        fft as fft,
        func as func,
        graph_mode as graph,
        linalg as linalg,
        nn as nn,
        optim as optim,
        profiler as profiler,
        serving as serving,
        special as special,
        utils as utils,
    )
    from .amp import GradScaler as GradScaler
    from .amp.autocasting import (
        autocast as autocast,
        get_autocast_dtype as get_autocast_dtype,
        is_autocast_enabled as is_autocast_enabled,
    )
    from .cuda import Event as Event, Stream as Stream
    from .determinism import (
        are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
        get_deterministic_debug_mode as get_deterministic_debug_mode,
        is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
        set_deterministic_debug_mode as set_deterministic_debug_mode,
        use_deterministic_algorithms as use_deterministic_algorithms,
    )
    from .distributed import sbp as sbp
    from .distributed.comm_scope import comm_scope as comm_scope
    from .distributed.placement import placement as placement
    from .exchange import from_dlpack as from_dlpack
    from .functions import *
    from .graph_mode.functions import global_function as global_function
    from .graph_mode.loading import load_graph as load_graph
    from .graph_mode.session import clear_default_session as clear_default_session, default_session as default_session
    from .info import show_config as show_config
    from .io import load as load, save as save
    from .memory import (
        empty_cache as empty_cache,
        max_memory_allocated as max_memory_allocated,
        memory_allocated as memory_allocated,
        memory_reserved as memory_reserved,
        memory_stats as memory_stats,
        reset_peak_memory_stats as reset_peak_memory_stats,
        set_memory_limit as set_memory_limit,
    )
    from .nn.functional import (
        adaptive_avg_pool1d as adaptive_avg_pool1d,
        avg_pool1d as avg_pool1d,
        bilinear as bilinear,
        channel_shuffle as channel_shuffle,
        conv1d as conv1d,
        conv2d as conv2d,
        conv3d as conv3d,
        conv_transpose1d as conv_transpose1d,
        conv_transpose2d as conv_transpose2d,
        conv_transpose3d as conv_transpose3d,
        cosine_similarity as cosine_similarity,
        group_norm as group_norm,
        layer_norm as layer_norm,
        max_pool1d as max_pool1d,
        max_pool2d as max_pool2d,
        max_pool3d as max_pool3d,
        pairwise_distance as pairwise_distance,
        pdist as pdist,
        pixel_shuffle as pixel_shuffle,
        pixel_unshuffle as pixel_unshuffle,
        rms_norm as rms_norm,
    )
    from .nn.top_level import (
        adaptive_max_pool1d as adaptive_max_pool1d,
        affine_grid_generator as affine_grid_generator,
        alpha_dropout as alpha_dropout,
        alpha_dropout_ as alpha_dropout_,
        batch_norm as batch_norm,
        binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
        cosine_embedding_loss as cosine_embedding_loss,
        ctc_loss as ctc_loss,
        dropout as dropout,
        dropout_ as dropout_,
        embedding as embedding,
        feature_alpha_dropout as feature_alpha_dropout,
        feature_alpha_dropout_ as feature_alpha_dropout_,
        hinge_embedding_loss as hinge_embedding_loss,
        instance_norm as instance_norm,
        kl_div as kl_div,
        margin_ranking_loss as margin_ranking_loss,
        poisson_nll_loss as poisson_nll_loss,
        triplet_margin_loss as triplet_margin_loss,
    )
    from .representation import (
        get_printoptions as get_printoptions,
        printoptions as printoptions,
        set_printoptions as set_printoptions,
    )
    from .storages import TypedStorage as TypedStorage, UntypedStorage as UntypedStorage, is_storage as is_storage
    from .streams.cuda.precision import (
        get_float32_matmul_precision as get_float32_matmul_precision,
        set_float32_matmul_precision as set_float32_matmul_precision,
    )
    from .nn import ModuleDict as ModuleDict, ParameterDict as ParameterDict
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
        set_default_tensor_type as set_default_tensor_type,
    )

__version__ = "0.1.0"

# Modules imported on first use: few programs need all of them, and vmflow should import almost as fast as numpy.
_LAZY_MODULES = (
    "amp",
    "array_api",
    "backends",
    "cuda",
    "distributed",
    "distributions",
    "einops",
    "env",
    "fft",
    "func",
    "linalg",
    "nn",
    "optim",
    "profiler",
    "serving",
    "special",
    "utils",
)
_LAZY_NAMES = {
    "BFloat16Tensor": ".typed_tensors",
    "BoolTensor": ".typed_tensors",
    "ByteTensor": ".typed_tensors",
    "CharTensor": ".typed_tensors",
    "DoubleTensor": ".typed_tensors",
    "Event": ".cuda",
    "FloatTensor": ".typed_tensors",
    "GradScaler": ".amp",
    "HalfTensor": ".typed_tensors",
    "IntTensor": ".typed_tensors",
    "LongTensor": ".typed_tensors",
    "ModuleDict": ".nn",
    "ParameterDict": ".nn",
    "ShortTensor": ".typed_tensors",
    "Stream": ".cuda",
    "TypedStorage": ".storages",
    "UntypedStorage": ".storages",
    "are_deterministic_algorithms_enabled": ".determinism",
    "autocast": ".amp.autocasting",
    "clear_default_session": ".graph_mode.session",
    "default_session": ".graph_mode.session",
    "empty_cache": ".memory",
    "from_dlpack": ".exchange",
    "get_autocast_dtype": ".amp.autocasting",
    "get_deterministic_debug_mode": ".determinism",
    "get_float32_matmul_precision": ".streams.cuda.precision",
    "get_printoptions": ".representation",
    "global_function": ".graph_mode.functions",
    "is_autocast_enabled": ".amp.autocasting",
    "is_deterministic_algorithms_warn_only_enabled": ".determinism",
    "is_storage": ".storages",
    "load": ".io",
    "load_graph": ".graph_mode.loading",
    "max_memory_allocated": ".memory",
    "memory_allocated": ".memory",
    "memory_reserved": ".memory",
    "memory_stats": ".memory",
    "comm_scope": ".distributed.comm_scope",
    "placement": ".distributed.placement",
    "printoptions": ".representation",
    "reset_peak_memory_stats": ".memory",
    "save": ".io",
    "set_default_tensor_type": ".typed_tensors",
    "set_deterministic_debug_mode": ".determinism",
    "set_float32_matmul_precision": ".streams.cuda.precision",
    "set_memory_limit": ".memory",
    "set_printoptions": ".representation",
    "show_config": ".info",
    "use_deterministic_algorithms": ".determinism",
}

# Layers' functions that PyTorch has at its top level, too, by the module that has them; see `vmflow.nn.top_level`.
_LAYER_FUNCTIONS = {
    ".nn.functional": (
        "adaptive_avg_pool1d",
        "avg_pool1d",
        "bilinear",
        "channel_shuffle",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "cosine_similarity",
        "group_norm",
        "layer_norm",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "pairwise_distance",
        "pdist",
        "pixel_shuffle",
        "pixel_unshuffle",
        "rms_norm",
    ),
    ".nn.top_level": (
        "adaptive_max_pool1d",
        "affine_grid_generator",
        "alpha_dropout",
        "alpha_dropout_",
        "batch_norm",
        "binary_cross_entropy_with_logits",
        "cosine_embedding_loss",
        "ctc_loss",
        "dropout",
        "dropout_",
        "embedding",
        "feature_alpha_dropout",
        "feature_alpha_dropout_",
        "hinge_embedding_loss",
        "instance_norm",
        "kl_div",
        "margin_ranking_loss",
        "poisson_nll_loss",
        "triplet_margin_loss",
    ),
}
_LAZY_NAMES.update({name: home for home, names in _LAYER_FUNCTIONS.items() for name in names})


def __getattr__(name: str) -> object:
    if name == "graph":
        return _import_module(".graph_mode", __name__)
    if name == "sbp":
        return _import_module(".distributed.sbp", __name__)
    if name in _LAZY_MODULES:
        return _import_module(f".{name}", __name__)
    if name in _LAZY_NAMES:
        found = globals()[name] = getattr(_import_module(_LAZY_NAMES[name], __name__), name)
        return found
    if name in _functions.LATE_FUNCTIONS:
        declared = globals()[name] = _declaration.late_function(name, _functions.LATE_FUNCTIONS[name])
        return declared
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "graph", "sbp", *_LAZY_MODULES, *_LAZY_NAMES, *_functions.LATE_FUNCTIONS])
