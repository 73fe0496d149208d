"""``vmflow.distributions``: probability distributions whose parameters are tensors, under PyTorch's names."""

from __future__ import annotations

from . import constraints as constraints, transforms as transforms
from .continuous import (
    Exponential as Exponential,
    Gamma as Gamma,
    Laplace as Laplace,
    MultivariateNormal as MultivariateNormal,
    Normal as Normal,
    Uniform as Uniform,
)
from .counts import (
    Binomial as Binomial,
    Geometric as Geometric,
    Multinomial as Multinomial,
    NegativeBinomial as NegativeBinomial,
    OneHotCategorical as OneHotCategorical,
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
    RelaxedBernoulli as RelaxedBernoulli,
    RelaxedOneHotCategorical as RelaxedOneHotCategorical,
)
from .discrete import Bernoulli as Bernoulli, Categorical as Categorical, Poisson as Poisson
from .distribution import Distribution as Distribution, Independent as Independent
from .gamma_family import (
    Beta as Beta,
    Chi2 as Chi2,
    Dirichlet as Dirichlet,
    FisherSnedecor as FisherSnedecor,
    InverseGamma as InverseGamma,
    StudentT as StudentT,
)
from .half_and_heavy import (
    Cauchy as Cauchy,
    Gumbel as Gumbel,
    HalfCauchy as HalfCauchy,
    HalfNormal as HalfNormal,
    LogNormal as LogNormal,
    Pareto as Pareto,
    Weibull as Weibull,
)
from .kl import kl_divergence as kl_divergence, register_kl as register_kl
from .mixture import MixtureSameFamily as MixtureSameFamily
from .transforms import (
    AbsTransform as AbsTransform,
    AffineTransform as AffineTransform,
    ComposeTransform as ComposeTransform,
    ExpTransform as ExpTransform,
    PowerTransform as PowerTransform,
    SigmoidTransform as SigmoidTransform,
    SoftplusTransform as SoftplusTransform,
    TanhTransform as TanhTransform,
    Transform as Transform,
    TransformedDistribution as TransformedDistribution,
)
