"""An interpreter of PTX, the assembly language of NVIDIA GPUs, on numpy arrays.

It runs the output of NVRTC for CUDA C++, so that kernels can be tested without a GPU, and reports errors that a GPU
may not notice: accesses out of bounds, data races, divergent barriers.  All threads of some blocks run together, each
instruction as a few calls of numpy.

    tokens, constants, initial_values, syntax, statements
                 from text to statements
    types, lowering, opcodes, blocks, functions, program
                 from statements to operations on arrays, in blocks
    integers, integer_instructions, rounding, floats, conversions, moves
                 arithmetic
    memory, access, atomics, races
                 state spaces, accesses and their order
    groups, execution, warps, launch
                 threads: their order, and where they meet
    module       the names for users
    faults       the errors
"""

from .faults import (
    BarrierError,
    DataRace,
    IllegalAccess,
    KernelFault,
    NoProgress,
    PtxError,
    PtxSyntaxError,
    Trap,
    UnsupportedInstruction,
)
from .launch import Counters
from .memory import Region
from .module import Kernel, Module, Parameter, parse

__all__ = [
    "BarrierError",
    "Counters",
    "DataRace",
    "IllegalAccess",
    "Kernel",
    "KernelFault",
    "Module",
    "NoProgress",
    "Parameter",
    "PtxError",
    "PtxSyntaxError",
    "Region",
    "Trap",
    "UnsupportedInstruction",
    "parse",
]
