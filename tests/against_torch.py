"""A comparison with PyTorch: results and gradients of the same function of the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow

Array = NDArray[Any]


def same_as_torch(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *arrays: Array,
    rtol: float = 1e-7,
    atol: float = 1e-9,
) -> None:
    """Compare what two functions of float tensors return, a tensor or a tuple of them, and the gradients by all.

    Only results with a fractional dtype are differentiated, each weighted by fixed random numbers.
    """
    torch = pytest.importorskip("torch")
    mine: list[Any] = [flow.tensor(array, requires_grad=True) for array in arrays]
    others = [torch.tensor(array, requires_grad=True) for array in arrays]
    found, expected = _listed(ours(*mine)), _listed(theirs(*others))
    generator = np.random.default_rng(11)
    for have, want in zip(found, expected, strict=True):
        assert tuple(have.shape) == tuple(want.shape)
        assert have.dtype.name == str(want.dtype).removeprefix("torch.")
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=rtol, atol=atol)
        if want.is_floating_point():
            weights = generator.normal(size=tuple(want.shape)).astype(arrays[0].dtype)
            (have * flow.tensor(weights)).sum().backward()
            (want * torch.tensor(weights)).sum().backward()
    for have, want in zip(mine, others, strict=True):
        if want.grad is None:
            assert have.grad is None
        else:
            assert have.grad is not None
            np.testing.assert_allclose(have.grad.numpy(), want.grad.numpy(), rtol=rtol * 10, atol=atol * 10)


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]
