"""Chooses the kernels of ops: a `Problem` describes the computation, and `choose` finds the `Kernel` for it.

A kernel is chosen once for each inference, by op, metas and device, and kept with it.  The addresses and layouts of the
operands are not known then.  So each kernel checks layout, alignment and overlap itself; its result is the same to the
bit for all layouts.

A device has a package of modules, one for each family of ops, which declare builders of kernels.  The host's is
`vmflow.kernels.numpy`.  A module is imported when the first op of its family is inferred.
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

# function(*input arrays, *scalars, out) -> result; see `vmflow.instructions.op_call.Kernel`.
Function: TypeAlias = Callable[..., Any]

# A function, its arguments, and the array for its result; None if the function writes its result by itself.
Call: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...], Array | None]"

# bound(*scalars) -> (function, before, after), such that kernel(*arrays, *scalars, out) is
# function(*before, *arrays, *after, out).
Bound: TypeAlias = Callable[..., tuple[Function, tuple[Any, ...], tuple[Any, ...]]]

# placed(inputs, outputs, scratch) -> calls that together are kernel(*inputs, out), as long as the memory of these
# arrays lives, and until `generation` changes; None if there are none.
Placed: TypeAlias = "Callable[[Sequence[Array], Sequence[Array], Array | None], list[Call] | None]"


@final
class Kernel:
    """Computes one op, for operands of the metas for which it was chosen.

    Args:
        function: see `Function`.
        bound: the function for given scalars, for callers that call it often; see `Bound`.
        placed: the function for given arrays that stay at their addresses, as in graphs; see `Placed`.
        scratch: the bytes of scratch memory that `placed` needs.
        sharing: pairs (input, output): the output may take the input's memory, if dtype and layout are the same.
        keeps: whether another op should run where a gradient will be wanted: it also returns intermediate results for
            the gradient.
        casts: whether the function casts its result to the dtype of `out`; otherwise the caller does.

    Attributes:
        function, placed, scratch, sharing, keeps, casts: see above.
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
        """Return a function for these scalars, and the arguments that go before and behind the arrays in its calls."""
        if self._bound is not None:
            return self._bound(*scalars)
        return self.function, (), scalars


class Problem(NamedTuple):
    """A computation that needs a kernel: all that inference knows of a call.

    Attributes:
        op: its name in the op table.
        family: the module of each device's package in which the op's builder is declared.
        attributes: of the call; each family knows the types of its own.
        inputs: the metas of the operands.
        scalars: the types of the numbers behind them.
        outputs: the metas of the results.
        details: further facts that inference has found out for the family's kernels; see the family's builder.
    """

    op: str
    family: str
    attributes: Any
    inputs: tuple[TensorMeta, ...]
    scalars: tuple[type, ...]
    outputs: tuple[TensorMeta, ...]
    details: Any


# builder(problem) -> the kernel, or only its function.
Builder: TypeAlias = "Callable[[Problem], Kernel | Function]"

# The package of each type of device, in which each family has a module.  The simulated device computes like the host.
PACKAGES: Final = {"cpu": "vmflow.kernels.numpy", "sim": "vmflow.kernels.numpy", "cuda": "vmflow.kernels.cuda"}

# For each package, a table from the names of ops and families to builders.
_BUILDERS: Final[dict[str, dict[str, Builder]]] = {package: {} for package in PACKAGES.values()}


# No thread may fork during an import: the child would wait forever for a half-imported module.
_importing = lock_held_while_forking()


def builds(*names: str, package: str = "vmflow.kernels.numpy") -> Callable[[Builder], Builder]:
    """Declare that the decorated function builds the kernels of these ops.

    The name of a family stands for all of its ops that have no builder of their own.

    A function may declare itself again, since Ctrl-C may interrupt the import of a module, which is then repeated.

    Args:
        names: of the ops, or of the family.
        package: of the device.

    Raises:
        ValueError: if another function is the builder already.
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
    """Declare that ``function(problem, *input arrays, *scalars, out)`` computes these ops; see `builds`.

    This is for functions that prepare nothing when the kernel is chosen.
    """

    def declare(function: Function) -> Function:
        @builds(*names, package=package)
        @wraps(function)
        def build(problem: Problem) -> Function:
            return partial(function, problem)

        return function

    return declare


def declare_family(module: str) -> None:
    """Import a module that declares builders."""
    with _importing:
        import_module(module)


def origin_of(builder: Any) -> tuple[str, str]:
    """The module and name of a builder, which are the same when an interrupted import is repeated."""
    return builder.__module__, builder.__qualname__


def leave(*arguments: Any) -> Any:
    """Do nothing: the function of all kernels of the meta device, where arrays have no memory."""
    return arguments[-1]


_NOTHING: Final = Kernel(leave, casts=True)


def choose(problem: Problem, device: Device) -> Kernel:
    """The kernel that computes a problem on a device; some ops supply it themselves, as the problem's details.

    Raises:
        DeviceUnavailable: if the device cannot compute.
        NotImplementedError: if the device has no kernel for the op.
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
