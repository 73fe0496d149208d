"""The functions of `vmflow`.

Written by ``.ci/declarations.py`` from the declarations of the functions; see `vmflow.ops.declaration`.
"""

from typing import TYPE_CHECKING

from .autograd import methods as methods
from .ops import activation as activation
from .ops import arithmetic as arithmetic
from .ops import arrangement as arrangement
from .ops import closeness as closeness
from .ops import comparison as comparison
from .ops import complex_parts as complex_parts
from .ops import composed_reduction as composed_reduction
from .ops import conversion as conversion
from .ops import copying as copying
from .ops import counting as counting
from .ops import creation as creation
from .ops import decompositions as decompositions
from .ops import extrema as extrema
from .ops import flat_elements as flat_elements
from .ops import floating_point as floating_point
from .ops import gamma_function as gamma_function
from .ops import gathering as gathering
from .ops import in_place as in_place
from .ops import index_expression as index_expression
from .ops import indexing as indexing
from .ops import inquiry as inquiry
from .ops import joining as joining
from .ops import linear_algebra as linear_algebra
from .ops import matrix_functions as matrix_functions
from .ops import matrix_products as matrix_products
from .ops import ordering as ordering
from .ops import pointwise as pointwise
from .ops import pseudo_inverse as pseudo_inverse
from .ops import quantiles as quantiles
from .ops import reduction as reduction
from .ops import rounding as rounding
from .ops import running as running
from .ops import running_sums as running_sums
from .ops import scatter_reduction as scatter_reduction
from .ops import searching as searching
from .ops import selection as selection
from .ops import statistics as statistics
from .ops import strided as strided
from .ops import transcendental as transcendental
from .ops import view as view
from . import protocols as protocols
from . import random as random

if TYPE_CHECKING:
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
    from .ops.error_function import erf as erf
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
    from .ops.linear_algebra import inv as _inv
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
    from .ops.ordering import argsort as argsort
    from .ops.ordering import kthvalue as kthvalue
    from .ops.ordering import median as median
    from .ops.ordering import msort as msort
    from .ops.ordering import sort as sort
    from .ops.ordering import topk as topk
    from .ops.pseudo_inverse import pinv as _pinv
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
    from .ops.selection import fill as fill
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
    from .ops.transcendental import log10 as log10
    from .ops.transcendental import log1p as log1p
    from .ops.transcendental import log2 as log2
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
    from .random import bernoulli as bernoulli
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

    absolute = abs
    clip = clamp
    concat = cat
    concatenate = cat
    divide = div
    greater = gt
    greater_equal = ge
    inverse = _inv
    less = lt
    less_equal = le
    moveaxis = movedim
    multiply = mul
    negative = neg
    not_equal = ne
    pinverse = _pinv
    subtract = sub
    swapaxes = transpose
    swapdims = transpose
    true_divide = div

    __all__ = [
        "abs",
        "absolute",
        "acos",
        "acosh",
        "add",
        "addcdiv",
        "addcmul",
        "addmm",
        "all",
        "allclose",
        "amax",
        "amin",
        "aminmax",
        "any",
        "arange",
        "argmax",
        "argmin",
        "argsort",
        "argwhere",
        "as_strided",
        "as_tensor",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "baddbmm",
        "bernoulli",
        "bincount",
        "bitwise_and",
        "bitwise_left_shift",
        "bitwise_not",
        "bitwise_or",
        "bitwise_right_shift",
        "bitwise_xor",
        "block_diag",
        "bmm",
        "broadcast_shapes",
        "broadcast_tensors",
        "broadcast_to",
        "bucketize",
        "can_cast",
        "cartesian_prod",
        "cast",
        "cat",
        "cdist",
        "ceil",
        "chain_matmul",
        "cholesky_solve",
        "chunk",
        "clamp",
        "clamp_max",
        "clamp_min",
        "clip",
        "clone",
        "column_stack",
        "combinations",
        "complex",
        "concat",
        "concatenate",
        "conj",
        "copysign",
        "corrcoef",
        "cos",
        "cosh",
        "count_nonzero",
        "cov",
        "cross",
        "cummax",
        "cummin",
        "cumprod",
        "cumsum",
        "deg2rad",
        "det",
        "diag",
        "diag_embed",
        "diagflat",
        "diagonal",
        "diagonal_scatter",
        "diff",
        "digamma",
        "div",
        "divide",
        "dot",
        "dsplit",
        "dstack",
        "empty",
        "empty_like",
        "eq",
        "equal",
        "erf",
        "erfc",
        "erfinv",
        "exp",
        "exp2",
        "expm1",
        "eye",
        "fill",
        "flatten",
        "flip",
        "fliplr",
        "flipud",
        "floor",
        "floor_divide",
        "fmax",
        "fmin",
        "fmod",
        "fork_rng",
        "frac",
        "from_numpy",
        "full",
        "full_like",
        "gather",
        "ge",
        "get_rng_state",
        "greater",
        "greater_equal",
        "gt",
        "heaviside",
        "histc",
        "histogram",
        "hsplit",
        "hstack",
        "hypot",
        "imag",
        "index_add",
        "index_copy",
        "index_fill",
        "index_put",
        "index_reduce",
        "index_select",
        "initial_seed",
        "inner",
        "inverse",
        "is_complex",
        "is_floating_point",
        "is_nonzero",
        "is_tensor",
        "isclose",
        "isfinite",
        "isin",
        "isinf",
        "isnan",
        "kron",
        "kthvalue",
        "le",
        "lerp",
        "less",
        "less_equal",
        "lgamma",
        "linspace",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_softmax",
        "logaddexp",
        "logaddexp2",
        "logcumsumexp",
        "logdet",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "logit",
        "logsumexp",
        "lt",
        "manual_seed",
        "masked_fill",
        "masked_scatter",
        "masked_select",
        "matmul",
        "matrix_exp",
        "matrix_power",
        "max",
        "maximum",
        "mean",
        "median",
        "meshgrid",
        "min",
        "minimum",
        "mm",
        "mode",
        "moveaxis",
        "movedim",
        "msort",
        "mul",
        "multinomial",
        "multiply",
        "mv",
        "nan_to_num",
        "nanmean",
        "nanmedian",
        "nanquantile",
        "nansum",
        "narrow",
        "ne",
        "neg",
        "negative",
        "nextafter",
        "nonzero",
        "norm",
        "normal",
        "not_equal",
        "numel",
        "ones",
        "ones_like",
        "outer",
        "permute",
        "pinverse",
        "polygamma",
        "positive",
        "pow",
        "prod",
        "put",
        "quantile",
        "rad2deg",
        "rand",
        "rand_like",
        "randint",
        "randn",
        "randn_like",
        "randperm",
        "ravel",
        "real",
        "reciprocal",
        "relu",
        "relu_",
        "remainder",
        "repeat_interleave",
        "reshape",
        "result_type",
        "roll",
        "rot90",
        "round",
        "rsqrt",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "searchsorted",
        "seed",
        "select",
        "select_scatter",
        "set_default_device",
        "set_rng_state",
        "sigmoid",
        "sign",
        "signbit",
        "sin",
        "sinc",
        "sinh",
        "slice_scatter",
        "slogdet",
        "softmax",
        "sort",
        "split",
        "split_with_sizes",
        "sqrt",
        "square",
        "squeeze",
        "stack",
        "std",
        "std_mean",
        "sub",
        "subtract",
        "sum",
        "swapaxes",
        "swapdims",
        "t",
        "take",
        "take_along_dim",
        "tan",
        "tanh",
        "tensor",
        "tensor_split",
        "tensordot",
        "tile",
        "topk",
        "trace",
        "transpose",
        "trapezoid",
        "tril",
        "triu",
        "true_divide",
        "trunc",
        "unbind",
        "unflatten",
        "unique",
        "unique_consecutive",
        "unsqueeze",
        "var",
        "var_mean",
        "vdot",
        "view_as_complex",
        "view_as_real",
        "vsplit",
        "vstack",
        "where",
        "xlogy",
        "zeros",
        "zeros_like",
    ]
