"""vmflow: an eager-first deep-learning framework for Python programs that live on an event loop.

    import vmflow as flow

    y = model(x)      # issues instructions and returns at once
    y = await y       # suspends this coroutine until y is computed; in plain code just read it

The names and argument orders are PyTorch's and OneFlow's.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import autograd as autograd
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
from .ops import linear_algebra as _linear_algebra
from .ops import pseudo_inverse as _pseudo_inverse
from .ops.activation import erf as erf
from .ops.activation import log_softmax as log_softmax
from .ops.activation import relu as relu
from .ops.activation import relu_ as relu_
from .ops.activation import sigmoid as sigmoid
from .ops.activation import softmax as softmax
from .ops.activation import tanh as tanh
from .ops.arithmetic import abs as abs
from .ops.arithmetic import add as add
from .ops.arithmetic import addcdiv as addcdiv
from .ops.arithmetic import addcmul as addcmul
from .ops.arithmetic import atan2 as atan2
from .ops.arithmetic import conj as conj
from .ops.arithmetic import div as div
from .ops.arithmetic import floor_divide as floor_divide
from .ops.arithmetic import fmod as fmod
from .ops.arithmetic import lerp as lerp
from .ops.arithmetic import mul as mul
from .ops.arithmetic import neg as neg
from .ops.arithmetic import pow as pow
from .ops.arithmetic import reciprocal as reciprocal
from .ops.arithmetic import remainder as remainder
from .ops.arithmetic import sign as sign
from .ops.arithmetic import square as square
from .ops.arithmetic import sub as sub
from .ops.arrangement import atleast_1d as atleast_1d
from .ops.arrangement import atleast_2d as atleast_2d
from .ops.arrangement import atleast_3d as atleast_3d
from .ops.arrangement import block_diag as block_diag
from .ops.arrangement import cartesian_prod as cartesian_prod
from .ops.arrangement import column_stack as column_stack
from .ops.arrangement import combinations as combinations
from .ops.arrangement import diag_embed as diag_embed
from .ops.arrangement import diagflat as diagflat
from .ops.arrangement import dsplit as dsplit
from .ops.arrangement import dstack as dstack
from .ops.arrangement import hsplit as hsplit
from .ops.arrangement import rot90 as rot90
from .ops.arrangement import split_with_sizes as split_with_sizes
from .ops.arrangement import vsplit as vsplit
from .ops.closeness import allclose as allclose
from .ops.closeness import equal as equal
from .ops.closeness import isclose as isclose
from .ops.comparison import bitwise_and as bitwise_and
from .ops.comparison import bitwise_left_shift as bitwise_left_shift
from .ops.comparison import bitwise_not as bitwise_not
from .ops.comparison import bitwise_or as bitwise_or
from .ops.comparison import bitwise_right_shift as bitwise_right_shift
from .ops.comparison import bitwise_xor as bitwise_xor
from .ops.comparison import eq as eq
from .ops.comparison import ge as ge
from .ops.comparison import gt as gt
from .ops.comparison import isfinite as isfinite
from .ops.comparison import isinf as isinf
from .ops.comparison import isnan as isnan
from .ops.comparison import le as le
from .ops.comparison import logical_and as logical_and
from .ops.comparison import logical_not as logical_not
from .ops.comparison import logical_or as logical_or
from .ops.comparison import logical_xor as logical_xor
from .ops.comparison import lt as lt
from .ops.comparison import ne as ne
from .ops.complex_parts import complex as complex
from .ops.complex_parts import imag as imag
from .ops.complex_parts import real as real
from .ops.complex_parts import view_as_complex as view_as_complex
from .ops.complex_parts import view_as_real as view_as_real
from .ops.composed_reduction import count_nonzero as count_nonzero
from .ops.composed_reduction import logsumexp as logsumexp
from .ops.composed_reduction import nanmean as nanmean
from .ops.composed_reduction import nansum as nansum
from .ops.composed_reduction import norm as norm
from .ops.composed_reduction import std as std
from .ops.composed_reduction import std_mean as std_mean
from .ops.composed_reduction import var as var
from .ops.composed_reduction import var_mean as var_mean
from .ops.copying import cast as cast
from .ops.copying import clone as clone
from .ops.copying import fill as fill
from .ops.counting import argwhere as argwhere
from .ops.counting import bincount as bincount
from .ops.counting import histc as histc
from .ops.counting import histogram as histogram
from .ops.counting import unique as unique
from .ops.counting import unique_consecutive as unique_consecutive
from .ops.creation import arange as arange
from .ops.creation import as_tensor as as_tensor
from .ops.creation import empty as empty
from .ops.creation import empty_like as empty_like
from .ops.creation import eye as eye
from .ops.creation import from_numpy as from_numpy
from .ops.creation import full as full
from .ops.creation import full_like as full_like
from .ops.creation import linspace as linspace
from .ops.creation import ones as ones
from .ops.creation import ones_like as ones_like
from .ops.creation import set_default_device as set_default_device
from .ops.creation import tensor as tensor
from .ops.creation import zeros as zeros
from .ops.creation import zeros_like as zeros_like
from .ops.decompositions import cholesky_solve as cholesky_solve
from .ops.decompositions import logdet as logdet
from .ops.decompositions import slogdet as slogdet
from .ops.error_function import erfc as erfc
from .ops.error_function import erfinv as erfinv
from .ops.extrema import aminmax as aminmax
from .ops.extrema import argmax as argmax
from .ops.extrema import argmin as argmin
from .ops.extrema import max as max
from .ops.extrema import maximum as maximum
from .ops.extrema import min as min
from .ops.extrema import minimum as minimum
from .ops.flat_elements import masked_scatter as masked_scatter
from .ops.flat_elements import put as put
from .ops.flat_elements import take as take
from .ops.floating_point import copysign as copysign
from .ops.floating_point import fmax as fmax
from .ops.floating_point import fmin as fmin
from .ops.floating_point import heaviside as heaviside
from .ops.floating_point import nextafter as nextafter
from .ops.floating_point import positive as positive
from .ops.floating_point import signbit as signbit
from .ops.gamma_function import digamma as digamma
from .ops.gamma_function import lgamma as lgamma
from .ops.gamma_function import polygamma as polygamma
from .ops.gathering import gather as gather
from .ops.gathering import scatter as scatter
from .ops.gathering import scatter_add as scatter_add
from .ops.gathering import take_along_dim as take_along_dim
from .ops.index_expression import nonzero as nonzero
from .ops.indexing import index_add as index_add
from .ops.indexing import index_copy as index_copy
from .ops.indexing import index_fill as index_fill
from .ops.indexing import index_put as index_put
from .ops.indexing import index_select as index_select
from .ops.indexing import masked_select as masked_select
from .ops.inquiry import broadcast_shapes as broadcast_shapes
from .ops.inquiry import can_cast as can_cast
from .ops.inquiry import is_complex as is_complex
from .ops.inquiry import is_floating_point as is_floating_point
from .ops.inquiry import is_nonzero as is_nonzero
from .ops.inquiry import is_tensor as is_tensor
from .ops.inquiry import numel as numel
from .ops.inquiry import result_type as result_type
from .ops.joining import cat as cat
from .ops.joining import diag as diag
from .ops.joining import flip as flip
from .ops.joining import fliplr as fliplr
from .ops.joining import flipud as flipud
from .ops.joining import hstack as hstack
from .ops.joining import repeat_interleave as repeat_interleave
from .ops.joining import roll as roll
from .ops.joining import stack as stack
from .ops.joining import tile as tile
from .ops.joining import tril as tril
from .ops.joining import triu as triu
from .ops.joining import vstack as vstack
from .ops.linear_algebra import addmm as addmm
from .ops.linear_algebra import baddbmm as baddbmm
from .ops.linear_algebra import bmm as bmm
from .ops.linear_algebra import det as det
from .ops.linear_algebra import dot as dot
from .ops.linear_algebra import matmul as matmul
from .ops.linear_algebra import mm as mm
from .ops.linear_algebra import mv as mv
from .ops.linear_algebra import outer as outer
from .ops.linear_algebra import tensordot as tensordot
from .ops.matrix_functions import matrix_exp as matrix_exp
from .ops.matrix_functions import matrix_power as matrix_power
from .ops.matrix_products import chain_matmul as chain_matmul
from .ops.matrix_products import cross as cross
from .ops.matrix_products import inner as inner
from .ops.matrix_products import kron as kron
from .ops.matrix_products import trace as trace
from .ops.matrix_products import vdot as vdot
from .ops.numpy_names import accept_numpy_names as _accept_numpy_names
from .ops.ordering import argsort as argsort
from .ops.ordering import kthvalue as kthvalue
from .ops.ordering import median as median
from .ops.ordering import msort as msort
from .ops.ordering import sort as sort
from .ops.ordering import topk as topk
from .ops.quantiles import mode as mode
from .ops.quantiles import nanmedian as nanmedian
from .ops.quantiles import nanquantile as nanquantile
from .ops.quantiles import quantile as quantile
from .ops.reduction import all as all
from .ops.reduction import amax as amax
from .ops.reduction import amin as amin
from .ops.reduction import any as any
from .ops.reduction import mean as mean
from .ops.reduction import prod as prod
from .ops.reduction import sum as sum
from .ops.rounding import ceil as ceil
from .ops.rounding import floor as floor
from .ops.rounding import frac as frac
from .ops.rounding import round as round
from .ops.rounding import trunc as trunc
from .ops.running import cummax as cummax
from .ops.running import cummin as cummin
from .ops.running import logcumsumexp as logcumsumexp
from .ops.running_sums import cumprod as cumprod
from .ops.running_sums import cumsum as cumsum
from .ops.scatter_reduction import index_reduce as index_reduce
from .ops.scatter_reduction import scatter_reduce as scatter_reduce
from .ops.searching import bucketize as bucketize
from .ops.searching import isin as isin
from .ops.searching import searchsorted as searchsorted
from .ops.selection import clamp as clamp
from .ops.selection import clamp_max as clamp_max
from .ops.selection import clamp_min as clamp_min
from .ops.selection import masked_fill as masked_fill
from .ops.selection import nan_to_num as nan_to_num
from .ops.selection import where as where
from .ops.statistics import cdist as cdist
from .ops.statistics import corrcoef as corrcoef
from .ops.statistics import cov as cov
from .ops.statistics import diff as diff
from .ops.statistics import trapezoid as trapezoid
from .ops.strided import as_strided as as_strided
from .ops.strided import diagonal_scatter as diagonal_scatter
from .ops.strided import select_scatter as select_scatter
from .ops.strided import slice_scatter as slice_scatter
from .ops.transcendental import acos as acos
from .ops.transcendental import acosh as acosh
from .ops.transcendental import asin as asin
from .ops.transcendental import asinh as asinh
from .ops.transcendental import atan as atan
from .ops.transcendental import atanh as atanh
from .ops.transcendental import cos as cos
from .ops.transcendental import cosh as cosh
from .ops.transcendental import deg2rad as deg2rad
from .ops.transcendental import exp as exp
from .ops.transcendental import exp2 as exp2
from .ops.transcendental import expm1 as expm1
from .ops.transcendental import hypot as hypot
from .ops.transcendental import log as log
from .ops.transcendental import log1p as log1p
from .ops.transcendental import log2 as log2
from .ops.transcendental import log10 as log10
from .ops.transcendental import logaddexp as logaddexp
from .ops.transcendental import logaddexp2 as logaddexp2
from .ops.transcendental import logit as logit
from .ops.transcendental import rad2deg as rad2deg
from .ops.transcendental import rsqrt as rsqrt
from .ops.transcendental import sin as sin
from .ops.transcendental import sinc as sinc
from .ops.transcendental import sinh as sinh
from .ops.transcendental import sqrt as sqrt
from .ops.transcendental import tan as tan
from .ops.transcendental import xlogy as xlogy
from .ops.view import broadcast_tensors as broadcast_tensors
from .ops.view import broadcast_to as broadcast_to
from .ops.view import chunk as chunk
from .ops.view import diagonal as diagonal
from .ops.view import flatten as flatten
from .ops.view import meshgrid as meshgrid
from .ops.view import movedim as movedim
from .ops.view import narrow as narrow
from .ops.view import permute as permute
from .ops.view import ravel as ravel
from .ops.view import reshape as reshape
from .ops.view import select as select
from .ops.view import split as split
from .ops.view import squeeze as squeeze
from .ops.view import t as t
from .ops.view import tensor_split as tensor_split
from .ops.view import transpose as transpose
from .ops.view import unbind as unbind
from .ops.view import unflatten as unflatten
from .ops.view import unsqueeze as unsqueeze
from .random import Generator as Generator
from .random import bernoulli as bernoulli
from .random import default_generator as default_generator
from .random import fork_rng as fork_rng
from .random import get_rng_state as get_rng_state
from .random import initial_seed as initial_seed
from .random import manual_seed as manual_seed
from .random import multinomial as multinomial
from .random import normal as normal
from .random import rand as rand
from .random import rand_like as rand_like
from .random import randint as randint
from .random import randn as randn
from .random import randn_like as randn_like
from .random import randperm as randperm
from .random import seed as seed
from .random import set_rng_state as set_rng_state
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
absolute = abs
clip = clamp
divide = div
greater = gt
greater_equal = ge
less = lt
less_equal = le
multiply = mul
negative = neg
not_equal = ne
subtract = sub
true_divide = div
concat = cat
concatenate = cat
moveaxis = movedim
swapaxes = transpose
swapdims = transpose
inverse = _linear_algebra.inv
pinverse = _pseudo_inverse.pinv

_accept_numpy_names(globals(), Tensor)

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
