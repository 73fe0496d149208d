"""`GraphConfig`: how a graph is to be built and run."""

from __future__ import annotations

import os
from typing import Literal

from vmflow import dtypes
from vmflow.changes import changed
from vmflow.dtypes import dtype as DType

from .passes import require_pass


class GraphConfig:
    """Settings of one graph.  Changing one after the graph was built makes its next call build it anew.

    Attributes:
        amp: the dtype of automatic mixed precision, None for none.
        gradient_accumulation_steps: micro-batches per call.
        outputs_buffer_size: slots of each register between tasks, and so how many launches overlap.
        fusion: whether ops are fused.
        recomputation: the part of a step's time for which ops may be repeated, where that lowers the memory's
            peak; 0 to repeat none.
        order: whether ops are reordered for "memory" or "speed"; "given" leaves them as they were called.
        disabled: names of passes that are left out; see `disable_pass`.
        actors: whether also a plan of a single task is run by actors; see `use_actors`.
    """

    def __init__(self) -> None:
        self.amp: DType | None = None
        self.gradient_accumulation_steps = 1
        self.outputs_buffer_size = 1
        self.fusion = True
        self.recomputation = 0.0
        self.order: Literal["memory", "speed", "given"] = "memory"
        self.disabled: set[str] = set()
        self.actors = os.environ.get("VMFLOW_GRAPH_ACTORS", "0") == "1"

    def enable_amp(self, mode: bool = True, *, dtype: DType = dtypes.float16) -> None:
        """Compute in a 16-bit dtype what bears it, as `vmflow.autocast` does.

        Args:
            mode: whether.
            dtype: float16 or bfloat16.

        Raises:
            ValueError: for another dtype.
        """
        if dtype not in (dtypes.float16, dtypes.bfloat16):
            raise ValueError(f"enable_amp: the dtype must be float16 or bfloat16, not {dtype!r}")
        self.amp = dtype if mode else None

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Cut the arguments of each call into so many micro-batches, and take a step by the mean of their gradients.

        Raises:
            ValueError: if it is less than 1.
        """
        if value < 1:
            raise ValueError(f"set_gradient_accumulation_steps: must be at least 1, not {value}")
        self.gradient_accumulation_steps = value

    def set_outputs_buffer_size(self, value: int = 2) -> None:
        """How many launches may be between two tasks of the graph.

        Raises:
            ValueError: if it is less than 1.
        """
        if value < 1:
            raise ValueError(f"set_outputs_buffer_size: must be at least 1, not {value}")
        self.outputs_buffer_size = value

    def allow_fusion(self, mode: bool = True) -> None:
        """Compute what follows each other in one pass over memory where possible; off, results equal eager's bits."""
        self.fusion = mode

    def allow_recomputation(self, part_of_time: float = 0.2) -> None:
        """Make values anew for the backward pass instead of keeping them, where less memory is needed so.

        Which ones is found out: those that give back most memory for their time.  The results are the same to the bit.

        Args:
            part_of_time: by how much a step may take longer, by the estimated costs of its ops; 0.03 is 3 percent, for
                which little but elementwise ops and normalisations is repeated, 0.2 allows for some products too.  0
                keeps everything.

        Raises:
            ValueError: if it is negative or not a number.
        """
        if not part_of_time >= 0:
            raise ValueError(f"allow_recomputation: the part of the time must be 0 or more, not {part_of_time}")
        self.recomputation = part_of_time

    def use_actors(self, mode: bool = True) -> None:
        """Run a plan by actors even if it has a single task, for which they have nothing to decide.

        The results are the same, and a call takes longer: this is for tests of graphs.  VMFLOW_GRAPH_ACTORS=1 sets it
        for all graphs.
        """
        self.actors = mode

    def set_execution_order(self, order: Literal["memory", "speed", "given"]) -> None:
        """What to reorder ops for.

        Raises:
            ValueError: for anything else.
        """
        if order not in ("memory", "speed", "given"):
            raise ValueError(f'set_execution_order: expected "memory", "speed" or "given", got {order!r}')
        self.order = order

    def disable_pass(self, name: str) -> None:
        """Leave out one of the passes by which a job is improved.

        Raises:
            ValueError: if there is no such pass; says which there are.
        """
        require_pass(name)
        self.disabled = {*self.disabled, name}

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        changed()

    # OneFlow's names

    def allow_fuse_model_update_ops(self, mode: bool = True) -> None:
        """Whether the steps of several optimizers become one."""
        self._allow_pass("fuse_updates", mode)

    def enable_multi_tensor_update(self, mode: bool = True) -> None:
        """The same: a step of one optimizer is one op for all its parameters in any case."""
        self._allow_pass("fuse_updates", mode)

    def allow_fuse_add_to_output(self, mode: bool = True) -> None:
        """Whether elementwise ops are fused, additions among them."""
        self._allow_pass("fuse_elementwise", mode)

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """Whether elementwise ops are fused, casts and products among them."""
        self._allow_pass("fuse_elementwise", mode)

    def enable_straighten_algorithm(self, mode: str = "MemoryFirst") -> None:
        """What to reorder ops for: "MemoryFirst", "SpeedFirst", or "Disable" to leave them as they were called.

        Raises:
            ValueError: for another mode.
        """
        orders: dict[str, Literal["memory", "speed", "given"]] = {
            "MemoryFirst": "memory",
            "SpeedFirst": "speed",
            "Disable": "given",
        }
        if mode not in orders:
            raise ValueError(f"enable_straighten_algorithm: expected one of {sorted(orders)}, got {mode!r}")
        self.order = orders[mode]

    def enable_cudnn_conv_heuristic_search_algo(self, mode: bool = True) -> None:
        """Makes no difference: there is one way to compute a convolution here."""

    def enable_choose_best_memory_allocation(self, mode: bool = True) -> None:
        """Makes no difference: the best of several layouts is always taken."""

    def enable_compress_memory(self, mode: bool = True) -> None:
        """Makes no difference: a layout that is above the least possible is always improved for a while."""

    def enable_zero(self, mode: bool = True, *, stage: int = 2) -> None:
        """Sharding what optimizers remember over ranks, of which there is one.

        Raises:
            RuntimeError: if it is asked for.
        """
        if mode:
            raise RuntimeError(f"enable_zero: stage {stage} shards optimizers' state over ranks, and there is one rank")

    def enable_auto_parallel(self, mode: bool = True) -> None:
        """Choosing how tensors are spread over ranks, of which there is one.

        Raises:
            RuntimeError: if it is asked for.
        """
        if mode:
            raise RuntimeError("enable_auto_parallel: tensors are spread over ranks, and there is one rank")

    def _allow_pass(self, name: str, mode: bool) -> None:
        if mode:
            self.disabled = self.disabled - {name}
        else:
            self.disable_pass(name)

    def __repr__(self) -> str:
        plain = GraphConfig().__dict__
        said = [f"{name}={value!r}" for name, value in self.__dict__.items() if value != plain[name]]
        return f"GraphConfig({', '.join(said)})"
