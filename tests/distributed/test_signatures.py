"""Signatures against a search: each in the table is right for the numbers, and none is missing without a reason.

The calls are those of the op tests and their gradients, of every op that those have rows for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.support import exhaustive_but_for_some
from vmflow.distributed.rules.views import view_signatures
from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, share, split
from vmflow.distributed.signatures import Call, Signature, has_rule, signatures_of
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.ops.table import OPS, ViewExpr
from vmflow.tensor_fields import meta_of

from .recorded_calls import Recorded, recorded_calls

pytestmark = pytest.mark.host

Array = NDArray[Any]

# Ops that are computed as a whole on every rank, and why.
WITHOUT_RULE: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("nonzero", "distinct", "bincount_length", "histogram", "repetitions", "repeated_places"),
        "how many results there are depends on all values",
    ),
    **dict.fromkeys(
        ("strided_put", "strided_get", "respread"), "places in memory are not those of the parts: index a whole tensor"
    ),
    **dict.fromkeys(
        ("bernoulli", "multinomial", "poisson", "standard_gamma"), "a number depends on its place in the whole"
    ),
    "checked_offsets": "each offset is compared with the one before",
    "largest_of_bag": "bags lie one behind the other in one dimension",
    "embedding_limit_norms": "it changes rows that other ranks may name, too",
    "to_device": "a placement has one device",
}

# Signatures that a search finds and the table does not have, by op, and why.
NOT_LISTED: Final[dict[str, str]] = {
    **dict.fromkeys(
        [f"conv{rank}d{end}" for rank in (1, 2, 3) for end in ("", "_weight_gradient", "_with_columns")],
        "pixels may be split for kernels of one pixel alone",
    ),
    "cast": "the imaginary part is dropped; but from integers nothing is linear",
    "pad": "of partial sums the number that is added around would be added up, unless it is 0",
    "where": "a number would be added up, unless it is 0",
    "index_put": "of several elements for one place, ranks might choose different ones",
    "scatter": "to a tensor of zeros each rank may add",
    **dict.fromkeys(
        ("all", "any", "argmax", "argmin", "heaviside", "nextafter", "maximum_scalar", "minimum_scalar", "elu"),
        "right for some numbers by chance",
    ),
    "leaky_relu": "right for some numbers by chance",
    **dict.fromkeys(("nll_loss_gradient", "cross_entropy_gradient"), "a sum that is not looked at"),
}


@cache
def calls() -> dict[str, list[Recorded]]:
    """By op; of each form of shapes a few."""
    found = recorded_calls()
    for call in _formulas():
        found.setdefault(call.op.name, []).append(call)
    # Sums of half precision differ too much by their order.
    return {
        name: [call for call in calls if not any([each.itemsize == 2 for each in call.operands])]
        for name, calls in found.items()
    }


def _formulas() -> Iterator[Recorded]:
    """Ops that are made of others element by element, each with as many operands as it takes."""
    for name, op in sorted(OPS.items()):
        if op.family != "fused":
            continue
        for count, scalars, attributes in product((1, 2, 3), ((), (2.0,), (0.25, 2.0)), ((), (1,))):
            chance = np.random.default_rng(len(name))
            operands = tuple([chance.uniform(0.1, 0.9, (4, 5)) for _ in range(count)])
            call = Recorded(op, attributes, scalars, operands)
            try:
                found = call.run(list(operands), attributes)
            except Exception:  # it does not take so many
                continue
            if all([each.dtype != object for each in found]):
                yield call
                break


def parts(array: Array, sbp: Sbp, ranks: int, seed: int) -> list[Array]:
    if sbp.is_split:
        places = [share(array.shape[sbp.dim], ranks, place) for place in range(ranks)]
        return [array[(*[slice(None)] * sbp.dim, slice(start, start + length))] for start, length in places]
    if sbp == broadcast:
        return [array] * ranks
    chance = np.random.default_rng(seed)
    draw = chance.normal if array.dtype.kind in "fc" else lambda size: chance.integers(-9, 9, size)
    found = [np.asarray(draw(size=array.shape)).astype(array.dtype) for _ in range(ranks - 1)]
    return [*found, (array - sum(found)).astype(array.dtype)]


def put_together(arrays: list[Array], sbp: Sbp, shape: tuple[int, ...]) -> Array | None:
    """The whole, or None if they do not make one of this shape."""
    if sbp == broadcast:
        return arrays[0] if all([_close(each, arrays[0]) for each in arrays]) else None
    if sbp == partial_sum:
        same = len({each.shape for each in arrays}) == 1
        return np.sum(arrays, 0, dtype=arrays[0].dtype) if same and arrays[0].dtype.kind != "b" else None
    if any([each.ndim <= sbp.dim for each in arrays]):
        return None
    sizes = [share(shape[sbp.dim], len(arrays), place)[1] for place in range(len(arrays))]
    if [each.shape[sbp.dim] for each in arrays] != sizes or len({_without(each.shape, sbp.dim) for each in arrays}) > 1:
        return None
    return np.concatenate(arrays, sbp.dim)


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim + 1 :]


def _close(one: Array, other: Array) -> bool:
    if one.dtype.kind in "fc":
        return one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=1e-6, equal_nan=True)
    return one.shape == other.shape and bool((one == other).all())


def _of_part(of: TensorMeta, sbp: Sbp, ranks: int, rank: int) -> TensorMeta:
    if not sbp.is_split:
        return of
    sizes = list(of.shape)
    sizes[sbp.dim] = share(sizes[sbp.dim], ranks, rank)[1]
    return meta(tuple(sizes), of.dtype, of.device)


def _attributes(call: Recorded, signature: Signature, ranks: int, rank: int, local: list[Array]) -> Any:
    """The attributes of the call on the part of a rank; None if it has none."""
    if call.op.name in ("reshape", "expand"):
        sizes = list(call.attributes[0])
        (sbp,) = signature.outputs
        if sbp.is_split:
            if sbp.dim >= len(sizes):
                return None
            sizes[sbp.dim] = share(sizes[sbp.dim], ranks, rank)[1]
        return None if call.op.name == "reshape" and prod(sizes) != local[0].size else (tuple(sizes),)
    if not any([isinstance(each, TensorMeta) for each in call.attributes]):
        return call.attributes
    like = signature.like or signature.outputs[0]
    return tuple(
        [_of_part(each, like, ranks, rank) if isinstance(each, TensorMeta) else each for each in call.attributes]
    )


@cache
def _whole(number: int, name: str) -> list[Array]:
    call = calls()[name][number]
    return call.run(list(call.operands), call.attributes)


def wrong(call: Recorded, whole: list[Array], signature: Signature, ranks: int) -> str:
    """How computing part by part differs from computing the whole; empty if it does not."""
    spread = zip(call.operands, signature.inputs, strict=True)
    given = [parts(each, sbp, ranks, place) for place, (each, sbp) in enumerate(spread)]
    results = []
    for rank in range(ranks):
        local = [np.ascontiguousarray(each[rank]) if each[rank].ndim else each[rank] for each in given]
        attributes = _attributes(call, signature, ranks, rank, local)
        if attributes is None:
            return "shapes differ"
        try:
            results.append(call.run(local, attributes))
        except (ValueError, RuntimeError, IndexError, TypeError, AssertionError) as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    for place, (sbp, wanted) in enumerate(zip(signature.outputs, whole, strict=True)):
        found = put_together([each[place] for each in results], sbp, wanted.shape)
        if found is None or not _close(found, wanted):
            return f"result {place} differs"
    return ""


def listed(call: Recorded, ranks: int) -> list[Signature]:
    metas = tuple([meta_of(flow.tensor(each)) for each in call.operands])
    op = call.op
    if isinstance(op, ViewExpr):
        shape, _, _ = op.view(call.attributes, tuple(metas[0].shape), metas[0].strides, 0)
        return view_signatures(op, call.attributes, tuple(metas[0].shape), shape, ranks)
    kinds = tuple(map(type, call.scalars))
    outputs = op.infer(call.attributes, metas, kinds).outputs
    return signatures_of(Call(op, call.attributes, metas, outputs, ranks))


def _sums_bools(call: Recorded, signature: Signature) -> bool:
    pairs = zip(call.operands, signature.inputs, strict=True)
    return any([sbp == partial_sum and each.dtype.kind == "b" for each, sbp in pairs])


def _named() -> list[str]:
    return sorted([name for name, op in OPS.items() if isinstance(op, ViewExpr) or has_rule(op)])


def test_every_op_has_a_rule_or_a_reason() -> None:
    draws = {name for name, op in OPS.items() if op.form is not None and op.form.draws and op.form.inputs == 0}
    makes = {name for name, op in OPS.items() if op.form is not None and op.form.inputs == 0}
    assert set(WITHOUT_RULE) == set(OPS) - set(_named()) - draws - makes - {"fused", "dropout"}


@pytest.mark.parametrize("name", _named())
@pytest.mark.parametrize("ranks", [3, *[pytest.param(count, marks=pytest.mark.exhaustive) for count in (2, 4)]])
def test_every_signature_is_right(name: str, ranks: int) -> None:
    found = [
        f"{call}: {[*map(str, signature.inputs)]} -> {[*map(str, signature.outputs)]}: {reason}"
        for number, call in enumerate(calls().get(name, []))
        for signature in listed(call, ranks)
        if not _sums_bools(call, signature)
        if (reason := wrong(call, _whole(number, name), signature, ranks))
    ]
    assert not found, f"{len(found)}\n" + "\n".join(found[:20])


def _search(call: Recorded, whole: list[Array], ranks: int) -> set[Signature]:
    """All signatures that are right, without those of which some operand could as well be broadcast."""
    sums = all([each.dtype.kind in "fc" for each in whole])
    choices = [
        [broadcast, *([partial_sum] if sums and each.dtype.kind in "fc" else []), *map(split, range(each.ndim))]
        for each in call.operands
    ]
    results = [[broadcast, partial_sum, *[split(dim) for dim in range(each.ndim)]] for each in whole]
    found = set()
    for inputs in product(*choices):
        if all([sbp == broadcast for sbp in inputs]):
            continue
        for outs in product(*results):
            signature = Signature(inputs, outs)
            if not wrong(call, whole, signature, ranks) and not wrong(call, whole, signature, ranks + 1):
                found.add(signature)
    return found


def _of_no_use(call: Recorded, signature: Signature) -> bool:
    """Whether it splits a dimension of one element, which only one rank then has."""
    return any(
        [sbp.is_split and each.shape[sbp.dim] < 2 for sbp, each in zip(signature.inputs, call.operands, strict=True)]
    )


def _searched(name: str) -> list[tuple[int, Recorded]]:
    """The calls of few operands, none of which is small."""
    found = []
    for number, call in enumerate(calls().get(name, [])):
        whole = _whole(number, name)
        count = prod([each.ndim + 2 for each in (*call.operands, *whole)])
        arrays = [each for each in (*call.operands, *whole) if each.ndim]
        if arrays and count <= 2000 and all([each.size > 3 for each in arrays]):
            found.append((number, call))
    return found[:3]


@pytest.mark.parametrize("name", exhaustive_but_for_some([name for name in _named() if name not in NOT_LISTED], 3))
def test_no_signature_is_missing(name: str) -> None:
    for number, call in _searched(name):
        table = {signature._replace(like=None) for signature in listed(call, 3)}
        missing = [
            each for each in _search(call, _whole(number, name), 3) if each not in table and not _of_no_use(call, each)
        ]
        shown = [f"{[*map(str, each.inputs)]} -> {[*map(str, each.outputs)]}" for each in missing]
        assert not missing, f"{call}: " + "; ".join(shown)
