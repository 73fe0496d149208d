"""Calls of ops on global tensors.

An op boxes the parts of its operands to the spreads of the cheapest of its signatures, runs on the parts as a local op,
and has global results.  So all ranks must call it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeAlias, final

from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.errors import BroadcastWarning, InternalError
from vmflow.instructions import origin
from vmflow.instructions.blob import Blob, TensorMeta, meta
from vmflow.kernels.choosing import Kernel
from vmflow.ops.copying import zeros_of
from vmflow.ops.shape.view import reshape
from vmflow.ops.table import Attributes, Inferred, Kinds, Metas, OpExpr, OpPlan, ViewExpr
from vmflow.tensor_fields import blob_of, meta_of, new_tensor
from vmflow.tensors import Tensor

from .boxing import boxed, cost
from .global_tensors import local_mode, made, mode_of_parts, part_in, part_of, storage_of
from .placement import placement as Placement
from .process import current_process
from .sbp import NdSbp, Sbp, broadcast
from .signatures import Signature, has_rule, signatures_of, view_signatures
from .spread import Shape, Spread, global_meta, local_meta, spread as spread_of, whole_meta

# candidates(ranks of an axis) -> signatures
Candidates: TypeAlias = "Callable[[int], list[Signature]]"


@final
class GlobalCall:
    """How an op of global tensors is called.

    Args:
        op: which.
        have, wanted: of each operand, the spread that it has, and the one that it is boxed to.
        shapes: of the operands.
        outputs: the metas of the results.
        several: whether the op has several results.
        attributes: of the call.
        final: the spread that the attributes ask for; None if they ask for none, or the op gives it.
    """

    __slots__ = ("_boxes", "_final", "_has_metas", "_op", "_outputs", "_placement", "_several")

    def __init__(
        self,
        op: OpExpr,
        have: Sequence[Spread],
        wanted: Sequence[Spread],
        shapes: Sequence[Shape],
        outputs: Metas,
        several: bool,
        attributes: Attributes,
        final: Spread | None,
    ) -> None:
        self._op = op
        self._outputs = outputs
        self._placement: Placement = outputs[0].spread.placement
        # The operands that are boxed: their places and shapes, the old spread and the new one.
        self._boxes = [
            (place, shape, old, new)
            for place, (shape, old, new) in enumerate(zip(shapes, have, wanted, strict=True))
            if old is not new
        ]
        self._several = several
        self._has_metas = any([isinstance(each, TensorMeta) for each in attributes])
        self._final = final

    def call(self, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """The results."""
        parts = [part_in(blob) for blob in blobs]
        mode = MODE.get()
        MODE.set(mode_of_parts(mode))
        try:
            for place, shape, old, new in self._boxes:
                parts[place] = boxed(parts[place], shape, old, new)
            rank = current_process().rank
            if rank not in self._placement.group:
                return tuple([made(zeros_of(local_meta(output, rank)), output) for output in self._outputs])
            if self._has_metas:
                attributes = with_metas(attributes, lambda of: self._part_of_result(of, rank))
            if self._several:
                results = _interpreter.dispatch_several(self._op, tuple(parts), attributes, scalars)
                return tuple([made(part, output) for part, output in zip(results, self._outputs, strict=True)])
            part, output = _interpreter.dispatch(self._op, tuple(parts), attributes, scalars), self._outputs[0]
            if self._final is not None:
                part = boxed(part, tuple(output.shape), output.spread, self._final)
                output = global_meta(tuple(output.shape), output.dtype, self._final)
            return (made(part, output),)
        finally:
            MODE.set(mode)

    def _part_of_result(self, of: TensorMeta, rank: int) -> TensorMeta:
        """A meta among the attributes is that of the result, of which this rank makes its part."""
        return meta(self._outputs[0].spread.sizes(tuple(of.shape), rank), of.dtype, of.device)

    def call_into(
        self, target: Tensor, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]
    ) -> None:
        """Write the result into `target`, which is global."""
        if meta_of(target).spread is None:
            raise mixed(self._op.name, [meta_of(target), *[blob.meta for blob in blobs]])
        if storage_of(target).moved:
            raise RuntimeError(
                f"{self._op.name}: the target is a view of a global tensor whose parts were exchanged for it, and "
                "shares no memory with it; change the tensor itself, or use .to_global(sbp=...) before taking the view"
            )
        (result,) = self.call(blobs, attributes, scalars)
        source, wanted = meta_of(result), meta_of(target)
        with local_mode():
            part_of(target).copy_(boxed(part_of(result), tuple(source.shape), source.spread, wanted.spread))


def with_metas(attributes: Attributes, replaced: Callable[[TensorMeta], TensorMeta]) -> Attributes:
    """The attributes with other metas; the same object if there are none."""
    if not any([isinstance(each, TensorMeta) for each in attributes]):
        return attributes
    return tuple([replaced(each) if isinstance(each, TensorMeta) else each for each in attributes])


def global_plan(op: OpExpr, attributes: Attributes, metas: Metas, kinds: Kinds) -> OpPlan:
    """The plan of an op of global tensors: inferred for the whole, with the cheapest signature on each axis.

    Raises:
        RuntimeError: if some operands are local, or have other placements.
    """
    spreads = [each.spread for each in metas]
    asked = [each.spread for each in attributes if isinstance(each, TensorMeta) and each.spread is not None]
    if None in spreads:
        raise mixed(op.name, metas)
    placement = (spreads + asked)[0].placement
    for place, each in enumerate(spreads):
        if each.placement is not placement:
            raise RuntimeError(
                f"{op.name}: operand 0 is on {placement!r} and operand {place} on {each.placement!r}; move one with "
                ".to_global(placement=...)"
            )
    whole = tuple(map(whole_meta, metas))
    plain = with_metas(attributes, whole_meta)
    inferred = op.infer(plain, whole, kinds)
    final = asked[0] if asked and not metas else None
    if metas and not has_rule(op) and any([sbp != broadcast for each in spreads for sbp in each.sbp]):
        _tell_of_broadcast(op)
    wanted, outputs = _cheapest(
        placement,
        spreads,
        whole,
        len(inferred.outputs),
        lambda ranks: signatures_of(op, plain, whole, inferred.outputs),
        final,
    )
    found = tuple(
        [
            global_meta(tuple(output.shape), output.dtype, spread_of(placement, sbp))
            for output, sbp in zip(inferred.outputs, outputs, strict=True)
        ]
    )
    if final is not None and found[0].spread is final:
        final = None
    plan = OpPlan(op.name, Inferred(found if inferred.several else found[0], inferred.cost), Kernel(_not_called))
    shapes = [tuple(each.shape) for each in metas]
    plan.spread = GlobalCall(op, spreads, wanted, shapes, found, inferred.several, attributes, final)
    return plan


# Ops of which it was told that they are computed as a whole on every rank.
_TOLD: Final[set[str]] = set()


def _tell_of_broadcast(op: OpExpr) -> None:
    if op.name not in _TOLD:
        _TOLD.add(op.name)
        warnings.warn(
            f"{op.name} of tensors that are split or partial sums is computed as a whole on every rank: it has no rule",
            BroadcastWarning,
            stacklevel=origin.depth(),
        )


def _not_called(*arguments: Any) -> Any:
    raise InternalError("a kernel of global tensors was called: they are computed part by part")


def _cheapest(
    placement: Placement,
    spreads: Sequence[Spread],
    metas: Metas,
    outputs: int,
    candidates: Candidates,
    final: Spread | None,
) -> tuple[tuple[Spread, ...], list[NdSbp]]:
    """The spreads of the operands and the sbps of the results by which the fewest bytes move.

    Each axis of the mesh is decided by itself.
    """
    chosen: list[Signature] = []
    for axis, ranks in enumerate(placement.shape):
        everything = Signature((broadcast,) * len(metas), (broadcast,) * outputs)
        best, least = everything, float("inf")
        for signature in [everything, *candidates(ranks)]:
            price = sum(
                [
                    _price(each, spread, axis, sbp)
                    for each, spread, sbp in zip(metas, spreads, signature.inputs, strict=True)
                ]
            )
            if final is not None and signature.outputs[0] != final.sbp[axis]:
                price += 1.0
            if price < least:
                best, least = signature, price
        chosen.append(best)
    wanted = tuple(
        [spread_of(placement, tuple([signature.inputs[place] for signature in chosen])) for place in range(len(metas))]
    )
    return wanted, [tuple([signature.outputs[place] for signature in chosen]) for place in range(outputs)]


def _same_shares(old: Spread, shape: Shape, new: Spread, other: Shape) -> bool:
    """Whether ranks have the same elements of two shapes of one tensor, also where several axes split one dimension."""
    return all(
        [
            prod(old.sizes(shape, rank, axes)) == prod(new.sizes(other, rank, axes))
            for rank in old.placement.group
            for axes in range(1, len(old.sbp) + 1)
        ]
    )


def _price(each: TensorMeta, have: Spread, axis: int, want: Sbp) -> float:
    """Bytes that move, and a little for every change, which copies."""
    if have.sbp[axis] == want:
        return 0.0
    target = spread_of(have.placement, (*have.sbp[:axis], want, *have.sbp[axis + 1 :]))
    return cost(tuple(each.shape), each.dtype.itemsize, have, target) + 1e-3 * each.nbytes + 1e-3


def mixed(name: str, metas: Sequence[TensorMeta]) -> RuntimeError:
    """The error of a call with both local and global tensors."""
    local = next(place for place, each in enumerate(metas) if each.spread is None)
    example = next(each.spread for each in metas if each.spread is not None)
    return RuntimeError(
        f"{name}: operand {local} is a local tensor and another a global one; spread it as well, by "
        f".to_global(placement={example.placement!r}, sbp=...)"
    )


def global_view(op: ViewExpr, source: Tensor, attributes: Attributes) -> Tensor:
    """A view of a global tensor; it shares this rank's memory, unless parts have to be exchanged or copied for it.

    Whether it does is the same on all ranks, whatever their parts look like.
    """
    storage, place = storage_of(source), blob_of(source).offset
    key = place, op.name, attributes
    known = storage.views.get(key)
    if known is not None:
        return new_tensor(Blob(storage, known[1], None, known[0]), None)
    of = meta_of(source)
    shape, _, _ = op.view(attributes, tuple(of.shape), of.strides, 0)
    dtype = of.dtype if op.dtype is None else op.dtype(of.dtype)
    placement = of.spread.placement
    whole = whole_meta(of)
    (wanted,), (sbp,) = _cheapest(
        placement, [of.spread], (whole,), 1, lambda ranks: view_signatures(op, attributes, whole, shape, ranks), None
    )
    result = global_meta(shape, dtype, spread_of(placement, sbp))
    if op.name == "reshape" and not _same_shares(wanted, tuple(of.shape), result.spread, shape):
        wanted = spread_of(placement, (broadcast,) * len(placement.shape))
        result = global_meta(shape, dtype, wanted)
    rank = current_process().rank
    shares = wanted is of.spread and (op.name != "reshape" or storage.whole[place] or _same_but_ones(of.shape, shape))
    with local_mode():
        old = storage.parts[place]
        part = boxed(old, tuple(of.shape), of.spread, wanted)
        if rank not in placement.group:
            part = zeros_of(local_meta(result, rank))
        elif op.name == "reshape":
            part = reshape(part, result.spread.sizes(shape, rank))
        elif op.name == "expand":
            part = _interpreter.dispatch_view(op, part, (result.spread.sizes(shape, rank),))
        else:
            part = _interpreter.dispatch_view(op, part, attributes)
        if not shares:
            # On some ranks it may share memory all the same, and changes would be seen there only.
            part = part.clone() if blob_of(part).storage is blob_of(old).storage else part
            return made(part, result, moved=True)
    storage.parts.append(part)
    storage.whole.append(op.name == "reshape" and storage.whole[place])
    storage.views[key] = len(storage.parts) - 1, result
    return new_tensor(Blob(storage, result, None, len(storage.parts) - 1), None)


def _same_but_ones(old: Shape, new: Shape) -> bool:
    """Whether shapes differ in dimensions of one element alone, which any strides allow."""
    return [size for size in old if size != 1] == [size for size in new if size != 1]
