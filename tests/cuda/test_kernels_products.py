"""Kernels against those of the CPU: products, convolutions, pooling, factors, transforms, look-ups.

Most gradients are ops of the same families, and are compared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import interpreter
from vmflow.kernels.choosing import _BUILDERS, declare_family
from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.problems.recurrent import GATES, Layer
from vmflow.nn import functional as F
from vmflow.ops.table import OPS

from .comparing import FLOATS, compare, equal, values

pytestmark = pytest.mark.emulated

Shapes = Sequence[tuple[int, ...]]
_FULL = ("float32", "float64")


def _outcome(device: str, function: Callable[..., Any], given: Sequence[flow.Tensor]) -> list[NDArray[Any]]:
    """The results of a function, and its gradients by all floating-point operands."""
    tensors = [tensor.to(device) for tensor in given]
    for tensor in tensors:
        tensor.requires_grad_(tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    returned = function(*tensors)
    results = [returned] if isinstance(returned, flow.Tensor) else list(returned)
    outputs = [result for result in results if result.requires_grad]
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    if outputs:
        weights = [values(9, tuple(result.shape), result.dtype.name).to(device) for result in outputs]
        gradients = flow.autograd.grad(outputs, inputs, weights, allow_unused=True)
        results += [gradient for gradient in gradients if gradient is not None]
    return [result.detach().to("cpu").numpy() for result in results]


def _agree(function: Callable[..., Any], given: Sequence[flow.Tensor], tolerance: float | None = None) -> None:
    """Compare the results on both devices, and the gradients, in proportion to the largest element of each."""
    on_device, on_host = [_outcome(device, function, given) for device in ("cuda", "cpu")]
    assert len(on_device) == len(on_host)
    for have, want in zip(on_device, on_host, strict=True):
        if want.dtype.kind not in "biu":
            finite = want[np.isfinite(want)]
            scale = np.maximum(abs(finite).max(initial=0), 1).astype(want.dtype)
            have, want = have / scale, want / scale
        equal(have, want, tolerance=tolerance)


def _random(shapes: Shapes, dtype: str) -> list[flow.Tensor]:
    return [values(seed, shape, dtype, -1.5, 1.5) for seed, shape in enumerate(shapes)]


_LAYERS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "linear": (F.linear, [(4, 6), (5, 6), (5,)]),
    "linear of many dimensions": (F.linear, [(2, 3, 6), (5, 6)]),
    "linear of no rows": (F.linear, [(0, 6), (5, 6), (5,)]),
    "matmul": (flow.matmul, [(2, 1, 3, 4), (5, 4, 2)]),
    "matmul of vectors": (flow.matmul, [(4,), (4,)]),
    "matmul of nothing": (flow.matmul, [(3, 0), (0, 2)]),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=3, dilation=2), [(2, 3, 11), (4, 3, 3), (4,)]),
    "conv2d": (F.conv2d, [(2, 3, 6, 5), (4, 3, 3, 2), (4,)]),
    "conv2d in groups": (lambda x, w: F.conv2d(x, w, stride=(1, 2), groups=2), [(2, 4, 6, 7), (6, 2, 2, 3)]),
    "conv2d of one pixel": (F.conv2d, [(2, 3, 4, 4), (5, 3, 1, 1), (5,)]),
    "conv2d of no samples": (F.conv2d, [(0, 3, 4, 4), (5, 3, 2, 2), (5,)]),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding="same"), [(2, 2, 3, 4, 4), (2, 2, 2, 3, 3)]),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1), [(2, 3, 4, 3), (3, 4, 3, 2)]
    ),
    "unfold": (lambda x: F.unfold(x, (2, 3), 2, (1, 0), (1, 2)), [(2, 3, 5, 6)]),
    "fold": (lambda x: F.fold(x, (5, 4), (2, 3), stride=(2, 1)), [(2, 12, 4)]),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), [(2, 3, 9)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, (3, 2), 1, (1, 0), (2, 1), return_indices=True), [(2, 3, 7, 6)]),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True, return_indices=True), [(2, 1, 5, 4, 3)]),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), [(2, 3, 9)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), 1, (1, 0), count_include_pad=False), [(2, 3, 7, 6)]),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 2, ceil_mode=True, divisor_override=3), [(2, 1, 5, 4, 3)]),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), [(2, 3, 10)]),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 7)), [(2, 3, 8, 5)]),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)), [(2, 1, 5, 4, 3)]),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), [(2, 3, 10)]),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 7), return_indices=True), [(2, 3, 8, 5)]),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (2, 1, 3), return_indices=True), [(2, 1, 5, 4, 3)]),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), [(2, 3, 4)]),
    "pad by the border": (lambda x: F.pad(x, (1, 2, 3, 0), "replicate"), [(2, 3, 4, 5)]),
    "pad by reflection": (lambda x: F.pad(x, (1, 2, 3, 0), "reflect"), [(2, 3, 4, 5)]),
    "pad in circles": (lambda x: F.pad(x, (1, 2, 3, 0), "circular"), [(2, 3, 4, 5)]),
    "nearest": (lambda x: F.interpolate(x, scale_factor=1.7), [(2, 3, 5, 6)]),
    "bilinear": (lambda x: F.interpolate(x, (7, 3), mode="bilinear", align_corners=True), [(2, 3, 5, 6)]),
    "bicubic": (lambda x: F.interpolate(x, (3, 2), mode="bicubic", antialias=True), [(2, 3, 5, 6)]),
    "attention": (F.scaled_dot_product_attention, [(2, 3, 4, 5), (2, 3, 6, 5), (2, 1, 6, 2)]),
    "causal attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(3, 4, 5)] * 3),
    "masked attention": (F.scaled_dot_product_attention, [(2, 4, 5), (2, 6, 5), (2, 6, 3), (4, 6)]),
    "attention to nothing": (F.scaled_dot_product_attention, [(2, 4, 5), (2, 0, 5), (2, 0, 3)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", _LAYERS)
def test_layers(name: str, dtype: str) -> None:
    function, shapes = _LAYERS[name]
    _agree(function, _random(shapes, dtype))


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("inner", [6, 0])
def test_linear_layers_of_integers(dtype: str, inner: int) -> None:
    shapes: list[tuple[int, ...]] = [(4, inner), (5, inner), (5,)]
    _agree(F.linear, [values(seed, shape, dtype, 0, 100) for seed, shape in enumerate(shapes)])


_MATRICES: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "inv": (flow.linalg.inv, [(2, 3, 3)]),
    "det": (flow.linalg.det, [(2, 3, 3)]),
    "solve": (flow.linalg.solve, [(2, 1, 3, 3), (2, 3, 4)]),
    "solve of nothing": (flow.linalg.solve, [(2, 0, 0), (2, 0, 4)]),
    "slogdet": (flow.linalg.slogdet, [(2, 3, 3)]),
    "cholesky": (lambda x: flow.linalg.cholesky(x @ x.mT + flow.linalg.matrix_exp(x * 0)), [(2, 3, 3)]),
    "upper triangle": (lambda a, b: flow.linalg.solve_triangular(a, b, upper=True), [(3, 3), (2, 3, 2)]),
    "lower triangle": (
        lambda a, b: flow.linalg.solve_triangular(a, b, upper=False, unitriangular=True), [(2, 3, 3), (3, 2)]
    ),
    "qr": (flow.linalg.qr, [(2, 4, 3)]),
    "svd": (lambda x: flow.linalg.svd(x, full_matrices=False), [(2, 4, 3)]),
    "svdvals": (flow.linalg.svdvals, [(2, 4, 3)]),
    "eigh": (flow.linalg.eigh, [(2, 3, 3)]),
    "pinv": (flow.linalg.pinv, [(2, 4, 3)]),
    "pinv by tensors": (lambda x: flow.linalg.pinv(x, atol=(x * 0).sum((-2, -1)) + 0.1), [(2, 4, 3)]),
    "eig": (lambda x: flow.linalg.eigvals(x @ x.mT).abs().sort(-1).values, [(2, 3, 3)]),
    "lu_factor": (lambda x: flow.linalg.lu(x), [(2, 4, 3)]),
    "lu_factor of many columns": (flow.linalg.lu_factor_ex, [(70, 80)]),
    "lu_factor without exchanges": (lambda x: flow.linalg.lu_factor(x, pivot=False), [(3, 4)]),
    "matrix_exp": (flow.linalg.matrix_exp, [(2, 3, 3)]),
    "matrix_exp of large ones": (lambda x: flow.linalg.matrix_exp(x * 20), [(3, 3)]),
    "fft": (lambda x: flow.view_as_real(flow.fft.fftn(x, norm="ortho")), [(3, 4)]),
    "rfft": (lambda x: flow.view_as_real(flow.fft.rfft2(x)), [(2, 3, 5)]),
    "irfft": (lambda x: flow.fft.irfftn(x, norm="forward"), [(3, 4)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", _FULL)
@pytest.mark.parametrize("name", _MATRICES)
def test_matrices(name: str, dtype: str) -> None:
    function, shapes = _MATRICES[name]
    _agree(function, _random(shapes, dtype), tolerance=1e-3 if dtype == "float32" else 1e-9)


def test_a_singular_matrix_is_an_error() -> None:
    with pytest.raises(flow.linalg.LinAlgError, match=r"linalg\.inv"):
        flow.linalg.inv(flow.zeros(2, 2, device="cuda")).to("cpu").numpy()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "complex64"])
def test_products_of_other_dtypes(dtype: str) -> None:
    compare("matmul", (values(0, (2, 3, 4), dtype), values(1, (4, 5), dtype)))


@pytest.mark.parametrize(("output", "length", "half"), [(4, 6, True), (3, 5, True), (6, 6, False), (5, 5, False)])
def test_frequencies(output: int, length: int, half: bool) -> None:
    function = flow.fft.rfftfreq if half else flow.fft.fftfreq
    equal(*[function(length, 0.3, device=device).to("cpu").numpy() for device in ("cuda", "cpu")])
    assert len(function(length, device="cuda")) == output


@pytest.mark.parametrize("name", ["max_pool2d", "adaptive_max_pool2d"])
def test_extrema_of_nan_infinity_and_equal_elements(name: str) -> None:
    images = np.random.default_rng(0).choice([np.nan, -np.inf, np.inf, 1.0], (20, 3, 6, 5), p=[0.1, 0.5, 0.1, 0.3])
    _agree(lambda image: getattr(F, name)(image, 3, return_indices=True), [flow.tensor(images, device="cpu")])


@pytest.mark.parametrize("dtype", FLOATS)
def test_second_derivatives_of_pooling(dtype: str) -> None:
    def slope(image: flow.Tensor, gradient: flow.Tensor) -> Any:
        result = F.max_pool2d(image, 2, 1)
        return flow.autograd.grad(result, (image,), gradient, create_graph=True)

    _agree(slope, _random([(2, 3, 4, 4), (2, 3, 3, 3)], dtype))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_keep_columns_for_the_gradient(rank: int) -> None:
    op = OPS[f"conv{rank}d_with_columns"]
    assert op.form is not None
    window = op.form.attributes((2,) * rank, (1,) * rank, (1,) * rank, (1,) * rank, 2, None)
    shapes = [(2, 4, *(5,) * rank), (6, 2, *(3,) * rank), (6,)]
    _agree(lambda *given: interpreter.dispatch_several(op, given, window)[0], _random(shapes, "float32"))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_second_derivatives_of_convolutions(rank: int) -> None:
    def slope(image: flow.Tensor, weight: flow.Tensor, gradient: flow.Tensor) -> Any:
        result = getattr(F, f"conv{rank}d")(image, weight, stride=2)
        return flow.autograd.grad(result, (image, weight), gradient, create_graph=True)

    _agree(slope, _random([(2, 3, *(5,) * rank), (4, 3, *(2,) * rank), (2, 4, *(2,) * rank)], "float64"))


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_attention_drops_the_same_weights(p: float, keeps: bool) -> None:
    op = OPS["scaled_dot_product_attention"]
    operands = _random([(2, 4, 5), (2, 6, 5), (2, 6, 3)], "float32")
    compare(op.name, tuple(operands), (0.4, True, p, keeps), (5, 12) if p else ())


# Recurrent layers


_SIZES = (3, 3, 2, 1)  # of the steps of a packed sequence


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", [(), _SIZES], ids=["padded", "packed"])
@pytest.mark.parametrize(
    ("kind", "biased", "projected"),
    [("rnn_tanh", True, False), ("rnn_relu", False, False), ("lstm", True, True), ("lstm", False, False),
     ("gru", True, False), ("gru", False, False)],
)  # fmt: skip
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_layers(
    reverse: bool, kind: str, biased: bool, projected: bool, sizes: tuple[int, ...], dtype: str
) -> None:
    layer = Layer(kind, reverse, biased, projected, sizes)
    hidden, rows = 4, GATES[kind] * 4
    shown = 2 if projected else hidden
    shapes: list[tuple[int, ...]] = [(sum(sizes), 5) if sizes else (4, 3, 5), (3, shown), (rows, 5), (rows, shown)]
    if kind == "lstm":
        shapes.insert(2, (3, hidden))
    shapes += [(rows,), (rows,)] * biased + [(shown, hidden)] * projected
    op = OPS[f"{kind.split('_')[0]}_layer"]
    _agree(lambda *given: interpreter.dispatch_several(op, given, tuple(layer))[: 1 + layer.states],
           _random(shapes, dtype))  # fmt: skip


# Look-ups


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}], ids=str)
def test_embedding(options: dict[str, Any], dtype: str) -> None:
    places = flow.tensor([[1, 3, 1], [0, 1, 4]], device="cpu")
    _agree(lambda where, table: F.embedding(where, table, **options), [places, *_random([(5, 3)], dtype)])


@pytest.mark.parametrize("index", [5, -1])
def test_a_row_that_is_not_there_is_an_error(index: int) -> None:
    with pytest.raises(IndexError, match=f"embedding: index {index} is out of range for a table of 5 rows"):
        F.embedding(flow.tensor([0, index], device="cuda"), flow.zeros(5, 3, device="cuda")).to("cpu").numpy()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("order", [1.0, 2.0, 3.5, np.inf])
@pytest.mark.parametrize("places", [[1, 4, 1], [1, 7, -1], [-2, 9], []])
def test_norms_of_named_rows_are_limited(places: list[int], order: float, dtype: str) -> None:
    table = values(0, (5, 3), dtype)
    compare("embedding_limit_norms", (table, flow.tensor(places, dtype=flow.int64, device="cpu")), (1.5, order))


@pytest.mark.parametrize("bags", [[0, 0, 2, 2, 2, 4], [-1, 0, -1, 0, 0, 3], [-1] * 6, [1] * 6])
def test_largest_of_bags(bags: list[int]) -> None:
    numbers = np.random.default_rng(0).choice([np.nan, -np.inf, 1.0, 2.0], (6, 40))
    compare("largest_of_bag", (flow.tensor(numbers, device="cpu"), flow.tensor(bags, device="cpu")), (5,))


def test_checked_offsets() -> None:
    compare("checked_offsets", (flow.tensor([0, 2, 2, 6], dtype=flow.int32, device="cpu"),), (6,))
    compare("checked_offsets", (flow.tensor([], dtype=flow.int64, device="cpu"),), (6,))


@pytest.mark.parametrize("offsets", [[1, 3], [0, 3, 2], [0, -1], [0, 7]])
def test_wrong_offsets_are_an_error(offsets: list[int]) -> None:
    with pytest.raises(IndexError, match=r"embedding_bag: (the first bag must begin|offset -?\d at \d is less)"):
        compare("checked_offsets", (flow.tensor(offsets, device="cpu"),), (6,))
    op = OPS["checked_offsets"]
    with pytest.raises(IndexError, match=r"embedding_bag: (the first bag must begin|offset -?\d at \d is less)"):
        interpreter.dispatch(op, (flow.tensor(offsets, device="cuda"),), (6,)).to("cpu").numpy()


# All of them


_FAMILIES = (
    "linear", "linear_algebra", "decompositions", "fourier", "convolution", "pooling", "unfolding", "padding",
    "resampling", "attention", "recurrent", "embedding",
)  # fmt: skip


@pytest.mark.parametrize("family", _FAMILIES)
def test_each_op_has_a_kernel(family: str) -> None:
    declare_family(f"{PACKAGE}.{family}")
    missing = [op.name for op in OPS.values() if op.family == family and op.name not in _BUILDERS[PACKAGE]]
    assert not missing
