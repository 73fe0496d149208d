"""No module outside of `vmflow.kernels` knows how ops are computed, and kernels do not know their callers."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import vmflow as flow
from tests.test_imports import MODULES, Import, _imports
from vmflow.devices import device as Device
from vmflow.errors import DeviceUnavailable
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels import choosing, updates
from vmflow.kernels.choosing import Kernel, Problem, builds, choose
from vmflow.kernels.generation import GENERATION
from vmflow.kernels.updates import choose_update, declares_rule
from vmflow.ops.table import OPS, Inferred, OpExpr, OpPlan, ViewExpr

pytestmark = pytest.mark.host

KERNELS = "vmflow.kernels"

# The modules that others may import, beside the problems.
ENTRY_POINTS = frozenset(
    {
        f"{KERNELS}.{name}"
        for name in (
            *("choosing", "generation", "intra_op", "codegen", "blas_core", "host_numbers", "updates", "copies"),
            "replaying",
        )
    }
)

# Which library there is to compile kernels of CUDA devices; used by the check for such devices.
COMPILER = ("vmflow.cuda.availability", f"{KERNELS}.cuda.nvrtc")

# The names of updates that others may use.
UPDATES = frozenset({"Rule", "choose_update"})

# The packages and modules that change arrays in place by updates, and the part of numpy that they may name: a type of
# numbers.
UPDATING = ("vmflow.optim", "vmflow.amp", "vmflow.nn.utils", "vmflow.multi_tensor")
NAMED = frozenset({"np.number"})

# Ops may name these types of numpy to recognise their arguments.  They may not read tensors as arrays, nor make tensors
# of arrays, but for the modules that take data from outside.
TYPES = frozenset({"np.bool_", "np.generic", "np.integer", "np.ndarray", "np.number"})
READING = frozenset({"numpy", "_array"})
MAKING = frozenset({"from_array", "from_numpy"})
FROM_OUTSIDE = {
    "vmflow.ops.creation.creation": frozenset(
        {"np.array", "np.asarray", "np.errstate", "np.frombuffer", "np.lib", "np.uint8", "numpy"}
    ),
    # Windows are made of numbers alone, once, in double precision.
    "vmflow.ops.creation.windows": frozenset(
        {f"np.{name}" for name in ("abs", "arange", "cos", "i0", "maximum", "ones", "pi", "sqrt")}
    ),
    "vmflow.ops.indexing.index_expression": frozenset({"np.asarray", "np.int64"}),
}

# What kernels may import of vmflow beside each other: vocabulary, and the parts of tensors.
BELOW = frozenset(
    {
        f"vmflow.{name}"
        for name in (
            *("arguments", "dtypes", "devices", "errors", "forking", "native", "instructions.blob"),
            "instructions.op_call",
        )
    }
)

# Words of the source that tell how something is computed.
INSIDE = re.compile(r"\b(ctypes|CallSite|call_site|NativeCall|cdll|CDLL|over_elements|np\.add\.reduce)\b")

# Modules that use addresses in memory for other reasons than kernels: DLPack's capsules, advice to the system about
# pages, and calls of a driver.
ADDRESSES = frozenset(
    {
        *("vmflow.exchange", "vmflow.streams.device_memory", "vmflow.cuda.libcuda"),
        *(
            "vmflow.streams.cuda.cublaslt",
            "vmflow.streams.cuda.cupy_driver",
            "vmflow.streams.cuda.emulation.driver",
            "vmflow.streams.cuda.emulation.memory",
        ),
    }
)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _bypasses_the_entry_points(module_import: Import) -> bool:
    if not _within(module_import.imported, KERNELS) or _within(module_import.importer, KERNELS):
        return False
    if (module_import.importer, module_import.imported) == COMPILER:
        return False
    return module_import.imported not in ENTRY_POINTS and not _within(module_import.imported, f"{KERNELS}.problems")


def test_other_modules_import_only_the_entry_points() -> None:
    wrong = [import_ for name in MODULES for import_ in _imports(name) if _bypasses_the_entry_points(import_)]
    assert not wrong, "\n".join([f"{value.importer}:{value.line} imports {value.imported}" for value in wrong])


def test_of_threads_others_know_the_number() -> None:
    allowed = {"get_num_threads", "set_num_threads", "usable_cpus"}
    for name, path in MODULES.items():
        if _within(name, KERNELS):
            continue
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.ImportFrom) and (found.module or "").endswith("kernels.intra_op"):
                assert {alias.name for alias in found.names} <= allowed, name
            if isinstance(found, ast.ImportFrom) and (found.module or "").endswith("kernels"):
                assert "intra_op" not in [alias.name for alias in found.names], name


@pytest.mark.slow
def test_of_updates_others_know_the_rules() -> None:
    module = f"{KERNELS}.updates"
    found = 0
    for name, path in MODULES.items():
        if _within(name, KERNELS):
            continue
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.ImportFrom) and f"vmflow.{statement.module}".endswith("kernels.updates"):
                assert {alias.name for alias in statement.names} <= UPDATES, name
                found += 1
        # Never the module as a whole, of which anything could be used.
        whole = re.compile(rf"from ({re.escape(KERNELS)}|\.*kernels) import .*\bupdates\b|import {re.escape(module)}\b")
        assert not whole.search(path.read_text()), name
    assert found


def test_modules_that_issue_updates_compute_nothing() -> None:
    for name, path in MODULES.items():
        # The lengths of sequences that are packed are looked at, and not changed in place.
        if any([_within(name, package) for package in UPDATING]) and name != "vmflow.nn.utils.rnn":
            nodes = ast.walk(ast.parse(path.read_text()))
            used = {
                ast.unparse(node)
                for node in nodes
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "np"
            }
            assert used <= NAMED, name


def test_ops_compute_nothing() -> None:
    """They use types of numpy's, and make tensors of its arrays; all computation with arrays is left to kernels."""
    for name, path in MODULES.items():
        if not _within(name, "vmflow.ops"):
            continue
        used: set[str] = set()
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.Attribute) and ast.unparse(found.value) == "np":
                used.add(ast.unparse(found))
            elif isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute) and found.func.attr in READING:
                used.add(found.func.attr)
            elif isinstance(found, ast.ImportFrom):
                assert not (found.module or "").startswith("numpy"), name
                used.update({alias.name for alias in found.names} & MAKING)
            elif isinstance(found, ast.Import):
                assert {alias.asname for alias in found.names if alias.name.startswith("numpy")} <= {"np"}, name
        assert used <= TYPES | FROM_OUTSIDE.get(name, frozenset()), name


def test_no_module_outside_names_modules_inside() -> None:
    for name, path in MODULES.items():
        if not _within(name, KERNELS) and name not in ADDRESSES:
            assert not INSIDE.findall(path.read_text()), name


def test_kernels_do_not_know_their_callers() -> None:
    wrong = [
        import_
        for name in MODULES
        if _within(name, KERNELS)
        for import_ in _imports(name)
        if import_.imported.split(".")[0] == "vmflow"
        and not _within(import_.imported, KERNELS)
        and import_.imported not in BELOW
        and not (_within(name, f"{KERNELS}.cuda") and _within(import_.imported, "vmflow.streams.cuda"))
    ]
    assert not wrong, "\n".join([f"{value.importer}:{value.line} imports {value.imported}" for value in wrong])


def test_problems_are_of_no_device() -> None:
    for name in MODULES:
        if _within(name, f"{KERNELS}.problems"):
            for import_ in _imports(name):
                assert not _within(import_.imported, f"{KERNELS}.numpy"), name
                assert not _within(import_.imported, f"{KERNELS}.native"), name


def test_every_op_has_a_kernel_on_the_host() -> None:
    from vmflow.graph_mode.serialization import declare_all_ops

    declare_all_ops()
    builders = choosing._BUILDERS["vmflow.kernels.numpy"]
    for name, op in OPS.items():
        if isinstance(op, ViewExpr):
            continue
        assert op.family, name
        import_module(f"vmflow.kernels.numpy.{op.family}")
        assert name in builders or op.family in builders, name


def test_every_builder_is_of_ops() -> None:
    from vmflow.graph_mode.serialization import declare_all_ops

    declare_all_ops()
    families = {op.family for op in OPS.values() if op.family}
    for family in families:
        import_module(f"vmflow.kernels.numpy.{family}")
    assert set(choosing._BUILDERS["vmflow.kernels.numpy"]) <= families | set(OPS)


def test_every_rule_has_settings_and_a_kernel_on_the_host() -> None:
    from importlib import import_module

    from vmflow.kernels.problems import updates as problems

    import_module("vmflow.kernels.numpy.updates")
    rules = updates._RULES["vmflow.kernels.numpy"]
    assert set(problems.COSTS) <= set(rules)
    named = {"zero", "unscale", "assign"}
    for var in vars(problems).values():
        if isinstance(var, type) and var.__module__ == problems.__name__:
            named.update(re.findall(r'^Settings of the update "(\w+)"', var.__doc__ or ""))
    assert named == set(rules)


# Choosing


def _metas() -> tuple[TensorMeta, ...]:
    return (meta((3,), flow.float32, Device("cpu")),)


def _problem(op: str = "exp", family: str = "", details: Any = None) -> Problem:
    return Problem(op, family, (), _metas(), (), _metas(), details)


def test_an_op_without_a_kernel_is_told_by_its_name() -> None:
    with pytest.raises(NotImplementedError, match="no_such_op has no kernel for cpu"):
        choose(_problem("no_such_op"), Device("cpu"))


def test_where_nothing_is_computed_no_kernel_is_chosen() -> None:
    with pytest.raises(RuntimeError, match="cuda:0 cannot be used"):
        choose(_problem(), Device("cuda:0"))


def test_an_op_may_bring_its_own_kernel() -> None:
    own = Kernel(lambda x, out: x)
    assert choose(_problem("no_such_op", details=own), Device("cpu")) is own


def test_a_module_whose_import_was_interrupted_is_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    flow.ones(2).to(flow.float64)
    monkeypatch.delitem(sys.modules, "vmflow.kernels.numpy.copying")
    import_module("vmflow.kernels.numpy.copying")


def test_two_builders_of_one_op_are_refused() -> None:
    flow.ones(2).to(flow.float64)
    with pytest.raises(ValueError, match=r"'cast' has two builders in vmflow\.kernels\.numpy"):
        builds("cast")(lambda problem: lambda x, out: x)


def test_an_update_without_a_rule_is_told_by_its_name() -> None:
    with pytest.raises(NotImplementedError, match="the update 'no_such_rule' has no kernel for cpu"):
        choose_update("no_such_rule", Device("cpu"))


@pytest.mark.parametrize("rule", ["sgd", "zero", "no_such_rule"])
def test_where_nothing_is_computed_no_rule_is_chosen(rule: str) -> None:
    choose_update("zero", Device("cpu"))
    with pytest.raises(DeviceUnavailable, match="cuda:0 cannot be used"):
        choose_update(rule, Device("cuda:0"))


def test_rules_with_memory_are_chosen_anew_each_time() -> None:
    host = Device("cpu")
    assert choose_update("sgd", host) is not choose_update("sgd", host)
    assert choose_update("zero", host) is choose_update("zero", host)


def test_two_kernels_of_one_update_are_refused() -> None:
    choose_update("zero", Device("cpu"))
    with pytest.raises(ValueError, match=r"the update 'zero' has two kernels in vmflow\.kernels\.numpy"):
        declares_rule("zero")(lambda inputs, outputs: None)


@pytest.fixture
def counted() -> Any:
    """An op of whose inferences are counted."""
    inferred: list[int] = []

    def infer(attributes: Any, metas: Any, kinds: Any) -> Inferred:
        inferred.append(GENERATION.number)
        _during[0]()
        return Inferred(metas[0], 1, Kernel(lambda x, out: x + 1))

    op = OpExpr("counted_for_a_test", infer)
    _during[0] = lambda: None
    yield op, inferred
    del OPS[op.name]


_during: list[Callable[[], None]] = [lambda: None]


def _plan(op: OpExpr) -> OpPlan:
    from vmflow.interpreter import plan_of

    return plan_of(op, (flow.ones(3)._blob,), (), (), None)


def test_a_kernel_is_chosen_once_and_anew_when_others_are_there(counted: Any) -> None:
    op, inferred = counted
    first = _plan(op)
    assert _plan(op) is first
    assert len(inferred) == 1
    GENERATION.advance()
    assert _plan(op) is not first
    assert len(inferred) == 2


def test_a_kernel_chosen_while_a_library_arrived_is_not_kept(counted: Any) -> None:
    op, inferred = counted
    _during[0] = GENERATION.advance
    first = _plan(op)
    _during[0] = lambda: None
    assert op.recent is None
    assert not op.known
    assert _plan(op) is not first
    assert len(inferred) == 2
    assert _plan(op) is _plan(op)
    assert len(inferred) == 2


def test_the_number_of_threads_counts_only_if_it_changes() -> None:
    before = flow.get_num_threads()
    number = GENERATION.number
    flow.set_num_threads(before)
    assert GENERATION.number == number
    try:
        flow.set_num_threads(before + 1)
        assert GENERATION.number != number
    finally:
        flow.set_num_threads(before)
