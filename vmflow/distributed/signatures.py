"""Signatures: the spreads of operands for which an op can be computed part by part, and the spreads of its results.

A signature holds for one axis of a mesh; a mesh of several axes has a signature for each.  The signature with
everything broadcast needs no rule and is not listed; a random op is right by it only if the generators of all ranks
are in the same state.  Families of ops share a rule; the rules are in `vmflow.distributed.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from vmflow.ops.table import Attributes, Metas, OpExpr

from .sbp import Sbp, broadcast


class Signature(NamedTuple):
    """The sbps of operands and results on one axis of a mesh.

    Attributes:
        inputs, outputs: the sbps of the operands and results.
        like: the sbp of a meta among the attributes; None if it is that of the first result.
    """

    inputs: tuple[Sbp, ...]
    outputs: tuple[Sbp, ...]
    like: Sbp | None = None


class Call(NamedTuple):
    """A call of an op, for rules.

    Attributes:
        op, attributes: the op and its attributes.
        inputs, outputs: the metas of operands and results, as whole tensors.
        ranks: the number of ranks of the mesh, all of which share a dimension if each axis splits it.
    """

    op: OpExpr
    attributes: Attributes
    inputs: Metas
    outputs: Metas
    ranks: int


Rule: TypeAlias = "Callable[[Call], list[Signature]]"

_BY_NAME: Final[dict[str, Rule]] = {}
_BY_FAMILY: Final[dict[str, Rule]] = {}


def rule_of(*names: str) -> Callable[[Rule], Rule]:
    """Declare the decorated function as the rule of these ops."""

    def declare(rule: Rule) -> Rule:
        _BY_NAME.update(dict.fromkeys(names, rule))
        return rule

    return declare


def rule_of_family(*names: str) -> Callable[[Rule], Rule]:
    """Declare the decorated function as the rule of the ops of these families, but those with a rule of their own."""

    def declare(rule: Rule) -> Rule:
        _BY_FAMILY.update(dict.fromkeys(names, rule))
        return rule

    return declare


def has_rule(op: OpExpr) -> bool:
    """Whether an op has a rule."""
    return op.name in _BY_NAME or op.family in _BY_FAMILY


def signatures_of(call: Call) -> list[Signature]:
    """The signatures of a call, without the one with everything broadcast."""
    rule = _BY_NAME.get(call.op.name) or _BY_FAMILY.get(call.op.family)
    return [] if rule is None else rule(call)


def everything_broadcast(call: Call) -> Signature:
    """The signature with everything broadcast."""
    return Signature((broadcast,) * len(call.inputs), (broadcast,) * len(call.outputs))
