"""Arrays whose elements lie at odd addresses: C's results are right, and C never reads them there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.kernels.native.addresses import address, is_aligned, is_plain, plain
from vmflow.kernels.native.compiling import CompileError, compiler_command

ROOT = Path(flow.__file__).parents[1]


def at_odd_address(array: Any) -> Any:
    """The same elements, one byte further than they should be."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    begin = -address(memory) % 64 + 1
    moved = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert address(moved) % array.itemsize
    return moved


def _numbers(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def _gradients(call: Callable[..., flow.Tensor], *tensors: flow.Tensor) -> flow.Tensor:
    """The gradients of a function by its operands, as one vector; the last of the tensors is that of the result."""
    *operands, by_result = tensors
    operands = [operand.requires_grad_() for operand in operands]
    found = flow.autograd.grad(call(*operands), operands, by_result)
    return flow.cat([gradient.flatten() for gradient in found if gradient is not None])


_INDEX = np.arange(64 * 1100).reshape(64, 1100) % 64

# Functions of tensors that C computes, and arguments that are large enough for that.
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: x.sigmoid(), (_numbers(300, 300),)),
    "two operands": (lambda x, y: x * y, (_numbers(300, 300), _numbers(300, 300))),
    "softmax": (lambda x: x.softmax(-1), (_numbers(100, 200),)),
    "reduction": (lambda x: x.amax(-1), (_numbers(100, 200),)),
    "sum": (lambda x: x.sum(), (_numbers(100, 1000),)),
    "sums of columns": (lambda x: x.sum(0), (_numbers(1000, 100),)),
    "layer norm": (lambda x: nn.functional.layer_norm(x, (200,)), (_numbers(100, 200),)),
    "gradients of layer norm": (
        partial(_gradients, lambda x, scale: nn.functional.layer_norm(x, (200,), scale)),
        (_numbers(100, 200), _numbers(200), _numbers(100, 200)),
    ),
    "gradients of batch norm": (
        partial(_gradients, lambda x, scale: nn.functional.batch_norm(x, None, None, scale, training=True)),
        (_numbers(8, 16, 10, 10), _numbers(16), _numbers(8, 16, 10, 10)),
    ),
    "product": (lambda x, y: x @ y, (_numbers(64, 96), _numbers(96, 80))),
    "products": (lambda x, y: x @ y, (_numbers(4, 64, 96), _numbers(4, 96, 80))),
    "linear": (nn.functional.linear, (_numbers(64, 96), _numbers(80, 96), _numbers(80))),
    "gradients of linear": (
        partial(_gradients, nn.functional.linear),
        (_numbers(64, 96), _numbers(80, 96), _numbers(80), _numbers(64, 80)),
    ),
    "convolution": (nn.functional.conv2d, (_numbers(2, 3, 24, 24), _numbers(8, 3, 3, 3), _numbers(8))),
    "pooling": (lambda x: nn.functional.max_pool2d(x, 2), (_numbers(2, 8, 48, 48),)),
    "attention": (nn.functional.scaled_dot_product_attention, (_numbers(2, 48, 32),) * 3),
    "attention of rows that overlap": (
        lambda x: nn.functional.scaled_dot_product_attention(*[x.as_strided((2, 32, 16), (64, 4, 1))] * 3),
        (_numbers(300),),
    ),
    "gather": (lambda x, at: x.gather(0, at), (_numbers(64, 1100), _INDEX)),
    "gather of complex numbers": (lambda x, at: x.gather(0, at), (_numbers(64, 1100).astype("complex64"), _INDEX)),
    "scatter": (lambda x, at, y: x.scatter_add(0, at, y), (_numbers(64, 1100), _INDEX, _numbers(64, 1100))),
    "running sums": (lambda x: x.cumsum(1), (_numbers(100, 200, dtype="float64"),)),
    "classes": (nn.functional.cross_entropy, (_numbers(200, 100), np.arange(200) % 100)),
    "gradient of classes": (
        partial(_gradients, lambda x: nn.functional.cross_entropy(x, flow.arange(200) % 100)),
        (_numbers(200, 100), _numbers()),
    ),
}


def computed(name: str, moved: Callable[[Any], Any]) -> list[bytes]:
    """A function's results for arrays laid out by `moved`, three times: the third call is a remembered one."""
    call, arrays = CALLS[name]
    tensors = [flow.from_numpy(moved(array.copy())) for array in arrays]
    return [call(*tensors).numpy().tobytes() for _ in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CALLS))
def test_results_are_those_of_arrays_that_lie_well(name: str, compiled: None) -> None:
    """Also of a call that was remembered for arrays that do."""
    expected = computed(name, lambda x: x)
    assert computed(name, at_odd_address) == expected
    assert computed(name, lambda x: x) == expected


def test_a_graph_takes_arguments_at_odd_addresses(compiled: None) -> None:
    class Twice(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return ((x * 2.5 + 1).exp() - x).tanh()

    graph, array = Twice(), _numbers(300, 300)
    expected = graph(flow.from_numpy(array.copy())).numpy()
    for _ in range(2):
        np.testing.assert_array_equal(graph(flow.from_numpy(at_odd_address(array))).numpy(), expected)


def test_shared_memory_stays_shared() -> None:
    array = at_odd_address(np.zeros(5, np.float32))
    tensor = flow.from_numpy(array)
    tensor += 1
    tensor.numpy()
    assert array.tolist() == [1.0] * 5


def test_which_arrays_are_aligned() -> None:
    array = np.zeros(9, np.float32)
    assert is_plain(array)
    assert plain(array) is array
    assert is_aligned(array[::2])
    assert not is_plain(array[::2])
    memory = np.zeros(72, np.uint8)[-address(np.zeros(1)) % 8 :]
    complex_numbers = array[1:9].view(np.complex64) if address(array) % 8 == 0 else array[:8].view(np.complex64)
    assert complex_numbers.flags.aligned
    assert not is_aligned(complex_numbers)  # C moves them as integers of eight bytes
    records = np.zeros(4, np.dtype([("tag", "i1"), ("value", "f4")]))
    assert not is_aligned(records["value"])
    assert is_plain(plain(records["value"]))
    assert memory.size  # bytes are aligned at any address
    assert is_plain(memory)


_SANITIZED = "-fsanitize=undefined -fno-sanitize-recover=all"

_PROGRAM = """
import numpy as np
from tests.kernels.test_alignment import CALLS, at_odd_address, computed
from vmflow.kernels.native.loading import LOADER
for name in CALLS:
    expected = computed(name, lambda array: array)
    assert computed(name, at_odd_address) == expected, name
assert LOADER.loaded() > 4, LOADER.problem
print("done")
"""


@pytest.mark.slow
@pytest.mark.host
def test_a_sanitizer_finds_no_undefined_behaviour(tmp_path: Path) -> None:
    """With all checks of arguments compiled in."""
    try:
        command = compiler_command()
    except CompileError as error:
        pytest.skip(str(error))
    source, made = tmp_path / "empty.c", tmp_path / "empty.so"
    source.write_text("int nothing(int x) { return x + x; }\n")
    build = [*command, *_SANITIZED.split(), "-shared", "-fPIC", "-o", str(made), str(source)]
    load = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(made)!r})"]
    for call in (build, load):
        if subprocess.run(call, capture_output=True, check=False).returncode:
            pytest.skip("the compiler has no sanitizer of undefined behaviour that can be loaded")
    (tmp_path / "kept").mkdir(mode=0o700)
    outside = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VMFLOW_JIT": "1",
        "VMFLOW_C_CHECKS": "1",
        "VMFLOW_C_FLAGS": f"{_SANITIZED} -O1",
        "VMFLOW_CACHE_DIR": str(tmp_path / "kept"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        env=outside,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["done"], done.stderr
    assert done.returncode == 0


_WRONG_CALL = """
import numpy as np
from vmflow.kernels.native.addresses import address
from vmflow.kernels.native.functions import function
x = np.zeros(9, np.float32)
softmax = function("softmax", 1 << 20)
softmax.call(address(x) + 1, address(x), 1, 4)
print("computed")
"""


@pytest.mark.slow
@pytest.mark.host
@pytest.mark.parametrize("checks", ["0", "1"])
def test_functions_look_at_their_words_where_that_is_asked_for(checks: str, kept: Path, compiled: None) -> None:
    outside = {**os.environ, "PYTHONPATH": str(ROOT), "VMFLOW_JIT": "1", "VMFLOW_C_CHECKS": checks}
    outside["VMFLOW_CACHE_DIR"] = str(kept)
    done = subprocess.run([sys.executable, "-c", _WRONG_CALL], capture_output=True, text=True, env=outside, check=False)
    if checks == "1":
        assert done.returncode < 0
        assert "vmflow: softmax was called with invalid arguments; expected IS_AT(from) && IS_AT(to)" in done.stderr
    else:
        assert done.stdout.split() == ["computed"], done.stderr
