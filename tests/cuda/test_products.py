"""Products of matrices on CUDA devices: which bits of float32 count, and which dtypes autocast chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import nn
from vmflow.nn import functional as F
from vmflow.streams.cuda.emulation.products import rounded_to_tf32

from .comparing import values
from .emulated import emulated

pytestmark = pytest.mark.emulated


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = flow.get_float32_matmul_precision()
    yield
    flow.set_float32_matmul_precision(before)


# The switch


@pytest.mark.host
def test_the_switches_are_one() -> None:
    assert flow.get_float32_matmul_precision() == "highest"
    assert flow.backends.cuda.matmul.allow_tf32 is False
    for precision, allowed in (("high", True), ("medium", True), ("highest", False)):
        flow.set_float32_matmul_precision(precision)
        assert flow.get_float32_matmul_precision() == precision
        assert flow.backends.cuda.matmul.allow_tf32 is allowed
    flow.backends.cuda.matmul.allow_tf32 = True
    assert flow.get_float32_matmul_precision() == "high"
    flow.backends.cuda.matmul.allow_tf32 = False
    assert flow.get_float32_matmul_precision() == "highest"


@pytest.mark.host
def test_another_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="'highest', 'high' or 'medium', not 'low'"):
        flow.set_float32_matmul_precision("low")
    assert flow.get_float32_matmul_precision() == "highest"


@pytest.mark.host
def test_rounding_to_tf32() -> None:
    ulp = 2.0**-10
    given = [1 + 0.49 * ulp, 1 + 0.5 * ulp, 1 + 0.51 * ulp, 1 + 1.5 * ulp, -1 - 0.6 * ulp, np.inf, -np.inf, np.nan, 0.0]
    expected = [1, 1, 1 + ulp, 1 + 2 * ulp, -1 - ulp, np.inf, -np.inf, np.nan, 0.0]
    np.testing.assert_array_equal(rounded_to_tf32(np.array(given, np.float32)), np.array(expected, np.float32))
    pairs = np.array(given[:5], np.float32) + 1j * np.array(given[4::-1], np.float32)
    rounded = rounded_to_tf32(pairs.astype(np.complex64))
    np.testing.assert_array_equal(rounded.real, np.array(expected[:5], np.float32))
    np.testing.assert_array_equal(rounded.imag, np.array(expected[4::-1], np.float32))


def _numpy(tensor: flow.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().to("cpu").numpy()
    return array


_PRODUCTS: dict[str, tuple[Callable[..., flow.Tensor], list[tuple[int, ...]]]] = {
    "matmul": (flow.matmul, [(2, 3), (3, 4)]),
    "batches": (flow.matmul, [(2, 1, 2, 3), (3, 3, 4)]),
    "linear": (F.linear, [(2, 3), (4, 3)]),
    "conv2d": (F.conv2d, [(1, 2, 4, 4), (3, 2, 2, 2)]),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [*product(_PRODUCTS, ["float16", "float32", "float64"]), ("matmul", "complex64")]
)
def test_factors_in_float32_are_rounded_where_that_is_allowed(name: str, dtype: str) -> None:
    function, shapes = _PRODUCTS[name]
    given = [values(seed, shape, dtype) for seed, shape in enumerate(shapes)]
    exact = _numpy(function(*[tensor.to("cuda") for tensor in given]))
    flow.backends.cuda.matmul.allow_tf32 = True
    rounded = _numpy(function(*[tensor.to("cuda") for tensor in given]))
    if dtype in ("float16", "float64"):
        np.testing.assert_array_equal(rounded, exact)
        return
    assert not np.array_equal(rounded, exact)
    flow.backends.cuda.matmul.allow_tf32 = False
    few = [flow.tensor(rounded_to_tf32(tensor.numpy())).to("cuda") for tensor in given]
    np.testing.assert_array_equal(rounded, _numpy(function(*few)))


class _Product(nn.Graph):
    def build(self, left: flow.Tensor, right: flow.Tensor) -> flow.Tensor:
        return flow.matmul(left, right)


def test_a_captured_graph_keeps_its_setting() -> None:
    with emulated("lazy") as devices:
        left, right = values(0, (2, 3), "float32").to("cuda"), values(1, (3, 4), "float32").to("cuda")
        exact = _numpy(left @ right)
        graph = _Product()
        flow.backends.cuda.matmul.allow_tf32 = True
        rounded = [_numpy(graph(left, right)) for _ in range(4)]
        launched = devices.driver.graphs
        assert launched > 0
        flow.backends.cuda.matmul.allow_tf32 = False
        rounded.append(_numpy(graph(left, right)))
        assert devices.driver.graphs == launched + 1
        for result in rounded:
            assert not np.array_equal(result, exact)
            np.testing.assert_array_equal(result, rounded[0])
        np.testing.assert_array_equal(_numpy(left @ right), exact)


def test_without_cublaslt_products_are_computed_one_by_one() -> None:
    with emulated("lazy") as devices:
        devices.driver.captures_products = False
        left, right = values(0, (2, 3), "float32").to("cuda"), values(1, (3, 4), "float32").to("cuda")
        graph = _Product()
        for _ in range(4):
            np.testing.assert_array_equal(_numpy(graph(left, right)), _numpy(left @ right))
        assert devices.driver.graphs == 0


# Biases that the library adds


def test_a_bias_of_complex_numbers() -> None:
    given = [values(seed, shape, "complex64") for seed, shape in enumerate([(2, 3), (4, 3), (4,)])]
    result = _numpy(F.linear(*[tensor.to("cuda") for tensor in given]))
    np.testing.assert_allclose(result, _numpy(F.linear(*given)), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_bias_that_is_not_aligned(dtype: str) -> None:
    shapes = enumerate([(2, 3), (4, 3), (9,)])
    array, weight, biases = [values(seed, shape, dtype).to("cuda") for seed, shape in shapes]
    for start in range(5):
        bias = biases[start : start + 4]
        result = _numpy(F.linear(array, weight, bias))
        np.testing.assert_array_equal(result, _numpy(F.linear(array, weight, bias.clone())))


@pytest.mark.parametrize(
    ("offset", "strides", "dtype"), [(4, (16, 4), "float32"), (0, (4, 8), "float32"), (0, (32, 8), "complex64")]
)
def test_the_emulated_library_takes_no_other_bias_than_the_real_one(
    offset: int, strides: tuple[int, int], dtype: str
) -> None:
    with emulated("lazy") as devices:
        driver, kind = devices.driver, np.dtype(dtype)
        memory, stream = driver.allocate(256), driver.create_stream()
        square = memory.strided((2, 4), kind, 128, strides)
        left, right = memory.strided((2, 1), kind), memory.strided((1, 4), kind)
        with pytest.raises(ValueError, match="no library adds a bias"):
            driver.multiply(left, right, square, memory.strided((4,), kind, 64 + offset), stream)


# Autocast


def _layers(lower: flow.dtype) -> dict[str, tuple[Callable[..., flow.Tensor], list[tuple[int, ...]], flow.dtype]]:
    """The functions, the shapes of their operands, and the dtype that PyTorch's lists give them on CUDA devices."""
    return {
        "linear": (F.linear, [(2, 3), (4, 3), (4,)], lower),
        "matmul": (flow.matmul, [(2, 3), (3, 4)], lower),
        "mm": (flow.mm, [(2, 3), (3, 4)], lower),
        "mv": (flow.mv, [(2, 3), (3,)], lower),
        "bmm": (flow.bmm, [(2, 2, 3), (2, 3, 2)], lower),
        "addmm": (flow.addmm, [(2, 4), (2, 3), (3, 4)], lower),
        "conv1d": (F.conv1d, [(1, 2, 5), (3, 2, 2), (3,)], lower),
        "conv2d": (F.conv2d, [(1, 2, 4, 4), (3, 2, 2, 2), (3,)], lower),
        "conv3d": (F.conv3d, [(1, 1, 3, 3, 3), (2, 1, 2, 2, 2)], lower),
        "conv_transpose2d": (F.conv_transpose2d, [(1, 2, 3, 3), (2, 3, 2, 2), (3,)], lower),
        "attention": (F.scaled_dot_product_attention, [(1, 2, 3), (1, 4, 3), (1, 4, 2)], lower),
        "softmax": (lambda x: F.softmax(x, -1), [(2, 3)], flow.float32),
        "layer_norm": (lambda x: F.layer_norm(x, (3,)), [(2, 3)], flow.float32),
        "exp": (flow.exp, [(2, 3)], flow.float32),
        "sum": (flow.sum, [(2, 3)], flow.float32),
        "mse_loss": (F.mse_loss, [(2, 3), (2, 3)], flow.float32),
        "relu": (F.relu, [(2, 3)], flow.float32),
    }


_NAMES = list(_layers(flow.float16))
_LOWER = pytest.mark.parametrize("lower", [flow.float16, flow.bfloat16], ids=["float16", "bfloat16"])


class _Cast(nn.Graph):
    def __init__(self, function: Callable[..., flow.Tensor], lower: flow.dtype) -> None:
        super().__init__()
        self.function = function
        self.lower = lower

    def build(self, *operands: flow.Tensor) -> flow.Tensor:
        with flow.autocast("cuda", dtype=self.lower):
            return self.function(*operands)


@_LOWER
@pytest.mark.parametrize("name", _NAMES)
def test_autocast(name: str, lower: flow.dtype) -> None:
    function, shapes, wanted = _layers(lower)[name]
    on_host = [values(seed, shape, "float32", -1.5, 1.5) for seed, shape in enumerate(shapes)]
    given = [tensor.to("cuda").requires_grad_() for tensor in on_host]
    with flow.autocast("cuda", dtype=lower):
        result = function(*given)
    assert result.dtype is wanted
    cast = [tensor.to(lower) if wanted is lower else tensor for tensor in on_host]
    tolerance = {flow.float16: 2e-3, flow.bfloat16: 2e-2}[lower] if wanted is lower else 1e-5
    expected = _numpy(function(*cast).float())
    np.testing.assert_allclose(_numpy(result.float()), expected, rtol=tolerance, atol=tolerance)
    for gradient in flow.autograd.grad(result.float().sum(), given):
        assert gradient is not None
        assert gradient.dtype is flow.float32
        assert np.isfinite(_numpy(gradient)).all()


@_LOWER
@pytest.mark.parametrize("name", ["linear", "matmul", "conv2d", "softmax"])
def test_autocast_in_a_graph(name: str, lower: flow.dtype) -> None:
    function, shapes, wanted = _layers(lower)[name]
    with emulated("lazy") as devices:
        given = [values(seed, shape, "float32", -1.5, 1.5).to("cuda") for seed, shape in enumerate(shapes)]
        with flow.autocast("cuda", dtype=lower):
            eager = function(*given)
        graph = _Cast(function, lower)
        for _ in range(4):
            result = graph(*given)
            assert result.dtype is wanted
            np.testing.assert_array_equal(_numpy(result.float()), _numpy(eager.float()))
        assert devices.driver.graphs > 0


@_LOWER
def test_autocast_of_cuda_leaves_the_cpu_alone(lower: flow.dtype) -> None:
    with flow.autocast("cuda", dtype=lower):
        assert flow.matmul(flow.ones(2, 2, device="cpu"), flow.ones(2, 2, device="cpu")).dtype is flow.float32
    with flow.autocast("cpu", dtype=flow.bfloat16):
        assert flow.matmul(flow.ones(2, 2, device="cuda"), flow.ones(2, 2, device="cuda")).dtype is flow.float32


@pytest.mark.host
@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions_in_half_precision_multiply_halves_and_sum_in_float32(
    dtype: flow.dtype, kernel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[tuple[str, str, str]] = set()
    with emulated() as devices:
        multiply = devices.driver.multiply

        def watched(left: Any, right: Any, out: Any, *rest: Any) -> None:
            found.add((left.dtype.name, right.dtype.name, out.dtype.name))
            multiply(left, right, out, *rest)

        monkeypatch.setattr(devices.driver, "multiply", watched)
        x, weight = [
            flow.randn(*shape, dtype=dtype, device="cuda", requires_grad=True)
            for shape in ((2, 3, 5, 5), (4, 3, kernel, kernel))
        ]
        F.conv2d(x, weight).float().sum().backward()
        flow.synchronize()
    assert found == {(dtype.numpy.name, dtype.numpy.name, "float32")}
