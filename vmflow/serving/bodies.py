"""Bodies of requests and answers: from untrusted bytes to the inputs of a session, and from results to bytes.

A body is JSON, ``{"inputs": ...}``, with nested lists of numbers or booleans; or one array as an npy file; or arrays by
name, as a safetensors file.  So that a hostile body costs little time and memory, the following is checked before
objects are made of it:

- the number of bytes, by the headers and as they arrive;
- in JSON, the depth and number of lists, and the numbers of values, strings and digits;
- in npy and safetensors, the dtypes and shapes in their headers.

Errors in a body are `InvalidInput`, with the status that fits.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.tensors import Tensor

from .errors import InvalidInput, ServingError
from .specs import Signature, TensorSpec
from .tensor_bytes import read_npy, read_safetensors, unique, write_npy, write_safetensors

JSON: Final = "application/json"
NPY: Final = "application/x-npy"
SAFETENSORS: Final = "application/x-safetensors"
KINDS: Final = (JSON, NPY, SAFETENSORS)

Number = TypeVar("Number", int, float)

# Types of ASGI: a message, a function that receives the next message, and the headers of a request.
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
# Called every so often while a long body is read.
Pause: TypeAlias = Callable[[], None]

# The most bytes of a number in JSON that `body_limit` counts on: "-1.7976931348623157e+308, ".
_NUMBER: Final = 26
# A number with so many digits in a row is refused; the largest float64 has 309 before its point.
_MOST_DIGITS: Final = 400
# About how many numbers are read without a pause, or written in one piece.
_STRIDE: Final = 1024
# After more characters of JSON than this, the writer waits for the next turn of the event loop.
_TURN: Final = 16 * _STRIDE

# An unterminated string reaches to the end of the body, so that no byte is scanned twice.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_STRUCTURE: Final = bytes([index for index in range(256) if index not in b"[]{},:"])
_DIGITS: Final = bytes([ord("0") if chr(index).isdecimal() and index < 128 else ord(" ") for index in range(256)])
_STEPS: Final = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


class BadBody(InvalidInput, status=400):
    """The body is not JSON as it should be, or Content-Length is malformed."""


class TooLarge(InvalidInput, status=413):
    """The body has more bytes than the server takes."""


class UnknownKind(InvalidInput, status=415):
    """The body is of a media type, charset or compression that the server does not take."""


class NotAcceptable(InvalidInput, status=406):
    """The answer cannot be given in the media type that the client prefers."""


class ClientGone(ServingError, status=499, reason="gone"):
    """The client has left before its request was complete; nobody reads an answer."""


class SlowBody(ServingError, status=408, reason="slow"):
    """The body has not arrived within the server's `body_timeout`."""


# Reading


def body_limit(signature: Signature) -> int:
    """Bytes that are enough for a signature's largest inputs, in any of `KINDS`; for JSON as `json.dumps` writes it."""
    most = _most(tuple(signature.specs))
    # A character of a name in JSON has at most 12 bytes; the rest of an entry in a safetensors header has some 200.
    names = sum([200 + 12 * len(name) for name in signature.names])
    return max(most.elements * _NUMBER + 4 * most.lists, 2 * signature.nbytes()) + names + (1 << 14)


async def read_body(
    receive: Receive, headers: Headers, most: int, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """All of a body, refused as soon as it is known to be too large.

    Args:
        receive: of the ASGI server.
        headers: of the request.
        most: the most bytes.
        take: called with the size of each part that is not empty, before the part is kept; its exceptions pass through.

    Raises:
        TooLarge: if there are more bytes, or Content-Length says so.
        BadBody: if Content-Length is anything but 1 to 18 digits.
        UnknownKind: if the body is compressed, so that its size is unknown.
        ClientGone: if the client leaves.
    """
    for name, value in headers:
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                raise BadBody("Content-Length is not a number of bytes")
            if int(value) > most:
                raise TooLarge(f"a body of {int(value)} bytes; at most {most} are taken")
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnknownKind("compressed bodies are not taken")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client has left before its request was complete")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise TooLarge(f"the body has more than {most} bytes, which are all that are taken")
        if part:
            take(len(part))
            parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def kind_of(headers: Headers) -> str:
    """The kind of a body, one of `KINDS`; JSON without Content-Type.

    Raises:
        UnknownKind: if there are several Content-Types or an unknown one, or the charset is not UTF-8 or US-ASCII.
    """
    types = [value for name, value in headers if name == b"content-type"]
    if not types:
        return JSON
    name, _, parameters = types[0].decode("latin-1").lower().partition(";")
    name = name.strip()
    if len(types) > 1 or name not in KINDS:
        raise UnknownKind(f"the body is {name[:80] or 'of no kind'!r}; taken are {', '.join(KINDS)}")
    charset = [
        entry.partition("=")[2].strip(' "') for entry in parameters.split(";") if entry.strip().startswith("charset=")
    ]
    if any([entry not in ("utf-8", "utf8", "us-ascii") for entry in charset]):
        raise UnknownKind(f"JSON must be UTF-8, not {charset[0][:80]}")
    return name


def inputs_of(body: bytes, kind: str, signature: Signature, pause: Pause | None = None) -> Any:
    """The inputs in a body, as `InferenceSession.run` takes them; `run` checks them further.

    Args:
        body: the whole body.
        kind: one of `KINDS`.
        signature: of the session.
        pause: called every so often while numbers are read from JSON, so that other threads get to run.

    Raises:
        InvalidInput: if the body is not of that kind, or cannot be inputs of that signature.
    """
    if kind == JSON:
        return _from_json(body, signature, pause)
    if kind == NPY:
        if len(signature.specs) != 1:
            raise InvalidInput(f"an npy file is one array, and {len(signature.specs)} inputs are expected")
        return signature.packed([read_npy(body)])
    arrays = read_safetensors(body, len(signature.specs))
    if signature.named:
        return arrays
    wanted = [str(place) for place in range(len(signature.specs))]
    if signature.single:
        if len(arrays) != 1:
            raise InvalidInput(f"expected one tensor, got {len(arrays)}")
        return next(iter(arrays.values()))
    if sorted(arrays) != sorted(wanted):
        raise InvalidInput(f"expected tensors of the names {', '.join(wanted)}")
    return [arrays[name] for name in wanted]


def _from_json(body: bytes, signature: Signature, pause: Pause | None) -> Any:
    _count(body, signature)
    finite = all([spec.finite for spec in signature.specs])
    real = None if pause is None else _pausing(float, pause)
    try:
        content = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=unique,
            parse_constant=_no_constant if finite else real,
            parse_float=real,
            parse_int=None if pause is None else _pausing(int, pause),
        )
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict) or content.keys() != {"inputs"}:
        raise InvalidInput('expected an object {"inputs": ...} with nothing else in it')
    return content["inputs"]


def _pausing(convert: Callable[[str], Number], pause: Pause) -> Callable[[str], Number]:
    """Return a function that converts as `convert` does, and pauses once in `_STRIDE` calls."""
    left = _STRIDE

    def converted(text: str) -> Number:
        nonlocal left
        left -= 1
        if not left:
            left = _STRIDE
            pause()
        return convert(text)

    return converted


def _count(body: bytes, signature: Signature) -> None:
    """Refuse JSON that cannot be inputs, by its brackets, commas, strings and digits; in linear time."""
    most = _most(tuple(signature.specs))
    # The quotes are counted first, so that a body with too many strings is refused before its strings are replaced.
    if body.count(b'"') > 2 * (len(signature.specs) + 2) + sum([name.count('"') for name in signature.names]):
        raise InvalidInput("the body has more strings than there are names of inputs")
    bare, strings = _STRING.subn(b'"', body)
    structure = bare.translate(None, _NOT_STRUCTURE)
    keys = structure.count(b":")
    if strings != keys:
        raise BadBody("the body has strings other than the names of inputs, or is not JSON")
    if keys > len(signature.specs) + 1:
        raise InvalidInput("the body has more keys than there are inputs")
    if structure.count(b",") > most.elements + most.lists + keys:
        raise InvalidInput("the body has more values than the inputs can have")
    if structure.count(b"[") + structure.count(b"{") > most.deep:
        deep = np.cumsum(_STEPS[np.frombuffer(structure, np.uint8)], dtype=np.int32).max()
        if deep > most.deep:
            raise InvalidInput(f"the body is nested {deep} deep; inputs of this shape are {most.deep} at most")
    if len(bare) >= _MOST_DIGITS and b"0" * _MOST_DIGITS in bare.translate(_DIGITS):
        raise InvalidInput(f"a number has {_MOST_DIGITS} digits or more")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not in JSON")


class _Most(NamedTuple):
    """How many elements and lists the largest inputs have, and the depth of their lists in the object of a body.

    The list or dict around several inputs counts even if there is only one.
    """

    elements: int
    lists: int
    deep: int


@cache
def _most(specs: tuple[TensorSpec, ...]) -> _Most:
    shapes = [spec.largest() for spec in specs]
    # An array of shape (a, b, c) is 1 + a + a * b lists.
    lists = sum([math.prod(sizes[:place]) for sizes in shapes for place in range(len(sizes))])
    deepest = max([len(sizes) for sizes in shapes])
    return _Most(sum([math.prod(sizes) for sizes in shapes]), lists + 1, deepest + 2)


# Writing


def accepted(headers: Headers) -> str:
    """The kind that the client prefers for the answer, among equals the first of `KINDS`; JSON without Accept.

    Raises:
        NotAcceptable: if none of `KINDS` is wanted.
    """
    accept = b",".join([value for name, value in headers if name == b"accept"]).decode("latin-1").lower()
    if not accept.strip():
        return JSON
    ranges: dict[str, float] = {}
    for entry in accept.split(",")[:100]:
        name, *parameters = [part.strip() for part in entry.split(";")]
        ranges[name] = max([_quality(part) for part in parameters if part.startswith("q=")], default=1.0)
    best, most = JSON, 0.0
    for kind in KINDS:
        wanted = [ranges[entry] for entry in (kind, kind.partition("/")[0] + "/*", "*/*") if entry in ranges]
        if wanted and wanted[0] > most:
            best, most = kind, wanted[0]
    if not most:
        raise NotAcceptable(f"answers are {', '.join(KINDS)}; none of these is wanted")
    return best


def _quality(parameter: str) -> float:
    match = re.fullmatch(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", parameter)
    return float(match[1]) if match is not None else 0.0


async def encoded(result: Any, kind: str) -> bytes:
    """A result as the body of an answer.

    JSON is ``{"outputs": ...}``, see `to_json`.  In a safetensors file the name of an array is the path to it, joined
    by dots, or "outputs" if the result itself is an array.

    Raises:
        NotAcceptable: for npy, if the result has not exactly one array; for safetensors, for two arrays of one name or
            a dtype that safetensors lacks; for both, for other values than arrays.
        TypeError: for JSON, as `to_json`.
    """
    if kind == JSON:
        return await to_json({"outputs": result})
    named = _named(result, "")
    if kind == NPY:
        if len(named) != 1:
            raise NotAcceptable(f"the answer is {len(named)} arrays, which an npy file cannot be")
        return write_npy(named[0][1])
    arrays: dict[str, Array] = {}
    for name, array in named:
        if name in arrays:
            raise NotAcceptable(f"the answer has two arrays of the name {name!r}, which a safetensors file cannot have")
        arrays[name] = array
    try:
        return write_safetensors(arrays)
    except TypeError as error:
        raise NotAcceptable(str(error)) from None


def _named(value: Any, name: str) -> list[tuple[str, Array]]:
    if isinstance(value, dict):
        return [entry for key, inner in value.items() for entry in _named(inner, f"{name}.{key}" if name else str(key))]
    if isinstance(value, (tuple, list)):
        return _named(dict(enumerate(value)), name)
    if not isinstance(value, np.ndarray):
        raise NotAcceptable(f"the answer has a {type(value).__name__} in it, which only JSON can tell")
    return [(name or "outputs", value)]


async def to_json(value: Any) -> bytes:
    """A result as JSON, in one line.  Other tasks of the loop may run meanwhile.

    JSON has no nan and no infinities: they become null.  A complex number becomes [real, imaginary], bfloat16 an
    ordinary number.

    Raises:
        TypeError: for a value other than a number, a bool, an array of these, a tensor, a string, None, or lists,
            tuples and dicts of these; for a dict with keys that become one string, such as 1 and "1".
    """
    parts: list[str] = []
    since = 0
    for part in _parts(value):
        if since > _TURN:
            since = 0
            await asyncio.sleep(0)
        parts.append(part)
        since += len(part)
    return "".join(parts).encode()


def _parts(value: Any) -> Iterator[str]:
    """Yield the JSON of a result in pieces."""
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind in "OSUmM":
            raise TypeError(f"an array of {array.dtype} cannot be told in JSON")
        yield from _parts_of(np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array)
    elif isinstance(value, dict):
        entries = {str(key): inner for key, inner in value.items()}
        if len(entries) != len(value):
            raise TypeError(f"the keys {list(value)} cannot be told in JSON: some are one string")
        yield "{"
        for place, (key, inner) in enumerate(entries.items()):
            yield f"{',' if place else ''}{json.dumps(key)}:"
            yield from _parts(inner)
        yield "}"
    elif isinstance(value, (tuple, list)):
        yield "["
        for place, inner in enumerate(value):
            if place:
                yield ","
            yield from _parts(inner)
        yield "]"
    elif isinstance(value, complex):
        yield from _parts([value.real, value.imag])
    elif isinstance(value, float) and not math.isfinite(value):
        yield "null"
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield json.dumps(value)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be told in JSON")


def _parts_of(array: Array) -> Iterator[str]:
    if array.size <= _STRIDE:
        yield _dumped(array)
        return
    rows = max(1, _STRIDE * len(array) // array.size)
    yield "["
    for start in range(0, len(array), rows):
        if start:
            yield ","
        some = array[start : start + rows]
        if some.size <= _STRIDE:
            yield _dumped(some)[1:-1]
        else:
            yield from _parts_of(some[0])
    yield "]"


def _dumped(array: Array) -> str:
    return json.dumps(_listed(array), allow_nan=False, separators=(",", ":"))


def _listed(array: Array) -> Any:
    if array.dtype.kind in "biu":
        return array.tolist()
    if array.dtype.kind != "f":  # bfloat16
        array = array.astype(np.float32)
    finite = np.isfinite(array)
    if finite.all():
        return array.tolist()
    plain: Array = array.astype(object)
    plain[~finite] = None
    return plain.tolist()
