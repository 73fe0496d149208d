"""A kernel and the functions that it calls, as blocks of operations that end with a jump.

All of them share one list of registers, and functions have fixed places in local memory; so they must not call
themselves.  The blocks stand in the order of the text, functions behind the kernel.  The scheduler relies on it: it
runs the earliest block first, and threads that went different ways meet where the text comes together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from .faults import Place, UnsupportedInstruction
from .integer_instructions import CARRY
from .lowering import PREDICATE, Lowering, Operation, operation
from .moves import copy
from .opcodes import GATES, LOWER, OPERANDS, memory_access
from .syntax import Address, Function, Instruction, Label, Operand, Register, Unit, Variable, Vector
from .types import SCALARS, UNSIGNED, Array, DType
from .warps import Gate

# Special registers are filled at the start of a kernel.
_AXES: Final = ("tid", "ntid", "ctaid", "nctaid")
SPECIAL: Final = frozenset(
    [f"%{kind}.{axis}" for kind in _AXES for axis in "xyz"]
    + [f"%lanemask_{kind}" for kind in ("eq", "lt", "le", "gt", "ge")]
    + ["%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%dynamic_smem_size", "%total_smem_size"]
)


# The ends of blocks


class Jump(NamedTuple):
    """All go on at one block."""

    target: int


class Branch(NamedTuple):
    """Threads for which a predicate holds, or does not, go elsewhere than the others."""

    predicate: int
    negated: bool
    target: int
    following: int


class Switch(NamedTuple):
    """Each thread goes to the block whose number in a table is in a register."""

    selector: int
    targets: tuple[int, ...]
    place: Place


class Call(NamedTuple):
    """A function begins; its threads will go on at the block that follows."""

    entry: int
    following: int


class Return(NamedTuple):
    """A function ends, and its results are in registers; a kernel ends for these threads."""

    results: tuple[int, ...] = ()


class Exit(NamedTuple):
    """These threads end."""


class Meet(NamedTuple):
    """A gate."""

    gate: Gate
    following: int


End = Jump | Branch | Switch | Call | Return | Exit | Meet


_NOWHERE: Final = Place("the end of a function", 0)


@dataclass(eq=False)
class Block:
    """Operations without a jump, and what comes after them.

    Attributes:
        operations: in their order.
        end: what comes after them.
        size: how many instructions it has.
        live: the registers whose values are still needed at its beginning.
        dead: those whose values are not needed any more at its end, but may be there.
        place: of its first instruction.
    """

    operations: list[Operation] = field(default_factory=list)
    end: End = field(default_factory=Exit)
    size: int = 0
    live: frozenset[int] = frozenset()
    dead: tuple[int, ...] = ()
    place: Place = _NOWHERE
    # Registers read before they are written here, and those written.
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)


class Program(NamedTuple):
    """What a kernel does.

    Attributes:
        blocks: the first is where it begins.
        constants: for each register its value if it is a constant, else None.  Those that may be read before they are
            written, as the padding of structures is, are constants at first, of bits that are one.
        special: the registers to fill at the start, by the name of the special register.
        shared_bytes: of its variables in shared memory, without what the launch adds.
        local_bytes: of its variables in local memory.
        granules: the least bytes that it accesses at once, by kind of memory: "shared" and "global".
    """

    blocks: tuple[Block, ...]
    constants: tuple[Array | None, ...]
    special: Mapping[str, int]
    shared_bytes: int
    local_bytes: int
    granules: Mapping[str, int]


class _Registers:
    """The registers of a program."""

    def __init__(self) -> None:
        self.dtypes: list[DType] = []
        self.values: list[Array | None] = []
        self._constants: dict[tuple[str, bytes], int] = {}

    def new(self, dtype: DType, value: Array | None = None) -> int:
        self.dtypes.append(dtype)
        self.values.append(value)
        return len(self.dtypes) - 1

    def constant(self, values: Array) -> int:
        key = (values.dtype.name, values.tobytes())
        if key not in self._constants:
            values.flags.writeable = False
            self._constants[key] = self.new(values.dtype, values)
        return self._constants[key]


class Builder:
    """Lowers a kernel with all functions that it calls.

    Args:
        unit: the module.
        addresses: of its variables in global memory and of its constants.
    """

    def __init__(self, unit: Unit, addresses: Mapping[str, int]) -> None:
        self.unit = unit
        self.addresses = addresses
        self.registers = _Registers()
        self.blocks: list[Block] = []
        self.special: dict[str, int] = {}
        self.shared: dict[str, int] = {}
        self.shared_bytes = 0
        self.local_bytes = 0
        self._granules: dict[str, int] = {}
        self._entries: dict[str, int] = {}
        self._functions: dict[str, FunctionBuilder] = {}

    def build(self, name: str) -> Program:
        """The program of a kernel.

        Raises:
            UnsupportedInstruction: if it has an instruction that is not known.
        """
        functions = self._reachable(name)
        self._place_shared(functions)
        # Parameters and entries are known before any call is lowered.
        self._functions = {function.name: FunctionBuilder(self, function) for function in functions}
        for builder in self._functions.values():
            builder.lower()
            self._note_granules(builder.function)
        for builder in self._functions.values():
            builder.link()
        self._find_live()
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
        """What lowers a function of the program; None if there is no such function."""
        return self._functions.get(name)

    def _reachable(self, name: str) -> list[Function]:
        """A function, and all that it calls, none before those that call it."""
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
        """Give addresses to variables in shared memory, at last to those whose size the launch chooses."""
        found: dict[str, Variable] = {}
        for function in functions:
            for variable in function.variables.values():
                if variable.space == "shared":
                    found[variable.name] = variable
            for name in _names(function):
                if name in self.unit.variables and self.unit.variables[name].space == "shared":
                    found[name] = self.unit.variables[name]
        for variable in sorted(found.values(), key=lambda it: it.size == 0):
            self.shared_bytes = _aligned(self.shared_bytes, variable.alignment if variable.size else 16)
            self.shared[variable.name] = self.shared_bytes
            self.shared_bytes += variable.size

    def place_local(self, variable: Variable) -> int:
        """Give an address to a variable in local memory."""
        start = _aligned(self.local_bytes, variable.alignment)
        self.local_bytes = start + variable.size
        return start

    def _note_granules(self, function: Function) -> None:
        for statement in function.body:
            access = None if isinstance(statement, Label) else memory_access(statement)
            if access is None or access[0] in ("local", "param", "const"):
                continue
            for kind in ("shared", "global") if access[0] == "generic" else (access[0],):
                self._granules[kind] = min(self._granules.get(kind, 16), access[1])

    def _find_live(self) -> None:
        """Find out which registers are needed at the beginning of each block, from the last block to the first."""
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                live = frozenset((self._live_after(block) - block.writes) | block.reads)
                if live != block.live:
                    block.live = live
                    changed = True
        kept = frozenset(self.special.values())
        for block in self.blocks:
            block.dead = tuple((block.live | block.writes) - self._live_after(block) - kept)

    def _live_after(self, block: Block) -> set[int]:
        """The registers that are needed at the end of a block."""
        after = set(block.end.results) if isinstance(block.end, Return) else set()
        return after.union(*[self.blocks[successor].live for successor in _successors(block.end)])


def undefined(dtype: DType) -> Array:
    """What a register holds that was never written: bits that are one, which of floats are NaN."""
    return np.ones(1, bool) if dtype == PREDICATE.dtype else np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _successors(end: End) -> tuple[int, ...]:
    if isinstance(end, Branch):
        return (end.target, end.following)
    if isinstance(end, Switch):
        return end.targets
    if isinstance(end, Jump):
        return (end.target,)
    if isinstance(end, Call):
        return (end.entry, end.following)
    return (end.following,) if isinstance(end, Meet) else ()


def _names(function: Function) -> Iterator[str]:
    """All names in the operands of a function."""

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
            yield _callee(statement, unit), statement.place


def _callee(instruction: Instruction, unit: Unit) -> str:
    for operand in instruction.operands[:2]:
        if isinstance(operand, Register) and operand.name in unit.functions:
            return operand.name
    raise UnsupportedInstruction(f"only calls of functions by their names are known: {instruction.place}")


class FunctionBuilder:
    """Lowers one function; see `Builder`.  It is the `Names` of its instructions.

    Attributes:
        function: the function.
        entry: its first block.
    """

    def __init__(self, program: Builder, function: Function) -> None:
        self.function = function
        self.entry = -1
        self._program = program
        self._slots: dict[str, int] = {}
        self._local: dict[str, int] = {}
        self._parameters = {it.name: it for it in (*function.parameters, *function.results)}
        self._fields: dict[tuple[str, int], int] = {}
        self._labels: dict[str, int] = {}
        # Ends whose targets are labels, to be resolved when all are known.
        self._pending: list[tuple[Block, tuple[Any, ...]]] = []
        self._calls: list[tuple[Block, Block, Instruction]] = []
        self._returns: list[Block] = []
        self._lowering = Lowering(self)
        for variable in function.variables.values():
            if variable.space == "local":
                self._local[variable.name] = program.place_local(variable)
            elif variable.space == "param":
                self._parameters[variable.name] = variable

    # Names

    def slot(self, name: str) -> int | None:
        """The register of this name."""
        if name in SPECIAL:
            return self._special(name)
        if name not in self._slots:
            if name != CARRY and name not in self.function.registers:
                return None
            dtype = PREDICATE.dtype if name == CARRY else SCALARS[self.function.registers[name]].register
            self._slots[name] = self._program.registers.new(dtype)
        return self._slots[name]

    def _special(self, name: str) -> int:
        known = self._program.special
        if name not in known:
            known[name] = self._program.registers.new(UNSIGNED[8 if name == "%gridid" else 4])
        return known[name]

    def dtype(self, slot: int) -> DType:
        """What the array of a register holds."""
        return self._program.registers.dtypes[slot]

    def constant(self, values: Array) -> int:
        """The register that holds a constant."""
        return self._program.registers.constant(values)

    def symbol(self, name: str) -> int | None:
        """The address of a variable in its own state space."""
        if name in self._local:
            return self._local[name]
        if name in self._program.shared:
            return self._program.shared[name]
        if self.function.is_kernel and name in self._parameters:
            return parameter_offsets(self.function.parameters)[name]
        return self._program.addresses.get(name)

    def field(self, name: str, offset: int, size: int) -> int:
        """The register of a part of a parameter or a result."""
        if (name, offset) not in self._fields:
            variable = self._parameters[name]
            whole = SCALARS[variable.type].size if variable.size == SCALARS[variable.type].size else size
            self._fields[name, offset] = self._program.registers.new(UNSIGNED[max(whole, 2)])
        return self._fields[name, offset]

    def fields(self, name: str) -> dict[int, int]:
        """The registers of all parts of a parameter or a result that are known, by their offsets."""
        return {offset: slot for (owner, offset), slot in self._fields.items() if owner == name}

    # Lowering

    def lower(self) -> None:
        """Make the blocks of the function."""
        self.entry = len(self._program.blocks)
        block = self._start()
        for statement in self.function.body:
            if isinstance(statement, Label):
                block = self._after(block)
                self._labels[statement.name] = len(self._program.blocks) - 1
            else:
                block = self._statement(block, statement)
        self._returns.append(block)

    def _start(self) -> Block:
        block = Block()
        self._program.blocks.append(block)
        return block

    def _after(self, block: Block) -> Block:
        """The next block, to which another leads; the same, if there is nothing in it yet."""
        if not block.size:
            return block
        following = self._start()
        block.end = Jump(len(self._program.blocks) - 1)
        return following

    def _statement(self, block: Block, instruction: Instruction) -> Block:
        self._lowering.begin(instruction)
        if instruction.guard is not None and instruction.opcode != "bra":
            return self._guarded(block, instruction)
        if not block.size:
            block.place = instruction.place
        if instruction.opcode in _CONTROL:
            return self._control(block, instruction)
        if instruction.opcode in GATES:
            return self._gate(block, instruction)
        self._append(block, self._operation(instruction))
        return block

    def _operation(self, instruction: Instruction) -> Operation | None:
        moved = self._parameter_access(instruction)
        if moved is not None:
            return moved
        lower = LOWER.get(instruction.opcode)
        if lower is None:
            raise self._lowering.unsupported("this instruction is not known")
        if len(instruction.operands) != OPERANDS.get(instruction.opcode, len(instruction.operands)):
            raise self._lowering.unsupported("this form of the instruction is not known")
        try:
            return lower(self._lowering, instruction)
        except (ValueError, IndexError, KeyError, StopIteration) as error:
            raise self._lowering.unsupported("this form of the instruction is not known") from error

    def _append(self, block: Block, made: Operation | None) -> None:
        if made is not None:
            block.operations.append(made)
        block.size += 1
        self._note(block)

    def _note(self, block: Block) -> None:
        block.reads |= set(self._lowering.reads) - block.writes
        block.writes |= set(self._lowering.writes)

    def _guarded(self, block: Block, instruction: Instruction) -> Block:
        """An instruction with a predicate: the others jump over it."""
        assert instruction.guard is not None
        name, negated = instruction.guard
        predicate = self._predicate(block, name)
        inner = self._start()
        number = len(self._program.blocks) - 1
        following = self._statement(inner, instruction._replace(guard=None))
        if instruction.opcode not in _CONTROL:
            following = self._after(following)
        block.end = Branch(predicate, not negated, self._number(following), number)
        return following

    def _number(self, block: Block) -> int:
        return next(number for number, known in enumerate(self._program.blocks) if known is block)

    def _predicate(self, block: Block, name: str) -> int:
        self._lowering.reads, self._lowering.writes = [], []
        slot = self._lowering.source(Register(name), PREDICATE).slot
        self._note(block)
        return slot

    def _gate(self, block: Block, instruction: Instruction) -> Block:
        """A gate has a block of its own, so that threads that come by different ways meet at it."""
        block = self._after(block)
        block.place = instruction.place
        gate = GATES[instruction.opcode](self._lowering, instruction)
        block.size = 1
        self._note(block)
        following = self._start()
        block.end = Meet(gate, len(self._program.blocks) - 1)
        return following

    def _control(self, block: Block, instruction: Instruction) -> Block:
        opcode = instruction.opcode
        block.size += 1
        if opcode == "call":
            return self._call(block, instruction)
        if opcode == "bra":
            return self._branch(block, instruction)
        if opcode == "brx":
            return self._switch(block, instruction)
        following = self._start()
        if opcode == "ret":
            self._returns.append(block)
        return following

    def _branch(self, block: Block, instruction: Instruction) -> Block:
        label = _label(instruction.operands[0])
        predicate = None if instruction.guard is None else self._predicate(block, instruction.guard[0])
        following = self._start()
        number = len(self._program.blocks) - 1
        if predicate is None:
            self._pending.append((block, (label,)))
        else:
            assert instruction.guard is not None
            self._pending.append((block, (label, predicate, instruction.guard[1], number)))
        return following

    def _switch(self, block: Block, instruction: Instruction) -> Block:
        index, table = instruction.operands
        source = self._lowering.source(index, SCALARS["u32"])
        self._note(block)
        labels = self.function.tables[_label(table)]
        self._pending.append((block, (labels, source.slot, instruction.place)))
        return self._start()

    def _call(self, block: Block, instruction: Instruction) -> Block:
        following = self._start()
        self._calls.append((block, following, instruction))
        return following

    def link(self) -> None:
        """Turn labels into blocks and calls into jumps, when all functions are lowered."""
        for block, parts in self._pending:
            if len(parts) == 1:
                block.end = Jump(self._labels[parts[0]])
            elif len(parts) == 3:
                block.end = Switch(parts[1], tuple([self._labels[label] for label in parts[0]]), parts[2])
            else:
                label, predicate, negated, following = parts
                block.end = Branch(predicate, negated, self._labels[label], following)
        results = [slot for result in self.function.results for slot in self.fields(result.name).values()]
        for block in self._returns:
            block.end = Return(tuple(results))
        for block, following, instruction in self._calls:
            self._link_call(block, following, instruction)

    def _link_call(self, block: Block, following: Block, instruction: Instruction) -> None:
        callee = self._program.function(_callee(instruction, self._program.unit))
        assert callee is not None
        vectors = [it for it in instruction.operands if isinstance(it, Vector)]
        results = [_label(it) for it in vectors.pop(0).parts] if callee.function.results else []
        arguments = [_label(it) for it in vectors.pop(0).parts] if callee.function.parameters else []
        self._lowering.begin(instruction)
        for name, parameter in zip(arguments, callee.function.parameters, strict=True):
            for offset, slot in callee.fields(parameter.name).items():
                self._pass(block, self._given(name, offset, slot), slot, at_end=True)
        for name, result in zip(results, callee.function.results, strict=True):
            for offset, slot in self.fields(name).items():
                given = callee.fields(result.name).get(offset)
                if given is not None:
                    self._pass(following, given, slot, at_end=False)
        block.end = Call(callee.entry, self._number(following))

    def _given(self, name: str, offset: int, slot: int) -> int:
        """The register that the caller has put a part of an argument into."""
        found = self.fields(name).get(offset)
        if found is None or self.dtype(found) != self.dtype(slot):
            raise self._lowering.unsupported(f"byte {offset} of {name} is passed in another form than it is read")
        return found

    def _pass(self, block: Block, source: int, target: int, at_end: bool) -> None:
        """Copy a register, as the last or the first thing that a block does."""
        if self.dtype(source) != self.dtype(target):
            raise self._lowering.unsupported("a result is returned in another form than it is read")
        move = copy(target, source)
        if at_end:
            block.operations.append(move)
            block.reads |= {source} - block.writes
            block.writes.add(target)
        else:
            block.operations.insert(0, move)
            block.reads = (block.reads - {target}) | {source}
            block.writes.add(target)

    # Parameters

    def _parameter_access(self, instruction: Instruction) -> Operation | None:
        """A load or store of a part of a parameter by its name; None for another instruction."""
        if instruction.opcode not in ("ld", "st") or "param" not in instruction.modifiers:
            return None
        memory = instruction.operands[1 if instruction.opcode == "ld" else 0]
        if not isinstance(memory, Address) or memory.base not in self._parameters:
            return None
        if self.function.is_kernel and memory.base in {it.name for it in self.function.parameters}:
            return None
        access = memory_access(instruction)
        assert access is not None
        return self._moves(instruction, memory, access[1])

    def _moves(self, instruction: Instruction, memory: Address, size: int) -> Operation:
        """Copies between registers and the parts of a parameter."""
        value = instruction.operands[0 if instruction.opcode == "ld" else 1]
        parts = value.parts if isinstance(value, Vector) else (value,)
        step = size // len(parts)
        scalar = next(SCALARS[word] for word in instruction.modifiers if word in SCALARS)
        made: list[Operation] = []
        for number, part in enumerate(parts):
            assert memory.base is not None
            slot = self.field(memory.base, memory.offset + number * step, step)
            name = f"{memory.base}+{memory.offset + number * step}"
            self._slots[name] = slot
            if instruction.opcode == "ld":
                target, source = self._lowering.target(part, scalar), self._lowering.source(Register(name), scalar)
            else:
                target, source = self._lowering.target(Register(name), scalar), self._lowering.source(part, scalar)
            if target is not None:
                made.append(operation(lambda values: values, target, [source]))
        return made[0] if len(made) == 1 else _sequence(made)


_CONTROL: Final = ("bra", "brx", "call", "exit", "ret")


def _sequence(operations: list[Operation]) -> Operation:
    def run(group: Any) -> None:
        for one in operations:
            one(group)

    return run


def _label(operand: Operand) -> str:
    assert isinstance(operand, Register)
    return operand.name


def parameter_offsets(parameters: Iterable[Variable]) -> dict[str, int]:
    """Where each parameter of a kernel begins, in bytes."""
    offsets: dict[str, int] = {}
    end = 0
    for variable in parameters:
        offsets[variable.name] = _aligned(end, variable.alignment)
        end = offsets[variable.name] + variable.size
    return offsets
