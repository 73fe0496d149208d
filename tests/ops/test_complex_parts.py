"""Real views of complex tensors and back: shared memory, changes through views, and gradients equal to PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow

from .oracle import Row, Shapes, check, forward_test, gradient_test, sample, values

PAIRS: tuple[Shapes, ...] = (((3, 2),), ((2,),), ((2, 3, 2),), ((0, 2),))


def _joined(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.complex128)[..., 0]


ROWS: list[Row] = [
    Row(
        "view_as_real",
        lambda x: flow.view_as_real(x * (1 + 2j)),
        lambda x: np.stack([x, 2 * x], -1),
        ("float32", "float64"),
        order=2,
    ),
    Row(
        "view_as_complex",
        lambda x: flow.view_as_complex(x.clone()).abs(),
        lambda x: np.abs(_joined(x)),
        ("float32", "float64"),
        shapes=PAIRS,
        order=2,
    ),
]

test_forward = forward_test(ROWS)
test_gradients = gradient_test(ROWS)


def test_views_share_memory_in_both_directions() -> None:
    z = flow.tensor([[1 + 2j, 3 + 4j]])
    pairs, imaginary = flow.view_as_real(z), z.T.imag
    assert pairs.shape == (1, 2, 2)
    assert pairs.dtype is flow.float32
    z.real.mul_(10)
    imaginary[0] = 7
    check(z, [[10 + 7j, 30 + 4j]], "complex64")
    z.zero_()
    check(pairs, np.zeros((1, 2, 2)), "float32")
    again = flow.view_as_complex(pairs)
    again += 1j
    check(z, [[1j, 1j]], "complex64")


def test_assignment_to_real_and_imag() -> None:
    z = flow.zeros(2, dtype=flow.complex128)
    z.real = flow.tensor([1.0, 2.0], dtype=flow.float64)
    z.imag = 3.0
    check(z, [1 + 3j, 2 + 3j], "complex128")
    x = flow.zeros(2)
    assert x.real is x
    x.real = 4.0
    check(x, [4, 4], "float32")


def test_parts_of_parts_of_tensors() -> None:
    array = sample((3, 4), "complex64")
    z = flow.tensor(array)
    check(flow.real(z[1:, ::2]), array.real[1:, ::2], "float32")
    check(flow.imag(z.T[1]), array.imag.T[1], "float32")
    check(flow.imag(flow.tensor(array[0, 0])), array.imag[0, 0], "float32")
    check(flow.complex(flow.tensor(array.real), flow.tensor(array.imag)), array, "complex64")
    check(flow.complex(flow.tensor(array.real), flow.tensor(2.0)), array.real + 2j, "complex64")


def _through_real(m: Any, x: Any, r: Any) -> Any:
    y = x * 1
    before = m.view_as_real(y)
    imaginary = y.imag
    y.real.mul_(3)
    imaginary.mul_(y.real.clone())
    y.mul_(1 + 1j)
    return (before**3).sum() + (imaginary**2).sum() + y.real.sum()


def _through_complex(m: Any, x: Any, r: Any) -> Any:
    """A part of a tensor with an odd number of elements, which cannot be viewed as complex as a whole."""
    y = r * 1
    z = m.view_as_complex(y[:4].view(2, 2))
    parts = z.real
    z.mul_(z.clone() * 2j)
    y.mul_(2)
    return (z.abs() ** 3).sum() + (y**2).sum() + (parts**3).sum()


def _built_up(m: Any, x: Any, r: Any) -> Any:
    z = m.zeros(3, dtype=m.complex128)
    z.real = r[:3] * 2
    z.imag[1:] = r[3:]
    return (z * x).abs().sum()


@pytest.mark.parametrize("function", [_through_real, _through_complex, _built_up])
def test_changes_through_views_are_differentiated_as_in_pytorch(function: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for m in (flow, torch):
        x = m.tensor(sample((3,), "complex128", 1), requires_grad=True)
        r = m.tensor(sample((5,), "float64", 2), requires_grad=True)
        result = function(m, x, r)
        grads = m.autograd.grad(result, [x, r], allow_unused=True)
        found.append([result.detach(), *[grad for grad in grads if grad is not None]])
    assert len(found[0]) == len(found[1])
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have.numpy(), want.resolve_conj().numpy(), rtol=1e-10)


def test_leaves_cannot_be_changed_through_their_parts() -> None:
    z = flow.tensor([1 + 2j], requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf tensor that requires a gradient"):
        z.real.mul_(2)
    with flow.no_grad():
        z.real.mul_(2)
    check(z, [2 + 2j], "complex64")


@pytest.mark.host
def test_the_address_of_the_first_element() -> None:
    x = flow.zeros(4, 2)
    assert x.data_ptr() == np.asarray(x).__array_interface__["data"][0]
    assert x[1].data_ptr() == x.data_ptr() + 8
    assert x.detach().data_ptr() == x.data_ptr() != x.clone().data_ptr()
    z = flow.zeros(2, dtype=flow.complex64)
    assert z.imag.data_ptr() == z.data_ptr() + 4
    assert flow.zeros(0).data_ptr() == 0
    with pytest.raises(RuntimeError, match="on sim:0 has no address"):
        flow.zeros(2, device="sim").data_ptr()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.view_as_real(x), RuntimeError, "expected a complex tensor, got float32"),
        (lambda x: x.imag, RuntimeError, "imag: expected a complex tensor, got float32"),
        (lambda x: flow.view_as_complex(x), RuntimeError, "last dimension must have size 2"),
        (lambda x: flow.view_as_complex(x.half()), RuntimeError, "expected a float32 or float64 tensor"),
        (lambda x: flow.view_as_complex(x[:2].T), RuntimeError, "must be adjacent in memory"),
        (lambda x: flow.view_as_complex(x[:, 1:3]), RuntimeError, "must be adjacent in memory"),
        (lambda x: flow.complex(x, x.double()), TypeError, "expected two float32"),
        (lambda x: flow.real(values(x)), TypeError, "expected tensors, got ndarray"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(3, 3))
