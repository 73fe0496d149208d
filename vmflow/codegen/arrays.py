"""From numpy arrays to the kernels written by hand: each function here computes, or says that it cannot.

They can where the arrays are contiguous, of the dtypes that the kernels are written for, and where these are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from . import team
from .call_site import CallSite
from .elementwise import TOGETHER, address
from .kernels import LAYER_NORM_PART, SINGLE, by_words, function, words_of

Array: TypeAlias = Any

# A function, its arguments, and the array that it returns, or None.
Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Array | None]

_SINGLE: Final = np.dtype(np.float32)
_NAMES: Final = {name: f"single_{name}" for name in SINGLE}
_INDEX: Final = np.dtype(np.int64)

# As many additions as an element of an op of one operand takes the time of, about.
_ADDITIONS: Final = 2

# Work from which it pays to share what is called once: to say so takes as long as a third of this.
_SHARED_AT_ONCE: Final = 1 << 18

# Columns of a piece: whole lines of the cache.
_COLUMNS: Final = 16

_KINDS: Final = {_SINGLE: "float", np.dtype(np.float64): "double"}


def _fits(array: Array, dtype: np.dtype[Any] = _SINGLE) -> bool:
    return type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous


def _clear_of(out: Array, array: Array) -> bool:
    """Whether they have no memory in common, or all of it."""
    start, other = address(out), address(array)
    return start == other or start + out.nbytes <= other or other + array.nbytes <= start


class Single:
    """An op of one or two operands of float32, element by element, as it is called from one place.

    Arrays with gaps are copied and not left to numpy: however they lie, an op makes the same of the same numbers.

    Args:
        name: see `kernels.SINGLE`.
    """

    __slots__ = ("_name", "_site")

    def __init__(self, name: str) -> None:
        self._name = name
        self._site = CallSite()

    def call(self, arrays: Sequence[Array], out: Array | None) -> Array | None:
        """Compute it.

        Args:
            arrays: the operands.
            out: where the result should go, or None.

        Returns:
            The result, which is elsewhere if it cannot be put there; None if it cannot be computed so.
        """
        found = self._site.result(arrays, out)
        return self._found(arrays, out) if found is None else found

    def _found(self, arrays: Sequence[Array], out: Array | None) -> Array | None:
        if not all([type(it) is np.ndarray and it.dtype is _SINGLE for it in arrays]):
            return None
        alike = [*arrays] if len(arrays) == 1 else np.broadcast_arrays(*arrays)
        shape, size = alike[0].shape, alike[0].size
        kernel = function(_NAMES[self._name], size)
        if kernel is None:
            return None
        given = [it if it.flags.c_contiguous else it.copy() for it in alike]
        if out is None or out.shape != shape or not _fits(out) or not all([_clear_of(out, it) for it in given]):
            out = np.empty(shape, _SINGLE)
        together = (*given, out)
        arguments = (*[address(it) for it in together], size)
        cut = _by_element(together)
        _make(self._site, _NAMES[self._name], kernel, arguments, together, cut, _ADDITIONS * size, in_place=True)
        return out


def _make(
    site: CallSite,
    name: str,
    kernel: Callable[..., Any],
    arguments: tuple[Any, ...],
    arrays: tuple[Array, ...],
    cut: team.Cut,
    work: float,
    *,
    written: int = 1,
    in_place: bool = False,
) -> None:
    """Make a call, by several threads where that is worth it, for the site to remember.

    Args:
        site: from where.
        name: of the function.
        kernel: that.
        arguments: for the whole, of which those of the arrays come first.
        arrays: see `CallSite.note`.
        cut, work: see `as_call`.
        written, in_place: see `CallSite.note`.
    """
    at, size = by_words(name), arrays[0].size
    if not (at and size):
        kernel(*arguments)
        return
    words = words_of(name, arguments)
    job = team.job(at, words, cut, work)
    if job is None or not team.run(job, work):
        job = None
        kernel(*arguments)
    function, taken = (at, words) if job is None else (0, job)
    before = len(taken) - len(words)
    places = range(before, before + len(arrays))
    site.note(function, taken, places, arrays, work, written=written, in_place=in_place)


def _by_element(arrays: Sequence[Array]) -> team.Cut:
    """For kernels whose arguments begin with the addresses of arrays of one shape and dtype, and how many elements."""
    itemsize = arrays[0].itemsize
    return team.Cut(len(arrays), tuple([(place, itemsize) for place in range(len(arrays))]), TOGETHER)


def as_call(
    name: str,
    kernel: Callable[..., Any],
    arguments: tuple[Any, ...],
    cut: Callable[[], team.Cut],
    work: float,
    at_once: bool = False,
) -> Call:
    """A kernel written by hand with its arguments, as one call, by several threads where that is worth it.

    Args:
        name: of the function.
        kernel: that.
        arguments: for the whole.
        cut: makes one, for which arguments are words; not called where nobody would help.
        work: see `vmflow.intra_op.LEAST`.
        at_once: whether it will be called only once, and at once.
    """
    if at_once and work < _SHARED_AT_ONCE:
        return kernel, arguments, None
    if team.helps(work) and (at := by_words(name)):
        found = team.shared(at, words_of(name, arguments), cut(), work)
        if found is not None:
            return found
    return kernel, arguments, None


def single_calls(name: str, work: float, arrays: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
    """What `Single` does as one call, for arrays that stay where they are; None if it cannot be had.

    Args:
        work: how much that is, see `vmflow.intra_op.LEAST`; the number of threads is that of now.
    """
    together = [*arrays, *outs]
    kernel = function(_NAMES[name], outs[0].size)
    if kernel is None or not all([_fits(it) and it.shape == outs[0].shape for it in together]):
        return None
    if not all([_clear_of(outs[0], it) for it in arrays]):
        return None
    arguments = (*[address(it) for it in together], outs[0].size)
    return [as_call(_NAMES[name], kernel, arguments, lambda: _by_element(together), work)]


def softmax_of_rows(array: Array, out: Array, logarithm: bool) -> bool:
    """The softmax of each row of a matrix, or its logarithm.

    Args:
        array: (rows, values).
        out: of its shape.
        logarithm: whether that is wanted.
    """
    kernel = function("log_softmax" if logarithm else "softmax", array.size)
    if kernel is None or not _fits(array) or not _fits(out) or not array.size or not _clear_of(out, array):
        return False
    if logarithm and address(out) == address(array):
        return False
    _over_rows("log_softmax" if logarithm else "softmax", kernel, 4, (array, out))
    return True


def _over_rows(name: str, kernel: Callable[..., object], additions: int, by_row: tuple[Array, ...], *rest: Any) -> None:
    """Call a kernel for all rows, by several threads where that is worth it; see `_row_call`."""
    call, given, _ = _row_call(name, kernel, additions, by_row, *rest, at_once=True)
    call(*given)


def _row_call(
    name: str,
    kernel: Callable[..., object],
    additions: int,
    by_row: tuple[Array, ...],
    *rest: Any,
    at_once: bool = False,
) -> Call:
    """A kernel that works on rows, as one call.

    Args:
        name: of the function.
        kernel: that.
        additions: as many as an element takes the time of.
        by_row: arrays that have something for each row, the first of them a matrix.  Their addresses come first, and
            then how many rows there are, and what they hold.
        rest: what follows.
        at_once: see `as_call`.
    """
    rows, length = by_row[0].shape
    arguments = (*[address(it) for it in by_row], rows, length, *rest)

    def cut() -> team.Cut:
        return team.Cut(len(by_row), tuple([(place, it.nbytes // rows) for place, it in enumerate(by_row)]))

    return as_call(name, kernel, arguments, cut, by_row[0].size * additions, at_once)


def cross_entropy_of_rows(array: Array, classes: Array, averages: bool) -> tuple[Array, Array, Array] | None:
    """The loss of rows of scores, how many there are, and their `log_softmax`; None if that is not possible.

    Args:
        array: (rows, classes).
        classes: the right ones; also where one does not exist it is not possible.
        averages: whether to take the mean instead of the sum.
    """
    outs = np.empty((), _SINGLE), np.empty((), _SINGLE), np.empty(array.shape, _SINGLE)
    compute = cross_entropy_call(array, classes, averages, outs)
    return outs if compute is not None and compute() else None


def cross_entropy_call(
    array: Array, classes: Array, averages: bool, outs: Sequence[Array]
) -> Callable[[], bool] | None:
    """`cross_entropy_of_rows` for arrays that stay where they are: it says whether it could, by the classes."""
    logs_of, kernel = function("log_softmax", array.size), function("cross_entropy", array.size)
    if logs_of is None or kernel is None or not array.size or not _fits(classes, _INDEX):
        return None
    loss, total, logs = outs
    if not all([_fits(it) for it in (array, *outs)]) or not _clear_of(logs, array) or address(logs) == address(array):
        return None
    room = np.empty(len(array), _SINGLE)
    to_logs, of_rows, _ = _row_call("log_softmax", logs_of, 4, (array, logs))
    places = address(logs), address(classes)
    rest = (*array.shape, address(loss), address(total), averages)

    def compute() -> bool:
        to_logs(*of_rows)
        return not kernel(*places, address(room), *rest)

    return compute


def cross_entropy_gradient_of_rows(
    gradient: Array, classes: Array, total: Array, logs: Array, averages: bool
) -> Array | None:
    """The gradient of `cross_entropy_of_rows` by the scores; None if that is not possible, as for classes there."""
    result = np.empty(logs.shape, _SINGLE)
    compute = cross_entropy_gradient_call(gradient, classes, total, logs, averages, result)
    return result if compute is not None and compute() else None


def cross_entropy_gradient_call(
    gradient: Array, classes: Array, total: Array, logs: Array, averages: bool, out: Array
) -> Callable[[], bool] | None:
    """`cross_entropy_gradient_of_rows` for arrays that stay where they are; see `cross_entropy_call`."""
    kernel, wrong = function("cross_entropy_gradient", logs.size), function("wrong_classes", logs.size)
    if kernel is None or wrong is None or not logs.size or not _fits(classes, _INDEX):
        return None
    if not all([_fits(it) for it in (gradient, total, logs, out)]) or not _clear_of(out, logs):
        return None
    rest = address(gradient), address(total), averages
    to_gradient, of_rows, _ = _row_call("cross_entropy_gradient", kernel, 3, (logs, classes, out), *rest)
    arguments = (address(classes), *logs.shape)

    def compute() -> bool:
        if wrong(*arguments):
            return False
        to_gradient(*of_rows)
        return True

    return compute


def layer_norm_of_rows(
    array: Array, weight: Array | None, bias: Array | None, out: Array | None, eps: float
) -> tuple[Array, Array, Array] | None:
    """Each row normalised, and the means and scales; None if that is not possible.

    Args:
        array: (rows, features).
        weight, bias: (features,), or None.
        out: of the shape of the array, or None.
        eps: added to the variance.
    """
    kernel = function("layer_norm", array.size)
    if kernel is None or not array.size or not _fits(array):
        return None
    if not all([it is None or _fits(it) for it in (weight, bias, out)]):
        return None
    result = np.empty(array.shape, _SINGLE) if out is None else out
    if out is not None and not all([it is None or _clear_of(out, it) for it in (array, weight, bias)]):
        return None
    means, scales = np.empty(array.shape[0], _SINGLE), np.empty(array.shape[0], _SINGLE)
    _over_rows("layer_norm", kernel, 2, (array, result, means, scales), _address(weight), _address(bias), eps)
    return result, means, scales


def layer_norm_gradient_of_rows(
    gradient: Array, array: Array, mean: Array, scale: Array, weight: Array | None, out: Array | None
) -> tuple[Array, Array, Array] | None:
    """The gradients of `layer_norm_of_rows` by the array, the weight and the bias; None if that is not possible."""
    kernel = function("layer_norm_gradient", array.size)
    if kernel is None or not array.size:
        return None
    if not all([it is None or _fits(it) for it in (gradient, array, mean, scale, weight, out)]):
        return None
    result = np.empty(array.shape, _SINGLE) if out is None else out
    if out is not None and not all([it is None or _clear_of(out, it) for it in (gradient, array, weight)]):
        return None
    rows, features = array.shape
    # Of each, the gradients by weight and bias, and room for two rows to work in.
    parts = np.empty((-(-rows // LAYER_NORM_PART), 4, features), _SINGLE)
    places = [address(it) for it in (array, gradient, result, mean, scale)]
    arguments = (*places, 0, len(parts), rows, features, _address(weight), address(parts))
    cut = team.Cut(6, ((5, 1),))
    call, given, _ = as_call("layer_norm_gradient", kernel, arguments, lambda: cut, array.size * 4, at_once=True)
    call(*given)
    return result, *np.add.reduce(parts[:, :2], 0)


def add_to_rows(array: Array, row: Array) -> bool:
    """``array += row``, for a matrix; whether it was done."""
    found = add_to_rows_calls(array, row, at_once=True)
    for kernel, arguments, _ in found or ():
        kernel(*arguments)
    return found is not None


def add_to_rows_calls(array: Array, row: Array, at_once: bool = False) -> list[Call] | None:
    """What `add_to_rows` does, for arrays that stay where they are; None if it cannot be had."""
    kernel = function("add_to_rows", array.size)
    if kernel is None or not array.size or not _fits(array) or not _fits(row) or not _clear_of(array, row):
        return None
    return [_row_call("add_to_rows", kernel, 1, (array,), address(row), at_once=at_once)]


def column_sums(array: Array, out: Array) -> bool:
    """The sum of each column of a matrix; whether it was computed."""
    call = column_sums_call(array, out, at_once=True)
    if call is None:
        return False
    kernel, arguments, _ = call
    kernel(*arguments)
    return True


def column_sums_call(array: Array, out: Array, at_once: bool = False) -> Call | None:
    """What `column_sums` does as one call, for arrays that stay where they are; None if it cannot be had."""
    kernel = function("column_sums", array.size)
    if kernel is None or not array.size or not _fits(array) or not _fits(out) or not _clear_of(out, array):
        return None
    rows, length = array.shape
    arguments = address(array), address(out), length, rows, length
    moves = ((0, array.itemsize), (1, array.itemsize))
    return as_call("column_sums", kernel, arguments, lambda: team.Cut(2, moves, _COLUMNS, 1), array.size, at_once)


def _address(array: Array | None) -> int | None:
    return None if array is None else address(array)


# Optimizers


def _update(name: str, arrays: list[Array], *settings: float) -> bool:
    first = arrays[0]
    kind = _KINDS.get(first.dtype)
    if kind is None or not all([_fits(it, first.dtype) and it.size == first.size for it in arrays]):
        return False
    kernel = function(f"{name}_{kind}", first.size)
    if kernel is None:
        return False
    arguments = (*[address(it) for it in arrays], first.size, *settings)
    work = first.size * len(arrays)
    call, given, _ = as_call(f"{name}_{kind}", kernel, arguments, lambda: _by_element(arrays), work, at_once=True)
    call(*given)
    return True


def sgd(
    written: list[Array],
    gradient: Array,
    rate: float,
    decay: float,
    maximizes: bool,
    momentum: float,
    taken: float,
    nesterov: bool,
    first: bool,
) -> bool:
    """A step of one parameter; whether it was made.

    Args:
        written: the parameter, and the running sum if there is momentum.
        taken: how much of the gradient the running sum takes.
        first: whether that is still empty.
    """
    if len(written) == 1:
        return _update("sgd", [*written, gradient], rate, decay, maximizes)
    settings = (rate, decay, momentum, taken, maximizes, nesterov, first)
    return _update("sgd_momentum", [*written, gradient], *settings)


def adam(
    written: list[Array],
    gradient: Array,
    shrink: float,
    decay: float,
    maximizes: bool,
    betas: tuple[float, float],
    eps: float,
    size: float,
) -> bool:
    """A step of one parameter; whether it was made.

    Args:
        written: the parameter, and the averages of the gradient and of its square.
        shrink: what the parameter is multiplied by beforehand.
        eps, size: as `vmflow.optim.adam` corrects them.
    """
    return _update("adam", [*written, gradient], shrink, decay, maximizes, *betas, eps, size)
