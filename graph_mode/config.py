"""`GraphConfig`: the settings with which a graph is built and run."""

from __future__ import annotations

import os
from typing import Literal

from vmflow import dtypes
from vmflow.arguments import real_number, whole_number
from vmflow.changes import changed
from vmflow.dtypes import dtype as DType

from .passes import require_pass


class GraphConfig:
    """The settings of a graph.  After a change of a setting, the graph's next call uses a build with the new settings.

    Setting any other attribute raises AttributeError.

    Attributes:
        amp: the dtype of automatic mixed precision; None for no mixed precision.
        gradient_accumulation_steps: the number of micro-batches per call.
        outputs_buffer_size: the least slots of each register between tasks; see `set_outputs_buffer_size`.
        fusion: whether elementwise ops, and updates of several optimizers of one class, are fused.
        recomputation: the fraction of a step's time for which ops may be repeated to lower the peak of memory; see
            `allow_recomputation`.
        order: whether ops are reordered for "memory" or "speed"; "given" does not reorder them.
        disabled: the names of passes that are not run; see `disable_pass`.
        actors: whether actors run all plans, also plans of a single task; see `use_actors`.

    Example:
        >>> config = flow.nn.graph.GraphConfig()
        >>> config.set_gradient_accumulation_steps(4)
        >>> config
        GraphConfig(gradient_accumulation_steps=4)
    """

    __slots__ = (
        "actors",
        "amp",
        "disabled",
        "fusion",
        "gradient_accumulation_steps",
        "order",
        "outputs_buffer_size",
        "recomputation",
    )

    def __init__(self) -> None:
        self.amp: DType | None = None
        self.gradient_accumulation_steps = 1
        self.outputs_buffer_size = 1
        self.fusion = True
        self.recomputation = 0.0
        self.order: Literal["memory", "speed", "given"] = "memory"
        self.disabled: frozenset[str] = frozenset()
        self.actors = os.environ.get("VMFLOW_GRAPH_ACTORS", "0") == "1"

    def enable_amp(self, mode: bool = True, *, dtype: DType = dtypes.float16) -> None:
        """Compute in a 16-bit dtype where precision allows, as `vmflow.autocast` does.

        Args:
            mode: False to switch mixed precision off.
            dtype: float16 or bfloat16.

        Raises:
            ValueError: if `dtype` is neither float16 nor bfloat16.
        """
        if dtype not in (dtypes.float16, dtypes.bfloat16):
            raise ValueError(f"enable_amp: the dtype must be float16 or bfloat16, not {dtype!r}")
        self.amp = dtype if mode else None

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Cut arguments and loaders' batches along the first dimension into `value` micro-batches; average gradients.

        Results are joined along the first dimension; scalars become elements of a vector.  With 1, nothing is cut.

        Raises:
            TypeError: if `value` is no integer.
            ValueError: if `value` is less than 1; by a call, if there is no tensor to cut, or one is 0-d or has a first
                dimension of a size that `value` does not divide.
        """
        self.gradient_accumulation_steps = whole_number("set_gradient_accumulation_steps", "the number", value, 1)

    def set_outputs_buffer_size(self, value: int = 2) -> None:
        """Let a task be up to `value` launches or micro-batches ahead of the tasks that read its results.

        In pipelines it may be more.  Launches do not overlap if a task uses a variable that another task changes.

        Raises:
            TypeError: if `value` is no integer.
            ValueError: if `value` is less than 1.
        """
        self.outputs_buffer_size = whole_number("set_outputs_buffer_size", "the size", value, 1)

    def allow_fusion(self, mode: bool = True) -> None:
        """Fuse consecutive elementwise ops into one loop over memory, and steps of optimizers of one class into one op.

        With `mode` False, nothing is fused.
        """
        self.fusion = mode

    def allow_recomputation(self, part_of_time: float = 0.2) -> None:
        """Compute values again for the backward pass instead of keeping them, where this saves memory.

        The results are the same to the bit.

        Args:
            part_of_time: the fraction of a step's time that repeated ops may add, by the estimated costs of the ops.
                0.03 often repeats elementwise ops and normalisations only; 0.2 allows for some matrix products, too.
                With 0, no ops are repeated for this setting.

        Raises:
            TypeError: if `part_of_time` is no number.
            ValueError: if `part_of_time` is negative or nan.
        """
        part_of_time = real_number("allow_recomputation", "the part of the time", part_of_time)
        if not part_of_time >= 0:
            raise ValueError(f"allow_recomputation: the part of the time must be 0 or more, not {part_of_time}")
        self.recomputation = part_of_time

    def use_actors(self, mode: bool = True) -> None:
        """Let actors run all plans, also plans of a single task, which need no actors.

        The results are the same, and a call takes longer: this setting is for tests of graphs.  VMFLOW_GRAPH_ACTORS=1
        makes it the default.
        """
        self.actors = mode

    def set_execution_order(self, order: Literal["memory", "speed", "given"]) -> None:
        """Reorder ops for less "memory" or for more "speed"; "given" does not reorder them.

        Raises:
            ValueError: if `order` is anything else.
        """
        if order not in ("memory", "speed", "given"):
            raise ValueError(f'set_execution_order: expected "memory", "speed" or "given", got {order!r}')
        self.order = order

    def disable_pass(self, name: str) -> None:
        """Do not run the pass of this name when the graph's job is optimized.

        Raises:
            ValueError: if there is no such pass; the message lists the passes.
        """
        require_pass(name)
        self.disabled |= {name}

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        changed()

    # OneFlow's names

    def allow_fuse_model_update_ops(self, mode: bool = True) -> None:
        """Enable or disable the pass that fuses the steps of several optimizers of one class into one op."""
        self._allow_pass("fuse_updates", mode)

    def enable_multi_tensor_update(self, mode: bool = True) -> None:
        """Do the same as `allow_fuse_model_update_ops`: an optimizer's step is one op for each device anyway."""
        self._allow_pass("fuse_updates", mode)

    def allow_fuse_add_to_output(self, mode: bool = True) -> None:
        """Enable or disable the pass that fuses elementwise ops, additions among them; see `allow_fusion`, too."""
        self._allow_pass("fuse_elementwise", mode)

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """Enable or disable the pass that fuses elementwise ops, casts and products among them; see `allow_fusion`."""
        self._allow_pass("fuse_elementwise", mode)

    def enable_straighten_algorithm(self, mode: str = "MemoryFirst") -> None:
        """Reorder ops: "MemoryFirst" or "SpeedFirst"; "Disable" does not reorder them.

        Raises:
            ValueError: for any other `mode`.
        """
        orders: dict[str, Literal["memory", "speed", "given"]] = {
            "MemoryFirst": "memory",
            "SpeedFirst": "speed",
            "Disable": "given",
        }
        if not isinstance(mode, str) or mode not in orders:
            raise ValueError(f"enable_straighten_algorithm: expected one of {sorted(orders)}, got {mode!r}")
        self.order = orders[mode]

    def enable_cudnn_conv_heuristic_search_algo(self, mode: bool = True) -> None:
        """Do nothing: vmflow offers no choice of convolution algorithms.

        The method is for programs written for OneFlow.
        """

    def enable_choose_best_memory_allocation(self, mode: bool = True) -> None:
        """Do nothing: the smallest of the memory layouts that are tried is taken.  For programs written for OneFlow."""

    def enable_compress_memory(self, mode: bool = True) -> None:
        """Do nothing: vmflow searches for smaller memory layouts anyway, where they seem possible.

        For programs written for OneFlow.
        """

    def enable_zero(self, mode: bool = True, *, stage: int = 2) -> None:
        """Raise an error if `mode` is true: a graph runs on one rank, and has no ranks to shard optimizers' state over.

        Raises:
            RuntimeError: if `mode` is true.
        """
        if mode:
            raise RuntimeError(f"enable_zero: stage {stage} shards optimizers' state over ranks, and there is one rank")

    def enable_auto_parallel(self, mode: bool = True) -> None:
        """Raise an error if `mode` is true: a graph runs on one rank, and has no ranks to spread tensors over.

        Raises:
            RuntimeError: if `mode` is true.
        """
        if mode:
            raise RuntimeError("enable_auto_parallel: tensors are spread over ranks, and there is one rank")

    def _allow_pass(self, name: str, mode: bool) -> None:
        if mode:
            self.disabled -= {name}
        else:
            self.disable_pass(name)

    def __repr__(self) -> str:
        defaults = GraphConfig()
        values = [(name, getattr(self, name), getattr(defaults, name)) for name in self.__slots__]
        return f"GraphConfig({', '.join([f'{name}={value!r}' for name, value, default in values if value != default])})"
