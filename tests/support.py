"""Helpers that several test files share: numerical gradients, issued instructions, programs in new processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow.instructions import Instruction
from vmflow.vm.virtual_machine import current_machine

Array = NDArray[Any]

# Seconds after which a process counts as stuck.
_PATIENCE = 60


class _Listener:
    """A tracer that notes the names of issued instructions."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def issued(self, instruction: Instruction) -> None:
        self.names.append(instruction.name)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@contextmanager
def instructions_issued() -> Iterator[list[str]]:
    """A context manager whose list gets the names of instructions issued in its block, where none runs inline."""
    machine = current_machine()
    listener = _Listener()
    machine.tracer = listener
    try:
        yield listener.names
    finally:
        machine.tracer = None


def weak_storage(tensor: flow.Tensor) -> weakref.ref[Any]:
    """A weak reference to the memory of a tensor; skips the test where compiled storages allow no weak references."""
    storage = tensor._blob.storage
    if type(storage).__weakrefoffset__ == 0:
        pytest.skip("compiled storages take no weak references")
    return weakref.ref(storage)


def arrays_for(seed: int, *shapes: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> list[Array]:
    """float64 arrays, evenly distributed."""
    generator = np.random.default_rng(seed)
    return [generator.uniform(low, high, shape) for shape in shapes]


def numerical_gradients(function: Callable[..., float], arrays: Sequence[Array], step: float = 1e-6) -> list[Array]:
    """Central differences of a function of arrays that returns a number."""
    gradients: list[Array] = []
    for position, array in enumerate(arrays):
        gradient = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            shifted = [value.copy() for value in arrays]
            shifted[position][index] = array[index] + step
            above = function(*shifted)
            shifted[position][index] = array[index] - step
            gradient[index] = (above - function(*shifted)) / (2 * step)
        gradients.append(gradient)
    return gradients


def check_gradients(
    function: Callable[..., flow.Tensor],
    *arrays: Array,
    second: bool = False,
    rtol: float = 1e-5,
    atol: float = 1e-7,
) -> None:
    """Compare autograd's gradients of a function of float64 tensors with numerical ones.

    The function's result is weighted by fixed random numbers, so that no gradient is a plain sum.  With `second`, the
    gradients' own gradients are checked as well.
    """

    def weighted(*tensors: flow.Tensor) -> flow.Tensor:
        result = function(*tensors)
        weights = np.random.default_rng(7).uniform(0.5, 1.5, tuple(result.shape))
        return (result * flow.tensor(weights)).sum()

    def value(*given: Array) -> float:
        with flow.no_grad():
            return float(weighted(*[flow.tensor(entry) for entry in given]).item())

    tensors = [flow.tensor(array, requires_grad=True) for array in arrays]
    found = flow.autograd.grad(weighted(*tensors), tensors)
    for have, want in zip(found, numerical_gradients(value, arrays), strict=True):
        assert have is not None
        np.testing.assert_allclose(have.numpy(), want, rtol=rtol, atol=atol)
    if second:

        def gradient_sum(*inner: flow.Tensor) -> flow.Tensor:
            grads = flow.autograd.grad(weighted(*inner), inner, create_graph=True)
            total = flow.zeros((), dtype=flow.float64)
            for grad in grads:
                assert grad is not None
                total = total + (grad * grad).sum()
            return total

        def second_value(*given: Array) -> float:
            return float(gradient_sum(*[flow.tensor(value, requires_grad=True) for value in given]).item())

        tensors = [flow.tensor(array, requires_grad=True) for array in arrays]
        total = gradient_sum(*tensors)
        if not total.requires_grad:
            return  # linear in everything
        found = flow.autograd.grad(total, tensors, allow_unused=True)
        for have, want in zip(found, numerical_gradients(second_value, arrays, 1e-5), strict=True):
            np.testing.assert_allclose(
                np.zeros_like(want) if have is None else have.numpy(), want, rtol=1e-4, atol=1e-5
            )


def exhaustive_but_for_some(values: Sequence[Any], one_in: int) -> list[Any]:
    """Parameters of which about one in `one_in`, chosen by its text, runs always; others are marked "exhaustive"."""
    return [
        pytest.param(
            value, id=str(value), marks=() if crc32(str(value).encode()) % one_in == 0 else pytest.mark.exhaustive
        )
        for value in values
    ]


def named(value: Any) -> str:
    """The name of a parametrised test's case: the same in every process, unlike a function's repr."""
    return str(getattr(value, "__name__", value))


@contextmanager
def no_collections() -> Iterator[None]:
    """Turn garbage collection off in the block: objects in reference cycles stay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run_program(program: str, **environment: str) -> str:
    """Run a program in a new process; return its output.  It must exit with 0 and write nothing to stderr.

    Args:
        program: Python source, which may be indented.
        environment: environment variables to set for the program.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(flow.__file__).parent.parent), **environment},
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def source_files() -> dict[str, Path]:
    """The files of the project's modules, by module name; symbolic links are followed, as Python does."""
    root = Path(flow.__file__).parent
    found: dict[str, Path] = {}
    for folder, _, files in os.walk(root, followlinks=True):
        for file in files:
            path = Path(folder, file)
            if path.suffix == ".py":
                parts = ("vmflow", *path.relative_to(root).with_suffix("").parts)
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found
