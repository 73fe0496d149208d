"""A kernel and the functions that it calls, as basic blocks of operations.

The kernel and its functions share one list of registers, and functions' variables have fixed places in local memory; so
functions must not call themselves.  The blocks stand in the order of the text, callers first; `execution` relies on
this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .blocks import Block, Registers, find_live, undefined
from .faults import Place, UnsupportedInstruction
from .functions import FunctionBuilder, aligned, callee_of
from .opcodes import memory_access
from .statements import Address, Function, Instruction, Label, Operand, Register, Unit, Variable, Vector
from .types import Array


class Program(NamedTuple):
    """The operations of a kernel.

    Attributes:
        blocks: the kernel begins at the first.
        constants: for each register its value if it is a constant, else None.  A register that may be read before it is
            written has a constant, too, whose bits are all one.
        special: the registers to fill at the start, by the name of the special register.
        shared_bytes: of the variables in shared memory, without the bytes that the launch adds.
        local_bytes: of one thread's variables in local memory.
        granules: the fewest bytes of one thread's access, at most 16, by kind of memory: "shared" and "global", if
            accessed.
    """

    blocks: tuple[Block, ...]
    constants: tuple[Array | None, ...]
    special: Mapping[str, int]
    shared_bytes: int
    local_bytes: int
    granules: Mapping[str, int]


class Builder:
    """Lowers one kernel with all functions that it calls.

    Args:
        unit: the module.
        addresses: of the module's variables in global and constant memory, by name.
    """

    def __init__(self, unit: Unit, addresses: Mapping[str, int]) -> None:
        self.unit = unit
        self.addresses = addresses
        self.registers = Registers()
        self.blocks: list[Block] = []
        self.special: dict[str, int] = {}
        self.shared: dict[str, int] = {}
        self.shared_bytes = 0
        self.local_bytes = 0
        self._granules: dict[str, int] = {}
        self._functions: dict[str, FunctionBuilder] = {}

    def build(self, name: str) -> Program:
        """The program of a kernel.

        Raises:
            UnsupportedInstruction: for an unknown instruction, recursion, or a function without a body.
        """
        functions = self._reachable(name)
        self._place_shared(functions)
        # Parameters are known before functions are lowered, and entries before calls are linked.
        self._functions = {function.name: FunctionBuilder(self, function) for function in functions}
        for builder in self._functions.values():
            builder.lower()
            self._note_granules(builder.function)
        for builder in self._functions.values():
            builder.link()
        find_live(self.blocks, self.special.values())
        for slot in self.blocks[0].live:
            self.registers.values[slot] = undefined(self.registers.dtypes[slot])
        return Program(
            tuple(self.blocks),
            tuple(self.registers.values),
            self.special,
            self.shared_bytes,
            self.local_bytes,
            self._granules,
        )

    def function(self, name: str) -> FunctionBuilder | None:
        """The lowering of a function of the program; None if there is no such function."""
        return self._functions.get(name)

    def _reachable(self, name: str) -> list[Function]:
        """A function, and all that it calls, callers first."""
        order: list[Function] = []
        path: list[str] = []

        def visit(called: str, place: Place | None) -> None:
            function = self.unit.functions[called]
            if called in path:
                raise UnsupportedInstruction(f"{called} calls itself, which is not known here: {place}")
            if not function.defined:
                raise UnsupportedInstruction(f"{called} is declared but not defined: {place}")
            path.append(called)
            for callee, where in _calls(function, self.unit):
                visit(callee, where)
            path.pop()
            if function not in order:
                order.append(function)

        visit(name, None)
        return order[::-1]

    def _place_shared(self, functions: Iterable[Function]) -> None:
        """Give addresses to variables in shared memory; the last are those whose size the launch chooses."""
        found: dict[str, Variable] = {}
        for function in functions:
            for variable in function.variables.values():
                if variable.space == "shared":
                    found[variable.name] = variable
            for name in _names(function):
                if name in self.unit.variables and self.unit.variables[name].space == "shared":
                    found[name] = self.unit.variables[name]
        for variable in sorted(found.values(), key=lambda variable: variable.size == 0):
            self.shared_bytes = aligned(
                self.shared_bytes, variable.alignment if variable.size else max(variable.alignment, 16)
            )
            self.shared[variable.name] = self.shared_bytes
            self.shared_bytes += variable.size

    def place_local(self, variable: Variable) -> int:
        """Give an address to a variable in local memory."""
        start = aligned(self.local_bytes, variable.alignment)
        self.local_bytes = start + variable.size
        return start

    def _note_granules(self, function: Function) -> None:
        for statement in function.body:
            access = None if isinstance(statement, Label) else memory_access(statement)
            if access is None or access[0] in ("local", "param", "const"):
                continue
            for kind in ("shared", "global") if access[0] == "generic" else (access[0],):
                self._granules[kind] = min(self._granules.get(kind, 16), access[1])


def _names(function: Function) -> Iterator[str]:
    """Yield all names in the operands of a function's instructions."""

    def walk(operand: Operand) -> Iterator[str]:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Address) and operand.base is not None:
            yield operand.base
        elif isinstance(operand, Vector):
            for part in operand.parts:
                yield from walk(part)

    for statement in function.body:
        if isinstance(statement, Instruction):
            for operand in statement.operands:
                yield from walk(operand)


def _calls(function: Function, unit: Unit) -> Iterator[tuple[str, Place]]:
    for statement in function.body:
        if isinstance(statement, Instruction) and statement.opcode == "call":
            yield callee_of(statement, unit), statement.place
