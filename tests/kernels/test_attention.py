"""Attention in C agrees with numpy's in double precision, for any layout of its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vmflow as flow
from tests.support import run_program
from vmflow.kernels.native import functions, team
from vmflow.kernels.native.attention import Attention
from vmflow.ops.nn import attention as op

pytestmark = [pytest.mark.usefixtures("panels"), pytest.mark.host]

attend = flow.nn.functional.scaled_dot_product_attention

Array = Any


def normal(shape: Sequence[int], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def expected(operands: Sequence[Array], by_result: Array, causal: bool, factor: float) -> list[Array]:
    """The result and its gradients by query, key and value."""
    query, key, value, by_result = [operand.astype(np.float64) for operand in (*operands, by_result)]
    scores = query @ key.swapaxes(-1, -2) * factor
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    slopes = by_result @ value.swapaxes(-1, -2)
    slopes = (slopes - (slopes * weights).sum(-1, keepdims=True)) * weights * factor
    turned = slopes.swapaxes(-1, -2)
    return [weights @ value, slopes @ key, turned @ query, weights.swapaxes(-1, -2) @ by_result]


def found(operands: Sequence[Array | flow.Tensor], by_result: Array, causal: bool, factor: float) -> list[Array]:
    """The same by vmflow."""
    tensors = [operand if isinstance(operand, flow.Tensor) else flow.tensor(operand) for operand in operands]
    query, key, value = [tensor.detach().requires_grad_() for tensor in tensors]
    result = attend(query, key, value, is_causal=causal, scale=factor)
    result.backward(flow.tensor(by_result))
    return [result.detach().numpy(), *[entry.grad.numpy() for entry in (query, key, value) if entry.grad is not None]]


def check(
    operands: Sequence[Array | flow.Tensor], by_result: Array, causal: bool, factor: float, within: float = 2e-5
) -> None:
    """Whether both are the same."""
    arrays = [operand.numpy() if isinstance(operand, flow.Tensor) else operand for operand in operands]
    wanted = expected(arrays, by_result, causal, factor)
    for one, other in zip(found(operands, by_result, causal, factor), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=within, atol=within)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that were computed in C."""
    names: list[str] = []

    def watch(method: str, name: str) -> None:
        usual = getattr(Attention, method)

        def seen(attention: Attention, *arguments: Any) -> bool:
            done: bool = usual(attention, *arguments)
            names.extend([name] if done else [])
            return done

        monkeypatch.setattr(Attention, method, seen)

    watch("forward", "attention")
    watch("gradient", "attention_gradient")
    return names


@given(
    heads=st.lists(st.integers(1, 3), max_size=2),
    length=st.integers(1, 130),
    others=st.integers(1, 130),
    size=st.integers(1, 40),
    value_size=st.integers(1, 40),
    causal=st.booleans(),
    keeps=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_size(
    heads: list[int],
    length: int,
    others: int,
    size: int,
    value_size: int,
    causal: bool,
    keeps: bool,
    seed: int,
    computed: list[str],
) -> None:
    shapes = [(length, size), (others, size), (others, value_size), (length, value_size)]
    query, key, value, by_result = [normal((*heads, *shape), seed + at) for at, shape in enumerate(shapes)]
    computed.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "KEPT_BYTES", 1 << 40 if keeps else 0)
        check([query, key, value], by_result, causal, 0.3)
    assert computed == ["attention", "attention_gradient"]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_rows_in_several_turns(causal: bool, keeps: bool, computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "KEPT_BYTES", 1 << 40 if keeps else 0)
    *operands, by_result = [normal((2, 700, 24), seed) for seed in range(4)]
    check(operands, by_result, causal, 0.2, 5e-5)
    assert len(computed) == 2


def test_heads_that_lie_among_each_other(computed: list[str]) -> None:
    """As after ``split`` and ``transpose``: nothing has to be copied."""
    together = normal((2, 50, 3, 4, 16), 0)
    whole = flow.tensor(together)
    check([whole[:, :, place].transpose(1, 2) for place in range(3)], normal((2, 4, 50, 16), 1), True, 0.25)
    assert len(computed) == 2


def test_rows_that_lie_the_wrong_way_or_on_each_other(computed: list[str]) -> None:
    wrong = flow.tensor(normal((2, 16, 50), 0)).mT
    same = flow.tensor(normal((2, 1, 16), 1)).expand(2, 50, 16)
    check([wrong, same, wrong], normal((2, 50, 16), 2), False, 0.25)
    assert len(computed) == 2


def test_only_the_gradients_that_are_wanted() -> None:
    query, key, value, by_result = [normal((3, 20, 8), seed) for seed in range(4)]
    wanted = expected([query, key, value], by_result, True, 8**-0.5)[1:]
    for place in range(3):
        operands = [flow.tensor(entry, requires_grad=at == place) for at, entry in enumerate((query, key, value))]
        attend(operands[0], operands[1], operands[2], is_causal=True).backward(flow.tensor(by_result))
        gradient = operands[place].grad
        assert gradient is not None
        np.testing.assert_allclose(gradient.numpy(), wanted[place], rtol=2e-5, atol=2e-5)


def test_nan_stays_in_its_head() -> None:
    query, key, value = [normal((3, 20, 8), seed) for seed in range(3)]
    query[1, 4, 2] = np.nan
    result = attend(flow.tensor(query), flow.tensor(key), flow.tensor(value)).numpy()
    assert np.isnan(result[1, 4]).all()
    assert np.isfinite(result[[0, 2]]).all()
    assert np.isfinite(np.delete(result[1], 4, 0)).all()


def test_large_scores_do_not_overflow() -> None:
    *operands, by_result = [normal((2, 40, 8), seed) * 300 for seed in range(4)]
    wanted, result = expected(operands, by_result, True, 1.0)[0], found(operands, by_result, True, 1.0)[0]
    np.testing.assert_allclose(result, wanted, rtol=1e-3)


def test_a_mask_dropout_and_other_dtypes_are_left_to_numpy(computed: list[str]) -> None:
    query, key, value = [flow.tensor(normal((2, 20, 8), seed)) for seed in range(3)]
    attend(query, key, value, flow.ones(20, 20, dtype=flow.bool)).numpy()
    attend(query, key, value, dropout_p=0.5).numpy()
    attend(query.double(), key.double(), value.double()).numpy()
    attend(query.half(), key.half(), value.half()).numpy()
    attend(query[:0], key[:0], value[:0]).numpy()
    attend(query[:, :, :0], key[:, :, :0], value).numpy()
    assert computed == ["attention"]  # of 16 bits, which are computed in 32


def test_heads_may_share_keys(computed: list[str]) -> None:
    query, key, value = [normal((2, 20, 8), seed) for seed in range(3)]
    result = attend(flow.tensor(query), flow.tensor(key[:1]), flow.tensor(value)).numpy()
    whole = [query, np.broadcast_to(key[:1], key.shape), value]
    np.testing.assert_allclose(result, expected(whole, value, False, 8**-0.5)[0], rtol=2e-5, atol=2e-5)
    assert computed == ["attention"]


def test_all_numbers_of_threads_make_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "LEAST", 1)
    before = flow.get_num_threads()
    *operands, by_result = [normal((2, 5, 60, 16), seed) for seed in range(4)]
    try:
        flow.set_num_threads(1)
        alone = found(operands, by_result, True, 0.25)
        for threads in (2, 3, 7):
            flow.set_num_threads(threads)
            for one, other in zip(alone, found(operands, by_result, True, 0.25), strict=True):
                np.testing.assert_array_equal(one, other)
    finally:
        flow.set_num_threads(before)


def test_programs_without_attention_do_not_wait_for_its_library() -> None:
    assert "void attention" not in functions.source("rows")
    assert "void softmax" not in functions.source("attention")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells how much memory is in use")
def test_where_there_is_no_memory_to_work_in_numpy_computes() -> None:
    program = """
    import pathlib, resource
    import numpy as np
    import vmflow as flow

    flow.set_num_threads(1)
    attend = flow.nn.functional.scaled_dot_product_attention
    query, key, value = flow.rand(1, 1, 8, 32), flow.rand(1, 1, 8192, 32), flow.rand(1, 1, 8192, 32)
    attend(query, query, query).numpy()
    np.ones((300, 300)) @ np.ones((300, 300))  # for which BLAS finds room of its own
    flow.rand(8, 8192).softmax(-1).numpy()  # which is made while there is memory for a compiler
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (size,) = [line.split()[1] for line in lines if "VmSize" in line]
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(size) * 1024 + (1 << 20), unlimited[1]))
    found = attend(query, key, value).numpy()
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    print(np.allclose(found, attend(query, key, value).numpy(), rtol=1e-5))
    """
    for _ in range(2):  # the first leaves memory behind in which it has made the kernels
        assert run_program(program, VMFLOW_JIT="1", OPENBLAS_NUM_THREADS="1") == "True"
