"""``vmflow.backends``: switches of compiled kernels and of products on GPUs, and PyTorch's of other libraries.

The last can be asked and set, since many programs do so before anything else, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from .kernels import codegen as _switch
from .streams.cuda import precision as _precision


class _Backend:
    """One library: never there."""

    def __init__(self) -> None:
        self.enabled = False
        self.benchmark = False
        self.deterministic = False
        self.allow_tf32 = False

    def is_available(self) -> bool:
        """Whether it is used: False."""
        return False

    def is_built(self) -> bool:
        """Whether vmflow was built with it: False."""
        return False


class _MatrixProducts:
    """Products of matrices on CUDA devices, those that convolutions and layers are made of among them."""

    @property
    def allow_tf32(self) -> bool:
        """Whether factors in float32 may be rounded to TensorFloat32, by default False.

        The same setting as that of `flow.set_float32_matmul_precision`.
        """
        return _precision.allows_tf32()

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        _precision.set_float32_matmul_precision("high" if value else "highest")


class _Cuda(_Backend):
    """CUDA, and its matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = _MatrixProducts()


class _Codegen:
    """C kernels on the CPU, made by the system's compiler while the program runs.

    What they compute is what numpy computes, mostly to the bit.  Where it is not (exp, log and what is made of them, as
    tanh, sigmoid and softmax are; layer norm: last digits may differ), a process computes in one way from
    the first time on: by C if the kernel was kept from an earlier process or has been waited for, else by numpy.

    One compiler runs at a time, at the lowest priority, and none in the first second, so that what computes keeps its
    cores.  If that takes it more than 10 seconds for a library, or somebody waits, it gets the usual priority.

    Threads compile kernels of CUDA devices, too, from the moment at which an op is first called.  A launch waits for
    its kernel.  Elementwise ops in a row that have no kernel together yet are launched one by one until it is there; in
    the mode "wait" they wait for it.  Bits are the same.
    """

    @property
    def mode(self) -> str:
        """When C kernels are used, as VMFLOW_JIT says at first.

        "off" is never, "background" (the default) as soon as a thread has compiled them, "wait" always: who needs one
        waits until it is compiled, also if that is an event loop.

        Raises:
            ValueError: if it is set to something else.
        """
        return _switch.LOADER.mode

    @mode.setter
    def mode(self, value: str) -> None:
        _switch.LOADER.mode = value

    def is_available(self) -> bool:
        """Whether there is a compiler, it has not failed, and the mode is not "off"."""
        return _switch.describe()["problem"] is None

    def pending(self) -> int:
        """How many libraries of C kernels and kernels of CUDA devices are being compiled, or wait for their turn."""
        return _switch.pending()

    def wait(self, timeout: float | None = None, say: Callable[[str], object] | None = None) -> bool:
        """Wait for everything that is being compiled, and use all of it from now on, whatever was used before.

        It is compiled at the usual priority from now on.  The calling thread blocks; in a coroutine, let another thread
        wait: ``await asyncio.to_thread(flow.backends.codegen.wait)``.

        Args:
            timeout: in seconds, for all of it; None to wait as long as it takes.
            say: if there is something to wait for, called with a sentence on that before the wait; `print` will do.

        Returns:
            Whether nothing is left.
        """
        awaited = None if say is None else _switch.being_compiled()
        if say is not None and awaited is not None:
            say(awaited)
        return _switch.settle(timeout)


codegen = _Codegen()
cuda = _Cuda()
cudnn = _Backend()
mps = _Backend()
