"""Kernels in C, cut into pieces for several threads: the tests of the others once more."""

from __future__ import annotations

import pytest

from tests.kernels.test_pieces import (
    cuts as cuts,
    test_a_training_step as test_a_training_step,
    test_any_shape_and_layout as test_any_shape_and_layout,
    test_each_is_cut as test_each_is_cut,
    test_elementwise_ops as test_elementwise_ops,
    test_gradients_of_rows as test_gradients_of_rows,
    test_graphs as test_graphs,
    test_optimizers as test_optimizers,
    test_rows as test_rows,
)

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]
