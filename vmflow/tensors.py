"""`Tensor`: a value that is being computed, its storage, and its place in the autograd graph.

The methods that are ops and no more come from `TensorOps`, their table.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import count
from numbers import Number
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import dtypes
from . import interpreter as _interpreter
from .autograd.views import renewed
from .changes import changed
from .devices import device as Device
from .dtypes import dtype as DType
from .errors import BlockingCallWarning
from .instructions import origin
from .instructions.blob import Array, Size, TensorMeta, meta
from .ops import (
    arithmetic,
    comparison,
    complex_parts,
    copying,
    linear_algebra,
)
from .ops import view as views
from .ops.table import broadcast_shapes
from .tensor_fields import CLASS, TensorFields
from .tensor_methods import TensorOps
from .vm.virtual_machine import writer_of
from .vm.wakers import running_loop

if TYPE_CHECKING:
    from .autograd.node import AutogradMeta, Hook, Node

_handles = count()

# Within the class these names are methods.
_bool = bool
_int = int
_float = float


class Tensor(TensorFields, TensorOps):
    """An n-dimensional array of one dtype on one device, perhaps still being computed.

    Every op returns at once.  ``await tensor`` suspends until the value is there and returns the tensor;
    `numpy`, `item` and `tolist` block until it is.  If the op that should have computed it failed, each of these raises
    the op's exception.

    Made by functions such as `vmflow.tensor` and `vmflow.zeros`.  Calling the class is PyTorch's older way:
    ``Tensor(2, 3)`` for uninitialised values of that shape, ``Tensor(data)`` for data, both of the default dtype.
    """

    __slots__ = ("__weakref__",)

    _base: Tensor | None

    # numpy must leave ``array + tensor`` to Tensor.__radd__.
    __array_priority__ = 1000

    def __init__(self, *data: Any) -> None:
        from .ops import creation

        sizes_given = all(isinstance(it, int) for it in data) or (len(data) == 1 and isinstance(data[0], Size))
        made = creation.empty(*data) if sizes_given else creation.tensor(*data, dtype=dtypes.get_default_dtype())
        self._blob, self._lease, self._autograd, self._base = made._blob, made._lease, None, None

    # What it is

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return self._blob.meta.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._blob.meta.dtype

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._blob.meta.device

    @property
    def ndim(self) -> _int:
        """The number of dimensions."""
        return len(self._blob.meta.shape)

    @property
    def itemsize(self) -> _int:
        """Bytes per element."""
        size: _int = self._blob.meta.dtype.itemsize
        return size

    @property
    def nbytes(self) -> _int:
        """Bytes of all elements."""
        count: _int = self._blob.meta.nbytes
        return count

    @property
    def is_cuda(self) -> _bool:
        """Whether on a CUDA device."""
        return self.device.type == "cuda"

    def size(self, dim: _int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        if dim is None:
            return self._blob.meta.shape
        shape = self._blob.meta.shape
        if not -len(shape) <= dim < len(shape):
            raise IndexError(f"size: dim {dim} is out of range for a {len(shape)}-d tensor")
        return shape[dim]

    def dim(self) -> _int:
        """The number of dimensions."""
        return len(self._blob.meta.shape)

    def numel(self) -> _int:
        """The number of elements."""
        count: _int = self._blob.meta.numel
        return count

    nelement = numel
    ndimension = dim

    def element_size(self) -> _int:
        """Bytes per element."""
        size: _int = self._blob.meta.dtype.itemsize
        return size

    def stride(self, dim: _int | None = None) -> Any:
        """The distances in memory, in elements, between neighbours along each dimension, or along one."""
        strides = self._blob.strides
        if strides is None:
            strides = self._blob.meta.strides
        return strides if dim is None else strides[dim]

    def data_ptr(self) -> _int:
        """The address of the first element on the host; waits until the memory is there.  0 if it has no elements.

        Raises:
            RuntimeError: for tensors that lie on no host, and those of a graph that is being built.
        """
        if self.device.type != "cpu":
            raise RuntimeError(f"data_ptr: a tensor on {self.device} has no address on the host")
        if self.is_lazy:
            raise RuntimeError("data_ptr: a tensor of a graph that is being built has no memory yet")
        array = self._array()
        return 0 if self.numel() == 0 else array.__array_interface__["data"][0]

    def storage_offset(self) -> _int:
        """Where in the storage the first element lies, in elements."""
        return self._blob.offset

    def is_contiguous(self) -> _bool:
        """Whether the elements lie in order without gaps."""
        blob = self._blob
        if blob.strides is None or blob.meta.numel == 0:
            return True
        return all(
            have == want or size == 1
            for have, want, size in zip(blob.strides, blob.meta.strides, blob.meta.shape, strict=True)
        )

    def is_floating_point(self) -> _bool:
        """Whether the dtype is a floating-point one."""
        return self.dtype.is_floating_point

    def is_complex(self) -> _bool:
        """Whether the dtype is a complex one."""
        return self.dtype.is_complex

    @property
    def is_lazy(self) -> _bool:
        """Whether it stands for a value in a graph that is being built."""
        lazy: _bool = self._blob.storage.lazy
        return lazy

    @property
    def is_local(self) -> _bool:
        """Whether it lives on this rank alone."""
        return True

    @property
    def is_global(self) -> _bool:
        """Whether it spans ranks."""
        return False

    # Waiting for the value

    def is_ready(self) -> _bool:
        """Whether the value, or the error instead of it, is there, so that reading does not block."""
        return self._blob.storage.settled()

    def __await__(self) -> Generator[Any, None, Tensor]:
        """Suspend until the value is there.

        Raises:
            Exception: that of the op that failed to compute it.
        """
        storage = self._blob.storage
        if not storage.settled():
            pending = writer_of(storage)
            if pending is not None:
                machine, writer = pending
                yield from machine.wait_async(writer)
        if storage.failure is not None:
            storage.failure.throw()
        return self

    def _array(self) -> Array:
        """The values, sharing memory with the storage; blocks until they are there.

        Of a tensor on an accelerator it is a copy.
        """
        found = _interpreter.settled_array(self)
        if found is not None:
            return found
        if not self._blob.storage.settled() and running_loop() is not None:
            _warn_of_blocking()
        tensor = self
        if self.device.type != "cpu":
            # Once the value is there, this takes no longer than reading it would.
            with _interpreter.eagerly():  # which may be asked for while a graph is built
                tensor = copying.transfer(self.detach(), Device("cpu"))
        storage = tensor._blob.storage
        if not storage.settled():
            pending = writer_of(storage)
            if pending is not None:
                machine, writer = pending
                machine.wait(writer)
        if storage.failure is not None:
            storage.failure.throw()
        machine = storage.machine
        if machine is not None and machine.races is not None:
            machine.races.host_reads(storage.dependence)
        return tensor._blob.array()

    def numpy(self, *, force: _bool = False) -> Array:
        """A copy as a numpy array, on the host and without history.

        A copy and no view, since the memory may be written or reused by instructions still to run.  So a tensor that
        requires a gradient is taken as well.

        Args:
            force: makes no difference; for programs that give it.
        """
        return self._array().copy()

    def _item_in_time(self) -> Any:
        if self._blob.meta.numel != 1:
            raise ValueError(f"item: the tensor of shape {list(self.shape)} has {self.numel()} elements, not one")
        array = self._array()
        value = array.item()
        # ml_dtypes' scalars are not Python's.
        return float(value) if self.dtype is dtypes.bfloat16 else value

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        array = self._array()
        return (array.astype(np.float32) if self.dtype is dtypes.bfloat16 else array).tolist()

    def __array__(self, dtype: Any = None, copy: _bool | None = None) -> Array:
        """For numpy, whose functions take tensors and give arrays: the memory itself where possible.

        Waits for the value.  What is shared is ordered with ops issued before and not with those issued later; see
        `vmflow.exchange`.  `numpy` gives a copy.

        Args:
            dtype: of numpy, of the array; None for the tensor's.
            copy: True to copy in any case, False never to copy, None as necessary.

        Raises:
            RuntimeError: if the tensor requires a gradient.
            ValueError: if `copy` is False and a copy is needed.
        """
        from .exchange import as_array

        return as_array(self, dtype, copy)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory for numpy, on the CPU; waits as `__array__` does.

        Raises:
            AttributeError: on another device, and for bfloat16.
            RuntimeError: if the tensor requires a gradient.
        """
        from .exchange import array_interface

        return array_interface(self)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        """numpy's functions on tensors give arrays, as its ufuncs do; see `__array__`."""
        from .exchange import call_numpy

        return call_numpy(func, args, kwargs)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Of tensors on CUDA only.

        Raises:
            AttributeError: on any other device.
        """
        raise AttributeError(f"a tensor on {self.device} has no __cuda_array_interface__")

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[_int, _int] | None = None,
        dl_device: tuple[_int, _int] | None = None,
        copy: _bool | None = None,
    ) -> Any:
        """A DLPack capsule over the memory, for one consumer; waits as `__array__` does.

        Args:
            stream: None; the tensor is complete when this returns.
            max_version: the newest version of DLPack that the consumer understands; None for one before versions.
            dl_device: ``(1, 0)`` for the CPU, to which tensors on other devices are copied; None for where it is.
            copy: True to copy in any case, False never to copy, None as necessary.

        Raises:
            BufferError: if the tensor requires a gradient, or cannot be exported so.
        """
        from .exchange import to_capsule

        return to_capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[_int, _int]:
        """DLPack's numbers for the device: ``(1, 0)`` on the CPU."""
        from .exchange import dlpack_device

        return dlpack_device(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`vmflow.array_api`, for libraries that follow the Python array API standard.

        Args:
            api_version: None or one that is implemented, "2021.12" to "2024.12".

        Raises:
            ValueError: for another version.
        """
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"this is version 2024.12 of the array API standard, not {api_version!r}")
        from . import array_api

        return array_api

    def to_device(self, device: Device | str, /, *, stream: None = None) -> Tensor:
        """On another device; the array API standard's name of `to`.

        Raises:
            ValueError: if a stream is given; the machine orders copies by itself.
        """
        if stream is not None:
            raise ValueError(f"to_device: stream must be None, not {stream!r}")
        return self.to(device)

    def __bool__(self) -> _bool:
        if self.numel() != 1:
            raise RuntimeError(
                f"the truth value of a tensor with {self.numel()} elements is ambiguous; use any() or all()"
            )
        return bool(self.item())

    def __float__(self) -> _float:
        return float(self.item())

    def __int__(self) -> _int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> _int:
        if self.dtype.category > dtypes.INTEGER:
            raise TypeError(f"only integer tensors of one element can be used as an index, not {self.dtype.name}")
        return int(self.item())

    def __len__(self) -> _int:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return iter(self.unbind(0))

    def __contains__(self, element: Any) -> _bool:
        return bool((self == element).any().item())

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        from .representation import represent

        return represent(self)

    def __dir__(self) -> list[str]:
        private = [name for name in object.__dir__(self) if name.startswith("_") and not name.endswith("__")]
        return sorted(set(object.__dir__(self)).difference(private))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.shape else object.__format__(self, spec)

    # Autograd

    @property
    def requires_grad(self) -> _bool:
        """Whether gradients flow into it."""
        if self._base is not None:
            return renewed(self)
        return self._autograd is not None and self._autograd.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: _bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: _bool = True) -> Tensor:
        """Set whether gradients flow into this leaf.

        Raises:
            RuntimeError: for a dtype without gradients, or for turning it off on a non-leaf.
        """
        if requires_grad and self.dtype.category < dtypes.FLOATING:
            raise RuntimeError(f"only floating-point and complex tensors can require gradients, not {self.dtype.name}")
        if not requires_grad and not self.is_leaf:
            raise RuntimeError("requires_grad can be turned off on leaves only; use .detach()")
        if requires_grad != self.requires_grad:
            if self._autograd is not None:  # a tensor that is just being made can be part of no graph yet
                changed()
            self._autograd_meta().requires_grad = requires_grad
        return self

    def _autograd_meta(self) -> AutogradMeta:
        if self._base is not None:
            renewed(self)
        found = self._autograd
        if found is None:
            from .autograd.node import AutogradMeta

            found = self._autograd = AutogradMeta(False)
        return found

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient."""
        return None if self._autograd is None else self._autograd.grad

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            if not isinstance(gradient, Tensor):
                raise TypeError(f"grad must be a tensor or None, not {type(gradient).__name__}")
            if gradient.shape != self.shape or gradient.dtype is not self.dtype or gradient.device is not self.device:
                raise RuntimeError(
                    f"a gradient for {self._blob.meta!r} on {self.device} must be the same, "
                    f"not {gradient._blob.meta!r} on {gradient.device}"
                )
        self._autograd_meta().grad = gradient

    @property
    def grad_fn(self) -> Node | None:
        """The node that made it, None for a leaf."""
        if self._base is not None:
            renewed(self)
        return None if self._autograd is None else self._autograd.node

    @property
    def is_leaf(self) -> _bool:
        """Whether no recorded op made it."""
        return self.grad_fn is None

    def backward(
        self, gradient: Tensor | None = None, retain_graph: _bool | None = None, create_graph: _bool = False
    ) -> None:
        """Accumulate the gradient of this tensor into the leaves it was made from.

        Args:
            gradient: of the final value by this tensor; may be left out for a single element.
            retain_graph: whether to allow another pass; by default as `create_graph`.
            create_graph: whether the pass itself is recorded, for higher derivatives.

        Raises:
            RuntimeError: if there is nothing to differentiate, or `gradient` is needed or does not fit.
        """
        from .autograd import backward

        backward(self, gradient, retain_graph, create_graph)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf in `grad`."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad: the tensor does not require a gradient")
        autograd = self._autograd_meta()
        if autograd.node is not None:
            autograd.retain()

    def register_hook(self, hook: Hook) -> Handle:
        """Call `hook` with the gradient whenever it is computed; a tensor it returns replaces the gradient."""
        if not self.requires_grad:
            raise RuntimeError("register_hook: the tensor does not require a gradient")
        autograd = self._autograd_meta()
        if autograd.hooks is None:
            autograd.hooks = {}
        autograd.watch()
        return Handle(autograd.hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook` with this leaf whenever its gradient has been accumulated."""
        if not (self.requires_grad and self.is_leaf):
            raise RuntimeError("register_post_accumulate_grad_hook: only for leaves that require a gradient")
        autograd = self._autograd_meta()
        if autograd.after is None:
            autograd.after = {}
        return Handle(autograd.after, lambda: hook(self))

    def detach(self) -> Tensor:
        """The same memory without history."""
        return _interpreter.new_tensor(self._blob, self._lease)

    def detach_(self) -> Tensor:
        """Forget the history; a gradient in `grad` stays."""
        before = self._autograd
        self._autograd = self._base = None
        if before is not None and before.grad is not None:
            self._autograd_meta().grad = before.grad
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history; assigning gives this tensor another memory."""
        return self.detach()

    @data.setter
    def data(self, other: Tensor) -> None:
        if not isinstance(other, Tensor):
            raise TypeError(f"data must be a tensor, not {type(other).__name__}")
        self._blob, self._lease, self._base = other._blob, other._lease, None

    # Conversions

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """In another dtype or on another device: ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``.

        Returns the tensor itself if nothing changes, unless ``copy=True``.
        """
        dtype, device, copy = parse_to(args, kwargs)
        result = self
        if device is not None and device is not self.device:
            device.require()
            if self.device.type == "meta":
                raise RuntimeError(f"to: a tensor on the meta device holds no data to copy to {device}")
            result = copying.transfer(result, device)
        if dtype is not None and dtype is not self.dtype:
            return copying.cast(result, dtype)
        return copying.clone(self) if copy and result is self else result

    def cpu(self) -> Tensor:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: _int | None = None) -> Tensor:
        """On a CUDA device."""
        return self.to(Device("cuda", device))

    def type(self, dtype: DType | None = None) -> Any:
        """In another dtype, or without one the name of this tensor's type, such as ``vmflow.FloatTensor``."""
        return _TYPE_NAMES[self.dtype] if dtype is None else self.to(dtype)

    def type_as(self, other: Tensor) -> Tensor:
        """In the dtype of `other`."""
        return self.to(other.dtype)

    def bool(self) -> Tensor:
        """As bool."""
        return self.to(dtypes.bool_)

    def int(self) -> Tensor:
        """As int32."""
        return self.to(dtypes.int32)

    def long(self) -> Tensor:
        """As int64."""
        return self.to(dtypes.int64)

    def half(self) -> Tensor:
        """As float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Tensor:
        """As bfloat16."""
        return self.to(dtypes.bfloat16)

    def float(self) -> Tensor:
        """As float32."""
        return self.to(dtypes.float32)

    def double(self) -> Tensor:
        """As float64."""
        return self.to(dtypes.float64)

    def new_zeros(
        self,
        *size: Any,
        dtype: DType | None = None,
        device: Device | str | None = None,
        requires_grad: _bool = False,
        pin_memory: _bool = False,
        **named: Any,
    ) -> Tensor:
        """Zeros of this tensor's dtype, on its device, unless another is given."""
        return _leaf(copying.zeros_of(self._new_meta("new_zeros", size, dtype, device, named)), requires_grad)

    def new_ones(
        self,
        *size: Any,
        dtype: DType | None = None,
        device: Device | str | None = None,
        requires_grad: _bool = False,
        pin_memory: _bool = False,
        **named: Any,
    ) -> Tensor:
        """Ones of this tensor's dtype, on its device, unless another is given."""
        return _leaf(copying.ones_of(self._new_meta("new_ones", size, dtype, device, named)), requires_grad)

    def new_full(
        self,
        size: tuple[Any, ...],
        fill_value: Any,
        dtype: DType | None = None,
        device: Device | str | None = None,
        requires_grad: _bool = False,
        pin_memory: _bool = False,
    ) -> Tensor:
        """`fill_value` in this tensor's dtype, on its device, unless another is given."""
        return _leaf(copying.full_of(self._new_meta("new_full", (size,), dtype, device), fill_value), requires_grad)

    def new_empty(
        self,
        *size: Any,
        dtype: DType | None = None,
        device: Device | str | None = None,
        requires_grad: _bool = False,
        pin_memory: _bool = False,
        **named: Any,
    ) -> Tensor:
        """Whatever was in memory, as this tensor's dtype, on its device, unless another is given."""
        from .ops.creation import empty

        made = self._new_meta("new_empty", size, dtype, device, named)
        return empty(tuple(made.shape), dtype=made.dtype, device=made.device, requires_grad=requires_grad)

    def new_tensor(
        self,
        data: Any,
        *,
        dtype: DType | None = None,
        device: Device | str | None = None,
        requires_grad: _bool = False,
        pin_memory: _bool = False,
    ) -> Tensor:
        """A copy of `data` in this tensor's dtype, on its device, unless another is given."""
        from .ops.creation import tensor

        chosen = self.device if device is None else Device(device)
        return tensor(data, dtype=dtype or self.dtype, device=chosen, requires_grad=requires_grad)

    def _new_meta(
        self,
        name: str,
        size: tuple[Any, ...],
        dtype: DType | None,
        device: Device | str | None,
        named: dict[str, Any] | None = None,
    ) -> TensorMeta:
        shape = views.lengths(name, size, named)
        chosen = self.device
        if device is not None:
            chosen = Device(device)
            chosen.require()
        return meta(shape, dtype or self.dtype, chosen)

    def sum_to_size(self, *size: Any) -> Tensor:
        """Summed over the dimensions along which a tensor of these sizes would have to be broadcast to this one.

        Raises:
            ValueError: if it does not broadcast.
        """
        wanted = views.sizes("sum_to_size", size)
        shape = tuple(self.shape)
        if len(wanted) > len(shape) or broadcast_shapes("sum_to_size", shape, wanted) != shape:
            raise ValueError(f"sum_to_size: a tensor of shape {list(wanted)} does not broadcast to {list(shape)}")
        return copying.conform(self, meta(wanted, self.dtype, self.device))

    def is_nonzero(self) -> _bool:
        """Whether the one element is not zero; waits for it."""
        from .ops import inquiry

        return inquiry.is_nonzero(self)

    def __copy__(self) -> Tensor:
        """A leaf that shares the memory, of the same class and with the same attributes; without gradient."""
        made: Tensor = TensorFields.__new__(type(self))
        made._blob, made._lease, made._autograd, made._base = self._blob, self._lease, None, None
        if hasattr(self, "__dict__"):
            made.__dict__.update(self.__dict__)
        return made.requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        """A leaf with memory of its own; that of the result of an op is detached and requires no gradient."""
        copy = self.detach().clone()
        if self.is_leaf:
            copy.requires_grad_(self.requires_grad)
            if self.grad is not None:
                copy.grad = self.grad.__deepcopy__(memo)
        memo[id(self)] = copy
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        from .io import rebuild_tensor

        return rebuild_tensor, (type(self), self.detach().numpy(), self.requires_grad, self.device)

    # Operators and properties that are more than a function

    def __eq__(self, other: object) -> Any:
        return comparison.eq(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return comparison.ne(self, cast(Any, other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __pos__(self) -> Tensor:
        return self

    __rdiv__ = TensorFields.__rtruediv__

    def __rlshift__(self, other: Any) -> Tensor:
        return comparison.bitwise_left_shift(other, self)

    def __rrshift__(self, other: Any) -> Tensor:
        return comparison.bitwise_right_shift(other, self)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return arithmetic.floor_divide(other, self)

    def __rmod__(self, other: Any) -> Tensor:
        return arithmetic.remainder(other, self)

    def __rmatmul__(self, other: Any) -> Tensor:
        return linear_algebra.matmul(other, self)

    def __rpow__(self, other: Any) -> Tensor:
        return arithmetic.pow(other, self)

    @property
    def real(self) -> Tensor:
        """The real part, a view, to which can be assigned; of a real tensor the tensor itself."""
        return complex_parts.real(self)

    @real.setter
    def real(self, value: Tensor | _float) -> None:
        copying.copy_(complex_parts.real(self), value)

    @property
    def imag(self) -> Tensor:
        """The imaginary part of a complex tensor, a view, to which can be assigned."""
        return complex_parts.imag(self)

    @imag.setter
    def imag(self, value: Tensor | _float) -> None:
        copying.copy_(complex_parts.imag(self), value)

    @property
    def T(self) -> Tensor:
        """All dimensions reversed."""
        return views.reversed_dims(self)

    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged."""
        return views.transpose(self, -1, -2)

    @property
    def mH(self) -> Tensor:
        """The last two dimensions exchanged, and conjugated."""
        return arithmetic.conj(self.mT)

    @property
    def H(self) -> Tensor:
        """The conjugated transpose of a matrix."""
        if self.ndim not in (0, 2):
            raise RuntimeError(f"H: expected a matrix, got shape {list(self.shape)}; use mH for batches of matrices")
        return arithmetic.conj(views.t(self))


CLASS.append(Tensor)

# An array as well, of which the op says what to do: that a tensor differs from every array would be silently wrong.
_OPERANDS = (Tensor, Number, np.generic, np.ndarray)

_TYPE_NAMES = {
    dtypes.bool_: "vmflow.BoolTensor",
    dtypes.uint8: "vmflow.ByteTensor",
    dtypes.int8: "vmflow.CharTensor",
    dtypes.int16: "vmflow.ShortTensor",
    dtypes.int32: "vmflow.IntTensor",
    dtypes.int64: "vmflow.LongTensor",
    dtypes.float16: "vmflow.HalfTensor",
    dtypes.bfloat16: "vmflow.BFloat16Tensor",
    dtypes.float32: "vmflow.FloatTensor",
    dtypes.float64: "vmflow.DoubleTensor",
    dtypes.complex64: "vmflow.ComplexFloatTensor",
    dtypes.complex128: "vmflow.ComplexDoubleTensor",
}


# For graphs


def settle(tensor: Tensor) -> None:
    """Block until the value is there, as reading it does."""
    tensor._array()


def watch_requires_grad(tensor: Tensor) -> None:
    """See to it that every change of its `requires_grad` counts as one; see `changes.changed`."""
    tensor._autograd_meta()


def _leaf(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.requires_grad_() if requires_grad else tensor


class Handle:
    """Removes a hook again: `remove`, or leaving a ``with`` block."""

    __slots__ = ("_hooks", "_number")

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        self._hooks = hooks
        self._number = next(_handles)
        hooks[self._number] = hook

    @property
    def number(self) -> int:
        """The hook's key among the hooks, given to no other."""
        return self._number

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[DType | None, Device | None, bool]:
    """The dtype, device and `copy` that the arguments of `to` mean.

    Raises:
        TypeError: for anything else.
    """
    dtype: DType | None = kwargs.pop("dtype", None)
    device: Any = kwargs.pop("device", None)
    copy = bool(kwargs.pop("copy", False))
    kwargs.pop("non_blocking", None)  # nothing here ever blocks
    if kwargs:
        raise TypeError(f"to: unexpected arguments {', '.join(kwargs)}")
    for argument in args:
        if isinstance(argument, DType):
            dtype = argument
        elif isinstance(argument, Tensor):
            dtype, device = argument.dtype, argument.device
        elif isinstance(argument, (str, Device)):
            device = argument
        elif isinstance(argument, bool):
            continue  # PyTorch's positional non_blocking
        elif argument is not None:
            raise TypeError(f"to: expected a dtype, a device or a tensor, got {argument!r}")
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"to: dtype must be a vmflow dtype such as vmflow.float32, not {dtype!r}")
    return dtype, None if device is None else Device(device), copy


_warned: set[tuple[str, int]] = set()


def _warn_of_blocking() -> None:
    """Warn once for each line that blocks a running loop; not in notebooks, where every cell runs on one."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        return
    place = origin.describe(*origin.capture())
    name, _, rest = place.rpartition(":")
    line = int(rest.split(",")[0]) if name else 0
    if (name, line) in _warned:
        return
    _warned.add((name, line))
    warnings.warn_explicit(
        "blocking read of a tensor that is not ready, on the thread of a running event loop; "
        "use `await tensor` before reading it",
        BlockingCallWarning,
        name,
        line,
    )
