"""Ops that change nothing are read through; every bit stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

import vmflow as flow
from vmflow import dtypes
from vmflow.graph_mode.job import Operand
from vmflow.graph_mode.passes.identities import _loses_nothing, _through
from vmflow.instructions.blob import meta
from vmflow.tensors import Tensor

from .agreement import Setting, agreed, names
from .support import computing

ALONE = Setting(passes=("identities", "dead_ops"))


def _x() -> Tensor:
    return flow.tensor([[0.5, -0.0, float("nan")], [4.0, float("-inf"), 6.0]])


def test_copies_of_unwritten_buffers_are_left_out() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        copy = (x + 1).clone()
        again = copy.clone()
        return again[1].exp(), again.t().sin(), x.clone()[:, 1:].sum()

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.job) == ["add_scalar", "cast", "cast", "exp", "sin", "cast", "sum"]
    assert names(graph.full_job) == ["add_scalar", "exp", "sin", "sum"]


def test_copies_of_buffers_written_afterwards_stay() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        before = state[0].clone()
        early = before.exp()
        state[0].add_(before)
        return early, before * 2

    graph = agreed(program, _x(), state=lambda: [flow.ones(3)], setting=ALONE)
    # All but the first of the readers need the copy.
    assert names(graph.full_job) == ["cast", "exp", "add", "mul_scalar"]
    copy, exp, add, _ = computing(graph.full_job)
    assert exp.inputs == copy.inputs
    # An op that overwrites the original must not read it at the same time in another order.
    assert add.inputs[1].buffer == copy.outputs[0].buffer


def test_parts_of_copies_are_parts_of_the_original() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        copy = x[1:].clone()
        return copy[0, 1:].exp(), copy.t()[2].sin(), copy[:, :2].sum()

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["exp", "sin", "sum"]


def test_a_view_that_begins_between_two_elements_stays() -> None:
    original = Operand(0, meta((4,), flow.float32, flow.device("cpu")), (1,), 3)
    complex_ = meta((2,), flow.complex64, flow.device("cpu"))
    assert _through(Operand(1, complex_, (1,), 1), original) is None
    assert _through(Operand(1, complex_, (1,), 1), attrs.evolve(original, offset=2)) == Operand(0, complex_, (1,), 2)


def test_a_copy_into_a_part_is_no_copy_of_the_whole() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        target = flow.zeros(2, 3, device=x.device)
        target[0].copy_(x[0])
        broadcast = flow.zeros(2, 3, device=x.device)
        broadcast.copy_(x[1])
        return target.exp(), broadcast.exp()

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["fill", "copy_", "copy_", "exp", "exp"]


def test_a_part_of_a_negated_or_cast_buffer_is_not_the_original() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        y = x.sin()
        return y.neg()[1:].neg(), y.double()[1:].float(), y.neg().t().neg()

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["sin", "neg", "neg", "cast", "cast", "neg", "neg"]


def test_casts_of_foreign_nans_stay() -> None:
    signalling = flow.from_numpy(np.array([0x7C01, 0xFC01, 0x7E01, 0x3C00], np.uint16).view(np.float16))

    def program(state: list[Tensor], x: Tensor) -> Any:
        return x.float().half(), x.clone().float().half(), x.neg().neg(), x * 1

    graph = agreed(program, signalling.to(_x().device), setting=ALONE)
    assert names(graph.full_job) == ["cast", "cast", "cast", "cast", "neg", "neg", "mul_scalar"]


def test_copies_of_strided_operands_stay() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return x.t().clone().sum(0), x[:, :2].clone().exp()

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["cast", "sum", "cast", "exp"]


def test_a_copy_that_is_overwritten_is_made_by_the_overwriting_op() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        copy = x.clone()
        copy.add_(1)
        part = x.clone()
        part[0].mul_(2)
        return copy, part

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.job) == ["cast", "add_scalar", "cast", "mul_scalar"]
    assert names(graph.full_job) == ["add_scalar", "cast", "mul_scalar"]
    assert [op.kind for op in computing(graph.full_job)] == ["call", "call", "into"]


def test_the_source_of_a_copy_is_read_directly() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        target = flow.empty(2, 3, device=x.device)
        target.copy_(x + 1)
        return target.exp(), target

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.job) == ["empty", "add_scalar", "copy_", "exp"]
    assert names(graph.full_job) == ["add_scalar", "exp"]


def test_variables_are_handed_out_by_a_copy() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return state[0].clone()

    graph = agreed(program, _x(), state=lambda: [flow.ones(3)], setting=ALONE)
    assert names(graph.full_job) == ["cast"]


def test_arithmetic_that_changes_nothing() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        y = x.abs()
        kept = [y * 1, 1.0 * y, y / 1, y - 0, y + -0.0, y.neg().neg()]
        return [value.sin() for value in kept]

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["abs", "sin", "sin", "sin", "sin", "sin", "sin"]


def test_arithmetic_that_changes_zeros_dtypes_or_foreign_nans_stays() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        y = x.sin()
        whole = y.isnan().to(flow.int32)
        return y + 0, 0 - y, 1 / y, y - -0.0, whole * 1.0, whole / 1, x * 1, (y + 0j) * 1

    graph = agreed(program, _x(), setting=ALONE)
    assert graph.full_job is graph.job


def test_integers_may_come_from_outside() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return x * 1 - 0 + 0, x.neg().neg(), (x + 0).sum()

    graph = agreed(program, flow.tensor([1, -5, 2**62]), setting=ALONE)
    assert names(graph.full_job) == ["sum"]


@pytest.mark.not_on_cuda
@pytest.mark.parametrize(
    ("way", "left"),
    [
        (lambda y: y.half().float().half(), ["sin", "cast"]),
        (lambda y: y.half().float().double(), ["sin", "cast", "cast"]),
        (lambda y: y.double().bfloat16(), ["sin", "cast"]),
        (lambda y: y.double().float(), ["sin"]),
        (lambda y: y.bfloat16().float(), ["sin", "cast", "cast"]),
        (lambda y: y.half().bfloat16().half(), ["sin", "cast", "cast", "cast"]),
        (lambda y: y.isnan().int().long(), ["sin", "isnan", "cast"]),
        (lambda y: y.isnan().float().bool(), ["sin", "isnan", "cast", "cast"]),
    ],
)
def test_casts_through_a_dtype_that_holds_all_values(way: Callable[[Tensor], Tensor], left: list[str]) -> None:
    graph = agreed(lambda state, x: way(x.sin()), _x(), setting=ALONE)
    assert names(graph.full_job) == left


def test_every_16_bit_number_survives_lossless_casts() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    for first in (dtypes.float16, dtypes.bfloat16):
        values = patterns.view(first.numpy)
        values = values[~np.isnan(values.astype(np.float32))]
        _check_chains(first, values)


def test_integers_survive_lossless_casts() -> None:
    generator = np.random.default_rng(3)
    for first in (dtypes.bool_, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64):
        values = np.frombuffer(generator.bytes(512), np.uint8)
        _check_chains(first, values % 2 == 1 if first is dtypes.bool_ else values.view(first.numpy))


def test_floats_survive_lossless_casts() -> None:
    values = np.random.default_rng(3).integers(0, 1 << 32, 10_000, np.uint32).view(np.float32)
    _check_chains(dtypes.float32, values[~np.isnan(values)])


def _check_chains(first: dtypes.dtype, values: Any) -> None:
    with np.errstate(all="ignore"):
        for second, third in itertools.product(dtypes.ALL, dtypes.ALL):
            if _loses_nothing(first, second, third):
                direct = values.astype(third.numpy)
                assert values.astype(second.numpy).astype(third.numpy).tobytes() == direct.tobytes(), (second, third)
