"""Saving and loading: tensors and plain data in one file; and rebuilding tensors that were pickled.

The file is a safetensors or npz file, see `save`.  The tensors are ordinary entries, so that any reader of the format
finds them.  How the tensors were arranged, and everything that is no tensor, is JSON: in the metadata of a safetensors
file under the key "vmflow", in an npz file in an entry of that name.  Nothing is pickled, and loading a file, also one
of PyTorch's (see `pytorch_files`), runs no code in the file.

In the JSON, null, true, false, integers, floats, strings and lists stand for themselves; everything else is an object
of one key that tells its kind:

    {"tensor": name}                    the entry of that name
    {"tensor": [name, "complex64"]}     a complex tensor in a safetensors file: the last dimension is (real, imaginary)
    {"tensor": [name, "bfloat16"]}      a bfloat16 tensor in an npz file, which has no such type: the entry is uint16
    {"dict": [[key, value], ...]}       a dict; keys are strings and integers
    {"tuple": [...]}                    a tuple
    {"float": "nan"}                    a float that JSON has no word for
    {"complex": [real, imaginary]}      a complex number
"""

from __future__ import annotations

import json
import lzma
import math
import os
import secrets
import tempfile
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO, TextIOBase
from typing import IO, Any, Final, TypeAlias

import numpy as np

from . import dtypes
from .devices import device as Device
from .instructions.blob import Array
from .ops.creation.creation import from_array
from .tensors import Tensor

_KEY: Final = "vmflow"
_FORMAT: Final = 1


def rebuild_tensor(kind: type, array: Any, requires_grad: bool, device: Device) -> Any:
    """Unpickle a tensor: make a tensor of class `kind` from the arguments that `Tensor.__reduce__` has stored.

    Raises:
        DeviceUnavailable: if the tensor was on a device that cannot be used here.
    """
    device.require()
    tensor: Any = from_array(array, device)
    if kind is not type(tensor):
        tensor = kind(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def save(obj: Any, f: str | os.PathLike[str] | IO[bytes], *, global_dst_rank: int | None = None) -> None:
    """Write tensors and plain data to a file, from which `load` returns them.

    The file is a safetensors file, or numpy's npz if its name ends in ".npz" or `f` is an open file such as
    `io.BytesIO`.

    A file at a path appears whole or not at all: it is written under another name, flushed to the disk, and renamed.
    In the file, a tensor's name is its key in a plain state dict; in nested data, its
    keys joined by dots; with a number behind it if it is taken.

    A tensor's values are stored, but not its `requires_grad` and autograd history.  Tensors that view the same memory
    in the same way are stored once, and share memory again when loaded.  `save` waits for values that are still being
    computed; in a coroutine, ``await vmflow.synchronize()`` first, so as not to block the event loop.

    A graph for prediction that has been built is written to a folder, with its ops and variables, so that `load_graph`
    returns a graph that needs neither its class nor its modules.  For each kind of arguments that the
    graph keeps (see `nn.Graph.with_dynamic_input_shape`), the form for the present state is saved.

    Args:
        obj: tensors, Python numbers, strings, None, and dicts (keys are strings or integers), lists and tuples of
            these; or an `nn.Graph`.
        f: the path of the file, or of the folder of a graph; or a binary file open for writing, which is written from
            its current position and left open.
        global_dst_rank: the only rank that writes the file, needed if `obj` has global tensors, which are saved whole.
            All ranks call `save`; the others do not wait for the file.  Ignored for a graph.
            `distributed.checkpoint.save` lets each rank write its parts.

    Raises:
        TypeError: if `f` is neither a path nor a binary file; for a value that cannot be saved: the message has its
            keys, and no file is touched.
        RuntimeError: if a graph has not been built, has changed since, trains, or takes a loader's batches; for a
            tensor on the meta device.
        FileExistsError: if `obj` is a graph and `f` exists and is neither an empty folder nor a saved graph.
        ValueError: if a list or dict contains itself, or `obj` has a global tensor and `global_dst_rank` is None; if
            there is no such rank.
        ImportError: if the package safetensors is not installed and the file is no npz file.
        OSError: if the file cannot be written; a former file is kept.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> flow.save({"x": flow.tensor([1.0, 2.0]), "epoch": 3}, file)
        >>> _ = file.seek(0)
        >>> flow.load(file)
        {'x': tensor([1., 2.]), 'epoch': 3}
    """
    if not isinstance(f, (str, os.PathLike)):
        if not callable(getattr(f, "write", None)):
            raise TypeError(f"save: expected the path of a file, or a file open for writing, got {type(f).__name__}")
        if isinstance(f, TextIOBase):
            raise TypeError("save: the file is open for text; open it in binary mode, 'wb'")
        described, arrays = _encoded(obj, True, global_dst_rank)
        content = BytesIO()  # a buffer, so that an error in making the content leaves the open file unchanged
        if _writes(global_dst_rank):
            _put_npz(content, arrays, described)
            f.write(content.getbuffer())
        return
    if hasattr(type(obj), "save_to_folder"):
        obj.save_to_folder(f)
        return
    path = os.path.realpath(os.fspath(f))
    npz = _is_npz(path)
    if not npz:
        _library()
    described, arrays = _encoded(obj, npz, global_dst_rank)
    put = _put_npz if npz else _put_safetensors
    if _writes(global_dst_rank):
        _write(path, lambda temporary: put(temporary, arrays, described))


def _writes(rank: int | None) -> bool:
    """Whether this process writes the file: always if `rank` is None, else if it is that rank."""
    if rank is None:
        return True
    from .distributed.collectives import check_rank  # imported here, as few programs need it
    from .distributed.process import get_rank

    return get_rank() == check_rank(rank)


def _encoded(obj: Any, npz: bool, rank: int | None) -> tuple[str, dict[str, Array]]:
    """The JSON that describes `obj`, and the arrays to store by name; waits for the tensors' values.

    Global tensors raise ValueError if `rank` is None.
    """
    writing = _Writing(npz, rank is not None)
    root = writing.encode(obj, (), ())
    described = json.dumps({"format": _FORMAT, "root": root}, allow_nan=False, separators=(",", ":"))
    return described, {name: array() for name, array in writing.entries.items()}


def load(
    f: str | os.PathLike[str] | IO[bytes],
    map_location: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    global_src_rank: int | None = None,
) -> Any:
    """Read a file that `save` has written; or any safetensors or npz file, as a dict of tensors by name.

    It also reads PyTorch's files, ``.pt`` or ``.pth``, in both formats of ``torch.save``: tensors and parameters,
    which share memory as when they were saved, and numbers, strings, bytes, None, dicts, lists, tuples, sets, sizes,
    dtypes and devices.  Their pickle is read without running code; any other object in it is an error.

    Args:
        f: the path of the file, or a binary file open for reading, which is read from its current position to its end.
        map_location: the device that the tensors are put on, by default the CPU.  Or a dict from the names of devices
            that tensors were saved on to the devices that they are put on, the CPU for missing names.  Or a function of
            a storage on the CPU and the name of the device that it was saved on; it returns a device, the storage or
            its copy on another device, or None for the CPU.  Only PyTorch's files have such names; for other files the
            name is "cpu".
        weights_only: must be True or None.
        mmap: whether to map a zipped file of PyTorch's into memory instead of reading it, so that only the parts in use
            are read; checksums are not compared then.  Writes to a tensor stay in memory.  Makes no difference for
            paths of safetensors and npz files.
        global_src_rank: the rank that reads the file for all ranks, each of which calls `load`; the tensors are global
            ones, broadcast over all ranks, on devices of the type that `map_location` chooses.

    Raises:
        ValueError: if the file is damaged, has another format, or holds a dtype that vmflow does not have; if the
            arrays of an npz file have more than 1 GiB and 100 times the file's bytes; if the file's pickle asks for
            more than tensors and plain data; if `mmap` is True for an open file, one in PyTorch's old format or one
            that a rank reads for all; if `weights_only` is False; for an unknown device or rank.
        TypeError: if `f` or `map_location` is of another type.
        DeviceUnavailable: if the device cannot be used here.
        OSError: if the file cannot be read.
        ImportError: if the package safetensors, which reads files of its format, is not installed.

    Example:
        >>> flow.load("missing.pt")
        Traceback (most recent call last):
        FileNotFoundError: [Errno 2] No such file or directory: 'missing.pt'
    """
    if not isinstance(f, (str, os.PathLike)) and (not callable(getattr(f, "read", None)) or isinstance(f, TextIOBase)):
        raise TypeError(f"load: expected the path of a file, or a binary file open for reading, got {type(f).__name__}")
    place = _placing(map_location)
    if not weights_only and weights_only is not None:
        raise ValueError(
            "load: weights_only=False asks for pickled objects, whose loading runs code that is in the file, which "
            "vmflow never loads; without it, tensors and plain data are loaded, also from PyTorch's files"
        )
    if global_src_rank is not None:
        from .distributed.loading import load_for_all  # imported here, as few programs need it

        if mmap:
            raise ValueError("load: a file that one rank reads for all cannot be mapped into memory; leave out mmap")
        return load_for_all(f, map_location, global_src_rank)
    if isinstance(f, (str, os.PathLike)):
        return _load_path(os.fspath(f), place, bool(mmap))
    if mmap:
        raise ValueError("load: a file that is open cannot be mapped into memory; give its path, or leave out mmap")
    path = str(getattr(f, "name", type(f).__name__))
    content = f.read()
    if _is_pickled(content) or (content.startswith(b"PK") and _is_pytorch_zip(BytesIO(content))):
        return _load_pytorch(BytesIO(content), content, path, place)
    return _decoded(*_read_opened(content, path), path, place)


def _load_path(path: str, place: Placing, mmap: bool) -> Any:
    if os.path.isdir(path) and os.path.exists(os.path.join(path, _GRAPH)):
        raise IsADirectoryError(f"load: {path} is the folder of a graph; load it by vmflow.load_graph")
    with open(path, "rb") as file:
        begin = file.read(_BEGINNING)
    if _is_pickled(begin) or (begin.startswith(b"PK") and _is_pytorch_zip(path)):
        if begin.startswith(b"PK"):
            return _load_pytorch(path, b"", path, place, mmap)
        if mmap:
            raise ValueError(f"load: {path} is in PyTorch's old format, which cannot be mapped; leave out mmap")
        with open(path, "rb") as file:
            return _load_pytorch(path, file.read(), path, place)
    if begin.startswith(b"PK") or _is_npz(path):
        return _decoded(*_read_npz(path, path), path, place)
    return _decoded(*_read(path, path), path, place)


def _decoded(arrays: dict[str, Array], described: str | None, path: str, place: Placing) -> Any:
    reading = _Reading(path, arrays, place)
    if described is None:
        return {name: reading.tensor(name) for name in arrays}
    return reading.decode_file(described)


# The name of a file by which the folder of a saved graph is recognized, see `graph_mode.saving`.
_GRAPH: Final = "job_0.json"

# The number of bytes at the beginning of a file that tell its format.
_BEGINNING: Final = 16


def _is_pickled(begin: bytes) -> bool:
    """Whether a file begins as a pickle of protocol 2 to 5, and not with the length of a safetensors file's header."""
    return begin[:1] == b"\x80" and begin[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and begin[8:9] != b"{"


def _is_pytorch_zip(source: str | IO[bytes]) -> bool:
    from .pytorch_files import is_pytorch_zip  # imported here, as safetensors files do not need it

    try:
        with zipfile.ZipFile(source) as archive:
            return is_pytorch_zip(archive)
    except (ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile):
        return False  # `load` goes on to read the file as npz, which raises the right error


def _load_pytorch(source: str | IO[bytes], content: bytes, path: str, place: Placing, mmap: bool = False) -> Any:
    """Load the object in a PyTorch file: from `content` if it is a pickle, else from the zip archive `source`."""
    from .pytorch_files import MAGIC, load_old, load_zip

    if not _is_pickled(content):
        return load_zip(source, path, place, mmap)
    if MAGIC not in content[: _BEGINNING + len(MAGIC)]:
        raise ValueError(
            f"load: {path} is a pickle, and not one of torch.save's; pickles run code when they are loaded, so vmflow "
            "never does. Save its content by vmflow.save"
        )
    return load_old(content, path, place)


# A function that chooses the device of a loaded tensor from its memory on the host and the name of the device that it
# was saved on.
Placing: TypeAlias = Callable[[Tensor, str], Device]


def _placing(map_location: Any) -> Placing:
    """Make the function that chooses each loaded tensor's device from the argument `map_location` of `load`.

    Raises:
        TypeError: if `map_location` is of another type.
        ValueError: for an unknown device.
        DeviceUnavailable: if a device cannot be used here.
    """
    if isinstance(map_location, dict):
        devices = {_name_of(name): location("load", device) for name, device in map_location.items()}
        return lambda _, name: devices.get(name) or Device("cpu")
    if map_location is None or isinstance(map_location, (str, Device)):
        device = location("load", map_location) or Device("cpu")
        return lambda _, name: device
    if not callable(map_location):
        raise TypeError(
            "load: map_location must be a device such as 'cpu', a dict from names of devices to devices, or a function "
            f"of a storage and the name of its device, not {type(map_location).__name__}"
        )
    from .storages import UntypedStorage, is_storage

    def asked(memory: Tensor, name: str) -> Device:
        found = map_location(UntypedStorage(memory), name)
        return found.device if is_storage(found) else location("load", found) or Device("cpu")

    return asked


def _name_of(given: Any) -> str:
    if not isinstance(given, (str, Device)):
        raise TypeError(f"load: map_location must map the names of devices, such as 'cuda:0', not {given!r}")
    return str(given)


def location(name: str, map_location: Any) -> Device | None:
    """Convert an argument `map_location`, a device or its name, to a device; None stays None.

    Raises:
        TypeError: if `map_location` is of another type; the error names the function `name`.
        ValueError: for an unknown device.
        DeviceUnavailable: if the device cannot be used here.
    """
    if map_location is None:
        return None
    if not isinstance(map_location, (str, Device)):
        raise TypeError(f"{name}: map_location must be a device such as 'cpu', not {type(map_location).__name__}")
    device = Device(map_location)
    device.require()
    return device


def _is_npz(path: str) -> bool:
    return os.path.splitext(path)[1].lower() == ".npz"


def _library() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "vmflow.save and vmflow.load need the package safetensors; install it with: pip install safetensors, "
            "or in a checkout of vmflow: pip install '.[io]'"
        ) from error
    return safetensors


# Writing


class _Writing:
    """Turns an object into the JSON that describes it, and collects the tensors in the object.

    Args:
        npz: whether the file is an npz file instead of a safetensors file.
        whole: whether global tensors are gathered to whole ones; otherwise a global tensor is an error.

    Attributes:
        entries: by the name of each tensor in the file, a function that returns the array to store.
    """

    def __init__(self, npz: bool, whole: bool) -> None:
        self._npz = npz
        self._whole = whole
        self.entries: dict[str, Any] = {}
        self._names: dict[Any, str] = {}

    def encode(self, value: Any, path: tuple[Any, ...], around: tuple[int, ...]) -> Any:
        """Convert `value` to objects for `json.dumps`.

        Args:
            value: a part of the saved object.
            path: the keys that lead from the saved object to `value`.
            around: the ids of the containers around `value`.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is complex:
            return {"complex": [self.encode(part, path, around) for part in (value.real, value.imag)]}
        if isinstance(value, Tensor):
            return self._encode_tensor(value, path)
        if kind not in (dict, OrderedDict, list, tuple):
            raise TypeError(f"save: {_place(path)} is {_described(value)}")
        if id(value) in around:
            raise ValueError(f"save: {_place(path)} contains itself")
        around = (*around, id(value))
        if isinstance(value, dict):
            for key in value:
                if type(key) not in (str, int):
                    raise TypeError(
                        f"save: {_place(path)} has the key {key!r} of type {type(key).__name__}; "
                        "keys must be strings or integers"
                    )
            return {"dict": [[key, self.encode(item, (*path, key), around)] for key, item in value.items()]}
        items = [self.encode(item, (*path, position), around) for position, item in enumerate(value)]
        return items if kind is list else {"tuple": items}

    def _encode_tensor(self, tensor: Tensor, path: tuple[Any, ...]) -> Any:
        blob = tensor._blob
        if blob.meta.spread is not None and not self._whole:
            raise ValueError(
                f"save: {_place(path)} is a global tensor; say by global_dst_rank= which rank writes it as a whole, or "
                "let each rank write its parts by distributed.checkpoint.save"
            )
        key = (blob.storage, blob.meta.shape, blob.meta.dtype, tensor.stride(), blob.offset)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._unused_name(".".join(map(str, path)) or "tensor")
            self.entries[name] = lambda: _stored(tensor, self._npz)
        other = tensor.dtype is dtypes.bfloat16 if self._npz else tensor.is_complex()
        return {"tensor": [name, tensor.dtype.name] if other else name}

    def _unused_name(self, wanted: str) -> str:
        # Different paths may give the same name when joined by dots, and the file format reserves one name.
        # Lone surrogates cannot be encoded in either format; zipfile would cut an entry's name at a null character.
        wanted = wanted.encode(errors="replace").decode()
        if self._npz:
            wanted = wanted.replace("\0", "?")
        name, number = wanted, 1
        while name in self.entries or name == (_KEY if self._npz else "__metadata__"):
            number += 1
            name = f"{wanted}~{number}"
        return name


def _stored(tensor: Tensor, npz: bool) -> Array:
    """A tensor's values as an array for the file: in npz bfloat16 as uint16, in safetensors complex as float pairs."""
    array = np.ascontiguousarray(tensor.detach()._array()).reshape(tuple(tensor.shape))
    if npz:
        return array.view(np.uint16) if tensor.dtype is dtypes.bfloat16 else array
    if tensor.is_complex():
        array = array.reshape(-1).view(tensor.dtype.to_real().numpy).reshape((*tensor.shape, 2))
    return array


def _place(path: tuple[Any, ...]) -> str:
    return "the object" + "".join([f"[{step!r}]" for step in path])


def _described(value: Any) -> str:
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, np.ndarray):
        return f"a {name}, which cannot be saved; make it a tensor with vmflow.tensor(array)"
    if isinstance(value, np.generic):
        return f"a {name}, which cannot be saved; make it a Python number with .item()"
    if hasattr(value, "save_to_folder"):
        return f"a {name}, which is saved to a folder of its own: give it to vmflow.save alone"
    if hasattr(value, "load_state_dict"):
        return (
            f"a {name}, which cannot be saved, since a file holds data and no code; save its state_dict(), and load "
            f"that into a {type(value).__name__} made by your program: made.load_state_dict(vmflow.load(path))"
        )
    return (
        f"a {name}, which cannot be saved; tensors, numbers, strings, None, and dicts, lists and tuples of these can be"
    )


def _put_safetensors(path: str, arrays: dict[str, Array], described: str) -> None:
    safetensors = _library()
    try:
        safetensors.numpy.save_file(arrays, path, metadata={_KEY: described})
    except safetensors.SafetensorError as error:
        raise OSError(f"save: cannot write {path}: {error}") from error


def _put_npz(path: str | IO[bytes], arrays: dict[str, Array], described: str) -> None:
    # As numpy.savez, whose keyword arguments do not allow every name.
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in [*arrays.items(), (_KEY, np.array(described))]:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _write(path: str, put: Callable[[str], None]) -> None:
    """Write a file atomically: `put` writes a temporary file in the same folder, which is flushed and renamed."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    # The file is created here to learn the usual permissions: safetensors may replace it by a file with others.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    mode = os.fstat(descriptor).st_mode & 0o777
    os.close(descriptor)
    try:
        put(temporary)
        with suppress(FileNotFoundError):
            mode = os.stat(path).st_mode & 0o777
        os.chmod(temporary, mode)
        flush(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    flush(folder or ".")


def flush(path: str) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading


def _read(file_path: str, path: str) -> tuple[dict[str, Array], str | None]:
    """Read a safetensors file: its arrays by name, and the JSON of `save` in its metadata (None if there is none).

    Errors name the file `path`.
    """
    safetensors = _library()
    arrays: dict[str, Array] = {}
    try:
        with safetensors.safe_open(file_path, framework="numpy") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118 (it is no dict)
                header = file.get_slice(name)
                kind = header.get_dtype()
                if kind not in _KINDS:
                    raise ValueError(f"load: {path}: {name!r} is of dtype {kind}, which vmflow does not have")
                try:
                    _declared_bytes(name, tuple(header.get_shape()), _WIDEST)
                except ValueError as error:
                    raise ValueError(f"load: {path} is damaged: {error}") from None
                arrays[name] = file.get_tensor(name)
    except safetensors.SafetensorError as error:
        raise ValueError(f"load: {path} is damaged or no safetensors file: {error}") from error
    return arrays, metadata.get(_KEY)


def _read_opened(content: bytes, path: str) -> tuple[dict[str, Array], str | None]:
    """Read arrays and JSON (None if there is none) from a safetensors or npz file's content; errors name `path`."""
    if content.startswith(b"PK"):
        return _read_npz(BytesIO(content), path)
    with tempfile.TemporaryDirectory() as folder:  # safetensors reads metadata from paths only
        copy = os.path.join(folder, "content.safetensors")
        with open(copy, "wb") as file:
            file.write(content)
        return _read(copy, path)


def _read_npz(source: str | IO[bytes], path: str) -> tuple[dict[str, Array], str | None]:
    """Read an npz file: its arrays by name, and the JSON of `save` (None if there is none); `path` is for messages."""
    found: dict[str, Array] = {}
    try:
        with zipfile.ZipFile(source) as archive:
            _check_growth(archive)
            for entry in archive.infolist():
                if not entry.filename.endswith(".npy"):
                    raise ValueError(f"{entry.filename!r} in it is no array")
                found[entry.filename.removesuffix(".npy")] = _read_entry(archive, entry)
    except (
        ValueError,
        EOFError,
        RuntimeError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise ValueError(f"load: {path} is damaged or no npz file of plain arrays: {error}") from error
    described = found.get(_KEY)
    text: str | None = None
    if described is not None and described.dtype.kind == "U" and described.ndim == 0:
        del found[_KEY]
        text = described.item()
    for name, array in found.items() if text is None else ():
        try:
            dtypes.from_numpy(array.dtype)
        except TypeError:
            raise ValueError(f"load: {path}: {name!r} is of {array.dtype}, which vmflow does not have") from None
    return {name: np.require(array, array.dtype.newbyteorder("="), ["C", "W"]) for name, array in found.items()}, text


# The most bytes that the arrays of an npz file may have together: the larger of `_MOST_UNPACKED` and `_MOST_GROWTH`
# times the file's size, so that a small file cannot take all memory.
_MOST_UNPACKED: Final = 1 << 30
_MOST_GROWTH: Final = 100

# The most bytes that an array in a file may have (counting sizes of 0 as 1), and the most dimensions.
_MOST_BYTES: Final = 1 << 62
_MOST_DIMENSIONS: Final = 32

# The widest type of elements that a tensor can have.
_WIDEST: Final = np.dtype(np.complex128)

# The most bytes that are read from an npz file's entry at a time.
_CHUNK: Final = 1 << 20


def _check_growth(archive: zipfile.ZipFile) -> None:
    """Raise ValueError if a zip's entries claim more bytes than the file has, or too many unpacked bytes."""
    assert archive.fp is not None
    begin = archive.fp.tell()
    size = archive.fp.seek(0, os.SEEK_END)
    archive.fp.seek(begin)
    packed = sum([entry.compress_size for entry in archive.infolist()])
    unpacked = sum([entry.file_size for entry in archive.infolist()])
    if packed > size:
        raise ValueError(f"its entries are said to take {packed} bytes, and the file has {size}")
    most = max(_MOST_UNPACKED, _MOST_GROWTH * size)
    if unpacked > most:
        raise ValueError(
            f"its arrays are said to have {unpacked} bytes, of which a compressed file of {size} bytes may have "
            f"{most}; write it anew without compression, by numpy.savez"
        )


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """Read an array from an npz file's entry; memory is allocated only if the entry's size matches its header."""
    with archive.open(entry) as content:
        version = np.lib.format.read_magic(content)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(
                f"{entry.filename!r} is of the version {version} of the format, which plain arrays are not"
            )
        read_header = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(content)
        nbytes = _declared_bytes(entry.filename, shape, dtype)
        if entry.file_size - content.tell() != nbytes:
            raise ValueError(
                f"{entry.filename!r} has {entry.file_size - content.tell()} bytes of data, and {dtype}{list(shape)} "
                f"takes {nbytes}"
            )
        memory = np.empty(nbytes, np.uint8)
        view, done = memory.data, 0
        while done < nbytes:
            part = content.read(min(_CHUNK, nbytes - done))
            if not part:
                raise EOFError(f"{entry.filename!r} ends after {done} bytes of {nbytes}")
            view[done : done + len(part)] = part
            done += len(part)
        content.read(1)  # zipfile compares the checksum when it reads at the end
        return np.ndarray(shape, dtype, memory, order="F" if fortran else "C")


def _declared_bytes(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The number of bytes of an array that a file declares as having `shape` and `dtype`; errors name the entry `name`.

    Raises:
        ValueError: if no array can have the shape, or if it holds Python objects, which would be pickled.
    """
    if dtype.hasobject:
        raise ValueError(f"{name!r} holds Python objects, which are never unpickled")
    if len(shape) > _MOST_DIMENSIONS or any([type(size) is not int or size < 0 for size in shape]):
        raise ValueError(f"{name!r} cannot have the shape {list(shape)}")
    if math.prod([max(size, 1) for size in shape]) * dtype.itemsize > _MOST_BYTES:
        raise ValueError(f"{name!r} of the shape {list(shape)} is too large for any memory")
    return math.prod(shape) * dtype.itemsize


# safetensors' names of the dtypes that vmflow has.
_KINDS: Final = ("BOOL", "U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64", "C64")


class _Reading:
    """Turns JSON and arrays into the saved object; raises ValueError if this version of vmflow cannot read them."""

    def __init__(self, path: str, arrays: dict[str, Array], place: Placing) -> None:
        self._path = path
        self._arrays = arrays
        self._place = place
        self._tensors: dict[tuple[str, str], Tensor] = {}

    def decode_file(self, described: str) -> Any:
        """Decode the whole saved object from `described`, the JSON text in the file."""
        try:
            content = json.loads(described, parse_constant=self._refuse_constant)
            if not isinstance(content, dict) or content.keys() != {"format", "root"}:
                raise self._damaged("its description is not one that save() writes")
            if content["format"] != _FORMAT:
                raise ValueError(
                    f"load: {self._path} is of format {content['format']!r}, and this version of vmflow reads "
                    f"{_FORMAT}; a newer version may have written it"
                )
            return self.decode(content["root"])
        except json.JSONDecodeError as error:
            raise self._damaged(f"its description is no JSON: {error}") from error
        except RecursionError:
            raise self._damaged("its description is nested too deeply") from None

    def decode(self, value: Any) -> Any:
        """Decode the object that a part of the parsed JSON describes, with the objects inside it."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((kind, content),) = value.items()
            if kind == "tensor":
                return self._decode_tensor(content)
            if kind == "float" and content in ("nan", "inf", "-inf"):
                return float(content)
            if kind in ("dict", "tuple", "complex") and isinstance(content, list):
                return {"dict": self._decode_dict, "tuple": self._decode_tuple, "complex": self._decode_complex}[kind](
                    content
                )
        raise self._damaged(f"unexpected {str(value)[:80]} in its description")

    def _decode_dict(self, pairs: list[Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (str, int):
                raise self._damaged(f"{str(pair)[:80]} is no key and value")
            if pair[0] in found:
                raise self._damaged(f"the key {pair[0]!r} appears twice in a dict")
            found[pair[0]] = self.decode(pair[1])
        return found

    def _decode_tuple(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple([self.decode(item) for item in items])

    def _decode_complex(self, parts: list[Any]) -> complex:
        numbers = [self.decode(part) for part in parts]
        if len(numbers) != 2 or any(type(number) is not float for number in numbers):
            raise self._damaged(f"{str(parts)[:80]} is no complex number")
        return complex(*numbers)

    def _decode_tensor(self, content: Any) -> Tensor:
        if isinstance(content, str):
            return self.tensor(content)
        if isinstance(content, list) and len(content) == 2:
            name, seen_as = content
            if isinstance(name, str) and seen_as in ("complex64", "complex128", "bfloat16"):
                return self.tensor(name, seen_as)
        raise self._damaged(f"{str(content)[:80]} names no tensor")

    def tensor(self, name: str, seen_as: str = "") -> Tensor:
        """Return a tensor of the entry `name`, the same memory each time; `seen_as`: its dtype if not the entry's."""
        key = (name, seen_as)
        found = self._tensors.get(key)
        if found is not None:
            return found.detach()  # the same memory
        array = self._arrays.get(name)
        if array is None:
            raise self._damaged(f"it holds no tensor {name!r}")
        if seen_as == "bfloat16":
            if array.dtype != np.uint16:
                raise self._damaged(f"{name!r} of {array.dtype}{list(array.shape)} does not hold bfloat16 numbers")
            array = array.view(dtypes.bfloat16.numpy)
        elif seen_as:
            dtype = dtypes.by_name(seen_as)
            if array.dtype != dtype.to_real().numpy or array.shape[-1:] != (2,):
                raise self._damaged(f"{name!r} of {array.dtype}{list(array.shape)} does not hold {seen_as} numbers")
            array = array.reshape(-1).view(dtype.numpy).reshape(array.shape[:-1])
        try:
            tensor = from_array(array, Device("cpu"))
        except TypeError as error:
            raise self._damaged(f"{name!r}: {error}") from None
        device = self._place(tensor, "cpu")
        tensor = self._tensors[key] = tensor if device is tensor.device else tensor.to(device)
        return tensor

    def _damaged(self, how: str) -> ValueError:
        return ValueError(f"load: {self._path} is damaged: {how}")

    def _refuse_constant(self, name: str) -> Any:
        raise self._damaged(f"{name} is no JSON")
