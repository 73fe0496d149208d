"""Reads files that ``torch.save`` has written, in both of its formats, as tensors and plain data.

Since PyTorch 1.6 such a file is a zip archive: a pickle, and the bytes of each storage in an entry of its own.  Before,
and with ``_use_new_zipfile_serialization=False``, it is a row of pickles, and then the bytes.  Pickles are read by
`plain_pickles`, which runs no code.  The table of names has only names that tensors and plain data need.

A tensor in the pickle names its storage and its offset there.  So tensors that shared memory share it again.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TypeAlias

import attrs
import numpy as np

from . import dtypes
from .autograd.grad_mode import no_grad
from .devices import device as Device
from .dtypes import dtype as DType
from .instructions.blob import Array, Blob, Size, contiguous_strides, meta
from .interpreter import eagerly
from .nn.parameter import Parameter
from .ops.creation.creation import from_array
from .plain_pickles import Damaged, Known, Reader, check_result, plain_names
from .tensor_fields import blob_of, lease_of, new_tensor
from .tensors import Tensor

# A function that chooses the device of a loaded storage from its memory on the host and the name of the device that it
# was saved on.
Placing: TypeAlias = Callable[[Tensor, str], Device]

# The beginning of a file in the old format, after the first two bytes: the rest of a pickle of PyTorch's magic number.
MAGIC: Final = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_VERSION: Final = 1001

_MOST_BYTES: Final = 1 << 62
_MOST_DIMENSIONS: Final = 32

# The dtypes of PyTorch's storage classes, by the class's name without "Storage".
_STORAGES: Final = {
    "BFloat16": dtypes.bfloat16,
    "Bool": dtypes.bool_,
    "Byte": dtypes.uint8,
    "Char": dtypes.int8,
    "ComplexDouble": dtypes.complex128,
    "ComplexFloat": dtypes.complex64,
    "Double": dtypes.float64,
    "Float": dtypes.float32,
    "Half": dtypes.float16,
    "Int": dtypes.int32,
    "Long": dtypes.int64,
    "Short": dtypes.int16,
}


def is_pytorch_zip(archive: zipfile.ZipFile) -> bool:
    """Whether a zip archive was written by ``torch.save``: it has an entry ``data.pkl`` in a top-level folder."""
    return _folder(archive) is not None


def _folder(archive: zipfile.ZipFile) -> str | None:
    """The folder inside a PyTorch archive that has all of its entries; None if the archive is not PyTorch's."""
    for name in archive.namelist():
        folder, slash, last = name.rpartition("/")
        if slash and last == "data.pkl" and "/" not in folder:
            return folder
    return None


def load_zip(source: str | IO[bytes], path: str, place: Placing, mmap: bool) -> Any:
    """Load the object in a zip archive that ``torch.save`` has written.

    Args:
        source: the path of the archive, or the open file.
        path: the path that messages show.
        place: chooses the device of each storage.
        mmap: whether storages are mapped into memory instead of read; then `source` must be a path.

    Raises:
        ValueError: if the archive is damaged, or holds something else than tensors and plain data.
    """
    try:
        with _opened(source) as archive:
            entries = _Archive(archive, str(source) if mmap else None)
            return _Tensors(entries.bytes_of, entries.little, place).read(entries.pickle, 0)
    except Damaged as error:
        raise ValueError(f"load: {path}: {error}") from error


def load_old(content: bytes, path: str, place: Placing) -> Any:
    """Load the object in a file of PyTorch's old format, whose first pickle ends in `MAGIC`; see `load_zip`."""
    try:
        return _loaded_old(content, place)
    except Damaged as error:
        raise ValueError(f"load: {path}: {error}") from error


@contextmanager
def _opened(source: str | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive as a context manager; one that is no valid archive raises `Damaged`."""
    with _reading():
        archive = zipfile.ZipFile(source)
    with archive:
        yield archive


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except Damaged:
        raise
    except (
        *(ValueError, KeyError, OverflowError, EOFError, RuntimeError, NotImplementedError, struct.error),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise Damaged(f"it is damaged: {error}") from error


# Storages


@attrs.frozen(eq=False)
class _Kind:
    """A storage class that a pickle names, such as ``torch.FloatStorage``; `dtype` is None for the untyped class.

    `_Kind` is a class so that `check_result` rejects it in the loaded data, like `_Stored`.
    """

    dtype: DType | None


@attrs.frozen(eq=False)
class _Stored:
    """A storage that a pickle refers to by a persistent id, or a range of its elements.

    Attributes:
        key: the name of the storage in the file.
        kind: the storage class, which tells the dtype.
        begin, count: the first element of the range and the number of elements.
        location: PyTorch's name of the device that the storage was saved on.
    """

    key: str
    kind: _Kind
    begin: int
    count: int
    location: str


def _stored(given: Any) -> _Stored:
    """Check a persistent id in a pickle, and turn it into the storage that it describes."""
    if type(given) is not tuple or len(given) not in (5, 6) or given[0] != "storage":
        raise Damaged("its pickle refers to something that is no storage")
    _, kind, key, location, count = given[:5]
    fits = type(kind) is _Kind and type(key) is str and type(location) is str and _is_size(count)
    if not fits:
        raise Damaged("its pickle has a storage that is described wrongly")
    part = given[5] if len(given) == 6 else None
    if part is None:
        return _Stored(key, kind, 0, count, location)
    if type(part) is not tuple or len(part) != 3 or not _is_size(part[1]) or not _is_size(part[2]):
        raise Damaged("its pickle has a part of a storage that is described wrongly")
    if part[1] + part[2] > count:
        raise Damaged(f"its pickle has a part that ends at {part[1] + part[2]} of a storage of {count} elements")
    return _Stored(key, kind, part[1], part[2], location)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_BYTES


class _Archive:
    """The entries of a zip archive of PyTorch's: its pickle, its byte order and its storages."""

    def __init__(self, archive: zipfile.ZipFile, mapped: str | None) -> None:
        folder = _folder(archive)
        if folder is None:
            raise Damaged("it is a zip archive, and not one of PyTorch's or numpy's")
        self._archive = archive
        self._folder = folder
        self._mapped = mapped
        self._check()
        self.pickle = bytes(self._read("data.pkl"))
        order = bytes(self._read("byteorder")) if self._has("byteorder") else b"little"
        if order not in (b"little", b"big"):
            raise Damaged(f"its byte order is {order[:20]!r}")
        self.little = order == b"little"

    def _check(self) -> None:
        """Raise `Damaged` for a TorchScript program, a compressed entry, or entries with more bytes than the file.

        So reading the entries takes no more memory than the file's size.
        """
        file = self._archive.fp
        assert file is not None
        begin = file.tell()
        size = file.seek(0, os.SEEK_END)
        file.seek(begin)
        entries = self._archive.infolist()
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise Damaged(f"{entry.filename[:100]!r} in it is compressed, and torch.save compresses nothing")
        if sum([entry.file_size for entry in entries]) > size:
            raise Damaged(f"its entries are said to have more bytes than it, which has {size}")
        if self._has("constants.pkl"):
            raise Damaged("it is a program for TorchScript; in PyTorch, save the state_dict() of the module instead")

    def _has(self, name: str) -> bool:
        return f"{self._folder}/{name}" in self._archive.NameToInfo

    def _read(self, name: str) -> Array:
        entry = self._archive.getinfo(f"{self._folder}/{name}")
        memory = np.empty(entry.file_size, np.uint8)
        view, done = memory.data, 0
        with _reading(), self._archive.open(entry) as content:
            while done < len(memory):
                part = content.read(min(1 << 20, len(memory) - done))
                if not part:
                    raise Damaged(f"{name!r} in it ends after {done} bytes of {len(memory)}")
                view[done : done + len(part)] = part
                done += len(part)
            content.read(1)  # zipfile compares the checksum when it reads at the end
        return memory

    def bytes_of(self, stored: _Stored) -> Array:
        """The bytes of a storage: read from its entry, or mapped from the file if asked for and aligned."""
        name = f"data/{stored.key}"
        if not self._has(name):
            raise Damaged(f"it has no storage {stored.key[:100]!r}")
        entry = self._archive.getinfo(f"{self._folder}/{name}")
        expected = stored.count * _itemsize(stored.kind)
        if entry.file_size != expected:
            raise Damaged(f"its storage {stored.key[:100]!r} has {entry.file_size} bytes, and {expected} are due")
        if self._mapped is None or entry.file_size == 0:
            return self._read(name)
        # Copy-on-write mode "c": writes to the tensor go to the process's own pages, and the file is not changed.
        begin = self._begin_of(entry)
        mapped = np.memmap(self._mapped, np.uint8, "c", begin, (entry.file_size,)).view(np.ndarray)
        aligned = mapped.__array_interface__["data"][0] % 16 == 0
        return mapped if aligned else mapped.copy()

    def _begin_of(self, entry: zipfile.ZipInfo) -> int:
        """The offset in the file of an uncompressed entry's bytes, which follow a header of variable length."""
        with _reading(), self._archive.open(entry):  # compares the local header with the archive's directory
            pass
        file = self._archive.fp
        assert file is not None
        file.seek(entry.header_offset)
        header = file.read(30)
        names, extra = struct.unpack("<HH", header[26:30])
        begin: int = entry.header_offset + 30 + names + extra
        return begin


def _itemsize(kind: _Kind) -> int:
    return 1 if kind.dtype is None else kind.dtype.itemsize


def _loaded_old(content: bytes, place: Placing) -> Any:
    # The storages' bytes follow the pickle that refers to them.  So the pickle is read twice: first to learn the dtypes
    # of the storages, by which their bytes are found, and then to make the tensors.
    found: dict[str, _Stored] = {}

    def noted(given: Any) -> _Stored:
        stored = _stored(given)
        before = found.setdefault(stored.key, stored)
        if before.kind.dtype is not stored.kind.dtype:
            raise Damaged(f"its storage {stored.key[:100]!r} is said to be of two dtypes")
        return stored

    begin = _Plain(content, 0)
    if begin.read() != _PYTORCH or begin.read() != _VERSION:
        raise Damaged(f"it is of another version of PyTorch's old format than {_VERSION}")
    system = begin.read()
    if type(system) is not dict or system.get("protocol_version") != _VERSION:
        raise Damaged("it does not say how it was written")
    order = system.get("little_endian", True)
    if type(order) is not bool:
        raise Damaged("it does not say in which order bytes were written")
    planned = _Tensors(None, order, place)
    end = planned.read_with(content, begin.position, noted)[1]
    names = _Plain(content, end)
    keys = names.read()
    if type(keys) is not list or any([type(key) is not str for key in keys]) or len(set(keys)) != len(keys):
        raise Damaged("its list of storages is none")
    position = names.position
    spans: dict[str, tuple[int, int]] = {}
    for key in keys:
        if key not in found:
            raise Damaged(f"its list of storages has {key[:100]!r}, which no tensor lies in")
        if len(content) - position < 8:
            raise Damaged("it is cut off")
        (count,) = struct.unpack_from("<q" if order else ">q", content, position)
        nbytes = count * _itemsize(found[key].kind)
        position += 8
        if count < 0 or len(content) - position < nbytes:
            raise Damaged(f"its storage {key[:100]!r} of {count} elements is cut off")
        spans[key] = (position, nbytes)
        position += nbytes

    def bytes_of(stored: _Stored) -> Array:
        if stored.key not in spans:
            raise Damaged(f"it has no storage {stored.key[:100]!r}")
        start, nbytes = spans[stored.key]
        if (stored.begin + stored.count) * _itemsize(stored.kind) > nbytes:
            raise Damaged(f"its storage {stored.key[:100]!r} has {nbytes} bytes, and a tensor in it needs more")
        return np.frombuffer(content, np.uint8, nbytes, start).copy()

    return _Tensors(bytes_of, order, place).read(content, begin.position)


_PYTORCH: Final = int.from_bytes(MAGIC[2:-1], "little")


class _Plain(Reader):
    """Reads pickles of plain data, without any names, from `position` on in the content."""

    def __init__(self, content: bytes, position: int) -> None:
        super().__init__(content, self._find_nothing, _stored)
        self.position = position

    def _find_nothing(self, module: str, name: str) -> Any:
        raise _unknown(module, name)


# Tensors


class _Tensors:
    """Reads a pickle of PyTorch's and makes its tensors.

    Args:
        bytes_of: returns the bytes of a storage; None to check the pickle's tensors without making them.
        little: whether the file's numbers are little-endian.
        place: chooses the device of each storage.
    """

    def __init__(self, bytes_of: Callable[[_Stored], Array] | None, little: bool, place: Placing) -> None:
        self._bytes_of = bytes_of
        self._swap = little != (sys.byteorder == "little")
        self._place = place
        self._wholes: dict[str, Tensor] = {}
        self._reader: Reader | None = None
        self._names: dict[tuple[str, str], Any] = {}

    def read(self, content: bytes, position: int) -> Any:
        """Read the pickle that begins at `position` of `content`, and return its object."""
        return self.read_with(content, position, _stored)[0]

    def read_with(self, content: bytes, position: int, stored: Callable[[Any], _Stored]) -> tuple[Any, int]:
        """Read a pickle as `read` does, with persistent ids turned into storages by `stored`.

        Returns:
            The pickle's object, and the position at which the pickle ends.
        """
        self._reader = reader = Reader(content, self._find, stored, (DType, Device))
        reader.position = position
        self._names = self._table()
        try:
            with no_grad(), eagerly():
                found = reader.read()
        finally:
            # Names and reader refer to this object, which refers to tensors: the cycle would keep the tensors alive.
            self._names, self._reader = {}, None
        check_result(found, (Tensor, Parameter, DType, Device, Size))
        return found, reader.position

    def _find(self, module: str, name: str) -> Any:
        found = self._names.get((module, name))
        if found is None:
            raise _unknown(module, name)
        return found

    def _table(self) -> dict[tuple[str, str], Any]:
        def reader() -> Reader:
            assert self._reader is not None
            return self._reader

        table: dict[tuple[str, str], Any] = {**plain_names(reader)}
        for name, dtype in _STORAGES.items():
            table["torch", f"{name}Storage"] = table["torch.cuda", f"{name}Storage"] = _Kind(dtype)
        for module in ("torch", "torch.storage"):
            table[module, "UntypedStorage"] = table[module, "_UntypedStorage"] = _Kind(None)
        for dtype in dtypes.ALL:
            table["torch", dtype.name] = dtype
        functions: dict[tuple[str, str], Callable[..., Any]] = {
            ("torch._utils", "_rebuild_tensor"): self._rebuild_oldest,
            ("torch._utils", "_rebuild_tensor_v2"): self._rebuild,
            ("torch._utils", "_rebuild_tensor_v3"): self._rebuild_of_dtype,
            ("torch._utils", "_rebuild_parameter"): self._rebuild_parameter,
            ("torch._utils", "_rebuild_parameter_with_state"): self._rebuild_parameter,
            ("torch._tensor", "_rebuild_from_type_v2"): self._rebuild_of_type,
            ("torch", "Size"): _size,
            ("torch", "device"): _device,
        }
        for (module, name), function in functions.items():
            table[module, name] = Known(f"{module}.{name}", _checked(f"{module}.{name}", function))
        table["torch", "Tensor"] = _TENSOR
        table["torch.nn.parameter", "Parameter"] = table["torch.nn", "Parameter"] = _PARAMETER
        return table

    # Called by pickles

    def _rebuild_oldest(self, stored: Any, offset: Any, size: Any, stride: Any) -> Tensor:
        return self._made(stored, None, offset, size, stride, False)

    def _rebuild(
        self, stored: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, bits: Any = None
    ) -> Tensor:
        _check_hooks(hooks)
        made = self._made(stored, None, offset, size, stride, requires_grad and bits is None)
        return _with_bits(made, bits, requires_grad)

    def _rebuild_of_dtype(
        self,
        stored: Any,
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any,
        hooks: Any,
        dtype: Any,
        bits: Any = None,
    ) -> Tensor:
        _check_hooks(hooks)
        if type(dtype) is not DType:
            raise Damaged("its pickle has a tensor whose dtype is none")
        made = self._made(stored, dtype, offset, size, stride, requires_grad and bits is None)
        return _with_bits(made, bits, requires_grad)

    def _rebuild_parameter(self, data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> Parameter:
        _check_hooks(hooks)
        if type(data) is not Tensor or type(requires_grad) is not bool:
            raise Damaged("its pickle has a parameter of something that is no tensor")
        made = Parameter(data, _differentiable(data.dtype, requires_grad))
        if state is not None:
            _give(made, state)
        return made

    def _rebuild_of_type(self, rebuild: Any, kind: Any, arguments: Any, state: Any) -> Tensor:
        tensors = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3")
        if type(rebuild) is not Known or rebuild.name not in tensors or rebuild.call is None:
            raise Damaged("its pickle has a tensor of a kind that is not known")
        if kind not in (_TENSOR, _PARAMETER) or type(arguments) is not tuple:
            raise Damaged("its pickle has a tensor of a class that is not known")
        made: Tensor = rebuild.call(arguments)
        if kind is _PARAMETER:
            made = Parameter(made.detach(), made.requires_grad)
            _give(made, state)
        elif type(state) is not dict or not state.keys() <= {"_is_buffer", "persistent"}:
            raise Damaged("its pickle gives attributes to a tensor")
        return made

    # How they are made

    def _made(
        self, stored: Any, dtype: DType | None, offset: Any, size: Any, stride: Any, requires_grad: Any
    ) -> Tensor:
        """Make a tensor on a storage, after checking its offset, size and strides against the storage.

        Errors are `Damaged`.  `dtype` is None for the dtype of the storage.
        """
        if type(stored) is not _Stored:
            raise Damaged("its pickle has a tensor without a storage")
        kind = dtype or stored.kind.dtype
        if kind is None:
            raise Damaged("its pickle has a tensor without a dtype")
        if type(requires_grad) is not bool:
            raise Damaged("its pickle has a tensor that does not say whether it requires a gradient")
        shape, strides = _lengths(size), _lengths(stride)
        if len(shape) != len(strides) or not _is_size(offset):
            raise Damaged("its pickle has a tensor with sizes and strides that do not fit")
        _check_extent(stored, kind, offset, shape, strides)
        if self._bytes_of is None:
            return new_tensor(_nothing(), None)
        first = stored.begin * _itemsize(stored.kind)
        if first % kind.itemsize:
            raise Damaged("its pickle has a tensor that begins within an element")
        offset += first // kind.itemsize
        whole = self._wholes.get(stored.key)
        if whole is None:
            whole = self._whole(stored, kind, offset, (shape, strides), self._bytes_of(stored))
            self._wholes[stored.key] = whole
        if whole.nbytes < (stored.begin + stored.count) * _itemsize(stored.kind):
            raise Damaged(f"its storage {stored.key[:100]!r} is said to be of two sizes")
        if self._swap and whole.dtype is not kind:
            raise Damaged("its storage is of another byte order, and of two dtypes")
        if offset == 0 and (whole.dtype, tuple(whole.shape), whole.stride()) == (kind, shape, strides):
            made = whole.detach()
        else:
            blob = Blob(blob_of(whole).storage, meta(shape, kind, whole.device), strides, offset)
            made = new_tensor(blob, lease_of(whole))
        return made.requires_grad_(_differentiable(kind, requires_grad))

    def _whole(
        self, stored: _Stored, kind: DType, offset: int, layout: tuple[tuple[int, ...], tuple[int, ...]], memory: Array
    ) -> Tensor:
        """Make the tensor of a whole storage's `memory`, on the device that `place` chooses.

        It has the shape in `layout`, of the first tensor on the storage, if that fills the storage in order; else it is
        a vector.
        """
        # The tensor has bytes as elements if the storage's size is no multiple of the dtype's.
        seen = kind if memory.nbytes % kind.itemsize == 0 else dtypes.uint8
        if self._swap and memory.size:
            memory = memory.view(f"u{kind.to_real().itemsize}").byteswap().view(np.uint8)
        array = memory.view(seen.numpy)
        shape, strides = layout
        if offset == 0 and seen is kind and strides == contiguous_strides(shape) and math.prod(shape) == array.size:
            array = array.reshape(shape)
        here = from_array(array, Device("cpu"))
        device = self._place(here, stored.location)
        return here if device is here.device else here.to(device)


_TENSOR: Final = Known("torch.Tensor")
_PARAMETER: Final = Known("torch.nn.Parameter")


def _nothing() -> Blob:
    return blob_of(from_array(np.empty(0, np.float32), Device("cpu")))


def _checked(name: str, function: Callable[..., Any]) -> Callable[[tuple[Any, ...]], Any]:
    code: Any = getattr(function, "__func__", function)
    most = code.__code__.co_argcount - (0 if code is function else 1)
    least = most - len(code.__defaults__ or ())

    def call(arguments: tuple[Any, ...]) -> Any:
        if not least <= len(arguments) <= most:
            raise Damaged(f"its pickle gives {len(arguments)} arguments to {name}")
        return function(*arguments)

    return call


def _lengths(given: Any) -> tuple[int, ...]:
    if (
        type(given) not in (tuple, list, Size)
        or len(given) > _MOST_DIMENSIONS
        or not all([_is_size(size) for size in given])
    ):
        raise Damaged("its pickle has a tensor with sizes or strides that are none")
    return tuple(given)


def _check_extent(stored: _Stored, kind: DType, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Raise `Damaged` unless a tensor of this offset, shape and strides fits into its storage."""
    if math.prod([max(size, 1) for size in shape]) * kind.itemsize > _MOST_BYTES:
        raise Damaged(f"its pickle has a tensor of the shape {list(shape)}, which is too large for any memory")
    end = offset
    if 0 not in shape:
        end += 1 + sum([(size - 1) * stride for size, stride in zip(shape, strides, strict=True)])
    have = stored.count * _itemsize(stored.kind)
    if end * kind.itemsize > have:
        raise Damaged(
            f"its pickle has a tensor of the shape {list(shape)} and the strides {list(strides)} from {offset} on, "
            f"which ends at byte {end * kind.itemsize} of a storage of {have}"
        )


def _check_hooks(hooks: Any) -> None:
    if hooks is not None and (type(hooks) is not OrderedDict or hooks):
        raise Damaged("its pickle has a tensor with hooks")


def _differentiable(kind: DType, requires_grad: bool) -> bool:
    if requires_grad and kind.category < dtypes.FLOATING:
        raise Damaged(f"its pickle has a tensor of {kind.name} that requires a gradient")
    return requires_grad


def _with_bits(made: Tensor, bits: Any, requires_grad: Any) -> Tensor:
    """Apply PyTorch's lazy conjugation and negation: compute the tensor that the flags in `bits` stand for."""
    if bits is None:
        return made
    if (
        type(bits) is not dict
        or not bits.keys() <= {"conj", "neg"}
        or any([type(bit) is not bool for bit in bits.values()])
    ):
        raise Damaged("its pickle has a tensor with unknown properties")
    if bits.get("conj"):
        made = made.conj().clone()
    if bits.get("neg"):
        made = -made
    return made.detach().requires_grad_(_differentiable(made.dtype, requires_grad))


def _give(made: Parameter, state: Any) -> None:
    """Give a loaded parameter the attributes that it had in PyTorch, after checking their names and values."""
    if type(state) is not dict:
        raise Damaged("its pickle gives a parameter attributes that are none")
    for name, value in state.items():
        if type(name) is not str or not name.isidentifier() or hasattr(type(made), name):
            raise Damaged("its pickle gives a parameter an attribute that would hide one of its own")
        check_result(value, (Tensor, Parameter, DType, Device, Size))
    vars(made).update(state)


def _size(lengths: Any) -> Size:
    if type(lengths) not in (tuple, list) or any([type(length) is not int for length in lengths]):
        raise Damaged("its pickle has a torch.Size of items that are no integers")
    return Size(lengths)


def _device(kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or not (index is None or _is_size(index)):
        raise Damaged("its pickle has a torch.device that is none")
    try:
        return Device(kind, index)
    except ValueError as error:
        raise Damaged(f"its pickle has a device that vmflow does not have: {error}") from None


def _unknown(module: str, name: str) -> Damaged:
    """Make the error for a name in a pickle that no tensor and no plain data needs, with a remedy."""
    full = f"{module}.{name}"
    shown = repr(full if len(full) <= 100 else full[:100] + "...").strip("'\"")
    remedy = "save the data as tensors, numbers, strings, and dicts, lists and tuples of these"
    if module.startswith(("torch.nn.modules", "torch.fx")):
        remedy = "the file holds a whole module; in PyTorch, save its state_dict(), to load that into a module of yours"
    elif module.split(".")[0] == "numpy":
        remedy = "that is numpy's; in PyTorch, save a tensor, torch.from_numpy(array), or a number, number.item()"
    elif module == "torch" and name in _ABSENT:
        remedy = "vmflow has no such dtype; in PyTorch, save the tensor as another"
    elif module.startswith("torch._utils") and name.startswith("_rebuild"):
        remedy = "vmflow has no such tensors; in PyTorch, save a dense one on the CPU"
    return Damaged(
        f"its pickle asks for {shown}, and only tensors and plain data are loaded; nothing in it was run; {remedy}"
    )


_ABSENT: Final = (
    *("complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn_x2", "quint8", "qint8", "qint32", "quint4x2", "ComplexHalfStorage"),
)
