"""Kernels in C, cut into pieces for several threads: the tests of the others once more."""

from __future__ import annotations

import pytest

from tests.ops.test_threads import cuts as cuts
from tests.ops.test_threads import test_a_training_step as test_a_training_step
from tests.ops.test_threads import test_any_shape_and_layout as test_any_shape_and_layout
from tests.ops.test_threads import test_each_is_cut as test_each_is_cut
from tests.ops.test_threads import test_elementwise_ops as test_elementwise_ops
from tests.ops.test_threads import test_gradients_of_rows as test_gradients_of_rows
from tests.ops.test_threads import test_graphs as test_graphs
from tests.ops.test_threads import test_optimizers as test_optimizers
from tests.ops.test_threads import test_rows as test_rows

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]
