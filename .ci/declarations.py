#!/usr/bin/env python3
"""Write `vmflow/functions.py` and `vmflow/tensor_methods.py`, which list all declared functions and methods.

The program takes no arguments.  A test compares the two files with the results of `functions` and `methods`.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "vmflow"
NOTE = "Written by ``.ci/declarations.py`` from the declarations of the functions; see `vmflow.ops.declaration`."
WIDTH = 116  # the most characters in a line, without the indentation of all methods

# Operator methods, for which type checkers expect one parameter: `out` is left out.
_IN_PLACE = ("and", "floordiv", "lshift", "mod", "or", "pow", "rshift", "xor")
_OPERATORS = {f"__{prefix}{name}__" for name in _IN_PLACE for prefix in ("", "i")}

DECLARES = re.compile(
    r"^from (vmflow\.ops)?\.(declaration|pointwise) import .*(public|function|method|METHODS|unary|binary)",
    re.MULTILINE,
)

# Modules of `vmflow.ops` that are imported when one of their names is first looked up, so that importing vmflow takes
# little longer than importing numpy.
LATE = (
    *("creation.ranges", "creation.windows"),
    *("elementwise.activation", "elementwise.closeness", "elementwise.error_function", "elementwise.floating_point"),
    *("elementwise.gamma_function", "elementwise.gating", "elementwise.piecewise", "elementwise.rounding"),
    "elementwise.special_functions",
    "fourier.short_time",
    *("indexing.parts", "indexing.scatter_reduction"),
    "inquiry",
    *("linalg.composed", "linalg.decompositions", "linalg.einsum", "linalg.matrix_functions", "linalg.matrix_products"),
    *("linalg.linear_algebra", "linalg.pseudo_inverse", "linalg.triangular_factors"),
    *("nn.quantization", "nn.regions"),
    *("reduction.counting", "reduction.ordering", "reduction.quantiles", "reduction.running", "reduction.searching"),
    *("reduction.composed_reduction", "reduction.extrema", "reduction.reduction", "reduction.running_sums"),
    "reduction.statistics",
    *("shape.arrangement", "shape.flat_elements", "shape.strided"),
)

# Modules outside `vmflow.ops` that declare functions.
OTHERS = ("autograd.methods", "pinning", "protocols", "random")


def declaring() -> list[str]:
    """The names of the modules that declare functions or methods, without the prefix "vmflow."."""
    found = [
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in (PACKAGE / "ops").rglob("*.py")
        if DECLARES.search(path.read_text(encoding="utf-8"))
    ]
    return sorted([*found, *OTHERS])


def functions() -> str:
    """The text of `vmflow/functions.py`."""
    declared = _tables().FUNCTIONS
    lines = [f'"""The functions of `vmflow`.\n\n{NOTE}\n"""', "", "from typing import TYPE_CHECKING, Final", ""]
    for module in declaring():
        package, _, name = module.rpartition(".")
        if module.removeprefix("ops.") not in LATE:
            lines.append(f"from .{package} import {name} as {name}")
    homes = {name: _home(function) for name, function in declared.items()}
    lines += ["", "if TYPE_CHECKING:"]
    imports = sorted([(home, own, name) for name, (home, own) in homes.items()])
    lines += [f"    from .{home} import {own} as {name}" for home, own, name in imports]
    in_place = sorted(_tables().in_place_functions())
    lines += ["    from .tensors import Tensor", ""]
    lines += [f"    {name} = Tensor.{name}" for name in in_place]
    lines += ["", "    __all__ = ["]  # without __all__, type checkers would take the modules for public names, too
    lines += [f'        "{name}",' for name in sorted([*homes, *in_place])]
    lines += ["    ]", "", "# By name, the modules that are imported when one of their names is first looked up.", ""]
    callable_names = {name: declared.get(name) or _tables().METHODS[name] for name in [*declared, *in_place]}
    lines += _late("LATE_FUNCTIONS", callable_names)
    lines += ["", *_late("LATE_METHODS", _tables().METHODS)]
    return "\n".join(lines) + "\n"


def _late(table: str, declared: dict[str, Any]) -> list[str]:
    """The lines of a dict named `table` that maps the names that modules of `LATE` declare to these modules."""
    homes = {name: _home(function)[0] for name, function in declared.items() if not isinstance(function, property)}
    late = {name: home for name, home in sorted(homes.items()) if home.removeprefix("ops.") in LATE}
    return [f"{table}: Final = {{", *[f'    "{name}": "vmflow.{home}",' for name, home in late.items()], "}"]


def methods() -> str:
    """The text of `vmflow/tensor_methods.py`."""
    declared = _tables().METHODS
    names = _Names(set(declared))
    body: list[str] = []
    for name, method in sorted(declared.items()):
        body += ["", *_method(name, method, names)]
    imports = [f"    {line}" if line else line for line in names.imports()]
    shadowed = [f"    _{name} = {name}" for name in sorted(names.shadowed)]
    inner = [f"    {line}" if line else line for line in body]
    lines = [f'"""The methods of `Tensor` that are functions of ops, for type checkers.\n\n{NOTE}\n"""', ""]
    lines += ["from __future__ import annotations", "", "from typing import TYPE_CHECKING", ""]
    lines += ["from .tensor_operators import TensorOperators", "", "if TYPE_CHECKING:", *imports, "", *shadowed]
    lines += ["", "", "class TensorMethods(TensorOperators):", '    """The base of `Tensor` that type checkers see."""']
    return "\n".join([*lines, "", "    if TYPE_CHECKING:", *inner]) + "\n"


def _tables() -> Any:
    for module in declaring():  # including new modules, which the present functions.py does not import yet
        importlib.import_module(f"vmflow.{module}")
    return importlib.import_module("vmflow.ops.declaration")


def _home(function: Callable[..., Any]) -> tuple[str, str]:
    """The module, without "vmflow.", in which a function is declared, and the function's name there."""
    original = inspect.unwrap(function)
    return original.__module__.removeprefix("vmflow."), original.__name__


def _method(name: str, method: Any, names: _Names) -> Iterator[str]:
    if isinstance(method, property):
        yield "    @property"
        yield from _definition(name, method.fget, names)
        if method.fset is not None:
            yield ""
            yield f"    @{name}.setter"
            yield from _definition(name, method.fset, names)
        return
    original = inspect.unwrap(method)
    several = typing.get_overloads(original)
    for number, overload in enumerate(several or [original]):
        if several:
            yield from ["", "    @overload"] if number else ["    @overload"]
            names.used["overload"] = "typing"
        yield from _definition(name, overload, names)


def _definition(name: str, function: Any, names: _Names) -> Iterator[str]:
    """The lines of a method's definition: the function's signature with `self` as the first parameter."""
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    if name in _OPERATORS:
        rest = [parameter for parameter in rest if parameter.name != "out"]
    parameters = [_parameter(parameter, function, names) for parameter in rest]
    marks = [parameter.kind for parameter in rest]
    if inspect.Parameter.KEYWORD_ONLY in marks and inspect.Parameter.VAR_POSITIONAL not in marks:
        parameters.insert(marks.index(inspect.Parameter.KEYWORD_ONLY), "*")
    if inspect.Parameter.POSITIONAL_ONLY in marks:
        parameters.insert(len(marks) - marks[::-1].index(inspect.Parameter.POSITIONAL_ONLY), "/")
    result = names.annotation(signature.return_annotation, function)
    arguments = ["self", *parameters] if first.kind is not inspect.Parameter.VAR_POSITIONAL else parameters
    line = f"    def {name}({', '.join(arguments)}) -> {result}: ..."
    if len(line) <= WIDTH:
        yield line
        return
    joined = f"        {', '.join(arguments)}"
    yield f"    def {name}("
    if len(joined) <= WIDTH:
        yield joined
    else:
        yield from [f"        {argument}," for argument in arguments]
    yield f"    ) -> {result}: ..."


def _parameter(parameter: inspect.Parameter, function: Any, names: _Names) -> str:
    star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{star}{parameter.name}: {names.annotation(parameter.annotation, function)}"
    if parameter.default is inspect.Parameter.empty:
        return text
    plain = parameter.default is None or isinstance(parameter.default, (bool, int, float, str, tuple))
    return f"{text} = {_quoted(parameter.default) if plain else '...'}"


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


class _Names:
    """Collects the names that annotations of methods use, and the modules to import them from.

    Args:
        methods: the names of all methods, which hide builtins of the same name inside the class.
    """

    def __init__(self, methods: set[str]) -> None:
        self._methods = methods
        self._modules: dict[str, dict[str, tuple[str, str]]] = {}
        self.used: dict[str, Any] = {}
        self.shadowed: set[str] = set()

    def annotation(self, written: Any, function: Any) -> str:
        tree = ast.parse(written, mode="eval")
        module = function.__globals__["__name__"]
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                builtin = node.id.removeprefix("_")  # modules prefix `_` to a builtin that a function of theirs hides
                if hasattr(builtins, builtin):
                    node.id = builtin
                    if builtin in self._methods:
                        self.shadowed.add(builtin)
                        node.id = f"_{builtin}"
                    continue
                source = self._source(module, node.id)
                if self.used.setdefault(node.id, source) != source:
                    raise SystemExit(f"{node.id} is {source} in {module}, elsewhere {self.used[node.id]}")
        return ast.unparse(tree).replace("'", '"')

    def _source(self, module: str, name: str) -> tuple[str, str]:
        if module not in self._modules:
            self._modules[module] = dict(_defined(module))
        return self._modules[module].get(name, (module, name))

    def imports(self) -> list[str]:
        """The import statements for the collected names, in ruff's order."""
        standard: list[tuple[str, str, str]] = []
        own: list[tuple[str, str, str]] = []
        for alias, (module, name) in self.used.items():
            if module.split(".")[0] == "vmflow":
                own.append((module.removeprefix("vmflow"), name, alias))
            else:
                standard.append((module, name, alias))
        return [*_statements(standard), "", *_statements(own)]


def _statements(imports: list[tuple[str, str, str]]) -> list[str]:
    modules: dict[str, list[str]] = {}
    lines: list[tuple[str, str]] = []
    for module, name, alias in sorted(imports):
        if name == alias:
            modules.setdefault(module, []).append(name)
        else:
            lines.append((module, f"from {module} import {name} as {alias}"))
    for module, names in modules.items():
        lines.append((module, f"from {module} import {', '.join(sorted(names))}"))
    return [line for _, line in sorted(lines)]


def _defined(module: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The names that a module imports, also under TYPE_CHECKING, each with the module and name that it comes from."""
    path = Path(str(sys.modules[module].__file__))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package
            for _ in range(node.level - 1):
                base = base.rpartition(".")[0]
            source = ".".join(([base] if node.level else []) + ([node.module] if node.module else []))
            for alias in node.names:
                yield alias.asname or alias.name, (source, alias.name)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for file, text in (("functions.py", functions()), ("tensor_methods.py", methods())):
        (PACKAGE / file).write_text(text, encoding="utf-8")
