"""`Parameter` and `Buffer`: tensors that a module registers when they are assigned to its attributes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Size
from vmflow.ops.creation import creation
from vmflow.tensors import Tensor

Copied = TypeVar("Copied", bound=Tensor)


class Parameter(Tensor):
    """A tensor that is trained.  The parameter shares memory with `data`, and is a leaf of autograd.

    Unlike a plain tensor, a parameter may be given further attributes.

    Args:
        data: the values, of any shape; None for an empty tensor.
        requires_grad: whether the backward pass computes its gradient.

    Raises:
        TypeError: if `data` is no tensor, or `requires_grad` no bool.
        RuntimeError: if a gradient is required of a dtype that has none.

    Example:
        >>> flow.nn.Parameter(flow.tensor([1.0, 2.0]))
        Parameter containing:
        tensor([1., 2.], requires_grad=True)
    """

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        _share("Parameter", self, data)
        self.requires_grad_(requires_grad)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Parameter:
        return _completed(type(self)(self.detach().clone(), self.requires_grad), self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), self.__dict__ or None)


def new_parameter(shape: tuple[int, ...], device: Device | str | None, dtype: DType | None) -> Parameter:
    """Make a parameter with uninitialised memory, which a layer's `reset_parameters` fills afterwards."""
    return Parameter(creation.empty(shape, device=device, dtype=dtype))


class Buffer(Tensor):
    """A tensor that belongs to a module's state and is not trained.

    Args:
        data: the values, of any shape, whose memory is shared; None for an empty tensor.
        persistent: whether the buffer is part of the module's `state_dict`.

    Raises:
        TypeError: if `data` is no tensor.

    Example:
        >>> module = flow.nn.Module()
        >>> module.steps = flow.nn.Buffer(flow.tensor(0))
        >>> module.state_dict()["steps"]
        tensor(0)
    """

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        _share("Buffer", self, data)
        self.persistent = persistent

    def __deepcopy__(self, memo: dict[Any, Any]) -> Buffer:
        return _completed(type(self)(self.detach().clone(), persistent=self.persistent), self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_buffer, (type(self), self.detach().numpy(), self.device), self.__dict__


class UninitializedTensorMixin(Tensor):
    """The base of parameters and buffers of lazy modules that have no shape before `materialize`."""

    _becomes: ClassVar[type[Tensor]]

    @property
    def shape(self) -> Size:
        """The shape, which is unknown before `materialize`: reading it is an error.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"{type(self).__name__}: there is no shape before its module has seen an input; call the module once, or "
            "materialize(shape)"
        )

    def materialize(self, shape: Sequence[int], device: Device | str | None = None, dtype: DType | None = None) -> None:
        """Allocate uninitialised memory for a shape, and turn this tensor into a `Parameter` or `Buffer`.

        Args:
            shape: the shape.
            device, dtype: the device and dtype, by default those of the constructor, or of a later `to`.
        """
        kind = self.dtype if dtype is None else dtype
        values = creation.empty(tuple(shape), device=self.device if device is None else device, dtype=kind)
        self.data = values
        self.__class__ = self._becomes  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A `Parameter` of a lazy module that has no shape yet; see `LazyModuleMixin`.

    Its module can move and cast it; an optimizer takes it, and updates it once `materialize` made it a `Parameter`.

    Args:
        requires_grad: whether the backward pass will compute its gradient.
        device, dtype: the device and dtype of the future values.

    Raises:
        TypeError, ValueError: for objects that are no dtype or no device.
        RuntimeError: if a gradient is required of a dtype that has none; when `shape` is read.

    Example:
        >>> weight = flow.nn.UninitializedParameter()
        >>> weight.materialize((2, 3))
        >>> type(weight).__name__, weight.shape
        ('Parameter', vmflow.Size([2, 3]))
    """

    _becomes = Parameter

    def __init__(
        self, requires_grad: bool = True, device: Device | str | None = None, dtype: DType | None = None
    ) -> None:
        super().__init__(creation.empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo: dict[Any, Any]) -> UninitializedParameter:
        return _completed(type(self)(self.requires_grad, self.device, self.dtype), self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype), self.__dict__ or None


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A `Buffer` of a lazy module that has no shape yet; see `LazyModuleMixin`.

    Args:
        requires_grad: must be False.
        device, dtype: the device and dtype of the future values.
        persistent: whether the buffer is part of the module's `state_dict`.

    Raises:
        ValueError: if a gradient is required, or for an unknown name of a device.
        TypeError: for an object that is no dtype or no device.
        RuntimeError: when `shape` is read.

    Example:
        >>> mean = flow.nn.UninitializedBuffer()
        >>> mean.materialize((2,))
        >>> mean.shape
        vmflow.Size([2])
    """

    _becomes = Buffer

    def __init__(
        self,
        requires_grad: bool = False,
        device: Device | str | None = None,
        dtype: DType | None = None,
        *,
        persistent: bool = True,
    ) -> None:
        if requires_grad:
            raise ValueError("UninitializedBuffer: buffers are not trained; make an UninitializedParameter instead")
        super().__init__(creation.empty(0, device=device, dtype=dtype), persistent=persistent)

    def __deepcopy__(self, memo: dict[Any, Any]) -> UninitializedBuffer:
        copied = type(self)(False, self.device, self.dtype, persistent=self.persistent)
        return _completed(copied, self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (False, self.device, self.dtype), self.__dict__


def is_lazy(tensor: object) -> bool:
    """Whether an object is an uninitialized parameter or buffer, which has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)


def _rebuild_buffer(kind: type[Buffer], array: Any, device: Device) -> Buffer:
    return kind(creation.from_numpy(array).to(device))


def _share(name: str, tensor: Tensor, data: Tensor | None) -> None:
    """For constructors of `Parameter` and `Buffer`: let `tensor` share the memory of `data`, or be empty if None.

    The tensor has no autograd history.  Raises TypeError, with `name`, for other `data`.
    """
    if data is None:
        data = creation.empty(0)
    elif not isinstance(data, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(data).__name__}; make one with vmflow.tensor(...)")
    tensor._blob, tensor._lease, tensor._autograd, tensor._base = data._blob, data._lease, None, None


def _completed(copied: Copied, source: Copied, memo: dict[Any, Any]) -> Copied:
    """Finish `copied`, which has the values of `source` already: copy gradient and attributes, too; return `copied`."""
    memo[id(source)] = copied
    if source.grad is not None:
        copied.grad = copy.deepcopy(source.grad, memo)
    copied.__dict__.update(copy.deepcopy(source.__dict__, memo))
    return copied
