"""``vmflow.backends``: switches for compiled kernels, for matrix products on GPUs, and PyTorch's for other libraries.

The switches for other libraries (``cudnn.benchmark`` and so on) can be read and set, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from .kernels import codegen as _switch
from .streams.cuda import precision as _precision


class _Backend:
    """PyTorch's switches for a library, such as cuDNN, which change nothing."""

    def __init__(self) -> None:
        self.enabled = False
        self.benchmark = False
        self.deterministic = False
        self.allow_tf32 = False

    def is_available(self) -> bool:
        """Always False, since vmflow does not use the library."""
        return False

    def is_built(self) -> bool:
        """Always False, since vmflow is not built with the library."""
        return False


class _MatrixProducts:
    """Settings of matrix products on CUDA devices, including those within convolutions and layers."""

    @property
    def allow_tf32(self) -> bool:
        """Whether products may round float32 and complex64 matrices to TensorFloat32 first; by default False.

        `flow.set_float32_matmul_precision` changes the same setting.
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

    def is_available(self) -> bool:
        """Whether there is a CUDA device that can be used."""
        from .cuda.properties import is_available  # imported here, since few programs ask

        return is_available()

    def is_built(self) -> bool:
        """As `is_available`: vmflow compiles its CUDA kernels while the program runs."""
        return self.is_available()


class _Codegen:
    """C kernels for the CPU, compiled by the system's C compiler while the program runs.

    Many of them compute the same bits as numpy.  Others can differ in the last digits: exp, log and ops made of them,
    such as tanh and softmax, some sums, normalizations, attention, convolutions and matrix products.  Unless `mode`
    changes, a process computes each of these others in one way from its first use on: by C if the kernel's library was
    loaded when first wanted, as from the cache on disk, else by numpy until `wait` is called.

    One compiler of C runs at a time, at the lowest priority, and none within a second of the first request.  A library
    of kernels that takes more than 10 seconds is compiled again at the usual priority; one that the program waits for,
    at the usual priority and immediately.

    Threads compile kernels of CUDA devices, too, from the first call of an op on.  A launch waits for its kernel;
    but consecutive elementwise ops outside of graphs are launched one by one until their common kernel is ready, except
    in the mode "wait".  Results have the same bits either way.
    """

    @property
    def mode(self) -> str:
        """When C kernels are used; at first by the environment variable VMFLOW_JIT: "off" for 0, "wait" for 1.

        "off": never; "background" (the default): as soon as a thread has compiled them, but see the class;
        "wait": likewise, but an op waits until its kernel is compiled, also on an event loop.

        Raises:
            ValueError: if `mode` is set to something else.
        """
        return _switch.LOADER.mode

    @mode.setter
    def mode(self, value: str) -> None:
        _switch.LOADER.mode = value

    def is_available(self) -> bool:
        """Whether C kernels can be compiled: a compiler exists, it has not failed, and `mode` is not "off"."""
        return _switch.describe()["problem"] is None

    def pending(self) -> int:
        """About how many libraries of C kernels and kernels of CUDA devices are being compiled or queued."""
        return _switch.pending()

    def wait(self, timeout: float | None = None, say: Callable[[str], object] | None = None) -> bool:
        """Wait until all queued kernels are compiled, and use these from now on, even where numpy has computed so far.

        The queued C kernels are compiled at the usual priority.  The calling thread blocks; in a coroutine, let another
        thread wait: ``await asyncio.to_thread(flow.backends.codegen.wait)``.

        Args:
            timeout: in seconds; None to wait as long as it takes.
            say: called before the wait with a sentence about the queued C kernels, if any.

        Returns:
            Whether no kernel is left to compile.
        """
        awaited = None if say is None else _switch.being_compiled()
        if say is not None and awaited is not None:
            say(awaited)
        return _switch.settle(timeout)


codegen = _Codegen()
cuda = _Cuda()
cudnn = _Backend()
mps = _Backend()
