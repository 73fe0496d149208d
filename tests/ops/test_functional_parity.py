"""Activations, losses and distances of `nn.functional` against PyTorch's, values and gradients."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
import vmflow.nn.functional as F

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]
torch = pytest.importorskip("torch")


def numbers(seed: int, *shape: int, low: float = -4.0, high: float = 4.0) -> Array:
    return np.asarray(np.random.default_rng(seed).uniform(low, high, shape))


def integers(seed: int, high: int, *shape: int) -> Array:
    return np.asarray(np.random.default_rng(seed).integers(0, high, shape))


def signs(seed: int, *shape: int) -> Array:
    return integers(seed, 2, *shape) * 2.0 - 1


X = numbers(0, 3, 4)
# Also where the pieces meet.
BENDS = np.array([[-6.0, -3.0, -1.0, -0.5, -0.0, 0.0], [0.5, 1.0, 3.0, 6.0, 7.5, -8.0]])

ACTIVATIONS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("relu6", (), {}),
    ("hardsigmoid", (), {}),
    ("hardswish", (), {}),
    ("mish", (), {}),
    ("selu", (), {}),
    ("celu", (0.7,), {}),
    ("threshold", (0.5, -2.0), {}),
    ("threshold", (1.0, 20.0), {}),
    ("rrelu", (0.1, 0.4), {"training": False}),
    ("elu", (1.3,), {}),
    ("leaky_relu", (0.2,), {}),
    ("hardtanh", (-0.5, 1.0), {}),
    ("silu", (), {}),
    ("relu", (), {}),
]
PLAIN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("glu", (), {}),
    ("logsigmoid", (), {}),
    ("softsign", (), {}),
    ("softmin", (1,), {}),
    ("tanhshrink", (), {}),
    ("hardshrink", (), {}),
    ("hardshrink", (1.0,), {}),
    ("softshrink", (), {}),
    ("softshrink", (1.0,), {}),
]


def compare(
    function: str, arrays: list[Array], arguments: tuple[Any, ...] = (), tolerance: float = 1e-9, **keywords: Any
) -> None:
    """Call both with these arrays; gradients flow into those that are floating-point."""
    ours: list[Any] = [flow.tensor(array, requires_grad=array.dtype.kind == "f") for array in arrays]
    theirs: list[Any] = [torch.tensor(array, requires_grad=array.dtype.kind == "f") for array in arrays]
    mine = {
        key: flow.tensor(keyword) if isinstance(keyword, np.ndarray) else keyword for key, keyword in keywords.items()
    }
    others = {
        key: torch.tensor(keyword) if isinstance(keyword, np.ndarray) else keyword for key, keyword in keywords.items()
    }
    result = getattr(F, function)(*ours, *arguments, **mine)
    expected = getattr(torch.nn.functional, function)(*theirs, *arguments, **others)
    assert tuple(result.shape) == tuple(expected.shape)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    weight = numbers(99, *expected.shape)
    (result * flow.tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for found, reference in zip(ours, theirs, strict=True):
        if reference.requires_grad and reference.grad is not None:
            wanted = reference.grad.numpy()
            have = np.zeros_like(wanted) if found.grad is None else found.grad.numpy()
            np.testing.assert_allclose(have, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "arguments", "keywords"), [*ACTIVATIONS, *PLAIN], ids=lambda name: str(name))
@pytest.mark.parametrize("array", [X, BENDS, np.zeros((2, 0))], ids=["usual", "bends", "empty"])
def test_activations(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], array: Array) -> None:
    # PyTorch computes these two with constants of single precision.
    tolerance = 1e-7 if name in ("celu", "hardsigmoid") else 1e-9
    compare(name, [array], arguments, tolerance, **keywords)


def test_dimensions_of_glu_and_softmin() -> None:
    compare("glu", [numbers(0, 4, 3)], (0,))
    compare("glu", [numbers(0, 2, 6, 3)], (-2,))
    for shape, dim in (((3,), 0), ((2, 3), 1), ((2, 3, 4), 0), ((2, 3, 2, 2), 1)):
        x = flow.tensor(numbers(0, *shape))
        assert F.softmin(x).tolist() == F.softmin(x, dim).tolist()
    assert F.softmin(flow.tensor([1, 2]), 0, dtype=flow.float64).dtype is flow.float64
    # The cast comes before the minus, with which small integers would wrap around.
    assert F.softmin(flow.tensor([0, 200], dtype=flow.uint8), 0, dtype=flow.float32).tolist() == [1, 0]


@pytest.mark.parametrize(("name", "arguments", "keywords"), [*ACTIVATIONS, *PLAIN], ids=lambda name: str(name))
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_activations_of_half_precision_are_rounded_once(
    name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], kind: str
) -> None:
    x = flow.tensor(X, dtype=getattr(flow, kind))
    result = getattr(F, name)(x, *arguments, **keywords)
    assert result.dtype is x.dtype
    exact = getattr(F, name)(x.to(flow.float64), *arguments, **keywords)
    limit = 2**-10 if kind == "float16" else 2**-7
    np.testing.assert_allclose(result.float().numpy(), exact.float().numpy(), rtol=limit, atol=1e-5)


@pytest.mark.parametrize(("name", "arguments", "keywords"), [*ACTIVATIONS, *PLAIN], ids=lambda name: str(name))
def test_activations_refuse_integers(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    if name in ("relu", "hardtanh", "softmin"):
        return  # these have their own rules
    with pytest.raises(TypeError, match="is not defined for int64 tensors"):
        getattr(F, name)(flow.tensor([[1, 2]]), *arguments, **keywords)


@pytest.mark.parametrize(("name", "arguments", "keywords"), ACTIVATIONS, ids=lambda name: str(name))
def test_activations_in_place(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    function = getattr(F, name)
    leaf = flow.tensor(X, requires_grad=True)
    inner = leaf * 1.0
    result = function(inner, *arguments, inplace=True, **keywords)
    assert result is inner
    apart = flow.tensor(X, requires_grad=True)
    expected = function(apart * 1.0, *arguments, **keywords)
    np.testing.assert_array_equal(inner.detach().numpy(), expected.detach().numpy())
    result.sum().backward()
    expected.sum().backward()
    assert leaf.grad is not None
    assert apart.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), apart.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("relu_", ()),
        ("elu_", (0.5,)),
        ("selu_", ()),
        ("celu_", (0.5,)),
        ("leaky_relu_", (0.3,)),
        ("hardtanh_", (-0.5, 0.5)),
        ("threshold_", (0.5, 2.0)),
        ("rrelu_", (0.2, 0.4)),
    ],
)
def test_forms_that_end_in_an_underscore_write(name: str, arguments: tuple[float, ...]) -> None:
    x = flow.tensor(X)
    assert getattr(F, name)(x, *arguments) is x
    np.testing.assert_array_equal(x.numpy(), getattr(F, name[:-1])(flow.tensor(X), *arguments).numpy())


@pytest.mark.parametrize("weights", [1, 4])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3)])
def test_prelu(weights: int, shape: tuple[int, ...]) -> None:
    compare("prelu", [numbers(1, *shape), numbers(2, weights)])


def test_prelu_of_a_vector_and_a_number() -> None:
    compare("prelu", [numbers(1, 5), numbers(2, 1)])
    compare("prelu", [numbers(1), numbers(2, 1)])


def test_prelu_refuses() -> None:
    with pytest.raises(ValueError, match="takes a weight with 1 element or 4, not of shape \\[3\\]"):
        F.prelu(flow.ones(2, 4), flow.ones(3))
    with pytest.raises(TypeError, match="one dtype, not float32 and float64"):
        F.prelu(flow.ones(2, 4), flow.ones(1, dtype=flow.float64))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e4, -1e4])
@pytest.mark.parametrize("name", ["hardsigmoid", "mish", "selu", "celu", "logsigmoid", "softshrink", "relu6", "silu"])
def test_extremes(name: str, value: float) -> None:
    x = flow.tensor([value], dtype=flow.float64, requires_grad=True)
    other = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    result, expected = getattr(F, name)(x), getattr(torch.nn.functional, name)(other)
    if name == "softshrink" and np.isnan(value):
        assert np.isnan(result.item())
        return
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    if np.isfinite(value):
        result.sum().backward()
        expected.sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-9, atol=1e-300)


def test_logsigmoid_keeps_its_small_values() -> None:
    x = np.array([-700.0, -50.0, -1.0, 0.0, 1.0, 30.0, 50.0])
    compare("logsigmoid", [x], tolerance=1e-14)
    assert F.logsigmoid(flow.tensor([30.0])).item() == pytest.approx(-9.357623e-14)


# Losses

Y = numbers(3, 3, 4)
POSITIVE = numbers(4, 3, 4, low=0.2, high=3.0)
CASES: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("poisson_nll_loss", [X, POSITIVE], {}),
    ("poisson_nll_loss", [POSITIVE, POSITIVE * 2], {"log_input": False, "full": True}),
    ("gaussian_nll_loss", [X, Y, POSITIVE], {}),
    ("gaussian_nll_loss", [X, Y, POSITIVE[:, :1]], {"full": True}),
    ("gaussian_nll_loss", [X, Y, POSITIVE[:, 0]], {"eps": 1.0}),
    ("cosine_embedding_loss", [X, Y, signs(0, 3)], {}),
    ("cosine_embedding_loss", [X, Y, signs(0, 3)], {"margin": 0.3}),
    ("cosine_embedding_loss", [X[0], X[1], np.array(-1.0)], {}),
    ("margin_ranking_loss", [X, Y, signs(1, 3, 4)], {}),
    ("margin_ranking_loss", [X, Y, signs(1, 3, 1)], {"margin": 0.5}),
    ("hinge_embedding_loss", [POSITIVE, signs(1, 3, 4)], {}),
    ("hinge_embedding_loss", [POSITIVE, signs(1, 3, 4)], {"margin": 2.0}),
    ("triplet_margin_loss", [X, Y, POSITIVE], {}),
    ("triplet_margin_loss", [X, Y, POSITIVE], {"margin": 4.0, "p": 3, "swap": True}),
    ("triplet_margin_loss", [X[0], Y[0], POSITIVE[0]], {"p": 1}),
    ("triplet_margin_with_distance_loss", [X, Y, POSITIVE], {"margin": 5.0, "swap": True}),
    ("multi_margin_loss", [X, integers(0, 4, 3)], {}),
    ("multi_margin_loss", [X, integers(0, 4, 3)], {"p": 2, "margin": 0.4, "weight": numbers(5, 4, low=0.5)}),
    ("multi_margin_loss", [X[0], np.array(2)], {}),
    ("multilabel_margin_loss", [X, np.array([[1, 3, -1, 0], [-1, 2, 2, 2], [3, 2, 1, 0]])], {}),
    ("multilabel_margin_loss", [X[1], np.array([2, 0, -1, 3])], {}),
    ("multilabel_soft_margin_loss", [X, integers(2, 2, 3, 4).astype(float)], {}),
    ("multilabel_soft_margin_loss", [X, integers(2, 2, 3, 4).astype(float)], {"weight": numbers(5, 4, low=0.5)}),
    ("soft_margin_loss", [X, signs(1, 3, 4)], {}),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "arrays", "keywords"), CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)])
def test_losses(name: str, arrays: list[Array], keywords: dict[str, Any], reduction: str) -> None:
    free = arrays[:-1] if name not in ("triplet_margin_loss", "triplet_margin_with_distance_loss") else arrays
    if name == "gaussian_nll_loss":
        free = arrays
    fixed = [] if len(free) == len(arrays) else [arrays[-1]]

    def call(lib: Any, functions: Any) -> tuple[Any, list[Any]]:
        inputs = [lib.tensor(value, requires_grad=True) for value in free]
        given = {
            key: lib.tensor(keyword) if isinstance(keyword, np.ndarray) else keyword
            for key, keyword in keywords.items()
        }
        function = getattr(functions, name)
        return function(*inputs, *[lib.tensor(value) for value in fixed], reduction=reduction, **given), inputs

    result, mine = call(flow, F)
    expected, others = call(torch, torch.nn.functional)
    assert tuple(result.shape) == tuple(expected.shape)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    weight = numbers(98, *expected.shape)
    (result * flow.tensor(weight)).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for found, reference in zip(mine, others, strict=True):
        if reference.grad is not None:
            np.testing.assert_allclose(found.grad.numpy(), reference.grad.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", sorted({case[0] for case in CASES} | {"ctc_loss"}))
def test_an_unknown_reduction_is_refused(name: str) -> None:
    if name == "ctc_loss":
        arrays: list[Array] = [numbers(0, 4, 1, 3), np.array([[1]]), np.array([4]), np.array([1])]
    else:
        arrays = next(case[1] for case in CASES if case[0] == name)
    with pytest.raises(ValueError, match=f"{name}: reduction must be one of mean, sum, none"):
        getattr(F, name)(*[flow.tensor(array) for array in arrays], reduction="average")


@pytest.mark.parametrize(
    ("name", "arrays", "keywords", "complaint"),
    [
        ("gaussian_nll_loss", [X, Y, POSITIVE[:2]], {}, "variances of shape \\[2, 4\\] do not fit"),
        ("gaussian_nll_loss", [X, Y, POSITIVE], {"eps": 0.0}, "eps must be positive"),
        ("cosine_embedding_loss", [X, Y, X], {}, "expected inputs"),
        ("margin_ranking_loss", [X, Y, X[0]], {}, "as many dimensions"),
        ("triplet_margin_loss", [X, Y, X[0]], {}, "as many dimensions"),
        ("triplet_margin_loss", [X, Y, X], {"margin": 0}, "margin must be positive"),
        ("multi_margin_loss", [X, integers(0, 4, 4)], {}, "takes targets of shape \\[3\\], not \\[4\\]"),
        ("multi_margin_loss", [X, integers(0, 4, 3)], {"p": 3}, "p must be 1 or 2"),
        ("multilabel_margin_loss", [X, integers(0, 4, 3, 3)], {}, "must agree"),
        ("soft_margin_loss", [X, Y[0]], {}, "must agree"),
        ("celu", [X], {"alpha": 0.0}, "alpha must not be 0"),
        ("softshrink", [X], {"lambd": -1.0}, "lambd cannot be negative"),
        ("glu", [X], {"dim": 0}, "odd size"),
        ("rrelu", [X], {"lower": 1.0, "upper": 0.0}, "must not be above"),
        ("gumbel_softmax", [X], {"tau": 0.0}, "must be positive"),
    ],
)
def test_values_that_do_not_fit(name: str, arrays: list[Array], keywords: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        getattr(F, name)(*[flow.tensor(array) for array in arrays], **keywords)


def test_class_indices_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="class indices must be integers, not float64"):
        F.multi_margin_loss(flow.tensor(X), flow.tensor(X[:, 0]))
    with pytest.raises(TypeError, match="not defined for int64 tensors"):
        F.multilabel_margin_loss(flow.tensor([[1, 2]]), flow.tensor([[1, 0]]))
    result = F.multi_margin_loss(flow.tensor(X), flow.tensor([0, 4, 1]))
    with pytest.raises(IndexError):
        result.numpy()


def test_soft_margin_does_not_overflow() -> None:
    x = flow.tensor([-1e4, 1e4], requires_grad=True)
    loss = F.soft_margin_loss(x, flow.ones(2), reduction="none")
    assert loss.tolist() == [1e4, 0.0]
    loss.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1.0, 0.0]


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int8", "float16"])
def test_soft_margin_takes_targets_of_any_dtype(dtype: str) -> None:
    x, ones = flow.tensor([1.0, 2.0]), flow.ones(2)
    loss = F.soft_margin_loss(x, ones.to(getattr(flow, dtype)))
    assert loss.dtype is flow.float32
    assert loss.item() == F.soft_margin_loss(x, ones).item()


def test_class_indices_of_uint64() -> None:
    x, target = flow.tensor(X), flow.tensor([0, 3, 1])
    for loss in (F.multi_margin_loss, F.combined_margin):
        np.testing.assert_array_equal(loss(x, target.to(flow.uint64)).numpy(), loss(x, target).numpy())


def test_combined_margin() -> None:
    x = numbers(0, 3, 4, low=-0.9, high=0.9)
    label = np.array([1, 3, 0])
    for margins in ((1.0, 0.0, 0.35), (1.0, 0.5, 0.0), (1.2, 0.1, 0.2)):
        expected = x.copy()
        rows = np.arange(3)
        expected[rows, label] = np.cos(np.arccos(x[rows, label]) * margins[0] + margins[1]) - margins[2]
        result = F.combined_margin(flow.tensor(x), flow.tensor(label), *margins)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)


# Distances


@pytest.mark.parametrize(
    ("first", "second", "dim"),
    [((3, 4), (3, 4), 1), ((3, 4), (1, 4), -1), ((3, 4), (3, 4), 0), ((4,), (3, 4), -1), ((2, 3, 4), (3, 4), 1)],
)
def test_cosine_similarity(first: tuple[int, ...], second: tuple[int, ...], dim: int) -> None:
    compare("cosine_similarity", [numbers(0, *first), numbers(1, *second)], (dim,))


def test_cosine_similarity_of_nothing_is_0() -> None:
    x = flow.zeros(2, 3, requires_grad=True)
    result = F.cosine_similarity(x, flow.ones(2, 3))
    assert result.tolist() == [0.0, 0.0]
    result.sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()
    with pytest.raises(IndexError, match="dim 2 is out of range"):
        F.cosine_similarity(x, x, 2)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("keepdim", [False, True])
def test_pairwise_distance(p: float, keepdim: bool) -> None:
    compare("pairwise_distance", [X, Y], (p,), keepdim=keepdim)
    compare("pairwise_distance", [X, Y[:1]], (p,), keepdim=keepdim)
    if p == 2.0:
        compare("pairwise_distance", [X, X], (p,), keepdim=keepdim)


# Bilinear


@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (0,)])
def test_bilinear(leading: tuple[int, ...]) -> None:
    arrays = [numbers(0, *leading, 3), numbers(1, *leading, 4), numbers(2, 2, 3, 4), numbers(3, 2)]
    compare("bilinear", arrays)
    compare("bilinear", arrays[:3])


def test_bilinear_refuses() -> None:
    with pytest.raises(ValueError, match="bilinear: expected inputs"):
        F.bilinear(flow.ones(2, 3), flow.ones(2, 4), flow.ones(2, 4, 3))
    with pytest.raises(TypeError, match="one dtype"):
        F.bilinear(flow.ones(2, 3), flow.ones(2, 4).double(), flow.ones(2, 3, 4))


# Signatures


@pytest.mark.parametrize(
    "name",
    sorted(
        {activation[0] for activation in [*ACTIVATIONS, *PLAIN]}
        | {case[0] for case in CASES}
        | {"prelu", "gumbel_softmax", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"}
        | {"bilinear", "embedding_bag", "ctc_loss"}
    ),
)
def test_signatures_are_pytorchs_without_deprecated_arguments(name: str) -> None:
    theirs = getattr(torch.nn.functional, name)
    try:
        expected = inspect.signature(theirs)
    except ValueError:
        pytest.skip("PyTorch does not tell")
    skipped: tuple[str, ...] = ("size_average", "reduce")
    wanted = [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in expected.parameters.values()
        if parameter.name not in skipped
    ]
    ours = inspect.signature(getattr(F, name)).parameters.values()
    # `torch.threshold` is another function than that of `torch.nn.functional`, and takes `out`.
    skipped = (*skipped, "out") if name == "threshold" else skipped
    found = [(our.name, our.kind, our.default) for our in ours if our.name not in skipped]
    assert found == wanted
