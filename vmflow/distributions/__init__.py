"""``vmflow.distributions``: probability distributions whose parameters are tensors, under PyTorch's names."""

from __future__ import annotations

from . import constraints as constraints
from .continuous import Exponential as Exponential
from .continuous import Laplace as Laplace
from .continuous import Normal as Normal
from .continuous import Uniform as Uniform
from .discrete import Bernoulli as Bernoulli
from .discrete import Categorical as Categorical
from .distribution import Distribution as Distribution
from .independent import Independent as Independent
from .kl import kl_divergence as kl_divergence
from .kl import register_kl as register_kl
from .multivariate_normal import MultivariateNormal as MultivariateNormal
