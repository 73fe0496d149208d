"""`Tensor`: a value that may still be computed, its storage, and its node in the autograd graph.

The methods that need ops are declared next to the ops, see `vmflow.ops.declaration`, and added to the class later.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vmflow.arguments import is_integer

from . import dtypes, interpreter as _interpreter
from .autograd.node import AutogradMeta
from .autograd.views import renewed
from .changes import changed
from .context import MODE
from .devices import device as Device
from .dtypes import dtype as DType
from .errors import BlockingCallWarning
from .handles import Handle as Handle
from .instructions import origin
from .instructions.blob import Array, Blob, Size, Storage, meta
from .memory_formats import contiguous_format, fits_rank, lies_in, memory_format, order_of, preserve_format
from .tensor_fields import CLASS, new_tensor
from .tensor_operators import TensorOperators
from .vm.virtual_machine import writer_of
from .vm.wakers import running_loop

if TYPE_CHECKING:
    from .autograd.node import Hook, Node
    from .tensor_methods import TensorMethods
else:
    TensorMethods = TensorOperators

# Inside the class, the names bool, int and float are methods, so that annotations need other names for the types.
_bool = bool
_int = int
_float = float


class Tensor(TensorMethods):
    """An n-dimensional array of one dtype on one device, whose value may still be computed.

    An op may return before its result is computed.  ``await tensor`` suspends until the value is computed and returns
    the tensor; `numpy`, `item` and `tolist` block until then.  If the op that should have computed the value failed,
    all of them raise the op's exception.

    Functions such as `vmflow.tensor` and `vmflow.zeros` make tensors.  Calling the class is PyTorch's older way:
    ``Tensor(2, 3)`` for uninitialised values of that shape, ``Tensor(data)`` for data, both of the default dtype.

    Raises:
        TypeError, ValueError: as `vmflow.tensor`, for data that make no tensor.

    Example:
        >>> flow.Tensor([1, 2]) + 1
        tensor([2., 3.])
    """

    __slots__ = ("__weakref__",)

    _base: Tensor | None

    # A priority above ndarray's makes numpy leave ``array + tensor`` to Tensor.__radd__.
    __array_priority__ = 1000

    # Shape, dtype, device and memory

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions.

        Example:
            >>> flow.zeros(2, 3).shape
            vmflow.Size([2, 3])
        """
        return self._blob.meta.shape

    @property
    def dtype(self) -> DType:
        """The element type.

        Example:
            >>> flow.tensor([1, 2]).dtype
            vmflow.int64
        """
        return self._blob.meta.dtype

    @property
    def device(self) -> Device:
        """The device of the memory.

        Example:
            >>> flow.zeros(2).device
            device(type='cpu', index=0)
        """
        return self._blob.meta.device

    @property
    def ndim(self) -> _int:
        """The number of dimensions.

        Example:
            >>> flow.zeros(2, 3).ndim
            2
        """
        return len(self._blob.meta.shape)

    @property
    def itemsize(self) -> _int:
        """Bytes per element.

        Example:
            >>> flow.zeros(2).itemsize
            4
        """
        size: _int = self._blob.meta.dtype.itemsize
        return size

    @property
    def nbytes(self) -> _int:
        """Bytes of all elements.

        Example:
            >>> flow.zeros(2, 3).nbytes
            24
        """
        count: _int = self._blob.meta.nbytes
        return count

    @property
    def is_cuda(self) -> _bool:
        """Whether the tensor is on a CUDA device.

        Example:
            >>> flow.zeros(2).is_cuda
            False
        """
        return self.device.type == "cuda"

    @property
    def is_meta(self) -> _bool:
        """Whether the tensor is on the meta device, without data.

        Example:
            >>> flow.zeros(2, device="meta").is_meta
            True
        """
        return self.device.type == "meta"

    def size(self, dim: _int | None = None) -> Any:
        """The shape, or the size of the dimension `dim` if given.

        Raises:
            TypeError: if `dim` is no integer.
            IndexError: if there is no such dimension.

        Example:
            >>> flow.zeros(2, 3).size(-1)
            3
        """
        if dim is None:
            return self._blob.meta.shape
        return _of_dim("size", self._blob.meta.shape, dim)

    def dim(self) -> _int:
        """The number of dimensions.  Raises no errors.

        Example:
            >>> flow.zeros(2, 3).dim()
            2
        """
        return len(self._blob.meta.shape)

    def numel(self) -> _int:
        """The number of elements.  Raises no errors.

        Example:
            >>> flow.zeros(2, 3).numel()
            6
        """
        count: _int = self._blob.meta.numel
        return count

    nelement = numel
    ndimension = dim

    def element_size(self) -> _int:
        """Bytes per element.  Raises no errors.

        Example:
            >>> flow.zeros(2).element_size()
            4
        """
        size: _int = self._blob.meta.dtype.itemsize
        return size

    def stride(self, dim: _int | None = None) -> Any:
        """The distances in memory, in elements, between neighbours along each dimension, or along `dim` if given.

        Raises:
            TypeError: if `dim` is no integer.
            IndexError: if there is no such dimension.

        Example:
            >>> flow.zeros(2, 3).stride()
            (3, 1)
        """
        strides = self._blob.strides
        if strides is None:
            strides = self._blob.meta.strides
        return strides if dim is None else _of_dim("stride", strides, dim)

    def data_ptr(self) -> _int:
        """The address of the tensor's first element, 0 if there are no elements; on the CPU this waits for the value.

        On a CUDA device, it waits until the work that computes the value was launched, ordered on the current stream;
        see `cuda.Stream.cuda_stream`.

        Raises:
            RuntimeError: for tensors on devices without addresses, global tensors, and those of a graph that is being
                built.
            Exception: that of the op that failed to compute the value.

        Example:
            >>> x = flow.zeros(2, 3)
            >>> x[1].data_ptr() - x.data_ptr()
            12
        """
        if self.device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"data_ptr: a tensor on {self.device} has no address")
        if self.is_lazy:
            raise RuntimeError("data_ptr: a tensor of a graph that is being built has no memory yet")
        if self._blob.meta.spread is not None:
            raise RuntimeError("data_ptr: a global tensor is in the memory of several ranks; see to_local()")
        if self.device.type == "cuda":
            from .cuda.exchange import address_of  # imported here, as it imports the code of CUDA devices

            return address_of(self)
        array = self._array()
        return 0 if self.numel() == 0 else array.__array_interface__["data"][0]

    def storage_offset(self) -> _int:
        """The offset of the tensor's first element in its storage, in elements; 0 for a global tensor.

        Raises no errors.

        Example:
            >>> flow.zeros(2, 3)[1].storage_offset()
            3
        """
        return 0 if self.is_global else self._blob.offset

    def is_contiguous(self, memory_format: memory_format = contiguous_format) -> _bool:
        """Whether the elements are in memory without gaps, in the order of a memory format, by default row-major.

        Raises:
            TypeError: if `memory_format` is no memory format.

        Example:
            >>> flow.zeros(2, 3).t().is_contiguous()
            False
        """
        blob = self._blob
        if memory_format is not contiguous_format:
            return _lies_in_format(self, memory_format)
        if blob.strides is None or blob.meta.numel == 0:
            return True
        return all(
            have == want or size == 1
            for have, want, size in zip(blob.strides, blob.meta.strides, blob.meta.shape, strict=True)
        )

    def is_floating_point(self) -> _bool:
        """Whether the dtype is a floating-point one.  Raises no errors.

        Example:
            >>> flow.tensor([1, 2]).is_floating_point()
            False
        """
        return self.dtype.is_floating_point

    def is_complex(self) -> _bool:
        """Whether the dtype is a complex one.  Raises no errors.

        Example:
            >>> flow.tensor([1j]).is_complex()
            True
        """
        return self.dtype.is_complex

    @property
    def is_lazy(self) -> _bool:
        """Whether the tensor is a symbol for a value in a graph that is being built, and has no value itself.

        Example:
            >>> flow.zeros(2).is_lazy
            False
        """
        lazy: _bool = self._blob.storage.lazy
        return lazy

    @property
    def is_local(self) -> _bool:
        """Whether the tensor lies on this rank alone; False for global tensors, which are spread over ranks.

        Example:
            >>> flow.zeros(2).is_local
            True
        """
        return not self.is_global

    # Waiting for the value

    def is_ready(self) -> _bool:
        """Whether the value has been computed, or has failed; then reading it on the CPU does not block.

        For a global tensor, this is about this rank's part: reading the whole tensor waits for the other ranks' parts.

        Raises:
            RuntimeError: for a tensor of a graph that is being built.

        Example:
            >>> x = flow.ones(2) + 1
            >>> x.tolist()
            [2.0, 2.0]
            >>> x.is_ready()
            True
        """
        part = self if self._blob.meta.spread is None else self.detach().to_local()
        return part._blob.storage.settled()

    def __await__(self) -> Generator[Any, None, Tensor]:
        """Suspend the coroutine until the value, of a global tensor this rank's part, is computed; return the tensor.

        Raises:
            RuntimeError: for a tensor of a graph that is being built.
            Exception: that of the op that failed to compute the value.
        """
        storage = self._blob.storage
        if not storage.settled():
            if self._blob.meta.spread is not None:
                yield from self.detach().to_local().__await__()
                return self
            pending = writer_of(storage)
            if pending is not None:
                machine, writer = pending
                yield from machine.wait_async(writer)
        if storage.failure is not None:
            storage.failure.throw()
        return self

    def _array(self) -> Array:
        """The values as an array, after blocking until they are computed.

        The array shares memory with the storage; for a tensor on another device or a global tensor it is a copy.
        """
        found = _interpreter.settled_array(self)
        if found is not None:
            return found
        if self._blob.meta.spread is not None:
            from .distributed.global_tensors import whole  # imported here, as few programs need it

            gathered = whole(self)
            if not gathered._blob.storage.settled() and running_loop() is not None:
                _warn_of_blocking(_READ_OF_PARTS if self.is_ready() else _READ)
            # The array is a copy, since writes to it must not change this rank's part of the tensor.
            return gathered.numpy()
        if not self._blob.storage.settled() and running_loop() is not None:
            _warn_of_blocking()
        tensor = self
        if self.device.type != "cpu":
            # The copy is issued now, even if a graph is being built, and runs once the value is computed.
            with _interpreter.eagerly():
                tensor = self.detach().to("cpu")
        storage = tensor._blob.storage
        _wait_for(storage)
        machine = storage.machine
        if machine is not None and machine.races is not None:
            machine.races.host_reads(storage.dependence)
        return tensor._blob.array()

    def numpy(self, *, force: _bool = False) -> Array:
        """Copy the values to a numpy array on the host; blocks until they are computed.

        It is a copy and no view, since instructions still to run may write or reuse the memory.  So a tensor that
        requires a gradient is allowed, too.

        Args:
            force: PyTorch's argument; makes no difference.

        Raises:
            RuntimeError: on the meta device, or if the tensor belongs to a graph that is being built.
            Exception: that of the op that failed to compute the value.

        Example:
            >>> flow.tensor([1.0, 2.0]).numpy()
            array([1., 2.], dtype=float32)
        """
        return self._array().copy()

    def _item_in_time(self) -> Any:
        if self._blob.meta.numel != 1:
            raise ValueError(f"item: the tensor of shape {list(self.shape)} has {self.numel()} elements, not one")
        array = self._array()
        value = array.item()
        # A bfloat16 element is a scalar of ml_dtypes', and not a Python float.
        return float(value) if self.dtype is dtypes.bfloat16 else value

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers (0-d: a number); blocks until they are computed.

        Raises:
            Exception: as `numpy`.

        Example:
            >>> flow.tensor([[1, 2], [3, 4]]).tolist()
            [[1, 2], [3, 4]]
        """
        array = self._array()
        return (array.astype(np.float32) if self.dtype is dtypes.bfloat16 else array).tolist()

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

    def __dir__(self) -> list[str]:
        private = [name for name in object.__dir__(self) if name.startswith("_") and not name.endswith("__")]
        return sorted(set(object.__dir__(self)).difference(private))

    def __format__(self, spec: str) -> str:
        has_value = not self.is_lazy and self.device.type != "meta"
        return format(self.item(), spec) if not self.shape and (has_value or spec) else object.__format__(self, spec)

    # Autograd

    @property
    def requires_grad(self) -> _bool:
        """Whether gradients are computed for the tensor.

        Example:
            >>> (flow.ones(2, requires_grad=True) * 2).requires_grad
            True
        """
        if self._base is not None:
            return renewed(self)
        return self._autograd is not None and self._autograd.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: _bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: _bool = True) -> Tensor:
        """Set whether gradients are computed for this leaf, in place, and return it.

        Raises:
            TypeError: if `requires_grad` is not True or False.
            RuntimeError: for turning it on for a dtype without gradients, or off on a non-leaf.

        Example:
            >>> flow.ones(2).requires_grad_()
            tensor([1., 1.], requires_grad=True)
        """
        if requires_grad is not True and requires_grad is not False:
            raise TypeError(f"requires_grad_: requires_grad must be True or False, not {requires_grad!r}")
        if requires_grad and self.dtype.category < dtypes.FLOATING:
            raise RuntimeError(f"only floating-point and complex tensors can require gradients, not {self.dtype.name}")
        if not requires_grad and not self.is_leaf:
            raise RuntimeError("requires_grad can be turned off on leaves only; use .detach()")
        if requires_grad != self.requires_grad:
            if self._autograd is not None:  # else no graph depends on it, see `watch_requires_grad`
                changed()
            self._autograd_meta().requires_grad = requires_grad
        return self

    def _autograd_meta(self) -> AutogradMeta:
        if self._base is not None:
            renewed(self)
        found = self._autograd
        if found is None:
            found = self._autograd = AutogradMeta(False)
        return found

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated for this leaf, or non-leaf after `retain_grad`, in its shape; None without one.

        Example:
            >>> x = flow.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).sum().backward()
            >>> x.grad
            tensor([2., 4.])
        """
        autograd = self._autograd
        if autograd is None:
            return None
        recorder = MODE.get().interpreter
        if recorder is not None:
            recorder.reads_gradient(self)
        return autograd.grad

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
            if gradient.is_global is not self.is_global:
                raise RuntimeError("a gradient for a global tensor must be a global tensor, for a local one local")
        autograd = self._autograd_meta()
        recorder = MODE.get().interpreter
        if recorder is not None:
            recorder.clears(self, True)
        autograd.grad = gradient

    @property
    def grad_fn(self) -> Node | None:
        """The autograd node of the op that made the tensor; None for a leaf.

        Example:
            >>> flow.ones(2, requires_grad=True).exp().grad_fn
            <exp>
        """
        if self._base is not None:
            renewed(self)
        return None if self._autograd is None else self._autograd.node

    @property
    def is_leaf(self) -> _bool:
        """Whether the tensor is a leaf of the autograd graph: no op recorded by autograd has made it.

        Example:
            >>> flow.ones(2, requires_grad=True).exp().is_leaf
            False
        """
        return self.grad_fn is None

    def retain_grad(self) -> None:
        """Let backward passes store the gradient of this non-leaf in `grad`, too.

        Raises:
            RuntimeError: if the tensor does not require a gradient.

        Example:
            >>> y = flow.ones(2, requires_grad=True) * 3
            >>> y.retain_grad()
            >>> y.sum().backward()
            >>> y.grad
            tensor([1., 1.])
        """
        if not self.requires_grad:
            raise RuntimeError("retain_grad: the tensor does not require a gradient")
        autograd = self._autograd_meta()
        if autograd.node is not None:
            autograd.retain()

    def register_hook(self, hook: Hook) -> Handle:
        """Call `hook` with this tensor's gradient whenever it is computed; a returned tensor replaces the gradient.

        The returned tensor must be of the gradient's shape, dtype and device: the backward pass raises otherwise.

        Raises:
            RuntimeError: if the tensor does not require a gradient.

        Example:
            >>> x = flow.ones(2, requires_grad=True)
            >>> handle = x.register_hook(lambda gradient: gradient * 2)
            >>> x.sum().backward()
            >>> x.grad
            tensor([2., 2.])
        """
        if not self.requires_grad:
            raise RuntimeError("register_hook: the tensor does not require a gradient")
        autograd = self._autograd_meta()
        if autograd.hooks is None:
            autograd.hooks = {}
        autograd.watch()
        return Handle(autograd.hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook` with this leaf, of any shape, whenever its gradient has been accumulated.

        Raises:
            RuntimeError: if the tensor is no leaf that requires a gradient.

        Example:
            >>> x = flow.ones(2, requires_grad=True)
            >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad))
            >>> x.sum().backward()
            tensor([1., 1.])
        """
        if not (self.requires_grad and self.is_leaf):
            raise RuntimeError("register_post_accumulate_grad_hook: only for leaves that require a gradient")
        autograd = self._autograd_meta()
        if autograd.after is None:
            autograd.after = {}
        return Handle(autograd.after, lambda: hook(self))

    def detach(self) -> Tensor:
        """A tensor of the same shape on the same memory, without autograd history.  Raises no errors.

        Example:
            >>> flow.ones(2, requires_grad=True).detach()
            tensor([1., 1.])
        """
        return new_tensor(self._blob, self._lease)

    def detach_(self) -> Tensor:
        """Forget this tensor's autograd history and `requires_grad`, in place, and return it; its `grad` is kept."""
        before = self._autograd
        if before is not None:  # else no graph depends on it, see `watch_requires_grad`
            changed()
        self._autograd = self._base = None
        if before is not None and before.grad is not None:
            self._autograd_meta().grad = before.grad
        return self

    @property
    def data(self) -> Tensor:
        """A tensor of the same shape on the same memory, without autograd history.

        Assigning another tensor gives this tensor the other's memory, shape, dtype and device; a global tensor's also
        spreads this tensor over ranks.  TypeError for no tensor; RuntimeError if this tensor requires a gradient, and
        the other is neither floating-point nor complex, or if this tensor is global and the other local.

        Example:
            >>> x = flow.ones(2, requires_grad=True)
            >>> x.data.mul_(3)
            tensor([3., 3.])
            >>> x
            tensor([3., 3.], requires_grad=True)
        """
        return self.detach()

    @data.setter
    def data(self, other: Tensor) -> None:
        if self.is_global and isinstance(other, Tensor) and other.is_local:
            spread = self._blob.meta.spread
            raise RuntimeError(
                f"data: a local tensor cannot be that of a global one, {spread!r}; spread it by to_global"
            )
        replace_data(self, other)

    def __copy__(self) -> Tensor:
        """Make a leaf on the same memory, of the same class and with the same attributes, without its gradient."""
        made: Tensor = TensorOperators.__new__(type(self))
        made._blob, made._lease, made._autograd, made._base = self._blob, self._lease, None, None
        if hasattr(self, "__dict__"):
            made.__dict__.update(self.__dict__)
        return made.requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        """Copy a tensor into new memory, a leaf with its gradient; the copy of a non-leaf requires no gradient.

        The whole memory of a local view is copied, after waiting for it, so that the copies that one `deepcopy` makes
        of tensors on this memory share memory again.
        """
        copy = _on_copied_memory(self, memo)
        memo[id(self)] = copy
        if self.is_leaf:
            copy.requires_grad_(self.requires_grad)
            if self.grad is not None:
                copy.grad = deepcopy(self.grad, memo)
        return copy

    def __pos__(self) -> Tensor:
        return self

    __rdiv__ = TensorOperators.__rtruediv__


CLASS.append(Tensor)


def _of_dim(name: str, values: tuple[int, ...], dim: int) -> int:
    """Return the value of one dimension; unlike other functions, `size` and `stride` take no `dim` of a 0-d tensor."""
    if not is_integer(dim):
        raise TypeError(f"{name}: a dimension is an integer, not {dim!r}")
    rank = len(values)
    if not -rank <= dim < rank:
        takes = f"; a {rank}-d tensor takes {-rank} to {rank - 1}" if rank else "; a 0-d tensor has no dimension"
        raise IndexError(f"{name}: dim {dim} is out of range{takes}")
    return values[dim]


def _on_copied_memory(tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
    """A tensor like `tensor`, without autograd history, on a copy of its memory, which `memo` keeps by the storage."""
    blob = tensor._blob
    storage = blob.storage
    if storage.lazy or blob.meta.spread is not None or not blob.meta.numel:
        return tensor.detach().clone()  # memory of a graph's tensor is unknown, of a global one partly elsewhere
    whole = memo.get(id(storage))
    if whole is None:
        given = tensor.detach()
        if blob.strides is not None:
            settle(tensor)  # the size of the memory is unknown until the value is computed
            array = storage.array
            everything = meta(tuple(array.shape), dtypes.from_numpy(array.dtype), blob.meta.device)
            given = new_tensor(Blob(storage, everything), tensor._lease)
        with _interpreter.eagerly():  # a graph that is being built must not record the copy
            whole = memo[id(storage)] = given.clone()
    return new_tensor(Blob(whole._blob.storage, blob.meta, blob.strides, blob.offset), whole._lease)


def replace_data(tensor: Tensor, other: Tensor) -> None:
    """Give a tensor the memory, shape, dtype, device and ranks of another, global or local.

    Raises:
        TypeError: if `other` is no tensor.
        RuntimeError: if `tensor` requires a gradient, and `other` is neither floating-point nor complex.
    """
    if not isinstance(other, Tensor):
        raise TypeError(f"data must be a tensor, not {type(other).__name__}")
    dtype = other._blob.meta.dtype
    if tensor.requires_grad and dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"data: a tensor that requires a gradient cannot become {dtype.name}")
    tensor._blob, tensor._lease, tensor._base = other._blob, other._lease, None


# For graphs


def settle(tensor: Tensor) -> None:
    """Block until a tensor's value, or a global one's part on this rank, is computed; raise its failure."""
    part = tensor if tensor._blob.meta.spread is None else tensor.detach().to_local()
    storage = part._blob.storage
    if not storage.settled() and running_loop() is not None:
        _warn_of_blocking()
    _wait_for(storage)


def _wait_for(storage: Storage) -> None:
    if not storage.settled():
        pending = writer_of(storage)
        if pending is not None:
            machine, writer = pending
            machine.wait(writer)
    if storage.failure is not None:
        storage.failure.throw()


def watch_requires_grad(tensor: Tensor) -> None:
    """Have `changes.changed` called by a tensor's next `detach_`, and by each change of `requires_grad` until then."""
    tensor._autograd_meta()


def _lies_in_format(tensor: Tensor, wanted: memory_format) -> bool:
    if wanted is preserve_format:
        return tensor.is_contiguous()
    shape = tensor._blob.meta.shape
    if isinstance(wanted, memory_format) and not fits_rank(wanted, len(shape)):
        return False
    order = order_of("is_contiguous", len(shape), wanted)
    return order is None or lies_in(order, shape, tensor.stride())


_warned: set[tuple[str, int]] = set()


# For the warning: the read that blocks the event loop, and the remedy.
_READ: Final = "a tensor that is not ready, on the thread of a running event loop; use `await tensor` before reading it"
_READ_OF_PARTS: Final = (
    "a global tensor whose parts other ranks have, on the thread of a running event loop; use `await "
    "tensor.to_global(sbp=sbp.broadcast)` and read the result"
)


def _warn_of_blocking(read: str = _READ) -> None:
    """Warn once for each line that blocks a running event loop; never in IPython: notebooks run cells on a loop."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        return
    place = origin.describe(*origin.capture())
    name, _, rest = place.rpartition(":")
    line = int(rest.split(",")[0]) if name else 0
    if (name, line) in _warned:
        return
    _warned.add((name, line))
    warnings.warn_explicit(
        f"blocking read of {read}",
        BlockingCallWarning,
        name,
        line,
    )
