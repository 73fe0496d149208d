"""Sharding rules of losses of classes.  A mean over split samples is composed of other ops, see `decompositions`."""

from __future__ import annotations

from typing import Any, cast

from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, split
from vmflow.distributed.signatures import Call, Signature, rule_of
from vmflow.instructions.blob import TensorMeta


def _cases(scores: TensorMeta) -> list[tuple[Sbp, Sbp]]:
    """The ways to split scores along another dimension than the classes, with the class indices split alike."""
    rank = len(scores.shape)
    classes = 1 if rank > 1 else 0
    return [(split(dim), split(dim - (dim > classes))) for dim in range(rank) if dim != classes]


@rule_of("nll_loss", "cross_entropy")
def _class_loss(call: Call) -> list[Signature]:
    """Signatures of class losses: (scores, indices, weights) -> (loss, divisor, `cross_entropy`'s log-softmax)."""
    (options,) = [cast(Any, call.attributes)]
    weights = (broadcast,) * (len(call.inputs) - 2)
    logs = len(call.outputs) - 2
    found = []
    if options.reduction != "mean":
        for dim, own in _cases(call.inputs[0]):
            loss = own if options.reduction == "none" else partial_sum
            found.append(Signature((dim, own, *weights), (loss, partial_sum, *(own,) * logs)))
    if call.op.name == "nll_loss":
        found.append(Signature((partial_sum, broadcast, *weights), (partial_sum, broadcast)))
    return found


@rule_of("nll_loss_gradient", "cross_entropy_gradient")
def _class_loss_gradient(call: Call) -> list[Signature]:
    """Signatures of class losses' backward: (gradient, class indices, divisor, log-softmax if saved, weights)."""
    options = cast("tuple[Any, TensorMeta]", call.attributes)[0]
    logs = 1 if call.op.name == "cross_entropy_gradient" else 0
    rest = (broadcast,) * (len(call.inputs) - 3 - logs)
    found = []
    for dim, own in _cases(call.outputs[0]):
        gradient = own if options.reduction == "none" else broadcast
        found.append(Signature((gradient, own, broadcast, *(own,) * logs, *rest), (dim,)))
    others = (broadcast,) * (len(call.inputs) - 1)
    return [*found, Signature((partial_sum, *others), (partial_sum,))]


@rule_of("ctc_loss", "ctc_loss_gradient")
def _ctc_loss(call: Call) -> list[Signature]:
    """Signatures: (log-probabilities (T, N, C), targets (N, S), lengths of both, for backward the loss's gradient)."""
    if len(call.inputs[1].shape) < 2:
        return []
    cases = split(0)
    result = cases if call.op.name == "ctc_loss" else split(1)
    return [Signature((split(1), *(cases,) * (len(call.inputs) - 1)), (result,))]
