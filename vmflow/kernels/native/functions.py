"""The kernels that are called by name: what is written by hand in the C files of this folder."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from .blocks import in_blocks
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


# Those written by hand

_POINTER: Final = ctypes.c_void_p
_COUNT: Final = ctypes.c_int64

# Whole arrays of float32, element by element: name in the op table -> how many operands.
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


# Those of images, which are a library of their own: whoever has no images need not wait for it.
_OF_IMAGES: Final[dict[str, tuple[bool, tuple[Any, ...]]]] = {
    "convolution": (False, (_POINTER,) * 6),
    "convolution_input_gradient": (False, (_POINTER,) * 5),
    "convolution_weight_gradient": (False, (_POINTER,) * 6),
    "convolution_room": (False, (_POINTER,)),
    "batch_norm": (False, (_POINTER,) * 8 + (ctypes.c_float,)),
    "batch_norm_gradient": (False, (_POINTER,) * 10 + (ctypes.c_float,)),
    "batch_norm_room": (False, (_POINTER,)),
    "max_pool": (True, (_POINTER,) * 5),
    "plane_scatter": (True, (_POINTER,) * 3 + (_COUNT,) * 3),
}

# Those of attention, which are another.
_OF_ATTENTION: Final[dict[str, tuple[bool, tuple[Any, ...]]]] = {
    "attention": (False, (_POINTER, _COUNT, _POINTER)),
    "attention_gradient": (False, (_POINTER, _COUNT, _POINTER)),
}

# Those of products of matrices, which are a third.
_OF_PRODUCTS: Final[dict[str, tuple[bool, tuple[Any, ...]]]] = {
    "matrix_product": (False, (_POINTER,)),
    "matrix_products": (False, (_POINTER, _COUNT, _POINTER)),
}

# Those by index, which are a fourth: of what is only moved, for the sizes there are.
_MOVES: Final = ("gather", "scatter")
_ADDS: Final = ("scatter_add", "add_rows")
_INTEGERS: Final = ("int8_t", "int16_t", "int32_t", "int64_t")
_OF_INDEXING: Final[dict[str, tuple[bool, tuple[Any, ...]]]] = {
    f"{name}_{kind}": (True, (_POINTER,) * 3 + (_COUNT,) * 5 + (_POINTER,))
    for names, kinds in ((_MOVES, _INTEGERS), (_ADDS, (*_INTEGERS, "float", "double")))
    for name in names
    for kind in kinds
}

# Types of elements, and in which running sums of them are accumulated.
_ACCUMULATED: Final = {"float": "double", "double": "double", "int64_t": "int64_t"}

_OF_PANELS: Final = _OF_ATTENTION.keys() | _OF_PRODUCTS.keys()
_OF_OTHERS: Final = _OF_PANELS | _OF_INDEXING.keys()

# Those that take an array of words anyway.
_OF_WORDS: Final = ("matrix_product",)

# Those that return a number.
_COUNTING: Final = ("convolution_room", "batch_norm_room", "plane_scatter")


def _declared() -> dict[str, tuple[bool, tuple[Any, ...]]]:
    """Of all functions, whether the results are numpy's to the bit, and the arguments."""
    found: dict[str, tuple[bool, tuple[Any, ...]]] = {
        "softmax": (False, (_POINTER,) * 2 + (_COUNT,) * 2),
        "log_softmax": (False, (_POINTER,) * 2 + (_COUNT,) * 2),
        "class_losses": (False, (_POINTER,) * 4 + (_COUNT,) * 2 + (_POINTER,)),
        "class_loss": (False, (_POINTER,) * 3 + (_COUNT,) * 2),
        "cross_entropy_gradient": (False, (_POINTER,) * 3 + (_COUNT,) * 2 + (_POINTER,) * 2 + (_COUNT, _POINTER)),
        "layer_norm": (False, (_POINTER,) * 4 + (_COUNT,) * 2 + (_POINTER,) * 2 + (ctypes.c_float,)),
        "layer_norm_gradient": (False, (_POINTER,) * 5 + (_COUNT,) * 4 + (_POINTER,) * 2),
        "column_sums": (False, (_POINTER,) * 2 + (_COUNT,) * 3),
        "add_to_rows": (True, (_POINTER,) + (_COUNT,) * 2 + (_POINTER,)),
    }
    for name, exact in (
        ("sums", False),
        ("squares", False),
        ("products", False),
        ("largest", True),
        ("smallest", True),
    ):
        found[f"row_{name}"] = (exact, (_POINTER,) * 2 + (_COUNT,) * 2 + (_POINTER, _COUNT))
    for kind in _ACCUMULATED:
        for name in ("cumsum", "cumprod"):
            found[f"{name}_{kind}"] = (True, (_POINTER,) * 2 + (_COUNT,) * 5)
    for kind in ("float", "double"):
        for name in ("sgd_steps", "sgd_momentum_steps", "adam_steps"):
            found[f"{name}_{kind}"] = (True, (_POINTER,) * 2 + (_COUNT,) * 2)
    for name, operands in SINGLE.items():
        found[f"single_{name}"] = (RULES[name].exact, (_POINTER,) * (operands + 1) + (_COUNT,))
    return found | _OF_IMAGES | _OF_ATTENTION | _OF_PRODUCTS | _OF_INDEXING


_DECLARED: Final = _declared()

# Rows whose part of the gradients by weight and bias is added up by itself.  Fewer would be more to write, and more
# could not be given to so many threads.
LAYER_NORM_PART: Final = 64

# For fewer elements nothing is compiled; what has been compiled computes also those, from the first one on.
WORTHWHILE: Final = 1 << 12


@cache
def handwritten_source() -> str:
    """The source of everything that is known beforehand, but for what has a library of its own."""
    updates = text_of("updates.c")
    by_words = [_by_words(name) for name in _DECLARED if _can_be_cut(name) and name not in _OF_OTHERS]
    singles = []
    for name, operands in SINGLE.items():
        if name == "exp":
            continue  # as rows.c has it
        given = [f"x{number}" for number in range(operands)]
        pointers = "".join([f"const float *{it}, " for it in given])
        line = f"y[i] = {RULES[name].write('float32', *[f'{it}[i]' for it in given])};"
        body = [
            "int64_t done = 0;",
            *in_blocks(given, ["y"], [line]),
            "LANES",
            f"for (int64_t i = done; i < n; i++) {line}",
        ]
        lines = "".join([f"    {it}\n" for it in body])
        singles.append(f"void single_{name}({pointers}float *y, int64_t n) {{\n{lines}}}\n")
    return "\n".join(
        [
            common_source(),
            text_of("vectors.h"),
            text_of("columns.h"),
            text_of("rows.c").replace("LAYER_NORM_PART", str(LAYER_NORM_PART)),
            updates.replace("REAL", "float").replace("ROOT", "__builtin_sqrtf"),
            updates.replace("REAL", "double").replace("ROOT", "__builtin_sqrt"),
            *[text_of("running.c").replace("TYPE", it).replace("WIDE", wide) for it, wide in _ACCUMULATED.items()],
            *singles,
            *by_words,
        ]
    )


def _can_be_cut(name: str) -> bool:
    return name not in _OF_IMAGES and name not in _COUNTING


def _by_words(name: str) -> str:
    """The same function of an array of words; see `vmflow.kernels.native.team`."""
    arguments = _DECLARED[name][1]
    forms = {_POINTER: "(void *)w[%d]", _COUNT: "w[%d]"}
    given = [forms.get(kind, "*(const double *)(w + %d)") % place for place, kind in enumerate(arguments)]
    return f"void {name}_by_words(const int64_t *w) {{ {name}({', '.join(given)}); }}"


@cache
def image_source() -> str:
    """The source of what is known beforehand of images."""
    files = ("vectors.h", "convolution.c", "convolution_gradient.c", "pooling.c", "channels.c")
    return "\n".join([common_source(), *[text_of(it) for it in files]])


@cache
def attention_source() -> str:
    """The source of attention."""
    return _source_in_panels("attention.c", _OF_ATTENTION)


@cache
def product_source() -> str:
    """The source of products of matrices."""
    return _source_in_panels("products.c", [it for it in _OF_PRODUCTS if it not in _OF_WORDS])


@cache
def indexing_source() -> str:
    """The source of what reaches elements by index."""
    text = text_of("indexing.c")
    kinds = [text.replace("TYPE", it) for it in (*_INTEGERS, "float", "double")]
    return "\n".join([common_source(), *kinds, *map(_by_words, _OF_INDEXING)])


def _source_in_panels(file: str, names: Iterable[str]) -> str:
    files = ("vectors.h", "columns.h", "panels.h", file)
    return "\n".join([common_source(), *[text_of(it) for it in files], *map(_by_words, names)])


def _source_of(name: str) -> str:
    if name in _OF_IMAGES:
        return image_source()
    if name in _OF_PRODUCTS:
        return product_source()
    if name in _OF_INDEXING:
        return indexing_source()
    return attention_source() if name in _OF_ATTENTION else handwritten_source()


class CFunction:
    """A function written by hand, which is there and may be used.

    Args:
        call: the function itself.
        by_words: see below.
        arguments: the types of what it takes.

    Attributes:
        call: as given.
        by_words: the address of its form of an array of words; 0 if it has none.
    """

    __slots__ = ("_arguments", "by_words", "call")

    def __init__(self, call: Callable[..., Any], by_words: int, arguments: tuple[Any, ...]) -> None:
        self.call = call
        self.by_words = by_words
        self._arguments = arguments

    def words(self, arguments: Sequence[float | None]) -> list[int]:
        """Arguments as words; a number with a fraction is one of a double's bits."""
        return [
            ctypes.c_int64.from_buffer_copy(ctypes.c_double(value)).value  # type: ignore[arg-type]
            if kind not in (_POINTER, _COUNT)
            else int(value or 0)
            for value, kind in zip(arguments, self._arguments, strict=True)
        ]


# Those that are there and may be used; and of the others when they were looked for last, and whether to be made.
_functions: dict[str, CFunction] = {}
_missing: dict[str, tuple[int, bool]] = {}
LOADER.watchers += [_functions.clear, _missing.clear]


def function(name: str, elements: int) -> CFunction | None:
    """A function written by hand, if it is there and may be used; else it may be there later.

    It is for whoever chooses a kernel: what arrives later has kernels chosen anew.

    Args:
        name: see `_declared`.
        elements: how many it is wanted for.
    """
    found = _functions.get(name)
    if found is None and LOADER.mode != "off":
        looked = LOADER.arrived, elements >= WORTHWHILE
        if _missing.get(name) != looked:
            return _look_for(name, looked)
    return found


def _look_for(name: str, looked: tuple[int, bool]) -> CFunction | None:
    exact, arguments = _DECLARED[name]
    library = LOADER.request(_source_of(name), looked[1])
    if library is None or not library.usable(exact) or (name in _OF_PANELS and not panels_pay(library)):
        _missing[name] = looked
        return None
    call: Any = library.function(name)
    call.argtypes = arguments
    if name in _COUNTING:
        call.restype = _COUNT
    at = 0
    if _can_be_cut(name):
        at = address_of(call if name in _OF_WORDS else library.function(f"{name}_by_words"))
    found = _functions[name] = CFunction(call, at, arguments)
    return found


def panels_pay(library: Library) -> bool:
    """Whether a library of products, or of attention, is of use on this processor; see panels.h."""
    pays: Any = library.function("panels_pay")
    pays.restype = _COUNT
    return bool(pays())


def address_of(function: Callable[..., Any]) -> int:
    """Where a C function is."""
    found = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert found is not None
    return found
