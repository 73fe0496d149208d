"""The program of the README's first lines."""

from __future__ import annotations

import asyncio

import numpy as np

import vmflow as flow


def _expected(x: np.ndarray) -> tuple[float, np.ndarray]:
    product = x @ x.T
    mask = (product > 0).astype(x.dtype)
    return float((product * mask).sum()), (mask + mask.T) @ x


def test_plain_script() -> None:
    x = flow.randn(4, 3, requires_grad=True)
    y = (x @ x.T).relu().sum()
    y.backward()
    assert x.grad is not None
    value, gradient = _expected(x.detach().numpy())
    np.testing.assert_allclose(y.item(), value, rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), gradient, rtol=1e-5)


def test_coroutine() -> None:
    async def main() -> None:
        x = flow.randn(4, 3, requires_grad=True)
        y = (x @ x.T).relu().sum()
        y.backward()
        assert x.grad is not None
        gradient = await x.grad
        value, expected = _expected((await x.detach()).numpy())
        np.testing.assert_allclose((await y).item(), value, rtol=1e-5)
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-5)

    asyncio.run(main())
