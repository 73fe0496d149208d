"""Instance and local response normalisation: numerical gradients, and the values of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, check_gradients, instructions_issued, named
from vmflow.nn.functional import instance_norm, local_response_norm

pytestmark = pytest.mark.usefixtures("contract")


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 4, 3), (2, 2, 2, 3, 2), (3, 2, 300)], ids=str)
def test_instance_norm_is_pytorchs(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    x, weight, bias, mean, variance = arrays_for(1, shape, *[shape[1:2]] * 4, low=0.1)
    theirs = torch.nn.functional.instance_norm
    same_as_torch(
        lambda x, weight, bias: instance_norm(x, None, None, weight, bias),
        lambda x, weight, bias: theirs(x, None, None, weight, bias),
        x,
        weight,
        bias,
    )
    running = [(flow.tensor(mean), flow.tensor(variance)), (torch.tensor(mean), torch.tensor(variance))]
    for own in (True, False):
        same_as_torch(
            lambda x, weight: instance_norm(x, *running[0], weight, None, own, 0.3, 1e-3),  # noqa: B023
            lambda x, weight: theirs(x, *running[1], weight, None, own, 0.3, 1e-3),  # noqa: B023
            x,
            weight,
        )
        for have, want in zip(*running, strict=True):
            np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-9)


def test_instance_norm_gradients() -> None:
    x, weight, bias = arrays_for(2, (2, 2, 3), (2,), (2,))
    check_gradients(lambda x, w, b: instance_norm(x, None, None, w, b), x, weight, bias, second=True, rtol=1e-4)


async def test_running_statistics_move_by_one_instruction_and_are_not_waited_for() -> None:
    mean, variance = flow.zeros(2), flow.ones(2)
    await flow.synchronize()
    with instructions_issued():
        instance_norm(flow.tensor([[[0.0, 2.0], [4.0, 4.0]]]), mean, variance, momentum=0.5)
        assert not mean.is_ready()
    assert (await mean).tolist() == [0.5, 2.0]
    assert (await variance).tolist() == [1.5, 0.5]


def test_an_empty_batch_moves_nothing() -> None:
    mean, variance = flow.zeros(2), flow.ones(2)
    assert instance_norm(flow.zeros(0, 2, 3), mean, variance).shape == (0, 2, 3)
    assert mean.tolist() == [0, 0]
    assert variance.tolist() == [1, 1]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(2, 4, 5), (1, 5, 3, 2), (2, 3, 2, 2, 2)], ids=str)
def test_local_response_norm_is_pytorchs(shape: tuple[int, ...], size: int) -> None:
    torch = pytest.importorskip("torch")
    (x,) = arrays_for(3, shape)
    theirs = torch.nn.functional.local_response_norm
    same_as_torch(lambda x: local_response_norm(x, size, 0.5, 0.6, 2.0), lambda x: theirs(x, size, 0.5, 0.6, 2.0), x)


def test_local_response_norm_gradients() -> None:
    (x,) = arrays_for(4, (1, 4, 3))
    check_gradients(lambda x: local_response_norm(x, 3, 0.5), x, second=True)
    assert local_response_norm(flow.zeros(0, 3, 4), 2).shape == (0, 3, 4)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_computes_in_single(dtype: flow.dtype) -> None:
    (array,) = arrays_for(5, (2, 3, 6))
    x = flow.tensor(array, dtype=dtype)
    single = instance_norm(x.float()).to(dtype).float().numpy()
    np.testing.assert_array_equal(instance_norm(x).float().numpy(), single)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, r"instance_norm: expected an input", lambda: instance_norm(flow.zeros(2, 3))),
        (ValueError, r"at least 2 elements", lambda: instance_norm(flow.zeros(2, 3, 1))),
        (ValueError, r"weight must have shape \[3\]", lambda: instance_norm(flow.zeros(2, 3, 4), weight=flow.ones(2))),
        (ValueError, r"running_mean .* needed", lambda: instance_norm(flow.zeros(2, 3, 4), use_input_stats=False)),
        (TypeError, r"not defined for int64", lambda: instance_norm(flow.zeros(2, 3, 4, dtype=flow.int64))),
        (ValueError, r"local_response_norm: expected", lambda: local_response_norm(flow.zeros(2, 3), 2)),
        (ValueError, r"size must be at least 1", lambda: local_response_norm(flow.zeros(2, 3, 4), 0)),
        (TypeError, r"size must be an integer", lambda: local_response_norm(flow.zeros(2, 3, 4), 2.5)),  # type: ignore[arg-type]
        (TypeError, r"not defined for bool", lambda: local_response_norm(flow.zeros(2, 3, 4).bool(), 2)),
    ],
    ids=named,
)
def test_bad_arguments(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call()
