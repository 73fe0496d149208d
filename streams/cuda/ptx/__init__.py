"""An interpreter of PTX, the assembly language of NVIDIA GPUs, on numpy arrays.

It runs what NVRTC makes of CUDA C++, so that kernels can be tested where there is no GPU.  And it tells what a GPU
would not: accesses out of bounds, data races, divergent barriers.  All threads of some blocks run at once, each
instruction as a few calls of numpy.

    syntax, statements
                 from text to statements
    types, lowering, opcodes, blocks, functions, program
                 from statements to operations on arrays, in blocks
    integers, integer_instructions, rounding, floats, conversions, moves
                 arithmetic
    memory, access, atomics, races
                 state spaces, accesses and whether they are ordered
    groups, execution, warps, launch
                 threads: their order, and how they meet
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
