"""numpy warns of nothing: results that overflow, divide by zero or are no numbers have a value, and that is all."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import entered
from vmflow.nn import functional as F
from vmflow.vm.virtual_machine import VirtualMachine

VALUES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, -1e30, 88.0, 1e4]

OPS: dict[str, Callable[[flow.Tensor], flow.Tensor]] = {
    "arithmetic": lambda x: x / 0 + x / x - x * 1e30 + x.flip(0) % x,
    "floor_divide": lambda x: x // x.flip(0),
    "power": lambda x: x ** x.flip(0) + x**-1 + x**0.5,
    "exponentials": lambda x: x.exp() + x.expm1() + flow.exp2(x) + x.cosh() + x.sinh(),
    "logarithms": lambda x: x.log() + x.log1p() + x.log2() + x.log10() + flow.logit(x),
    "roots": lambda x: x.sqrt() + x.rsqrt() + x.reciprocal(),
    "trigonometry": lambda x: x.sin() + x.cos() + x.tan() + flow.acos(x) + flow.atanh(x) + flow.acosh(x),
    "comparisons": lambda x: (x < x.flip(0)) & (x == x) | x.isnan(),
    "limits": lambda x: x.clamp(-1, 1) + flow.maximum(x, x.flip(0)) + flow.nan_to_num(x),
    "softmax": lambda x: x.softmax(0) + x.log_softmax(0) + flow.logsumexp(x, 0),
    "activations": lambda x: x.sigmoid() + x.tanh() + F.gelu(x) + F.softplus(x) + F.silu(x) + F.elu(x),
    "sums": lambda x: x.sum() + x.prod() + x.mean() + x.var() + x.std() + x.cumsum(0) + x.cumprod(0),
    "nothing to take the mean of": lambda x: x[:0].mean() + x[:0].var() + x[:1].std(),
    "norms": lambda x: x.norm() + F.layer_norm(x, (len(VALUES),)) + F.normalize(x, dim=0),
    "products": lambda x: x @ x + flow.outer(x, x).sum(),
    "to integers": lambda x: x.to(flow.int32),
    "to bytes": lambda x: x.to(flow.uint8),
    "to less": lambda x: x.to(flow.float16) + x.to(flow.bfloat16),
    "to bool and complex": lambda x: x.to(flow.bool_) & (x.to(flow.complex64).abs() > 1),
    "integers": lambda x: x.to(flow.int8) * 100 + 100,
    "rounding": lambda x: x.round() + x.floor() + x.trunc() + x.frac(),
    "hypotenuse": lambda x: flow.hypot(x, x) + flow.atan2(x, x.flip(0)) + flow.logaddexp(x, x.flip(0)),
    "order": lambda x: x.sort().values + x.median() + x.topk(3).values.sum(),
    "interpolation": lambda x: flow.lerp(x, x.flip(0), 0.5) + flow.where(x > 0, x, 1 / x),
}


@pytest.mark.parametrize("dtype", [flow.float32, flow.float64, flow.float16, flow.bfloat16], ids=lambda x: x.name)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("worker", ["never", "always"])
def test_no_warnings(name: str, dtype: flow.dtype, worker: str) -> None:
    with entered(VirtualMachine(cpu_worker=worker)), warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        x = flow.tensor(VALUES, dtype=dtype)
        found = OPS[name](x)
        found.numpy()
        repr(found)
        if found.requires_grad or dtype is not flow.float32:
            return
        y = flow.tensor(VALUES, dtype=dtype, requires_grad=True)
        result = OPS[name](y)
        if result.requires_grad:
            result.sum().backward()
            assert y.grad is not None
            y.grad.numpy()
