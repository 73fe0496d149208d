"""Bodies are read in their own format, or refused; hostile ones, too, in little time and memory."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import vmflow as flow
from vmflow.serving import Dim, InvalidInput, TensorSpec, bodies
from vmflow.serving.specs import Signature
from vmflow.serving.tensor_bytes import read_npy, read_safetensors, write_npy, write_safetensors

pytestmark = pytest.mark.host

# A longer search: VMFLOW_FUZZ=300000 pytest tests/serving/test_bodies.py --timeout 0
EXAMPLES = int(os.environ.get("VMFLOW_FUZZ", "3000"))

SQUARE = Signature(TensorSpec((2, 2)))
NAMED = Signature({"image": TensorSpec((2, 2)), "length": TensorSpec((), flow.int64)})
TEXT = Signature([TensorSpec((Dim("length", (4, 8)),), flow.int64), TensorSpec((3,), flow.float16, finite=False)])
SIGNATURES = (SQUARE, NAMED, TEXT)


def npy(array: Any, **kwargs: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **kwargs)
    return file.getvalue()


def decoded(body: bytes, kind: str, signature: Signature) -> tuple[Any, ...]:
    """As a session does it."""
    return signature.arrays(bodies.inputs_of(body, kind, signature))[0]


def test_the_default_limit_is_enough_for_inputs_with_long_names() -> None:
    signature = Signature({f"{'ä' * 60}{number}": TensorSpec(()) for number in range(200)})
    values = dict.fromkeys(signature.names, -1.7976931348623157e38)
    limit = bodies.body_limit(signature)
    assert len(json.dumps({"inputs": values}).encode()) <= limit
    assert len(write_safetensors({name: np.float32(value) for name, value in values.items()})) <= limit


def refused(body: bytes, kind: str, signature: Signature) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        decoded(body, kind, signature)
    assert caught.value.status in (400, 413, 415, 422)
    return caught.value


# Accepted bodies


def test_json() -> None:
    (array,) = decoded(b' {"inputs" : [[1, 2.5], [-3e0, 0]]}\n', bodies.JSON, SQUARE)
    assert array.dtype == np.float32
    assert array.tolist() == [[1, 2.5], [-3, 0]]
    image, length = decoded(b'{"inputs": {"length": 7, "image": [[1, 2], [3, 4]]}}', bodies.JSON, NAMED)
    assert (image.tolist(), length.item()) == ([[1, 2], [3, 4]], 7)
    text, numbers = decoded(b'{"inputs": [[1, 2, 3], [NaN, -Infinity, 1e999]]}', bodies.JSON, TEXT)
    assert (text.tolist(), numbers.dtype) == ([1, 2, 3], np.float16)
    assert np.isnan(numbers[0])
    assert numbers[1:].tolist() == [-np.inf, np.inf]


def test_integers_larger_than_numpy_has_are_numbers() -> None:
    (array,) = decoded(b'{"inputs": [[1, 2.5], [100000000000000000000, true]]}', bodies.JSON, SQUARE)
    assert array.tolist() == [[1, 2.5], [np.float32(1e20), 1]]
    with pytest.raises(InvalidInput, match="length: there are values that do not fit into int64"):
        decoded(b'{"inputs": {"length": 100000000000000000000, "image": [[1, 2], [3, 4]]}}', bodies.JSON, NAMED)


def test_a_long_body_is_read_with_pauses() -> None:
    pauses: list[None] = []
    line = Signature(TensorSpec((5000,)))
    for value in (b"1,", b"0.5,"):
        pauses.clear()
        body = b'{"inputs": [' + value * 4999 + b"1]}"
        assert len(bodies.inputs_of(body, bodies.JSON, line, lambda: pauses.append(None))) == 5000
        assert len(pauses) == 4

    def stop() -> None:
        raise KeyError("nobody waits")

    with pytest.raises(KeyError):
        bodies.inputs_of(body, bodies.JSON, line, stop)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "|b1", "|u1", "<i8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy(dtype: str, order: Any, version: tuple[int, int]) -> None:
    given = np.array([[0, 1], [1, 1]], dtype, order=order)
    file = io.BytesIO()
    np.lib.format.write_array(file, given, version)
    (array,) = decoded(file.getvalue(), bodies.NPY, SQUARE)
    assert array.tolist() == given.astype(np.float32).tolist()


def test_npy_of_other_writers() -> None:
    for header in (
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}",
        "{'shape': (2,2,), 'fortran_order':False, 'descr':\"<f4\"}   \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n",
    ):
        body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(16)
        assert decoded(body, bodies.NPY, SQUARE)[0].tolist() == [[0, 0], [0, 0]]


def test_safetensors_of_the_library() -> None:
    library = pytest.importorskip("safetensors.numpy", reason="safetensors comes with the io extra")
    arrays: dict[str, Any] = {"image": np.arange(4, dtype=np.float32).reshape(2, 2), "length": np.array(3, np.int64)}
    image, length = decoded(library.save(arrays, {"made": "by a test"}), bodies.SAFETENSORS, NAMED)
    assert (image.tolist(), length.item()) == ([[0, 1], [2, 3]], 3)
    assert {name: value.tolist() for name, value in library.load(write_safetensors(arrays)).items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


@pytest.mark.parametrize("signature", [SQUARE, TEXT])
def test_safetensors_by_place(signature: Signature) -> None:
    given: list[Any] = (
        [np.ones((2, 2), np.float32)] if signature.single else [np.arange(5), np.zeros(3, ml_dtypes.bfloat16)]
    )
    found = decoded(
        write_safetensors({str(value): array for value, array in enumerate(given)}), bodies.SAFETENSORS, signature
    )
    assert [tensor.tolist() for tensor in found] == [tensor.tolist() for tensor in given]


# Refused bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"inputs": [[1, 2], [3, 4]]',
        b'{"inputs": [[1, 2], [3, 4]]}}',
        b'{"inputs": [[1, 2], [3, 4]], "more": 1}',
        b'{"inputs": [[1, 2], [3, 4]], "inputs": [[1, 2], [3, 4]]}',
        b'{"inputs": [[1, 2], [3, NaN]]}',
        b'{"inputs": [[1, 2], [3, Infinity]]}',
        b'{"inputs": [[1, 2], [3, 1e999]]}',
        b'{"inputs": [[1, 2], [3, "4"]]}',
        b'{"inputs": [[1, 2], [3, null]]}',
        b'{"inputs": [[1, 2], [3]]}',
        b'{"inputs": [[1, 2], [3, {}]]}',
        b'{"inputs": [[1, 2], [3, 4, 5]]}',
        b'{"inputs": [[[1, 2], [3, 4]]]}',
        b'{"inputs": "' + b"x" * 1000 + b'"}',
        b'{"inputs": [[1, 2], [3, 1' + b"0" * 5000 + b"]]}",
        b'{"inputs": [[1, 2], [3, 1' + b"0" * 300 + b"]]}",
        b'{"inputs": [[1, 2], [3, ' + b"4" * 60 + b"]]}",
        b'{"inputs": [[1, 2], [3, ' + b"4" * 390 + b"]]}",
        b'{"inputs": [[1, ' + b"4" * 30 + b"], [3, null]]}",
        '{"inputs": [[1, 2], [3, 4]]}'.encode("utf-16"),
        b'\xef\xbb\xbf{"inputs": [[1, 2], [3, 4]]}',
        b'{"inputs": [[1, 2], [3, 4]], "\xff": 1}',
        b'{"inputs": ' + b"[" * 10000 + b"]" * 10000 + b"}",
        b'{"inputs": [' + b"[]," * 1000 + b"[]]}",
        b'{"inputs": [' + b"1," * 1000 + b"1]}",
        b'{"inputs": {"a":' * 3000,
        b"\x00\x01\x02",
    ],
)
def test_refused_json(body: bytes) -> None:
    refused(body, bodies.JSON, SQUARE)


def test_refused_npy_files() -> None:
    good = npy(np.zeros((2, 2), np.float32))
    assert refused(npy(np.zeros((2, 3), np.float32)), bodies.NPY, SQUARE).status == 422
    assert refused(npy(np.zeros((2, 2), np.complex64)), bodies.NPY, SQUARE).status == 400
    assert refused(npy(np.array([[1, None], [2, 3]], object), allow_pickle=True), bodies.NPY, SQUARE).status == 400
    for wrong in (
        b"",
        good[:-1],
        good + b"\0",
        good[:9],
        good.replace(b"NUMPY", b"LUMPY"),
        good.replace(b"\x01\x00", b"\x07\x00", 1),
        good.replace(b"(2, 2)", b"(2,-2)"),
        good.replace(b"(2, 2)", b"(9, 9)"),
        good.replace(b"<f4", b"<O8"),
        good.replace(b"<f4", b"|V4"),
        good.replace(b"'descr'", b"'shape'"),
        good.replace(b"False", b"open("),
        # Without bytes, since one size is 0, but with sizes that no array can have.
        _npy_of_shape("(0, 999999999999999999, 999999999999999999)"),
        _npy_of_shape("(999999999999999999, 0, 999999999999999999)"),
        _npy_of_shape("(0, 999999999999999999, 9)"),
        good[:8] + b"\xff\xff" + good[10:],
        good[:6] + b"\x02\x00\xff\xff\xff\xff" + good[10:],
    ):
        assert refused(wrong, bodies.NPY, SQUARE).status == 400
    assert refused(good, bodies.NPY, NAMED).status == 422
    inf = np.full((2, 2), np.inf, np.float32)
    assert refused(npy(inf), bodies.NPY, SQUARE).status == 422


def _npy_of_shape(shape: str) -> bytes:
    """A file of no elements whose header says this shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize("dtype", ["BF16", "F32", "BOOL"])
@pytest.mark.parametrize("shape", [[1 << 59, 1 << 59, 0], [0, 1 << 59, 16], [1 << 30, 0, 1 << 30]])
def test_sizes_that_no_array_can_have_are_refused_though_there_are_no_elements(dtype: str, shape: list[int]) -> None:
    body = _safetensors({"t": {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}})
    error = refused(body, bodies.SAFETENSORS, SQUARE)
    assert error.status == 400
    assert str(shape) in str(error)


def test_no_message_names_an_input_that_has_no_name() -> None:
    unnamed = Signature(TensorSpec((2, 2)))
    for body, kind in (
        (b'{"inputs": [1]}', bodies.JSON),
        (b'{"inputs": [[1, 2], [3, 1e999]]}', bodies.JSON),
        (b'{"inputs": [[1, 2], ["a", 1]]}', bodies.JSON),
        (npy(np.zeros(3, np.float32)), bodies.NPY),
        (npy(np.full((2, 2), np.inf, np.float32)), bodies.NPY),
        (write_safetensors({"mine": np.zeros(3, np.float32)}), bodies.SAFETENSORS),
    ):
        assert "x:" not in str(refused(body, kind, unnamed))
        assert not str(refused(body, kind, unnamed)).startswith((":", "inputs"))
    several = Signature([TensorSpec((2,)), TensorSpec((2,))])
    assert "2 inputs" in str(refused(npy(np.zeros(2, np.float32)), bodies.NPY, several))
    assert str(refused(b'{"inputs": [[1, 2], [3]]}', bodies.JSON, several)).startswith("inputs[1]: expected shape [2]")


def _safetensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_refused_safetensors_files() -> None:
    one = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    zeros = bytes(16)
    assert decoded(_safetensors({"x": one}, zeros), bodies.SAFETENSORS, SQUARE)[0].shape == (2, 2)
    for wrong in (
        b"",
        b"\xff" * 8,
        _safetensors(b"{", zeros),
        _safetensors(b"[]", zeros),
        _safetensors(b'{"x":' * 1000),
        _safetensors(b'{"x":1,"x":2}'),
        _safetensors({"x": one}, zeros[1:]),
        _safetensors({"x": one}, zeros + b"\0"),
        _safetensors({"x": one, "y": one}, zeros),
        _safetensors({"x": {**one, "data_offsets": [1, 17]}}, zeros + b"\0"),
        _safetensors({"x": {**one, "data_offsets": [16, 0]}}, zeros),
        _safetensors({"x": {**one, "data_offsets": [0, 1 << 80]}}, zeros),
        _safetensors({"x": {**one, "shape": [2, True]}}, zeros),
        _safetensors({"x": {**one, "shape": [1 << 59, 1 << 59]}}, zeros),
        _safetensors({"x": {**one, "shape": [1] * 99}}, zeros),
        _safetensors({"x": {**one, "dtype": "F8"}}, zeros),
        _safetensors({"x": {**one, "dtype": ["F32"]}}, zeros),
        _safetensors({"x": {**one, "more": 1}}, zeros),
        _safetensors({"x": 1}, zeros),
    ):
        assert refused(wrong, bodies.SAFETENSORS, SQUARE).status == 400
    assert refused(_safetensors({}), bodies.SAFETENSORS, SQUARE).status == 422
    assert refused(_safetensors({"x": one}, zeros), bodies.SAFETENSORS, NAMED).status == 422
    assert refused(_safetensors({"x": {**one, "shape": [4]}}, zeros), bodies.SAFETENSORS, SQUARE).status == 422


def test_a_bool_of_a_strange_byte_is_true() -> None:
    body = _safetensors({"x": {"dtype": "BOOL", "shape": [2, 2], "data_offsets": [0, 4]}}, b"\x00\x07\xff\x01")
    assert decoded(body, bodies.SAFETENSORS, SQUARE)[0].tolist() == [[0, 1], [1, 1]]
    assert decoded(npy(np.zeros((2, 2), bool))[:-4] + b"\x00\x07\xff\x01", bodies.NPY, SQUARE)[0].tolist() == [
        [0, 1],
        [1, 1],
    ]


SIZE = 1 << 20


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (bodies.JSON, lambda: b"[" * SIZE),
        (bodies.JSON, lambda: b'{"inputs": [' + b"[]," * (SIZE // 3) + b"[]]}"),
        (bodies.JSON, lambda: b'{"inputs": [' + b"{}," * (SIZE // 3) + b"[]]}"),
        (bodies.JSON, lambda: b'{"inputs": [' + b"0," * (SIZE // 2) + b"0]}"),
        (bodies.JSON, lambda: b'{"inputs": [' + b'"",' * (SIZE // 3) + b"0]}"),
        (bodies.JSON, lambda: b'"' + b'\\"' * (SIZE // 2)),
        (bodies.JSON, lambda: b'"' * SIZE),
        (bodies.JSON, lambda: b"\\" * SIZE),
        (bodies.JSON, lambda: b'{"inputs": [[1, 2], [3, ' + b"9" * SIZE + b"]]}"),
        (bodies.JSON, lambda: b'{"inputs": [[1, 2], [3, 1.' + b"9" * SIZE + b"]]}"),
        (bodies.JSON, lambda: b"".join([b'{"%d":' % index for index in range(SIZE // 8)])),
        (bodies.JSON, lambda: b'{"inputs": [["' + b"x" * (SIZE // 2) + b'", ' + b'"",' * (SIZE // 8)),
        (bodies.JSON, lambda: b" " * SIZE),
        (bodies.NPY, lambda: b"\x93NUMPY\x02\x00" + SIZE.to_bytes(4, "little") + b"(" * SIZE),
        (bodies.NPY, lambda: b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"{" + b"(1," * 3000),
        (bodies.NPY, lambda: b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"{'shape':(" + b"1 " * 4490 + b"}"),
        (bodies.SAFETENSORS, lambda: _safetensors(b"[" * SIZE)),
        (bodies.SAFETENSORS, lambda: _safetensors(b'{"a":' * 2000)),
    ],
)
def test_large_ones_are_refused_in_time_and_memory_like_their_size(kind: str, make: Callable[[], bytes]) -> None:
    _refused_cheaply(make(), kind, SQUARE)


def test_one_long_string_does_not_make_all_numbers_long() -> None:
    """Which an array of strings would, each being as wide as the widest."""
    line = Signature(TensorSpec((1000,)))
    _refused_cheaply(b'{"inputs": ["' + b"x" * (SIZE // 2) + b'"' + b",1" * 999 + b"]}", bodies.JSON, line)


def _refused_cheaply(body: bytes, kind: str, signature: Signature) -> None:
    tracemalloc.start()
    try:
        begin = time.process_time()
        refused(body, kind, signature)
        seconds = time.process_time() - begin
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seconds < 2  # anything but linear takes minutes
    assert most < 12 * SIZE


# Any bytes


def _mutated(whole: bytes, changes: Iterable[tuple[int, int]]) -> bytes:
    made = bytearray(whole)
    for place, byte in changes:
        made[place % len(made)] = byte
    return bytes(made)


WHOLE = {
    bodies.JSON: b'{"inputs": {"image": [[1, 2.5], [-3e-7, true]], "length": 12}}',
    bodies.NPY: npy(np.arange(4, dtype=np.float32).reshape(2, 2)),
    bodies.SAFETENSORS: write_safetensors({"image": np.ones((2, 2), np.float32), "length": np.array(1)}),
}
PIECES = (
    rb"""{ } [ ] , : " \ 0 1 -1 1e5 1e999 .5 NaN -Infinity true null "inputs" "image" "length" \u0000 [[1,2],[3,4]]"""
)
JSON_PIECES = st.lists(st.sampled_from([*PIECES.split(), b"\xff"]), max_size=30).map(b"".join)
BODIES = st.one_of(
    st.binary(max_size=200),
    JSON_PIECES,
    JSON_PIECES.map(lambda x: b'{"inputs":' + x + b"}"),
    st.builds(
        _mutated,
        st.sampled_from(sorted(WHOLE.values())),
        st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=4),
    ),
    st.builds(lambda whole, end: whole[: end % len(whole)], st.sampled_from(sorted(WHOLE.values())), st.integers(0)),
)


@pytest.mark.slow
@given(body=BODIES, kind=st.sampled_from(bodies.KINDS), signature=st.sampled_from(SIGNATURES))
@example(body=WHOLE[bodies.NPY], kind=bodies.NPY, signature=SQUARE)
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_bytes_are_inputs_or_invalid(body: bytes, kind: str, signature: Signature) -> None:
    try:
        arrays = decoded(body, kind, signature)
    except InvalidInput as error:
        if error.status not in (400, 422):
            raise
        json.dumps(str(error))
        return
    for array, spec in zip(arrays, signature.specs, strict=True):
        assert array.dtype == spec.dtype.numpy
        assert len(array.shape) == len(spec.shape)
        assert not spec.finite or np.isfinite(array).all()


@pytest.mark.slow
@given(st.recursive(st.none() | st.integers() | st.floats() | st.text() | st.booleans(), lambda x: st.lists(x)))
@settings(max_examples=EXAMPLES // 15, deadline=None)
def test_any_json_is_inputs_or_invalid(value: Any) -> None:
    body = json.dumps({"inputs": value}).encode()
    for signature in SIGNATURES:
        try:
            arrays = decoded(body, bodies.JSON, signature)
        except InvalidInput:
            continue
        assert len(arrays) == len(signature.specs)


@given(
    st.lists(st.sampled_from([np.float32, np.int64, np.bool_, np.float16, ml_dtypes.bfloat16]), max_size=4), st.data()
)
@settings(max_examples=100)
def test_written_files_can_be_read(dtypes: list[Any], data: st.DataObject) -> None:
    arrays = {}
    for place, dtype in enumerate(dtypes):
        shape = data.draw(st.lists(st.integers(0, 3), max_size=3))
        arrays[f"{place}"] = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = read_safetensors(write_safetensors(arrays), len(arrays))
    assert {name: (value.dtype, value.tolist()) for name, value in found.items()} == {
        name: (entry.dtype, entry.tolist()) for name, entry in arrays.items()
    }
    for array in arrays.values():
        assert read_npy(write_npy(array)).tolist() == array.tolist()


# How a body comes in


def receiving(*parts: bytes, gone: bool = False) -> tuple[bodies.Receive, list[int]]:
    """A server that has these parts of a body to give, and how many of them it was asked for."""
    asked = [0]

    async def receive() -> bodies.Message:
        place = asked[0]
        asked[0] += 1
        if gone and place == len(parts):
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts[place], "more_body": gone or place + 1 < len(parts)}

    return receive, asked


async def test_a_body_comes_in_parts() -> None:
    receive, _ = receiving(b"ab", b"", b"c")
    assert await bodies.read_body(receive, [(b"content-length", b"3")], 3) == b"abc"


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    receive, asked = receiving(b"abcd")
    with pytest.raises(bodies.TooLarge):
        await bodies.read_body(receive, [(b"content-length", b"4")], 3)
    assert asked == [0]


async def test_a_body_that_becomes_too_large_is_read_no_further() -> None:
    receive, asked = receiving(b"ab", b"cd", b"ef", b"gh")
    with pytest.raises(bodies.TooLarge):
        await bodies.read_body(receive, [], 3)
    assert asked == [2]


async def test_a_body_whose_client_leaves() -> None:
    receive, _ = receiving(b"ab", gone=True)
    with pytest.raises(bodies.ClientGone):
        await bodies.read_body(receive, [], 3)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ((b"content-length", b"-1"), 400),
        ((b"content-length", b"1" * 100), 400),
        ((b"content-length", b"\xb2"), 400),
        ((b"content-encoding", b"gzip"), 415),
    ],
)
async def test_headers_that_are_refused(header: tuple[bytes, bytes], status: int) -> None:
    receive, asked = receiving(b"")
    with pytest.raises(InvalidInput) as caught:
        await bodies.read_body(receive, [header], 3)
    assert (caught.value.status, asked) == (status, [0])


def test_kinds() -> None:
    assert bodies.kind_of([]) == bodies.JSON
    assert bodies.kind_of([(b"content-type", b"Application/JSON; charset=UTF-8")]) == bodies.JSON
    assert bodies.kind_of([(b"content-type", b"application/x-npy")]) == bodies.NPY
    for wrong in (b"text/plain", b"", b"application/json; charset=utf-16", b"\xff"):
        with pytest.raises(bodies.UnknownKind):
            bodies.kind_of([(b"content-type", wrong)])


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (b"", bodies.JSON),
        (b"*/*", bodies.JSON),
        (b"text/html, */*;q=0.1", bodies.JSON),
        (b"application/x-npy", bodies.NPY),
        (b"application/json;q=0.5, application/x-safetensors", bodies.SAFETENSORS),
        (b"application/json;q=0, application/*", bodies.NPY),
        (b"application/json;q=what, application/*;q=0.001", bodies.NPY),
        (b"text/html", None),
        (b"*/*;q=0", None),
    ],
)
def test_the_accept_header_chooses_the_kind(accept: bytes, kind: str | None) -> None:
    if kind is None:
        with pytest.raises(bodies.NotAcceptable):
            bodies.accepted([(b"accept", accept)])
    else:
        assert bodies.accepted([(b"accept", accept)]) == kind


# Results


async def test_results_are_valid_json() -> None:
    result = {
        "scores": np.array([1.5, np.nan, -np.inf], np.float32),
        "classes": (np.array([[1, 2]]), np.array(True)),
        "small": np.array([0.5, np.inf], ml_dtypes.bfloat16),
        "waves": np.array([1 + 2j, complex(np.nan, 0)], np.complex64),
        "rest": [None, "ü\n", 7, float("inf"), np.float32(0.25), 1j],
    }
    text = await bodies.encoded(result, bodies.JSON)
    assert b"\n" not in text

    def never(name: str) -> float:
        raise AssertionError(name)

    assert json.loads(text, parse_constant=never)["outputs"] == {
        "scores": [1.5, None, None],
        "classes": [[[1, 2]], True],
        "small": [0.5, None],
        "waves": [[1, 2], [None, 0]],
        "rest": [None, "ü\n", 7, None, 0.25, [0, 1]],
    }
    with pytest.raises(TypeError, match="set"):
        await bodies.encoded({1, 2}, bodies.JSON)
    with pytest.raises(TypeError, match=r"the keys \[1, '1'\] cannot be told in JSON"):
        await bodies.encoded({1: 2, "1": 3}, bodies.JSON)


async def test_results_as_files() -> None:
    one = np.arange(3, dtype=np.float32)
    assert np.load(io.BytesIO(await bodies.encoded(one, bodies.NPY))).tolist() == [0, 1, 2]
    assert set(read_safetensors(await bodies.encoded(one, bodies.SAFETENSORS), 9)) == {"outputs"}
    nested = {"a": one, "b": (one, [one])}
    assert set(read_safetensors(await bodies.encoded(nested, bodies.SAFETENSORS), 9)) == {"a", "b.0", "b.1.0"}
    for result, kind in (
        (nested, bodies.NPY),
        ({"a": "text"}, bodies.SAFETENSORS),
        ({"a.b": one, "a": {"b": one}}, bodies.SAFETENSORS),
        ({"a.b": one, "a": {"b": one}}, bodies.NPY),
        (one.astype(complex), bodies.SAFETENSORS),
    ):
        with pytest.raises(bodies.NotAcceptable):
            await bodies.encoded(result, kind)


SHAPES = [
    (),
    (0,),
    (7,),
    (1024,),
    (1025,),
    (5000,),
    (3, 2000),
    (2, 3, 1500),
    (4000, 1),
    (0, 5),
    (2000, 0, 3),
    (3, 700, 2),
]


@pytest.mark.parametrize("shape", SHAPES)
async def test_large_results_are_written_like_small_ones(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(len(shape))
    array = random.standard_normal(shape).astype(np.float32)
    value = {"a": array, "b": [1, "two", None, True, 0.5, {}], "c": (array > 0), "d": []}
    written = await bodies.to_json(value)
    plain = {**value, "a": array.tolist(), "c": (array > 0).tolist()}
    assert written == json.dumps(plain, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([b"a"]), np.array([object()]), np.array(["2020-01-01"], "datetime64[D]")]
)
async def test_arrays_of_other_things_than_numbers_are_refused(array: Any) -> None:
    with pytest.raises(TypeError, match="cannot be told in JSON"):
        await bodies.to_json([array])


async def test_others_get_their_turn_while_a_large_result_is_written() -> None:
    turns = 0
    written = False

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not written:
            asyncio.get_running_loop().call_soon(turn)

    turn()
    await bodies.to_json(np.zeros(150_000))
    written = True
    assert turns > 20
