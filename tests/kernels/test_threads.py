"""Kernels in C, cut into pieces for several threads: the tests of the others once more."""

from __future__ import annotations

import pytest

from tests.kernels.test_pieces import cuts as cuts
from tests.kernels.test_pieces import test_a_training_step as test_a_training_step
from tests.kernels.test_pieces import test_any_shape_and_layout as test_any_shape_and_layout
from tests.kernels.test_pieces import test_each_is_cut as test_each_is_cut
from tests.kernels.test_pieces import test_elementwise_ops as test_elementwise_ops
from tests.kernels.test_pieces import test_gradients_of_rows as test_gradients_of_rows
from tests.kernels.test_pieces import test_graphs as test_graphs
from tests.kernels.test_pieces import test_optimizers as test_optimizers
from tests.kernels.test_pieces import test_rows as test_rows

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]
