"""Attention against loops, its fused gradient against numerical ones, and the tensors kept for it.

`scaled_dot_product_attention` is also tested in tests/nn/test_functional.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.kernels.numpy import attention as kernels
from vmflow.ops.nn import attention

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]

# Called with lists of operands, which no checker of types can count.
scaled_dot_product_attention: Any = attention.scaled_dot_product_attention
attention_with_weights: Any = attention.attention_with_weights


def _oracle(q: Array, k: Array, v: Array, allowed: Array | None, added: Array | None, scale: float) -> Array:
    result = np.zeros((*np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]), q.shape[-2], v.shape[-1]))
    full = (*result.shape[:-1], k.shape[-2])
    q, k, v = (np.broadcast_to(tensor, (*result.shape[:-2], *tensor.shape[-2:])) for tensor in (q, k, v))
    allowed = None if allowed is None else np.broadcast_to(allowed, full)
    added = None if added is None else np.broadcast_to(added, full)
    for place in np.ndindex(result.shape[:-1]):
        weights = np.zeros(k.shape[-2])
        for other in range(k.shape[-2]):
            score = q[place] @ k[(*place[:-1], other)] * scale + (0 if added is None else added[(*place, other)])
            weights[other] = np.exp(score) if allowed is None or allowed[(*place, other)] else 0
        if weights.any():
            result[place] = weights @ v[place[:-1]] / weights.sum()
    return result


@pytest.mark.parametrize(
    "shapes",
    [((4, 2), (3, 2), (3, 5)), ((2, 3, 4, 2), (2, 3, 4, 2), (2, 3, 4, 1)), ((2, 1, 4, 2), (3, 4, 2), (1, 1, 4, 2))],
    ids=str,
)
@pytest.mark.parametrize("masking", ["none", "causal", "bools", "numbers"])
def test_attention(shapes: Any, masking: str) -> None:
    q, k, v = arrays_for(1, *shapes)
    scores = (4, k.shape[-2])
    allowed = np.tri(*scores, dtype=bool) if masking == "causal" else None
    added = None
    if masking == "bools":
        allowed = np.random.default_rng(2).random(scores) < 0.5
        allowed[1] = False
    if masking == "numbers":
        added = arrays_for(3, scores)[0]
    mask = None if masking in ("none", "causal") else flow.tensor(allowed if added is None else added)
    result = scaled_dot_product_attention(
        *[flow.tensor(value) for value in (q, k, v)], mask, is_causal=masking == "causal", scale=0.3
    )
    np.testing.assert_allclose(result.numpy(), _oracle(q, k, v, allowed, added, 0.3), rtol=1e-12, atol=1e-12)

    def attend(*operands: flow.Tensor) -> Any:
        chosen = operands[3] if len(operands) > 3 else mask
        return scaled_dot_product_attention(*operands[:3], chosen, is_causal=masking == "causal", scale=0.3)

    operands = (q, k, v) if added is None else (q, k, v, added)
    check_gradients(attend, *operands)


@pytest.mark.parametrize("masking", ["causal", "numbers"])
def test_gradients_of_gradients(masking: str) -> None:
    q, k, v, m = arrays_for(4, (3, 2), (3, 2), (3, 1), (3, 3))

    def attend(*operands: flow.Tensor) -> Any:
        return scaled_dot_product_attention(*operands, is_causal=masking == "causal")

    check_gradients(attend, *((q, k, v, m) if masking == "numbers" else (q, k, v)), second=True)


@pytest.mark.parametrize(
    ("dtype", "masked"), [(flow.float32, flow.float64), (flow.bfloat16, flow.float32), (flow.float32, flow.float16)]
)
def test_a_recorded_backward_pass_with_a_mask_of_another_dtype(dtype: flow.dtype, masked: flow.dtype) -> None:
    arrays = arrays_for(7, (3, 2), (4, 2), (4, 1), (3, 4))
    q, k, v = (flow.tensor(array).to(dtype).requires_grad_() for array in arrays[:3])
    mask = flow.tensor(arrays[3]).to(masked).requires_grad_()
    total = scaled_dot_product_attention(q, k, v, mask).sum()
    plain = flow.autograd.grad(total, (q, k, v, mask), retain_graph=True)
    recorded = flow.autograd.grad(total, (q, k, v, mask), create_graph=True)
    for found, expected in zip(recorded, plain, strict=True):
        assert found is not None
        assert expected is not None
        assert found.dtype is expected.dtype
        np.testing.assert_allclose(found.detach().double().numpy(), expected.double().numpy(), rtol=2e-2, atol=2e-2)


def test_gradients_through_the_weights() -> None:
    q, k, v = arrays_for(5, (2, 3, 2), (2, 4, 2), (2, 4, 1))

    def both(*operands: flow.Tensor) -> flow.Tensor:
        return flow.cat([weight.reshape(-1) for weight in attention_with_weights(*operands, None, 0.0)])

    check_gradients(both, q, k, v, second=True)
    check_gradients(lambda a, b: attention_with_weights(a, b, flow.tensor(v), None, 0.0)[1], q, k)


def test_dropout_is_the_same_backward_and_in_the_weights() -> None:
    q, k, v = arrays_for(6, (2, 8, 2), (2, 8, 2), (2, 8, 8))

    def dropping(*operands: flow.Tensor) -> Any:
        flow.manual_seed(3)
        return scaled_dot_product_attention(*operands, dropout_p=0.4)

    check_gradients(dropping, q, k, v)
    check_gradients(lambda *it: dropping(*it)[:, :1, :1], q, k, v, second=True)
    flow.manual_seed(3)
    result, weights = attention_with_weights(*[flow.tensor(value) for value in (q, k, v)], None, 0.4)
    np.testing.assert_allclose(result.numpy(), weights.numpy() @ v, rtol=1e-12, atol=1e-12)
    assert 0.2 < (weights.numpy() == 0).mean() < 0.6
    everything = scaled_dot_product_attention(
        *[flow.tensor(value, requires_grad=True) for value in (q, k, v)], dropout_p=1.0
    )
    assert not everything.detach().numpy().any()
    everything.sum().backward()


def test_no_keys_or_no_queries() -> None:
    q = flow.ones(2, 3, 4, requires_grad=True)
    result = scaled_dot_product_attention(q, flow.ones(2, 0, 4), flow.ones(2, 0, 5))
    assert result.tolist() == [[[0.0] * 5] * 3] * 2
    result.sum().backward()
    assert q.grad is not None
    assert not q.grad.numpy().any()
    assert scaled_dot_product_attention(q[:, :0], q, q).shape == (2, 0, 4)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_computes_in_single(dtype: flow.dtype) -> None:
    """The mean of 4096 ones: sums in half precision would stop at 2048, and at 256."""
    q = flow.zeros(1, 2, dtype=dtype, requires_grad=True)
    k, v = (flow.ones(4096, 2, dtype=dtype, requires_grad=True) for _ in range(2))
    result = scaled_dot_product_attention(q, k, v)
    assert result.dtype is dtype
    assert result.detach().float().tolist() == [[1.0, 1.0]]
    result.sum().backward()
    assert v.grad is not None
    assert set(v.grad.float().numpy().reshape(-1)) == {2.0**-12}


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "one dtype, got float32, float64, float32", lambda q: (q, q.double(), q)),
        (TypeError, "of bools or floating-point numbers, not of int64", lambda q: (q, q, q, flow.ones(3, 3).long())),
        (
            ValueError,
            r"mask of shape \[2, 3, 3\] does not broadcast to \[3, 3\]",
            lambda q: (q, q, q, flow.ones(2, 3, 3)),
        ),
        (ValueError, r"must be within \[0, 1\], got 1.5", lambda q: (q, q, q, None, 1.5)),
    ],
)
def test_bad_arguments(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=f"scaled_dot_product_attention: .*{message}"):
        scaled_dot_product_attention(*call(flow.ones(3, 4)))


def _all_of_it(shapes: Any, masking: str, p: float) -> list[Array]:
    """The result and all gradients."""
    flow.manual_seed(5)
    operands = [flow.tensor(value, requires_grad=True) for value in arrays_for(6, *shapes)]
    scores = (shapes[0][-2], shapes[1][-2])
    random = np.random.default_rng(7)
    mask = None
    if masking == "bools":
        allowed = random.random(scores) < 0.5
        allowed[1] = False
        mask = flow.tensor(allowed)
    if masking == "numbers":
        mask = flow.tensor(random.standard_normal(scores), requires_grad=True)
        operands.append(mask)
    result = scaled_dot_product_attention(*operands[:3], mask, p, masking == "causal")
    weighted = result * flow.tensor(random.standard_normal(tuple(result.shape)))
    return [tensor.numpy() for tensor in (result.detach(), *flow.autograd.grad(weighted.sum(), operands))]


@pytest.mark.parametrize(
    "shapes",
    [((7, 2), (5, 2), (5, 3)), ((2, 3, 5, 2), (2, 3, 7, 2), (2, 3, 7, 3)), ((2, 1, 6, 2), (3, 6, 2), (1, 1, 6, 2))],
    ids=str,
)
@pytest.mark.parametrize("masking", ["none", "causal", "bools", "numbers"])
@pytest.mark.parametrize(("kept", "p"), [(1 << 20, 0.0), (0, 0.0), (0, 0.3)])
def test_blocks_make_no_difference(
    shapes: Any, masking: str, kept: int, p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _all_of_it(shapes, masking, p)
    monkeypatch.setattr(attention, "KEPT_BYTES", kept)
    monkeypatch.setattr(kernels, "_CAUSAL_ROWS", 2)
    for block in (1, 12, 30):
        monkeypatch.setattr(kernels, "BLOCK", block)
        for found, wanted in zip(_all_of_it(shapes, masking, p), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_many_probabilities_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (flow.tensor(value) for value in arrays_for(1, (2, 6, 4), (2, 6, 4), (2, 6, 4)))
    kept = [attention._attend(q, k, v, None, (0.5, False, 0.0), weights)[1] for weights in (True, False)]
    assert [tensor.shape for tensor in kept] == [(2, 6, 6), (2, 6, 6)]
    monkeypatch.setattr(attention, "KEPT_BYTES", 8 * 2 * 6 * 6 - 1)
    kept = [attention._attend(q, k, v, None, (0.5, False, 0.0), weights)[1] for weights in (True, False)]
    assert [tensor.shape for tensor in kept] == [(2, 6, 6), (2, 6)]


def test_blocks_beyond_the_causal_mask_are_not_computed() -> None:
    scores = kernels.Scores((1,), 256, 256, np.float32(1), True)
    computed = sum([(rows.stop - rows.start) * keys for _, rows, keys in scores.blocks()])
    assert computed == 64 * (64 + 128 + 192 + 256)
