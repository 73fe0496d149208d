"""Formulas in C agree with their steps to the bit, even in repeated calls; and which are worth the compiler."""

from __future__ import annotations

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F
from tests.ops.oracle import layouts, sample
from tests.ops.test_formula import CALLS, FORMULAS, everything, tensors_for
from tests.support import exhaustive_but_for_some
from vmflow.kernels.native.functions import common_source
from vmflow.kernels.native.loading import LOADER

from .support import same_bits


# Each takes the compiler about a second.
@pytest.mark.parametrize("name", exhaustive_but_for_some(sorted(CALLS), 2))
def test_one_op_gives_the_same_as_its_steps(name: str, compiled: None, threads: None) -> None:
    check_formula(name, "float32")


@pytest.mark.parametrize("name", exhaustive_but_for_some(sorted(CALLS), 4))
def test_one_op_gives_the_same_as_its_steps_in_double_precision(name: str, compiled: None, threads: None) -> None:
    check_formula(name, "float64")


def check_formula(name: str, dtype: str) -> None:
    formula, numbers = FORMULAS[name], CALLS[name][1]
    tensors = tensors_for(name, dtype, (3, 2000))
    flow.set_num_threads(1)
    expected = everything(formula.by_steps, tensors, numbers)
    for count in (1, 1, 2):
        flow.set_num_threads(count)
        found = everything(formula, tensors, numbers)
        assert all([same_bits(one, other) for one, other in zip(expected, found, strict=True)])


def test_a_repeated_call_reads_its_own_arguments(compiled: None) -> None:
    arrays = [sample((5000,), "float32", seed) for seed in range(6)]
    for array, number in zip(arrays, (0.1, 0.2, 0.1, 0.1, 0.3, 0.1), strict=True):
        found = F.leaky_relu(flow.tensor(array), number).numpy()
        assert same_bits(found, np.where(array > 0, array, array * np.float32(number)))
    for label, tensor in layouts(sample((60, 100), "float32")):
        assert same_bits(F.mish(tensor).numpy(), F.mish(tensor.contiguous()).numpy()), label


def test_small_arrays_request_no_compiler(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    request = LOADER.request

    def noted(source: str, makes: bool = True) -> object:
        if source.startswith(common_source()):  # not the source that repeats calls
            asked.append(makes)
        return request(source, makes)

    monkeypatch.setattr(LOADER, "request", noted)
    F.threshold(flow.ones(11, 3), 0.125, 2.0).numpy()
    assert asked == [False]
    F.threshold(flow.ones(1100, 7), 0.125, 2.0).numpy()
    assert asked == [False, True]
