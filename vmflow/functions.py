"""The functions of `vmflow`.

Written by ``.ci/declarations.py`` from the declarations of the functions; see `vmflow.ops.declaration`.
"""

from typing import TYPE_CHECKING, Final

from .autograd import methods as methods
from .ops import conversion as conversion
from .ops import copying as copying
from .ops.creation import creation as creation
from .ops.elementwise import arithmetic as arithmetic
from .ops.elementwise import comparison as comparison
from .ops.elementwise import complex_parts as complex_parts
from .ops.elementwise import pointwise as pointwise
from .ops.elementwise import selection as selection
from .ops.elementwise import transcendental as transcendental
from .ops import in_place as in_place
from .ops.indexing import gathering as gathering
from .ops.indexing import index_expression as index_expression
from .ops.indexing import indexing as indexing
from .ops.shape import joining as joining
from .ops.shape import view as view
from . import pinning as pinning
from . import protocols as protocols
from . import random as random

if TYPE_CHECKING:
    from .autograd.methods import detach as detach
    from .autograd.methods import detach_ as detach_
    from .ops.copying import cast as cast
    from .ops.copying import clone as clone
    from .ops.copying import zero_ as zero_
    from .ops.creation.creation import arange as arange
    from .ops.creation.creation import as_tensor as as_tensor
    from .ops.creation.creation import asarray as asarray
    from .ops.creation.creation import empty as empty
    from .ops.creation.creation import empty_like as empty_like
    from .ops.creation.creation import eye as eye
    from .ops.creation.creation import from_numpy as from_numpy
    from .ops.creation.creation import frombuffer as frombuffer
    from .ops.creation.creation import full as full
    from .ops.creation.creation import full_like as full_like
    from .ops.creation.creation import get_default_device as get_default_device
    from .ops.creation.creation import linspace as linspace
    from .ops.creation.creation import ones as ones
    from .ops.creation.creation import ones_like as ones_like
    from .ops.creation.creation import scalar_tensor as scalar_tensor
    from .ops.creation.creation import set_default_device as set_default_device
    from .ops.creation.creation import tensor as tensor
    from .ops.creation.creation import zeros as zeros
    from .ops.creation.creation import zeros_like as zeros_like
    from .ops.creation.ranges import empty_strided as empty_strided
    from .ops.creation.ranges import logspace as logspace
    from .ops.creation.ranges import tril_indices as tril_indices
    from .ops.creation.ranges import triu_indices as triu_indices
    from .ops.creation.windows import bartlett_window as bartlett_window
    from .ops.creation.windows import blackman_window as blackman_window
    from .ops.creation.windows import hamming_window as hamming_window
    from .ops.creation.windows import hann_window as hann_window
    from .ops.creation.windows import kaiser_window as kaiser_window
    from .ops.elementwise.activation import gelu as gelu
    from .ops.elementwise.activation import log_softmax as log_softmax
    from .ops.elementwise.activation import relu as relu
    from .ops.elementwise.activation import relu_ as relu_
    from .ops.elementwise.activation import sigmoid as sigmoid
    from .ops.elementwise.activation import silu as silu
    from .ops.elementwise.activation import softmax as softmax
    from .ops.elementwise.activation import softplus as softplus
    from .ops.elementwise.activation import tanh as tanh
    from .ops.elementwise.arithmetic import abs as abs
    from .ops.elementwise.arithmetic import abs as absolute
    from .ops.elementwise.arithmetic import add as add
    from .ops.elementwise.arithmetic import add_n as add_n
    from .ops.elementwise.arithmetic import addcdiv as addcdiv
    from .ops.elementwise.arithmetic import addcmul as addcmul
    from .ops.elementwise.arithmetic import adjoint as adjoint
    from .ops.elementwise.arithmetic import atan2 as arctan2
    from .ops.elementwise.arithmetic import atan2 as atan2
    from .ops.elementwise.arithmetic import conj as conj
    from .ops.elementwise.arithmetic import div as div
    from .ops.elementwise.arithmetic import div as divide
    from .ops.elementwise.arithmetic import div as true_divide
    from .ops.elementwise.arithmetic import float_power as float_power
    from .ops.elementwise.arithmetic import floor_divide as floor_divide
    from .ops.elementwise.arithmetic import fmod as fmod
    from .ops.elementwise.arithmetic import gcd as gcd
    from .ops.elementwise.arithmetic import lcm as lcm
    from .ops.elementwise.arithmetic import lerp as lerp
    from .ops.elementwise.arithmetic import mul as mul
    from .ops.elementwise.arithmetic import mul as multiply
    from .ops.elementwise.arithmetic import neg as neg
    from .ops.elementwise.arithmetic import neg as negative
    from .ops.elementwise.arithmetic import pow as pow
    from .ops.elementwise.arithmetic import reciprocal as reciprocal
    from .ops.elementwise.arithmetic import remainder as remainder
    from .ops.elementwise.arithmetic import rsub as rsub
    from .ops.elementwise.arithmetic import sign as sign
    from .ops.elementwise.arithmetic import square as square
    from .ops.elementwise.arithmetic import sub as sub
    from .ops.elementwise.arithmetic import sub as subtract
    from .ops.elementwise.closeness import allclose as allclose
    from .ops.elementwise.closeness import equal as equal
    from .ops.elementwise.closeness import isclose as isclose
    from .ops.elementwise.comparison import bitwise_and as bitwise_and
    from .ops.elementwise.comparison import bitwise_left_shift as bitwise_left_shift
    from .ops.elementwise.comparison import bitwise_not as bitwise_not
    from .ops.elementwise.comparison import bitwise_or as bitwise_or
    from .ops.elementwise.comparison import bitwise_right_shift as bitwise_right_shift
    from .ops.elementwise.comparison import bitwise_xor as bitwise_xor
    from .ops.elementwise.comparison import eq as eq
    from .ops.elementwise.comparison import ge as ge
    from .ops.elementwise.comparison import ge as greater_equal
    from .ops.elementwise.comparison import gt as greater
    from .ops.elementwise.comparison import gt as gt
    from .ops.elementwise.comparison import isfinite as isfinite
    from .ops.elementwise.comparison import isinf as isinf
    from .ops.elementwise.comparison import isnan as isnan
    from .ops.elementwise.comparison import isneginf as isneginf
    from .ops.elementwise.comparison import isposinf as isposinf
    from .ops.elementwise.comparison import le as le
    from .ops.elementwise.comparison import le as less_equal
    from .ops.elementwise.comparison import logical_and as logical_and
    from .ops.elementwise.comparison import logical_not as logical_not
    from .ops.elementwise.comparison import logical_or as logical_or
    from .ops.elementwise.comparison import logical_xor as logical_xor
    from .ops.elementwise.comparison import lt as less
    from .ops.elementwise.comparison import lt as lt
    from .ops.elementwise.comparison import ne as ne
    from .ops.elementwise.comparison import ne as not_equal
    from .ops.elementwise.complex_parts import angle as angle
    from .ops.elementwise.complex_parts import complex as complex
    from .ops.elementwise.complex_parts import conj_physical as conj_physical
    from .ops.elementwise.complex_parts import imag as imag
    from .ops.elementwise.complex_parts import is_conj as is_conj
    from .ops.elementwise.complex_parts import is_neg as is_neg
    from .ops.elementwise.complex_parts import isreal as isreal
    from .ops.elementwise.complex_parts import polar as polar
    from .ops.elementwise.complex_parts import real as real
    from .ops.elementwise.complex_parts import resolve_conj as resolve_conj
    from .ops.elementwise.complex_parts import resolve_neg as resolve_neg
    from .ops.elementwise.complex_parts import sgn as sgn
    from .ops.elementwise.complex_parts import view_as_complex as view_as_complex
    from .ops.elementwise.complex_parts import view_as_real as view_as_real
    from .ops.elementwise.error_function import erf as erf
    from .ops.elementwise.error_function import erfc as erfc
    from .ops.elementwise.error_function import erfinv as erfinv
    from .ops.elementwise.floating_point import copysign as copysign
    from .ops.elementwise.floating_point import fmax as fmax
    from .ops.elementwise.floating_point import fmin as fmin
    from .ops.elementwise.floating_point import frexp as frexp
    from .ops.elementwise.floating_point import heaviside as heaviside
    from .ops.elementwise.floating_point import ldexp as ldexp
    from .ops.elementwise.floating_point import nextafter as nextafter
    from .ops.elementwise.floating_point import positive as positive
    from .ops.elementwise.floating_point import signbit as signbit
    from .ops.elementwise.gamma_function import digamma as digamma
    from .ops.elementwise.gamma_function import lgamma as lgamma
    from .ops.elementwise.gamma_function import polygamma as polygamma
    from .ops.elementwise.gating import mish as mish
    from .ops.elementwise.gating import softsign as softsign
    from .ops.elementwise.piecewise import celu as celu
    from .ops.elementwise.piecewise import celu_ as celu_
    from .ops.elementwise.piecewise import hardshrink as hardshrink
    from .ops.elementwise.piecewise import prelu as prelu
    from .ops.elementwise.piecewise import rrelu as rrelu
    from .ops.elementwise.piecewise import rrelu_ as rrelu_
    from .ops.elementwise.piecewise import selu as selu
    from .ops.elementwise.piecewise import selu_ as selu_
    from .ops.elementwise.piecewise import threshold as threshold
    from .ops.elementwise.piecewise import threshold_ as threshold_
    from .ops.elementwise.rounding import ceil as ceil
    from .ops.elementwise.rounding import floor as floor
    from .ops.elementwise.rounding import frac as frac
    from .ops.elementwise.rounding import round as round
    from .ops.elementwise.rounding import trunc as fix
    from .ops.elementwise.rounding import trunc as trunc
    from .ops.elementwise.selection import clamp as clamp
    from .ops.elementwise.selection import clamp as clip
    from .ops.elementwise.selection import clamp_max as clamp_max
    from .ops.elementwise.selection import clamp_min as clamp_min
    from .ops.elementwise.selection import fill as fill
    from .ops.elementwise.selection import masked_fill as masked_fill
    from .ops.elementwise.selection import nan_to_num as nan_to_num
    from .ops.elementwise.selection import where as where
    from .ops.elementwise.special_functions import i0 as i0
    from .ops.elementwise.special_functions import igamma as igamma
    from .ops.elementwise.special_functions import igammac as igammac
    from .ops.elementwise.special_functions import mvlgamma as mvlgamma
    from .ops.elementwise.transcendental import acos as acos
    from .ops.elementwise.transcendental import acos as arccos
    from .ops.elementwise.transcendental import acosh as acosh
    from .ops.elementwise.transcendental import acosh as arccosh
    from .ops.elementwise.transcendental import asin as arcsin
    from .ops.elementwise.transcendental import asin as asin
    from .ops.elementwise.transcendental import asinh as arcsinh
    from .ops.elementwise.transcendental import asinh as asinh
    from .ops.elementwise.transcendental import atan as arctan
    from .ops.elementwise.transcendental import atan as atan
    from .ops.elementwise.transcendental import atanh as arctanh
    from .ops.elementwise.transcendental import atanh as atanh
    from .ops.elementwise.transcendental import cos as cos
    from .ops.elementwise.transcendental import cosh as cosh
    from .ops.elementwise.transcendental import deg2rad as deg2rad
    from .ops.elementwise.transcendental import exp as exp
    from .ops.elementwise.transcendental import exp2 as exp2
    from .ops.elementwise.transcendental import expm1 as expm1
    from .ops.elementwise.transcendental import hypot as hypot
    from .ops.elementwise.transcendental import log as log
    from .ops.elementwise.transcendental import log10 as log10
    from .ops.elementwise.transcendental import log1p as log1p
    from .ops.elementwise.transcendental import log2 as log2
    from .ops.elementwise.transcendental import logaddexp as logaddexp
    from .ops.elementwise.transcendental import logaddexp2 as logaddexp2
    from .ops.elementwise.transcendental import logit as logit
    from .ops.elementwise.transcendental import rad2deg as rad2deg
    from .ops.elementwise.transcendental import rsqrt as rsqrt
    from .ops.elementwise.transcendental import sin as sin
    from .ops.elementwise.transcendental import sinc as sinc
    from .ops.elementwise.transcendental import sinh as sinh
    from .ops.elementwise.transcendental import sqrt as sqrt
    from .ops.elementwise.transcendental import tan as tan
    from .ops.elementwise.transcendental import xlogy as xlogy
    from .ops.fourier.short_time import istft as istft
    from .ops.fourier.short_time import stft as stft
    from .ops.indexing.gathering import gather as gather
    from .ops.indexing.gathering import scatter as scatter
    from .ops.indexing.gathering import scatter_add as scatter_add
    from .ops.indexing.gathering import take_along_dim as take_along_dim
    from .ops.indexing.index_expression import nonzero as nonzero
    from .ops.indexing.indexing import index_add as index_add
    from .ops.indexing.indexing import index_copy as index_copy
    from .ops.indexing.indexing import index_fill as index_fill
    from .ops.indexing.indexing import index_put as index_put
    from .ops.indexing.indexing import index_select as index_select
    from .ops.indexing.indexing import masked_select as masked_select
    from .ops.indexing.parts import batch_gather as batch_gather
    from .ops.indexing.parts import in_top_k as in_top_k
    from .ops.indexing.parts import slice as slice
    from .ops.indexing.parts import slice_update as slice_update
    from .ops.indexing.scatter_reduction import index_reduce as index_reduce
    from .ops.indexing.scatter_reduction import scatter_reduce as scatter_reduce
    from .ops.inquiry import broadcast_shapes as broadcast_shapes
    from .ops.inquiry import can_cast as can_cast
    from .ops.inquiry import get_device as get_device
    from .ops.inquiry import is_complex as is_complex
    from .ops.inquiry import is_floating_point as is_floating_point
    from .ops.inquiry import is_inference as is_inference
    from .ops.inquiry import is_nonzero as is_nonzero
    from .ops.inquiry import is_same_size as is_same_size
    from .ops.inquiry import is_signed as is_signed
    from .ops.inquiry import is_tensor as is_tensor
    from .ops.inquiry import numel as numel
    from .ops.inquiry import result_type as result_type
    from .ops.linalg.composed import vander as vander
    from .ops.linalg.decompositions import cholesky_inverse as cholesky_inverse
    from .ops.linalg.decompositions import cholesky_of as cholesky
    from .ops.linalg.decompositions import cholesky_solve as cholesky_solve
    from .ops.linalg.decompositions import householder_product as orgqr
    from .ops.linalg.decompositions import logdet as logdet
    from .ops.linalg.decompositions import qr_of as qr
    from .ops.linalg.decompositions import slogdet as slogdet
    from .ops.linalg.decompositions import svd_of as svd
    from .ops.linalg.einsum import einsum as einsum
    from .ops.linalg.linear_algebra import addbmm as addbmm
    from .ops.linalg.linear_algebra import addmm as addmm
    from .ops.linalg.linear_algebra import addmv as addmv
    from .ops.linalg.linear_algebra import addr as addr
    from .ops.linalg.linear_algebra import baddbmm as baddbmm
    from .ops.linalg.linear_algebra import bmm as bmm
    from .ops.linalg.linear_algebra import det as det
    from .ops.linalg.linear_algebra import dot as dot
    from .ops.linalg.linear_algebra import inv as inverse
    from .ops.linalg.linear_algebra import matmul as matmul
    from .ops.linalg.linear_algebra import mm as mm
    from .ops.linalg.linear_algebra import mv as mv
    from .ops.linalg.linear_algebra import outer as ger
    from .ops.linalg.linear_algebra import outer as outer
    from .ops.linalg.linear_algebra import tensordot as tensordot
    from .ops.linalg.matrix_functions import matrix_exp as matrix_exp
    from .ops.linalg.matrix_functions import matrix_power as matrix_power
    from .ops.linalg.matrix_products import chain_matmul as chain_matmul
    from .ops.linalg.matrix_products import cross as cross
    from .ops.linalg.matrix_products import inner as inner
    from .ops.linalg.matrix_products import kron as kron
    from .ops.linalg.matrix_products import trace as trace
    from .ops.linalg.matrix_products import vdot as vdot
    from .ops.linalg.pseudo_inverse import pinv as pinverse
    from .ops.linalg.triangular_factors import lu_packed as lu
    from .ops.linalg.triangular_factors import lu_unpack as lu_unpack
    from .ops.linalg.triangular_factors import solve_by_lu as lu_solve
    from .ops.nn.quantization import fake_quantize_per_channel_affine as fake_quantize_per_channel_affine
    from .ops.nn.quantization import fake_quantize_per_tensor_affine as fake_quantize_per_tensor_affine
    from .ops.nn.regions import roi_align as roi_align
    from .ops.reduction.composed_reduction import count_nonzero as count_nonzero
    from .ops.reduction.composed_reduction import logsumexp as logsumexp
    from .ops.reduction.composed_reduction import nanmean as nanmean
    from .ops.reduction.composed_reduction import nansum as nansum
    from .ops.reduction.composed_reduction import norm as norm
    from .ops.reduction.composed_reduction import renorm as renorm
    from .ops.reduction.composed_reduction import std as std
    from .ops.reduction.composed_reduction import std_mean as std_mean
    from .ops.reduction.composed_reduction import var as var
    from .ops.reduction.composed_reduction import var_mean as var_mean
    from .ops.reduction.counting import argwhere as argwhere
    from .ops.reduction.counting import bincount as bincount
    from .ops.reduction.counting import histc as histc
    from .ops.reduction.counting import histogram as histogram
    from .ops.reduction.counting import unique as unique
    from .ops.reduction.counting import unique_consecutive as unique_consecutive
    from .ops.reduction.extrema import aminmax as aminmax
    from .ops.reduction.extrema import argmax as argmax
    from .ops.reduction.extrema import argmin as argmin
    from .ops.reduction.extrema import max as max
    from .ops.reduction.extrema import maximum as maximum
    from .ops.reduction.extrema import min as min
    from .ops.reduction.extrema import minimum as minimum
    from .ops.reduction.ordering import argsort as argsort
    from .ops.reduction.ordering import kthvalue as kthvalue
    from .ops.reduction.ordering import median as median
    from .ops.reduction.ordering import msort as msort
    from .ops.reduction.ordering import sort as sort
    from .ops.reduction.ordering import topk as topk
    from .ops.reduction.quantiles import mode as mode
    from .ops.reduction.quantiles import nanmedian as nanmedian
    from .ops.reduction.quantiles import nanquantile as nanquantile
    from .ops.reduction.quantiles import quantile as quantile
    from .ops.reduction.reduction import all as all
    from .ops.reduction.reduction import amax as amax
    from .ops.reduction.reduction import amin as amin
    from .ops.reduction.reduction import any as any
    from .ops.reduction.reduction import mean as mean
    from .ops.reduction.reduction import prod as prod
    from .ops.reduction.reduction import sum as sum
    from .ops.reduction.running import cummax as cummax
    from .ops.reduction.running import cummin as cummin
    from .ops.reduction.running import logcumsumexp as logcumsumexp
    from .ops.reduction.running_sums import cumprod as cumprod
    from .ops.reduction.running_sums import cumsum as cumsum
    from .ops.reduction.searching import bucketize as bucketize
    from .ops.reduction.searching import isin as isin
    from .ops.reduction.searching import searchsorted as searchsorted
    from .ops.reduction.statistics import cdist as cdist
    from .ops.reduction.statistics import corrcoef as corrcoef
    from .ops.reduction.statistics import cov as cov
    from .ops.reduction.statistics import cumulative_trapezoid as cumulative_trapezoid
    from .ops.reduction.statistics import diff as diff
    from .ops.reduction.statistics import dist as dist
    from .ops.reduction.statistics import gradient as gradient
    from .ops.reduction.statistics import trapezoid as trapezoid
    from .ops.reduction.statistics import trapezoid as trapz
    from .ops.shape.arrangement import atleast_1d as atleast_1d
    from .ops.shape.arrangement import atleast_2d as atleast_2d
    from .ops.shape.arrangement import atleast_3d as atleast_3d
    from .ops.shape.arrangement import block_diag as block_diag
    from .ops.shape.arrangement import cartesian_prod as cartesian_prod
    from .ops.shape.arrangement import column_stack as column_stack
    from .ops.shape.arrangement import combinations as combinations
    from .ops.shape.arrangement import diag_embed as diag_embed
    from .ops.shape.arrangement import diagflat as diagflat
    from .ops.shape.arrangement import dsplit as dsplit
    from .ops.shape.arrangement import dstack as dstack
    from .ops.shape.arrangement import hsplit as hsplit
    from .ops.shape.arrangement import rot90 as rot90
    from .ops.shape.arrangement import split_with_sizes as split_with_sizes
    from .ops.shape.arrangement import split_with_sizes as unsafe_split_with_sizes
    from .ops.shape.arrangement import vsplit as vsplit
    from .ops.shape.flat_elements import masked_scatter as masked_scatter
    from .ops.shape.flat_elements import put as put
    from .ops.shape.flat_elements import take as take
    from .ops.shape.flat_elements import unravel_index as unravel_index
    from .ops.shape.joining import cat as cat
    from .ops.shape.joining import cat as concat
    from .ops.shape.joining import cat as concatenate
    from .ops.shape.joining import diag as diag
    from .ops.shape.joining import flip as flip
    from .ops.shape.joining import fliplr as fliplr
    from .ops.shape.joining import flipud as flipud
    from .ops.shape.joining import hstack as hstack
    from .ops.shape.joining import repeat_interleave as repeat_interleave
    from .ops.shape.joining import roll as roll
    from .ops.shape.joining import stack as stack
    from .ops.shape.joining import tile as tile
    from .ops.shape.joining import tril as tril
    from .ops.shape.joining import triu as triu
    from .ops.shape.joining import vstack as row_stack
    from .ops.shape.joining import vstack as vstack
    from .ops.shape.strided import as_strided as as_strided
    from .ops.shape.strided import as_strided_scatter as as_strided_scatter
    from .ops.shape.strided import diagonal_scatter as diagonal_scatter
    from .ops.shape.strided import select_scatter as select_scatter
    from .ops.shape.strided import slice_scatter as slice_scatter
    from .ops.shape.view import broadcast_tensors as broadcast_tensors
    from .ops.shape.view import broadcast_to as broadcast_to
    from .ops.shape.view import chunk as chunk
    from .ops.shape.view import chunk as unsafe_chunk
    from .ops.shape.view import diagonal as diagonal
    from .ops.shape.view import flatten as flatten
    from .ops.shape.view import meshgrid as meshgrid
    from .ops.shape.view import movedim as moveaxis
    from .ops.shape.view import movedim as movedim
    from .ops.shape.view import narrow as narrow
    from .ops.shape.view import narrow_copy as narrow_copy
    from .ops.shape.view import permute as permute
    from .ops.shape.view import ravel as ravel
    from .ops.shape.view import reshape as reshape
    from .ops.shape.view import select as select
    from .ops.shape.view import split as split
    from .ops.shape.view import split as unsafe_split
    from .ops.shape.view import squeeze as squeeze
    from .ops.shape.view import t as t
    from .ops.shape.view import tensor_split as tensor_split
    from .ops.shape.view import transpose as swapaxes
    from .ops.shape.view import transpose as swapdims
    from .ops.shape.view import transpose as transpose
    from .ops.shape.view import unbind as unbind
    from .ops.shape.view import unflatten as unflatten
    from .ops.shape.view import unsqueeze as unsqueeze
    from .random import bernoulli as bernoulli
    from .random import fork_rng as fork_rng
    from .random import get_rng_state as get_rng_state
    from .random import initial_seed as initial_seed
    from .random import manual_seed as manual_seed
    from .random import multinomial as multinomial
    from .random import normal as normal
    from .random import poisson as poisson
    from .random import rand as rand
    from .random import rand_like as rand_like
    from .random import randint as randint
    from .random import randint_like as randint_like
    from .random import randn as randn
    from .random import randn_like as randn_like
    from .random import randperm as randperm
    from .random import seed as seed
    from .random import set_rng_state as set_rng_state
    from .tensors import Tensor

    abs_ = Tensor.abs_
    absolute_ = Tensor.absolute_
    acos_ = Tensor.acos_
    acosh_ = Tensor.acosh_
    add_ = Tensor.add_
    addbmm_ = Tensor.addbmm_
    addcdiv_ = Tensor.addcdiv_
    addcmul_ = Tensor.addcmul_
    addmm_ = Tensor.addmm_
    addmv_ = Tensor.addmv_
    addr_ = Tensor.addr_
    arccos_ = Tensor.arccos_
    arccosh_ = Tensor.arccosh_
    arcsin_ = Tensor.arcsin_
    arcsinh_ = Tensor.arcsinh_
    arctan2_ = Tensor.arctan2_
    arctan_ = Tensor.arctan_
    arctanh_ = Tensor.arctanh_
    as_strided_ = Tensor.as_strided_
    asin_ = Tensor.asin_
    asinh_ = Tensor.asinh_
    atan2_ = Tensor.atan2_
    atan_ = Tensor.atan_
    atanh_ = Tensor.atanh_
    baddbmm_ = Tensor.baddbmm_
    bernoulli_ = Tensor.bernoulli_
    bitwise_and_ = Tensor.bitwise_and_
    bitwise_left_shift_ = Tensor.bitwise_left_shift_
    bitwise_not_ = Tensor.bitwise_not_
    bitwise_or_ = Tensor.bitwise_or_
    bitwise_right_shift_ = Tensor.bitwise_right_shift_
    bitwise_xor_ = Tensor.bitwise_xor_
    ceil_ = Tensor.ceil_
    clamp_ = Tensor.clamp_
    clamp_max_ = Tensor.clamp_max_
    clamp_min_ = Tensor.clamp_min_
    clip_ = Tensor.clip_
    conj_physical_ = Tensor.conj_physical_
    copysign_ = Tensor.copysign_
    cos_ = Tensor.cos_
    cosh_ = Tensor.cosh_
    cumprod_ = Tensor.cumprod_
    cumsum_ = Tensor.cumsum_
    deg2rad_ = Tensor.deg2rad_
    digamma_ = Tensor.digamma_
    div_ = Tensor.div_
    divide_ = Tensor.divide_
    eq_ = Tensor.eq_
    erf_ = Tensor.erf_
    erfc_ = Tensor.erfc_
    erfinv_ = Tensor.erfinv_
    exp2_ = Tensor.exp2_
    exp_ = Tensor.exp_
    expm1_ = Tensor.expm1_
    fill_ = Tensor.fill_
    fix_ = Tensor.fix_
    float_power_ = Tensor.float_power_
    floor_ = Tensor.floor_
    floor_divide_ = Tensor.floor_divide_
    fmod_ = Tensor.fmod_
    frac_ = Tensor.frac_
    gcd_ = Tensor.gcd_
    ge_ = Tensor.ge_
    greater_ = Tensor.greater_
    greater_equal_ = Tensor.greater_equal_
    gt_ = Tensor.gt_
    heaviside_ = Tensor.heaviside_
    hypot_ = Tensor.hypot_
    i0_ = Tensor.i0_
    igamma_ = Tensor.igamma_
    igammac_ = Tensor.igammac_
    index_add_ = Tensor.index_add_
    index_copy_ = Tensor.index_copy_
    index_fill_ = Tensor.index_fill_
    index_put_ = Tensor.index_put_
    index_reduce_ = Tensor.index_reduce_
    lcm_ = Tensor.lcm_
    ldexp_ = Tensor.ldexp_
    le_ = Tensor.le_
    lerp_ = Tensor.lerp_
    less_ = Tensor.less_
    less_equal_ = Tensor.less_equal_
    lgamma_ = Tensor.lgamma_
    log10_ = Tensor.log10_
    log1p_ = Tensor.log1p_
    log2_ = Tensor.log2_
    log_ = Tensor.log_
    logical_and_ = Tensor.logical_and_
    logical_not_ = Tensor.logical_not_
    logical_or_ = Tensor.logical_or_
    logical_xor_ = Tensor.logical_xor_
    logit_ = Tensor.logit_
    lt_ = Tensor.lt_
    masked_fill_ = Tensor.masked_fill_
    masked_scatter_ = Tensor.masked_scatter_
    mul_ = Tensor.mul_
    multiply_ = Tensor.multiply_
    mvlgamma_ = Tensor.mvlgamma_
    nan_to_num_ = Tensor.nan_to_num_
    ne_ = Tensor.ne_
    neg_ = Tensor.neg_
    negative_ = Tensor.negative_
    nextafter_ = Tensor.nextafter_
    normal_ = Tensor.normal_
    not_equal_ = Tensor.not_equal_
    polygamma_ = Tensor.polygamma_
    pow_ = Tensor.pow_
    put_ = Tensor.put_
    rad2deg_ = Tensor.rad2deg_
    reciprocal_ = Tensor.reciprocal_
    remainder_ = Tensor.remainder_
    renorm_ = Tensor.renorm_
    round_ = Tensor.round_
    rsqrt_ = Tensor.rsqrt_
    scatter_ = Tensor.scatter_
    scatter_add_ = Tensor.scatter_add_
    scatter_reduce_ = Tensor.scatter_reduce_
    sgn_ = Tensor.sgn_
    sigmoid_ = Tensor.sigmoid_
    sign_ = Tensor.sign_
    sin_ = Tensor.sin_
    sinc_ = Tensor.sinc_
    sinh_ = Tensor.sinh_
    sqrt_ = Tensor.sqrt_
    square_ = Tensor.square_
    squeeze_ = Tensor.squeeze_
    sub_ = Tensor.sub_
    subtract_ = Tensor.subtract_
    swapaxes_ = Tensor.swapaxes_
    swapdims_ = Tensor.swapdims_
    t_ = Tensor.t_
    tan_ = Tensor.tan_
    tanh_ = Tensor.tanh_
    transpose_ = Tensor.transpose_
    tril_ = Tensor.tril_
    triu_ = Tensor.triu_
    true_divide_ = Tensor.true_divide_
    trunc_ = Tensor.trunc_
    unsqueeze_ = Tensor.unsqueeze_
    xlogy_ = Tensor.xlogy_

    __all__ = [
        "abs",
        "abs_",
        "absolute",
        "absolute_",
        "acos",
        "acos_",
        "acosh",
        "acosh_",
        "add",
        "add_",
        "add_n",
        "addbmm",
        "addbmm_",
        "addcdiv",
        "addcdiv_",
        "addcmul",
        "addcmul_",
        "addmm",
        "addmm_",
        "addmv",
        "addmv_",
        "addr",
        "addr_",
        "adjoint",
        "all",
        "allclose",
        "amax",
        "amin",
        "aminmax",
        "angle",
        "any",
        "arange",
        "arccos",
        "arccos_",
        "arccosh",
        "arccosh_",
        "arcsin",
        "arcsin_",
        "arcsinh",
        "arcsinh_",
        "arctan",
        "arctan2",
        "arctan2_",
        "arctan_",
        "arctanh",
        "arctanh_",
        "argmax",
        "argmin",
        "argsort",
        "argwhere",
        "as_strided",
        "as_strided_",
        "as_strided_scatter",
        "as_tensor",
        "asarray",
        "asin",
        "asin_",
        "asinh",
        "asinh_",
        "atan",
        "atan2",
        "atan2_",
        "atan_",
        "atanh",
        "atanh_",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "baddbmm",
        "baddbmm_",
        "bartlett_window",
        "batch_gather",
        "bernoulli",
        "bernoulli_",
        "bincount",
        "bitwise_and",
        "bitwise_and_",
        "bitwise_left_shift",
        "bitwise_left_shift_",
        "bitwise_not",
        "bitwise_not_",
        "bitwise_or",
        "bitwise_or_",
        "bitwise_right_shift",
        "bitwise_right_shift_",
        "bitwise_xor",
        "bitwise_xor_",
        "blackman_window",
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
        "ceil_",
        "celu",
        "celu_",
        "chain_matmul",
        "cholesky",
        "cholesky_inverse",
        "cholesky_solve",
        "chunk",
        "clamp",
        "clamp_",
        "clamp_max",
        "clamp_max_",
        "clamp_min",
        "clamp_min_",
        "clip",
        "clip_",
        "clone",
        "column_stack",
        "combinations",
        "complex",
        "concat",
        "concatenate",
        "conj",
        "conj_physical",
        "conj_physical_",
        "copysign",
        "copysign_",
        "corrcoef",
        "cos",
        "cos_",
        "cosh",
        "cosh_",
        "count_nonzero",
        "cov",
        "cross",
        "cummax",
        "cummin",
        "cumprod",
        "cumprod_",
        "cumsum",
        "cumsum_",
        "cumulative_trapezoid",
        "deg2rad",
        "deg2rad_",
        "det",
        "detach",
        "detach_",
        "diag",
        "diag_embed",
        "diagflat",
        "diagonal",
        "diagonal_scatter",
        "diff",
        "digamma",
        "digamma_",
        "dist",
        "div",
        "div_",
        "divide",
        "divide_",
        "dot",
        "dsplit",
        "dstack",
        "einsum",
        "empty",
        "empty_like",
        "empty_strided",
        "eq",
        "eq_",
        "equal",
        "erf",
        "erf_",
        "erfc",
        "erfc_",
        "erfinv",
        "erfinv_",
        "exp",
        "exp2",
        "exp2_",
        "exp_",
        "expm1",
        "expm1_",
        "eye",
        "fake_quantize_per_channel_affine",
        "fake_quantize_per_tensor_affine",
        "fill",
        "fill_",
        "fix",
        "fix_",
        "flatten",
        "flip",
        "fliplr",
        "flipud",
        "float_power",
        "float_power_",
        "floor",
        "floor_",
        "floor_divide",
        "floor_divide_",
        "fmax",
        "fmin",
        "fmod",
        "fmod_",
        "fork_rng",
        "frac",
        "frac_",
        "frexp",
        "from_numpy",
        "frombuffer",
        "full",
        "full_like",
        "gather",
        "gcd",
        "gcd_",
        "ge",
        "ge_",
        "gelu",
        "ger",
        "get_default_device",
        "get_device",
        "get_rng_state",
        "gradient",
        "greater",
        "greater_",
        "greater_equal",
        "greater_equal_",
        "gt",
        "gt_",
        "hamming_window",
        "hann_window",
        "hardshrink",
        "heaviside",
        "heaviside_",
        "histc",
        "histogram",
        "hsplit",
        "hstack",
        "hypot",
        "hypot_",
        "i0",
        "i0_",
        "igamma",
        "igamma_",
        "igammac",
        "igammac_",
        "imag",
        "in_top_k",
        "index_add",
        "index_add_",
        "index_copy",
        "index_copy_",
        "index_fill",
        "index_fill_",
        "index_put",
        "index_put_",
        "index_reduce",
        "index_reduce_",
        "index_select",
        "initial_seed",
        "inner",
        "inverse",
        "is_complex",
        "is_conj",
        "is_floating_point",
        "is_inference",
        "is_neg",
        "is_nonzero",
        "is_same_size",
        "is_signed",
        "is_tensor",
        "isclose",
        "isfinite",
        "isin",
        "isinf",
        "isnan",
        "isneginf",
        "isposinf",
        "isreal",
        "istft",
        "kaiser_window",
        "kron",
        "kthvalue",
        "lcm",
        "lcm_",
        "ldexp",
        "ldexp_",
        "le",
        "le_",
        "lerp",
        "lerp_",
        "less",
        "less_",
        "less_equal",
        "less_equal_",
        "lgamma",
        "lgamma_",
        "linspace",
        "log",
        "log10",
        "log10_",
        "log1p",
        "log1p_",
        "log2",
        "log2_",
        "log_",
        "log_softmax",
        "logaddexp",
        "logaddexp2",
        "logcumsumexp",
        "logdet",
        "logical_and",
        "logical_and_",
        "logical_not",
        "logical_not_",
        "logical_or",
        "logical_or_",
        "logical_xor",
        "logical_xor_",
        "logit",
        "logit_",
        "logspace",
        "logsumexp",
        "lt",
        "lt_",
        "lu",
        "lu_solve",
        "lu_unpack",
        "manual_seed",
        "masked_fill",
        "masked_fill_",
        "masked_scatter",
        "masked_scatter_",
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
        "mish",
        "mm",
        "mode",
        "moveaxis",
        "movedim",
        "msort",
        "mul",
        "mul_",
        "multinomial",
        "multiply",
        "multiply_",
        "mv",
        "mvlgamma",
        "mvlgamma_",
        "nan_to_num",
        "nan_to_num_",
        "nanmean",
        "nanmedian",
        "nanquantile",
        "nansum",
        "narrow",
        "narrow_copy",
        "ne",
        "ne_",
        "neg",
        "neg_",
        "negative",
        "negative_",
        "nextafter",
        "nextafter_",
        "nonzero",
        "norm",
        "normal",
        "normal_",
        "not_equal",
        "not_equal_",
        "numel",
        "ones",
        "ones_like",
        "orgqr",
        "outer",
        "permute",
        "pinverse",
        "poisson",
        "polar",
        "polygamma",
        "polygamma_",
        "positive",
        "pow",
        "pow_",
        "prelu",
        "prod",
        "put",
        "put_",
        "qr",
        "quantile",
        "rad2deg",
        "rad2deg_",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
        "ravel",
        "real",
        "reciprocal",
        "reciprocal_",
        "relu",
        "relu_",
        "remainder",
        "remainder_",
        "renorm",
        "renorm_",
        "repeat_interleave",
        "reshape",
        "resolve_conj",
        "resolve_neg",
        "result_type",
        "roi_align",
        "roll",
        "rot90",
        "round",
        "round_",
        "row_stack",
        "rrelu",
        "rrelu_",
        "rsqrt",
        "rsqrt_",
        "rsub",
        "scalar_tensor",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "scatter_reduce",
        "scatter_reduce_",
        "searchsorted",
        "seed",
        "select",
        "select_scatter",
        "selu",
        "selu_",
        "set_default_device",
        "set_rng_state",
        "sgn",
        "sgn_",
        "sigmoid",
        "sigmoid_",
        "sign",
        "sign_",
        "signbit",
        "silu",
        "sin",
        "sin_",
        "sinc",
        "sinc_",
        "sinh",
        "sinh_",
        "slice",
        "slice_scatter",
        "slice_update",
        "slogdet",
        "softmax",
        "softplus",
        "softsign",
        "sort",
        "split",
        "split_with_sizes",
        "sqrt",
        "sqrt_",
        "square",
        "square_",
        "squeeze",
        "squeeze_",
        "stack",
        "std",
        "std_mean",
        "stft",
        "sub",
        "sub_",
        "subtract",
        "subtract_",
        "sum",
        "svd",
        "swapaxes",
        "swapaxes_",
        "swapdims",
        "swapdims_",
        "t",
        "t_",
        "take",
        "take_along_dim",
        "tan",
        "tan_",
        "tanh",
        "tanh_",
        "tensor",
        "tensor_split",
        "tensordot",
        "threshold",
        "threshold_",
        "tile",
        "topk",
        "trace",
        "transpose",
        "transpose_",
        "trapezoid",
        "trapz",
        "tril",
        "tril_",
        "tril_indices",
        "triu",
        "triu_",
        "triu_indices",
        "true_divide",
        "true_divide_",
        "trunc",
        "trunc_",
        "unbind",
        "unflatten",
        "unique",
        "unique_consecutive",
        "unravel_index",
        "unsafe_chunk",
        "unsafe_split",
        "unsafe_split_with_sizes",
        "unsqueeze",
        "unsqueeze_",
        "vander",
        "var",
        "var_mean",
        "vdot",
        "view_as_complex",
        "view_as_real",
        "vsplit",
        "vstack",
        "where",
        "xlogy",
        "xlogy_",
        "zero_",
        "zeros",
        "zeros_like",
    ]

# By name, the modules that are imported when one of their names is first looked up.

LATE_FUNCTIONS: Final = {
    "addbmm": "vmflow.ops.linalg.linear_algebra",
    "addbmm_": "vmflow.ops.linalg.linear_algebra",
    "addmm": "vmflow.ops.linalg.linear_algebra",
    "addmm_": "vmflow.ops.linalg.linear_algebra",
    "addmv": "vmflow.ops.linalg.linear_algebra",
    "addmv_": "vmflow.ops.linalg.linear_algebra",
    "addr": "vmflow.ops.linalg.linear_algebra",
    "addr_": "vmflow.ops.linalg.linear_algebra",
    "all": "vmflow.ops.reduction.reduction",
    "allclose": "vmflow.ops.elementwise.closeness",
    "amax": "vmflow.ops.reduction.reduction",
    "amin": "vmflow.ops.reduction.reduction",
    "aminmax": "vmflow.ops.reduction.extrema",
    "any": "vmflow.ops.reduction.reduction",
    "argmax": "vmflow.ops.reduction.extrema",
    "argmin": "vmflow.ops.reduction.extrema",
    "argsort": "vmflow.ops.reduction.ordering",
    "argwhere": "vmflow.ops.reduction.counting",
    "as_strided": "vmflow.ops.shape.strided",
    "as_strided_": "vmflow.ops.shape.strided",
    "as_strided_scatter": "vmflow.ops.shape.strided",
    "atleast_1d": "vmflow.ops.shape.arrangement",
    "atleast_2d": "vmflow.ops.shape.arrangement",
    "atleast_3d": "vmflow.ops.shape.arrangement",
    "baddbmm": "vmflow.ops.linalg.linear_algebra",
    "baddbmm_": "vmflow.ops.linalg.linear_algebra",
    "bartlett_window": "vmflow.ops.creation.windows",
    "batch_gather": "vmflow.ops.indexing.parts",
    "bincount": "vmflow.ops.reduction.counting",
    "blackman_window": "vmflow.ops.creation.windows",
    "block_diag": "vmflow.ops.shape.arrangement",
    "bmm": "vmflow.ops.linalg.linear_algebra",
    "broadcast_shapes": "vmflow.ops.inquiry",
    "bucketize": "vmflow.ops.reduction.searching",
    "can_cast": "vmflow.ops.inquiry",
    "cartesian_prod": "vmflow.ops.shape.arrangement",
    "cdist": "vmflow.ops.reduction.statistics",
    "ceil": "vmflow.ops.elementwise.rounding",
    "ceil_": "vmflow.ops.elementwise.rounding",
    "celu": "vmflow.ops.elementwise.piecewise",
    "celu_": "vmflow.ops.elementwise.piecewise",
    "chain_matmul": "vmflow.ops.linalg.matrix_products",
    "cholesky": "vmflow.ops.linalg.decompositions",
    "cholesky_inverse": "vmflow.ops.linalg.decompositions",
    "cholesky_solve": "vmflow.ops.linalg.decompositions",
    "column_stack": "vmflow.ops.shape.arrangement",
    "combinations": "vmflow.ops.shape.arrangement",
    "copysign": "vmflow.ops.elementwise.floating_point",
    "copysign_": "vmflow.ops.elementwise.floating_point",
    "corrcoef": "vmflow.ops.reduction.statistics",
    "count_nonzero": "vmflow.ops.reduction.composed_reduction",
    "cov": "vmflow.ops.reduction.statistics",
    "cross": "vmflow.ops.linalg.matrix_products",
    "cummax": "vmflow.ops.reduction.running",
    "cummin": "vmflow.ops.reduction.running",
    "cumprod": "vmflow.ops.reduction.running_sums",
    "cumprod_": "vmflow.ops.reduction.running_sums",
    "cumsum": "vmflow.ops.reduction.running_sums",
    "cumsum_": "vmflow.ops.reduction.running_sums",
    "cumulative_trapezoid": "vmflow.ops.reduction.statistics",
    "det": "vmflow.ops.linalg.linear_algebra",
    "diag_embed": "vmflow.ops.shape.arrangement",
    "diagflat": "vmflow.ops.shape.arrangement",
    "diagonal_scatter": "vmflow.ops.shape.strided",
    "diff": "vmflow.ops.reduction.statistics",
    "digamma": "vmflow.ops.elementwise.gamma_function",
    "digamma_": "vmflow.ops.elementwise.gamma_function",
    "dist": "vmflow.ops.reduction.statistics",
    "dot": "vmflow.ops.linalg.linear_algebra",
    "dsplit": "vmflow.ops.shape.arrangement",
    "dstack": "vmflow.ops.shape.arrangement",
    "einsum": "vmflow.ops.linalg.einsum",
    "empty_strided": "vmflow.ops.creation.ranges",
    "equal": "vmflow.ops.elementwise.closeness",
    "erf": "vmflow.ops.elementwise.error_function",
    "erf_": "vmflow.ops.elementwise.error_function",
    "erfc": "vmflow.ops.elementwise.error_function",
    "erfc_": "vmflow.ops.elementwise.error_function",
    "erfinv": "vmflow.ops.elementwise.error_function",
    "erfinv_": "vmflow.ops.elementwise.error_function",
    "fake_quantize_per_channel_affine": "vmflow.ops.nn.quantization",
    "fake_quantize_per_tensor_affine": "vmflow.ops.nn.quantization",
    "fix": "vmflow.ops.elementwise.rounding",
    "fix_": "vmflow.ops.elementwise.rounding",
    "floor": "vmflow.ops.elementwise.rounding",
    "floor_": "vmflow.ops.elementwise.rounding",
    "fmax": "vmflow.ops.elementwise.floating_point",
    "fmin": "vmflow.ops.elementwise.floating_point",
    "frac": "vmflow.ops.elementwise.rounding",
    "frac_": "vmflow.ops.elementwise.rounding",
    "frexp": "vmflow.ops.elementwise.floating_point",
    "gelu": "vmflow.ops.elementwise.activation",
    "ger": "vmflow.ops.linalg.linear_algebra",
    "get_device": "vmflow.ops.inquiry",
    "gradient": "vmflow.ops.reduction.statistics",
    "hamming_window": "vmflow.ops.creation.windows",
    "hann_window": "vmflow.ops.creation.windows",
    "hardshrink": "vmflow.ops.elementwise.piecewise",
    "heaviside": "vmflow.ops.elementwise.floating_point",
    "heaviside_": "vmflow.ops.elementwise.floating_point",
    "histc": "vmflow.ops.reduction.counting",
    "histogram": "vmflow.ops.reduction.counting",
    "hsplit": "vmflow.ops.shape.arrangement",
    "i0": "vmflow.ops.elementwise.special_functions",
    "i0_": "vmflow.ops.elementwise.special_functions",
    "igamma": "vmflow.ops.elementwise.special_functions",
    "igamma_": "vmflow.ops.elementwise.special_functions",
    "igammac": "vmflow.ops.elementwise.special_functions",
    "igammac_": "vmflow.ops.elementwise.special_functions",
    "in_top_k": "vmflow.ops.indexing.parts",
    "index_reduce": "vmflow.ops.indexing.scatter_reduction",
    "index_reduce_": "vmflow.ops.indexing.scatter_reduction",
    "inner": "vmflow.ops.linalg.matrix_products",
    "inverse": "vmflow.ops.linalg.linear_algebra",
    "is_complex": "vmflow.ops.inquiry",
    "is_floating_point": "vmflow.ops.inquiry",
    "is_inference": "vmflow.ops.inquiry",
    "is_nonzero": "vmflow.ops.inquiry",
    "is_same_size": "vmflow.ops.inquiry",
    "is_signed": "vmflow.ops.inquiry",
    "is_tensor": "vmflow.ops.inquiry",
    "isclose": "vmflow.ops.elementwise.closeness",
    "isin": "vmflow.ops.reduction.searching",
    "istft": "vmflow.ops.fourier.short_time",
    "kaiser_window": "vmflow.ops.creation.windows",
    "kron": "vmflow.ops.linalg.matrix_products",
    "kthvalue": "vmflow.ops.reduction.ordering",
    "ldexp": "vmflow.ops.elementwise.floating_point",
    "ldexp_": "vmflow.ops.elementwise.floating_point",
    "lgamma": "vmflow.ops.elementwise.gamma_function",
    "lgamma_": "vmflow.ops.elementwise.gamma_function",
    "log_softmax": "vmflow.ops.elementwise.activation",
    "logcumsumexp": "vmflow.ops.reduction.running",
    "logdet": "vmflow.ops.linalg.decompositions",
    "logspace": "vmflow.ops.creation.ranges",
    "logsumexp": "vmflow.ops.reduction.composed_reduction",
    "lu": "vmflow.ops.linalg.triangular_factors",
    "lu_solve": "vmflow.ops.linalg.triangular_factors",
    "lu_unpack": "vmflow.ops.linalg.triangular_factors",
    "masked_scatter": "vmflow.ops.shape.flat_elements",
    "masked_scatter_": "vmflow.ops.shape.flat_elements",
    "matmul": "vmflow.ops.linalg.linear_algebra",
    "matrix_exp": "vmflow.ops.linalg.matrix_functions",
    "matrix_power": "vmflow.ops.linalg.matrix_functions",
    "max": "vmflow.ops.reduction.extrema",
    "maximum": "vmflow.ops.reduction.extrema",
    "mean": "vmflow.ops.reduction.reduction",
    "median": "vmflow.ops.reduction.ordering",
    "min": "vmflow.ops.reduction.extrema",
    "minimum": "vmflow.ops.reduction.extrema",
    "mish": "vmflow.ops.elementwise.gating",
    "mm": "vmflow.ops.linalg.linear_algebra",
    "mode": "vmflow.ops.reduction.quantiles",
    "msort": "vmflow.ops.reduction.ordering",
    "mv": "vmflow.ops.linalg.linear_algebra",
    "mvlgamma": "vmflow.ops.elementwise.special_functions",
    "mvlgamma_": "vmflow.ops.elementwise.special_functions",
    "nanmean": "vmflow.ops.reduction.composed_reduction",
    "nanmedian": "vmflow.ops.reduction.quantiles",
    "nanquantile": "vmflow.ops.reduction.quantiles",
    "nansum": "vmflow.ops.reduction.composed_reduction",
    "nextafter": "vmflow.ops.elementwise.floating_point",
    "nextafter_": "vmflow.ops.elementwise.floating_point",
    "norm": "vmflow.ops.reduction.composed_reduction",
    "numel": "vmflow.ops.inquiry",
    "orgqr": "vmflow.ops.linalg.decompositions",
    "outer": "vmflow.ops.linalg.linear_algebra",
    "pinverse": "vmflow.ops.linalg.pseudo_inverse",
    "polygamma": "vmflow.ops.elementwise.gamma_function",
    "polygamma_": "vmflow.ops.elementwise.gamma_function",
    "positive": "vmflow.ops.elementwise.floating_point",
    "prelu": "vmflow.ops.elementwise.piecewise",
    "prod": "vmflow.ops.reduction.reduction",
    "put": "vmflow.ops.shape.flat_elements",
    "put_": "vmflow.ops.shape.flat_elements",
    "qr": "vmflow.ops.linalg.decompositions",
    "quantile": "vmflow.ops.reduction.quantiles",
    "relu": "vmflow.ops.elementwise.activation",
    "relu_": "vmflow.ops.elementwise.activation",
    "renorm": "vmflow.ops.reduction.composed_reduction",
    "renorm_": "vmflow.ops.reduction.composed_reduction",
    "result_type": "vmflow.ops.inquiry",
    "roi_align": "vmflow.ops.nn.regions",
    "rot90": "vmflow.ops.shape.arrangement",
    "round": "vmflow.ops.elementwise.rounding",
    "round_": "vmflow.ops.elementwise.rounding",
    "rrelu": "vmflow.ops.elementwise.piecewise",
    "rrelu_": "vmflow.ops.elementwise.piecewise",
    "scatter_reduce": "vmflow.ops.indexing.scatter_reduction",
    "scatter_reduce_": "vmflow.ops.indexing.scatter_reduction",
    "searchsorted": "vmflow.ops.reduction.searching",
    "select_scatter": "vmflow.ops.shape.strided",
    "selu": "vmflow.ops.elementwise.piecewise",
    "selu_": "vmflow.ops.elementwise.piecewise",
    "sigmoid": "vmflow.ops.elementwise.activation",
    "sigmoid_": "vmflow.ops.elementwise.activation",
    "signbit": "vmflow.ops.elementwise.floating_point",
    "silu": "vmflow.ops.elementwise.activation",
    "slice": "vmflow.ops.indexing.parts",
    "slice_scatter": "vmflow.ops.shape.strided",
    "slice_update": "vmflow.ops.indexing.parts",
    "slogdet": "vmflow.ops.linalg.decompositions",
    "softmax": "vmflow.ops.elementwise.activation",
    "softplus": "vmflow.ops.elementwise.activation",
    "softsign": "vmflow.ops.elementwise.gating",
    "sort": "vmflow.ops.reduction.ordering",
    "split_with_sizes": "vmflow.ops.shape.arrangement",
    "std": "vmflow.ops.reduction.composed_reduction",
    "std_mean": "vmflow.ops.reduction.composed_reduction",
    "stft": "vmflow.ops.fourier.short_time",
    "sum": "vmflow.ops.reduction.reduction",
    "svd": "vmflow.ops.linalg.decompositions",
    "take": "vmflow.ops.shape.flat_elements",
    "tanh": "vmflow.ops.elementwise.activation",
    "tanh_": "vmflow.ops.elementwise.activation",
    "tensordot": "vmflow.ops.linalg.linear_algebra",
    "threshold": "vmflow.ops.elementwise.piecewise",
    "threshold_": "vmflow.ops.elementwise.piecewise",
    "topk": "vmflow.ops.reduction.ordering",
    "trace": "vmflow.ops.linalg.matrix_products",
    "trapezoid": "vmflow.ops.reduction.statistics",
    "trapz": "vmflow.ops.reduction.statistics",
    "tril_indices": "vmflow.ops.creation.ranges",
    "triu_indices": "vmflow.ops.creation.ranges",
    "trunc": "vmflow.ops.elementwise.rounding",
    "trunc_": "vmflow.ops.elementwise.rounding",
    "unique": "vmflow.ops.reduction.counting",
    "unique_consecutive": "vmflow.ops.reduction.counting",
    "unravel_index": "vmflow.ops.shape.flat_elements",
    "unsafe_split_with_sizes": "vmflow.ops.shape.arrangement",
    "vander": "vmflow.ops.linalg.composed",
    "var": "vmflow.ops.reduction.composed_reduction",
    "var_mean": "vmflow.ops.reduction.composed_reduction",
    "vdot": "vmflow.ops.linalg.matrix_products",
    "vsplit": "vmflow.ops.shape.arrangement",
}

LATE_METHODS: Final = {
    "__matmul__": "vmflow.ops.linalg.linear_algebra",
    "__rmatmul__": "vmflow.ops.linalg.linear_algebra",
    "addbmm": "vmflow.ops.linalg.linear_algebra",
    "addbmm_": "vmflow.ops.linalg.linear_algebra",
    "addmm": "vmflow.ops.linalg.linear_algebra",
    "addmm_": "vmflow.ops.linalg.linear_algebra",
    "addmv": "vmflow.ops.linalg.linear_algebra",
    "addmv_": "vmflow.ops.linalg.linear_algebra",
    "addr": "vmflow.ops.linalg.linear_algebra",
    "addr_": "vmflow.ops.linalg.linear_algebra",
    "all": "vmflow.ops.reduction.reduction",
    "allclose": "vmflow.ops.elementwise.closeness",
    "amax": "vmflow.ops.reduction.reduction",
    "amin": "vmflow.ops.reduction.reduction",
    "aminmax": "vmflow.ops.reduction.extrema",
    "any": "vmflow.ops.reduction.reduction",
    "apply_": "vmflow.ops.shape.flat_elements",
    "argmax": "vmflow.ops.reduction.extrema",
    "argmin": "vmflow.ops.reduction.extrema",
    "argsort": "vmflow.ops.reduction.ordering",
    "argwhere": "vmflow.ops.reduction.counting",
    "as_strided": "vmflow.ops.shape.strided",
    "as_strided_": "vmflow.ops.shape.strided",
    "as_strided_scatter": "vmflow.ops.shape.strided",
    "baddbmm": "vmflow.ops.linalg.linear_algebra",
    "baddbmm_": "vmflow.ops.linalg.linear_algebra",
    "bincount": "vmflow.ops.reduction.counting",
    "bmm": "vmflow.ops.linalg.linear_algebra",
    "ceil": "vmflow.ops.elementwise.rounding",
    "ceil_": "vmflow.ops.elementwise.rounding",
    "cholesky": "vmflow.ops.linalg.decompositions",
    "cholesky_inverse": "vmflow.ops.linalg.decompositions",
    "cholesky_solve": "vmflow.ops.linalg.decompositions",
    "copysign": "vmflow.ops.elementwise.floating_point",
    "copysign_": "vmflow.ops.elementwise.floating_point",
    "corrcoef": "vmflow.ops.reduction.statistics",
    "count_nonzero": "vmflow.ops.reduction.composed_reduction",
    "cov": "vmflow.ops.reduction.statistics",
    "cross": "vmflow.ops.linalg.matrix_products",
    "cummax": "vmflow.ops.reduction.running",
    "cummin": "vmflow.ops.reduction.running",
    "cumprod": "vmflow.ops.reduction.running_sums",
    "cumprod_": "vmflow.ops.reduction.running_sums",
    "cumsum": "vmflow.ops.reduction.running_sums",
    "cumsum_": "vmflow.ops.reduction.running_sums",
    "det": "vmflow.ops.linalg.linear_algebra",
    "diag_embed": "vmflow.ops.shape.arrangement",
    "diagflat": "vmflow.ops.shape.arrangement",
    "diagonal_scatter": "vmflow.ops.shape.strided",
    "diff": "vmflow.ops.reduction.statistics",
    "digamma": "vmflow.ops.elementwise.gamma_function",
    "digamma_": "vmflow.ops.elementwise.gamma_function",
    "dist": "vmflow.ops.reduction.statistics",
    "dot": "vmflow.ops.linalg.linear_algebra",
    "dsplit": "vmflow.ops.shape.arrangement",
    "equal": "vmflow.ops.elementwise.closeness",
    "erf": "vmflow.ops.elementwise.error_function",
    "erf_": "vmflow.ops.elementwise.error_function",
    "erfc": "vmflow.ops.elementwise.error_function",
    "erfc_": "vmflow.ops.elementwise.error_function",
    "erfinv": "vmflow.ops.elementwise.error_function",
    "erfinv_": "vmflow.ops.elementwise.error_function",
    "fill_diagonal_": "vmflow.ops.shape.strided",
    "fix": "vmflow.ops.elementwise.rounding",
    "fix_": "vmflow.ops.elementwise.rounding",
    "floor": "vmflow.ops.elementwise.rounding",
    "floor_": "vmflow.ops.elementwise.rounding",
    "fmax": "vmflow.ops.elementwise.floating_point",
    "fmin": "vmflow.ops.elementwise.floating_point",
    "frac": "vmflow.ops.elementwise.rounding",
    "frac_": "vmflow.ops.elementwise.rounding",
    "frexp": "vmflow.ops.elementwise.floating_point",
    "gelu": "vmflow.ops.elementwise.activation",
    "ger": "vmflow.ops.linalg.linear_algebra",
    "get_device": "vmflow.ops.inquiry",
    "hardshrink": "vmflow.ops.elementwise.piecewise",
    "heaviside": "vmflow.ops.elementwise.floating_point",
    "heaviside_": "vmflow.ops.elementwise.floating_point",
    "histc": "vmflow.ops.reduction.counting",
    "histogram": "vmflow.ops.reduction.counting",
    "hsplit": "vmflow.ops.shape.arrangement",
    "i0": "vmflow.ops.elementwise.special_functions",
    "i0_": "vmflow.ops.elementwise.special_functions",
    "igamma": "vmflow.ops.elementwise.special_functions",
    "igamma_": "vmflow.ops.elementwise.special_functions",
    "igammac": "vmflow.ops.elementwise.special_functions",
    "igammac_": "vmflow.ops.elementwise.special_functions",
    "index_reduce": "vmflow.ops.indexing.scatter_reduction",
    "index_reduce_": "vmflow.ops.indexing.scatter_reduction",
    "inner": "vmflow.ops.linalg.matrix_products",
    "inverse": "vmflow.ops.linalg.linear_algebra",
    "is_inference": "vmflow.ops.inquiry",
    "is_nonzero": "vmflow.ops.inquiry",
    "is_same_size": "vmflow.ops.inquiry",
    "is_set_to": "vmflow.ops.inquiry",
    "is_signed": "vmflow.ops.inquiry",
    "isclose": "vmflow.ops.elementwise.closeness",
    "istft": "vmflow.ops.fourier.short_time",
    "kron": "vmflow.ops.linalg.matrix_products",
    "kthvalue": "vmflow.ops.reduction.ordering",
    "ldexp": "vmflow.ops.elementwise.floating_point",
    "ldexp_": "vmflow.ops.elementwise.floating_point",
    "lgamma": "vmflow.ops.elementwise.gamma_function",
    "lgamma_": "vmflow.ops.elementwise.gamma_function",
    "log_softmax": "vmflow.ops.elementwise.activation",
    "logcumsumexp": "vmflow.ops.reduction.running",
    "logdet": "vmflow.ops.linalg.decompositions",
    "logsumexp": "vmflow.ops.reduction.composed_reduction",
    "lu": "vmflow.ops.linalg.triangular_factors",
    "lu_solve": "vmflow.ops.linalg.triangular_factors",
    "map2_": "vmflow.ops.shape.flat_elements",
    "map_": "vmflow.ops.shape.flat_elements",
    "masked_scatter": "vmflow.ops.shape.flat_elements",
    "masked_scatter_": "vmflow.ops.shape.flat_elements",
    "matmul": "vmflow.ops.linalg.linear_algebra",
    "matrix_exp": "vmflow.ops.linalg.matrix_functions",
    "matrix_power": "vmflow.ops.linalg.matrix_functions",
    "max": "vmflow.ops.reduction.extrema",
    "maximum": "vmflow.ops.reduction.extrema",
    "mean": "vmflow.ops.reduction.reduction",
    "median": "vmflow.ops.reduction.ordering",
    "min": "vmflow.ops.reduction.extrema",
    "minimum": "vmflow.ops.reduction.extrema",
    "mish": "vmflow.ops.elementwise.gating",
    "mm": "vmflow.ops.linalg.linear_algebra",
    "mode": "vmflow.ops.reduction.quantiles",
    "msort": "vmflow.ops.reduction.ordering",
    "mv": "vmflow.ops.linalg.linear_algebra",
    "mvlgamma": "vmflow.ops.elementwise.special_functions",
    "mvlgamma_": "vmflow.ops.elementwise.special_functions",
    "nanmean": "vmflow.ops.reduction.composed_reduction",
    "nanmedian": "vmflow.ops.reduction.quantiles",
    "nanquantile": "vmflow.ops.reduction.quantiles",
    "nansum": "vmflow.ops.reduction.composed_reduction",
    "nextafter": "vmflow.ops.elementwise.floating_point",
    "nextafter_": "vmflow.ops.elementwise.floating_point",
    "norm": "vmflow.ops.reduction.composed_reduction",
    "orgqr": "vmflow.ops.linalg.decompositions",
    "outer": "vmflow.ops.linalg.linear_algebra",
    "pinverse": "vmflow.ops.linalg.pseudo_inverse",
    "polygamma": "vmflow.ops.elementwise.gamma_function",
    "polygamma_": "vmflow.ops.elementwise.gamma_function",
    "positive": "vmflow.ops.elementwise.floating_point",
    "prelu": "vmflow.ops.elementwise.piecewise",
    "prod": "vmflow.ops.reduction.reduction",
    "put": "vmflow.ops.shape.flat_elements",
    "put_": "vmflow.ops.shape.flat_elements",
    "qr": "vmflow.ops.linalg.decompositions",
    "quantile": "vmflow.ops.reduction.quantiles",
    "relu": "vmflow.ops.elementwise.activation",
    "relu_": "vmflow.ops.elementwise.activation",
    "renorm": "vmflow.ops.reduction.composed_reduction",
    "renorm_": "vmflow.ops.reduction.composed_reduction",
    "resize_": "vmflow.ops.shape.strided",
    "resize_as_": "vmflow.ops.shape.strided",
    "rot90": "vmflow.ops.shape.arrangement",
    "round": "vmflow.ops.elementwise.rounding",
    "round_": "vmflow.ops.elementwise.rounding",
    "scatter_reduce": "vmflow.ops.indexing.scatter_reduction",
    "scatter_reduce_": "vmflow.ops.indexing.scatter_reduction",
    "select_scatter": "vmflow.ops.shape.strided",
    "selu": "vmflow.ops.elementwise.piecewise",
    "set_": "vmflow.ops.shape.strided",
    "sigmoid": "vmflow.ops.elementwise.activation",
    "sigmoid_": "vmflow.ops.elementwise.activation",
    "signbit": "vmflow.ops.elementwise.floating_point",
    "silu": "vmflow.ops.elementwise.activation",
    "slice_scatter": "vmflow.ops.shape.strided",
    "slogdet": "vmflow.ops.linalg.decompositions",
    "softmax": "vmflow.ops.elementwise.activation",
    "softplus": "vmflow.ops.elementwise.activation",
    "softsign": "vmflow.ops.elementwise.gating",
    "sort": "vmflow.ops.reduction.ordering",
    "split_with_sizes": "vmflow.ops.shape.arrangement",
    "std": "vmflow.ops.reduction.composed_reduction",
    "stft": "vmflow.ops.fourier.short_time",
    "sum": "vmflow.ops.reduction.reduction",
    "svd": "vmflow.ops.linalg.decompositions",
    "take": "vmflow.ops.shape.flat_elements",
    "tanh": "vmflow.ops.elementwise.activation",
    "tanh_": "vmflow.ops.elementwise.activation",
    "topk": "vmflow.ops.reduction.ordering",
    "trace": "vmflow.ops.linalg.matrix_products",
    "trunc": "vmflow.ops.elementwise.rounding",
    "trunc_": "vmflow.ops.elementwise.rounding",
    "unfold": "vmflow.ops.shape.strided",
    "unique": "vmflow.ops.reduction.counting",
    "unique_consecutive": "vmflow.ops.reduction.counting",
    "unsafe_split_with_sizes": "vmflow.ops.shape.arrangement",
    "var": "vmflow.ops.reduction.composed_reduction",
    "vdot": "vmflow.ops.linalg.matrix_products",
    "vsplit": "vmflow.ops.shape.arrangement",
}
