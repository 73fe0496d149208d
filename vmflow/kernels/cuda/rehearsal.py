"""Kernels of ops are compiled in the background, by threads that rehearse launches.

A `Kernel` is chosen when an op is first inferred for its shapes and dtypes.  Then, if the device is open and works, a
thread calls once the function that launches it, with arrays that have no memory and a launcher that only compiles.
Arrays are assumed to be contiguous.  A launch compiles by itself what no rehearsal has compiled before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, final

import numpy as np

from vmflow.kernels.background import BACKGROUND
from vmflow.kernels.choosing import Problem
from vmflow.streams.cuda import registry
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.device import CudaDevice, Explain
from vmflow.streams.cuda.driver import Argument, CompileTarget, Handle
from vmflow.streams.cuda.launching import Check, Launcher, Loadable, Note, launched_by

# The addresses of a rehearsal's arrays are multiples of this, like an allocator's, and the arrays do not overlap.
_ALIGNED: Final = 512

_log: Final = logging.getLogger("vmflow.cuda")


@final
class RehearsingLauncher(Launcher):
    """A launcher that compiles the kernels that it is asked to launch, and launches nothing.

    Args:
        device: the device for which kernels are compiled.
    """

    def __init__(self, device: CudaDevice) -> None:
        super().__init__(device, None)
        self._free = _ALIGNED

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        """Return an array without memory, whose addresses overlap with no other array of the rehearsal."""
        made = DeviceArray(self._free, tuple(shape), dtype)
        self._free += -(-max(made.nbytes, 1) // _ALIGNED) * _ALIGNED
        return made

    def function(self, kernel: Loadable) -> Handle:
        if kernel not in self.device.functions:
            kernel.compile(self.device.driver.target)
        return None

    def launch(
        self,
        function: Handle,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Argument],
        writes: Sequence[int],
        shared: int = 0,
    ) -> None:
        pass

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        return self.array(shape, dtype)

    def constant(self, key: Hashable, make: Callable[[], np.ndarray[Any, Any]]) -> DeviceArray:
        made = make()
        return self.array(made.shape, made.dtype)

    def error_report(self, explain: Explain) -> DeviceArray:
        return self.array((2,), np.dtype(np.int64))

    def check(self, check: Check) -> None:
        pass

    def note_checks(self, begin: int, note: Note) -> None:
        pass

    def call(
        self, name: str, function: Callable[..., object], arguments: Sequence[Any], results: Sequence[DeviceArray]
    ) -> None:
        pass

    def multiply(
        self, left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None = None
    ) -> None:
        pass

    def copy(self, out: Any, source: Any) -> None:
        pass

    def fill(self, out: DeviceArray, byte: int) -> None:
        pass


# launch(launcher, operands, outs); see `vmflow.kernels.cuda.arrays.Launch`
_Launch: TypeAlias = "Callable[[Launcher, tuple[Any, ...], tuple[DeviceArray, ...]], None]"


def rehearse(launch: _Launch, problem: Problem, device: CudaDevice) -> None:
    """Compile the kernels that `launch` launches for contiguous operands; numbers are assumed to be 1."""
    launcher = RehearsingLauncher(device)
    inputs = [launcher.array(meta.shape, meta.dtype.numpy) for meta in problem.inputs]
    outs = tuple([launcher.array(meta.shape, meta.dtype.numpy) for meta in problem.outputs])
    numbers = [kind(1) for kind in problem.scalars]
    launched_by(launcher, partial(launch, launcher, (*inputs, *numbers), outs))


def rehearse_soon(launch: _Launch, problem: Problem) -> None:
    """Have a background thread rehearse a launch, if all its arrays are on one CUDA device, which is open and works."""
    places = {meta.device for meta in (*problem.inputs, *problem.outputs)}
    place = places.pop() if len(places) == 1 else None
    devices = registry.opened()
    if place is not None and place.type == "cuda" and place.index < len(devices):
        device = devices[place.index]
        if device.lost is None:  # it is lost in a forked child, too
            BACKGROUND.add(partial(_rehearse_or_tell, launch, problem, device), launch)


def _rehearse_or_tell(launch: _Launch, problem: Problem, device: CudaDevice) -> None:
    try:
        rehearse(launch, problem, device)
    except Exception:
        # If the launch fails, too, it raises the error to its caller.
        _log.debug("the launch of %s could not be rehearsed", problem.op, exc_info=True)


def compile_soon(kernel: Loadable, device: CudaDevice) -> None:
    """Have a background thread compile a kernel; an error is only logged."""
    BACKGROUND.add(partial(_compile_or_tell, kernel, device.driver.target), kernel)


def _compile_or_tell(kernel: Loadable, target: CompileTarget) -> None:
    try:
        kernel.compile(target)
    except Exception:
        _log.debug("%r could not be compiled", kernel, exc_info=True)  # the launch will raise the error
