"""Imports point one way: streams <- instructions <- kernels <- vm <- the eager front <- graph mode <- serving."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import vmflow
from tests.support import run_program, source_files

ROOT = Path(vmflow.__file__).parent

# Modules that all may import, and that import none but each other.
VOCABULARY = (
    *("vmflow.arguments", "vmflow.context", "vmflow.devices", "vmflow.dtypes", "vmflow.errors", "vmflow.forking"),
    *("vmflow.markup", "vmflow.native", "vmflow.open_blocks"),
)

# Each may import itself, the layers before it and the vocabulary.  All other modules are the eager front.
LAYERS = (
    "vmflow.streams",
    "vmflow.instructions",
    "vmflow.kernels",
    "vmflow.vm",
    "vmflow",
    "vmflow.graph_mode",
    "vmflow.serving",
    "vmflow.__main__",
)

# Packages that import nothing of vmflow but themselves and the modules named here: they could stand alone.
ALONE = {
    "vmflow.graph_mode.actors": ("vmflow.errors",),
    "vmflow.streams.cuda.ptx": ("vmflow.errors",),
}

# Imports within functions, by module.
_COMPILING = ("vmflow.kernels.native.cache", "vmflow.kernels.native.compiling")
_LARGE_ARRAYS = ("vmflow.kernels.expressions.bodies", "vmflow.kernels.native.loops")
_LOADED_BY_METHODS = ("vmflow.array_api", "vmflow.exchange", "vmflow.io", "vmflow.representation", "vmflow.storages")
_SIMULATION = ("vmflow.streams", "vmflow.streams.simulated")
LATE = {
    # Each command has its own needs, serving optional packages among them.
    "vmflow.__main__": ("vmflow.info", "vmflow.serving.command"),
    # attrs, and the fusing of ops.
    "vmflow.interpreter": ("vmflow.ops.chains", "vmflow.distributed.global_interpreter"),
    "vmflow.ops.formula": ("vmflow.ops.recording",),
    # Activations, which are made of transcendental functions.
    "vmflow.ops.elementwise.transcendental": ("vmflow.ops.elementwise.activation",),
    # Views of complex tensors, whose module selects elements too.
    "vmflow.ops.elementwise.selection": ("vmflow.ops.elementwise.complex_parts",),
    # HTML, which only notebooks need.
    "vmflow.representation": ("vmflow.markup",),
    # Devices, which most programs have no questions about.
    "vmflow.backends": ("vmflow.cuda.properties",),
    # Global tensors.
    "vmflow.multi_tensor": ("vmflow.distributed.global_tensors",),
    "vmflow.optim.lbfgs": ("vmflow.distributed.global_tensors",),
    "vmflow.nn.utils": ("vmflow.distributed.totals",),
    "vmflow.amp.grad_scaler": ("vmflow.distributed.totals",),
    "vmflow.ops.copying": ("vmflow.distributed.global_tensors",),
    "vmflow.ops.table": ("vmflow.distributed.global_interpreter",),
    # Methods that few programs call.
    "vmflow.io": (
        *("vmflow.distributed.collectives", "vmflow.distributed.process", "vmflow.distributed.loading"),
        *("vmflow.pytorch_files", "vmflow.storages"),
    ),
    "vmflow.nn.module": ("vmflow.distributed.sbp", "vmflow.nn.module_tree"),
    "vmflow.nn.normalization_layers": ("vmflow.distributed.process",),
    "vmflow.transfers": ("vmflow.distributed.global_tensors",),
    "vmflow.protocols": (*_LOADED_BY_METHODS, "vmflow.distributed.global_tensors"),
    # Much of the standard library, and only once a C library is to be had.
    "vmflow.kernels.native.loading": _COMPILING,
    # The writing of C, which small arrays do without.
    "vmflow.kernels.numpy.elementwise": _LARGE_ARRAYS,
    # Memory that few programs share with other libraries.
    "vmflow.ops.creation.creation": (
        "vmflow.exchange",
        "vmflow.distributed.global_tensors",
        "vmflow.distributed.spread",
    ),
    "vmflow.ops.conversion": ("vmflow.typed_tensors",),
    "vmflow.exchange": ("vmflow.cuda.exchange",),
    # Hooks, and names of places in the graph of autograd.
    "vmflow.autograd": ("vmflow.autograd.graph",),
    "vmflow.tensors": ("vmflow.cuda.exchange", "vmflow.distributed.global_tensors"),
    # Devices that few programs have.
    "vmflow.vm.stream_table": (*_SIMULATION, "vmflow.streams.cuda.registry", "vmflow.streams.cuda.arrays"),
    "vmflow.kernels.copies": ("vmflow.kernels.cuda.transfers",),
    "vmflow.kernels.replaying": ("vmflow.kernels.cuda.replay",),
    "vmflow.pinning": ("vmflow.streams.cuda.pinned",),
    "vmflow.streams.cuda.registry": ("vmflow.streams.cuda.cupy_driver", "vmflow.streams.cuda.emulation.driver"),
    "vmflow.streams.cuda.emulation.driver": ("vmflow.streams.cuda.ptx",),
    # Race detection and attrs, which most machines do without.
    "vmflow.vm.virtual_machine": ("vmflow.vm.race_watch", "vmflow.vm.snapshot"),
    # Naming a device does not ask the hardware; using one does.
    "vmflow.devices": ("vmflow.cuda.availability",),
    # `Graph.trace` makes an object that has a graph of a derived class.
    "vmflow.graph_mode.graph": ("vmflow.graph_mode.functions", "vmflow.distributed.process"),
}

# Packages that only their own device or test may need.
NEVER_AT_IMPORT = ("cupy", "cupyx", "torch", "mpi4py")
DRIVERS = ("vmflow.streams.cuda.cupy_driver",)


# Imports that go back, all of them late.
GOING_BACK = {
    # Whether there is a CUDA device depends on much more than a name and an index.
    ("vmflow.devices", "vmflow.cuda.availability"),
}


class Import(NamedTuple):
    """One import statement: importer, imported module, line, and whether it runs when the module is imported."""

    importer: str
    imported: str
    line: int
    at_import: bool


MODULES = source_files()


@cache
def _imports(name: str) -> list[Import]:
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return list(_walk(ast.parse(path.read_text()), name, package, at_import=True))


def _walk(node: ast.AST, name: str, package: str, at_import: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(name, alias.name, child.lineno, at_import)
        elif isinstance(child, ast.ImportFrom):
            for target in _targets(child, package):
                yield Import(name, target, child.lineno, at_import)
        elif isinstance(child, ast.If) and _is_type_checking(child.test):
            for other in child.orelse:
                yield from _walk(ast.Module([other], []), name, package, at_import)
        elif isinstance(child, ast.FunctionDef) and child.name == "__getattr__" and isinstance(node, ast.Module):
            continue  # a lazy re-export, such as vmflow.nn.Graph
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _walk(child, name, package, at_import=False)
        else:
            yield from _walk(child, name, package, at_import)


def _targets(statement: ast.ImportFrom, package: str) -> list[str]:
    """The modules that ``from ... import ...`` imports: the names themselves where they are modules."""
    base = package
    for _ in range(statement.level - 1):
        base = base.rpartition(".")[0]
    parts = [base] if statement.level else []
    source = ".".join(parts + ([statement.module] if statement.module else []))
    return [f"{source}.{alias.name}" if f"{source}.{alias.name}" in MODULES else source for alias in statement.names]


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test).rpartition(".")[2].strip("_") == "TYPE_CHECKING"


def _layer(name: str) -> int:
    for number, layer in enumerate(LAYERS):
        if layer != "vmflow" and _within(name, layer):
            return number
    return LAYERS.index("vmflow")


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _breaks_the_order(it: Import) -> bool:
    if it.imported.split(".")[0] != "vmflow":
        return False
    if (it.importer, it.imported) in GOING_BACK:
        return it.at_import
    for package, allowed in ALONE.items():
        if _within(it.importer, package):
            return it.imported not in allowed and not _within(it.imported, package)
    if it.imported in VOCABULARY:
        return False
    return it.importer in VOCABULARY or _layer(it.imported) > _layer(it.importer)


def _listed(imports: list[Import]) -> str:
    return "\n".join(f"{import_.importer}:{import_.line} imports {import_.imported}" for import_ in imports)


def test_all_modules_are_found() -> None:
    assert {"vmflow", "vmflow.streams.stream", "vmflow.instructions", "vmflow.vm.engine", "vmflow.graph_mode"} <= set(
        MODULES
    )
    assert set(ALONE) <= set(MODULES)
    assert set(VOCABULARY) <= set(MODULES)


def test_imports_point_one_way() -> None:
    wrong = [import_ for name in MODULES for import_ in _imports(name) if _breaks_the_order(import_)]
    assert not wrong, f"these imports point the wrong way:\n{_listed(wrong)}"


def test_the_engine_knows_no_kind_of_instruction() -> None:
    """How they are chained, fused and give back memory is asked of the policy."""
    known = {f"vmflow.instructions.{name}" for name in ("instruction", "policy", "scope")}
    for name in ("vmflow.vm.engine", "vmflow.vm.lively", "vmflow.vm.memory"):
        kinds = [
            import_
            for import_ in _imports(name)
            if _within(import_.imported, "vmflow.instructions") and import_.imported not in known
        ]
        assert {kind.imported for kind in kinds} <= {"vmflow.instructions.failure", "vmflow.instructions.origin"}, name


def _of_the_project(at_import: bool) -> list[Import]:
    return [
        import_
        for name in MODULES
        for import_ in _imports(name)
        if import_.imported in MODULES and import_.at_import == at_import
    ]


def _in_circles(edges: dict[str, set[str]]) -> set[str]:
    """The modules from which the edges lead back to them."""
    return {name for name in edges if name in _reached(name, edges)}


def _reached(name: str, edges: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    fresh = {name}
    while fresh:
        fresh = {target for value in fresh for target in edges[value]} - reached
        reached |= fresh
    return reached


def test_no_imports_go_in_circles() -> None:
    """Imports of the packages around a module are left out: Python does them by itself."""
    edges: dict[str, set[str]] = {name: set() for name in MODULES}
    for value in _of_the_project(at_import=True):
        edges[value.importer].add(value.imported)
    wrong = _in_circles(edges)
    assert not wrong, f"these go in circles: {', '.join(sorted(wrong))}"


def test_tensors_know_no_op() -> None:
    """Methods that need ops are declared beside these, and given to the class afterwards."""
    edges: dict[str, set[str]] = {name: set() for name in MODULES}
    for value in _of_the_project(at_import=True):
        edges[value.importer].add(value.imported)
    ops = {name for name in _reached("vmflow.tensors", edges) if _within(name, "vmflow.ops")}
    assert ops == {"vmflow.ops.table", "vmflow.ops.declaration"}  # the tables of ops and of names, which hold no op


def test_a_circle_is_found() -> None:
    assert _in_circles({"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": {"e"}, "e": set()}) == {"b", "c"}
    assert _in_circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == set()
    assert _in_circles({"a": {"a"}}) == {"a"}


def test_functions_import_only_the_listed_modules() -> None:
    found = {(value.importer, value.imported) for value in _of_the_project(at_import=False)}
    assert found == {(importer, imported) for importer, targets in LATE.items() for imported in targets}


@pytest.mark.parametrize(
    ("importer", "statement", "wrong"),
    [
        ("vmflow.streams.cpu", "from vmflow.instructions import Instruction", True),
        ("vmflow.streams.cpu", "def late():\n    from ..instructions.blob import Blob", True),
        ("vmflow.streams.cpu", "from vmflow.errors import InternalError", False),
        ("vmflow.streams.cpu", "from ..errors import InternalError", False),
        ("vmflow.streams.cpu", "if TYPE_CHECKING:\n    from ..instructions.blob import Blob", False),
        ("vmflow.streams.cpu", "if TYPE_CHECKING:\n    pass\nelse:\n    from .. import tensor", True),
        ("vmflow.instructions.blob", "import vmflow.vm.engine", True),
        ("vmflow.instructions.blob", "from vmflow import dtypes", False),
        ("vmflow.instructions.blob", "from vmflow import float32", True),
        ("vmflow.vm.engine", "from .. import instructions, streams", False),
        ("vmflow.vm.engine", "class A:\n    def b(self):\n        from ..tensors import Tensor", True),
        ("vmflow.tensors", "from .graph_mode import Graph", True),
        ("vmflow.tensors", "from .vm import virtual_machine", False),
        ("vmflow.nn", "def __getattr__(name):\n    from ..graph_mode import Graph", False),
        ("vmflow.errors", "from .tensors import Tensor", True),
        ("vmflow.devices", "from .cuda.availability import findings", True),
        ("vmflow.devices", "def late():\n    from .cuda.availability import findings", False),
        ("vmflow.dtypes", "from .context import MODE", False),
        ("vmflow.graph_mode", "from .. import tensor, nn", False),
        ("vmflow.graph_mode.actors.bus", "from .. import Graph", True),
        ("vmflow.graph_mode.actors.bus", "from vmflow.errors import InternalError", False),
        ("vmflow.graph_mode.actors.bus", "from vmflow.context import MODE", True),
        ("vmflow.graph_mode.actors.bus", "def late():\n    from vmflow.streams import Stream", True),
        ("vmflow.graph_mode.actors.bus", "import collections\nfrom .messages import Message", False),
    ],
)
def test_the_walk_finds_imports_that_break_the_order(importer: str, statement: str, wrong: bool) -> None:
    package = importer if importer in ("vmflow.nn", "vmflow.graph_mode") else importer.rpartition(".")[0]
    found = list(_walk(ast.parse(statement), importer, package, at_import=True))
    assert any(_breaks_the_order(value) for value in found) == wrong


def test_devices_libraries_are_imported_on_first_use() -> None:
    wrong = [
        import_
        for name in MODULES
        if name not in DRIVERS
        for import_ in _imports(name)
        if import_.at_import and import_.imported.split(".")[0] in NEVER_AT_IMPORT
    ]
    assert not wrong, f"these would be needed by everybody:\n{_listed(wrong)}"


def _lazy_exports(package: str) -> list[str]:
    """The names that a package gives to type checkers under its own, not for annotations of its own."""
    blocks = [value for value in ast.parse(MODULES[package].read_text()).body if isinstance(value, ast.If)]
    statements = [value for block in blocks if _is_type_checking(block.test) for value in block.body]
    return [
        alias.asname
        for statement in statements
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname
    ]


@pytest.mark.parametrize("package", ["vmflow", "vmflow.autograd", "vmflow.nn", "vmflow.streams"])
def test_names_for_type_checkers_are_found_on_first_use(package: str) -> None:
    names = _lazy_exports(package)
    assert names
    module = importlib.import_module(package)
    for name in names:
        assert getattr(module, name) is getattr(module, name), name
    assert set(names) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"'{package}' has no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_type_checkers_see_all_that_is_found_on_first_use() -> None:
    assert {"graph", "sbp", *vmflow._LAZY_MODULES, *vmflow._LAZY_NAMES} == set(_lazy_exports("vmflow"))


# In a fresh interpreter


def _in_a_fresh_interpreter(program: str, *options: str, paths: Sequence[Path] = ()) -> str:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, (ROOT.parent, *paths))))
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT.parent,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_vmflow_imports_little_else() -> None:
    """Modules that numpy imports do not count, nor those that find an editable install, which come with the site."""
    found = _in_a_fresh_interpreter(
        """
        import sys
        import numpy
        before = set(sys.modules)
        import vmflow
        names = "asyncio anyio attr attrs logging inspect concurrent multiprocessing vmflow.nn vmflow.optim"
        names += " vmflow.graph_mode vmflow.io vmflow.profiler vmflow.utils vmflow.info json gzip safetensors pickle"
        names += " html vmflow.markup unittest random vmflow.linalg vmflow.autograd.function vmflow.autograd.functional"
        names += " vmflow.streams.races vmflow.streams.simulated subprocess tempfile hashlib pathlib urllib"
        print(*[name for name in names.split() if name in set(sys.modules) - before])
        """,
        "-S",
        paths=[Path(np.__file__).parents[1]],
    )
    assert found == ""


def test_the_folders_are_imported_under_one_name_only() -> None:
    found = _in_a_fresh_interpreter(
        """
        import importlib, pkgutil, sys
        import vmflow

        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("cupy", "cupyx", "torch", "mpi4py"):
                    raise AssertionError(f"{name} is imported when vmflow is")

        sys.meta_path.insert(0, Refuse())
        for module in pkgutil.walk_packages(vmflow.__path__, "vmflow."):
            if not module.name.endswith(".cupy_driver"):  # which is imported where there is a GPU
                importlib.import_module(module.name)
        print(*[name for name in ("streams", "instructions", "graph_mode") if name in sys.modules])
        print(len([name for name in sys.modules if name.startswith("vmflow.")]) > 30)
        """
    )
    assert found.split() == ["True"]


def test_every_package_is_installed() -> None:
    """The packages for setuptools are listed by hand, since folders and package names differ."""
    source = Path(__file__).resolve().parents[1]
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    told = set(project["tool"]["setuptools"]["packages"])
    found = {
        Path(folder).relative_to(ROOT.parent).as_posix().replace("/", ".")
        for folder, _, files in os.walk(ROOT, followlinks=True)
        if "__init__.py" in files
    }
    assert told == found


def test_the_library_for_bfloat16_is_imported_when_there_is_a_bfloat16() -> None:
    run_program(
        """
        import sys

        import numpy as np

        import vmflow as flow

        layer = flow.nn.Linear(3, 2)
        layer(flow.ones(4, 3)).sum().backward()
        flow.optim.SGD(layer.parameters()).step()
        assert flow.finfo(flow.float16).bits == flow.bfloat16.itemsize * 8 == 16
        assert flow.tensor(np.arange(3, dtype=">f4")).dtype is flow.float32
        assert not hasattr(flow.bfloat16, "shape")
        assert flow.dtypes.from_numpy("bfloat16") is flow.bfloat16
        assert flow.tensor([2.0, 1.0]).sort().values.median().item() == 1.0
        assert "ml_dtypes" not in sys.modules

        import ml_dtypes

        given = np.array([1.5], ml_dtypes.bfloat16)
        assert flow.tensor(given).dtype is flow.bfloat16
        assert flow.bfloat16.numpy is given.dtype
        assert flow.tensor(given).numpy().dtype == given.dtype
        assert flow.finfo(flow.bfloat16).max > 3e38
        """
    )
