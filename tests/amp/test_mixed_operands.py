"""Operands of 16 bits that meet float32 under autocast: in functions of several ops, and in all that PyTorch has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import nn
from vmflow.ops.nn.recurrent import Layer, recurrent_layer

Array = NDArray[Any]
functional = nn.functional

LOWER = [flow.bfloat16, flow.float16]


def on(lower: Any) -> flow.autocast:
    """Autocast for the device of the tests' tensors."""
    return flow.autocast(flow.zeros(1).device.type, lower)


def _lines(*shape: int) -> flow.Tensor:
    return flow.linspace(-1, 2, int(np.prod(shape))).reshape(shape)


def _recurrent(kind: str, gates: int, states: int) -> Callable[[Any], Any]:
    def function(x: flow.Tensor) -> Any:
        layer = Layer(kind, False, False, False)
        start = [_lines(3, 3)] * states
        return recurrent_layer(layer, x, *start, _lines(gates * 3, 4), _lines(gates * 3, 3))[0]

    return function


# The functions, applied to a (2, 3, 4) input, and whether the result has 16 bits.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "conv1d": (lambda x: functional.conv1d(x, _lines(2, 3, 2), _lines(2)), True),
    "conv2d": (lambda x: functional.conv2d(x.unsqueeze(1), _lines(2, 1, 2, 2), _lines(2)), True),
    "conv3d": (lambda x: functional.conv3d(x[None, None], _lines(2, 1, 1, 2, 2), _lines(2)), True),
    "conv_transpose1d": (lambda x: functional.conv_transpose1d(x, _lines(3, 2, 2), _lines(2)), True),
    "conv_transpose2d": (lambda x: functional.conv_transpose2d(x.unsqueeze(1), _lines(1, 2, 2, 2)), True),
    "conv_transpose3d": (lambda x: functional.conv_transpose3d(x[None, None], _lines(1, 2, 1, 2, 2)), True),
    "lstm": (_recurrent("lstm", 4, 2), True),
    "gru": (_recurrent("gru", 3, 1), True),
    "rnn": (_recurrent("rnn_tanh", 1, 1), True),
    "prelu": (lambda x: functional.prelu(x, _lines(3)), True),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, _lines(2, 5, 4), _lines(2, 5, 4)), True),
    "bce": (lambda x: functional.binary_cross_entropy_with_logits(x, x.float().sigmoid(), pos_weight=_lines(4)), False),
    "cdist": (lambda x: flow.cdist(x, _lines(2, 5, 4)), False),
    "grid_sample": (lambda x: functional.grid_sample(x[None], _lines(1, 2, 2, 2)), False),
    "bilinear": (lambda x: functional.bilinear(x, _lines(2, 3, 4), _lines(2, 4, 4)), False),
    "lerp": (lambda x: flow.lerp(x, _lines(2, 3, 4), 0.5), False),
    "index_add": (lambda x: x.index_add(0, flow.tensor([1]), _lines(1, 3, 4)), False),
    "scatter_add": (lambda x: x.scatter_add(0, flow.ones(1, 3, 4, dtype=flow.int64), _lines(1, 3, 4)), False),
    "cosine_similarity": (lambda x: functional.cosine_similarity(x, _lines(2, 3, 4)), False),
    "embedding_bag": (
        lambda x: functional.embedding_bag(
            flow.tensor([[0, 1, 2]]), _lines(3, 2), mode="sum", per_sample_weights=x[:1, :, 0]
        ),
        False,
    ),
}


@pytest.mark.parametrize("lower", LOWER, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_operands_of_two_dtypes(name: str, lower: Any) -> None:
    function, is_lower = FUNCTIONS[name]
    single = _lines(2, 3, 4).requires_grad_()
    half = _lines(2, 3, 4).to(lower).requires_grad_()
    wanted = function(single)
    with on(lower):
        found = function(half)
        assert flow.is_autocast_enabled(half.device.type)
    assert found.dtype is (lower if is_lower else flow.float32)
    wanted.sum().backward()
    found.sum().backward()
    assert half.grad is not None
    assert single.grad is not None
    assert half.grad.dtype is lower
    np.testing.assert_allclose(found.detach().float().numpy(), wanted.detach().numpy(), rtol=0.05, atol=0.1)
    np.testing.assert_allclose(half.grad.float().numpy(), single.grad.numpy(), rtol=0.05, atol=0.1)


def test_functions_that_need_float32_multiply_matrices_in_float32() -> None:
    rows = 1000 + flow.linspace(0, 30, 30).unsqueeze(-1)
    with on(flow.bfloat16):
        found = flow.cdist(rows, rows, compute_mode="use_mm_for_euclid_dist")
    np.testing.assert_allclose(found.numpy(), flow.cdist(rows, rows).numpy(), atol=1)


def test_an_error_leaves_autocast_on() -> None:
    x = flow.ones(2, 2)
    with on(flow.bfloat16):
        with pytest.raises(ValueError, match="must agree"):
            functional.mse_loss(x, flow.ones(3))
        assert (x @ x).dtype is flow.bfloat16


def test_a_result_that_has_a_place_keeps_its_dtype() -> None:
    low, out = flow.ones(2, 2, dtype=flow.bfloat16), flow.zeros(2, 2, dtype=flow.bfloat16)
    with on(flow.bfloat16):
        assert flow.lerp(low, low * 3, 0.5, out=out) is out
    assert out.tolist() == [[2, 2], [2, 2]]


def test_lengths_that_16_bits_do_not_hold() -> None:
    large, nothing = flow.full((1, 4), 60000.0, dtype=flow.float16), flow.zeros(1, 4, dtype=flow.float16)
    with on(flow.float16):
        assert large.norm().item() == pytest.approx(120000, rel=1e-3)
        assert functional.cosine_similarity(nothing, nothing).tolist() == [0]
        assert functional.normalize(nothing).tolist() == [[0] * 4]


@pytest.mark.parametrize("lower", LOWER, ids=str)
def test_everything_that_pytorch_has_takes_one_operand_of_16_bits(lower: Any) -> None:
    pytest.importorskip("torch", reason="the table of calls compares with PyTorch")
    from tests.ops import test_against_torch as table

    arrays = table.operands()
    count = 0
    for call in (*table.FUNCTIONS, *table.METHODS):
        named = [name for name, array in arrays.items() if array.dtype.kind == "f" and re.search(rf"\b{name}\b", call)]
        if len(named) < 2:
            continue
        wanted = _evaluated(call, None, None)
        for name in named:
            count += 1
            if "heaviside_" in call:  # in place, and so left alone
                with pytest.raises(TypeError, match="one dtype"):
                    _evaluated(call, arrays[name], lower)
                continue
            found = _evaluated(call, arrays[name], lower)
            # Where the places to look at are rounded, the slope of an image is another one.
            limit = 0.5 if "grid_sample" in call else 0.05
            assert found.keys() == wanted.keys(), call
            for key, value in found.items():
                error = np.linalg.norm(value - wanted[key])
                assert error <= limit * np.linalg.norm(wanted[key]) + 0.02, f"{call} with {name} of {lower}: {key}"
    assert count > 400


def _evaluated(call: str, lowered: Array | None, lower: Any) -> dict[str, Array]:
    """The results of a call and the gradients of its operands, which are of float32 but for one, if that is given."""
    from tests.ops import test_against_torch as table

    def tensor(array: Any) -> flow.Tensor:
        array = np.asarray(array)
        if array.dtype.kind != "f":
            return flow.tensor(array)
        single = flow.tensor(array.astype(np.float32))
        return single.to(lower) if lowered is not None and np.array_equal(array, lowered) else single

    with flow.autocast(flow.zeros(1).device.type, lower or flow.bfloat16, enabled=lower is not None):
        results, gradients = table.evaluated(call, flow, tensor)
    found = {f"result {place}": _widened(value) for place, value in enumerate(results)}
    return {**found, **{name: _widened(value) for name, value in gradients.items() if value is not None}}


def _widened(value: Any) -> Array:
    if isinstance(value, flow.Tensor):
        value = (value.detach().float() if value.is_floating_point() else value).numpy()
    array: Array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).ravel()
