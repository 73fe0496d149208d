"""`autocast`: choose by each op's name the dtype in which the op computes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

import attrs

from vmflow import dtypes
from vmflow.context import MODE, Mode
from vmflow.devices import device as make_device
from vmflow.dtypes import dtype as DType
from vmflow.mode_carrying import carried
from vmflow.ops import copying
from vmflow.tensors import Tensor

from .policy import CLASSES, CastTo

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_LOW: Final = (dtypes.bfloat16, dtypes.float16)
_CASTABLE: Final = (dtypes.bfloat16, dtypes.float16, dtypes.float32)


class autocast:
    """In the block, matrix products and convolutions compute in bfloat16 or float16, and ops such as sums in float32.

    Operands are cast when an op is issued, and gradients come back in the operands' own dtypes.  float64, complex and
    integer tensors are not cast, nor operands of in-place ops or of ops with `out`.  `vmflow.amp.policy` lists the ops
    for each choice.  A backward pass computes in the dtypes of the forward pass, within or outside the block.

    On the CPU autocast can save memory, but no time: arithmetic in bfloat16 and float16 is slower than in float32.

    A context manager, or a decorator for functions, coroutine functions and generators.  Autocast is on for the task or
    thread that enters the block, and for the tasks started within.

    Args:
        device_type: the type of device whose tensors are cast, "cpu" for instance.
        dtype: bfloat16 or float16; by default bfloat16 on the CPU and float16 elsewhere.
        enabled: False to cast nothing in this block, even if an outer `autocast` is on.
        cache_enabled: whether to keep casts of parameters for further uses until the outermost block ends; None is
            True.

    Raises:
        TypeError: if `device_type` is no string, or `dtype` no dtype.
        ValueError: for an unknown `device_type`; if `enabled`, for a `dtype` that is neither bfloat16 nor float16.

    Example:
        >>> with flow.autocast("cpu", dtype=flow.bfloat16):
        ...     (flow.ones(2, 3) @ flow.ones(3, 2)).dtype
        vmflow.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise TypeError(f"autocast: device_type must be a string such as 'cpu', got {device_type!r}")
        self.device_type = make_device(device_type).type
        self.dtype = _default(self.device_type) if dtype is None else dtype
        if not isinstance(self.dtype, DType):
            raise TypeError(f"autocast: dtype must be a dtype such as vmflow.bfloat16, got {dtype!r}")
        if enabled and self.dtype not in _LOW:
            raise ValueError(f"autocast: the lower precision is vmflow.bfloat16 or vmflow.float16, not {dtype!r}")
        self.enabled = enabled
        self.cache_enabled = cache_enabled is not False
        self._before: list[Casts | None] = []

    def __enter__(self) -> autocast:
        self._before.append(_set(self._casts()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before.pop())

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return carried(function, _set, self._casts)

    def _casts(self) -> Casts | None:
        """The `Casts` of the surrounding block, changed for this block's device type; None if no type is left on."""
        around: Casts | None = MODE.get().autocast
        chosen = {} if around is None else dict(around.chosen)
        chosen.pop(self.device_type, None)
        if self.enabled:
            chosen[self.device_type] = self.dtype
        if not chosen:
            return None
        cache: dict[Any, _Kept] = {} if around is None or around.cache is None else around.cache
        return Casts(chosen, cache if self.cache_enabled else None)


@attrs.frozen(eq=False)
class _Kept:
    """A cached cast of the parameter `original`, valid for one `version` of it and one grad mode, machine and scope."""

    original: Tensor
    cast: Tensor
    version: int
    surroundings: tuple[Any, ...]

    def fits(self, original: Tensor, surroundings: tuple[Any, ...]) -> bool:
        return (
            self.original is original
            and self.version == original._blob.storage.version
            and all([mine is theirs for mine, theirs in zip(self.surroundings, surroundings, strict=True)])
        )


@attrs.frozen(eq=False)
class Casts:
    """The state of autocast, the value of `Mode.autocast` where it is on; the methods cast the operands of ops.

    Attributes:
        chosen: bfloat16 or float16 for each type of device whose autocast is on.
        cache: casts of parameters, to be used again; None to cast parameters anew each time.
    """

    chosen: Mapping[str, DType]
    cache: dict[Any, _Kept] | None

    def operands(self, name: str, inputs: tuple[Tensor, ...], mode: Mode) -> tuple[Tensor, ...]:
        """Return `inputs`, those of the op `name`, cast to the dtype that autocast chooses for this op, if any."""
        wanted = self._wanted(name, inputs)
        return inputs if wanted is None else tuple([self._cast(operand, wanted, mode) for operand in inputs])

    def call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of several ops with cast arguments, and without autocast for the ops within the function.

        If nothing is to be cast, as with `out`, call the function as it is.
        """
        arguments = (*args, *kwargs.values())
        wanted = self._wanted(name, tuple([argument for argument in arguments if isinstance(argument, Tensor)]))
        if wanted is None or kwargs.get("out") is not None:
            return function(*args, **kwargs)
        mode = MODE.get()

        def cast(value: Any) -> Any:
            return self._cast(value, wanted, mode) if isinstance(value, Tensor) else value

        operands, options = [cast(arg) for arg in args], {key: cast(option) for key, option in kwargs.items()}
        _set(None)
        try:
            return function(*operands, **options)
        finally:
            _set(self)

    def _wanted(self, name: str, inputs: tuple[Tensor, ...]) -> DType | None:
        """The dtype to cast the operands of the op `name` to; None not to cast them."""
        kind = CLASSES.get(name, CastTo.AS_GIVEN)
        lower = None if kind is CastTo.AS_GIVEN else self._lower(inputs)
        if lower is None or kind is CastTo.LOWER:
            return lower
        return dtypes.float32 if kind is CastTo.FLOAT32 else _widest(inputs)

    def _lower(self, inputs: tuple[Tensor, ...]) -> DType | None:
        return self.chosen.get(inputs[0]._blob.meta.device.type) if inputs else None

    def _cast(self, tensor: Tensor, wanted: DType, mode: Mode) -> Tensor:
        present = tensor._blob.meta.dtype
        if present is wanted or present not in _CASTABLE:
            return tensor
        if self.cache is None or not (tensor.requires_grad and tensor.is_leaf) or wanted not in _LOW:
            return copying.cast(tensor, wanted)
        # A cached cast is used again only under the grad mode, machine and scope that made it: a cast made under
        # no_grad has no gradient, and a cast made in a scope that is cancelled may never be computed.
        surroundings = (mode.grad or None, mode.machine, mode.scope)
        key = (id(tensor), wanted)
        kept = self.cache.get(key)
        if kept is None or not kept.fits(tensor, surroundings):
            kept = self.cache[key] = _Kept(
                tensor, copying.cast(tensor, wanted), tensor._blob.storage.version, surroundings
            )
        return kept.cast


def _widest(inputs: tuple[Tensor, ...]) -> DType | None:
    present = [operand._blob.meta.dtype for operand in inputs if operand._blob.meta.dtype.is_floating_point]
    return functools.reduce(dtypes.promote_types, present) if present else None


def _default(device_type: str) -> DType:
    return dtypes.bfloat16 if device_type == "cpu" else dtypes.float16


def _set(casts: Any) -> Any:
    """Set `Mode.autocast`, and return the former value.

    `ContextVar.reset` would not do: the token fails in another task, and a generator may be resumed in another task.
    """
    mode = MODE.get()
    if mode.autocast is not casts:
        MODE.set(mode.replace(autocast=casts))
    return mode.autocast


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast works on this type of device: True for all types that vmflow knows, False for other names.

    Raises:
        TypeError: if `device_type` is neither a string nor a device.

    Example:
        >>> flow.amp.is_autocast_available("cpu"), flow.amp.is_autocast_available("abacus")
        (True, False)
    """
    try:
        make_device(device_type)
    except (RuntimeError, ValueError):
        return False
    return True


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """Whether autocast is on for this type of device; the innermost `autocast` for the type decides.

    Raises no errors for a string.

    Example:
        >>> with flow.autocast("cpu"):
        ...     flow.is_autocast_enabled("cpu")
        True
    """
    casts: Casts | None = MODE.get().autocast
    return casts is not None and device_type in casts.chosen


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype of autocast here for this type of device; `autocast`'s default where it is off.

    Raises no errors for a string.

    Example:
        >>> flow.get_autocast_dtype("cpu")
        vmflow.bfloat16
    """
    casts: Casts | None = MODE.get().autocast
    return _default(device_type) if casts is None else casts.chosen.get(device_type, _default(device_type))


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorate the `forward` of an `autograd.Function`: record for `custom_bwd` whether autocast was on, and its dtype.

    Args:
        fwd: the method; without `fwd`, the result is a decorator.
        device_type: the type of device whose autocast is meant.
        cast_inputs: if given and autocast is on, cast arguments of float32 or less to this dtype, and run `fwd`, and
            later the decorated `backward`, without autocast.

    Raises no errors itself.

    Example:
        >>> class Square(flow.autograd.Function):
        ...     @staticmethod
        ...     @flow.amp.custom_fwd(device_type="cpu", cast_inputs=flow.float32)
        ...     def forward(ctx, x):
        ...         return x * x
        >>> with flow.autocast("cpu"):
        ...     Square.apply(flow.ones(2, dtype=flow.bfloat16)).dtype
        vmflow.float32
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        on = is_autocast_enabled(device_type)
        ctx._autocast = (on and cast_inputs is None, get_autocast_dtype(device_type))
        if not on or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        given = [_cast_all(arg, device_type, cast_inputs) for arg in args]
        named = {key: _cast_all(kwarg, device_type, cast_inputs) for key, kwarg in kwargs.items()}
        with autocast(device_type, enabled=False):
            return fwd(ctx, *given, **named)

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the `backward` of an `autograd.Function`, to run with autocast as `custom_fwd` recorded in `forward`.

    Args:
        bwd: the method; without `bwd`, the result is a decorator.
        device_type: the type of device whose autocast is meant.

    Raises:
        RuntimeError: when `backward` runs, if `custom_fwd` does not decorate `forward`.
        ValueError: when `backward` runs, for an unknown `device_type`.

    Example:
        >>> class Double(flow.autograd.Function):
        ...     @staticmethod
        ...     @flow.amp.custom_fwd(device_type="cpu")
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     @flow.amp.custom_bwd(device_type="cpu")
        ...     def backward(ctx, gradient):
        ...         return gradient * 2
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any) -> Any:
        recorded = getattr(ctx, "_autocast", None)
        if recorded is None:
            raise RuntimeError("custom_bwd: nothing was recorded about autocast; decorate `forward` by custom_fwd, too")
        enabled, dtype = recorded
        with autocast(device_type, dtype, enabled):
            return bwd(ctx, *args)

    return backward


def _cast_all(value: Any, device_type: str, dtype: DType) -> Any:
    """Return `value`, a tensor or nested lists, tuples and dicts, with its tensors of float32 or less cast to `dtype`.

    Tensors on other types of device than `device_type` are not cast.
    """
    if isinstance(value, Tensor):
        wanted = value.device.type == device_type and value.dtype in _CASTABLE
        return copying.cast(value, dtype) if wanted else value
    if isinstance(value, dict):
        return {key: _cast_all(item, device_type, dtype) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_cast_all(item, device_type, dtype) for item in value])
    return value
