"""``vmflow.distributions``: probability distributions whose parameters are tensors, under PyTorch's names."""

from __future__ import annotations

from . import constraints as constraints
from .continuous import (
    Exponential as Exponential,
    Gamma as Gamma,
    Laplace as Laplace,
    MultivariateNormal as MultivariateNormal,
    Normal as Normal,
    Uniform as Uniform,
)
from .discrete import Bernoulli as Bernoulli, Categorical as Categorical, Poisson as Poisson
from .distribution import Distribution as Distribution, Independent as Independent
from .kl import kl_divergence as kl_divergence, register_kl as register_kl
