"""`Block`: the wrapper of a module that is an attribute of a graph; it shares the module's state and adds settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vmflow.arguments import whole_number
from vmflow.changes import changed
from vmflow.nn.module import Module


class BlockConfig:
    """A graph's settings for one block, that is for one of its modules.

    Attributes:
        activation_checkpointing: whether the backward pass computes the block's intermediate values again, instead of
            keeping them from the forward pass.
        stage_id: the number of the block's pipeline stage; None for the stage of the enclosing block, if that has one,
            else for the latest stage of each op's operands.

    Example:
        >>> config = flow.nn.graph.BlockConfig()
        >>> config.set_stage(1)
        >>> config
        BlockConfig(stage_id=1)
    """

    __slots__ = ("activation_checkpointing", "stage_id")

    def __init__(self) -> None:
        self.activation_checkpointing = False
        self.stage_id: int | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        changed()

    def set_stage(self, stage_id: int) -> None:
        """Assign the block to a pipeline stage, for launches that overlap; stages from 1 on have streams of their own.

        Raises:
            TypeError: if `stage_id` is no integer, or a bool.
            ValueError: if `stage_id` is negative.
        """
        self.stage_id = whole_number("set_stage", "the number of a stage", stage_id, 0)

    def __repr__(self) -> str:
        values = [(name, getattr(self, name)) for name in self.__slots__]
        settings = [f"{name}={value!r}" for name, value in values if value is not None and value is not False]
        return f"BlockConfig({', '.join(settings)})"


class Block:
    """A module as an attribute of a graph, with the graph's settings for the module.

    A block is called like its module, and has the module's attributes, which are set in the module; the names below
    are the block's own.  Submodules that are read as attributes or items, or by iterating over the block, are blocks,
    too.  A block equals its module, and is true if the module is.

    Args:
        module: the module, whose state the block shares.
        path: the module's name in the graph, such as "model.layers.0".
        configs: the settings of all blocks of the graph, by path.

    Attributes:
        config: the block's settings; see `BlockConfig`.
        origin: the wrapped module.
        path: the module's name in the graph.

    Raises:
        AttributeError: when an attribute is read or deleted that the module does not have, or one listed above is set.

    Example:
        >>> graph = flow.nn.Graph()
        >>> graph.model = flow.nn.Sequential(flow.nn.ReLU())
        >>> graph.model[0].path
        'model.0'
    """

    def __init__(self, module: Module, path: str, configs: dict[str, BlockConfig]) -> None:
        config = configs.setdefault(path, BlockConfig())
        self.__dict__.update(origin=module, path=path, config=config, _configs=configs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.origin(*args, **kwargs)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Return the block's settings, for the argument `GraphModule`.

        Raises:
            RuntimeError: for other arguments, such as a device, or none.
        """
        if args and args[0] is GraphModule:
            return self.config
        raise RuntimeError(f"{self.path}.to: move the module before it is given to the graph, which shares its state")

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for names that the block itself does not have.
        if "origin" not in self.__dict__:
            raise AttributeError(name)  # copying a block looks names up before `origin` is set
        value = getattr(self.origin, name)
        return Block(value, f"{self.path}.{name}", self._configs) if isinstance(value, Module) else value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError(f"{self.path}: {name!r} is an attribute of the block, and cannot be set")
        setattr(self.origin, name, value.origin if isinstance(value, Block) else value)

    def __delattr__(self, name: str) -> None:
        delattr(self.origin, name)

    def __iter__(self) -> Iterator[Any]:
        # Only some types of modules, such as ModuleList, can be iterated over, which mypy cannot know.
        members: Any = self.origin
        return iter([self._wrapped(member) for member in members])

    def __getitem__(self, key: Any) -> Any:
        members: Any = self.origin
        return self._wrapped(members[key])

    def __len__(self) -> int:
        members: Any = self.origin
        return len(members)

    # Without `__bool__` and `__eq__`, Python would take the truth value from `__len__`, and compare blocks by identity,
    # although each read of a submodule makes another block.

    def __bool__(self) -> bool:
        return bool(self.origin)

    def __eq__(self, other: object) -> bool:
        return bool(self.origin == (other.origin if isinstance(other, Block) else other))

    def __hash__(self) -> int:
        return hash(self.origin)

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, Module):
            for name, child in self.origin.named_children():
                if child is value:
                    return Block(value, f"{self.path}.{name}", self._configs)
        return value

    def __repr__(self) -> str:
        return f"(MODULE:{self.path}:{self.origin!r})"


class GraphModule:
    """A marker class: ``block.to(GraphModule)`` returns the block's `BlockConfig`.

    Example:
        >>> graph = flow.nn.Graph()
        >>> graph.model = flow.nn.ReLU()
        >>> graph.model.to(flow.nn.graph.GraphModule).stage_id = 2
        >>> graph.model.config
        BlockConfig(stage_id=2)
    """
