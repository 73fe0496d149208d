"""The text and the HTML that show a tensor: `represent` for ``repr``, and `represent_in_html` for notebooks."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from . import dtypes
from .instructions.blob import Array
from .vm.wakers import running_loop

if TYPE_CHECKING:
    from .tensors import Tensor


class Options(NamedTuple):
    """The options by which tensors' elements are written as text; see `set_printoptions`."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES: Final = {
    "default": Options(),
    "short": Options(precision=2, edgeitems=2),
    "full": Options(threshold=math.inf),
}
_chosen = Options()
# The options of the innermost block of `printoptions`; None outside of all blocks.
_in_block: Final[ContextVar[Options | None]] = ContextVar("printoptions", default=None)


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Choose how tensors are printed, in the whole process.

    Without `profile`, options that are left out stay, except `sci_mode`.
    In a block of `printoptions`, the choice holds for the rest of that block.

    Args:
        precision: the number of decimals.
        threshold: how many elements are shown without leaving out the middle; `math.inf` for any number.
        edgeitems: how many elements are shown at each end of a dimension whose middle is left out.
        linewidth: characters per line.
        profile: "default", "short" or "full": the options to which the other arguments are changes.
        sci_mode: whether floats are written with an exponent; None to decide by their sizes.

    Raises:
        ValueError: for an unknown profile or a negative number.
        TypeError: for an option of a wrong type.

    Example:
        >>> flow.set_printoptions(profile="default")
        >>> flow.tensor([0.123456])
        tensor([0.1235])
    """
    global _chosen
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"set_printoptions: there is no profile {profile!r}; known are {', '.join(_PROFILES)}")
    if sci_mode is not None and not isinstance(sci_mode, bool):
        raise TypeError(f"set_printoptions: sci_mode must be True, False or None, not {sci_mode!r}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is None:
            continue
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits and not (name == "threshold" and isinstance(value, float)):
            raise TypeError(f"set_printoptions: {name} must be an integer, not {value!r}")
        if not value >= 0:
            raise ValueError(f"set_printoptions: {name} cannot be negative, got {value}")
    wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options = (_present() if profile is None else _PROFILES[profile])._replace(sci_mode=sci_mode, **wanted)
    if _in_block.get() is None:
        _chosen = options
    else:
        _in_block.set(options)


def _present() -> Options:
    return _in_block.get() or _chosen


def get_printoptions() -> dict[str, Any]:
    """The options by which this task or thread prints tensors, by name.

    Example:
        >>> flow.get_printoptions()["precision"]
        4
    """
    return _present()._asdict()


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """A context manager in whose block this task or thread prints tensors by these options of `set_printoptions`.

    Raises:
        ValueError, TypeError: as `set_printoptions`.

    Example:
        >>> with flow.printoptions(precision=1):
        ...     print(flow.tensor([0.123456]))
        tensor([0.1])
    """
    before = _in_block.get()
    _in_block.set(_present())
    try:
        set_printoptions(**options)
        yield
    finally:
        _in_block.set(before)


def represent(tensor: Tensor) -> str:
    """The text of ``repr(tensor)``, in PyTorch's format.

    Waits for the value, except on a running event loop; there, a cell of a notebook waits, too, and a global tensor
    whose part here is computed waits for the other parts.  The text of a tensor of a graph that is being built says
    "lazy".
    """
    name = type(tensor).__name__
    heading = f"{name} containing:\n" if name != "Tensor" else ""
    more = _more(tensor)
    size = f"size={tuple(tensor.shape)}"
    if tensor.is_lazy:
        return heading + _joined("tensor(...", [size, "lazy", *more])
    if tensor.device.type == "meta":
        return heading + _joined("tensor(...", [size, *more])
    if not tensor.is_ready() and running_loop() is not None and not _is_called_by_cell():
        return heading + _joined("tensor(...", [size, "pending", *more])
    try:
        array = tensor.detach()._array()
    except Exception as error:
        # A repr that raises is useless in a debugger or a log: show the failure instead.
        return f"{heading}tensor({', '.join(['...', size, f'failed={error!r}', *more])})"
    if array.size == 0:
        return heading + _joined("tensor([]", [*([size] if array.ndim != 1 else []), *more])
    if tensor.dtype is dtypes.bfloat16:
        array = array.astype(np.float32)
    write, width = _formatter(_borders(array))
    text = _nested(array, _INDENT, write, width, array.size > _present().threshold)
    return heading + _joined(f"tensor({text}", more)


def represent_in_html(tensor: Tensor) -> str:
    """The HTML of a tensor: shape, dtype, device, and values if local, computed and on the CPU; never waits."""
    from .markup import line, preformatted, scrolling, stacked, table

    facts = [repr(tensor.dtype).removeprefix("vmflow."), str(list(tensor.shape)), f"on {tensor.device}"]
    if tensor.requires_grad:
        facts.append("requires_grad" if tensor.grad_fn is None else f"grad_fn={tensor.grad_fn!r}")
    heading = line(type(tensor).__name__, *facts)
    absent = _why_without_values(tensor)
    if absent:
        return stacked(heading, preformatted(absent))
    try:
        array = tensor.detach()._array()
    except Exception as error:
        return stacked(heading, preformatted(f"failed: {error!r}"))
    if tensor.dtype is dtypes.bfloat16:
        array = array.astype(np.float32)
    if array.size == 0:
        return stacked(heading, preformatted("[]"))
    if array.ndim in (1, 2):
        return stacked(heading, scrolling(table(_cells(array.reshape(-1, array.shape[-1])))))
    write, width = _formatter(_borders(array))
    return stacked(heading, preformatted(_nested(array, 0, write, width, array.size > _present().threshold)))


def _cells(matrix: Array) -> list[list[str]]:
    """The elements of a matrix as texts, with dots in place of the middle of long rows and columns."""
    rows, columns = _kept(matrix.shape[0]), _kept(matrix.shape[1])
    write, _ = _formatter(matrix[np.ix_(*[[index for index in kept if index >= 0] for kept in (rows, columns)])])
    return [["..." if min(row, column) < 0 else write(matrix[row, column]) for column in columns] for row in rows]


def _kept(size: int) -> list[int]:
    """The indices of a dimension of `size` elements that a table shows; -1 stands for dots."""
    border = _present().edgeitems
    if size <= max(_MOST_CELLS, 2 * border):
        return list(range(size))
    return [*range(border), -1, *range(size - border, size)]


def _why_without_values(tensor: Tensor) -> str:
    """A text that says why a tensor's values cannot be shown without waiting or copying; "" if they can."""
    if tensor.is_lazy:
        return "an operand of a graph that is being built"
    if tensor.is_global:
        return f"spread over ranks: {tensor.placement!r}, {tensor.sbp!r}"
    if tensor.device.type == "meta":
        return "no values: the meta device computes shapes alone"
    if not tensor.is_ready():
        return "pending: await the tensor, then show it again"
    if tensor.device.type != "cpu":
        return f"values are on {tensor.device}; .cpu() copies them"
    return ""


def _is_called_by_cell() -> bool:
    """Whether code of an IPython cell is on the call stack: then waiting blocks nothing that the cell does not block.

    Jupyter runs every cell on a running loop.
    """
    shell = sys.modules.get("IPython.core.interactiveshell")
    if shell is None:
        return False
    runs_cells = shell.InteractiveShell.run_code.__code__
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not runs_cells:
        frame = frame.f_back
    return frame is not None


_INDENT: Final = len("tensor(")
# An HTML table shows rows and columns of up to this length without dots.
_MOST_CELLS: Final = 10


def _joined(text: str, more: list[str]) -> str:
    """Join the text of the values and further parts (size, dtype ...) by commas, with line breaks where needed."""
    length = len(text) - text.rfind("\n") + 1
    for part in more:
        if length + len(part) + 2 > _present().linewidth:
            text += f",\n{' ' * _INDENT}{part}"
            length = _INDENT + len(part)
        else:
            text += f", {part}"
            length += len(part) + 2
    return f"{text})"


def _nested(array: Array, indent: int, write: Callable[[Any], str], width: int, shortened: bool) -> str:
    """The elements of an array in nested brackets, of which the first begins at column `indent`.

    Args:
        array: the elements.
        indent: the column.
        write: turns an element into text.
        width: the characters of an element.
        shortened: whether dots stand for the middle of long dimensions.
    """
    if array.ndim == 0:
        return write(array[()])
    border = _present().edgeitems
    leaves_out = shortened and array.shape[0] > 2 * border
    shown = [*array[:border], *array[array.shape[0] - border :]] if leaves_out else list(array)
    if array.ndim > 1:
        parts = [_nested(row, indent + 1, write, width, shortened) for row in shown]
        if leaves_out:
            parts.insert(border, "...")
        gap = ",".ljust(array.ndim, "\n") + " " * (indent + 1)
        return f"[{gap.join(parts)}]"
    parts = [write(element) for element in shown]
    if leaves_out:
        parts.insert(border, " ...")
    # Each line has as many elements as fit; dots count as an element.
    per_line = max(1, (_present().linewidth - indent) // (width + 2))
    lines = [", ".join(parts[start : start + per_line]) for start in range(0, len(parts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _more(tensor: Tensor) -> list[str]:
    """The parts of a tensor's text after the values: device, dtype, and grad_fn or requires_grad, if not the usual.

    A global tensor has its placement and sbp in place of the device.
    """
    parts: list[str] = []
    if tensor.is_global:
        parts += [f"placement={tensor.placement!r}", f"sbp={tensor.sbp!r}"]
    elif tensor.device.type != "cpu":
        parts.append(f"device='{tensor.device}'")
    usual: tuple[dtypes.dtype, ...] = (dtypes.get_default_dtype(),)
    if tensor.numel():
        usual += (dtypes.int64, dtypes.bool_, dtypes.of_scalar(complex))
    if tensor.dtype not in usual:
        parts.append(f"dtype={tensor.dtype!r}")
    if tensor.grad_fn is not None:
        parts.append(f"grad_fn={tensor.grad_fn!r}")
    elif tensor.requires_grad:
        parts.append("requires_grad=True")
    return parts


def _borders(array: Array) -> Array:
    """The elements of an array that will be shown: all, or those at the ends of long dimensions."""
    border = _present().edgeitems
    if array.size > _present().threshold:
        for axis, size in enumerate(array.shape):
            if size > 2 * border:
                array = np.take(array, [*range(border), *range(size - border, size)], axis)
    return array


def _formatter(array: Array) -> tuple[Callable[[Any], str], int]:
    """A function that writes elements of `array` as text of one width, which nan and inf may exceed; and that width."""
    if array.dtype.kind == "c":
        real, imaginary = _number_format(array.real), _number_format(array.imag)
        width = _width(real, array.real)
        return (
            lambda value: f"{real(value.real):>{width}}{_signed(imaginary(value.imag))}j",
            width + _width(imaginary, array.imag) + 1,
        )
    write = _number_format(array) if array.dtype.kind == "f" else str
    width = _width(write, array)
    return lambda value: f"{write(value):>{width}}", max(width, 1)


def _signed(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"


def _width(write: Callable[[Any], str], array: Array) -> int:
    if array.dtype.kind == "f":
        # nan, inf and 0 do not count, so that a single nan does not widen all columns.
        array = array[np.isfinite(array) & (array != 0)]
    return max([len(write(element)) for element in array.reshape(-1)], default=0)


def _number_format(array: Array) -> Callable[[Any], str]:
    """A function that writes floats: with exponents by `sci_mode` or for extreme sizes, without decimals if whole."""
    options = _present()
    decimals, sci_mode = options.precision, options.sci_mode
    sizes = np.abs(array[np.isfinite(array) & (array != 0)].astype(np.float64))
    if not sizes.size:
        return lambda value: f"{value:.0f}." if math.isfinite(value) else str(float(value))
    whole = bool((sizes == np.floor(sizes)).all())
    far_apart = sizes.max() / sizes.min() > 1000 or sizes.max() > 1e8 or (sizes.min() < 1e-4 and not whole)
    if far_apart if sci_mode is None else sci_mode:
        return lambda value: f"{value:.{decimals}e}"
    if whole:
        return lambda value: f"{value:.0f}." if math.isfinite(value) else str(float(value))
    return lambda value: f"{value:.{decimals}f}"
