"""Finds C functions by name, in libraries that are composed from the C files of this folder."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from vmflow.kernels.choosing import Call
from vmflow.kernels.expressions.rules import RULES
from vmflow.kernels.expressions.sources import elements

from .blocks import in_blocks
from .loading import LOADER, Library


@cache
def text_of(name: str) -> str:
    """Return the text of the C file `name` of this folder."""
    from pathlib import Path

    return Path(__file__).with_name(name).read_text()


@cache
def common_source() -> str:
    """Return the C definitions with which the source of every library of kernels begins."""
    return text_of("functions.h") + elements()


_POINTER: Final = ctypes.c_void_p
_COUNT: Final = ctypes.c_int64


class CFunction(NamedTuple):
    """A C function whose library is loaded and may be used.

    Attributes:
        call: the function, called through ctypes.
        by_words: the address of a C function that takes all arguments as an array of int64 words; 0 if there is none.
        arguments: the ctypes types of the arguments; None if `call` itself takes an array of words.
    """

    call: Callable[..., Any]
    by_words: int
    arguments: tuple[Any, ...] | None = None

    def words(self, arguments: Sequence[Any]) -> list[int]:
        """Convert the arguments to int64 words: None to 0, a floating-point argument to the bits of a double."""
        if self.arguments is None:
            return list(arguments)
        return [
            ctypes.c_int64.from_buffer_copy(ctypes.c_double(value)).value
            if kind not in (_POINTER, _COUNT)
            else int(value or 0)
            for value, kind in zip(arguments, self.arguments, strict=True)
        ]

    def alone(self, arguments: tuple[Any, ...]) -> Call:
        """Return a `Call` of the function with these arguments, which computes in the calling thread alone."""
        if self.arguments is None:
            arguments = ((_COUNT * len(arguments))(*arguments),)
        return self.call, arguments, None


def address_of(function: Callable[..., Any]) -> int:
    """Return the address of a C function that ctypes has found."""
    found = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert found is not None
    return found


class _Declared(NamedTuple):
    """The declaration of a C function.

    Attributes:
        library: the name of its library; see `source`.
        exact: whether its results are numpy's to the bit, but for the sign of the extremum of two zeros.
        arguments: the ctypes types of its arguments.
    """

    library: str
    exact: bool
    arguments: tuple[Any, ...]


# The elementwise ops that have a C function of their own, for float32: name in the op table -> number of operands.
SINGLE: Final = {
    "erf": 1,
    "exp": 1,
    "expm1": 1,
    "gelu": 1,
    "gelu_gradient": 2,
    "log": 1,
    "log1p": 1,
    "relu": 1,
    "relu_gradient": 2,
    "sigmoid": 1,
    "silu": 1,
    "tanh": 1,
}

# The types of elements in C.  Functions that only move elements treat them as integers of their size.
_INTEGERS: Final = ("int8_t", "int16_t", "int32_t", "int64_t")
_NUMBERS: Final = (*_INTEGERS, "float", "double")

# The kinds of random numbers, such as uniform ones, whose C functions take no parameters of a distribution.
_RANDOM: Final = ("words", "uniform_floats", "uniform_doubles", "normal_floats", "normal_doubles")

# The types of elements for cumsum and cumprod, and the types that these accumulate in.
_ACCUMULATED: Final = {"float": "double", "double": "double", "int64_t": "int64_t"}


def _declared() -> dict[str, _Declared]:
    """Return the declarations of all C functions that `function` finds, by name."""
    pointers, counts = [(kind,) * 11 for kind in (_POINTER, _COUNT)]
    rows = (*pointers[:2], *counts[:2])
    reduction = (*rows, _POINTER, _COUNT)
    index = (*pointers[:3], *counts[:5], _POINTER)
    running = (*pointers[:2], *counts[:5])
    inexact: dict[str, dict[str, tuple[Any, ...]]] = {
        "rows": {
            "softmax": rows,
            "log_softmax": rows,
            "class_losses": (*pointers[:4], *counts[:2], _POINTER),
            "class_loss": (*pointers[:3], *counts[:2]),
            "cross_entropy_gradient": (*pointers[:3], *counts[:2], *pointers[:2], _COUNT, _POINTER),
            "layer_norm": (*pointers[:4], *counts[:2], *pointers[:2], ctypes.c_float),
            "layer_norm_gradient": (*pointers[:5], *counts[:4], *pointers[:2]),
            "column_sums": (*pointers[:2], *counts[:3]),
            **{f"row_{name}": reduction for name in ("sums", "squares", "products")},
        },
        "images": {
            "convolution": pointers[:6],
            "convolution_input_gradient": pointers[:5],
            "convolution_weight_gradient": pointers[:6],
            "convolution_scratch": pointers[:1],
            "batch_norm": (*pointers[:8], ctypes.c_float),
            "batch_norm_gradient": (*pointers[:10], ctypes.c_float),
            "batch_norm_scratch": pointers[:1],
        },
        "attention": {name: (_POINTER, _COUNT, _POINTER) for name in ("attention", "attention_gradient")},
        "products": {"matrix_product": pointers[:1], "matrix_products": (_POINTER, _COUNT, _POINTER)},
    }
    exact: dict[str, dict[str, tuple[Any, ...]]] = {
        "rows": {
            "add_to_rows": (_POINTER, *counts[:2], _POINTER),
            **{f"row_{name}": reduction for name in ("largest", "smallest")},
            **{f"{name}_{kind}": running for kind in _ACCUMULATED for name in ("cumsum", "cumprod")},
            **{
                f"{name}_{kind}": rows
                for kind in ("float", "double")
                for name in ("sgd_steps", "sgd_momentum_steps", "adam_steps")
            },
        },
        "images": {"max_pool": pointers[:5], "plane_scatter": (*pointers[:3], *counts[:3])},
        "random": {
            **{f"random_{kind}": (_POINTER, *counts[:5]) for kind in _RANDOM},
            "random_kept": (_POINTER, *counts[:5], ctypes.c_double),
            "random_integers": (_POINTER, *counts[:6]),
            "sort_keys": (*pointers[:2], *counts[:2]),
        },
        "indexing": {
            f"{name}_{kind}": index
            for names, kinds in ((("gather", "scatter"), _INTEGERS), (("scatter_add", "add_rows"), _NUMBERS))
            for name in names
            for kind in kinds
        },
    }
    found = {
        name: _Declared(library, is_exact, arguments)
        for is_exact, libraries in ((False, inexact), (True, exact))
        for library, functions in libraries.items()
        for name, arguments in functions.items()
    }
    for name, operands in SINGLE.items():
        found[f"single_{name}"] = _Declared("rows", RULES[name].exact, (*pointers[: operands + 1], _COUNT))
    return found


_DECLARED: Final = _declared()

# The C functions of `_DECLARED` whose one argument is an array of int64 words, so that threads can share them.
_OF_WORDS: Final = ("matrix_product",)

# The C functions of `_DECLARED` that return a number; the others return nothing.
_COUNTING: Final = ("convolution_scratch", "batch_norm_scratch", "plane_scatter")

# Layer norm sums the gradients by weight and bias for this many rows at a time, and then adds up these sums.  Fewer
# rows would mean more sums to write, more rows fewer parts for threads to share.
LAYER_NORM_PART: Final = 64

# The least `elements` with which `function` has a library compiled, unless the mode is "wait".  Once the library is
# loaded, it computes smaller arrays, too.
WORTHWHILE: Final = 1 << 12

# The libraries and their first C files behind `common_source`; `source` adds more.  There are several libraries, so
# that a program need not wait for functions that it does not use.
_FILES: Final = {
    "rows": ("vectors.h", "columns.h"),
    "images": ("vectors.h", "convolution.c", "convolution_gradient.c", "pooling.c", "channels.c"),
    "attention": ("vectors.h", "columns.h", "panels.h", "attention.c"),
    "products": ("vectors.h", "columns.h", "panels.h", "products.c"),
    "indexing": (),
    "random": ("random.c",),
}


@cache
def source(library: str) -> str:
    """Compose the C source of a library, one of `_FILES`."""
    parts = [common_source(), *[text_of(file) for file in _FILES[library]]]
    if library == "rows":
        updates = text_of("updates.c")
        parts += [
            text_of("rows.c").replace("LAYER_NORM_PART", str(LAYER_NORM_PART)),
            updates.replace("REAL", "float").replace("ROOT", "__builtin_sqrtf"),
            updates.replace("REAL", "double").replace("ROOT", "__builtin_sqrt"),
            *[
                text_of("running.c").replace("TYPE", entry).replace("WIDE", wide)
                for entry, wide in _ACCUMULATED.items()
            ],
            *[_single(name) for name in SINGLE if name != "exp"],  # which rows.c has
        ]
    elif library == "indexing":
        parts += [text_of("indexing.c").replace("TYPE", kind) for kind in _NUMBERS]
    names = [name for name, value in _DECLARED.items() if value.library == library]
    return "\n".join([*parts, *[_by_words(name) for name in names if _can_be_cut(name) and name not in _OF_WORDS]])


def _single(name: str) -> str:
    """Write the C function of an elementwise op of `SINGLE`, which computes a whole float32 array."""
    given = [f"x{number}" for number in range(SINGLE[name])]
    pointers = "".join([f"const float *{operand}, " for operand in given])
    line = f"y[i] = {RULES[name].write('float32', *[f'{operand}[i]' for operand in given])};"
    body = [
        "int64_t done = 0;",
        *in_blocks(given, ["y"], [line]),
        "LANES",
        f"for (int64_t i = done; i < n; i++) {line}",
    ]
    lines = "".join([f"    {value}\n" for value in body])
    return f"void single_{name}({pointers}float *y, int64_t n) {{\n{lines}}}\n"


def _can_be_cut(name: str) -> bool:
    return _DECLARED[name].library not in ("images", "random") and name not in _COUNTING


def _by_words(name: str) -> str:
    """Write a C function that calls function `name` with arguments from an array of words."""
    forms = {_POINTER: "(void *)w[%d]", _COUNT: "w[%d]"}
    kinds = _DECLARED[name].arguments
    given = [forms.get(kind, "*(const double *)(w + %d)") % place for place, kind in enumerate(kinds)]
    return f"void {name}_by_words(const int64_t *w) {{ {name}({', '.join(given)}); }}"


# Caches of `function`: the functions that are loaded and may be used; and for each other name looked up,
# `LOADER.arrived` at the last lookup, and whether that lookup let the library be compiled.
_functions: dict[str, CFunction] = {}
_missing: dict[str, tuple[int, bool]] = {}
LOADER.watchers += [_functions.clear, _missing.clear]


def function(name: str, elements: int) -> CFunction | None:
    """Return a C function if it may be used now, else None; requests its library if that is not loaded.

    Call this when a kernel is chosen: when a library is loaded later, kernels are chosen again.

    Args:
        name: the function's name; see `_declared`.
        elements: the number of elements to compute; see `WORTHWHILE`.
    """
    found = _functions.get(name)
    if found is None and LOADER.mode != "off":
        looked = LOADER.arrived, elements >= WORTHWHILE
        if _missing.get(name) != looked:
            return _look_for(name, looked)
    return found


def _look_for(name: str, looked: tuple[int, bool]) -> CFunction | None:
    in_library, exact, arguments = _DECLARED[name]
    library = LOADER.request(source(in_library), looked[1])
    if (
        library is None
        or not library.usable(exact)
        or (in_library in ("attention", "products") and not panels_pay(library))
    ):
        _missing[name] = looked
        return None
    call: Any = library.function(name)
    call.argtypes = arguments
    if name in _COUNTING:
        call.restype = _COUNT
    takes_words, at = name in _OF_WORDS, 0
    if _can_be_cut(name):
        at = address_of(call if takes_words else library.function(f"{name}_by_words"))
    found = _functions[name] = CFunction(call, at, None if takes_words else arguments)
    return found


def panels_pay(library: Library) -> bool:
    """Whether to prefer the library "products" or "attention" to BLAS on this processor; see panels.h."""
    pays: Any = library.function("panels_pay")
    pays.restype = _COUNT
    return bool(pays())
