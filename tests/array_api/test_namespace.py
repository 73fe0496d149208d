"""The names of the standard, their signatures, dtypes and promotion, and what the namespace tells of itself."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import array_api as xp

from .support import ALL, COMPLEX, FLOATS, INTEGERS, SIGNED, UNSIGNED

pytestmark = pytest.mark.host

strict: Any = pytest.importorskip("array_api_strict")

# These names belong to the next version of the standard.
LATER = {"isin", "broadcast_shapes"}
OF_STRICT = {"Device", "ArrayAPIStrictFlags"} | {f"{name}_array_api_strict_flags" for name in ("get", "set", "reset")}
FUNCTIONS = sorted(
    name
    for name in strict.__all__
    if inspect.isfunction(getattr(strict, name)) and name not in LATER | OF_STRICT and not name.startswith("__")
)
EXTENSIONS = [f"{value}.{name}" for value in ("linalg", "fft") for name in getattr(strict, value).__all__]


def _of(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def test_the_reference_has_the_tested_functions() -> None:
    """An empty table of functions would pass every test."""
    assert len(FUNCTIONS) > 130
    assert {"linalg.svd", "fft.rfftfreq"} <= set(EXTENSIONS)
    assert len(EXTENSIONS) == 23 + 14


# Signatures for which the reference allows names for positional parameters, takes any arguments, or is newer.
_SIGNATURES = {
    "arange": "(start, /, stop=None, step=1, *, dtype=None, device=None)",
    "astype": "(x, dtype, /, *, copy=True, device=None)",
    "expand_dims": "(x, /, *, axis=0)",
    "asarray": "(obj, /, *, dtype=None, device=None, copy=None)",
    "broadcast_arrays": "(*arrays)",
    "meshgrid": "(*arrays, indexing='xy')",
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *EXTENSIONS])
def test_signatures(name: str) -> None:
    if name == "from_dlpack":
        assert list(inspect.signature(xp.from_dlpack).parameters) == ["x", "device", "copy"]
        return
    mine = [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(_of(xp, name)).parameters.values()
    ]
    if name in _SIGNATURES:
        plain = [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in inspect.signature(_of(xp, name)).parameters.values()
        ]
        assert str(inspect.Signature(plain)) == _SIGNATURES[name]
        return
    wanted = [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(_of(strict, name)).parameters.values()
    ]
    positional = inspect.Parameter.POSITIONAL_ONLY
    assert [value[1:] for value in mine] == [value[1:] for value in wanted], f"{mine} for {wanted}"
    for one, other in zip(mine, wanted, strict=True):
        assert one[0] == other[0] or one[1] == positional


@pytest.mark.parametrize("name", ["e", "pi", "inf", "nan", "newaxis"])
def test_constants(name: str) -> None:
    np.testing.assert_equal(getattr(xp, name), getattr(np, name))


# Dtypes

KINDS = (
    "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"
)  # fmt: skip

MIXED = [
    (first, second)
    for kind in ((*SIGNED, *UNSIGNED), FLOATS, COMPLEX, ("bool",), (*FLOATS, *COMPLEX))
    for first, second in itertools.product(kind, kind)
    if not ({first, second} & set(SIGNED) and "uint64" in (first, second))
]


@pytest.mark.parametrize(("first", "second"), MIXED)
def test_promotion(first: str, second: str) -> None:
    expected = getattr(xp, np.result_type(first, second).name)
    one, other = (xp.ones((2,), dtype=getattr(xp, value)) for value in (first, second))
    assert xp.result_type(getattr(xp, first), getattr(xp, second)) is expected
    assert xp.result_type(one, getattr(xp, second)) is expected
    assert xp.result_type(one, other) is expected
    assert xp.multiply(one, other).dtype is (expected) if first != "bool" else True
    assert xp.concat([one, other]).dtype is expected
    assert xp.where(xp.ones((2,), dtype=xp.bool), one, other).dtype is expected
    assert xp.equal(one, other).dtype is xp.bool
    assert (one + other).dtype is expected
    # Functions promote a 0-d array as any other.
    assert xp.stack([one[0], other[0]]).dtype is expected


@pytest.mark.parametrize("signed", SIGNED)
def test_no_dtype_holds_uint64_and_signed_integers(signed: str) -> None:
    with pytest.raises(TypeError, match="no integer dtype holds both"):
        xp.result_type(xp.uint64, getattr(xp, signed))
    assert not xp.can_cast(xp.uint64, getattr(xp, signed))
    assert not xp.can_cast(getattr(xp, signed), xp.uint64)


@pytest.mark.parametrize("name", ALL)
def test_result_type_with_numbers(name: str) -> None:
    kind, category = getattr(xp, name), np.dtype(name).kind
    numbers: dict[str, tuple[Any, ...]] = {"b": (True,), "i": (True, 1), "u": (True, 1), "f": (True, 1, 1.5)}
    for number in numbers.get(category, (True, 1, 1.5, 2j)):
        assert xp.result_type(kind, number) is kind
        assert xp.result_type(number, xp.ones((), dtype=kind)) is kind
        assert xp.add(xp.ones(2, dtype=kind), number).dtype is kind if category != "b" else True
    if category == "f":
        assert xp.result_type(kind, 1j) is (xp.complex64 if name == "float32" else xp.complex128)


@pytest.mark.parametrize(("first", "second"), [pair for pair in MIXED if pair[0] != "bool"])
def test_can_cast(first: str, second: str) -> None:
    expected = np.can_cast(first, second)
    assert xp.can_cast(getattr(xp, first), getattr(xp, second)) == expected
    assert xp.can_cast(xp.ones(1, dtype=getattr(xp, first)), getattr(xp, second)) == expected


@pytest.mark.parametrize("name", ALL)
def test_kinds_and_limits(name: str) -> None:
    kind = getattr(xp, name)
    for which in (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    ):
        assert xp.isdtype(kind, which) == np.isdtype(np.dtype(name), which)
    assert xp.isdtype(kind, (xp.bool, "numeric"))
    assert xp.isdtype(kind, kind)
    if name in INTEGERS:
        ours, theirs = xp.iinfo(kind), np.iinfo(name)
        assert (ours.bits, ours.max, ours.min, ours.dtype) == (theirs.bits, theirs.max, theirs.min, kind)
        assert all(type(our) is int for our in ours[:3])
        assert xp.iinfo(xp.ones(1, dtype=kind)) == ours
    elif name != "bool":
        found, limits = xp.finfo(kind), np.finfo(name)
        for which in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(found, which) == float(getattr(limits, which)), which
        assert found.dtype is kind.to_real()
        assert xp.finfo(xp.ones(1, dtype=kind)) == found


@pytest.mark.parametrize(("source", "target"), [*itertools.product(ALL, ALL)])
def test_astype(source: str, target: str) -> None:
    if source in COMPLEX and target not in (*COMPLEX, "bool"):
        return  # the standard forbids this cast
    array = np.array([0, 1, 5, 100]).astype(source)
    found = xp.astype(flow.tensor(array), getattr(xp, target))
    assert found.dtype is getattr(xp, target)
    np.testing.assert_array_equal(found.numpy(), array.astype(target))


# Inspection


def test_information() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert set(info.dtypes()) == set(ALL)
    assert all(found is getattr(xp, name) for name, found in info.dtypes().items())
    for device in info.devices():
        assert set(info.dtypes(device=device)) == set(ALL)
        assert set(info.default_dtypes(device=device)) == {"real floating", "complex floating", "integral", "indexing"}
    expected: dict[Any, tuple[str, ...]] = {
        "bool": ("bool",),
        "signed integer": SIGNED,
        "unsigned integer": UNSIGNED,
        "integral": INTEGERS,
        "real floating": FLOATS,
        "complex floating": COMPLEX,
        "numeric": ALL[1:],
        ("bool", "complex floating"): ("bool", *COMPLEX),
        (): (),
    }
    for kind, names in expected.items():
        assert set(info.dtypes(kind=kind)) == set(names), kind
    with pytest.raises(ValueError, match="there is no kind 'float'"):
        info.dtypes(kind="float")
    assert info.default_device() in info.devices()
    defaults = info.default_dtypes()
    assert xp.zeros(1).dtype is defaults["real floating"]
    assert xp.asarray([1]).dtype is defaults["integral"]
    assert xp.asarray([1j]).dtype is defaults["complex floating"]
    assert xp.argmax(xp.zeros(1)).dtype is defaults["indexing"]


def test_the_maximum_number_of_dimensions_works() -> None:
    most = xp.__array_namespace_info__().capabilities()["max dimensions"]
    assert xp.ones((1,) * most).ndim == most


@pytest.mark.parametrize("name", ["T", "mT", "device", "dtype", "ndim", "shape"])
def test_attributes_of_arrays(name: str) -> None:
    x = xp.reshape(xp.arange(6), (2, 3))
    expected = {"T": (3, 2), "mT": (3, 2), "device": flow.device("cpu"), "dtype": xp.int64, "ndim": 2, "shape": (2, 3)}
    found = getattr(x, name)
    assert (found.shape if name in ("T", "mT") else found) == expected[name]
