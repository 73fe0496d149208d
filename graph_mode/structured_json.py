"""Turns plain data into JSON and back, by the types that attrs classes declare.

An attrs object becomes a JSON object of its fields, without fields at their defaults.  A field declared as ``Any`` is
written with its type: null, true, false, integers, finite floats and strings stand for themselves, and other values
become an object of one key:

    {"float": "nan"}                    a float that JSON cannot express
    {"complex": [real, imaginary]}      a complex number
    {"tuple": [...]}                    a tuple; {"size": [...]} a shape
    {"slice": [start, stop, step]}      a slice; {"ellipsis": null} is ...
    {"set": [...]}                      a frozenset
    {"bytes": "00ff"}                   bytes
    {"dtype": "float32"}                a dtype
    {"device": "cpu"}                   a device
    {"meta": [dtype, shape, device]}    a `TensorMeta`
    {"named": [class, [...]]}           a named tuple of vmflow's
    {"record": [class, {...}]}          an attrs object of vmflow's

Reading raises only ValueError, with the place, for anything that does not fit.
"""

from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Size, TensorMeta, meta

# No machine can address larger arrays.
_MOST_BYTES: Final = 1 << 62
_MOST_DIMENSIONS: Final = 32  # numpy's limit of dimensions before its version 2


def refused(place: str, problem: str) -> ValueError:
    """The error for JSON that does not fit, at this place in it."""
    return ValueError(f"{place}: {problem}")


def shown(value: Any) -> str:
    """A piece of JSON, shortened for messages."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# Documents


def written(kind: str, version: int, content: dict[str, Any], indent: int | None = None) -> str:
    """The text of a document with its kind and version."""
    return json.dumps({"kind": kind, "version": version, **content}, allow_nan=False, indent=indent)


def parsed(text: str, kind: str, versions: Collection[int]) -> tuple[int, dict[str, Any]]:
    """The version and the content of a document.

    Raises:
        ValueError: if the text is no JSON, or of another kind or version.
    """
    try:
        content = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise refused(kind, "the JSON is nested too deeply") from None
    except ValueError as error:
        raise refused(kind, f"this is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("kind") != kind:
        found = content.get("kind") if isinstance(content, dict) else content
        raise refused(kind, f"expected an object of the kind {kind!r}, found {shown(found)}")
    version = content.get("version")
    if type(version) is not int or version not in versions:
        reason = "there is no such version"
        if type(version) is int and version > max(versions):
            reason = "a newer version of vmflow has written it"
        elif type(version) is int and 1 <= version < min(versions):
            reason = "an older version of vmflow has written it"
        known = " and ".join(map(str, versions))
        raise refused(kind, f"the format's version is {shown(version)}, and this vmflow reads {known}: {reason}")
    return version, {key: value for key, value in content.items() if key not in ("kind", "version")}


def read(text: str, kind: str, builders: Mapping[int, Callable[[dict[str, Any]], Any]]) -> Any:
    """Read a document by the builder for its version, and return the builder's object."""
    version, content = parsed(text, kind, builders.keys())
    try:
        return builders[version](content)
    except RecursionError:
        raise refused(kind, "the JSON is nested too deeply") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# By declared types


def to_json(value: Any, declared: Any, skip: tuple[str, ...] = ()) -> Any:
    """The JSON of a value of the type `declared`.

    Args:
        skip: names of fields to leave out of attrs objects, except within parts declared as `Any`.

    Raises:
        TypeError: if a part of the value cannot be written as data.
    """
    if declared is Any:
        return encode(value)
    if declared in (int, str, bool):
        return value
    if declared in _SPECIAL:
        return _SPECIAL[declared][0](value)
    if attrs.has(declared):
        return _fields_to_json(value, declared, skip)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Literal:
        return value
    if origin in (Union, types.UnionType):
        return None if value is None else to_json(value, _not_none(arguments), skip)
    if origin is tuple:
        if arguments[0] is Any and type(value) is not tuple:
            return encode(value)  # attributes may be named tuples
        return [to_json(item, arguments[0], skip) for item in value]
    if origin is None or not issubclass(origin, Mapping):
        raise TypeError(f"values of the type {declared!r} cannot be written as JSON")
    return {str(key): to_json(item, arguments[1], skip) for key, item in value.items()}


def _fields_to_json(value: Any, declared: Any, skip: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, kind, default in _fields(declared):
        if name not in skip:
            content = getattr(value, name)
            if default is attrs.NOTHING or content != _value_of(default):
                fields[name] = to_json(content, kind, skip)
    return fields


def from_json(value: Any, declared: Any, place: str, skip: tuple[str, ...] = ()) -> Any:
    """The value of the type `declared` from its JSON.

    Args:
        place: the place of the JSON, for errors.
        skip: names of fields to leave at their defaults in attrs objects, except within parts declared as `Any`.

    Raises:
        ValueError: if the JSON describes no such value.
    """
    if declared is Any:
        return decode(value, place)
    if declared in (int, str, bool):
        if type(value) is not declared:
            raise refused(place, f"expected {_NAMES[declared]}, found {shown(value)}")
        return value
    if declared in _SPECIAL:
        return _SPECIAL[declared][1](value, place)
    if attrs.has(declared):
        return _fields_from_json(value, declared, place, skip)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Literal:
        if type(value) is not str or value not in arguments:
            raise refused(place, f"expected one of {', '.join(map(repr, arguments))}, found {shown(value)}")
        return value
    if origin in (Union, types.UnionType):
        return None if value is None else from_json(value, _not_none(arguments), place, skip)
    if origin is tuple:
        if arguments[0] is Any and type(value) is dict:
            whole = decode(value, place)
            if not isinstance(whole, tuple):
                raise refused(place, f"expected a tuple, found {shown(value)}")
            return whole
        items = listed(value, place)
        return tuple([from_json(item, arguments[0], f"{place}[{at}]", skip) for at, item in enumerate(items)])
    if origin is None or not issubclass(origin, Mapping):
        raise refused(place, f"values of the type {declared!r} cannot be read from JSON")
    if type(value) is not dict:
        raise refused(place, f"expected an object, found {shown(value)}")
    return {
        _key(key, arguments[0], place): from_json(item, arguments[1], f"{place}[{key}]", skip)
        for key, item in value.items()
    }


def _fields_from_json(value: Any, declared: Any, place: str, skip: tuple[str, ...]) -> Any:
    if type(value) is not dict:
        raise refused(place, f"expected an object, found {shown(value)}")
    left = dict(value)
    fields: dict[str, Any] = {}
    for name, kind, default in _fields(declared):
        if name in skip:
            continue
        if name in left:
            fields[name] = from_json(left.pop(name), kind, f"{place}.{name}", skip)
        elif default is attrs.NOTHING:
            raise refused(place, f"{name!r} is missing")
    if left:
        raise refused(place, f"there is no field {shown(next(iter(left)))}")
    return declared(**fields)


@cache
def _fields(declared: Any) -> tuple[tuple[str, Any, Any], ...]:
    """The name, the type and the default of each field of an attrs class."""
    attrs.resolve_types(declared)
    return tuple([(field.name, field.type, field.default) for field in attrs.fields(declared)])


def _value_of(default: Any) -> Any:
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def _not_none(arguments: tuple[Any, ...]) -> Any:
    (kind,) = [argument for argument in arguments if argument is not type(None)]
    return kind


def _key(key: str, declared: Any, place: str) -> Any:
    if declared is str:
        return key
    digits = key.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(key) <= 20 and str(int(key)) == key):
        raise refused(place, f"expected numbers as keys, found {shown(key)}")
    return int(key)


def listed(value: Any, place: str, count: int | None = None) -> list[Any]:
    """Return the value if it is a list, of `count` elements if that is given.

    Raises:
        ValueError: if the value is no such list.
    """
    if type(value) is not list or (count is not None and len(value) != count):
        expected = "a list" if count is None else f"a list of {count}"
        raise refused(place, f"expected {expected}, found {shown(value)}")
    return value


# Types of vmflow's own


def _meta_to_json(value: TensorMeta) -> Any:
    return [value.dtype.name, list(value.shape), str(value.device)]


def _meta_from_json(value: Any, place: str) -> TensorMeta:
    dtype, shape, device = listed(value, place, 3)
    sizes = listed(shape, f"{place}[1]")
    if len(sizes) > _MOST_DIMENSIONS:
        raise refused(place, f"{len(sizes)} dimensions are more than {_MOST_DIMENSIONS}")
    if not all([type(size) is int and size >= 0 for size in sizes]):
        raise refused(place, f"expected sizes, which are integers from 0 on, found {shown(sizes)}")
    # An array that is empty along one dimension can be too large by its other dimensions.
    known = _dtype_from_json(dtype, f"{place}[0]")
    if math.prod([max(size, 1) for size in sizes]) * known.itemsize > _MOST_BYTES:
        raise refused(place, f"an array of the shape {shown(sizes)} is too large for any memory")
    return meta(tuple(sizes), known, _device_from_json(device, f"{place}[2]"))


def _dtype_from_json(value: Any, place: str) -> DType:
    for known in dtypes.ALL:
        if known.name == value:
            return known
    raise refused(place, f"expected the name of a dtype, found {shown(value)}")


def _device_from_json(value: Any, place: str) -> Device:
    if type(value) is not str or len(value) > 20:
        raise refused(place, f"expected the name of a device, found {shown(value)}")
    try:
        return Device(value)
    except ValueError as error:
        raise refused(place, str(error)) from error


_SPECIAL: Final[dict[Any, tuple[Callable[[Any], Any], Callable[[Any, str], Any]]]] = {
    TensorMeta: (_meta_to_json, _meta_from_json),
    DType: (lambda value: value.name, _dtype_from_json),
    Device: (str, _device_from_json),
}
_NAMES: Final = {int: "an integer", str: "a string", bool: "true or false"}


# Values written with their type


def encode(value: Any) -> Any:
    """The JSON of a value, with its type.

    Raises:
        TypeError: if the value, or a part of it, has a type without JSON.
    """
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    # Members of an `IntEnum` and numpy's float64 are an int and a float, too.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        number = float(value)
        return number if math.isfinite(number) else {"float": _word(number)}
    if kind in _TO_JSON:
        name, parts = _TO_JSON[kind]
        return {name: parts(value)}
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and _is_ours(kind.__module__):
        return {"named": [_class_name(kind), [encode(item) for item in value]]}
    if attrs.has(kind) and _is_ours(kind.__module__):
        return {"record": [_class_name(kind), _fields_to_json(value, kind, ())]}
    raise TypeError(f"{value!r} of the type {kind.__module__}.{kind.__qualname__} cannot be written as JSON")


_TO_JSON: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    complex: ("complex", lambda value: [encode(value.real), encode(value.imag)]),
    tuple: ("tuple", lambda value: [encode(item) for item in value]),
    Size: ("size", list),
    slice: ("slice", lambda value: [encode(part) for part in (value.start, value.stop, value.step)]),
    type(...): ("ellipsis", lambda value: None),
    frozenset: ("set", lambda value: sorted([encode(item) for item in value], key=json.dumps)),
    bytes: ("bytes", lambda value: value.hex()),
    DType: ("dtype", lambda value: value.name),
    Device: ("device", str),
    TensorMeta: ("meta", _meta_to_json),
}


def decode(value: Any, place: str) -> Any:
    """The value from JSON of `encode`; hashable, unless it is or contains a slice before Python 3.12.

    Raises:
        ValueError: if the JSON describes no value.
    """
    if value is None or type(value) in (bool, int, str, float):
        return value
    if type(value) is dict and len(value) == 1:
        ((kind, content),) = value.items()
        if kind in _FROM_JSON:
            return _FROM_JSON[kind](content, place)
    raise refused(place, f"{shown(value)} describes no value")


def _word(value: float) -> str:
    return "-nan" if math.isnan(value) and math.copysign(1, value) < 0 else repr(value)


def _float(content: Any, place: str) -> float:
    if content not in ("nan", "-nan", "inf", "-inf"):
        raise refused(place, f"{shown(content)} is no float")
    return float(content)


def _complex(content: Any, place: str) -> complex:
    parts = _several(listed(content, place, 2), place)
    if any([type(part) is not float for part in parts]):
        raise refused(place, f"{shown(content)} is no complex number")
    return complex(*parts)


def _several(content: Any, place: str) -> tuple[Any, ...]:
    return tuple([decode(item, f"{place}[{at}]") for at, item in enumerate(listed(content, place))])


def _size(content: Any, place: str) -> Size:
    if any([type(size) is not int for size in listed(content, place)]):
        raise refused(place, f"{shown(content)} is no shape")
    return Size(content)


def _ellipsis(content: Any, place: str) -> Any:
    if content is not None:
        raise refused(place, "an ellipsis has no content")
    return ...


def _bytes(content: Any, place: str) -> bytes:
    try:
        return bytes.fromhex(content)
    except (TypeError, ValueError):
        raise refused(place, f"{shown(content)} are no bytes") from None


def _slice(content: Any, place: str) -> slice:
    return slice(*_several(listed(content, place, 3), place))


def _named(content: Any, place: str) -> Any:
    name, parts = listed(content, place, 2)
    kind = _class(name, place)
    if not issubclass(kind, tuple) or not hasattr(kind, "_fields"):
        raise refused(place, f"{name} is no named tuple")
    return kind(*_several(listed(parts, place, len(kind._fields)), place))


def _record(content: Any, place: str) -> Any:
    name, fields = listed(content, place, 2)
    kind = _class(name, place)
    if not attrs.has(kind):
        raise refused(place, f"{name} is no class of plain data")
    try:
        record = _fields_from_json(fields, kind, f"{place}({name})", ())
        hash(record)
    except (TypeError, NameError) as error:
        raise refused(place, f"this is no {name}: {error}") from error
    return record


_FROM_JSON: Final[dict[str, Callable[[Any, str], Any]]] = {
    "float": _float,
    "complex": _complex,
    "tuple": _several,
    "size": _size,
    "slice": _slice,
    "ellipsis": _ellipsis,
    "set": lambda content, place: frozenset(_hashable(item, place) for item in _several(content, place)),
    "bytes": _bytes,
    "dtype": _dtype_from_json,
    "device": _device_from_json,
    "meta": _meta_from_json,
    "named": _named,
    "record": _record,
}


def _hashable(value: Any, place: str) -> Any:
    try:
        hash(value)
    except TypeError:
        raise refused(place, f"{shown(value)} cannot be in a set") from None
    return value


# By old name, the present names of classes that were renamed since earlier versions.
_MOVED: Final = {
    "vmflow.graph_mode.job.Drawn": "vmflow.graph_mode.job_parts.Drawn",
    "vmflow.ops.resampling._Along": "vmflow.kernels.problems.resampling.Along",
}

# The folders of modules that were once directly in `vmflow.ops`.
_FAMILIES: Final = ("creation", "elementwise", "fourier", "indexing", "linalg", "loss", "nn", "reduction", "shape")


def _present_name(name: str) -> str:
    """The present name of a class, from the name in a file of this or an earlier version."""
    module, _, kind = name.removeprefix("vmflow.ops.").partition(".")
    if name in _MOVED or not name.startswith("vmflow.ops.") or "." in kind:
        return _MOVED.get(name, name)
    folders = [family for family in _FAMILIES if f"vmflow.ops.{family}.{module}" in sys.modules]
    return f"vmflow.ops.{folders[0]}.{module}.{kind}" if folders else name


def _is_ours(module: str) -> bool:
    return module.startswith(("vmflow.ops.", "vmflow.nn.", "vmflow.graph_mode.", "vmflow.kernels.problems."))


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _class(name: Any, place: str) -> Any:
    """The class of vmflow's with this name; ValueError if none is loaded: names in files import nothing."""
    module, _, attribute = _present_name(name).rpartition(".") if type(name) is str else ("", "", "")
    kind = getattr(sys.modules.get(module), attribute, None) if _is_ours(module) else None
    if not isinstance(kind, type) or kind.__module__ != module:
        raise refused(place, f"vmflow has no class {shown(name)}")
    return kind
