"""Flattens the nested arguments and results of graphs into lists of tensors, and rebuilds the nested containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import attrs
import numpy as np

from vmflow.instructions.blob import TensorMeta
from vmflow.instructions.size import Size
from vmflow.tensors import Tensor


@attrs.frozen
class Leaf:
    """The node of a tree that stands for a tensor."""


@attrs.frozen(eq=False)
class Fixed:
    """The node of a tree that stands for a value other than a tensor, which is a constant of the graph.

    Nodes with values of different types are not equal: ``1``, ``1.0`` and ``True`` make different graphs.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fixed):
            return NotImplemented
        return _same(self.value, other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


@attrs.frozen
class Branch:
    """The node of a tree that stands for a tuple, list, dict or named tuple.

    Attributes:
        kind: "tuple", "list", "dict", or the type of a named tuple.
        keys: the keys of a dict; for other containers, the positions.
        children: the nodes of the items, in the order of the keys.
    """

    kind: Any
    keys: tuple[Any, ...]
    children: tuple[Tree, ...]


Tree: TypeAlias = Leaf | Fixed | Branch


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return bool(exact(one) == exact(other))


def exact(value: Any) -> Any:
    """Return the `repr` of a floating-point or complex number, else the value itself, for comparison by ``==``.

    By their `repr`, 0.0 and -0.0 differ, and nan equals nan.
    """
    return repr(value) if isinstance(value, (float, complex, np.inexact)) else value


def flatten(value: Any) -> tuple[Tree, list[Tensor]]:
    """Return the tree that describes a value of nested tuples, lists and dicts, and its tensors in order."""
    leaves: list[Tensor] = []
    return _flatten(value, leaves), leaves


def flatten_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tree, list[Tensor]]:
    """Flatten the arguments of a call, as `flatten` does; the order of keyword arguments does not matter."""
    if kwargs:
        return flatten((args, dict(sorted(kwargs.items()))))
    for arg in args:
        if type(arg) is not Tensor:
            return flatten((args, kwargs))
    return of_tensors(len(args)), list(args)


@cache
def of_tensors(count: int) -> Tree:
    """Return the tree of a call with `count` positional tensors; the same object for the same count."""
    return Branch("tuple", (0, 1), (Branch("tuple", tuple(range(count)), (Leaf(),) * count), Branch("dict", (), ())))


def _flatten(value: Any, leaves: list[Tensor]) -> Tree:
    if isinstance(value, Tensor):
        leaves.append(value)
        return Leaf()
    if isinstance(value, dict):
        children = tuple([_flatten(item, leaves) for item in value.values()])
        return Branch("dict", tuple(value), children)
    if isinstance(value, (tuple, list)) and not isinstance(value, Size):
        kind: Any = type(value) if hasattr(value, "_fields") else "tuple" if isinstance(value, tuple) else "list"
        return Branch(kind, tuple(range(len(value))), tuple([_flatten(item, leaves) for item in value]))
    # Arrays, sets and bytearrays are copied, so that a later change in place is noticed.
    return Fixed(value.copy() if isinstance(value, (np.ndarray, set, bytearray)) else value)


def unflatten(tree: Tree, leaves: Sequence[Any], make: Callable[[Any, list[Any]], Any] | None = None) -> Any:
    """Rebuild the containers of a tree around these leaves.

    Args:
        tree: a result of `flatten`.
        leaves: the values to put in place of the tree's leaves, in order.
        make: called with a branch and its rebuilt items, to make the container; by default `plain`.
    """
    return leaves[0] if type(tree) is Leaf else _unflatten(tree, iter(leaves), make or plain)


def _unflatten(tree: Tree, leaves: Iterator[Any], make: Callable[[Any, list[Any]], Any]) -> Any:
    if isinstance(tree, Leaf):
        return next(leaves)
    if isinstance(tree, Fixed):
        return tree.value
    return make(tree, [_unflatten(child, leaves, make) for child in tree.children])


def plain(branch: Branch, children: list[Any]) -> Any:
    """Make the tuple, list, dict or named tuple that `branch` describes, with the rebuilt items `children`."""
    if branch.kind == "dict":
        return dict(zip(branch.keys, children, strict=True))
    if branch.kind == "list":
        return children
    return tuple(children) if branch.kind == "tuple" else branch.kind(*children)


def paths(tree: Tree, root: str) -> list[str]:
    """Return a Python expression for each tensor of a tree, such as ``args[0]['mask']`` for the root "args"."""
    expressions: list[str] = []
    _name(tree, root, expressions)
    return expressions


def call_paths(tree: Tree) -> list[str]:
    """Return a Python expression such as ``args[0]`` or ``kwargs['mask']`` for each tensor of a call's tree."""
    args, kwargs = tree.children  # type: ignore[union-attr]
    return paths(args, "args") + paths(kwargs, "kwargs")


def _name(tree: Tree, path: str, expressions: list[str]) -> None:
    if isinstance(tree, Leaf):
        expressions.append(path)
    elif isinstance(tree, Branch):
        for key, child in zip(tree.keys, tree.children, strict=True):
            _name(child, f"{path}[{key!r}]", expressions)


def difference(old: Tree, new: Tree, path: str) -> str | None:
    """Describe the first difference of two trees of the argument that `path` names; None if they are equal."""
    if isinstance(old, Branch) and isinstance(new, Branch) and old.kind == new.kind and old.keys == new.keys:
        for key, first, second in zip(old.keys, old.children, new.children, strict=True):
            problem = difference(first, second, f"{path}[{key!r}]")
            if problem is not None:
                return problem
        return None
    if isinstance(old, Leaf) and isinstance(new, Leaf):
        return None
    if isinstance(old, Fixed) and isinstance(new, Fixed):
        return None if old == new else f"{path} was {old.value!r} when the graph was built, and is {new.value!r}"
    return f"{path} was {_described(old)} when the graph was built, and is {_described(new)}"


def misfit(built: Tree, metas: Sequence[TensorMeta], given: Tree, given_metas: Sequence[TensorMeta]) -> str | None:
    """Describe the first difference between a call and the arguments that a graph was built for; None if none.

    Args:
        built: the tree of the built call, with a tuple of positional and a dict of named arguments.
        metas: the metas of the built call's tensors.
        given: the tree of the new call.
        given_metas: the metas of the new call's tensors.
    """
    args, kwargs = built.children  # type: ignore[union-attr]
    new_args, new_kwargs = given.children  # type: ignore[union-attr]
    problem = difference(args, new_args, "args") or difference(kwargs, new_kwargs, "kwargs")
    if problem is not None:
        return problem
    for name, old, new in zip(call_paths(built), metas, given_metas, strict=True):
        if (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
            return f"{name} was {old!r} on {old.device} when the graph was built, and is {new!r} on {new.device}"
    return None


def _described(tree: Tree) -> str:
    if isinstance(tree, Leaf):
        return "a tensor"
    if isinstance(tree, Fixed):
        return repr(tree.value)
    kind = tree.kind if isinstance(tree.kind, str) else tree.kind.__name__
    keys = f" with the keys {list(tree.keys)}" if tree.kind == "dict" else f" of {len(tree.keys)}"
    return f"a {kind}{keys}"
