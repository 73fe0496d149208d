"""`autocast`: which dtype comes out of which op, gradients, tasks, the cache, and functions of one's own."""

from __future__ import annotations

import asyncio
import importlib
from collections import Counter
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.ops.test_registry import DECLARING
from vmflow import amp, nn
from vmflow.amp import policy
from vmflow.context import MODE
from vmflow.ops.autocasting import FUNCTIONS
from vmflow.ops.elementwise.inference import ELEMENTWISE
from vmflow.ops.table import OPS

LOW = flow.bfloat16


def here() -> str:
    """The type of device that tests run on."""
    return flow.zeros(1).device.type


def test_every_op_has_one_class() -> None:
    for name in DECLARING:
        importlib.import_module(name)
    lists = (policy.LOWER, policy.FLOAT32, policy.WIDEST, policy.AS_GIVEN)
    twice = [name for name, count in Counter([name for names in lists for name in names]).items() if count > 1]
    assert not twice
    # Ops that other tests have declared are not vmflow's.
    declared = {name for name, op in OPS.items() if op.infer.__module__.startswith("vmflow.")} | FUNCTIONS
    without = [name for name in declared - policy.CLASSES.keys() if not name.endswith("_gradient")]
    assert not set(without) - ELEMENTWISE, "give these a class in vmflow.amp.policy"
    assert not policy.CLASSES.keys() - declared, "there are no such ops"


@pytest.mark.parametrize("lower", [flow.bfloat16, flow.float16])
def test_dtypes(lower: Any) -> None:
    full, low = flow.ones(2, 2), flow.ones(2, 2, dtype=lower)
    images = flow.ones(1, 1, 4, 4)
    with flow.autocast(here(), lower):
        for result in (
            full @ full,
            flow.bmm(full[None], low[None]),
            flow.addmm(low, full, full),
            flow.addmm(full, full, full),
            flow.baddbmm(full[None], full[None], low[None]),
            nn.functional.linear(full, low),
            nn.functional.conv2d(images, images[:, :, :2, :2]),
        ):
            assert result.dtype is lower
        for result in (
            low.exp(),
            low.softmax(0),
            low.sum(),
            low.mean(),
            low**2,
            nn.functional.mse_loss(low, low),
            nn.functional.cross_entropy(low, flow.tensor([0, 1])),
            nn.functional.layer_norm(low, (2,)),
            flow.cat([low, full]),
            flow.stack([full, low]),
            low + full,
        ):
            assert result.dtype is flow.float32
        assert low.relu().dtype is lower
        assert (full + full).dtype is flow.float32
        assert (full.double() @ full.double()).dtype is flow.float64
        assert flow.arange(3).sum().dtype is flow.int64
        with flow.autocast(here(), enabled=False):
            assert (full @ full).dtype is flow.float32
            assert low.exp().dtype is lower
        assert (full @ full).dtype is lower
    assert (full @ full).dtype is flow.float32


def test_the_ops_of_the_lists_agree_with_pytorch_where_that_has_them() -> None:
    torch = pytest.importorskip("torch")
    makers: tuple[Any, ...] = (
        lambda lib, x: x @ x,
        lambda lib, x: lib.nn.functional.linear(x, x),
        lambda lib, x: lib.bmm(x[None], x[None]),
        lambda lib, x: lib.nn.functional.mse_loss(x, x),
        lambda lib, x: x + x,
        lambda lib, x: x.relu(),
        lambda lib, tensor: lib.cat([tensor, tensor.to(lib.float32)]),
        lambda lib, x: lib.nn.functional.conv1d(x[None], x[None]),
        lambda lib, x: lib.nn.functional.conv_transpose1d(x[None], lib.ones(2, 2, 1)),
        lambda lib, x: lib.nn.functional.prelu(x, lib.ones(1)),
        lambda lib, x: lib.nn.functional.scaled_dot_product_attention(x[None], lib.ones(1, 2, 2), x[None]),
        lambda lib, x: lib.nn.functional.l1_loss(x, x, reduction="none"),
        lambda lib, x: lib.nn.functional.binary_cross_entropy_with_logits(x, x, pos_weight=lib.ones(2)),
        lambda lib, x: lib.nn.functional.grid_sample(x[None, None], lib.ones(1, 2, 2, 2), align_corners=False),
        lambda lib, x: lib.nn.functional.avg_pool2d(x[None], 2),
        lambda lib, x: lib.nn.functional.avg_pool3d(x[None, None], (1, 2, 2)),
        lambda lib, x: lib.nn.functional.max_pool3d(x[None, None], (1, 2, 2)),
        lambda lib, x: lib.nn.functional.adaptive_avg_pool3d(x[None, None], 1),
        lambda lib, x: lib.nn.functional.pad(x[None], (1, 1), "reflect"),
        lambda lib, x: lib.nn.functional.pad(x[None], (1, 1), "replicate"),
        lambda lib, x: lib.nn.functional.rms_norm(x, (2,)),
        lambda lib, x: lib.nn.LSTM(2, 3)(x)[0],
        lambda lib, x: lib.cdist(x, lib.ones(2, 2)),
        lambda lib, x: lib.quantile(x, 0.5),
        lambda lib, x: lib.prod(x, 0),
        lambda lib, tensor: lib.linalg.inv(tensor + lib.eye(2).to(tensor.dtype)),
        lambda lib, tensor: lib.linalg.cholesky(tensor * 0 + lib.eye(2).to(tensor.dtype)),
        lambda lib, x: lib.linalg.svdvals(x),
        lambda lib, x: lib.fft.fft(x),
        lambda lib, x: lib.view_as_complex(x),
    )
    for make in makers:
        found = []
        for lib in (flow, torch):
            with lib.autocast(here() if lib is flow else "cpu", lib.bfloat16):
                found.append(
                    [
                        str(make(lib, lib.ones(2, 2, dtype=value)).dtype).split(".")[1]
                        for value in (lib.float32, lib.bfloat16)
                    ]
                )
        assert found[0] == found[1]


def test_gradients_come_back_in_the_parameters_dtype() -> None:
    layer = nn.Linear(3, 4)
    data = flow.ones(2, 3)
    with flow.autocast(here(), LOW):
        layer(data).sum().backward()
        assert flow.is_autocast_enabled(here())
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is flow.float32
    np.testing.assert_array_equal(layer.weight.grad.numpy(), np.full((4, 3), 2.0))


def test_a_backward_pass_within_the_block_keeps_to_the_dtypes_of_the_forward_pass() -> None:
    left = flow.full((2, 2), 1 + 2**-12, requires_grad=True)
    with flow.autocast(here(), enabled=False):
        product = left @ left
    with flow.autocast(here(), LOW):
        product.sum().backward()
    assert left.grad is not None
    assert left.grad[0, 0].item() == 4 + 4 * 2**-12


def test_gradients_add_up_over_several_backward_passes() -> None:
    layer = nn.Linear(3, 1, bias=False)
    with flow.autocast(here(), LOW):
        for size in (1.0, 2.0, 4.0):
            layer(flow.full((1, 3), size)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[7, 7, 7]]


def cached() -> int:
    casts = MODE.get().autocast
    return 0 if casts.cache is None else len(casts.cache)


def test_a_parameter_is_cast_once() -> None:
    layer = nn.Linear(2, 2, bias=False)
    data = flow.ones(1, 2)
    with flow.autocast(here(), LOW):
        layer(data)
        (kept,) = MODE.get().autocast.cache.values()
        with flow.autocast(here(), LOW):
            layer(data)
        assert [*MODE.get().autocast.cache.values()] == [kept]
        with flow.no_grad():
            layer(data)  # has no history
            (other,) = MODE.get().autocast.cache.values()
            assert not other.cast.requires_grad
            layer.weight.fill_(3.0)
        assert layer(data).requires_grad
        assert layer(data).tolist() == [[6, 6]], "a parameter that was changed in place is cast anew"
    with flow.autocast(here(), LOW):
        assert cached() == 0
    with flow.autocast(here(), LOW, cache_enabled=False):
        layer(data)
        assert cached() == 0


async def test_a_cast_of_a_cancelled_scope_is_not_used_again() -> None:
    layer = nn.Linear(2, 2, bias=False)
    data = flow.ones(1, 2)
    with flow.autocast(here(), LOW):
        with flow.scope() as scope:
            layer(data)
            scope.cancel()
        assert (await layer(data)).shape == (1, 2)


async def test_tasks_do_not_see_each_other() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def one() -> None:
        with flow.autocast(here(), LOW):
            entered.set()
            await leave.wait()
            assert flow.is_autocast_enabled(here())

    task = asyncio.create_task(one())
    await entered.wait()
    assert not flow.is_autocast_enabled(here())
    leave.set()
    await task

    @flow.autocast(here(), LOW)
    async def decorated() -> Any:
        await asyncio.sleep(0)
        return (flow.ones(1, 1) @ flow.ones(1, 1)).dtype

    assert await decorated() is LOW
    assert not flow.is_autocast_enabled(here())


def test_the_state_of_autocast_can_be_asked_for() -> None:
    assert flow.get_autocast_dtype() is LOW
    assert flow.get_autocast_dtype("cuda") is flow.float16
    assert amp.is_autocast_available("cpu")
    assert not amp.is_autocast_available("abacus")
    with flow.autocast("cpu", flow.float16), flow.autocast("cuda", LOW):
        assert flow.get_autocast_dtype() is flow.float16
        assert flow.get_autocast_dtype("cuda") is LOW
    with pytest.raises(TypeError, match="device_type"):
        flow.autocast(flow.float16)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a dtype"):
        flow.autocast("cpu", "bfloat16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lower precision"):
        flow.autocast("cpu", flow.float32)


@pytest.mark.parametrize("cast_inputs", [None, flow.float32])
def test_functions_of_ones_own(cast_inputs: Any) -> None:
    seen: list[Any] = []

    class Product(flow.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type=here(), cast_inputs=cast_inputs)
        def forward(ctx: Any, left: Any, right: Any) -> Any:
            ctx.save_for_backward(left, right)
            seen.append((left @ right).dtype)
            return left @ right

        @staticmethod
        @amp.custom_bwd(device_type=here())
        def backward(ctx: Any, gradient: Any) -> Any:
            left, right = ctx.saved_tensors
            seen.append((gradient.float() @ right.float()).dtype)
            return gradient @ right.mT, left.mT @ gradient

    left = flow.ones(2, 2, requires_grad=True)
    with flow.autocast(here(), LOW):
        result = Product.apply(left, flow.ones(2, 2))
    result.sum().backward()
    assert seen == [cast_inputs or LOW] * 2
    assert left.grad is not None
    assert left.grad.tolist() == [[2, 2], [2, 2]]


def test_functions_of_ones_own_by_the_older_names_for_cuda() -> None:
    seen: list[bool] = []

    class Twice(flow.autograd.Function):
        @staticmethod
        @flow.cuda.amp.custom_fwd
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @flow.cuda.amp.custom_bwd
        def backward(ctx: Any, gradient: Any) -> Any:
            seen.append(flow.is_autocast_enabled("cuda"))
            return gradient * 2

    class Cast(Twice):
        forward = staticmethod(flow.cuda.amp.custom_fwd(cast_inputs=flow.float32)(lambda ctx, x: x * 2))

    for kind in (Twice, Cast):
        x = flow.ones(2, requires_grad=True)
        with flow.autocast("cuda"):
            y = kind.apply(x)
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2, 2]
    assert seen == [True, False]


def test_a_backward_by_custom_bwd_needs_a_forward_by_custom_fwd() -> None:
    class Twice(flow.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @amp.custom_bwd(device_type=here())
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    with pytest.raises(RuntimeError, match=r"decorate `forward` by custom_fwd"):
        Twice.apply(flow.ones(2, requires_grad=True)).sum().backward()
