"""Reads and writes arrays in numpy's npy and in the safetensors format; the bytes may come from anybody.

Reading copies no array but booleans, and never executes or unpickles anything: a header must match the format exactly,
and its sizes must match the number of bytes.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

from vmflow.instructions.blob import Array

from .errors import InvalidInput

# The most bytes of an npy header; numpy itself refuses longer ones.  Headers of safetensors may have some more.
_LONGEST_HEADER: Final = 10_000

# The most elements that a shape may have: numpy makes no array whose nonzero sizes multiply to more than sys.maxsize
# bytes, and an array may be converted to the widest dtype, whose elements have 16.
_MOST_ELEMENTS: Final = sys.maxsize // 16

_MAGIC: Final = b"\x93NUMPY"
_ITEM: Final = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>descr|fortran_order|shape)(?P=quote)\s*:\s*
    (?: (?P<string>'[<>|=]?[a-z][0-9]{1,2}'|"[<>|=]?[a-z][0-9]{1,2}")
      | (?P<truth>True|False)
      | \(\s*(?P<sizes>(?:[0-9]{1,18}\s*,\s*)*(?:[0-9]{1,18})?)\s*\)
    )\s*""",
    re.VERBOSE | re.ASCII,
)
_KINDS: Final = {"descr": "string", "fortran_order": "truth", "shape": "sizes"}

# The dtypes of npy that are taken: vmflow's but the complex ones; a bool is read as a byte, as below.
_DESCRIPTIONS: Final[dict[str, Any]] = {
    "b1": np.uint8,
    "u1": np.uint8,
    **{f"u{size}": f"u{size}" for size in (2, 4, 8)},
    **{f"i{size}": f"i{size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"f{size}" for size in (2, 4, 8)},
}

# safetensors' names of dtypes; a bool is read as a byte, since its byte need not be 0 or 1.
_NAMES: Final[dict[str, Any]] = {
    "BOOL": np.uint8,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
}
_WRITTEN: Final = {np.dtype(value): name for name, value in _NAMES.items() if name != "BOOL"} | {
    np.dtype(np.bool_): "BOOL"
}


class BadBytes(InvalidInput, status=400):
    """The bytes are not an npy or safetensors file that can be taken."""


def read_npy(body: bytes) -> Array:
    """The array of numbers or booleans in an npy file; numbers are a view of the body.

    Raises:
        BadBytes: if the body is no such file, its dtype is not in `_DESCRIPTIONS`, or its size does not fit its header.
    """
    if len(body) < 10 or body[:6] != _MAGIC:
        raise BadBytes("npy: the body does not begin as an npy file does")
    major = body[6]
    if major not in (1, 2, 3):
        raise BadBytes(f"npy: version {major} is not known")
    begin = 10 if major == 1 else 12
    length = int.from_bytes(body[8:begin], "little")
    if length > _LONGEST_HEADER or begin + length > len(body):
        raise BadBytes(f"npy: a header of {length} bytes, in a body of {len(body)}")
    descr, fortran, shape = _npy_header(body[begin : begin + length].decode("latin-1"))
    dtype = _DESCRIPTIONS.get(descr.lstrip("<>|="))
    if dtype is None:
        raise BadBytes(f"npy: {descr} is not a dtype of numbers that is taken")
    dtype = np.dtype(dtype).newbyteorder(">" if descr[0] == ">" else "<")
    array = _view(body, begin + length, len(body), dtype, shape, fortran, "npy")
    return array != 0 if descr.endswith("b1") else array


def _npy_header(header: str) -> tuple[str, bool, tuple[int, ...]]:
    text = header.strip()
    found: dict[str, str] = {}
    inside, place = text[1:-1], 0
    while place < len(inside):
        item = _ITEM.match(inside, place)
        if item is None or item["key"] in found or item[_KINDS[item["key"]]] is None:
            break
        found[item["key"]] = item[_KINDS[item["key"]]]
        place = item.end()
        if place < len(inside) and inside[place] != ",":
            break
        place += 1
    if text[:1] != "{" or text[-1:] != "}" or found.keys() != _KINDS.keys() or inside[place:].strip():
        raise BadBytes("npy: the header is not that of an array of numbers")
    sizes = tuple([int(size) for size in found["shape"].split(",") if size.strip()])
    return found["descr"][1:-1], found["fortran_order"] == "True", sizes


def _view(
    body: bytes, begin: int, end: int, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool, about: str
) -> Array:
    """View a range of the body's bytes as an array of this dtype and shape; raise BadBytes if the size does not fit."""
    if math.prod([size for size in shape if size]) > _MOST_ELEMENTS:  # even if another size is 0
        raise BadBytes(f"{about}: no array can have the shape {list(shape)}, its sizes are too large")
    if len(shape) > 32 or math.prod(shape) * dtype.itemsize != end - begin:
        raise BadBytes(f"{about}: {end - begin} bytes of data are not a {dtype.name} array of shape {list(shape)}")
    return np.ndarray(shape, dtype, body, begin, order="F" if fortran else "C")


def write_npy(array: Array) -> bytes:
    """An array as a file for `numpy.load`; bfloat16 as float32."""
    from io import BytesIO

    if array.dtype == ml_dtypes.bfloat16:  # npy has no name for bfloat16
        array = array.astype(np.float32)
    file = BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()


def read_safetensors(body: bytes, most: int) -> dict[str, Array]:
    """The arrays in a safetensors file by name; all but booleans are views of the body.

    Args:
        body: the file.
        most: how many arrays it may have.

    Raises:
        BadBytes: if the body is no such file, or has more arrays, or dtypes that are not in `_NAMES`.
    """
    length = int.from_bytes(body[:8], "little")
    if len(body) < 8 or length > min(len(body) - 8, _LONGEST_HEADER + 200 * most):
        raise BadBytes(f"safetensors: a header of {length} bytes, in a body of {len(body)}")
    header = _safetensors_header(body[8 : 8 + length])
    if len(header) > most:
        raise BadBytes(f"safetensors: {len(header)} tensors, and there are {most} inputs at most")
    found: dict[str, Array] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        dtype, shape, (begin, end) = _entry(name, entry)
        if end > len(body) - 8 - length:
            raise BadBytes(f"safetensors: tensor {name[:80]!r} ends behind the end of the body")
        about = f"safetensors: tensor {name[:80]!r}"
        array = _view(
            body, 8 + length + begin, 8 + length + end, np.dtype(_NAMES[dtype]).newbyteorder("<"), shape, False, about
        )
        found[name] = array != 0 if dtype == "BOOL" else array
        spans.append((begin, end))
    place = 0
    for begin, end in sorted(spans):
        if begin != place:
            raise BadBytes("safetensors: the tensors do not follow each other without gaps")
        place = end
    if place != len(body) - 8 - length:
        raise BadBytes("safetensors: there are bytes behind the last tensor")
    return found


def _safetensors_header(text: bytes) -> dict[str, Any]:
    if text.count(b"[") > 4 * text.count(b"{") or text.count(b"{") > text.count(b":") + 1:
        raise BadBytes("safetensors: the header is not that of a safetensors file")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise BadBytes(f"safetensors: the header is not the JSON of one: {error}") from None
    if not isinstance(header, dict):
        raise BadBytes("safetensors: the header is not an object")
    header.pop("__metadata__", None)
    return header


def _entry(name: str, entry: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """The dtype, the shape and the offsets of the data, from a tensor's entry in a header of safetensors."""
    wanted = {"dtype", "shape", "data_offsets"}
    if not isinstance(entry, dict) or entry.keys() != wanted:
        raise BadBytes(f"safetensors: tensor {name[:80]!r} is not described by {', '.join(sorted(wanted))}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _NAMES:
        raise BadBytes(f"safetensors: tensor {name[:80]!r} is of a dtype that is not taken")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(
            [type(number) is int and 0 <= number < 1 << 60 for number in numbers]
        ):
            raise BadBytes(f"safetensors: shape and data_offsets of {name[:80]!r} must be lists of sizes")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BadBytes(f"safetensors: data_offsets of {name[:80]!r} must be a begin and an end")
    return dtype, tuple(shape), (offsets[0], offsets[1])


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of the pairs of a JSON object, whose names must be unique.

    Raises:
        ValueError: if a key occurs twice, since readers differ in the value that they take.
    """
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("an object has the same key twice")
    return content


def write_safetensors(arrays: Mapping[str, Array]) -> bytes:
    """Arrays as a safetensors file; all dtypes of vmflow but the complex ones.

    Raises:
        TypeError: for any other dtype.
    """
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    place = 0
    # The arrays of the widest dtypes come first, so that each begins at a multiple of its element size.
    for name, array in sorted(arrays.items(), key=lambda value: -value[1].itemsize):
        if array.dtype not in _WRITTEN:
            raise TypeError(f"safetensors has no word for {array.dtype}, which {name!r} is of")
        data = array.tobytes()
        header[name] = {
            "dtype": _WRITTEN[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [place, place + len(data)],
        }
        parts.append(data)
        place += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])
