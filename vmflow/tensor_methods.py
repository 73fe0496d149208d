"""What makes ops methods of tensors: one declaration serves as function, method and operator."""

from __future__ import annotations

from . import random
from .ops import (
    activation,
    arithmetic,
    arrangement,
    closeness,
    comparison,
    composed_reduction,
    copying,
    counting,
    decompositions,
    error_function,
    extrema,
    flat_elements,
    floating_point,
    gamma_function,
    gathering,
    in_place,
    index_expression,
    indexing,
    joining,
    linear_algebra,
    matrix_functions,
    matrix_products,
    ordering,
    pseudo_inverse,
    quantiles,
    reduction,
    rounding,
    running,
    running_sums,
    scatter_reduction,
    selection,
    statistics,
    strided,
    transcendental,
)
from .ops import view as views


class TensorOps:
    """The ops of `Tensor` that are its functions and nothing else.

    By kind: operators, functions, in-place forms; each assigned from the module that declares it.
    """

    __slots__ = ()

    __floordiv__ = arithmetic.floor_divide
    __mod__ = arithmetic.remainder
    __pow__ = arithmetic.pow
    __matmul__ = linear_algebra.matmul
    __and__ = comparison.bitwise_and
    __or__ = comparison.bitwise_or
    __xor__ = comparison.bitwise_xor
    __lshift__ = comparison.bitwise_left_shift
    __rshift__ = comparison.bitwise_right_shift
    __rand__ = comparison.bitwise_and
    __ror__ = comparison.bitwise_or
    __rxor__ = comparison.bitwise_xor
    __neg__ = arithmetic.neg
    __abs__ = arithmetic.abs
    __invert__ = comparison.bitwise_not
    __ilshift__ = in_place.bitwise_left_shift_
    __irshift__ = in_place.bitwise_right_shift_
    __lt__ = comparison.lt
    __le__ = comparison.le
    __gt__ = comparison.gt
    __ge__ = comparison.ge
    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem
    add = arithmetic.add
    sub = arithmetic.sub
    mul = arithmetic.mul
    div = arithmetic.div
    pow = arithmetic.pow
    floor_divide = arithmetic.floor_divide
    remainder = arithmetic.remainder
    fmod = arithmetic.fmod
    maximum = extrema.maximum
    minimum = extrema.minimum
    atan2 = arithmetic.atan2
    neg = arithmetic.neg
    negative = arithmetic.neg
    abs = arithmetic.abs
    absolute = arithmetic.abs
    sign = arithmetic.sign
    square = arithmetic.square
    floor = rounding.floor
    ceil = rounding.ceil
    trunc = rounding.trunc
    round = rounding.round
    conj = arithmetic.conj
    exp = transcendental.exp
    expm1 = transcendental.expm1
    log = transcendental.log
    log2 = transcendental.log2
    log10 = transcendental.log10
    log1p = transcendental.log1p
    sqrt = transcendental.sqrt
    rsqrt = transcendental.rsqrt
    reciprocal = arithmetic.reciprocal
    sin = transcendental.sin
    cos = transcendental.cos
    tan = transcendental.tan
    eq = comparison.eq
    ne = comparison.ne
    lt = comparison.lt
    le = comparison.le
    gt = comparison.gt
    ge = comparison.ge
    logical_and = comparison.logical_and
    logical_or = comparison.logical_or
    logical_xor = comparison.logical_xor
    logical_not = comparison.logical_not
    bitwise_and = comparison.bitwise_and
    bitwise_or = comparison.bitwise_or
    bitwise_xor = comparison.bitwise_xor
    bitwise_not = comparison.bitwise_not
    bitwise_left_shift = comparison.bitwise_left_shift
    bitwise_right_shift = comparison.bitwise_right_shift
    isnan = comparison.isnan
    isinf = comparison.isinf
    isfinite = comparison.isfinite
    masked_fill = selection.masked_fill
    clamp = selection.clamp
    clip = selection.clamp
    lerp = arithmetic.lerp
    clone = copying.clone
    contiguous = copying.contiguous
    add_ = arithmetic.add_
    sub_ = arithmetic.sub_
    mul_ = arithmetic.mul_
    div_ = arithmetic.div_
    pow_ = arithmetic.pow_
    copy_ = copying.copy_
    fill_ = copying.fill_
    zero_ = copying.zero_
    matmul = linear_algebra.matmul
    mm = linear_algebra.mm
    bmm = linear_algebra.bmm
    mv = linear_algebra.mv
    dot = linear_algebra.dot
    outer = linear_algebra.outer
    addmm = linear_algebra.addmm
    baddbmm = linear_algebra.baddbmm
    cholesky_solve = decompositions.cholesky_solve
    cross = matrix_products.cross
    det = linear_algebra.det
    inner = matrix_products.inner
    kron = matrix_products.kron
    inverse = linear_algebra.inv
    logdet = decompositions.logdet
    matrix_exp = matrix_functions.matrix_exp
    matrix_power = matrix_functions.matrix_power
    pinverse = pseudo_inverse.pinv
    slogdet = decompositions.slogdet
    trace = matrix_products.trace
    vdot = matrix_products.vdot
    sum = reduction.sum
    prod = reduction.prod
    mean = reduction.mean
    amax = reduction.amax
    amin = reduction.amin
    max = extrema.max
    min = extrema.min
    all = reduction.all
    any = reduction.any
    argmax = extrema.argmax
    argmin = extrema.argmin
    var = composed_reduction.var
    std = composed_reduction.std
    norm = composed_reduction.norm
    logsumexp = composed_reduction.logsumexp
    aminmax = extrema.aminmax
    count_nonzero = composed_reduction.count_nonzero
    nanmean = composed_reduction.nanmean
    nansum = composed_reduction.nansum
    cumsum = running_sums.cumsum
    cumprod = running_sums.cumprod
    cummax = running.cummax
    cummin = running.cummin
    logcumsumexp = running.logcumsumexp
    corrcoef = statistics.corrcoef
    cov = statistics.cov
    diff = statistics.diff
    reshape = views.reshape
    view = views.view
    flatten = views.flatten
    unflatten = views.unflatten
    squeeze = views.squeeze
    unsqueeze = views.unsqueeze
    permute = views.permute
    transpose = views.transpose
    swapaxes = views.transpose
    swapdims = views.transpose
    t = views.t
    movedim = views.movedim
    expand = views.expand
    expand_as = views.expand_as
    broadcast_to = views.broadcast_to
    narrow = views.narrow
    select = views.select
    split = views.split
    chunk = views.chunk
    unbind = views.unbind
    diagonal = views.diagonal
    view_as = views.view_as
    reshape_as = views.reshape_as
    ravel = views.ravel
    tensor_split = views.tensor_split
    as_strided = strided.as_strided
    moveaxis = views.movedim
    unfold = strided.unfold
    diag_embed = arrangement.diag_embed
    diagflat = arrangement.diagflat
    dsplit = arrangement.dsplit
    hsplit = arrangement.hsplit
    rot90 = arrangement.rot90
    split_with_sizes = arrangement.split_with_sizes
    vsplit = arrangement.vsplit
    repeat = joining.repeat
    tile = joining.tile
    flip = joining.flip
    roll = joining.roll
    tril = joining.tril
    triu = joining.triu
    diag = joining.diag
    repeat_interleave = joining.repeat_interleave
    fliplr = joining.fliplr
    flipud = joining.flipud
    gather = gathering.gather
    scatter = gathering.scatter
    scatter_add = gathering.scatter_add
    index_select = indexing.index_select
    index_add = indexing.index_add
    index_copy = indexing.index_copy
    index_fill = indexing.index_fill
    take_along_dim = gathering.take_along_dim
    index_put = indexing.index_put
    index_put_ = indexing.index_put_
    masked_select = indexing.masked_select
    nonzero = index_expression.nonzero
    diagonal_scatter = strided.diagonal_scatter
    index_reduce = scatter_reduction.index_reduce
    masked_scatter = flat_elements.masked_scatter
    put = flat_elements.put
    scatter_reduce = scatter_reduction.scatter_reduce
    select_scatter = strided.select_scatter
    slice_scatter = strided.slice_scatter
    take = flat_elements.take
    argwhere = counting.argwhere
    bincount = counting.bincount
    histc = counting.histc
    histogram = counting.histogram
    unique = counting.unique
    unique_consecutive = counting.unique_consecutive
    relu = activation.relu
    relu_ = activation.relu_
    sigmoid = activation.sigmoid
    tanh = activation.tanh
    erf = activation.erf
    softmax = activation.softmax
    log_softmax = activation.log_softmax
    addcmul = arithmetic.addcmul
    addcdiv = arithmetic.addcdiv
    clamp_min = selection.clamp_min
    clamp_max = selection.clamp_max
    true_divide = arithmetic.div
    divide = arithmetic.div
    multiply = arithmetic.mul
    subtract = arithmetic.sub
    greater = comparison.gt
    greater_equal = comparison.ge
    less = comparison.lt
    less_equal = comparison.le
    not_equal = comparison.ne
    acos = transcendental.acos
    acosh = transcendental.acosh
    asin = transcendental.asin
    asinh = transcendental.asinh
    atan = transcendental.atan
    atanh = transcendental.atanh
    cosh = transcendental.cosh
    exp2 = transcendental.exp2
    copysign = floating_point.copysign
    deg2rad = transcendental.deg2rad
    digamma = gamma_function.digamma
    erfc = error_function.erfc
    erfinv = error_function.erfinv
    fmax = floating_point.fmax
    fmin = floating_point.fmin
    frac = rounding.frac
    heaviside = floating_point.heaviside
    hypot = transcendental.hypot
    lgamma = gamma_function.lgamma
    logaddexp = transcendental.logaddexp
    logaddexp2 = transcendental.logaddexp2
    logit = transcendental.logit
    nan_to_num = selection.nan_to_num
    nextafter = floating_point.nextafter
    polygamma = gamma_function.polygamma_of
    positive = floating_point.positive
    rad2deg = transcendental.rad2deg
    signbit = floating_point.signbit
    sinc = transcendental.sinc
    sinh = transcendental.sinh
    xlogy = transcendental.xlogy
    allclose = closeness.allclose
    equal = closeness.equal
    isclose = closeness.isclose
    argsort = ordering.argsort
    kthvalue = ordering.kthvalue
    median = ordering.median
    msort = ordering.msort
    sort = ordering.sort
    topk = ordering.topk
    mode = quantiles.mode
    nanmedian = quantiles.nanmedian
    nanquantile = quantiles.nanquantile
    quantile = quantiles.quantile
    bernoulli = random.bernoulli
    bernoulli_ = random.bernoulli_
    multinomial = random.multinomial
    normal_ = random.normal_
    uniform_ = random.uniform_
    clamp_ = selection.clamp_
    clip_ = selection.clamp_
    masked_fill_ = selection.masked_fill_
    abs_ = in_place.abs_
    acos_ = in_place.acos_
    acosh_ = in_place.acosh_
    asin_ = in_place.asin_
    asinh_ = in_place.asinh_
    atan_ = in_place.atan_
    atanh_ = in_place.atanh_
    bitwise_not_ = in_place.bitwise_not_
    ceil_ = in_place.ceil_
    cos_ = in_place.cos_
    cosh_ = in_place.cosh_
    erf_ = in_place.erf_
    exp_ = in_place.exp_
    exp2_ = in_place.exp2_
    expm1_ = in_place.expm1_
    floor_ = in_place.floor_
    log_ = in_place.log_
    log10_ = in_place.log10_
    log1p_ = in_place.log1p_
    log2_ = in_place.log2_
    logical_not_ = in_place.logical_not_
    neg_ = in_place.neg_
    reciprocal_ = in_place.reciprocal_
    rsqrt_ = in_place.rsqrt_
    sigmoid_ = in_place.sigmoid_
    sign_ = in_place.sign_
    sin_ = in_place.sin_
    sinh_ = in_place.sinh_
    sqrt_ = in_place.sqrt_
    square_ = in_place.square_
    tan_ = in_place.tan_
    tanh_ = in_place.tanh_
    trunc_ = in_place.trunc_
    atan2_ = in_place.atan2_
    bitwise_and_ = in_place.bitwise_and_
    bitwise_or_ = in_place.bitwise_or_
    bitwise_xor_ = in_place.bitwise_xor_
    clamp_max_ = in_place.clamp_max_
    clamp_min_ = in_place.clamp_min_
    eq_ = in_place.eq_
    floor_divide_ = in_place.floor_divide_
    fmod_ = in_place.fmod_
    ge_ = in_place.ge_
    gt_ = in_place.gt_
    le_ = in_place.le_
    logical_and_ = in_place.logical_and_
    logical_or_ = in_place.logical_or_
    logical_xor_ = in_place.logical_xor_
    lt_ = in_place.lt_
    ne_ = in_place.ne_
    remainder_ = in_place.remainder_
    addcdiv_ = in_place.addcdiv_
    addcmul_ = in_place.addcmul_
    addmm_ = in_place.addmm_
    baddbmm_ = in_place.baddbmm_
    cumprod_ = in_place.cumprod_
    cumsum_ = in_place.cumsum_
    frac_ = in_place.frac_
    index_add_ = in_place.index_add_
    index_copy_ = in_place.index_copy_
    index_fill_ = in_place.index_fill_
    index_reduce_ = in_place.index_reduce_
    lerp_ = in_place.lerp_
    logit_ = in_place.logit_
    masked_scatter_ = in_place.masked_scatter_
    nan_to_num_ = in_place.nan_to_num_
    put_ = in_place.put_
    round_ = in_place.round_
    scatter_ = in_place.scatter_
    scatter_add_ = in_place.scatter_add_
    scatter_reduce_ = in_place.scatter_reduce_
    tril_ = in_place.tril_
    triu_ = in_place.triu_
    as_strided_ = in_place.as_strided_
    squeeze_ = in_place.squeeze_
    swapaxes_ = in_place.swapaxes_
    swapdims_ = in_place.swapaxes_
    t_ = in_place.t_
    transpose_ = in_place.transpose_
    unsqueeze_ = in_place.unsqueeze_
    bitwise_left_shift_ = in_place.bitwise_left_shift_
    bitwise_right_shift_ = in_place.bitwise_right_shift_
    copysign_ = in_place.copysign_
    deg2rad_ = in_place.deg2rad_
    digamma_ = in_place.digamma_
    erfc_ = in_place.erfc_
    erfinv_ = in_place.erfinv_
    heaviside_ = in_place.heaviside_
    hypot_ = in_place.hypot_
    lgamma_ = in_place.lgamma_
    nextafter_ = in_place.nextafter_
    polygamma_ = in_place.polygamma_
    rad2deg_ = in_place.rad2deg_
    sinc_ = in_place.sinc_
    xlogy_ = in_place.xlogy_
