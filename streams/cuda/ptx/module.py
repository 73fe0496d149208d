"""Modules of PTX and their kernels, the interface for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, final

import numpy as np

from .functions import parameter_offsets
from .launch import Counters, Launch, Triple
from .memory import CONSTANT_WINDOW, SHARED_WINDOW, Area, Memory, Region
from .program import Builder, Program
from .rounding import round_number
from .statements import Function, Unit, Variable
from .syntax import parse_unit
from .types import SCALARS, Array

# Where modules' variables in global memory begin: above an allocator's memory, and below the windows.
_VARIABLES: Final = 1 << 56

# The most threads in a block and along its axes, and blocks along a grid's axes.
_MOST_THREADS: Final = 1024
_MOST_IN_BLOCK: Final = (1024, 1024, 64)
_MOST_IN_GRID: Final = ((1 << 31) - 1, 65535, 65535)

# The most bytes of shared memory of a block, as on sm_90.
_MOST_SHARED: Final = 227 << 10

# The default number of basic blocks, executed by a batch's groups of threads, at which a kernel counts as endless.
LIMIT: Final = 10_000_000


class Parameter(NamedTuple):
    """A parameter of a kernel.

    Attributes:
        name: in the PTX.
        type: the name of its scalar type, or of an array's elements; a structure is an array of "b8".
        size: in bytes.
        offset: among the bytes of all arguments.
    """

    name: str
    type: str
    size: int
    offset: int


@final
class Kernel:
    """A kernel of a module.

    Attributes:
        name: in the PTX.
        parameters: in their order.
    """

    def __init__(self, module: Module, function: Function) -> None:
        self.name = function.name
        offsets = parameter_offsets(function.parameters)
        self.parameters = tuple(
            [
                Parameter(variable.name, variable.type, variable.size, offsets[variable.name])
                for variable in function.parameters
            ]
        )
        self._module = module

    @cached_property
    def program(self) -> Program:
        """The lowered kernel, made at first use.

        Raises:
            UnsupportedInstruction: if the kernel or a function that it calls has an unknown instruction, calls itself
                or has no body.
        """
        return self._module.build(self.name)

    def run(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[int | float | bytes],
        regions: Sequence[Region],
        shared_bytes: int = 0,
        *,
        check_global_races: bool = True,
        strict: bool = False,
        limit: int = LIMIT,
    ) -> Counters:
        """Run all threads of a launch of this kernel.

        Args:
            grid: blocks along up to three axes.
            block: threads of a block along up to three axes.
            arguments: one for each parameter; a structure or an array is given by its bytes.
            regions: the global memory, beside the module's regions.
            shared_bytes: bytes that the launch adds to each block's shared memory.
            check_global_races: whether to look for races in global memory; in shared memory they are always looked for.
            strict: whether stores to global memory can race even if they change nothing or store equal values.
            limit: the number of basic blocks, executed by a batch's groups of threads, at which `NoProgress` is raised.

        Returns:
            The counters of executed instructions and accessed bytes.

        Raises:
            ValueError: for an impossible grid, block, number of shared bytes or region, or as from `pack`.
            TypeError: as from `pack`.
            UnsupportedInstruction: as from `program`, or if an index of ``brx`` is beyond its table.
            KernelFault: if a thread makes an error; its subclasses are in `faults`.
        """
        program = self.program
        whole_grid, whole_block = _extents("grid", grid, _MOST_IN_GRID), _extents("block", block, _MOST_IN_BLOCK)
        threads = whole_block[0] * whole_block[1] * whole_block[2]
        if threads > _MOST_THREADS:
            raise ValueError(f"{self.name}: a block has at most {_MOST_THREADS} threads, not {threads}: {whole_block}")
        if not 0 <= shared_bytes <= _MOST_SHARED - program.shared_bytes:
            raise ValueError(
                f"{self.name}: a block has at most {_MOST_SHARED} bytes of shared memory; {shared_bytes} cannot be "
                f"added to the {program.shared_bytes} of the kernel"
            )
        packed = self.pack(arguments)
        memory = Memory(_areas(self.name, [*regions, *self._module.regions]))
        launch = Launch(self.name, program, whole_grid, whole_block, memory, packed, shared_bytes, strict)
        if check_global_races:
            for area in memory.areas:
                area.watch(program.granules.get("global", 4), launch.clock)
        launch.run(limit)
        return launch.counters

    def pack(self, arguments: Sequence[int | float | bytes]) -> bytes:
        """The bytes in which a launch passes arguments.

        A number for a parameter of floats is rounded to the nearest float of its type; an overflow gives infinity.

        Raises:
            ValueError: for too many or too few arguments, bytes of another number than the parameter's, or an integer
                that does not fit into its parameter's bits or, for a parameter of floats, into a double.
            TypeError: for a number where the parameter needs bytes, a float where it needs an integer, or an argument
                of another type.
        """
        if len(arguments) != len(self.parameters):
            count = len(self.parameters)
            raise ValueError(f"{self.name} has {count} parameters, but {len(arguments)} arguments were given")
        packed = bytearray()
        for parameter, argument in zip(self.parameters, arguments, strict=True):
            packed += bytes(parameter.offset - len(packed)) + self._packed(parameter, argument)
        return bytes(packed)

    def _packed(self, parameter: Parameter, argument: int | float | bytes) -> bytes:
        size = parameter.size
        problem = f"{self.name}: the argument of {parameter.name}, of the type .{parameter.type} and {size} bytes"
        if isinstance(argument, (bytes, bytearray, memoryview)):
            if len(argument) != parameter.size:
                raise ValueError(f"{problem}, has {len(argument)} bytes")
            return bytes(argument)
        scalar = SCALARS[parameter.type]
        if scalar.size != parameter.size or scalar.is_pair:
            raise TypeError(f"{problem}, must be given by its bytes, not as {argument!r}")
        if isinstance(argument, (float, np.floating)):
            if scalar.kind != "float":
                raise TypeError(f"{problem}, must be an integer, not {argument!r}")
            return round_number(float(argument), scalar.dtype).tobytes()
        if not isinstance(argument, (int, np.integer)):
            raise TypeError(f"{problem}, must be a number or bytes, not {argument!r}")
        if scalar.kind == "float":
            try:
                return round_number(int(argument), scalar.dtype).tobytes()
            except OverflowError:
                raise ValueError(f"{problem}, cannot be {argument}: no double is as great") from None
        bits = 8 * scalar.size
        if not -(1 << (bits - 1)) <= int(argument) < 1 << bits:
            raise ValueError(f"{problem}, cannot be {argument}")
        return (int(argument) & ((1 << bits) - 1)).to_bytes(scalar.size, "little")


@final
class Module:
    """A module: its kernels, and its variables; those in global memory keep their values from launch to launch.

    Attributes:
        kernels: those with a body, by name.
        target: the architecture, such as "sm_80".
        addresses: of its variables in global and constant memory, by name.
        regions: the memory of these variables.
    """

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.target = unit.target
        self.addresses: dict[str, int] = {}
        found = (
            self._place("global", _VARIABLES, "variables of the module", True),
            self._place("const", CONSTANT_WINDOW, "constants of the module", False),
        )
        self.regions = tuple([region for region in found if len(region.buffer)])
        self._initialise()
        self.kernels: Mapping[str, Kernel] = {
            function.name: Kernel(self, function)
            for function in unit.functions.values()
            if function.is_kernel and function.defined
        }

    def build(self, name: str) -> Program:
        """Build the program of a kernel, anew at each call; `Kernel.program` keeps it."""
        return Builder(self._unit, self.addresses).build(name)

    def variable(self, name: str) -> Array:
        """The bytes of a variable in global or constant memory, as a view: writing to them changes the variable.

        Raises:
            KeyError: if there is no such variable, or its size is unknown.
        """
        if name not in self.addresses:
            raise KeyError(f"the module has no variable {name!r}; it has {', '.join(sorted(self.addresses)) or 'none'}")
        region = next(
            region for region in self.regions if 0 <= self.addresses[name] - region.start < len(region.buffer)
        )
        start = self.addresses[name] - region.start
        return region.buffer[start : start + self._unit.variables[name].size]

    def _variables(self, space: str) -> list[Variable]:
        return [variable for variable in self._unit.variables.values() if variable.space == space and variable.size]

    def _place(self, space: str, start: int, name: str, writable: bool) -> Region:
        """Give addresses and memory to the variables of a state space."""
        end = start
        for variable in self._variables(space):
            end = -(-end // variable.alignment) * variable.alignment
            self.addresses[variable.name] = end
            end += variable.size
        return Region(start, np.zeros(end - start, np.uint8), writable, name)

    def _initialise(self) -> None:
        for variable in (*self._variables("global"), *self._variables("const")):
            data = bytearray(variable.data)
            for position, name, offset, shift, size in variable.references:
                address = self.addresses[name] + offset >> shift & (1 << 8 * size) - 1
                data[position : position + size] = address.to_bytes(size, "little")
            self.variable(variable.name)[: len(data)] = np.frombuffer(bytes(data), np.uint8)


def _extents(kind: str, given: Sequence[int], most: Triple) -> Triple:
    values = [int(value) for value in given]
    inside = all(1 <= value <= top for value, top in zip(values, most, strict=False))
    if not 1 <= len(values) <= 3 or not inside or values != list(given):
        raise ValueError(f"a {kind} has one to three extents, integers from 1 to {most}, not {tuple(given)}")
    x, y, z = [*values, 1, 1][:3]
    return x, y, z


def _areas(kernel: str, regions: Sequence[Region]) -> list[Area]:
    """Check the regions of memory that a launch is given, and make their areas."""
    areas: list[Area] = []
    end, before = 0, ""
    for region in sorted(regions, key=lambda region: region.start):
        if region.buffer.dtype != np.uint8 or region.buffer.ndim != 1 or not region.buffer.flags.c_contiguous:
            raise ValueError(f"{kernel}: the buffer of {region.name} must be a contiguous array of bytes")
        if region.writable and not region.buffer.flags.writeable:
            raise ValueError(f"{kernel}: {region.name} is to be writable, but its buffer is not")
        if region.start < end:
            raise ValueError(f"{kernel}: {region.name} overlaps {before}")
        end, before = region.start + len(region.buffer), region.name
        if not 0 < region.start <= end <= SHARED_WINDOW:
            raise ValueError(f"{kernel}: {region.name} is at {region.start:#x}, which is no address of a device")
        areas.append(Area(region.buffer, region.start, region.name, region.writable))
    return areas


@lru_cache(maxsize=256)
def _parsed(text: str) -> Unit:
    return parse_unit(text)


def parse(text: str | bytes) -> Module:
    """Load PTX; the 256 texts that were used last are not parsed again.

    Returns:
        A module with variables of its own.

    Raises:
        PtxSyntaxError: if the text is not understood.  Whether instructions are known is
            checked when a kernel is first used.
        UnicodeDecodeError: if `text` is bytes that are not UTF-8.
    """
    return Module(_parsed(text.decode() if isinstance(text, bytes) else text))
