"""The kernels that are called by name: what is written by hand in the C files of this folder, and chains of ops."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from .elementwise import Loop, address
from .expressions import RULES
from .loading import LOADER, Library


@cache
def text_of(name: str) -> str:
    """A C file of this folder."""
    from pathlib import Path

    return Path(__file__).with_name(name).read_text()


@cache
def common_source() -> str:
    """What all sources begin with."""
    return text_of("functions.h")


class Chain:
    """The function of one chain, which may not be there yet.

    Args:
        loop: see `Loop`.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._library: Library | None = None
        self._function: Callable[[Any], None] | None = None

    def function(self) -> Callable[[Any], None] | None:
        """The function, called with a `Block`, if it is there and may be used."""
        if LOADER.mode == "off":
            return None
        if self._function is None and self._usable():
            assert self._library is not None
            self._function = self._library.function(self._loop.name)
        return self._function

    def _usable(self) -> bool:
        loop = self._loop
        # What eager ops compute is the measure, and these may run in C as well.
        alike = all([function(f"single_{name}", _WORTHWHILE) for name in loop.inexact])
        alike = alike and (not loop.vector or vector_code_agrees())
        if self._library is None:
            self._library = LOADER.request(common_source() + "\n" + loop.source)
        return self._library is not None and self._library.usable(alike)


# Whether exp and log are those of numpy

_PROBED: Final = 1 << 12


@cache
def probe_source() -> str:
    """Two functions to compare with numpy's."""
    loops = [
        f"void probe_{name}(const float *x, float *y, int64_t n) {{\n"
        f"    LANES\n    for (int64_t i = 0; i < n; i++) y[i] = {name}_f(x[i]);\n}}\n"
        for name in ("exp", "log")
    ]
    return common_source() + "\n" + "".join(loops)


_agreement: dict[Library, bool] = {}


def vector_code_agrees(make: bool = True) -> bool:
    """Whether exp and log of float32 are those of numpy to the bit, on this processor; False until it is known.

    Args:
        make: whether what finds it out is to be compiled if it was not before.
    """
    library = LOADER.request(probe_source(), make)
    if library is None or library.loaded is None:
        return False
    if library not in _agreement:
        _agreement[library] = all([_same(library, name, function) for name, function in _VECTOR_FUNCTIONS.items()])
    return _agreement[library]


_VECTOR_FUNCTIONS: Final[dict[str, Any]] = {"exp": np.exp, "log": np.log}


def _same(library: Library, name: str, function: Any) -> bool:
    # From all over: every so-manieth of all bit patterns, and what functions are mostly asked for.
    patterns = np.arange(_PROBED, dtype=np.uint32) * np.uint32((1 << 32) // _PROBED + 1)
    values = np.concatenate([patterns.view(np.float32), np.linspace(-105, 90, _PROBED, dtype=np.float32)])
    found = np.empty_like(values)
    arguments = ctypes.c_void_p(address(values)), ctypes.c_void_p(address(found)), ctypes.c_int64(values.size)
    library.function(f"probe_{name}")(*arguments)
    with np.errstate(all="ignore"):
        expected = function(values)
    return bool(np.array_equal(found, expected, equal_nan=True))


# Those written by hand

# Whether results are numpy's to the bit: always, where exp and log are (see `vector_code_agrees`), or not.
_Exactness: TypeAlias = Literal["always", "vector", "never"]

_POINTER: Final = ctypes.c_void_p
_COUNT: Final = ctypes.c_int64
_REAL: Final = ctypes.c_double

# Whole arrays of float32, element by element: name in the op table -> how many operands.
SINGLE: Final = {
    "erf": 1,
    "expm1": 1,
    "gelu": 1,
    "gelu_gradient": 2,
    "log1p": 1,
    "relu": 1,
    "relu_gradient": 2,
    "sigmoid": 1,
    "silu": 1,
    "tanh": 1,
}


# Those of images, which are a library of their own: whoever has no images need not wait for it.
_OF_IMAGES: Final[dict[str, tuple[_Exactness, tuple[Any, ...]]]] = {
    "convolution": ("never", (_POINTER,) * 6),
    "convolution_input_gradient": ("never", (_POINTER,) * 5),
    "convolution_weight_gradient": ("never", (_POINTER,) * 6),
    "convolution_room": ("never", (_POINTER,)),
    "batch_norm": ("never", (_POINTER,) * 8 + (ctypes.c_float,)),
    "batch_norm_gradient": ("never", (_POINTER,) * 10 + (ctypes.c_float,)),
    "batch_norm_room": ("never", (_POINTER,)),
    "max_pool": ("always", (_POINTER,) * 5),
    "plane_scatter": ("always", (_POINTER,) * 3 + (_COUNT,) * 3),
}

# Those that return a number.
_COUNTING: Final = ("cross_entropy", "convolution_room", "batch_norm_room", "plane_scatter")


def _declared() -> dict[str, tuple[_Exactness, tuple[Any, ...]]]:
    """The arguments of all functions, and how exact they are."""
    found: dict[str, tuple[_Exactness, tuple[Any, ...]]] = {
        "softmax": ("never", (_POINTER,) * 2 + (_COUNT,) * 2),
        "log_softmax": ("never", (_POINTER,) * 2 + (_COUNT,) * 2),
        "cross_entropy": ("never", (_POINTER,) * 6 + (_COUNT,) * 3),
        "cross_entropy_gradient": ("vector", (_POINTER,) * 5 + (_COUNT,) * 3),
        "layer_norm": ("never", (_POINTER,) * 6 + (_COUNT,) * 2 + (ctypes.c_float,)),
        "layer_norm_gradient": ("never", (_POINTER,) * 9 + (_COUNT,) * 2),
        "add_to_rows": ("always", (_POINTER,) * 2 + (_COUNT,) * 2),
    }
    for kind in ("float", "double"):
        found[f"sgd_{kind}"] = ("always", (_POINTER,) * 2 + (_COUNT,) + (_REAL,) * 2 + (_COUNT,))
        found[f"sgd_momentum_{kind}"] = ("always", (_POINTER,) * 3 + (_COUNT,) + (_REAL,) * 4 + (_COUNT,) * 3)
        found[f"adam_{kind}"] = (
            "always",
            (_POINTER,) * 4 + (_COUNT,) + (_REAL,) * 2 + (_COUNT,) + (_REAL,) * 4,
        )
    for name, operands in SINGLE.items():
        rule = RULES[name]
        exactness: _Exactness = "never" if not rule.exact else "vector" if rule.vector else "always"
        found[f"single_{name}"] = (exactness, (_POINTER,) * (operands + 1) + (_COUNT,))
    return found | _OF_IMAGES


_DECLARED: Final = _declared()

# For fewer elements nothing is compiled; what has been compiled computes also those, from the first one on.
_WORTHWHILE: Final = 1 << 12


@cache
def handwritten_source() -> str:
    """The source of everything that is known beforehand, but for images."""
    updates = text_of("updates.c")
    singles = []
    for name, operands in SINGLE.items():
        given = [f"x{number}" for number in range(operands)]
        pointers = "".join([f"const float *{it}, " for it in given])
        value = RULES[name].write("float32", *[f"{it}[i]" for it in given])
        singles.append(
            f"void single_{name}({pointers}float *y, int64_t n) {{\n"
            f"    LANES\n    for (int64_t i = 0; i < n; i++) y[i] = {value};\n}}\n"
        )
    return "\n".join(
        [
            common_source(),
            text_of("vectors.h"),
            text_of("rows.c"),
            updates.replace("REAL", "float").replace("ROOT", "__builtin_sqrtf"),
            updates.replace("REAL", "double").replace("ROOT", "__builtin_sqrt"),
            *singles,
        ]
    )


@cache
def image_source() -> str:
    """The source of what is known beforehand of images."""
    files = ("vectors.h", "convolution.c", "convolution_gradient.c", "pooling.c", "channels.c")
    return "\n".join([common_source(), *[text_of(it) for it in files]])


# Those that are there and may be used; and of the others when they were looked for last, and whether to be made.
_functions: dict[str, Callable[..., Any]] = {}
_missing: dict[str, tuple[int, bool]] = {}
LOADER.watchers += [_functions.clear, _missing.clear]


def function(name: str, elements: int) -> Callable[..., Any] | None:
    """A function written by hand, if it is there and may be used; else it may be there later.

    Args:
        name: see `_declared`.
        elements: how many it is wanted for.
    """
    found = _functions.get(name)
    if found is None and LOADER.mode != "off":
        looked = LOADER.arrived, elements >= _WORTHWHILE
        if _missing.get(name) != looked:
            return _look_for(name, looked)
    return found


def _look_for(name: str, looked: tuple[int, bool]) -> Callable[..., Any] | None:
    exactness, arguments = _DECLARED[name]
    library = LOADER.request(image_source() if name in _OF_IMAGES else handwritten_source(), looked[1])
    exact = exactness == "always" or (exactness == "vector" and vector_code_agrees(looked[1]))
    if library is None or not library.usable(exact):
        _missing[name] = looked
        return None
    found = library.function(name)
    function: Any = found
    function.argtypes = arguments
    if name in _COUNTING:
        function.restype = _COUNT
    _functions[name] = found
    return found
