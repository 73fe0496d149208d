"""``vmflow.special``: the names under which PyTorch has the special functions."""

from __future__ import annotations

from .ops.activation import log_softmax as log_softmax
from .ops.activation import sigmoid as sigmoid
from .ops.activation import softmax as softmax
from .ops.composed_reduction import logsumexp as logsumexp
from .ops.error_function import erf as erf
from .ops.error_function import erfc as erfc
from .ops.error_function import erfinv as erfinv
from .ops.gamma_function import digamma as digamma
from .ops.gamma_function import lgamma as lgamma
from .ops.gamma_function import polygamma as polygamma
from .ops.rounding import round as round
from .ops.transcendental import entr as entr
from .ops.transcendental import exp2 as exp2
from .ops.transcendental import expm1 as expm1
from .ops.transcendental import log1p as log1p
from .ops.transcendental import logit as logit
from .ops.transcendental import sinc as sinc
from .ops.transcendental import xlogy as xlogy

# Second names.  Assigned, because type checkers take a name that was imported as another for a private one.
expit = sigmoid
gammaln = lgamma
psi = digamma
