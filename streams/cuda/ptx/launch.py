"""One launch of a kernel: its geometry, its memory, and its counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from .execution import Execution
from .faults import ThreadName
from .groups import WARP, Batch
from .memory import Area, Memory, Traffic
from .program import Program
from .races import Clock
from .types import Array

# The most lanes of a batch: so many that numpy's calls cost little, and so few that registers stay in the cache.
LANES: Final = 16384

# The most bytes of shared memory, and likewise of local memory, in a batch of several blocks.
_MOST_BYTES: Final = 64 << 20

Triple = tuple[int, int, int]


@dataclass
class Counters:
    """The counters of one launch.

    Attributes:
        instructions: the number executed by all threads together.
        traffic: the bytes read and written, by memory: "shared", "local", "variables of the module", "constants of the
            module", and the regions' names.  Accesses of memories of one name are counted together.
    """

    instructions: int = 0
    traffic: dict[str, Traffic] = field(default_factory=dict)

    def executed(self, count: int) -> None:
        """Count executed instructions."""
        self.instructions += count


class Launch:
    """One launch of a kernel.

    Attributes:
        name: of the kernel.
        grid: blocks along each axis.
        block: threads of a block along each axis.
        threads: the number of threads of a block.
        stride: lanes from one block to the next, whole warps.
        constants: for each register, its constant or None.
        memory: global memory.
        parameters: the arguments' bytes.
        dynamic_shared: shared bytes that the launch adds to each block.
        shared_bytes, local_bytes: the memory of each block and each thread.
        shared_stride, local_stride: bytes from one memory to the next.
        clock: for race detection.
        strict: see `Kernel.run`.
        counters: see `Counters`.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        grid: Triple,
        block: Triple,
        memory: Memory,
        parameters: bytes,
        dynamic_shared: int,
        strict: bool,
    ) -> None:
        self.name = name
        self.grid = grid
        self.block = block
        self.threads = block[0] * block[1] * block[2]
        self.stride = -(-self.threads // WARP) * WARP
        self.constants = program.constants
        self.memory = memory
        self.parameters = Area(np.frombuffer(parameters, np.uint8), name="parameters", writable=False)
        self.dynamic_shared = dynamic_shared
        self.shared_bytes = program.shared_bytes + dynamic_shared
        self.shared_stride = -(-self.shared_bytes // 16) * 16
        self.local_bytes = program.local_bytes
        self.local_stride = -(-self.local_bytes // 16) * 16
        self.clock = Clock(grid[0] * grid[1] * grid[2])
        self.strict = strict
        self._shared, self._local = Traffic(), Traffic()
        self.counters = Counters(traffic={"shared": self._shared, "local": self._local})
        for area in memory.areas:
            area.traffic = self.counters.traffic.setdefault(area.name, area.traffic)
        self._program = program

    def run(self, limit: int) -> None:
        """Run all thread blocks, one batch after the other.

        Args:
            limit: see `Kernel.run`.
        """
        total = len(self.clock.barriers)
        step = self._blocks_at_a_time()
        with np.errstate(all="ignore"):
            for first in range(0, total, step):
                batch = self._batch(first, min(step, total - first))
                Execution(batch, self._program, limit).run()

    def _blocks_at_a_time(self) -> int:
        bytes_per_block = max(self.shared_stride, self.local_stride * self.stride, 1)
        return max(1, min(LANES // self.stride, _MOST_BYTES // bytes_per_block))

    def _batch(self, first: int, blocks: int) -> Batch:
        # All bits of new memory are ones, which are NaN for floats.
        shared = Area(np.full(blocks * self.shared_stride, 0xFF, np.uint8), traffic=self._shared)
        local = Area(np.full(blocks * self.stride * self.local_stride, 0xFF, np.uint8), traffic=self._local)
        if self.shared_bytes:
            shared.watch(self._program.granules.get("shared", 4), self.clock)
        self.clock.begin(first, blocks, self.stride)
        return Batch(self, first, blocks, shared, local)

    def special(self, batch: Batch, name: str) -> Array:
        """Compute the values of a special register, such as "%tid.x"; see `Batch.initial`."""
        plain = name.removeprefix("%")
        fixed = {
            "nwarpid": self.stride // WARP,
            "smid": 0,
            "nsmid": 1,
            "dynamic_smem_size": self.dynamic_shared,
            "total_smem_size": self.shared_bytes,
        }
        if plain == "gridid":
            return np.zeros(1, np.uint64)
        if plain in fixed:
            return np.array([fixed[plain]], np.uint32)
        if plain.startswith("lanemask_"):
            return _lane_mask(plain.removeprefix("lanemask_"), batch.initial("laneid"))
        return batch.initial(plain)

    def thread(self, number: int, within: int) -> ThreadName:
        """The name of thread `within` of block `number` of the grid."""
        return ThreadName(_coordinates(number, self.grid), _coordinates(within, self.block))


def _coordinates(number: int, extents: Sequence[int]) -> Triple:
    x, rest = number % extents[0], number // extents[0]
    return x, rest % extents[1], rest // extents[1]


def _lane_mask(kind: str, lane: Array) -> Array:
    bit = np.uint32(1) << lane
    below = bit - np.uint32(1)
    masks = {"eq": bit, "lt": below, "le": below | bit, "gt": ~(below | bit), "ge": ~below}
    return np.asarray(masks[kind])
