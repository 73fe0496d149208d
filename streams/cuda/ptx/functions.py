"""Lowers a function: from its statements to basic blocks, from its names to registers and addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .blocks import Block, Branch, Call, End, Jump, Meet, Return, Switch
from .faults import UnsupportedInstruction
from .integer_instructions import CARRY
from .lowering import PREDICATE, Lowering, Operation, operation
from .moves import copy
from .opcodes import GATES, LOWER, OPERANDS, memory_access
from .statements import Address, Function, Instruction, Label, Operand, Register, Unit, Variable, Vector
from .types import SCALARS, UNSIGNED, Array, DType

if TYPE_CHECKING:
    from .program import Builder

_Made = TypeVar("_Made")

# The special registers that are filled before a batch runs, if its program reads them.
_AXES: Final = ("tid", "ntid", "ctaid", "nctaid")
SPECIAL: Final = frozenset(
    [f"%{kind}.{axis}" for kind in _AXES for axis in "xyz"]
    + [f"%lanemask_{kind}" for kind in ("eq", "lt", "le", "gt", "ge")]
    + ["%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%dynamic_smem_size", "%total_smem_size"]
)


class FunctionBuilder:
    """Lowers one function for a `Builder`, and is the `Names` of its instructions.

    Attributes:
        function: the function.
        entry: the number of its first block; -1 before `lower`.
    """

    def __init__(self, program: Builder, function: Function) -> None:
        self.function = function
        self.entry = -1
        self._program = program
        self._slots: dict[str, int] = {}
        self._local: dict[str, int] = {}
        self._parameters = {variable.name: variable for variable in (*function.parameters, *function.results)}
        self._fields: dict[tuple[str, int], int] = {}
        self._labels: dict[str, int] = {}
        self._targets = {statement.name for statement in function.body if isinstance(statement, Label)}
        # The ends of blocks whose targets are labels, until the labels' blocks are known.
        self._pending: list[tuple[Block, Callable[[dict[str, int]], End]]] = []
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
        """The register of this name, made at first use; None if there is none."""
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
        """The dtype of the array of a register."""
        return self._program.registers.dtypes[slot]

    def constant(self, values: Array) -> int:
        """The register that holds a constant."""
        return self._program.registers.constant(values)

    def symbol(self, name: str) -> int | None:
        """The address of a variable or kernel parameter in its own state space; None if none has this name."""
        if name in self._local:
            return self._local[name]
        if name in self._program.shared:
            return self._program.shared[name]
        if self.function.is_kernel and name in self._parameters:
            return parameter_offsets(self.function.parameters)[name]
        return self._program.addresses.get(name)

    def field(self, name: str, offset: int, size: int) -> int:
        """The register of the part of `size` bytes at `offset` of a parameter or a result; made at first use."""
        if (name, offset) not in self._fields:
            variable = self._parameters[name]
            whole = SCALARS[variable.type].size if variable.size == SCALARS[variable.type].size else size
            self._fields[name, offset] = self._program.registers.new(UNSIGNED[max(whole, 2)])
        return self._fields[name, offset]

    def fields(self, name: str) -> dict[int, int]:
        """The registers that `field` has made for parts of a parameter or a result, by their offsets."""
        return {offset: slot for (owner, offset), slot in self._fields.items() if owner == name}

    # Lowering

    def lower(self) -> None:
        """Make the basic blocks of the function."""
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
        """Return the block for the instructions behind `block`: a new one, or `block` while it is empty."""
        if not block.size:
            return block
        following = self._start()
        block.end_with(Jump(len(self._program.blocks) - 1))
        return following

    def _statement(self, block: Block, instruction: Instruction) -> Block:
        self._lowering.begin(instruction)
        if instruction.guard is not None and instruction.opcode != "bra":
            return self._guarded(block, instruction)
        if instruction.opcode in _CONTROL:
            return self._control(block, instruction)
        if instruction.opcode in GATES:
            return self._gate(block, instruction)
        block.count(instruction.place)
        made = self._operation(instruction)
        if made is not None:
            block.append(made, self._lowering.reads, self._lowering.writes)
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
        return self._made_by(lower, instruction)

    def _made_by(self, lower: Callable[[Lowering, Instruction], _Made], instruction: Instruction) -> _Made:
        """Call a function of `LOWER` or `GATES`; raise UnsupportedInstruction if it does not expect this form."""
        try:
            return lower(self._lowering, instruction)
        except (ValueError, IndexError, KeyError, StopIteration) as error:
            raise self._lowering.unsupported("this form of the instruction is not known") from error

    def _note(self, block: Block) -> None:
        block.touch(self._lowering.reads, self._lowering.writes)

    def _guarded(self, block: Block, instruction: Instruction) -> Block:
        """Lower an instruction with a guard: threads for which the guard does not hold jump over the instruction."""
        assert instruction.guard is not None
        name, negated = instruction.guard
        block.begin_at(instruction.place)
        predicate = self._predicate(block, instruction, name)
        inner = self._start()
        number = len(self._program.blocks) - 1
        following = self._statement(inner, instruction._replace(guard=None))
        if instruction.opcode not in _CONTROL:
            following = self._after(following)
        block.end_with(Branch(predicate, not negated, self._number(following), number))
        return following

    def _number(self, block: Block) -> int:
        return next(number for number, known in enumerate(self._program.blocks) if known is block)

    def _predicate(self, block: Block, instruction: Instruction, name: str) -> int:
        self._lowering.begin(instruction)
        slot = self._lowering.source(Register(name), PREDICATE).slot
        self._note(block)
        return slot

    def _gate(self, block: Block, instruction: Instruction) -> Block:
        """Lower a gate into a block of its own, at which threads that came by different ways meet."""
        block = self._after(block)
        block.count(instruction.place)
        gate = self._made_by(GATES[instruction.opcode], instruction)
        self._note(block)
        following = self._start()
        block.end_with(Meet(gate, len(self._program.blocks) - 1))
        return following

    def _control(self, block: Block, instruction: Instruction) -> Block:
        opcode = instruction.opcode
        block.count(instruction.place)
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
        label = self._target(self._label(instruction.operands[0]))
        if instruction.guard is None:
            self._pending.append((block, lambda labels: Jump(labels[label])))
            return self._start()
        name, negated = instruction.guard
        predicate = self._predicate(block, instruction, name)
        following = self._start()
        number = len(self._program.blocks) - 1
        self._pending.append((block, lambda labels: Branch(predicate, negated, labels[label], number)))
        return following

    def _switch(self, block: Block, instruction: Instruction) -> Block:
        index, table = instruction.operands
        slot = self._lowering.source(index, SCALARS["u32"]).slot
        self._note(block)
        names = [self._target(name) for name in self._table(self._label(table))]
        place = instruction.place
        self._pending.append((block, lambda labels: Switch(slot, tuple([labels[name] for name in names]), place)))
        return self._start()

    def _target(self, name: str) -> str:
        """Return the name of a label; raise UnsupportedInstruction if there is no such label."""
        if name not in self._targets:
            raise self._lowering.unsupported(f"there is no label {name} that this instruction can reach")
        return name

    def _label(self, operand: Operand) -> str:
        if not isinstance(operand, Register):
            raise self._lowering.unsupported("a name is expected here")
        return operand.name

    def _table(self, name: str) -> tuple[str, ...]:
        if name not in self.function.tables:
            raise self._lowering.unsupported(f"there is no table {name} that this instruction can reach")
        return self.function.tables[name]

    def _call(self, block: Block, instruction: Instruction) -> Block:
        following = self._start()
        self._calls.append((block, following, instruction))
        return following

    def link(self) -> None:
        """Set the ends of blocks that branch to labels, call or return; called after all functions are lowered."""
        for block, end in self._pending:
            block.end_with(end(self._labels))
        results = [slot for result in self.function.results for slot in self.fields(result.name).values()]
        for block in self._returns:
            block.end_with(Return(tuple(results)))
        for block, following, instruction in self._calls:
            self._link_call(block, following, instruction)

    def _link_call(self, block: Block, following: Block, instruction: Instruction) -> None:
        callee = self._program.function(callee_of(instruction, self._program.unit))
        assert callee is not None
        vectors = [operand for operand in instruction.operands if isinstance(operand, Vector) and operand.parts]
        self._lowering.begin(instruction)
        wanted = [len(part) for part in (callee.function.results, callee.function.parameters) if part]
        if [len(vector.parts) for vector in vectors] != wanted:
            raise self._lowering.unsupported("the function has other results or parameters")
        results = [self._label(part) for part in vectors.pop(0).parts] if callee.function.results else []
        arguments = [self._label(part) for part in vectors.pop(0).parts] if callee.function.parameters else []
        for name, parameter in zip(arguments, callee.function.parameters, strict=True):
            for offset, slot in callee.fields(parameter.name).items():
                self._pass(block, self._given(name, offset, slot), slot, at_end=True)
        for name, result in zip(results, callee.function.results, strict=True):
            for offset, slot in self.fields(name).items():
                given = callee.fields(result.name).get(offset)
                if given is not None:
                    self._pass(following, given, slot, at_end=False)
        block.end_with(Call(callee.entry, self._number(following)))

    def _given(self, name: str, offset: int, slot: int) -> int:
        """Return the caller's register for the part at `offset` of an argument; `slot` is the callee's."""
        found = self.fields(name).get(offset)
        if found is None or self.dtype(found) != self.dtype(slot):
            raise self._lowering.unsupported(f"byte {offset} of {name} is passed in another form than it is read")
        return found

    def _pass(self, block: Block, source: int, target: int, at_end: bool) -> None:
        """Add the copy of a register to a block, at its end or its beginning."""
        if self.dtype(source) != self.dtype(target):
            raise self._lowering.unsupported("a result is returned in another form than it is read")
        if at_end:
            block.append(copy(target, source), [source], [target])
        else:
            block.prepend(copy(target, source), source, target)

    # Parameters

    def _parameter_access(self, instruction: Instruction) -> Operation | None:
        """Lower a load or store of a parameter to copies of registers.

        Returns None for other instructions and other addresses, such as those of a kernel's own parameters.
        """
        if instruction.opcode not in ("ld", "st") or "param" not in instruction.modifiers:
            return None
        memory = instruction.operands[1 if instruction.opcode == "ld" else 0]
        if not isinstance(memory, Address) or memory.base not in self._parameters:
            return None
        if self.function.is_kernel and memory.base in {variable.name for variable in self.function.parameters}:
            return None
        access = memory_access(instruction)
        if access is None:
            raise self._lowering.unsupported("an access of this type is not known")
        return self._moves(instruction, memory, access[1])

    def _moves(self, instruction: Instruction, memory: Address, size: int) -> Operation:
        """Make the operation that copies between registers and the parts of a parameter."""
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


def callee_of(instruction: Instruction, unit: Unit) -> str:
    for operand in instruction.operands[:2]:
        if isinstance(operand, Register) and operand.name in unit.functions:
            return operand.name
    raise UnsupportedInstruction(f"only calls of functions by their names are known: {instruction.place}")


def aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


_CONTROL: Final = ("bra", "brx", "call", "exit", "ret")


def _sequence(operations: list[Operation]) -> Operation:
    def run(group: Any) -> None:
        for one in operations:
            one(group)

    return run


def parameter_offsets(parameters: Iterable[Variable]) -> dict[str, int]:
    """The offset of each parameter of a kernel, in bytes."""
    offsets: dict[str, int] = {}
    end = 0
    for variable in parameters:
        offsets[variable.name] = aligned(end, variable.alignment)
        end = offsets[variable.name] + variable.size
    return offsets
