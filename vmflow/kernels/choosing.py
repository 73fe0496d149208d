"""Chooses the kernels of ops: a `Problem` describes the computation, and `choose` finds the `Kernel` for it.

A kernel is chosen when an op's result is inferred for new shapes or dtypes, by the `Problem` and the device, and cached
with the inferred result.  The addresses and layouts of the operands are not known then.  So each kernel checks layout,
alignment and overlap itself.

`PACKAGES` names each device's package of modules, one for each family of ops, which declare builders of kernels.  A
module is imported when `choose` first looks for a builder of its family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, final

from vmflow.forking import lock_held_while_forking

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array, TensorMeta

# The function of a kernel: function(*input arrays, *scalars, out) -> result; see `vmflow.instructions.op_call.Kernel`.
Function: TypeAlias = Callable[..., Any]

# A prepared call: a function, its arguments, and the array to copy its result into, or None if the function itself
# writes its result.
Call: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...], Array | None]"

# Prepares a kernel for given scalars: bound(*scalars) -> (function, before, after), such that
# kernel(*arrays, *scalars, out) is function(*before, *arrays, *after, out).
Bound: TypeAlias = Callable[..., tuple[Function, tuple[Any, ...], tuple[Any, ...]]]

# Prepares a kernel for fixed arrays: placed(inputs, outputs, scratch) -> calls that together do kernel(*inputs, out);
# None if it has no such calls for these arrays.  The calls are valid as long as the arrays' memory lives.
Placed: TypeAlias = "Callable[[Sequence[Array], Sequence[Array], Array | None], list[Call] | None]"


@final
class Kernel:
    """The function that computes one op, for operands of the shapes and dtypes for which it was chosen.

    Args:
        function: computes the op; see `Function`.
        bound: prepares the function for given scalars, for callers that call it often; see `Bound`.
        placed: prepares calls for arrays at fixed addresses; see `Placed`.
        scratch: the bytes of scratch memory that `placed` needs.
        sharing: pairs of positions (input, output): the output may take the input's memory, if dtype and layout agree.
        keeps: whether, where a gradient will be wanted, another op should run in place of this one: one that also
            returns intermediate results for the gradient.
        casts: whether the function casts its result to the dtype of `out`; otherwise the caller does.
    """

    __slots__ = ("_bound", "casts", "function", "keeps", "placed", "scratch", "sharing")

    def __init__(
        self,
        function: Function,
        *,
        bound: Bound | None = None,
        placed: Placed | None = None,
        scratch: int = 0,
        sharing: Sequence[tuple[int, int]] = (),
        keeps: bool = False,
        casts: bool = False,
    ) -> None:
        self.function: Function = function
        self._bound = bound
        self.placed = placed
        self.scratch = scratch
        self.sharing = sharing
        self.keeps = keeps
        self.casts = casts

    def with_scalars(self, scalars: tuple[Any, ...]) -> tuple[Function, tuple[Any, ...], tuple[Any, ...]]:
        """Return a function for these scalars, and its arguments before and behind the arrays; see `Bound`."""
        if self._bound is not None:
            return self._bound(*scalars)
        return self.function, (), scalars


class Problem(NamedTuple):
    """A call of an op as shape inference knows it, from which a kernel is chosen: metas, but no values.

    Attributes:
        op: the op's name in the op table.
        family: the module of each device's package in which the op's builder is declared.
        attributes: the attributes of the call; each family knows the types of its own.
        inputs: the metas of the operands.
        scalars: the types of the Python numbers that follow the operands.
        outputs: the metas of the results.
        details: further facts that inference has found out for the family's kernels, see the family's builder; or the
            op's own `Kernel`.
    """

    op: str
    family: str
    attributes: Any
    inputs: tuple[TensorMeta, ...]
    scalars: tuple[type, ...]
    outputs: tuple[TensorMeta, ...]
    details: Any


# A function that makes a kernel: builder(problem) -> the kernel, or only the kernel's function.
Builder: TypeAlias = "Callable[[Problem], Kernel | Function]"

# The package of kernels of each type of device except meta, with a module for each family of ops.  The simulated device
# computes with the host's kernels.
PACKAGES: Final = {"cpu": "vmflow.kernels.numpy", "sim": "vmflow.kernels.numpy", "cuda": "vmflow.kernels.cuda"}

# The builders of kernels: by package, and then by the name of an op or family.
_BUILDERS: Final[dict[str, dict[str, Builder]]] = {package: {} for package in PACKAGES.values()}


# Held while `declare_family` imports a module, so that forks wait for the end, up to 0.1 s: the child would wait
# forever for the half-imported module.
_importing = lock_held_while_forking()


def builds(*names: str, package: str = "vmflow.kernels.numpy") -> Callable[[Builder], Builder]:
    """Declare that the decorated function builds the kernels of the ops in `names`.

    The name of a family stands for all of its ops that have no builder of their own.

    A function may declare itself again, when an import that Ctrl-C has interrupted is repeated.

    Args:
        names: names of ops, or of a family of ops.
        package: the device's package of kernels.

    Raises:
        ValueError: if another function is already the builder of one of `names`.
    """
    builders = _BUILDERS[package]

    def declare(builder: Builder) -> Builder:
        for name in names:
            before = builders.get(name)
            if before is not None and origin_of(before) != origin_of(builder):
                raise ValueError(f"{name!r} has two builders in {package}")
            builders[name] = builder
        return builder

    return declare


def kernel_of(*names: str, package: str = "vmflow.kernels.numpy") -> Callable[[Function], Function]:
    """Declare that the decorated ``function(problem, *input arrays, *scalars, out)`` computes the ops in `names`."""

    def declare(function: Function) -> Function:
        @builds(*names, package=package)
        @wraps(function)
        def build(problem: Problem) -> Function:
            return partial(function, problem)

        return function

    return declare


def declare_family(module: str) -> None:
    """Import a module that declares builders of kernels or rules of updates; forks wait for the end, up to 0.1 s."""
    with _importing:
        import_module(module)


def origin_of(function: Any) -> tuple[str, str]:
    """Return the module and name of a builder or another declared function: the same after a repeated import."""
    return function.__module__, function.__qualname__


def leave(*arguments: Any) -> Any:
    """Return the last argument, `out`, and compute nothing: for all kernels of the meta device."""
    return arguments[-1]


_NOTHING: Final = Kernel(leave, casts=True)


def choose(problem: Problem, device: Device) -> Kernel:
    """Return the kernel that computes a problem on a device.  Some ops supply their kernel as ``problem.details``.

    Raises:
        DeviceUnavailable: if the device cannot be used here.
        NotImplementedError: if the device has no kernel for the op, or for its dtypes.
    """
    if device.type == "meta":
        return _NOTHING
    if isinstance(problem.details, Kernel):
        return problem.details
    device.require()
    package = PACKAGES[device.type]
    builders = _BUILDERS[package]
    builder = builders.get(problem.op)
    if builder is None and problem.family:
        declare_family(f"{package}.{problem.family}")
        builder = builders.get(problem.op) or builders.get(problem.family)
    if builder is None:
        raise NotImplementedError(f"{problem.op} has no kernel for {device}")
    found = builder(problem)
    return found if isinstance(found, Kernel) else Kernel(found)
