"""Calls of ops on global tensors.

An op boxes the parts of its operands to the spreads of the cheapest of its signatures, runs on the parts as a local op,
and has global results; or other global ops compute it, see `decompositions`.  All ranks of the placement must call it.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeAlias, cast, final

from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.errors import BroadcastWarning, InternalError
from vmflow.instructions import origin
from vmflow.instructions.blob import Blob, TensorMeta, meta
from vmflow.kernels.choosing import Kernel
from vmflow.kernels.problems.indexing import Geometry
from vmflow.ops.copying import zeros_of
from vmflow.ops.shape.view import reshape
from vmflow.ops.table import Attributes, Inferred, Kinds, Metas, OpExpr, OpPlan, ViewExpr
from vmflow.tensor_fields import blob_of, meta_of, new_tensor
from vmflow.tensors import Tensor

from .boxing import boxed, cost
from .checking import compared, depend
from .decompositions import Compute, decomposition_of
from .global_tensors import local_mode, made, mode_of_parts, part_in, part_of, storage_of
from .order import current_order
from .placement import placement as Placement
from .process import current_process
from .rules.views import view_signatures
from .sbp import Sbp, broadcast
from .signatures import Call, Signature, everything_broadcast, has_rule, signatures_of
from .spread import Shape, Spread, global_meta, local_meta, spread as spread_of, whole_meta

# candidates(the number of ranks of an axis) -> signatures
Candidates: TypeAlias = "Callable[[int], list[Signature]]"


class GlobalCall(ABC):
    """A way to call an op of global tensors.

    Args:
        op: the op.
    """

    __slots__ = ("_op",)

    def __init__(self, op: OpExpr) -> None:
        self._op = op

    def call(self, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """The results of the op.

        Raises:
            RuntimeError: if another task or thread exchanges in the communication scope, see `comm_scope`.
        """
        current_order().claim()
        if not current_process().checked:
            return self.results(blobs, attributes, scalars)
        verdict = compared(self._op, [blob.meta for blob in blobs], attributes, scalars)
        results = self.results(blobs, attributes, scalars)
        for result in results:
            depend(result, verdict)
        return results

    @abstractmethod
    def results(self, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Compute the results of the op."""

    def call_into(
        self, target: Tensor, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]
    ) -> None:
        """Write the result into `target`.

        Raises:
            RuntimeError: if `target` is local, or a view that shares no memory with its base.
        """
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


@final
class CallByParts(GlobalCall):
    """Each rank boxes its parts of the operands to the spreads of a signature, and calls the op on these parts.

    Args:
        op: the op.
        have, wanted: the spread of each operand, and the spread to which it is boxed.
        shapes: of the operands.
        outputs: the metas of the results.
        several: whether the op has several results.
        like: the spread of the metas among the attributes, in place of which the op gets metas of parts.
        attributes: of the call.
        final: the spread of the result that the attributes require; None if they require none, or `outputs` has it.
    """

    __slots__ = ("_boxes", "_final", "_has_metas", "_like", "_outputs", "_placement", "_several")

    def __init__(
        self,
        op: OpExpr,
        have: Sequence[Spread],
        wanted: Sequence[Spread],
        shapes: Sequence[Shape],
        outputs: Metas,
        several: bool,
        like: Spread,
        attributes: Attributes,
        final: Spread | None,
    ) -> None:
        super().__init__(op)
        self._outputs = outputs
        self._placement: Placement = outputs[0].spread.placement
        # For each operand that is boxed: its index and shape, the old spread and the new one.
        self._boxes = [
            (place, shape, old, new)
            for place, (shape, old, new) in enumerate(zip(shapes, have, wanted, strict=True))
            if old is not new
        ]
        self._several = several
        self._like = like
        self._has_metas = any([isinstance(value, TensorMeta) for value in attributes])
        self._final = final

    def results(self, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Compute the results of the op."""
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
                like = self._like
                attributes = with_metas(
                    attributes, lambda of: meta(like.sizes(tuple(of.shape), rank), of.dtype, of.device)
                )
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


@final
class CallInSteps(GlobalCall):
    """Computes an op by other ops of global tensors.

    Args:
        op: the op.
        compute: the steps, see `decompositions`.
    """

    __slots__ = ("_compute",)

    def __init__(self, op: OpExpr, compute: Compute) -> None:
        super().__init__(op)
        self._compute = compute

    def results(self, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Compute the results of the op."""
        with local_mode():
            return self._compute(self._op, tuple([new_tensor(blob, None) for blob in blobs]), attributes, scalars)


def with_metas(attributes: Attributes, replaced: Callable[[TensorMeta], TensorMeta]) -> Attributes:
    """Return the attributes with each meta among them replaced; the same object if there are none."""
    if not any([isinstance(value, TensorMeta) for value in attributes]):
        return attributes
    return tuple([replaced(value) if isinstance(value, TensorMeta) else value for value in attributes])


def global_plan(op: OpExpr, attributes: Attributes, metas: Metas, kinds: Kinds) -> OpPlan:
    """The plan of an op of global tensors: inferred for the whole, with its steps or each axis's cheapest signature.

    Raises:
        RuntimeError: if some operands are local, or on different placements.
    """
    spreads = [each.spread for each in metas]
    asked = [value.spread for value in attributes if isinstance(value, TensorMeta) and value.spread is not None]
    if None in spreads:
        raise mixed(op.name, metas, asked)
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
    call = Call(op, plain, whole, inferred.outputs, len(placement.group))
    steps = decomposition_of(op, attributes, metas)
    if steps is not None:
        # These outputs only show shapes and dtypes: the steps determine the spreads of the results.
        outputs = tuple(
            [global_meta(tuple(output.shape), output.dtype, spreads[0].everywhere()) for output in inferred.outputs]
        )
        return _planned(op, inferred, outputs, CallInSteps(op, steps))
    if metas and not has_rule(op) and any([sbp != broadcast for spread in spreads for sbp in spread.sbp]):
        _warn_of_broadcast(op)
    signatures = signatures_of(call)
    chosen = _cheapest(
        placement,
        spreads,
        whole,
        everything_broadcast(call),
        lambda ranks: signatures,
        final,
    )
    wanted = [_nd(placement, [signature.inputs[place] for signature in chosen]) for place in range(len(metas))]
    given = [
        _nd(placement, [signature.outputs[place] for signature in chosen]) for place in range(len(inferred.outputs))
    ]
    like = _nd(placement, [signature.like or signature.outputs[0] for signature in chosen])
    outputs = tuple(
        [
            global_meta(tuple(output.shape), output.dtype, spread)
            for output, spread in zip(inferred.outputs, given, strict=True)
        ]
    )
    if given[0] is final:
        final = None
    shapes = [tuple(each.shape) for each in metas]
    by_parts = CallByParts(op, spreads, wanted, shapes, outputs, inferred.several, like, attributes, final)
    return _planned(op, inferred, outputs, by_parts)


def _planned(op: OpExpr, inferred: Inferred, outputs: Metas, call: GlobalCall) -> OpPlan:
    found = Inferred(outputs if inferred.several else outputs[0], inferred.cost)
    plan = OpPlan(op.name, found, Kernel(_not_called))
    plan.spread = call
    return plan


def _nd(placement: Placement, sbps: Sequence[Sbp]) -> Spread:
    return spread_of(placement, tuple(sbps))


# The names of ops for which a `BroadcastWarning` was given.
_WARNED: Final[set[str]] = set()


def _warn_of_broadcast(op: OpExpr) -> None:
    if op.name not in _WARNED:
        _WARNED.add(op.name)
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
    everything: Signature,
    candidates: Candidates,
    final: Spread | None = None,
) -> list[Signature]:
    """For each axis of the mesh, the signature for which the `_price` of all operands together is lowest.

    Args:
        placement: the mesh.
        spreads, metas: of the operands.
        everything: the signature with all operands and results broadcast.
        candidates: returns the other signatures.
        final: the required spread of the result; a signature with another sbp costs one byte more.  None for any.
    """
    chosen: list[Signature] = []
    for axis, ranks in enumerate(placement.shape):
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
    return chosen


def _same_shares(old: Spread, shape: Shape, new: Spread, other: Shape) -> bool:
    """Whether each rank has the same elements before and after a reshape, for any number of first axes of the mesh.

    It is enough to compare numbers of elements, since `view_signatures` pairs only dimensions with the same
    product of the sizes before them.
    """
    return all(
        [
            prod(old.sizes(shape, rank, axes)) == prod(new.sizes(other, rank, axes))
            for rank in old.placement.group
            for axes in range(1, len(old.sbp) + 1)
        ]
    )


def _price(meta: TensorMeta, have: Spread, axis: int, want: Sbp) -> float:
    """The bytes that a rank receives to change the sbp of one axis to `want`, plus a small price for a change."""
    if have.sbp[axis] == want:
        return 0.0
    target = spread_of(have.placement, (*have.sbp[:axis], want, *have.sbp[axis + 1 :]))
    return cost(tuple(meta.shape), meta.dtype.itemsize, have, target) + 1e-3 * meta.nbytes + 1e-3


def mixed(name: str, metas: Sequence[TensorMeta], asked: Sequence[Spread] = ()) -> RuntimeError:
    """Return the error of a call that mixes local and global tensors.

    Args:
        name: of the op.
        metas: of the operands.
        asked: the spreads of metas among the attributes.
    """
    local = next(place for place, meta in enumerate(metas) if meta.spread is None)
    example = next(spread for spread in (*[meta.spread for meta in metas], *asked) if spread is not None)
    return RuntimeError(
        f"{name}: operand {local} is a local tensor and another a global one; spread it as well, by "
        f".to_global(placement={example.placement!r}, sbp=...)"
    )


def global_view(op: ViewExpr, source: Tensor, attributes: Attributes) -> Tensor:
    """A view of a global tensor, with the tensor's memory unless parts have to be exchanged or copied for the view.

    The view shares memory on all ranks or on none.

    Raises:
        RuntimeError: as `GlobalCall.call`.
    """
    current_order().claim()
    if not current_process().checked:
        return _view(op, source, attributes)
    verdict = compared(op, [meta_of(source)], attributes, ())
    result = _view(op, source, attributes)
    depend(result, verdict)
    return result


def _view(op: ViewExpr, source: Tensor, attributes: Attributes) -> Tensor:
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
    chosen = _cheapest(
        placement,
        [of.spread],
        (whole,),
        Signature((broadcast,), (broadcast,)),
        lambda ranks: view_signatures(op, attributes, tuple(of.shape), shape, ranks),
    )
    wanted = _nd(placement, [signature.inputs[0] for signature in chosen])
    result = global_meta(shape, dtype, _nd(placement, [signature.outputs[0] for signature in chosen]))
    if op.name == "reshape" and not _same_shares(wanted, tuple(of.shape), result.spread, shape):
        wanted = of.spread.everywhere()
        result = global_meta(shape, dtype, wanted)
    rank = current_process().rank
    # The memory layout of this rank's part must not decide whether the view shares memory: layouts may differ by rank.
    in_order = storage.whole[place] or (op.name == "reshape" and _same_but_ones(of.shape, shape))
    shares = wanted is of.spread and (op.name not in ("reshape", "as_strided") or in_order)
    with local_mode():
        old = storage.parts[place]
        part = boxed(old, tuple(of.shape), of.spread, wanted)
        if rank not in placement.group:
            part = zeros_of(local_meta(result, rank))
        elif op.name == "reshape":
            part = reshape(part, result.spread.sizes(shape, rank))
        elif op.name == "expand":
            part = _interpreter.dispatch_view(op, part, (result.spread.sizes(shape, rank),))
        elif op.name == "as_strided":
            part = _strided(op, part, attributes)
        else:
            part = _interpreter.dispatch_view(op, part, attributes)
        if not shares:
            # A part that shares memory is copied: other ranks' parts may share none, and changes would show on some
            # ranks only.
            part = part.clone() if blob_of(part).storage is blob_of(old).storage else part
            return made(part, result, moved=True)
    storage.parts.append(part)
    storage.whole.append(op.name == "reshape" and storage.whole[place])
    storage.views[key] = len(storage.parts) - 1, result
    return new_tensor(Blob(storage, result, None, len(storage.parts) - 1), None)


def _strided(op: ViewExpr, whole: Tensor, attributes: Attributes) -> Tensor:
    """Call `as_strided` on a rank's whole tensor, made contiguous; the offset counts from its first element."""
    (shape, strides, offset), own = cast("tuple[Geometry, Geometry]", attributes)
    whole = whole.contiguous()
    return _interpreter.dispatch_view(op, whole, ((shape, strides, offset + whole.storage_offset()), own))


def _same_but_ones(old: Shape, new: Shape) -> bool:
    """Whether shapes are the same but for dimensions of size 1."""
    return [size for size in old if size != 1] == [size for size in new if size != 1]
