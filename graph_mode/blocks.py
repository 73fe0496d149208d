"""`Block`: a module as part of a graph.  It shares the module's state, and adds settings of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vmflow.changes import changed
from vmflow.nn.module import Module


class BlockConfig:
    """How a graph is to run a block.

    Attributes:
        activation_checkpointing: compute the block's intermediate values anew for the backward pass, and do not keep
            them until then.
        stage_id: which stage of a pipeline the block belongs to; None for that of the block around.
    """

    __slots__ = ("activation_checkpointing", "stage_id")

    def __init__(self) -> None:
        self.activation_checkpointing = False
        self.stage_id: int | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        changed()

    def set_stage(self, stage_id: int) -> None:
        """Run the block on a stream of its own, so that stages of several launches overlap.

        Raises:
            ValueError: for a negative number.
        """
        if stage_id < 0:
            raise ValueError(f"set_stage: stages are numbered from 0, not {stage_id}")
        self.stage_id = stage_id

    def __repr__(self) -> str:
        said = [f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name)]
        return f"BlockConfig({', '.join(said)})"


class Block:
    """A module in a graph, as the graph's `build` sees it.

    It can be called and its attributes read like the module's own; those that are modules come as blocks.

    Args:
        module: whose state it shares.
        path: its name in the graph, such as "model.layers.0".
        configs: the settings of all blocks of the graph, by path.

    Attributes:
        config: see `BlockConfig`.
        origin: the module.
        path: as given.
    """

    def __init__(self, module: Module, path: str, configs: dict[str, BlockConfig]) -> None:
        self.origin = module
        self.path = path
        self._configs = configs
        self.config = configs.setdefault(path, BlockConfig())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.origin(*args, **kwargs)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The block's settings, for ``to(GraphModule)``; a graph cannot move its modules.

        Raises:
            RuntimeError: for anything else.
        """
        if args and args[0] is GraphModule:
            return self.config
        raise RuntimeError(f"{self.path}.to: move the module before it is given to the graph, which shares its state")

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is no attribute of the block.
        value = getattr(self.__dict__["origin"], name)
        return Block(value, f"{self.path}.{name}", self._configs) if isinstance(value, Module) else value

    def __iter__(self) -> Iterator[Any]:
        # The type's own, for `iter` looks there; mypy cannot know that the module can be iterated over.
        members: Any = self.origin
        return iter([self._wrapped(member) for member in members])

    def __getitem__(self, key: Any) -> Any:
        members: Any = self.origin
        return self._wrapped(members[key])

    def __len__(self) -> int:
        members: Any = self.origin
        return len(members)

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, Module):
            for name, child in self.origin.named_children():
                if child is value:
                    return Block(value, f"{self.path}.{name}", self._configs)
        return value

    def __repr__(self) -> str:
        return f"(MODULE:{self.path}:{self.origin!r})"


class GraphModule:
    """What to give to `Block.to` for the block's settings."""
