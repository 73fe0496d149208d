"""``vmflow.special``: the names under which PyTorch has the special functions."""

from __future__ import annotations

from .ops.elementwise.activation import log_softmax as log_softmax
from .ops.elementwise.activation import sigmoid as sigmoid
from .ops.elementwise.activation import softmax as softmax
from .ops.elementwise.error_function import erf as erf
from .ops.elementwise.error_function import erfc as erfc
from .ops.elementwise.error_function import erfinv as erfinv
from .ops.elementwise.gamma_function import digamma as digamma
from .ops.elementwise.gamma_function import lgamma as lgamma
from .ops.elementwise.gamma_function import polygamma as polygamma
from .ops.elementwise.rounding import round as round
from .ops.elementwise.transcendental import entr as entr
from .ops.elementwise.transcendental import exp2 as exp2
from .ops.elementwise.transcendental import expm1 as expm1
from .ops.elementwise.transcendental import log1p as log1p
from .ops.elementwise.transcendental import logit as logit
from .ops.elementwise.transcendental import sinc as sinc
from .ops.elementwise.transcendental import xlogy as xlogy
from .ops.reduction.composed_reduction import logsumexp as logsumexp

# Second names.  Assigned, because type checkers take a name that was imported as another for a private one.
expit = sigmoid
gammaln = lgamma
psi = digamma
