"""``out=``: the results are those of the same function without it, in the memory of the tensor that was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow

from .oracle import KernelContract, check, sample, values

OF_ONE = (
    *("abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "digamma", "erf", "erfc", "erfinv"),
    *("exp", "exp2", "expm1", "floor", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round"),
    *("rsqrt", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "nan_to_num"),
    *("logical_not", "signbit", "sum", "prod", "mean", "amax", "amin", "all", "any", "argmax", "argmin", "var", "std"),
    *("norm", "nansum", "nanmean"),
)
OF_TWO = (
    *("add", "sub", "mul", "div", "pow", "floor_divide", "remainder", "fmod", "maximum", "minimum", "atan2", "hypot"),
    *("logaddexp", "logaddexp2", "xlogy", "copysign", "nextafter", "fmax", "fmin", "heaviside", "clamp_min"),
    *("clamp_max", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "matmul", "mm"),
)
ARGUMENT = flow.tensor([[0, 2, 1], [1, 1, 0], [2, 0, 2]])
PERMUTATION = flow.tensor([2, 0, 1])
OTHERS: list[tuple[str, Callable[..., flow.Tensor]]] = [
    ("acosh", lambda x, y, **out: flow.acosh(x + 1, **out)),
    ("scalar", lambda x, y, **out: flow.mul(x, 2, **out)),
    ("reversed scalar", lambda x, y, **out: flow.div(1, x, **out)),
    ("alpha", lambda x, y, **out: flow.add(x, y, alpha=3, **out)),
    ("alpha of a difference", lambda x, y, **out: flow.sub(x, y, alpha=3, **out)),
    ("trunc", lambda x, y, **out: flow.div(x, y, rounding_mode="trunc", **out)),
    ("floor", lambda x, y, **out: flow.div(x, y, rounding_mode="floor", **out)),
    ("clamp", lambda x, y, **out: flow.clamp(x, 0.3, y, **out)),
    ("clamp from below", lambda x, y, **out: flow.clamp(x, 0.3, **out)),
    ("clamp from above", lambda x, y, **out: flow.clamp(x, max=0.3, **out)),
    ("sum along", lambda x, y, **out: flow.sum(x, 1, True, **out)),
    ("sum as", lambda x, y, **out: flow.sum(x, 0, dtype=flow.float32, **out)),
    ("prod as", lambda x, y, **out: flow.prod(x, 0, dtype=flow.float32, **out)),
    ("mean as", lambda x, y, **out: flow.mean(x, 0, dtype=flow.float32, **out)),
    ("all along nothing", lambda x, y, **out: flow.all(x, (), **out)),
    ("any along nothing", lambda x, y, **out: flow.any(x, (), **out)),
    ("cumsum", lambda x, y, **out: flow.cumsum(x, 1, **out)),
    ("cumprod", lambda x, y, **out: flow.cumprod(x, 1, **out)),
    ("cumsum as", lambda x, y, **out: flow.cumsum(x, 1, dtype=flow.float32, **out)),
    ("cumprod as", lambda x, y, **out: flow.cumprod(x, 1, dtype=flow.float32, **out)),
    ("logsumexp", lambda x, y, **out: flow.logsumexp(x, 1, **out)),
    ("lerp", lambda x, y, **out: flow.lerp(x, y, 0.3, **out)),
    ("addcmul", lambda x, y, **out: flow.addcmul(x, y, y, value=2, **out)),
    ("addcdiv", lambda x, y, **out: flow.addcdiv(x, y, y, value=2, **out)),
    ("round", lambda x, y, **out: flow.round(x, decimals=1, **out)),
    ("mv", lambda x, y, **out: flow.mv(x, y[0], **out)),
    ("dot", lambda x, y, **out: flow.dot(x[0], y[0], **out)),
    ("bmm", lambda x, y, **out: flow.bmm(x.unsqueeze(0), y.unsqueeze(0), **out)),
    ("outer", lambda x, y, **out: flow.outer(x[0], y[0], **out)),
    ("addmm", lambda x, y, **out: flow.addmm(x, x, y, beta=2, **out)),
    ("baddbmm", lambda x, y, **out: flow.baddbmm(x, x.unsqueeze(0), y.unsqueeze(0), **out)),
    ("tensordot", lambda x, y, **out: flow.tensordot(x, y, 1, **out)),
    ("where", lambda x, y, **out: flow.where(x > 0.5, x, y, **out)),
    ("where of a number", lambda x, y, **out: flow.where(x > 0.5, x, 2.0, **out)),
    ("softmax", lambda x, y, **out: flow.softmax(x, 1, **out)),
    ("log_softmax", lambda x, y, **out: flow.log_softmax(x, 0, dtype=flow.float32, **out)),
    ("cat", lambda x, y, **out: flow.cat([x, y], 1, **out)),
    ("stack", lambda x, y, **out: flow.stack([x, y], 1, **out)),
    ("hstack", lambda x, y, **out: flow.hstack([x, y], **out)),
    ("vstack", lambda x, y, **out: flow.vstack([x, y], **out)),
    ("msort", lambda x, y, **out: flow.msort(x, **out)),
    ("kron", lambda x, y, **out: flow.kron(x, y, **out)),
    ("inner", lambda x, y, **out: flow.inner(x, y, **out)),
    ("vdot", lambda x, y, **out: flow.vdot(x[0], y[0], **out)),
    ("cross", lambda x, y, **out: flow.cross(x, y, 1, **out)),
    ("det", lambda x, y, **out: flow.linalg.det(x, **out)),
    ("inv", lambda x, y, **out: flow.linalg.inv(x, **out)),
    ("pinv", lambda x, y, **out: flow.linalg.pinv(x, hermitian=False, **out)),
    ("solve", lambda x, y, **out: flow.linalg.solve(x, y, **out)),
    ("solve_triangular", lambda x, y, **out: flow.linalg.solve_triangular(x, y, upper=True, **out)),
    ("cholesky", lambda x, y, **out: flow.linalg.cholesky(x @ x.T, upper=True, **out)),
    ("cholesky_solve", lambda x, y, **out: flow.cholesky_solve(y, x.tril(), **out)),
    ("svdvals", lambda x, y, **out: flow.linalg.svdvals(x, **out)),
    ("eigvalsh", lambda x, y, **out: flow.linalg.eigvalsh(x, "U", **out)),
    ("matrix_power", lambda x, y, **out: flow.linalg.matrix_power(x, 3, **out)),
    ("matrix_rank", lambda x, y, **out: flow.linalg.matrix_rank(x, **out)),
    ("multi_dot", lambda x, y, **out: flow.linalg.multi_dot([x, y, x], **out)),
    ("vector_norm", lambda x, y, **out: flow.linalg.vector_norm(x, 3, 1, **out)),
    ("matrix_norm", lambda x, y, **out: flow.linalg.matrix_norm(x, "nuc", **out)),
    ("linalg.norm", lambda x, y, **out: flow.linalg.norm(x, 1, (0, 1), **out)),
    ("linalg.cross", lambda x, y, **out: flow.linalg.cross(x, y, dim=0, **out)),
    ("bits", lambda x, y, **out: flow.bitwise_and((x * 9).long(), (y * 9).long(), **out)),
    ("other bits", lambda x, y, **out: flow.bitwise_or((x * 9).long(), 3, **out)),
    ("more bits", lambda x, y, **out: flow.bitwise_xor((x * 9).long(), 3, **out)),
    ("inverted", lambda x, y, **out: flow.bitwise_not((x * 9).long(), **out)),
    ("shifted", lambda x, y, **out: flow.bitwise_left_shift((x * 9).long(), 3, **out)),
    ("argsort", lambda x, y, **out: flow.argsort(x, 1, **out)),
    ("bucketize", lambda x, y, **out: flow.bucketize(x, y[0].sort().values, **out)),
    ("chain_matmul", lambda x, y, **out: flow.chain_matmul(x, y, x, **out)),
    ("column_stack", lambda x, y, **out: flow.column_stack([x, y], **out)),
    ("complex", lambda x, y, **out: flow.complex(x, y, **out)),
    ("deg2rad", lambda x, y, **out: flow.deg2rad(x, **out)),
    ("rad2deg", lambda x, y, **out: flow.rad2deg(x, **out)),
    ("diag", lambda x, y, **out: flow.diag(x, **out)),
    ("diff", lambda x, y, **out: flow.diff(x, **out)),
    ("dstack", lambda x, y, **out: flow.dstack([x, y], **out)),
    ("frac", lambda x, y, **out: flow.frac(x * 5, **out)),
    ("gather", lambda x, y, **out: flow.gather(x, 1, ARGUMENT, **out)),
    ("histc", lambda x, y, **out: flow.histc(x, 4, **out)),
    ("index_add", lambda x, y, **out: flow.index_add(x, 0, ARGUMENT[0], y, alpha=2, **out)),
    ("index_copy", lambda x, y, **out: flow.index_copy(x, 0, PERMUTATION, y, **out)),
    ("index_reduce", lambda x, y, **out: flow.index_reduce(x, 0, PERMUTATION, y, "prod", **out)),
    ("index_select", lambda x, y, **out: flow.index_select(x, 1, ARGUMENT[0], **out)),
    ("isin", lambda x, y, **out: flow.isin(ARGUMENT, PERMUTATION[:2], **out)),
    ("logcumsumexp", lambda x, y, **out: flow.logcumsumexp(x, 1, **out)),
    ("logit", lambda x, y, **out: flow.logit(x, **out)),
    ("masked_select", lambda x, y, **out: flow.masked_select(x, x > 0.5, **out)),
    ("nanquantile", lambda x, y, **out: flow.nanquantile(x, 0.3, 1, **out)),
    ("nonzero", lambda x, y, **out: flow.nonzero(x > 0.5, **out)),
    ("polygamma", lambda x, y, **out: flow.polygamma(1, x, **out)),
    ("quantile", lambda x, y, **out: flow.quantile(x, 0.3, 1, **out)),
    ("scatter", lambda x, y, **out: flow.scatter(x, 1, ARGUMENT, y, **out)),
    ("scatter_add", lambda x, y, **out: flow.scatter_add(x, 1, ARGUMENT, y, **out)),
    ("scatter_reduce", lambda x, y, **out: flow.scatter_reduce(x, 1, ARGUMENT, y, "amax", **out)),
    ("searchsorted", lambda x, y, **out: flow.searchsorted(x.sort(1).values, y, **out)),
    ("slice_scatter", lambda x, y, **out: flow.slice_scatter(x, y[:2], 0, 1, 3, **out)),
    ("take", lambda x, y, **out: flow.take(x, ARGUMENT, **out)),
    ("take_along_dim", lambda x, y, **out: flow.take_along_dim(x, ARGUMENT, 1, **out)),
    ("tril", lambda x, y, **out: flow.tril(x, **out)),
    ("triu", lambda x, y, **out: flow.triu(x, 1, **out)),
    ("max", lambda x, y, **out: flow.max(x, y, **out)),
    ("max of another", lambda x, y, **out: flow.max(x, other=y, **out)),
    ("min of all", lambda x, y, **out: flow.min(x, **out)),
    ("shifted back", lambda x, y, **out: flow.bitwise_right_shift((x * 9).long(), 1, **out)),
]
CALLS: list[tuple[str, Callable[..., flow.Tensor]]] = [
    *[(name, lambda x, y, name=name, **out: getattr(flow, name)(x, **out)) for name in OF_ONE],
    *[(name, lambda x, y, name=name, **out: getattr(flow, name)(x, y, **out)) for name in OF_TWO],
    *OTHERS,
]


def _operands() -> tuple[flow.Tensor, flow.Tensor]:
    first = sample((3, 3), "float64", 0, 0.1, 0.9)
    return flow.tensor(first), flow.tensor(sample((3, 3), "float64", 1, 0.1, 0.9))


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_results_in_given_memory(name: str, call: Callable[..., flow.Tensor], contract: KernelContract) -> None:
    x, y = _operands()
    expected = call(x, y)
    dtype = expected.dtype.name
    out = flow.zeros_like(expected)
    alias = out.view(-1)
    assert call(x, y, out=out) is out
    check(alias, values(expected).reshape(-1), dtype)
    # A view that is not contiguous, and its neighbours.
    wide = flow.zeros(*expected.shape, 2, dtype=expected.dtype)
    call(x, y, out=wide[..., 0])
    check(wide[..., 0], values(expected), dtype)
    check(wide[..., 1], np.zeros(expected.shape), dtype)
    with pytest.raises(RuntimeError, match="does not fit the tensor of shape"):
        call(x, y, out=flow.zeros(7, 5, dtype=expected.dtype))


SEVERAL: list[tuple[str, Callable[..., tuple[flow.Tensor, ...]]]] = [
    ("sort", lambda x, **out: flow.sort(x, 1, True, **out)),
    ("topk", lambda x, **out: flow.topk(x, 2, 0, **out)),
    ("kthvalue", lambda x, **out: flow.kthvalue(x, 2, 0, True, **out)),
    ("aminmax", lambda x, **out: flow.aminmax(x, dim=1, **out)),
    ("cummax", lambda x, **out: flow.cummax(x, 1, **out)),
    ("cummin", lambda x, **out: flow.cummin(x, 0, **out)),
    ("median", lambda x, **out: flow.median(x, 1, **out)),
    ("nanmedian", lambda x, **out: flow.nanmedian(x, 1, True, **out)),
    ("mode", lambda x, **out: flow.mode(x, 1, **out)),
    ("histogram", lambda x, **out: flow.histogram(x, 4, **out)),
    ("max", lambda x, **out: flow.max(x, 1, **out)),
    ("min", lambda x, **out: flow.min(x, 0, True, **out)),
    ("qr", lambda x, **out: flow.linalg.qr(x, **out)),
    ("svd", lambda x, **out: flow.linalg.svd(x, False, **out)),
    ("eigh", lambda x, **out: flow.linalg.eigh(x + x.T, **out)),
    ("slogdet", lambda x, **out: flow.linalg.slogdet(x, **out)),
]


@pytest.mark.parametrize(("name", "call"), SEVERAL, ids=[name for name, _ in SEVERAL])
def test_several_results_in_given_memory(
    name: str, call: Callable[..., tuple[flow.Tensor, ...]], contract: KernelContract
) -> None:
    x, _ = _operands()
    expected = call(x)
    out = tuple([flow.zeros_like(value) for value in expected])
    found = call(x, out=out)
    assert type(found) is type(expected)
    for have, target, want in zip(found, out, expected, strict=True):
        assert have is target
        check(have, values(want), want.dtype.name)
    untouched = [*[flow.zeros_like(value) for value in expected[:-1]], flow.zeros(7, 5, dtype=expected[-1].dtype)]
    with pytest.raises(RuntimeError, match="does not fit the tensor of shape"):
        call(x, out=untouched)
    check(untouched[0], np.zeros(expected[0].shape), expected[0].dtype.name)
    with pytest.raises(ValueError, match=f"{name}: out must be {len(out)} tensors, got 1"):
        call(x, out=out[:1])
    with pytest.raises(TypeError, match=f"{name}: out must be a tuple of tensors, not Tensor"):
        call(x, out=out[0])


def test_indices_of_a_condition_have_no_out() -> None:
    with pytest.raises(TypeError, match="out needs input and other"):
        flow.where(flow.ones(3) > 0, out=flow.zeros(3))  # type: ignore[call-overload]


def test_out_may_be_among_the_inputs(contract: KernelContract) -> None:
    x, y = _operands()
    expected = values(x) @ values(y)
    assert flow.matmul(x, y, out=x) is x
    check(x, expected, "float64", tolerance=1e-12)
    flow.sigmoid(x, out=x)
    check(x, 1 / (1 + np.exp(-expected)), "float64", tolerance=1e-12)


def test_wider_results_are_cast_and_higher_ones_refused(contract: KernelContract) -> None:
    x, y = _operands()
    single = flow.zeros(3, 3)
    check(flow.add(x, y, out=single), values(x) + values(y), "float32")
    check(flow.lt(x, y, out=single), values(x) < values(y), "float32")
    with pytest.raises(RuntimeError, match="cannot be written"):
        flow.exp(x, out=flow.zeros(3, 3, dtype=flow.int64))
    with pytest.raises(RuntimeError, match=r"^add: the result is float64, which cannot be written"):
        flow.add(x, 1, out=flow.zeros(3, 3, dtype=flow.int64))
    with pytest.raises(RuntimeError, match=r"^mul: a leaf tensor that requires a gradient"):
        flow.ones(2, requires_grad=True).mul_(2)
    with pytest.raises(RuntimeError, match="share one place in memory"):
        flow.exp(x, out=flow.zeros(1, 3, dtype=flow.float64).expand(3, 3))


@pytest.mark.parametrize("call", [flow.exp, flow.sum, lambda x, **out: flow.lerp(x, x, 0.5, **out)])
def test_nothing_is_recorded(call: Callable[..., flow.Tensor]) -> None:
    x = flow.ones(3, requires_grad=True)
    out = flow.zeros_like(call(x)).detach()
    with pytest.raises(RuntimeError, match="do not support automatic differentiation"):
        call(x, out=out)
    with pytest.raises(RuntimeError, match="do not support automatic differentiation"):
        call(x.detach(), out=out.clone().requires_grad_())
    with flow.no_grad():
        expected = values(call(x))
        check(call(x, out=out), expected, "float32")
    assert not out.requires_grad


def test_overwriting_an_operand_of_the_backward_pass_raises() -> None:
    x = flow.ones(3, requires_grad=True)
    kept = flow.full((3,), 2.0)
    product = (x * kept).sum()
    flow.add(kept, 1, out=kept)
    with pytest.raises(RuntimeError, match=r"changed|modified|in place"):
        product.backward()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: flow.exp(x, out=np.zeros(3)), "out must be a tensor, not ndarray"),  # type: ignore[arg-type]
        (lambda x: flow.lerp(x, x, 0.5, out=[]), "out must be a tensor, not list"),  # type: ignore[arg-type]
        (lambda x: flow.exp(1.0, out=x), "expected tensors, got float"),  # type: ignore[arg-type]
        (lambda x: flow.add(1, 2, out=x), "expected a tensor"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(flow.ones(3))


MADE: list[tuple[str, Callable[..., flow.Tensor], Callable[..., Any]]] = [
    ("arange", lambda **out: flow.arange(1, 7, 2, **out), lambda: np.arange(1, 7, 2)),
    ("eye", lambda **out: flow.eye(3, **out), lambda: np.eye(3)),
    ("full", lambda **out: flow.full((3,), 2.5, **out), lambda: np.full(3, 2.5)),
    ("linspace", lambda **out: flow.linspace(0, 1, 4, **out), lambda: np.linspace(0, 1, 4)),
    ("logspace", lambda **out: flow.logspace(0, 1, 4, **out), lambda: np.logspace(0, 1, 4)),
]


@pytest.mark.parametrize(("name", "call", "expected"), MADE, ids=[name for name, *_ in MADE])
def test_new_tensors_written_to_out_have_its_dtype(
    name: str, call: Callable[..., flow.Tensor], expected: Callable[..., Any], contract: KernelContract
) -> None:
    out = flow.zeros(*expected().shape, dtype=flow.float64)
    assert call(out=out) is out
    check(out, expected(), "float64", tolerance=1e-15)
    with pytest.raises(RuntimeError, match="does not fit the tensor of shape"):
        call(out=flow.zeros(7, 5))
    with pytest.raises(TypeError, match=r"out is of the dtype vmflow\.int64, and vmflow\.float32 was asked for"):
        call(out=flow.zeros_like(out, dtype=flow.int64), dtype=flow.float32)
    assert call(out=out, requires_grad=True) is out
    assert out.requires_grad
    assert out.is_leaf


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_random_integers_in_given_memory_are_those_of_the_seed(device: str) -> None:
    makers: list[Callable[..., flow.Tensor]] = [
        lambda **given: flow.randint(0, 100, (3,), **given),
        lambda **given: flow.randperm(3, **given),
        lambda **given: flow.multinomial(flow.ones(9, device=device), 3, **given),
        lambda **given: flow.bernoulli(flow.full((3,), 0.5, device=device), **given),
    ]
    for make in makers:
        flow.manual_seed(5)
        expected = make()
        out = flow.zeros(3, dtype=expected.dtype, device=device)
        flow.manual_seed(5)
        assert make(out=out) is out
        assert out.tolist() == expected.tolist()


def test_a_dimension_and_another_tensor_are_too_many() -> None:
    with pytest.raises(TypeError, match="max: give either a dimension or another tensor"):
        flow.max(flow.ones(3), 0, other=flow.ones(3))
