"""``vmflow.special``: the names under which PyTorch has the special functions."""

from __future__ import annotations

from .ops.elementwise.activation import log_softmax as log_softmax, sigmoid as sigmoid, softmax as softmax
from .ops.elementwise.error_function import erf as erf, erfc as erfc, erfinv as erfinv
from .ops.elementwise.gamma_function import digamma as digamma, lgamma as lgamma, polygamma as polygamma
from .ops.elementwise.rounding import round as round
from .ops.elementwise.special_functions import (
    erfcx as erfcx,
    i0 as i0,
    i0e as i0e,
    i1 as i1,
    i1e as i1e,
    igamma as _igamma,
    igammac as _igammac,
    log_ndtr as log_ndtr,
    mvlgamma as _mvlgamma,
    ndtr as ndtr,
    ndtri as ndtri,
    xlog1py as xlog1py,
    zeta as zeta,
)
from .ops.elementwise.transcendental import (
    entr as entr,
    exp2 as exp2,
    expm1 as expm1,
    log1p as log1p,
    logit as logit,
    sinc as sinc,
    xlogy as xlogy,
)
from .ops.reduction.composed_reduction import logsumexp as logsumexp

# PyTorch's second names.  They are assigned, because type checkers take ``import x as y`` for a private name.
expit = sigmoid
gammainc = _igamma
gammaincc = _igammac
multigammaln = _mvlgamma
gammaln = lgamma
psi = digamma
