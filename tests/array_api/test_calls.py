"""Calls of each function as users write them, against numpy, whose namespace follows the same standard; and errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import array_api as xp

# call(namespace, function that converts numpy's arrays to those of the namespace)
Call = Any

# The functions of the standard, version 2024.12.
STANDARD = {
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril "
    "triu zeros zeros_like",
    "data types": "astype can_cast finfo iinfo isdtype result_type",
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert "
    "bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor "
    "floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp "
    "logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow "
    "real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "indexing": "take take_along_axis",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll "
    "squeeze stack tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utility": "all any diff",
    "inspection": "__array_namespace_info__",
}
NAMES = [name for names in STANDARD.values() for name in names.split()]
LINALG = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
DATA_TYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
]

# Tested only with random operands, by the other modules of this folder.
OWN = {"bitwise_left_shift", "bitwise_right_shift", "copysign", "imag", "nextafter", "real", "signbit"}
OWN_LINALG = {"cholesky", "eigh", "eigvalsh", "matrix_power", "matrix_rank", "pinv", "qr", "slogdet", "svd", "svdvals"}


def test_every_name_of_the_standard_is_there() -> None:
    assert not [name for name in NAMES if not hasattr(xp, name)]
    assert not [name for name in LINALG if not hasattr(xp.linalg, name)]
    assert not [name for name in DATA_TYPES if not hasattr(xp, name)]
    assert xp.fft.fft.__doc__
    for name in ("e", "pi", "inf", "nan"):
        np.testing.assert_equal(getattr(xp, name), getattr(np, name))
    assert xp.newaxis is None
    assert xp.__array_api_version__ == "2024.12"
    with pytest.raises(AttributeError, match="has no attribute 'concatenate'"):
        xp.concatenate  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'eigvals'"):
        xp.linalg.eigvals  # type: ignore[attr-defined]  # noqa: B018
    assert {"add", "unique_all"} <= set(dir(xp))
    assert {"det", "vecdot"} <= set(dir(xp.linalg))


# Values

_generator = np.random.default_rng(3)
FLOATS = _generator.uniform(-3, 3, (3, 4))
UNIT = _generator.uniform(-0.9, 0.9, (3, 4))
POSITIVE = _generator.uniform(1.1, 5, (3, 4))
INTEGERS = _generator.integers(-5, 6, (3, 4))
WHOLE = _generator.integers(1, 4, (3, 4))
COMPLEX = FLOATS + 1j * UNIT
BOOLS = FLOATS > 0

_OF_FLOATS = "abs atan asinh cos cosh exp expm1 negative positive sin sinh square tan tanh sign round floor ceil trunc"
UNARY: dict[str, tuple[Any, ...]] = {
    **{name: (FLOATS, FLOATS.astype("f4")) for name in _OF_FLOATS.split()},
    **{name: (UNIT, UNIT.astype("f4")) for name in ("acos", "asin", "atanh", "log1p")},
    **{name: (POSITIVE, POSITIVE.astype("f4")) for name in ["acosh", "log", "log2", "log10", "sqrt", "reciprocal"]},
    **{name: (INTEGERS, INTEGERS.astype("i1")) for name in ("bitwise_invert",)},
    **{name: (FLOATS, np.array([np.nan, np.inf, -np.inf, 1]), INTEGERS) for name in ("isnan", "isinf", "isfinite")},
    "logical_not": (BOOLS,),
    "conj": (COMPLEX, COMPLEX.astype("c8")),
}
BINARY: dict[str, tuple[Any, ...]] = {
    **{name: (FLOATS, INTEGERS) for name in ("add", "multiply", "subtract", "maximum", "minimum")},
    **{name: (FLOATS, INTEGERS, BOOLS) for name in ("equal", "not_equal")},
    **{name: (FLOATS, INTEGERS) for name in ("less", "less_equal", "greater", "greater_equal")},
    **{name: (FLOATS,) for name in ("atan2", "hypot", "logaddexp", "divide")},
    **{name: (POSITIVE, WHOLE) for name in ("pow", "floor_divide", "remainder")},
    **{name: (INTEGERS, BOOLS) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: (BOOLS,) for name in ("logical_and", "logical_or", "logical_xor")},
}


def _binary_calls(name: str, data: Any) -> list[Call]:
    other = np.roll(data, 1)
    narrow = {"f": "f4", "i": "i1", "b": "?"}[data.dtype.kind]
    calls: list[Call] = [
        lambda xp, a: getattr(xp, name)(a(data), a(other)),
        lambda xp, a: getattr(xp, name)(a(data), a(other[1])),
        lambda xp, a: getattr(xp, name)(a(data.astype(narrow)), a(other)),
        # A 0-d array promotes as any other array does.
        lambda xp, a: getattr(xp, name)(a(data.astype(narrow)), a(other[0, 0])),
    ]
    if name not in ("atan2", "hypot", "logaddexp") and data.dtype.kind != "b":
        calls.append(lambda xp, a: getattr(xp, name)(a(data.astype(narrow)), 2))
        calls.append(lambda xp, a: getattr(xp, name)(3, a(data.astype(narrow))))
    return calls


OTHERS: dict[str, list[Call]] = {
    "arange": [
        lambda xp, a: xp.arange(5),
        lambda xp, a: xp.arange(2, 9, 3),
        lambda xp, a: xp.arange(5, 2),
        lambda xp, a: xp.arange(0.0, 2.0, 0.25, dtype=xp.float64),
        lambda xp, a: xp.arange(5, 0, -2, dtype=xp.int16),
    ],
    "asarray": [
        lambda xp, a: xp.asarray([[1, 2], [3, 4]]),
        lambda xp, a: xp.asarray(2.5, dtype=xp.float32),
        lambda xp, a: xp.asarray(a(INTEGERS), dtype=xp.float64),
        lambda xp, a: xp.asarray([True, False], dtype=xp.int8),
        lambda xp, a: xp.asarray(a(FLOATS), copy=True),
    ],
    "empty": [lambda xp, a: xp.zeros_like(xp.empty((2, 3), dtype=xp.int8))],
    "empty_like": [lambda xp, a: xp.zeros_like(xp.empty_like(a(FLOATS)))],
    "eye": [
        lambda xp, a: xp.eye(3, dtype=xp.float64),
        lambda xp, a: xp.eye(3, 4, k=1, dtype=xp.int32),
        lambda xp, a: xp.eye(3, 2, k=-1, dtype=xp.float64),
    ],
    "from_dlpack": [lambda xp, a: xp.from_dlpack(a(FLOATS))],
    "full": [lambda xp, a: xp.full((2, 3), 7), lambda xp, a: xp.full(4, 1.5, dtype=xp.float64)],
    "full_like": [lambda xp, a: xp.full_like(a(FLOATS), 3), lambda xp, a: xp.full_like(a(FLOATS), 3, dtype=xp.int32)],
    "linspace": [
        lambda xp, a: xp.linspace(0.0, 1.0, 7, dtype=xp.float64),
        lambda xp, a: xp.linspace(2, 5, 6, dtype=xp.float64, endpoint=False),
    ],
    "meshgrid": [
        lambda xp, a: xp.meshgrid(a(FLOATS[0]), a(FLOATS[1, :3])),
        lambda xp, a: xp.meshgrid(a(FLOATS[0]), a(FLOATS[1, :3]), indexing="ij"),
    ],
    "ones": [lambda xp, a: xp.ones((2, 3), dtype=xp.int64), lambda xp, a: xp.ones(3, dtype=xp.float64)],
    "ones_like": [lambda xp, a: xp.ones_like(a(INTEGERS)), lambda xp, a: xp.ones_like(a(INTEGERS), dtype=xp.float32)],
    "tril": [lambda xp, a: xp.tril(a(FLOATS)), lambda xp, a: xp.tril(a(FLOATS), k=1)],
    "triu": [lambda xp, a: xp.triu(a(FLOATS)), lambda xp, a: xp.triu(a(FLOATS), k=-1)],
    "zeros": [lambda xp, a: xp.zeros((2, 3), dtype=xp.bool)],
    "zeros_like": [lambda xp, a: xp.zeros_like(a(COMPLEX))],
    "astype": [
        lambda xp, a: xp.astype(a(FLOATS), xp.int32),
        lambda xp, a: xp.astype(a(FLOATS), xp.float64, copy=False),
        lambda xp, a: xp.astype(a(INTEGERS), xp.bool),
    ],
    "can_cast": [lambda xp, a: xp.can_cast(xp.int8, xp.int16), lambda xp, a: xp.can_cast(xp.float64, xp.float32)],
    "finfo": [
        lambda xp, a: [
            getattr(xp.finfo(xp.float32), name) for name in ["bits", "eps", "max", "min", "smallest_normal"]
        ],
        lambda xp, a: xp.finfo(xp.complex128).bits,
    ],
    "iinfo": [lambda xp, a: [getattr(xp.iinfo(xp.int16), name) for name in ["bits", "max", "min"]]],
    "isdtype": [
        lambda xp, a, kind=kind: [xp.isdtype(getattr(xp, name), kind) for name in DATA_TYPES]
        for kind in [
            "bool",
            "signed integer",
            "unsigned integer",
            "integral",
            "real floating",
            "complex floating",
            "numeric",
            ("bool", "integral"),
        ]
    ],
    "result_type": [
        lambda xp, a: str(xp.result_type(xp.int8, a(INTEGERS))).rpartition(".")[2],
        lambda xp, a: str(xp.result_type(xp.float32, 1.0, True)).rpartition(".")[2],
        lambda xp, a: str(xp.result_type(xp.float32, xp.complex64)).rpartition(".")[2],
    ],
    "clip": [
        lambda xp, a: xp.clip(a(FLOATS), -1, 1),
        lambda xp, a: xp.clip(a(INTEGERS), min=0),
        lambda xp, a: xp.clip(a(FLOATS), min=a(UNIT), max=None),
        lambda xp, a: xp.clip(a(FLOATS), max=a(UNIT[0])),
    ],
    "take": [
        lambda xp, a: xp.take(a(FLOATS), a(np.array([2, 0])), axis=1),
        lambda xp, a: xp.take(a(FLOATS[0]), a(np.array([3, 3, 1]))),
        lambda xp, a: xp.take(a(FLOATS), a(np.array([1])), axis=-2),
    ],
    "take_along_axis": [
        lambda xp, a: xp.take_along_axis(a(FLOATS), a(np.argsort(FLOATS, axis=1)), axis=1),
        lambda xp, a: xp.take_along_axis(a(FLOATS), a(np.array([[1, 0, 2, 1]])), axis=0),
    ],
    "matmul": [
        lambda xp, a: xp.matmul(a(FLOATS), a(UNIT.T)),
        lambda xp, a: xp.matmul(a(FLOATS.astype("f4")), a(UNIT[0])),
        lambda xp, a: xp.matmul(a(INTEGERS), a(WHOLE.T)),
    ],
    "matrix_transpose": [lambda xp, a: xp.matrix_transpose(a(FLOATS.reshape(3, 2, 2)))],
    "tensordot": [
        lambda xp, a: xp.tensordot(a(FLOATS), a(UNIT), axes=2),
        lambda xp, a: xp.tensordot(a(FLOATS), a(UNIT), axes=((0,), (0,))),
        lambda xp, a: xp.tensordot(a(FLOATS), a(UNIT), axes=0),
    ],
    "vecdot": [
        lambda xp, a: xp.vecdot(a(COMPLEX), a(COMPLEX[::-1].copy())),
        lambda xp, a: xp.vecdot(a(FLOATS), a(UNIT), axis=-2),
        lambda xp, a: xp.vecdot(a(FLOATS.astype("f4")), a(UNIT[0])),
        lambda xp, a: xp.vecdot(a(INTEGERS.astype("i1")), a(INTEGERS.astype("i1"))),
    ],
    "broadcast_arrays": [lambda xp, a: xp.broadcast_arrays(a(FLOATS), a(UNIT[0]), a(UNIT[:, :1]))],
    "broadcast_to": [lambda xp, a: xp.broadcast_to(a(FLOATS), (2, 3, 4))],
    "concat": [
        lambda xp, a: xp.concat([a(FLOATS), a(UNIT)]),
        lambda xp, a: xp.concat((a(FLOATS), a(UNIT)), axis=-1),
        lambda xp, a: xp.concat([a(FLOATS), a(UNIT[0])], axis=None),
        lambda xp, a: xp.concat([a(FLOATS.astype("f4")), a(UNIT)]),
    ],
    "expand_dims": [lambda xp, a: xp.expand_dims(a(FLOATS), axis=1), lambda xp, a: xp.expand_dims(a(FLOATS), axis=-1)],
    "flip": [
        lambda xp, a: xp.flip(a(FLOATS)),
        lambda xp, a: xp.flip(a(FLOATS), axis=-1),
        lambda xp, a: xp.flip(a(FLOATS), axis=(0, 1)),
    ],
    "moveaxis": [
        lambda xp, a: xp.moveaxis(a(FLOATS.reshape(3, 2, 2)), 0, -1),
        lambda xp, a: xp.moveaxis(a(FLOATS.reshape(3, 2, 2)), (0, 1), (2, 0)),
    ],
    "permute_dims": [lambda xp, a: xp.permute_dims(a(FLOATS.reshape(3, 2, 2)), (2, 0, 1))],
    "repeat": [
        lambda xp, a: xp.repeat(a(FLOATS), 2),
        lambda xp, a: xp.repeat(a(FLOATS), 3, axis=0),
        lambda xp, a: xp.repeat(a(FLOATS), a(np.array([2, 0, 1])), axis=0),
    ],
    "reshape": [
        lambda xp, a: xp.reshape(a(FLOATS), (2, -1)),
        lambda xp, a: xp.reshape(a(FLOATS), (12,), copy=True),
        lambda xp, a: xp.reshape(a(FLOATS), (4, 3), copy=False),
    ],
    "roll": [
        lambda xp, a: xp.roll(a(FLOATS), 2),
        lambda xp, a: xp.roll(a(FLOATS), -1, axis=1),
        lambda xp, a: xp.roll(a(FLOATS), (1, 2), axis=(0, 1)),
        lambda xp, a: xp.roll(a(FLOATS), 1, axis=(0, 1)),
    ],
    "squeeze": [
        lambda xp, a: xp.squeeze(a(FLOATS.reshape(3, 1, 4)), 1),
        lambda xp, a: xp.squeeze(a(FLOATS.reshape(1, 3, 1, 4)), axis=(0, 2)),
    ],
    "stack": [
        lambda xp, a: xp.stack([a(FLOATS), a(UNIT)]),
        lambda xp, a: xp.stack([a(FLOATS), a(UNIT.astype("f4"))], axis=-1),
    ],
    "tile": [
        lambda xp, a: xp.tile(a(FLOATS), (2, 1)),
        lambda xp, a: xp.tile(a(FLOATS), (2,)),
        lambda xp, a: xp.tile(a(FLOATS), (2, 1, 2)),
        lambda xp, a: xp.tile(a(FLOATS), ()),
    ],
    "unstack": [lambda xp, a: xp.unstack(a(FLOATS)), lambda xp, a: xp.unstack(a(FLOATS), axis=1)],
    **{
        name: [
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS)),
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS), axis=1),
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS), axis=-2, keepdims=True),
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS), keepdims=True),
        ]
        for name in ("argmax", "argmin")
    },
    **{
        name: [
            lambda xp, a, name=name: getattr(xp, name)(a(BOOLS if name in ("all", "any") else FLOATS)),
            lambda xp, a, name=name: (
                getattr(xp, name)(a(INTEGERS.astype("i4")), axis=1)
                if name not in ("mean", "std", "var")
                else getattr(xp, name)(a(FLOATS), axis=1)
            ),
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS), axis=(0, 1), keepdims=True),
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS), keepdims=True),
        ]
        for name in ["all", "any", "count_nonzero", "max", "mean", "min", "prod", "std", "sum", "var"]
    },
    "nonzero": [lambda xp, a: xp.nonzero(a(INTEGERS)), lambda xp, a: xp.nonzero(a(BOOLS[0]))],
    "searchsorted": [
        lambda xp, a: xp.searchsorted(a(np.sort(FLOATS[0])), a(UNIT)),
        lambda xp, a: xp.searchsorted(a(np.array([1, 1, 2, 2, 2, 5])), a(np.arange(7)), side="right"),
        lambda xp, a: xp.searchsorted(a(np.array([1, 1, 2, 2, 2, 5])), a(np.arange(7)), side="left"),
        lambda xp, a: xp.searchsorted(a(FLOATS[0]), a(UNIT), sorter=a(np.argsort(FLOATS[0]))),
        lambda xp, a: xp.searchsorted(a(np.zeros(0)), a(UNIT)),
        lambda xp, a: xp.searchsorted(a(np.arange(5.0)), a(np.array(2.5))),
    ],
    "where": [
        lambda xp, a: xp.where(a(BOOLS), a(FLOATS), a(UNIT.astype("f4"))),
        lambda xp, a: xp.where(a(BOOLS), a(FLOATS.astype("f4")), 0),
        lambda xp, a: xp.where(a(BOOLS), 1.5, a(FLOATS.astype("f4"))),
    ],
    **{
        name: [
            lambda xp, a, name=name: getattr(xp, name)(a(INTEGERS)),
            lambda xp, a, name=name: getattr(xp, name)(a(np.array([np.nan, 1, np.nan, 0.5, 1]))),
            lambda xp, a, name=name: getattr(xp, name)(a(BOOLS)),
        ]
        for name in ["unique_all", "unique_counts", "unique_inverse"]
    },
    # numpy returns them in no order.
    "unique_values": [lambda xp, a: xp.sort(xp.unique_values(a(INTEGERS)))],
    "argsort": [
        lambda xp, a: xp.argsort(a(FLOATS)),
        lambda xp, a: xp.argsort(a(INTEGERS), axis=0, stable=True),
        lambda xp, a: xp.argsort(a(FLOATS), axis=None) if xp is np else xp.argsort(xp.reshape(a(FLOATS), (-1,))),
    ],
    "sort": [lambda xp, a: xp.sort(a(FLOATS)), lambda xp, a: xp.sort(a(INTEGERS), axis=0)],
    **{
        name: [
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS), axis=1),
            lambda xp, a, name=name: getattr(xp, name)(a(FLOATS[0]), include_initial=True),
            lambda xp, a, name=name: getattr(xp, name)(a(WHOLE.astype("i4")), axis=0, include_initial=True),
            lambda xp, a, name=name: getattr(xp, name)(a(WHOLE), axis=-1, dtype=xp.float64),
        ]
        for name in ("cumulative_sum", "cumulative_prod")
    },
    "diff": [
        lambda xp, a: xp.diff(a(FLOATS)),
        lambda xp, a: xp.diff(a(FLOATS), axis=0, n=2),
        lambda xp, a: xp.diff(a(FLOATS), n=5),
        lambda xp, a: xp.diff(a(FLOATS), n=0),
        lambda xp, a: xp.diff(a(FLOATS), prepend=a(UNIT), append=a(UNIT[:, :1])),
        lambda xp, a: xp.diff(a(BOOLS)),
    ],
}
LINALG_CALLS: dict[str, list[Call]] = {
    "cross": [lambda xp, a: xp.linalg.cross(a(FLOATS), a(UNIT), axis=0)],
    "det": [lambda xp, a: xp.linalg.det(a(FLOATS[:, :3]))],
    "diagonal": [lambda xp, a, o=o: xp.linalg.diagonal(a(FLOATS), offset=o) for o in (-1, 0, 1)],
    "inv": [lambda xp, a: xp.linalg.inv(a(FLOATS[:, :3]))],
    "matmul": [lambda xp, a: xp.linalg.matmul(a(FLOATS), a(UNIT.T))],
    "matrix_norm": [
        *[lambda xp, a, o=o: xp.linalg.matrix_norm(a(FLOATS), ord=o) for o in ("fro", 1, -1, np.inf, -np.inf)],
        lambda xp, a: xp.linalg.matrix_norm(a(FLOATS.reshape(3, 2, 2)), keepdims=True, ord=1),
        lambda xp, a: xp.linalg.matrix_norm(a(FLOATS.reshape(3, 2, 2)), keepdims=True),
    ],
    "matrix_transpose": [lambda xp, a: xp.linalg.matrix_transpose(a(FLOATS))],
    "outer": [lambda xp, a: xp.linalg.outer(a(FLOATS[0]), a(UNIT[1]))],
    "solve": [lambda xp, a: xp.linalg.solve(a(FLOATS[:, :3]), a(UNIT))],
    "tensordot": [lambda xp, a: xp.linalg.tensordot(a(FLOATS), a(UNIT))],
    "trace": [lambda xp, a: xp.linalg.trace(a(FLOATS)), lambda xp, a: xp.linalg.trace(a(FLOATS), offset=1)],
    "vecdot": [lambda xp, a: xp.linalg.vecdot(a(FLOATS), a(UNIT))],
    "vector_norm": [
        lambda xp, a: xp.linalg.vector_norm(a(FLOATS)),
        lambda xp, a: xp.linalg.vector_norm(a(FLOATS), axis=(0, 1), keepdims=True, ord=1),
        lambda xp, a: xp.linalg.vector_norm(a(FLOATS), axis=-1, ord=np.inf),
    ],
}
CALLS: dict[str, list[Call]] = {
    **{
        name: [lambda xp, a, name=name, data=data: getattr(xp, name)(a(data)) for data in cases]
        for name, cases in UNARY.items()
    },
    **{name: [call for data in cases for call in _binary_calls(name, data)] for name, cases in BINARY.items()},
    **OTHERS,
    **{f"linalg.{name}": calls for name, calls in LINALG_CALLS.items()},
}


def same(ours: Any, theirs: Any) -> None:
    """Assert equal values, shapes and dtypes, also inside tuples and lists."""
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    elif isinstance(ours, flow.Tensor):
        assert ours.shape == np.shape(theirs)
        assert ours.dtype.numpy == theirs.dtype
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=2e-6 if ours.dtype.itemsize == 4 else 1e-12, atol=1e-15)
    else:
        assert ours == theirs


def test_every_function_is_called_below() -> None:
    called = set(CALLS) | {"__array_namespace_info__"} | OWN
    assert set(NAMES) <= called
    assert {f"linalg.{name}" for name in set(LINALG) - OWN_LINALG} <= called


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, calls in CALLS.items() for number in range(len(calls))]
)
def test_against_numpy(name: str, number: int) -> None:
    call = CALLS[name][number]
    same(call(xp, flow.tensor), call(np, lambda data: data))


def test_descending_sort_is_stable() -> None:
    x = flow.tensor(INTEGERS)
    np.testing.assert_array_equal(xp.sort(x, descending=True).numpy(), -np.sort(-INTEGERS))
    np.testing.assert_array_equal(xp.argsort(x, descending=True).numpy(), np.argsort(-INTEGERS, kind="stable"))


def test_sign_of_complex_numbers() -> None:
    numbers = np.array([3 + 4j, 0, -2j])
    np.testing.assert_allclose(xp.sign(flow.tensor(numbers)).numpy(), [0.6 + 0.8j, 0, -1j])


@pytest.mark.parametrize("name", ["count_nonzero", "max", "mean", "min", "prod", "std", "sum", "var"])
def test_reductions_along_no_dimension_keep_the_shape(name: str) -> None:
    numbers = np.array([[1.0, 0.0], [2.0, 3.0]])
    found = getattr(xp, name)(flow.tensor(numbers), axis=())
    expected = numbers != 0 if name == "count_nonzero" else numbers * 0 if name in ("std", "var") else numbers
    np.testing.assert_array_equal(found.numpy(), expected)


def test_sums_of_bytes_are_unsigned() -> None:
    assert xp.sum(flow.tensor([200, 100], dtype=flow.uint8)).dtype is flow.uint64
    assert flow.sum(flow.tensor([200, 100], dtype=flow.uint8)).dtype is flow.int64


# The rest of the protocol


def test_tensors_know_their_namespace() -> None:
    x = flow.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match=r"version 2024\.12 of the array API standard, not '2030\.01'"):
        x.__array_namespace__(api_version="2030.01")
    assert x.to_device("sim").device.type == "sim"
    with pytest.raises(ValueError, match="stream must be None"):
        x.to_device("cpu", stream=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a device is named by a string"):
        x.to_device(flow.float64)  # type: ignore[arg-type]


def test_gradients_flow() -> None:
    x = flow.ones(3, 3, requires_grad=True)
    y = xp.sum(xp.matrix_transpose(xp.multiply(x, 2.0)) + xp.cumulative_sum(x, axis=0, include_initial=True)[1:])
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[5.0] * 3, [4.0] * 3, [3.0] * 3]


@pytest.mark.host
def test_copy_decides_whether_memory_is_shared() -> None:
    array = np.arange(6.0)
    assert np.shares_memory(xp.asarray(array)._array(), array)
    assert np.shares_memory(xp.asarray(array, copy=False)._array(), array)
    assert not np.shares_memory(xp.asarray(array, copy=True)._array(), array)
    x = flow.zeros(2, 3)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True)._blob.storage is not x._blob.storage
    copies: Any = (([1.0], {}), (array, {"dtype": flow.float32}), (x, {"dtype": flow.int8}))
    for obj, options in copies:
        with pytest.raises(ValueError, match="only by a copy, but copy is False"):
            xp.asarray(obj, copy=False, **options)
    assert xp.reshape(x, (6,), copy=True)._blob.storage is not x._blob.storage
    with pytest.raises(ValueError, match="only by a copy"):
        xp.reshape(x.t(), (6,), copy=False)
    assert xp.astype(x, flow.float32, copy=False) is x
    assert xp.astype(x, flow.float32) is not x
    for copy in (xp.positive(x), xp.clip(x), xp.tile(x, ()), xp.diff(x, n=0)):
        assert copy._blob.storage is not x._blob.storage


class _Foreign:
    """An object whose only attributes are those of DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.host
def test_asarray_of_an_object_with_dlpack() -> None:
    array = np.arange(3.0)
    assert np.shares_memory(xp.asarray(_Foreign(array))._array(), array)
    assert np.shares_memory(xp.asarray(_Foreign(array), copy=False)._array(), array)
    assert not np.shares_memory(xp.asarray(_Foreign(array), copy=True)._array(), array)
    with pytest.raises(ValueError, match="asarray: from_dlpack"):
        xp.asarray(_Foreign(array[::-1]), copy=False)
    with pytest.raises(ValueError, match="only by a copy"):
        xp.asarray(_Foreign(array), copy=False, dtype=flow.int8)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: xp.add(1, 2), TypeError, "add: expected at least one tensor"),
        (
            lambda x: xp.add(x, "1"),  # type: ignore[arg-type]
            TypeError,
            "add: expected tensors and Python numbers, got str",
        ),
        (lambda x: xp.isdtype(flow.int8, "integer"), ValueError, "there is no kind 'integer'"),
        (
            lambda x: xp.isdtype(flow.int8, 3),  # type: ignore[arg-type]
            TypeError,
            "isdtype: expected a dtype",
        ),
        (lambda x: xp.result_type(1), ValueError, "at least one tensor or dtype"),
        (lambda x: xp.squeeze(x, 0), ValueError, "expected size 1 in dimension 0"),
        (lambda x: xp.take(x, flow.tensor([0])), ValueError, "take: expected an axis"),
        (lambda x: xp.cumulative_sum(x), ValueError, "cumulative_sum: expected an axis"),
        (lambda x: xp.searchsorted(x, x), ValueError, "x1 must have one dimension"),
        (lambda x: xp.searchsorted(x[0], x, side="middle"), ValueError, "side must be 'left' or 'right'"),
        (lambda x: xp.nonzero(x[0, 0]), ValueError, "a 0-d tensor has no positions"),
        (lambda x: xp.matrix_transpose(x[0]), ValueError, "at least two dimensions"),
        (lambda x: xp.vecdot(x, x, axis=0), ValueError, "expected a negative axis"),
        (lambda x: xp.vecdot(x, x[:, :1]), ValueError, "sizes 3 and 1 of dimension -1 differ"),
        (lambda x: xp.linalg.cross(x, x, axis=0), ValueError, "expected size 3 in dimension 0"),
        (lambda x: xp.linalg.matrix_norm(x, ord=3), ValueError, "ord must be"),
        (lambda x: xp.eye(2, k=1.5), TypeError, "eye: k must be an integer"),  # type: ignore[arg-type]
        (lambda x: xp.eye(2.5, 3, k=1), TypeError, "eye: n_rows must be an integer"),  # type: ignore[arg-type]
        (lambda x: xp.eye(2, 3.5, k=1), TypeError, "eye: n_cols must be an integer"),  # type: ignore[arg-type]
        (lambda x: xp.eye(-1, 3, k=1), ValueError, "eye: .* negative"),
        (lambda x: xp.eye(2, -1, k=1), ValueError, "eye: .* negative"),
        (lambda x: xp.linspace(0, 1, -1, endpoint=False), ValueError, "linspace"),
        (lambda x: xp.diff(x, n=-1), ValueError, "n cannot be negative"),
        (lambda x: xp.eye(2, k=1, dtype="cpu"), TypeError, "dtype must be"),  # type: ignore[arg-type]
        (lambda x: xp.astype(x, None), TypeError, "astype: expected a dtype"),  # type: ignore[arg-type]
        (lambda x: xp.isdtype(x, "integral"), TypeError, "isdtype: expected a dtype"),
        (lambda x: xp.add(x.to(flow.uint8), 300), ValueError, "add: 300 does not fit"),
        (lambda x: xp.clip(x.to(flow.uint8), 0, 300), ValueError, "clip: 300 does not fit"),
        (lambda x: xp.clip(x, x * 1j), TypeError, "clip: a limit cannot be complex64"),
        (lambda x: xp.take_along_axis(x, x), TypeError, "must be an integer tensor"),
        (lambda x: xp.cumulative_sum(x[0, 0], axis=0, include_initial=True), ValueError, "cumulative_sum: .* 0-d"),
        (lambda x: xp.linalg.cross([1, 0, 0], x), TypeError, "cross: expected tensors"),  # type: ignore[arg-type]
        (lambda x: xp.linalg.cross(x[0], x.T, axis=0), ValueError, "cross: expected a negative axis"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(flow.zeros(2, 3))


def test_result_types_do_not_depend_on_the_order() -> None:
    dtypes = flow.uint64, flow.int8, flow.float32
    assert {xp.result_type(*some) for some in itertools.permutations(dtypes)} == {flow.float32}


# Random operands


@pytest.mark.slow
@settings(max_examples=60, derandomize=True)
@given(
    values=st.lists(st.integers(-4, 4), min_size=0, max_size=40),
    wanted=st.lists(st.integers(-6, 6), min_size=0, max_size=10),
    side=st.sampled_from(["left", "right"]),
)
def test_searching_and_sets_of_random_values(values: list[int], wanted: list[int], side: Any) -> None:
    array, others = np.array(values, np.int64), np.array(wanted, np.int64)
    order = np.sort(array)
    same(xp.searchsorted(flow.tensor(order), flow.tensor(others), side=side), np.searchsorted(order, others, side))
    same(xp.unique_all(flow.tensor(array)), np.unique_all(array))
    same(xp.sort(flow.tensor(array)), order)
    same(xp.cumulative_sum(flow.tensor(array), include_initial=True), np.cumulative_sum(array, include_initial=True))


@pytest.mark.slow
@settings(max_examples=80, derandomize=True)
@given(data=st.data())
def test_promotion_of_random_dtypes(data: st.DataObject) -> None:
    names = ["int8", "int16", "int32", "int64", "uint8"], ["float32", "float64"], ["complex64", "complex128"]
    kind = data.draw(st.sampled_from(names))
    first, second = data.draw(st.sampled_from(kind)), data.draw(st.sampled_from(kind))
    shapes = data.draw(st.permutations([(), (2, 1), (1, 3)]))
    one, other = np.ones(shapes[0], first), np.full(shapes[1], 2, second)
    for name in ("add", "multiply", "subtract", "equal", "pow", "divide"):
        if name != "divide" or kind is not names[0]:
            same(getattr(xp, name)(flow.tensor(one), flow.tensor(other)), np.asarray(getattr(np, name)(one, other)))
