"""Each field of an object is assigned in one module: that of its class, or the only other one, which `OWNERS` names."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.support import source_files

# Where every assignment is looked at.
FOLDERS = ("vmflow.graph_mode", "vmflow.streams", "vmflow.instructions", "vmflow.vm")

# By field, the module that assigns it beside its class's own, and why that is so.
OWNERS = {
    **dict.fromkeys(
        [
            *[f"Instruction.{name}" for name in ("state", "policy", "serial", "writes", "waits", "members")],
            *["Instruction.on_launch", "Instruction.on_finish", "Dependence.writer", "Dependence.readers"],
            *["Stream.outstanding", "Stream.full", "Stream.ranked", "Stream.order"],
        ],
        ("vmflow.vm.engine", "the state of its algorithm, kept where it takes no look-up"),
    ),
    "Instruction.before": ("vmflow.vm.lively", "lively instructions are linked with each other"),
    "Instruction.after": ("vmflow.vm.lively", "as before"),
    "TurnLock.owner": ("vmflow.vm.driver", "Ctrl-C must not come between the taking and the `try` that gives it back"),
    "Instruction.behind": ("vmflow.streams.queues", "the queues of streams are linked through their instructions"),
    "Piece.free": ("vmflow.streams.allocator", "it hands pieces out, for every large result"),
    "Piece.owner": ("vmflow.streams.allocator", "as before"),
    "Piece.requested": ("vmflow.streams.allocator", "as before"),
    "Storage.array": ("vmflow.instructions.op_call", "every op stores its result, and has no time for a call"),
    "Storage.failure": ("vmflow.instructions.op_call", "as before"),
}

# Bases that stand apart from their only derived class for both to be compiled: the fields are those of both.
PAIRS = {"MachineFields": "VirtualMachine", "TensorFields": "Tensor"}


class Class(NamedTuple):
    """A class, with facts from its source.

    Attributes:
        fields: by name, the annotation if there is one.
        returns: by name of a method or property, the annotation of its result.
    """

    module: str
    name: str
    bases: tuple[str, ...]
    fields: dict[str, ast.expr | None]
    returns: dict[str, ast.expr | None]


class Assignment(NamedTuple):
    """An assignment to an attribute of an object that is not `self`."""

    module: str
    line: int
    target: str
    owners: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module}:{self.line} assigns {self.target}, a field of {' or '.join(self.owners)}"


@pytest.fixture(autouse=True, scope="module")
def _forget_the_sources() -> Iterator[None]:
    """Free the syntax trees, more than a million objects, which every garbage collection of later tests would visit."""
    yield
    _classes.cache_clear()
    _trees.cache_clear()


# Facts from the sources


@cache
def _trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in source_files().items()}


@cache
def _classes() -> dict[str, list[Class]]:
    """All classes of the project by name, which several may have."""
    found: dict[str, list[Class]] = {}
    for module, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(_class(module, node))
    return found


def _class(module: str, node: ast.ClassDef) -> Class:
    fields: dict[str, ast.expr | None] = {}
    returns: dict[str, ast.expr | None] = {}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            fields[statement.target.id] = statement.annotation
        elif isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__slots__":
            constants = [entry.value for entry in ast.walk(statement.value) if isinstance(entry, ast.Constant)]
            fields.update(
                dict.fromkeys(
                    [constant for constant in constants if isinstance(constant, str) and constant not in fields]
                )
            )
        elif isinstance(statement, ast.FunctionDef):
            returns[statement.name] = statement.returns
            given = _parameters(statement)
            for target, value, annotation in _targets(statement):
                if isinstance(target.value, ast.Name) and target.value.id == "self":
                    said = annotation or (given.get(value.id) if isinstance(value, ast.Name) else None)
                    fields[target.attr] = fields.get(target.attr) or said
    return Class(module, node.name, tuple([ast.unparse(base) for base in node.bases]), fields, returns)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr | None]:
    arguments = function.args
    return {
        posonlyarg.arg: posonlyarg.annotation
        for posonlyarg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    }


def _targets(within: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr | None, ast.expr | None]]:
    """The attributes that are assigned or deleted, each with the value and the annotation if there are any."""
    for node in ast.walk(within):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for attribute in _attributes(target):
                    yield attribute, node.value if attribute is target else None, None
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            yield node.target, node.value, node.annotation
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension)):
            yield from [(value, None, None) for value in _attributes(node.target)]
        elif isinstance(node, ast.Delete):
            yield from [(value, None, None) for target in node.targets for value in _attributes(target)]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from [(value, None, None) for value in _attributes(node.optional_vars)]


def _attributes(target: ast.expr) -> list[ast.Attribute]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [attribute for element in target.elts for attribute in _attributes(element)]
    if isinstance(target, ast.Starred):
        return _attributes(target.value)
    return [target] if isinstance(target, ast.Attribute) else []


# Whose field it is


def _with_bases(name: str) -> Iterator[Class]:
    """The classes of this name, those that they derive from, and those that stand apart from them."""
    for found in _classes().get(name, ()):
        yield found
        for base in found.bases:
            if base != name:
                yield from _with_bases(base)
    for apart, whole in PAIRS.items():
        if apart == name:
            yield from _classes()[whole]


def _named(annotation: ast.expr | None) -> set[str]:
    """The classes of the project that an annotation allows, if it allows nothing else but None."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _named(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp):
        sides = [value for value in (annotation.left, annotation.right) if ast.unparse(value) != "None"]
        return _all_of([_named(side) for side in sides])
    if isinstance(annotation, ast.Name) and annotation.id in _classes():
        return {annotation.id}
    return set()


class _Function:
    """The types of names within a function, as far as assignments, annotations and parameters show them."""

    def __init__(self, around: ast.ClassDef | None, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._known: dict[str, set[str]] = {}
        values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._known.update({name: _named(annotation) for name, annotation in _parameters(node).items()})
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._known[node.target.id] = _named(node.annotation)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values.setdefault(node.targets[0].id, []).append(node.value)
        if around is not None:
            self._known["self"] = {around.name}
        for name, given in values.items():
            if name not in self._known:
                self._known[name] = self._any_of(given)

    def types(self, value: ast.expr) -> set[str]:
        """The classes that a value may be of; none if that cannot be told."""
        if isinstance(value, ast.Name):
            return self._known.get(value.id, set())
        if isinstance(value, ast.Call):  # of a class, or of a method
            return _named(value.func) if isinstance(value.func, ast.Name) else self.types(value.func)
        if isinstance(value, ast.Attribute):
            owners = [base for name in self.types(value.value) for base in _with_bases(name)]
            said = [owner.fields.get(value.attr) or owner.returns.get(value.attr) for owner in owners]
            return _all_of([_named(entry) for entry in said if entry is not None])
        if isinstance(value, ast.BoolOp):
            return self._any_of(value.values)
        return self._any_of([value.body, value.orelse]) if isinstance(value, ast.IfExp) else set()

    def _any_of(self, values: list[ast.expr]) -> set[str]:
        return _all_of([self.types(value) for value in values if ast.unparse(value) != "None"])


def _all_of(types: list[set[str]]) -> set[str]:
    """All of these together; none if one cannot be told."""
    return set().union(*types) if all(types) else set()


def _owners(attribute: str, types: set[str]) -> list[Class]:
    """The classes that have such a field, of these types, or of any if these are not known."""
    if types:
        found = [base for name in types for base in _with_bases(name) if attribute in base.fields]
    else:
        found = [class_ for classes in _classes().values() for class_ in classes if attribute in class_.fields]
    # A module that knows the one of a pair knows the other.
    return found + [value for one in found for value in _classes().get(PAIRS.get(one.name, ""), ())]


def _functions(
    node: ast.AST, around: ast.ClassDef | None = None
) -> Iterator[tuple[ast.ClassDef | None, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The outermost functions, each with the class that it is a method of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield around, child
        else:
            yield from _functions(child, child if isinstance(child, ast.ClassDef) else around)


def _assignments(module: str, tree: ast.Module) -> Iterator[Assignment]:
    """The assignments to others' fields that a class of another module has."""
    seen: set[ast.Attribute] = set()
    for around, function in _functions(tree):
        known = _Function(around, function)
        for target, _, _ in _targets(function):
            seen.add(target)
            yield from _foreign(module, target, known.types(target.value))
    for target, _, _ in _targets(tree):
        if target not in seen:
            yield from _foreign(module, target, set())


def _foreign(module: str, target: ast.Attribute, types: set[str]) -> Iterator[Assignment]:
    if isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"):
        return
    owners = _owners(target.attr, types)
    if owners and module not in [owner.module for owner in owners]:
        fields = sorted({f"{owner.name}.{target.attr}" for owner in owners})
        yield Assignment(module, target.lineno, ast.unparse(target), tuple(fields))


def _allowed(it: Assignment) -> bool:
    return any([OWNERS.get(field, ("", ""))[0] == it.module for field in it.owners])


def _all_assignments() -> list[Assignment]:
    modules = [tree for tree in _trees() if tree.startswith(FOLDERS)]
    return [assignment for module in modules for assignment in _assignments(module, _trees()[module])]


def test_each_field_is_assigned_in_one_module() -> None:
    wrong = [str(assignment) for assignment in _all_assignments() if not _allowed(assignment)]
    assert not wrong, "\n".join(["give its class a method for this change, or name its owner:", *wrong])


def test_every_owner_is_one() -> None:
    found = {(field, assignment.module) for assignment in _all_assignments() for field in assignment.owners}
    assert {(field, module) for field, (module, _) in OWNERS.items()} <= found
    for apart, whole in PAIRS.items():
        assert [apart in _bases_of(class_) for class_ in _classes()[whole]] == [True]


def _bases_of(of: Class) -> set[str]:
    """Also those of its bases."""
    return {*of.bases, *[name for base in of.bases for value in _classes().get(base, ()) for name in _bases_of(value)]}


@pytest.mark.parametrize(
    ("module", "source", "fields"),
    [
        ("compiled", "launch.opened = True", ["Launch.opened"]),
        ("compiled", "launch.opened, other = True, 1", ["Launch.opened"]),
        ("compiled", "launch.opened: bool = True", ["Launch.opened"]),
        ("compiled", "launch.results += ()", ["Launch.results"]),
        ("compiled", "launch.numbers = []", ["Launch.numbers"]),
        ("compiled", "del launch.opened", ["Launch.opened"]),
        ("compiled", "for launch.opened in (): pass", ["Launch.opened"]),
        ("compiled", "with launch as launch.opened: pass", ["Launch.opened"]),
        ("compiled", "launch.failure.observed = True", ["Failure.observed"]),
        ("compiled", "made = Launch()\nmade.failure = None", ["Launch.failure"]),
        ("compiled", "unknown.opened = True", ["Launch.opened"]),
        ("compiled", "tensor._blob = None", ["Tensor._blob", "TensorFields._blob"]),
        ("launch", "launch.opened = True", []),
        ("launch", "blob.storage.failure = None", ["Storage.failure"]),  # which `Launch` has as well
        ("compiled", "self.opened = True", []),
        ("compiled", "launch.nobody_has_it = True", []),
        ("compiled", "opened = launch.opened", []),
    ],
)
def test_an_assignment_is_found(module: str, source: str, fields: list[str]) -> None:
    function = (
        f"def planted(self, launch: Launch, blob: Blob, tensor: Tensor, unknown):\n{textwrap.indent(source, ' ')}"
    )
    found = list(_assignments(f"vmflow.graph_mode.{module}", ast.parse(function)))
    assert [field for value in found for field in value.owners] == fields
    assert not any([_allowed(value) for value in found])
    assert [value.line > 1 for value in found] == [True] * len(found)


def test_an_owner_may_assign() -> None:
    source = ast.parse("def planted(storage: Storage):\n storage.array = None")
    assert all([_allowed(assignment) for assignment in _assignments("vmflow.instructions.op_call", source)])
    assert not any([_allowed(assignment) for assignment in _assignments("vmflow.instructions.chain", source)])
