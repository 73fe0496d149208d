"""Signatures against a search: each in the table is right for the numbers, and none is missing without a reason."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import vmflow as flow
from vmflow import interpreter
from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, share, split
from vmflow.distributed.signatures import Signature, signatures_of, view_signatures
from vmflow.distributed.spread import whole_meta
from vmflow.ops.table import OPS, OpExpr, ViewExpr
from vmflow.tensor_fields import meta_of

pytestmark = pytest.mark.host

RANKS = [2, 3, 4]


class Sample(NamedTuple):
    """A call of an op."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: tuple[Any, ...] = ()
    scalars: tuple[Any, ...] = ()
    dtypes: tuple[flow.dtype, ...] = ()

    @property
    def op(self) -> OpExpr:
        return OPS[self.name]

    def operands(self) -> list[np.ndarray]:
        """Small numbers without zeros, so that divisions and logarithms are defined."""
        chance = np.random.default_rng(zlib.crc32(repr(self[:3]).encode()))
        found = []
        for place, shape in enumerate(self.shapes):
            dtype = self.dtypes[place] if self.dtypes else flow.float64
            if dtype is flow.float64:
                found.append(chance.uniform(0.1, 0.9, shape))
            else:
                found.append(chance.integers(0, 2, shape).astype(dtype.numpy))
        return found


def run(sample: Sample, operands: list[np.ndarray]) -> list[np.ndarray]:
    tensors = tuple([flow.tensor(each) for each in operands])
    op = sample.op
    if isinstance(op, ViewExpr):
        return [interpreter.dispatch_view(op, tensors[0], sample.attributes).numpy()]
    return [each.numpy() for each in interpreter.dispatch_several(op, tensors, sample.attributes, sample.scalars)]


def parts(array: np.ndarray, sbp: Sbp, ranks: int, seed: int) -> list[np.ndarray]:
    if sbp.is_split:
        places = [share(array.shape[sbp.dim], ranks, place) for place in range(ranks)]
        return [array[(*[slice(None)] * sbp.dim, slice(start, start + length))] for start, length in places]
    if sbp == broadcast:
        return [array] * ranks
    chance = np.random.default_rng(seed)
    summands = [chance.normal(size=array.shape) for _ in range(ranks - 1)]
    return [*summands, array - sum(summands)]


def put_together(arrays: list[np.ndarray], sbp: Sbp, shape: tuple[int, ...]) -> np.ndarray | None:
    """The whole, or None if they do not make one of this shape."""
    if sbp == broadcast:
        return arrays[0] if all([_close(each, arrays[0]) for each in arrays]) else None
    if sbp == partial_sum:
        same = len({each.shape for each in arrays}) == 1
        return np.sum(arrays, 0) if same and arrays[0].dtype.kind == "f" else None
    if any([each.ndim <= sbp.dim for each in arrays]):
        return None
    sizes = [share(shape[sbp.dim], len(arrays), place)[1] for place in range(len(arrays))]
    if [each.shape[sbp.dim] for each in arrays] != sizes:
        return None
    try:
        return np.concatenate(arrays, sbp.dim)
    except ValueError:
        return None


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    scale = float(np.nan_to_num(np.abs(other.astype(np.float64))).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=1e-7, atol=1e-12 * scale, equal_nan=True))


def is_right(sample: Sample, signature: Signature, ranks: int) -> bool:
    """Whether computing part by part gives the parts of what the whole gives."""
    operands = sample.operands()
    whole = run(sample, operands)
    spread = zip(operands, signature.inputs, strict=True)
    given = [parts(each, sbp, ranks, place) for place, (each, sbp) in enumerate(spread)]
    results = []
    for rank in range(ranks):
        local = [each[rank] for each in given]
        own = sample
        if sample.name in ("reshape", "expand"):
            sizes = list(sample.attributes[0])
            (sbp,) = signature.outputs
            if sbp.is_split:
                if sbp.dim >= len(sizes):
                    return False
                sizes[sbp.dim] = share(sizes[sbp.dim], ranks, rank)[1]
            if sample.name == "reshape" and np.prod(sizes) != local[0].size:
                return False
            own = sample._replace(attributes=(tuple(sizes),))
        try:
            results.append(run(own, local))
        except (ValueError, RuntimeError, IndexError, TypeError, AssertionError):
            return False
    for place, (sbp, wanted) in enumerate(zip(signature.outputs, whole, strict=True)):
        found = put_together([each[place] for each in results], sbp, wanted.shape)
        if found is None or not _close(found, wanted):
            return False
    return True


def listed(sample: Sample, ranks: int) -> list[Signature]:
    tensors = [flow.tensor(each) for each in sample.operands()]
    metas = tuple([whole_meta(meta_of(tensor)) for tensor in tensors])
    op = sample.op
    if isinstance(op, ViewExpr):
        shape, _, _ = op.view(sample.attributes, tuple(metas[0].shape), metas[0].strides, 0)
        return view_signatures(op, sample.attributes, metas[0], shape, ranks)
    kinds = tuple(map(type, sample.scalars))
    outputs = op.infer(sample.attributes, metas, kinds).outputs
    return signatures_of(op, sample.attributes, metas, outputs)


SAMPLES = [
    Sample("matmul", ((5, 7), (7, 3))),
    Sample("matmul", ((7,), (7, 3))),
    Sample("matmul", ((5, 7), (7,))),
    Sample("matmul", ((7,), (7,))),
    Sample("matmul", ((4, 5, 7), (4, 7, 3))),
    Sample("matmul", ((4, 5, 7), (7, 3))),
    Sample("matmul", ((4, 1, 5, 7), (3, 7, 3))),
    Sample("linear", ((5, 7), (3, 7))),
    Sample("linear", ((5, 7), (3, 7), (3,))),
    Sample("linear", ((4, 5, 7), (6, 7), (6,))),
    *[
        Sample("linear_gradient", ((4, 5, 6), (4, 5, 7), (6, 7)), wanted)
        for wanted in product((True, False), repeat=3)
        if any(wanted)
    ],
    *[
        Sample(name, ((5, 6, 7),), (dims, keepdim))
        for name in ("sum", "mean", "prod", "amax", "amin", "norm")
        for dims in ((0,), (1, 2), (0, 1, 2))
        for keepdim in (False, True)
    ],
    *[Sample(name, ((5, 6, 7),), (dim, False)) for name in ("argmax", "argmin") for dim in (0, 2)],
    *[Sample(name, ((5, 6, 7),), (dim,)) for name in ("softmax", "log_softmax", "cummax") for dim in (0, 1, 2)],
    *[Sample("cumsum", ((5, 6, 7),), (dim, False)) for dim in (0, 2)],
    *[Sample("cat", ((5, 6), (5, 6)), (dim,)) for dim in (0, 1)],
    Sample("where", ((5, 7), (5, 7), (7,)), (), (), (flow.bool_, flow.float64, flow.float64)),
    Sample("permute", ((5, 6, 7),), ((2, 0, 1),)),
    Sample("reshape", ((4, 6, 5),), ((24, 5),)),
    Sample("reshape", ((24, 5),), ((4, 6, 5),)),
    Sample("reshape", ((4, 6, 5),), ((4, 5, 6),)),
    Sample("reshape", ((6, 5),), ((6, 1, 5),)),
    Sample("expand", ((1, 5),), ((4, 6, 5),)),
    Sample("slice", ((5, 6, 7),), (1, 1, 3, 2)),
    Sample("add", ((5, 7), (5, 7))),
    Sample("add", ((5, 7), (7,))),
    Sample("add", ((5, 1), (1, 7))),
    Sample("sub", ((1, 7), (5, 7))),
    Sample("mul", ((5, 7), (5, 1))),
    Sample("div", ((5, 7), (7,))),
    Sample("mul_scalar", ((5, 7),), (), (2.5,)),
    Sample("add_scalar", ((5, 7),), (), (2.5,)),
    Sample("neg", ((5, 7),)),
]


def _elementwise() -> Iterator[Sample]:
    """All ops that are computed element by element, with as many operands as they take."""
    for name, op in sorted(OPS.items()):
        if op.family not in ("elementwise", "special", "fused", "loss"):
            continue
        for count, scalars in product((1, 2, 3), ((), (2.0,), (0.25, 2.0))):
            for attributes in ((), ((True,) * count,), (1,)):
                sample = Sample(name, ((4, 5),) * count, attributes, scalars)
                try:
                    found = run(sample, sample.operands())
                except Exception:  # it does not take so many
                    continue
                if any([each.dtype == object for each in found]):
                    continue
                yield sample
                break
            else:
                continue
            break


ALL = [*SAMPLES, *_elementwise()]


@pytest.mark.parametrize("ranks", RANKS)
def test_every_signature_is_right(ranks: int) -> None:
    assert len(ALL) > 150
    wrong = [
        f"{sample}: {[str(sbp) for sbp in signature.inputs]} -> {[str(sbp) for sbp in signature.outputs]}"
        for sample in ALL
        for signature in listed(sample, ranks)
        if not is_right(sample, signature, ranks)
    ]
    assert not wrong, "\n".join(wrong)


def _search(sample: Sample, ranks: int) -> set[Signature]:
    """All signatures that are right, without those of which some operand could as well be broadcast."""
    operands = sample.operands()
    outputs = run(sample, operands)
    choices = [[broadcast, partial_sum, *[split(dim) for dim in range(each.ndim)]] for each in operands]
    results = [[partial_sum, *[split(dim) for dim in range(each.ndim)]] for each in outputs]
    found = set()
    for inputs in product(*choices):
        for outs in product(*[[broadcast, *each] for each in results]):
            if all([sbp == broadcast for sbp in inputs]) or (
                partial_sum in outs and broadcast in outs and len(outs) == 1
            ):
                continue
            signature = Signature(inputs, outs)
            if is_right(sample, signature, ranks):
                found.add(signature)
    return found


def _of_no_use(sample: Sample, signature: Signature) -> bool:
    """Whether it splits a dimension of one element, which only one rank then has."""
    return any(
        [sbp.is_split and shape[sbp.dim] == 1 for sbp, shape in zip(signature.inputs, sample.shapes, strict=True)]
    )


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.name != "linear_gradient"], ids=lambda s: f"{s.name}{s.shapes}{s.attributes}"
)
def test_no_signature_is_missing(sample: Sample) -> None:
    table = set(listed(sample, 3))
    missing = [each for each in _search(sample, 3) if each not in table and not _of_no_use(sample, each)]
    shown = [f"{list(map(str, each.inputs))} -> {list(map(str, each.outputs))}" for each in missing]
    assert not missing, f"{sample}: " + "; ".join(shown)
