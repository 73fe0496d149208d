"""Functions of the library itself, methods of tensors, and special functions."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt
from typing import Any, Final

import numpy as np

from .case import Call, Case

X: Final = [[0.5, -1.25, 2.0], [-0.1, 0.0, 3.0]]
U: Final = [0.3, -0.8, 0.0]
OVER: Final = [1.5, 2.0, 7.0]
HALF: Final = [0.2, 0.5, 0.9]
EVERYWHERE: Final = [[0.0, -3.0, 0.25], [20.0, -18.5, 1e-3]]


def _x(t: Any) -> Any:
    return t.tensor(X)


def _image(t: Any, *shape: int) -> Any:
    count = int(np.prod(shape))
    return t.tensor((np.arange(count) % 7 * 0.25 - 0.5).reshape(shape).astype(np.float32))


def _function(name: str, *args: Any) -> Call:
    """A call of a function; lists become tensors."""

    def call(t: Any) -> Any:
        found = t
        for part in name.split("."):
            found = getattr(found, part)
        return found(*[t.tensor(arg) if isinstance(arg, list) else arg for arg in args])

    return call


def _method(name: str, *args: Any) -> Call:
    """A call of a method of the first operand; lists become tensors."""

    def call(t: Any) -> Any:
        first, *others = [t.tensor(arg) if isinstance(arg, list) else arg for arg in args]
        return getattr(first, name)(*others)

    return call


def _both(name: str, *args: Any) -> Call:
    """The function and the method."""
    return lambda t: [_function(name, *args)(t), _method(name, *args)(t)]


def _in_place(name: str, *args: Any) -> Call:
    """Both the function and the method, each on a tensor of its own; what they return is the tensor itself."""

    def call(t: Any) -> Any:
        operands = [t.tensor(arg) if isinstance(arg, list) else arg for arg in args]
        first, second = operands[0].clone(), operands[0].clone()
        same = getattr(t, name)(first, *operands[1:]) is first, getattr(second, name)(*operands[1:]) is second
        return [first, second, *same]

    return call


# In-place forms that PyTorch has as functions, with operands within their domains.
_EVERYWHERE: Final = (
    *("abs", "absolute", "arctan", "arcsinh", "asinh", "atan", "ceil", "celu", "conj_physical", "cos", "cosh"),
    *("deg2rad", "erf", "erfc", "exp", "exp2", "expm1", "fix", "floor", "frac", "i0", "nan_to_num", "neg", "negative"),
    *("rad2deg", "reciprocal", "relu", "round", "rrelu", "selu", "sgn", "sigmoid", "sin", "sinc", "sinh", "square"),
    *("tan", "tanh", "trunc", "zero"),
)
_UNARY: Final = {
    **{name: X for name in _EVERYWHERE},
    **{name: U for name in ("acos", "arccos", "asin", "arcsin", "atanh", "arctanh")},
    **{name: OVER for name in ("acosh", "arccosh", "log", "log10", "log1p", "log2", "rsqrt", "sqrt")},
    "logit": HALF,
}
_NOT_FUNCTIONS: Final = ("absolute", "sgn")  # in PyTorch a method alone
_NOT_METHODS: Final = ("celu", "rrelu", "selu")

IN_PLACE: Final = [
    *[
        Case(f"{name}_", _in_place(f"{name}_", operand))
        for name, operand in _UNARY.items()
        if name not in (*_NOT_FUNCTIONS, *_NOT_METHODS)
    ],
    *[Case(f"{name}_", _function(f"{name}_", X)) for name in _NOT_METHODS],
    *[Case(f"Tensor.{name}_", _method(f"{name}_", X)) for name in _NOT_FUNCTIONS],
    Case("clamp_", _in_place("clamp_", X, -1.0, 1.0)),
    Case("clamp_min_", _in_place("clamp_min_", X, 0.25)),
    Case("clamp_max_", _in_place("clamp_max_", X, 0.25)),
    Case("clip_", _in_place("clip_", X, -1.0, 1.0)),
    Case("fill_", _in_place("fill_", X, 2.5)),
    Case("xlogy_", _in_place("xlogy_", X, [1.0, 2.0, 3.0])),
    Case("ldexp_", _in_place("ldexp_", X, [1, 2, 3])),
    Case("gcd_", _in_place("gcd_", [12, 18, 7], [8, 27, 14])),
    Case("lcm_", _in_place("lcm_", [12, 18, 7], [8, 27, 14])),
    Case("addmv_", lambda t: t.addmv_(t.ones(2), _x(t), t.ones(3))),
    Case("as_strided_", lambda t: t.as_strided_(_x(t), (2,), (1,))),
    Case("index_put_", lambda t: t.index_put_(_x(t), (t.tensor([0]), t.tensor([1])), t.tensor(9.0))),
    Case("threshold_", lambda t: t.threshold_(_x(t), 0.25, -1.0)),
    Case("detach_", lambda t: t.detach_(_x(t) * 2)),
    Case("alpha_dropout_", lambda t: t.alpha_dropout_(_x(t), 0.5, False)),
    Case("dropout_", lambda t: t.dropout_(_x(t), 0.5, False)),
    Case("feature_alpha_dropout_", lambda t: t.feature_alpha_dropout_(_image(t, 1, 2, 2, 2), 0.5, False)),
    *[
        Case(f"Tensor.{name}", _method(name, X, [1.0, 0.5, 2.0]))
        for name in (
            *("subtract_", "multiply_", "divide_", "true_divide_", "greater_", "greater_equal_", "less_"),
            *("less_equal_", "not_equal_", "arctan2_"),
        )
    ],
    Case("Tensor.float_power_", lambda t: _x(t).double().float_power_(2)),
    Case("Tensor.igamma_", lambda t: t.tensor(OVER).igamma_(t.tensor([0.5, 1.0, 2.0]))),
    Case("Tensor.igammac_", lambda t: t.tensor(OVER).igammac_(t.tensor([0.5, 1.0, 2.0]))),
    Case("Tensor.mvlgamma_", lambda t: t.tensor(OVER).mvlgamma_(2)),
    Case("Tensor.renorm_", lambda t: _x(t).renorm_(2, 0, 1.0)),
    Case("Tensor.addr_", lambda t: t.zeros(2, 3).addr_(t.ones(2), t.tensor(U))),
    Case("Tensor.addbmm_", lambda t: t.ones(2, 2).addbmm_(t.ones(3, 2, 1), t.ones(3, 1, 2), beta=0.5)),
    Case("Tensor.random_", lambda t: t.zeros(3, dtype=t.int32).random_(4, 5)),
    Case("Tensor.random_", lambda t: bool((t.zeros(99).random_(3) < 3).all())),
    Case("Tensor.exponential_", lambda t: tuple(t.zeros(2, 3).exponential_().shape)),
    Case("Tensor.cauchy_", lambda t: tuple(t.zeros(2, 3).cauchy_(1, 2).shape)),
    Case("Tensor.log_normal_", lambda t: bool((t.zeros(9).log_normal_() > 0).all())),
    Case("Tensor.geometric_", lambda t: bool((t.zeros(99, dtype=t.int64).geometric_(0.5) >= 1).all())),
    Case("Tensor.fill_diagonal_", lambda t: [t.zeros(7, 3).fill_diagonal_(2, wrap=wrap) for wrap in (False, True)]),
    Case("Tensor.fill_diagonal_", lambda t: t.zeros(2, 2, 2).fill_diagonal_(3)),
    Case("Tensor.apply_", lambda t: _x(t).apply_(lambda value: value * 2)),
    Case("Tensor.map_", lambda t: _x(t).map_(t.ones(2, 3), lambda value, other: value + other)),
    Case("Tensor.map2_", lambda t: _x(t).map2_(t.ones(2, 3), _x(t), lambda a, b, c: a + b - c)),
    Case("Tensor.resize_", lambda t: [_x(t).resize_(2, 2), tuple(_x(t).resize_(4, 2).shape)]),
    Case("Tensor.resize_as_", lambda t: _x(t).resize_as_(t.zeros(2))),
    Case("Tensor.set_", lambda t: t.zeros(1).set_(_x(t))),
]


def _activated(name: str) -> Callable[[], Any]:
    """By numpy: PyTorch has these in nn.functional alone."""
    x = np.array(X)
    found: dict[str, Any] = {
        "silu": x / (1 + np.exp(-x)),
        "mish": x * np.tanh(np.log1p(np.exp(x))),
        "softplus": np.log1p(np.exp(x)),
        "softsign": x / (1 + np.abs(x)),
        "selu": 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        "gelu": x * (1 + np.array([[erf(value * sqrt(0.5)) for value in row] for row in X])) / 2,
    }
    return lambda: found[name].astype(np.float32)


def _convolved(kind: str, rank: int) -> Call:
    def call(t: Any) -> Any:
        weight = _image(t, 3, 2, *[2] * rank) if kind == "conv" else _image(t, 2, 3, *[2] * rank)
        return getattr(t, f"{kind}{rank}d")(_image(t, 1, 2, *[4] * rank), weight, _image(t, 3), stride=2)

    return call


def _pooled(rank: int) -> Call:
    return lambda t: getattr(t, f"max_pool{rank}d")(_image(t, 1, 2, *[5] * rank), 2)


def _losses(t: Any) -> tuple[Any, Any, Any]:
    return _x(t), _x(t) * 0.5, t.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])


LAYERS: Final = [
    *[Case(name, _function(name, X)) for name in ("selu", "celu", "hardshrink", "rrelu", "relu")],
    *[
        Case(f"Tensor.{name}", _method(name, X), _activated(name))
        for name in ("silu", "selu", "mish", "softplus", "gelu", "softsign")
    ],
    *[Case(name, _function(name, X), _activated(name)) for name in ("silu", "mish", "softplus", "gelu", "softsign")],
    Case("Tensor.hardshrink", lambda t: _x(t).hardshrink()),
    Case("prelu", lambda t: t.prelu(_x(t), t.tensor([0.25]))),
    Case("Tensor.prelu", lambda t: _x(t).prelu(t.tensor([0.25]))),
    Case("threshold", lambda t: t.threshold(_x(t), 0.25, -1.0)),
    *[Case(f"conv{rank}d", _convolved("conv", rank)) for rank in (1, 2, 3)],
    *[Case(f"conv_transpose{rank}d", _convolved("conv_transpose", rank)) for rank in (1, 2, 3)],
    *[Case(f"max_pool{rank}d", _pooled(rank)) for rank in (1, 2, 3)],
    Case("avg_pool1d", lambda t: t.avg_pool1d(_image(t, 1, 2, 5), 2)),
    Case("adaptive_avg_pool1d", lambda t: t.adaptive_avg_pool1d(_image(t, 1, 2, 5), 2)),
    Case("adaptive_max_pool1d", lambda t: t.adaptive_max_pool1d(_image(t, 1, 2, 5), 2)),
    Case("layer_norm", lambda t: t.layer_norm(_x(t), (3,))),
    Case("rms_norm", lambda t: t.rms_norm(_x(t), (3,))),
    Case("group_norm", lambda t: t.group_norm(_image(t, 2, 4, 3), 2)),
    Case(
        "batch_norm",
        lambda t: t.batch_norm(_x(t), t.ones(3) * 2, t.ones(3), t.zeros(3), t.ones(3), True, 0.1, 1e-5, True),
    ),
    Case("batch_norm", lambda t: t.batch_norm(_x(t), None, None, t.ones(3), t.ones(3) * 4, False, 0.1, 1e-5, False)),
    Case(
        "instance_norm",
        lambda t: t.instance_norm(_image(t, 2, 3, 5), t.ones(3), t.ones(3), None, None, True, 0.1, 0.1, False),
    ),
    Case("embedding", lambda t: t.embedding(_x(t), t.tensor([[1, 0], [1, 1]]))),
    Case("bilinear", lambda t: t.bilinear(_x(t), _x(t), _image(t, 2, 3, 3), None)),
    Case("dropout", lambda t: [t.dropout(_x(t), 0.5, False), t.dropout(_x(t), p=1.0, train=True)]),
    Case("alpha_dropout", lambda t: t.alpha_dropout(_x(t), 0.5, False)),
    Case("feature_alpha_dropout", lambda t: t.feature_alpha_dropout(_image(t, 1, 2, 2), 0.5, False)),
    Case("affine_grid_generator", lambda t: t.affine_grid_generator(_image(t, 1, 2, 3), (1, 1, 2, 2), False)),
    Case("pixel_shuffle", lambda t: t.pixel_shuffle(_image(t, 1, 4, 2, 2), 2)),
    Case("pixel_unshuffle", lambda t: t.pixel_unshuffle(_image(t, 1, 1, 4, 4), 2)),
    Case("channel_shuffle", lambda t: t.channel_shuffle(_image(t, 1, 4, 2, 2), 2)),
    Case("cosine_similarity", lambda t: t.cosine_similarity(_x(t), _x(t).flip(0), dim=1)),
    Case("pairwise_distance", lambda t: t.pairwise_distance(_x(t), _x(t).flip(0))),
    Case("pdist", lambda t: [t.pdist(_image(t, 4, 3), p) for p in (2, 1, 0.5, float("inf"))]),
    Case("nn.functional.pdist", lambda t: t.nn.functional.pdist(_x(t))),
    Case("kl_div", lambda t: t.kl_div(t.log_softmax(_x(t), 1), t.softmax(_x(t).flip(0), 1))),
    Case("binary_cross_entropy_with_logits", lambda t: t.binary_cross_entropy_with_logits(_x(t), t.ones(2, 3) * 0.3)),
    Case("poisson_nll_loss", lambda t: t.poisson_nll_loss(*_losses(t)[:2], True, False, 1e-8, 1)),
    Case("hinge_embedding_loss", lambda t: t.hinge_embedding_loss(_losses(t)[0], _losses(t)[2])),
    Case("margin_ranking_loss", lambda t: t.margin_ranking_loss(*_losses(t))),
    Case("cosine_embedding_loss", lambda t: t.cosine_embedding_loss(_x(t), _x(t).flip(0), t.tensor([1.0, -1.0]))),
    Case("triplet_margin_loss", lambda t: t.triplet_margin_loss(_x(t), _x(t) * 2, _x(t).flip(0))),
    Case(
        "ctc_loss",
        lambda t: t.ctc_loss(
            t.log_softmax(_image(t, 5, 2, 4), 2), t.tensor([[1, 2], [3, 1]]), t.tensor([5, 5]), t.tensor([2, 2])
        ),
    ),
]


ELEMENTWISE: Final = [
    *[
        Case(
            name,
            _both(name, given),
        )
        for name, given in {
            **{"arcsin": U, "arccos": U, "arctan": X, "arcsinh": X, "arccosh": OVER, "arctanh": U},
            **{"fix": X, "conj_physical": X, "angle": X, "sgn": X, "isreal": X, "i0": X, "frexp": X},
            **{"isneginf": [1.0, -np.inf], "isposinf": [np.inf, -np.inf]},
        }.items()
    ],
    Case("arctan2", lambda t: [t.arctan2(_x(t), t.ones(3)), _x(t).arctan2(t.ones(3))]),
    Case("angle", lambda t: t.angle(t.tensor([1 + 1j, -1.0, 0.0]))),
    Case("sgn", lambda t: t.sgn(t.tensor([3 + 4j, -2.0, 0.0]))),
    Case("isreal", lambda t: t.isreal(t.tensor([3 + 4j, -2.0]))),
    Case("polar", lambda t: t.polar(t.tensor([1.0, 2.0]), t.tensor([0.5, -2.0]))),
    Case("gcd", lambda t: [t.gcd(t.tensor([12, -8, 0]), t.tensor([18, 12, 5])), t.tensor(9).gcd(t.tensor(6))]),
    Case("lcm", lambda t: [t.lcm(t.tensor([12, -8, 0]), t.tensor([18, 12, 5])), t.tensor(9).lcm(t.tensor(6))]),
    Case("ldexp", lambda t: [t.ldexp(_x(t), t.tensor([1, -2, 3])), t.tensor([3]).ldexp(t.tensor([2]))]),
    Case(
        "float_power",
        lambda t: [t.float_power(_x(t), 2), t.float_power(2, t.tensor([1, 2])), t.tensor([4]).float_power(0.5)],
    ),
    Case("rsub", lambda t: t.rsub(_x(t), 2, alpha=3)),
    Case("Tensor.where", lambda t: [_x(t).where(_x(t) > 0, t.zeros(3)), _x(t).where(_x(t) > 0, 7.0)]),
    *[Case(f"Tensor.{name}", _method(name, [1.0, 2.5])) for name in ("byte", "char", "short", "cfloat", "cdouble")],
    *[
        Case(f"special.{name}", _function(f"special.{name}", given))
        for name, given in {
            **{name: EVERYWHERE for name in ("i0", "i0e", "i1", "i1e", "erfcx", "ndtr", "log_ndtr")},
            "ndtri": [0.0, 1e-6, 0.3, 0.5, 0.999, 1.0],
        }.items()
    ],
    *[
        Case(name, _function(name, [0.5, 2.0, 0.0, 30.0, 500.0], [0.25, 3.0, 1.0, 28.0, 480.0]))
        for name in ("igamma", "igammac", "special.gammainc", "special.gammaincc")
    ],
    Case(
        "special.zeta",
        lambda t: [t.special.zeta(t.tensor(OVER), t.tensor([1.0, 0.5, 3.0])), t.special.zeta(2, t.tensor(OVER))],
    ),
    Case(
        "special.xlog1py",
        lambda t: [
            t.special.xlog1py(t.tensor([0.0, 2.0]), t.tensor([-1.0, 3.0])),
            t.special.xlog1py(t.tensor([1, 2]), 2),
        ],
    ),
    Case("special.multigammaln", lambda t: t.special.multigammaln(t.tensor(OVER), 3)),
    Case("mvlgamma", lambda t: [t.mvlgamma(t.tensor(OVER), 2), t.tensor(OVER).mvlgamma(1)]),
]


def _seen_again(t: Any) -> list[bool]:
    x = _x(t)
    return [x.is_set_to(x.view(2, 3)), x.is_set_to(x[1:])]


ARRAYS: Final = [
    Case("addmv", lambda t: t.addmv(t.ones(2), _x(t), t.ones(3), alpha=2)),
    Case("addr", lambda t: t.addr(t.ones(2, 3), t.ones(2), t.tensor(U), beta=3)),
    Case("addbmm", lambda t: t.addbmm(t.ones(2, 2), t.ones(3, 2, 4), t.ones(3, 4, 2), beta=0)),
    Case("ger", lambda t: [t.ger(t.tensor(U), t.tensor(OVER)), t.tensor(U).ger(t.tensor(OVER))]),
    Case("adjoint", lambda t: [t.adjoint(_x(t)), t.tensor([[1j, 2.0]]).adjoint().resolve_conj()]),
    Case("dist", lambda t: [t.dist(_x(t), t.tensor(U), p) for p in (2, 0, 1, 3.5, float("inf"))]),
    Case("renorm", lambda t: [t.renorm(_x(t), 2, 0, 1.0), _x(t).renorm(1, 1, 0.5)]),
    Case("vander", lambda t: [t.vander(t.tensor(U)), t.vander(t.tensor([2, 3]), 4, True)]),
    Case("trapz", lambda t: [t.trapz(_x(t)), t.trapz(_x(t), t.tensor(OVER)), t.trapz(_x(t), dx=2, dim=0)]),
    Case(
        "cumulative_trapezoid", lambda t: [t.cumulative_trapezoid(_x(t)), t.cumulative_trapezoid(_x(t), t.tensor(OVER))]
    ),
    Case("gradient", lambda t: [list(t.gradient(_x(t))), list(t.gradient(_x(t), spacing=0.5, dim=1, edge_order=2))]),
    Case("gradient", lambda t: list(t.gradient(_x(t), spacing=(t.tensor([0.0, 3.0]), t.tensor(OVER))))),
    Case("unravel_index", lambda t: list(t.unravel_index(t.tensor([[5, 0], [3, 4]]), (3, 2)))),
    Case("row_stack", lambda t: t.row_stack((_x(t), t.tensor(U)))),
    Case("narrow_copy", lambda t: [t.narrow_copy(_x(t), 1, 1, 2), _x(t).narrow_copy(0, 0, 1)]),
    Case("unsafe_chunk", lambda t: list(t.unsafe_chunk(_x(t), 2, 1))),
    Case("unsafe_split", lambda t: list(_x(t).unsafe_split(2, 1))),
    Case("unsafe_split_with_sizes", lambda t: list(_x(t).unsafe_split_with_sizes((1, 2), 1))),
    Case("as_strided_scatter", lambda t: t.as_strided_scatter(_x(t), t.zeros(2), (2,), (3,), 1)),
    Case("Tensor.as_strided_scatter", lambda t: _x(t).as_strided_scatter(t.zeros(2, 2), (2, 2), (3, 1))),
    Case("asarray", lambda t: [t.asarray(X), t.asarray(np.array([1, 2])), t.asarray(t.ones(2), dtype=t.int64)]),
    Case("frombuffer", lambda t: t.frombuffer(bytearray([1, 2, 0, 1, 9, 9]), dtype=t.int16, count=1, offset=2)),
    Case("scalar_tensor", lambda t: [t.scalar_tensor(2), t.scalar_tensor(2, dtype=t.int32)]),
    Case("randint_like", lambda t: [t.randint_like(_x(t), 3, 4), t.randint_like(_x(t), 1, dtype=t.int64)]),
    Case(
        "is_signed",
        lambda t: [t.is_signed(_x(t)), t.ones(1, dtype=t.uint8).is_signed(), t.ones(1, dtype=t.bool).is_signed()],
    ),
    Case("is_same_size", lambda t: [t.is_same_size(_x(t), _x(t)), _x(t).is_same_size(t.tensor(U))]),
    Case("get_device", lambda t: [t.get_device(_x(t)), _x(t).get_device()]),
    Case("is_inference", lambda t: [t.is_inference(_x(t)), _x(t).is_inference()]),
    Case("is_conj", lambda t: [t.is_conj(_x(t)), _x(t).is_conj()]),
    Case("is_neg", lambda t: [t.is_neg(_x(t)), _x(t).is_neg()]),
    Case("resolve_conj", lambda t: [t.resolve_conj(_x(t)), _x(t).resolve_conj()]),
    Case("resolve_neg", lambda t: [t.resolve_neg(_x(t)), _x(t).resolve_neg()]),
    Case("detach", lambda t: t.detach(_x(t).requires_grad_()).requires_grad),
    Case("Tensor.is_set_to", _seen_again),
    Case("Tensor.new", lambda t: [tuple(_x(t).new(2, 4).shape), _x(t).new([1, 2]), tuple(_x(t).new().shape)]),
]

CASES: Final = [*IN_PLACE, *LAYERS, *ELEMENTWISE, *ARRAYS]
