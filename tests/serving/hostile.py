"""Requests that no well-meaning client sends: bodies, headers and framings, as strategies of hypothesis."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from vmflow.serving.bodies import JSON, NPY, SAFETENSORS
from vmflow.serving.tensor_bytes import write_safetensors

# Where `tests.serving.served` answers for the kind "hostile", and whether the inputs there have names.
ONE: Final = "/one"
NAMED: Final = "/named"
WIDE: Final = "/wide"
# Rows and columns that the first two take at most, and the numbers that the third takes.
ROWS, COLUMNS = 8, 3
WIDTH: Final = 20_000


@attrs.frozen
class Hostile:
    """A request as it goes over the wire.

    Attributes:
        family: the kind of attack, for the count.
        raw: all of it.
        leaves: whether the client closes its side behind that, since the request has no end.
        alone: whether the connection cannot be used again, since nobody knows where the request ends.
    """

    family: str
    raw: bytes
    leaves: bool = False
    alone: bool = False


# Pieces

_WORDS: Final = (
    rb"0 -0 1 -1 01 +1 1. .5 0x10 1e5 1E+5 1e999 -1e999 1e-999 NaN -NaN Infinity -Infinity null true false True None "
    rb'"" "1" "inputs" "\u0000" "\ud800" ' + b"\xc3\xa9 \xff \xed\xa0\x80 \x00 [ ] { } , :"
).split(b" ")


def _once_in(draw: st.DrawFn, times: int) -> bool:
    """True once in so many times: small integers themselves are drawn more often than others."""
    return bool(draw(st.sampled_from([*[False] * (times - 1), True])))


def _number(value: float) -> bytes:
    return json.dumps(value).encode()


_SCALARS: Final = st.one_of(
    st.sampled_from(_WORDS),
    st.integers(-300, 300).map(_number),
    st.floats().map(_number),
    st.integers(1, 600).map(lambda digits: b"9" * digits),
    st.text(max_size=5).map(lambda x: json.dumps(x).encode()),
    st.text(max_size=5).map(lambda x: b'"' + x.encode("utf-8", "surrogatepass") + b'"'),
)
_KEYS: Final = st.sampled_from(rb'"inputs" "table" "scale" "Inputs" "" "\u0069nputs" inputs 1'.split(b" "))


def _list(values: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"


def _object(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b",".join([key + b":" + value for key, value in items]) + b"}"


_TREES: Final = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=5).map(_list) | st.lists(st.tuples(_KEYS, inner), max_size=4).map(_object),
    max_leaves=12,
)


@st.composite
def _tables(draw: st.DrawFn) -> bytes:
    """An input that nearly fits, with something strange in it somewhere."""
    rows, columns = draw(st.integers(1, ROWS + 1)), draw(st.sampled_from([COLUMNS, COLUMNS, COLUMNS, 2, 4, 0]))
    table = [[b"1.5"] * columns for _ in range(rows)]
    for row, column, value in draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), _SCALARS), max_size=2)):
        if columns:
            table[row % rows][column % columns] = value
    lines = [_list(row) for row in table]
    if _once_in(draw, 8):
        lines[draw(st.integers(0, rows - 1))] = draw(_TREES)
    return _list(lines)


def _nested(opening: bytes, depth: int, closing: bytes) -> bytes:
    return opening * depth + b"0" + closing * depth


_DEEP: Final = st.builds(
    _nested,
    st.sampled_from([b"[", b'{"a":', b'{"inputs":', b"[[", b"[0,"]),
    st.integers(1, 20) | st.sampled_from([100, 1000, 3000, 30_000]),
    st.sampled_from([b"]", b"}", b"]]", b""]),
)


@st.composite
def json_bodies(draw: st.DrawFn) -> bytes:
    """JSON, or nearly."""
    value: bytes = draw(st.one_of(_tables(), _tables(), _TREES, _DEEP))
    shape = draw(st.sampled_from(range(10)))
    if shape < 5:
        whole = b'{"inputs": ' + value + b"}"
    elif shape < 7:
        whole = _object([(b'"inputs"', _object([(b'"table"', value), (b'"scale"', draw(_SCALARS))]))])
    elif shape == 7:
        whole = _object([(draw(_KEYS), value), (draw(_KEYS), draw(_TREES))])
    else:
        whole = value
    if _once_in(draw, 10):
        before, after = draw(st.sampled_from([b"\xef\xbb\xbf", b" \r\n", b"\x00"])), draw(st.sampled_from(_WORDS))
        whole = before + whole + after
    if _once_in(draw, 20):
        encoding = draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-7"]))
        whole = whole.decode("utf-8", "replace").encode(encoding)
    return whole


# Files of arrays

_DTYPES: Final = st.sampled_from(
    ["f4", "f4", "<f8", ">f4", "i8", "u1", "u8", "b1", "f2", "c8", "S3", "U2", "M8[s]", "O", "V4", "f4,i4", "f16"]
)
_SHAPES: Final = st.sampled_from(
    [*[(2, COLUMNS)] * 3, (ROWS, COLUMNS), (ROWS + 1, COLUMNS), (), (0, COLUMNS), (6,), (1,) * 32]
)


def _npy_of(shape: tuple[int, ...], dtype: str, order: Any, version: Any) -> bytes:
    file = io.BytesIO()
    array = np.zeros(shape, np.dtype(dtype), order=order)
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


_DESCRIPTIONS: Final = st.sampled_from(
    ["'<f4'", "'<f4'", "'|O'", "'<f99'", "[('a', '<f4')]", "'<M8[s]'", "None", "__import__('os')", "'<f4", "b'<f4'"]
)
_NPY_SHAPES: Final = st.sampled_from(
    ["(2, 3)", "(2, 3)", "(3,)", "()", "(-1, 3)", "(-2, -3)", "(2.0, 3)", "(1" + "0" * 17 + ",)", "(" + "9" * 40 + ",)"]
    + ["(4294967296, 4294967296, 4294967296)", "(2, 3", "(0, 3)", "(True, 3)", "(2L, 3)", "(" + "1," * 3000 + ")", "2"]
    + ["(0, 999999999999999999, 999999999999999999)", "(999999999999999999, 0, 99)"]
)


@st.composite
def _written_npy(draw: st.DrawFn) -> bytes:
    """An npy file whose header is written by hand."""
    items = [
        ("'descr'", draw(_DESCRIPTIONS)),
        ("'fortran_order'", draw(st.sampled_from(["False", "False", "True", "0", "None"]))),
        ("'shape'", draw(_NPY_SHAPES)),
    ]
    items += draw(st.lists(st.sampled_from([*items, ("'more'", "1")]), max_size=1))
    header = ("{" + ", ".join([f"{key}: {value}" for key, value in draw(st.permutations(items))]) + "}\n").encode()
    major = draw(st.sampled_from([1, 1, 1, 2, 3, 0, 4, 255]))
    told = len(header) + draw(st.sampled_from([0, 0, 0, 0, -1, 1, 1000, 65_000]))
    length = min(told, 65_535).to_bytes(2 if major == 1 else 4, "little")
    data = bytes(draw(st.sampled_from([24, 24, 24, 0, 1, 23, 25, 48, 96])))
    return b"\x93NUMPY" + bytes([major, 0]) + length + header + data


_NPY: Final = st.one_of(
    st.builds(_npy_of, _SHAPES, _DTYPES, st.sampled_from(["C", "F"]), st.sampled_from([(1, 0), (2, 0), (3, 0)])),
    _written_npy(),
)

_SIZES: Final = st.sampled_from([0, 1, 2, 3, 4, 8, 24, 96, -1, 1 << 31, 1 << 59, 1 << 63, 10**30, 2.5, True, "3", None])
_ENTRIES: Final = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "F32", "F32", "F64", "BF16", "BOOL", "F8_E4M3", "U64", "f32", "", 4, None]),
        "shape": st.lists(_SIZES, max_size=3)
        | st.sampled_from([[2, 3], [2, 3], [], "x", [0] * 40, [1 << 59, 1 << 59, 0]]),
        "data_offsets": st.lists(_SIZES, max_size=3) | st.sampled_from([[0, 24], [0, 24], [24, 28], [0, 4], [24, 0]]),
        "more": st.integers(),
    },
)
_TENSOR_NAMES: Final = st.sampled_from(["table", "scale", "0", "1", "x", "__metadata__", "", "é" * 30])


@st.composite
def _safetensors(draw: st.DrawFn) -> bytes:
    header = {"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    given = draw(st.just(header) | st.dictionaries(_TENSOR_NAMES, _ENTRIES, max_size=3))
    text: bytes = draw(
        st.one_of(
            st.just(json.dumps(given).encode()),
            st.just(json.dumps(given).encode().replace(b"scale", b"table")),
            _TREES,
            _DEEP,
        )
    )
    told = len(text) + draw(st.sampled_from([0, 0, 0, 0, 0, -1, 1, 8, 1 << 20, 1 << 40, (1 << 64) - 1 - len(text)]))
    return max(0, told).to_bytes(8, "little") + text + bytes(draw(st.sampled_from([24, 24, 28, 0, 1, 48, 200])))


_VALID: Final = {
    JSON: b'{"inputs": [[1, 2.5, -3e-7], [4, 5, 6]]}',
    NPY: _npy_of((2, COLUMNS), "<f4", "C", (1, 0)),
    SAFETENSORS: write_safetensors({"table": np.ones((2, COLUMNS), np.float32), "scale": np.ones((), np.float32)}),
}


@st.composite
def _mutated(draw: st.DrawFn, whole: bytes) -> bytes:
    """A valid body, a little changed."""
    made = bytearray(whole)
    for _ in range(draw(st.integers(0, 3))):
        place, end = sorted([draw(st.integers(0, len(made))), draw(st.integers(0, len(made)))])
        change = draw(st.sampled_from(range(5)))
        if change == 0:
            made[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif change == 1:
            del made[place:end]
        elif change == 2:
            made[place:place] = made[place:end]
        elif change == 3:
            made[place:place] = draw(st.binary(max_size=4))
        else:
            made[place : place + 1] = draw(st.sampled_from(_WORDS))
    return bytes(made)


# Requests

_TYPES: Final = st.sampled_from(
    ["", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ";;;", "\xff"]
    + [f"{JSON}; charset=utf-16", f'{JSON};charset="utf-8"', f"{JSON}, {NPY}", NPY.upper()]
)
_EXTRAS: Final = st.sampled_from(
    [b"Accept: " + value for value in (b"*/*", b"text/html", b"*/*;q=0", b"a;q=x,,;", b"," * 300)]
    + [b"Accept: " + value.encode() for value in (NPY, SAFETENSORS)]
    + [b"X-Request-Timeout: " + value for value in (b"1000", b"0", b"nan", b"-1", b"1e3", b"9" * 300)]
    + [b"X-Request-ID: " + value for value in (b"mine", b"x" * 200, b"\xe9", b"a b", b"")]
    + [b"traceparent: " + value for value in (b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01", b"00-", b"\xff" * 60)]
    + [b"Content-Encoding: " + value for value in (b"gzip", b"identity", b"br, gzip")]
    + [b"Expect: 100-continue", b"Content-Type: application/json", b"Upgrade: h2c", b"Connection: close"]
)
_PATHS: Final = st.sampled_from([ONE, NAMED])
_ENDINGS: Final = st.sampled_from(["/predict"] * 12 + ["/stream"] * 2 + ["/predict/", "/predict?inputs=1", "/stats"])


def head(path: str, *headers: bytes, method: str = "POST") -> bytes:
    """The lines before a body."""
    return b"\r\n".join([f"{method} {path} HTTP/1.1".encode(), b"Host: test", *headers, b"", b""])


def chunked(body: bytes, size: int) -> bytes:
    """A body in chunks, without the last one, which is empty."""
    parts = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join([b"%x\r\n%s\r\n" % (len(part), part) for part in parts])


def _framed(family: str, path: str, headers: list[bytes], body: bytes, framing: str) -> Hostile:
    """A request, framed honestly or not."""
    told = b"Content-Length: %d"
    in_chunks = b"Transfer-Encoding: chunked"
    size = len(body)
    if framing == "honest":
        return Hostile(family, head(path, *headers, told % size) + body)
    if framing == "chunked":
        return Hostile(family, head(path, *headers, in_chunks) + chunked(body, 7 + size // 9) + b"0\r\n\r\n")
    if framing == "ends early":
        return Hostile("stops", head(path, *headers, told % (size + 1 + size % 50)) + body, leaves=True)
    if framing == "chunks stop":
        raw = head(path, *headers, in_chunks) + chunked(body, 16 + size // 100)
        return Hostile("stops", raw[: len(raw) - size % 11], leaves=True)
    if framing == "goes on":
        return Hostile("lies", head(path, *headers, told % (size // 2)) + body, alone=True)
    lines = {
        "no length": [(b"Content-Length: -1", b"Content-Length: x", b"Content-Length: 1" + b"0" * 30)[size % 3]],
        "long": [told % 10**12],
        "two lengths": [told % size, told % (size + 1)],
        "both": [told % size, in_chunks],
        "no chunks": [in_chunks],
    }[framing]
    return Hostile("lies", head(path, *headers, *lines) + body, leaves=True, alone=True)


_DISHONEST: Final = ("ends early", "chunks stop", "goes on", "no length", "long", "two lengths", "both", "no chunks")
_FRAMINGS: Final = st.sampled_from([*["honest"] * 80, *["chunked"] * 8, *_DISHONEST])

_BODIES: Final = {
    JSON: json_bodies(),
    NPY: _NPY | st.lists(_NPY, max_size=2).map(b"".join),
    SAFETENSORS: _safetensors(),
}


@st.composite
def requests(draw: st.DrawFn) -> Hostile:
    """A request of any kind."""
    kind = draw(st.sampled_from([JSON, JSON, NPY, SAFETENSORS]))
    source = draw(st.sampled_from(["bytes", *["mutated"] * 4, *["made"] * 15]))
    if source == "bytes":
        family, body = source, draw(st.binary(max_size=300))
    elif source == "mutated":
        family, body = source, draw(_mutated(_VALID[kind]))
    else:
        family, body = kind.rpartition("/")[2], draw(_BODIES[kind])
    said = draw(st.sampled_from([kind] * 16 + [JSON, NPY, SAFETENSORS]))
    if _once_in(draw, 20):
        said = draw(_TYPES)
    headers = [b"Content-Type: " + said.encode("latin-1")]
    if _once_in(draw, 4):
        headers.append(draw(_EXTRAS))
    path = draw(_PATHS) + draw(_ENDINGS)
    made = _framed(family, path, headers, body, draw(_FRAMINGS))
    # A server that ends a connection with bytes in it that it has not read resets it, and the answer may be lost.
    return attrs.evolve(made, alone=made.alone or b"Connection: close" in headers)


@st.composite
def large_requests(draw: st.DrawFn) -> Hostile:
    """A long list of numbers, which takes a while to read, with something strange at the end of it."""
    count = draw(st.sampled_from([WIDTH, WIDTH, WIDTH - 1, WIDTH + 1, WIDTH // 2]))
    last = draw(st.one_of(st.just(b"0.5"), _SCALARS, _DEEP))
    body = b'{"inputs": [' + draw(st.sampled_from([b"0.25,", b"7,", b"true,"])) * (count - 1) + last + b"]}"
    framing = draw(st.sampled_from(["honest"] * 16 + ["chunked", *_DISHONEST]))
    return _framed("large", WIDE + "/predict", [b"Content-Type: application/json"], body, framing)


def drawn(strategy: st.SearchStrategy[Any], count: int, number: int) -> list[Any]:
    """So many examples of a strategy, always the same ones for the same number."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def take(it: Any) -> None:
        found.append(it)

    take()
    return found
