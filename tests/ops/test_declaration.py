"""The public names of ops, and the files that type checkers read."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import vmflow as flow
from tests.support import run_program
from vmflow.ops import declaration
from vmflow.ops.declaration import FUNCTIONS, METHODS, attribute, function, method, public

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".ci" / "declarations.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """The program that writes the files for type checkers."""
    spec = importlib.util.spec_from_file_location("declarations", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, object], dict[str, object]]:
    """Tables of this test's own."""
    functions: dict[str, object] = {}
    methods: dict[str, object] = {}
    monkeypatch.setattr(declaration, "FUNCTIONS", functions)
    monkeypatch.setattr(declaration, "METHODS", methods)
    return functions, methods


@pytest.mark.skipif(not PROGRAM.is_file(), reason="only in a checkout")
@pytest.mark.parametrize("name", ["functions", "tensor_methods"])
def test_type_checkers_read_the_declared_names(program: ModuleType, name: str) -> None:
    written: Callable[[], str] = program.functions if name == "functions" else program.methods
    kept = (ROOT / "vmflow" / f"{name}.py").read_text(encoding="utf-8")
    assert kept == written(), "run .ci/declarations.py"


def test_all_that_is_declared_is_there() -> None:
    for name in FUNCTIONS:
        assert callable(getattr(flow, name)), name
    for name, declared in METHODS.items():
        found = getattr(flow.Tensor, name)
        assert vars(flow.Tensor)[name] is declared, name
        assert isinstance(declared, property) or found is declared, name


def test_methods_of_modules_that_are_imported_late() -> None:
    """In a process of its own: whatever has been looked up there before is imported already."""
    program = """
        import sys
        import vmflow as flow
        module = "vmflow.ops.reduction.statistics"
        assert module not in sys.modules
        assert "corrcoef" in dir(flow)
        class Special(flow.Tensor): pass
        bound = Special([1.0, 3.0]).cov
        assert module in sys.modules
        assert bound().item() == 2
        assert vars(flow.Tensor)["cov"] is flow.Tensor.cov is flow.cov
        assert "cov" not in vars(Special)
        assert flow.erfinv_ is flow.Tensor.erfinv_
        from vmflow import cholesky
        assert cholesky is flow.Tensor.cholesky
    """
    run_program(program)


def test_ctrl_c_in_a_late_import_leaves_the_functions_usable() -> None:
    program = """
        import vmflow as flow
        from vmflow.ops.declaration import FUNCTIONS
        from vmflow.ops.table import OpExpr
        declared, declare = [], OpExpr.__init__
        def interrupted(op, name, *args, **kwargs):
            declare(op, name, *args, **kwargs)
            declared.append(name)
            if len(declared) == 2:
                raise KeyboardInterrupt
        OpExpr.__init__ = interrupted
        try:
            flow.erfinv
        except KeyboardInterrupt:
            print(declared[0] in FUNCTIONS)
        print(flow.erfinv(flow.zeros(2)).tolist(), flow.zeros(1).erfinv_().tolist())
    """
    assert run_program(program) == "True\n[0.0, 0.0] [0.0]"


def test_a_function_has_all_its_names(tables: tuple[dict[str, object], dict[str, object]]) -> None:
    functions, methods = tables

    @public("half", "__rshift__", reflected="__rrshift__")
    def halve(input: int, other: int = 2) -> int:
        return input // other

    @function(own=False)
    def hidden() -> None: ...

    @method("only", own=False)
    def of_tensors() -> None: ...

    @attribute("size")
    def size_of(self: object) -> int:
        return 3

    assert functions == {"halve": halve, "half": halve}
    assert list(methods) == ["halve", "half", "__rshift__", "__rrshift__", "only", "size"]
    assert methods["__rrshift__"](4, 20) == 5  # type: ignore[operator]
    assert methods["size"].fget(None) == 3  # type: ignore[attr-defined]


def test_no_name_is_given_twice(tables: tuple[dict[str, object], dict[str, object]]) -> None:
    @function()
    def one() -> None: ...

    with pytest.raises(ValueError, match="'one' is declared twice"):
        function("one")(lambda: None)


@pytest.mark.parametrize("name", ["exp", "mul", "floor_divide", "hypot"])
def test_a_pointwise_function_is_as_if_it_were_written_out(name: str) -> None:
    found = getattr(flow, name)
    assert inspect.isfunction(found)
    assert found.__name__ == found.__qualname__ == name
    assert found.__module__ in ("vmflow.ops.elementwise.arithmetic", "vmflow.ops.elementwise.transcendental")
    assert found.__doc__
    assert pickle.loads(pickle.dumps(found)) is found
    operands = ["input"] if name == "exp" else ["input", "other"]
    assert list(inspect.signature(found).parameters) == [*operands, "out"]
    assert getattr(flow.Tensor, name) is found


def test_a_traceback_shows_the_name_of_a_pointwise_function() -> None:
    with pytest.raises(TypeError) as error:
        flow.exp("x")  # type: ignore[arg-type]
    assert "exp" in [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]


def test_out_of_several_ops_takes_operands_in_lists_and_by_name() -> None:
    out = flow.zeros(4)
    parts = [flow.ones(2), flow.ones(2)]
    assert flow.hstack(parts, out=out) is out
    assert out.tolist() == [1, 1, 1, 1]
    parts[1].requires_grad_()
    with pytest.raises(RuntimeError, match="hstack: functions with out"):
        flow.hstack(tensors=parts, out=out)
