"""Parametrizations of weights: `weight_norm`, `spectral_norm` and `orthogonal`."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

from vmflow import random
from vmflow.autograd import no_grad
from vmflow.nn import functional as F
from vmflow.nn.module import Module
from vmflow.nn.weight_norms import as_matrix as _as_matrix, length_of_slices as _length_of_slices
from vmflow.ops.creation.creation import eye, ones_like, zeros_like
from vmflow.ops.elementwise.selection import where
from vmflow.ops.linalg.decompositions import qr, solve_triangular
from vmflow.ops.linalg.linear_algebra import dot, mv, solve
from vmflow.ops.linalg.matrix_functions import matrix_exp
from vmflow.ops.shape.joining import cat, stack
from vmflow.tensors import Tensor
from vmflow.transfers import beside as _beside

from .parametrize import register_parametrization

Changed = TypeVar("Changed", bound=Module)


def _tensor(function: str, module: Module, name: str) -> Tensor:
    tensor = getattr(module, name, None)
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{function}: {type(module).__name__} has no parameter or buffer {name!r}")
    return tensor


# By direction and length


class _WeightNorm(Module):
    """Computes ``direction * (length / |direction|)``, with a length for each slice along `dim`; one length if None."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / _length_of_slices(direction, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return _length_of_slices(weight, self.dim), weight


@attrs.frozen
class _OldNames:
    """A load hook that renames a state dict's entries of `nn.utils.weight_norm`, such as `weight_g`, to the new names.

    It is a class and no closure, so that modules with the hook can be pickled.
    """

    name: str

    def __call__(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        old = [f"{prefix}{self.name}_{letter}" for letter in "gv"]
        if all([key in state_dict for key in old]):
            for number, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{self.name}.original{number}"] = state_dict.pop(key)


def weight_norm(module: Changed, name: str = "weight", dim: int | None = 0) -> Changed:
    """Parametrize a weight by its length and its direction, which are trained (T. Salimans and D. Kingma, 2016).

    The module also loads state dicts of modules with `nn.utils.weight_norm`.

    Args:
        module: the module, which is changed and returned.
        name: the name of the weight.
        dim: the dimension along which each slice has a length of its own; None, or -1 as in PyTorch, for one length of
            the whole weight.

    Raises:
        ValueError: if there is no such weight.
        IndexError: if the weight has no such dimension, or `dim` is below -1.

    Example:
        >>> layer = flow.nn.utils.parametrizations.weight_norm(flow.nn.Linear(4, 3))
        >>> layer.parametrizations.weight.original0.shape      # the lengths
        vmflow.Size([3, 1])
        >>> layer.parametrizations.weight.original1.shape      # the directions
        vmflow.Size([3, 4])
    """
    weight = _tensor("weight_norm", module, name)
    if dim is not None and not -1 <= dim < weight.ndim:
        raise IndexError(f"weight_norm: dim {dim} is out of range for a weight of shape {list(weight.shape)}")
    parametrization = _WeightNorm(None if dim == -1 else dim)
    register_parametrization(module, name, parametrization, unsafe=True)
    module._register_load_state_dict_pre_hook(_OldNames(name))
    return module


# By the largest singular value


class _SpectralNorm(Module):
    """Divides a weight by the present estimate of its largest singular value, or a vector by its norm.

    Attributes:
        _u, _v: estimates of the two singular vectors for that value; missing for a weight that is a vector.
    """

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            matrix = _as_matrix(weight.detach(), dim)
            for name, size in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
                start = _beside(random.randn(size, dtype=weight.dtype, device=weight.device), weight)
                self.register_buffer(name, F.normalize(start, dim=0, eps=eps))
            # Fifteen iterations, as in PyTorch.
            self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._u.copy_(F.normalize(mv(matrix, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(mv(matrix.mT, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = _as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies, because the next reading of the weight may change _u and _v in place before the backward pass.
        left, right = self._u.clone(), self._v.clone()
        return weight / dot(left, mv(matrix, right))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Changed, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Changed:
    """Divide a weight by its largest singular value, found by power iteration (T. Miyato et al., 2018).

    In training mode each reading of the weight improves the estimate of the singular value.

    Args:
        module: the module, which is changed and returned.
        name: the name of the weight; a vector is divided by its length.
        n_power_iterations: the number of power iterations for each reading in training mode.
        eps: the lower bound of the norms by which vectors are divided.
        dim: the dimension of the outputs; by default 1 for transposed convolutions, else 0.

    Raises:
        ValueError: if there is no such weight, it is a scalar, or for fewer than one iteration.
        IndexError: if the weight has no such dimension.

    Example:
        >>> layer = flow.nn.Linear(2, 2, bias=False)
        >>> with flow.no_grad():
        ...     layer.weight.copy_(flow.tensor([[3.0, 0.0], [0.0, 4.0]])).shape
        vmflow.Size([2, 2])
        >>> flow.nn.utils.parametrizations.spectral_norm(layer).weight.detach().diagonal()
        tensor([0.7500, 1.0000])
    """
    weight = _tensor("spectral_norm", module, name)
    if n_power_iterations <= 0:
        raise ValueError(f"spectral_norm: n_power_iterations must be positive, got {n_power_iterations}")
    if weight.ndim == 0:
        raise ValueError("spectral_norm: a scalar has no singular values; expected a weight of 1 or more dimensions")
    if dim is None:
        dim = 1 if any([kind.__name__.startswith("ConvTranspose") for kind in type(module).__mro__]) else 0
    if not -weight.ndim <= dim < weight.ndim:
        raise IndexError(f"spectral_norm: dim {dim} is out of range for a weight of shape {list(weight.shape)}")
    parametrization = _SpectralNorm(weight, n_power_iterations, dim % weight.ndim, eps)
    return register_parametrization(module, name, parametrization)


# Orthogonal


class _Orthogonal(Module):
    """Computes an orthogonal matrix from an unconstrained matrix; see `orthogonal`.

    Attributes:
        base: an orthogonal matrix by which the result is multiplied, None until `right_inverse` sets it; missing
            without `use_trivialization`.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if wide else X
        result = _of_reflections(tall) if self.orthogonal_map == "householder" else self._of_skew(tall)
        base = self.base if self.use_trivialization else None
        if base is not None:
            result = base @ result
        return result.mT if wide else result

    def _of_skew(self, tall: Tensor) -> Tensor:
        """Return the exponential, or Cayley's map, of the skew-Hermitian matrix made of the lower triangle of `tall`.

        Only the first columns of the map's result are returned, as many as `tall` has.
        """
        n, k = tall.shape[-2:]
        lower = tall.tril()
        if n != k:
            lower = cat([lower, lower.new_zeros((*lower.shape[:-2], n, n - k))], -1)
        skew = lower - lower.mT.conj()
        if self.orthogonal_map == "matrix_exp":
            result: Tensor = matrix_exp(skew)
        else:
            one = _beside(eye(n, dtype=skew.dtype, device=skew.device), skew)
            result = solve(one - skew / 2, one + skew / 2)
        return result if n == k else result[..., :k]

    def right_inverse(self, Q: Tensor) -> Tensor:
        if tuple(Q.shape) != tuple(self.shape):
            raise ValueError(f"orthogonal: expected a matrix of shape {list(self.shape)}, got {list(Q.shape)}")
        wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if wide else Q
        if not self.use_trivialization:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"orthogonal: without trivialization, a parametrization by {self.orthogonal_map} takes no values"
                )
            vectors = _reflections(tall)
            return vectors.mT if wide else vectors
        n, k = tall.shape[-2:]
        if n != k:
            more = random.randn((*tall.shape[:-2], n, n - k), dtype=tall.dtype, device=tall.device)
            tall = cat([tall, _beside(more, tall)], -1)
        base, triangle = qr(tall)
        # Choose the QR decomposition with a positive diagonal of R: then `base` begins with the columns of `tall`,
        # if they are orthonormal.
        sign = triangle.diagonal(dim1=-2, dim2=-1).sign()
        self.base = base * where(sign == 0, ones_like(sign), sign).unsqueeze(-2)
        # Minus the identity: each of the three maps turns this matrix into the identity, so that the result is `base`.
        return zeros_like(Q) - _beside(eye(*Q.shape[-2:], dtype=Q.dtype, device=Q.device), Q)


def _of_reflections(tall: Tensor) -> Tensor:
    """Compute the first k columns of a product of Householder reflections, with vectors below the diagonal of `tall`.

    The product is I - V T V^T, where the inverse of T is triangular and known (C. Puglisi, 1992).  The k columns are
    multiplied by the signs of the diagonal of `tall`, which is n by k.
    """
    n, k = tall.shape[-2:]
    below = tall.tril(-1)
    vectors = below + _beside(eye(n, k, dtype=tall.dtype, device=tall.device), tall)
    half_lengths = (1 + (below * below).sum(-2)) / 2
    inverse = (vectors.mT @ vectors).triu(1) + half_lengths.diag_embed()
    one = _beside(eye(n, k, dtype=tall.dtype, device=tall.device), tall)
    product = one - vectors @ solve_triangular(inverse, vectors[..., :k, :].mT, upper=True)
    return product * tall.detach().diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def _reflections(tall: Tensor) -> Tensor:
    """Return the Householder vectors from which `_of_reflections` computes `tall`, if its columns are orthonormal.

    Otherwise `_of_reflections` computes Q of a QR decomposition of `tall`.
    """
    k = tall.shape[-1]
    rest, columns = tall.clone(), []
    for place in range(k):
        column = rest[..., place:, place]
        head, length = column[..., :1], column.norm(2, -1, keepdim=True)
        sign = where(head < 0, ones_like(head), -ones_like(head))
        # The Householder vector, scaled so that its first element is 1; its other elements go below the diagonal.  A
        # column of zeros has a vector, too.
        vector = column / where(length == 0, ones_like(head), head - sign * length)
        vector = cat([ones_like(head), vector[..., 1:]], -1).unsqueeze(-1)
        factor = 2 / (vector * vector).sum(-2, keepdim=True)
        part = rest[..., place:, :]
        part.copy_(part - factor * vector * (vector.mT @ part))
        above = tall.new_zeros((*tall.shape[:-2], place))
        columns.append(cat([above, sign, vector[..., 1:, 0]], -1))
    return stack(columns, -1)


def orthogonal(
    module: Changed, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Changed:
    """Parametrize a weight to have orthonormal columns, or orthonormal rows if it is wide (M. Lezcano-Casado, 2019).

    If the present weight is orthogonal, its value remains, with `use_trivialization` or the map "householder".

    Args:
        module: the module, which is changed and returned.
        name: the name of the weight, a matrix or a batch of them.
        orthogonal_map: the map from an unconstrained matrix: "matrix_exp", "cayley", or "householder", which takes real
            matrices; by default "matrix_exp" for square and complex matrices, else "householder".
        use_trivialization: multiply the result by an orthogonal matrix, which is set when a value is assigned to the
            weight, so that training continues from that value.  This needs a QR decomposition, of real matrices only.

    Raises:
        ValueError: if there is no such weight, for a vector or scalar, another map, or "householder" with a complex
            weight.
        TypeError: for a complex weight with `use_trivialization`, or, when it is read, with "matrix_exp".

    Example:
        >>> layer = flow.nn.utils.parametrizations.orthogonal(flow.nn.Linear(2, 4))
        >>> flow.allclose(layer.weight.mT @ layer.weight, flow.eye(2), atol=1e-5)
        True
    """
    weight = _tensor("orthogonal", module, name)
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: expected a matrix or a batch of them, got shape {list(weight.shape)}")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f"orthogonal: orthogonal_map must be 'matrix_exp', 'cayley' or 'householder', not {orthogonal_map!r}"
        )
    if weight.is_complex() and orthogonal_map == "householder":
        raise ValueError("orthogonal: 'householder' takes no complex matrices; use 'matrix_exp' or 'cayley'")
    parametrization = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, parametrization, unsafe=True)
