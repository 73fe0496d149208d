"""Rows for the ops that no row of a family's own file is about: layers, losses, orders, and what backward passes run.

What these compute in float64 is compared with numpy or with loops in the files of their families.  Here the other
dtypes, shapes and layouts are compared with that, so that an op is right in all of them if it is in one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import vmflow as flow
import vmflow.nn.functional as F
from vmflow.ops.class_loss import nll_loss

from .oracle import ALL, FRACTIONAL, INTEGERS, NUMBERS, ONE, ORDERED, REAL, Array, Row, Shapes

PLANES: Final[tuple[Shapes, ...]] = (((2, 3, 6, 5),), ((0, 3, 6, 5),), ((1, 1, 6, 6),))
VECTORS: Final[tuple[Shapes, ...]] = (((3, 4),), ((0, 4),), ((1, 4),), ((4,),))
BATCHES: Final = VECTORS[:3]
DENSE: Final[tuple[Shapes, ...]] = (((3, 4), (2, 4)), ((0, 4), (2, 4)), ((4,), (2, 4)))
IMAGES: Final[tuple[Shapes, ...]] = (((2, 2, 5, 4), (3, 2, 2, 3)), ((0, 2, 5, 4), (3, 2, 2, 3)))


def widely(call: Callable[..., flow.Tensor]) -> Callable[..., Array]:
    """What the call gives for the widest dtype, as an oracle for the others."""

    def oracle(*arrays: Array) -> Array:
        return np.asarray(call(*[flow.tensor(it) for it in arrays]).detach().numpy())

    return oracle


def _row(op: str, call: Callable[..., flow.Tensor], *rest: Any, **options: Any) -> Row:
    options.setdefault("tolerance", 3e-2)
    return Row(op, call, widely(call), *rest, **options)


def gradient_of(call: Callable[..., flow.Tensor], place: int = 0, smooth: bool = False) -> Callable[..., flow.Tensor]:
    """From tensors to the gradient of one of them, for a result weighted by the squares of its elements.

    With `smooth`, the gradient is made of ops that have gradients of their own.
    """

    def gradient(*tensors: flow.Tensor) -> flow.Tensor:
        leaves = [it.detach().requires_grad_() for it in tensors]
        result = call(*leaves)
        found = flow.autograd.grad((result * result).sum(), leaves, create_graph=smooth)[place]
        assert found is not None
        return found.detach()

    return gradient


def _classes(x: flow.Tensor) -> flow.Tensor:
    return flow.arange(x.shape[0]) % x.shape[1] if x.ndim > 1 else flow.tensor(1)


def _probable(x: flow.Tensor) -> flow.Tensor:
    return flow.full_like(x, 0.25)


def _statistics(x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
    count = x.shape[1]
    return flow.full((count,), 0.5, dtype=x.dtype), flow.full((count,), 2.0, dtype=x.dtype)


def _kept(x: flow.Tensor) -> flow.Tensor:
    """Which elements a seeded dropout keeps depends on nothing but their number."""
    flow.manual_seed(3)
    return F.dropout(x, 0.5)


def _sorted_places(x: Array) -> Array:
    return np.argsort(x, -1, kind="stable") if x.ndim else np.zeros((), int)


def _commonest(x: Array) -> Array:
    def of_row(row: Array) -> Any:
        found, counts = np.unique(row, return_counts=True)
        return found[np.argmax(counts)]

    if not x.size:
        return x[..., 0]
    return np.apply_along_axis(of_row, -1, x) if x.ndim else x


def _there_and_back(x: flow.Tensor) -> flow.Tensor:
    return x.to("sim" if x.device.type == "cpu" else "cpu").to(x.device)


def _found() -> flow.Tensor:
    return flow.tensor([[2, 0], [1, 2]])


def _limited(x: flow.Tensor, index: flow.Tensor) -> flow.Tensor:
    weight = x.clone()
    F.embedding(index, weight, max_norm=1.0)
    return weight


def _assigned(x: flow.Tensor) -> flow.Tensor:
    buffer = x * 0
    buffer[..., 1] = x[..., 0]
    return buffer


def _pooled_gradient(x: flow.Tensor) -> flow.Tensor:
    (found,) = flow.autograd.grad((F.max_pool2d(x, 2) ** 2).sum(), x, create_graph=True)
    assert found is not None
    return found


_POOLED: Final = (*REAL, *INTEGERS)


def _lookups(label: str, index: Callable[[], flow.Tensor]) -> list[Row]:
    def look(x: flow.Tensor) -> flow.Tensor:
        return F.embedding(index(), x)

    tables: tuple[Shapes, ...] = (((3, 4),), ((3, 0),))
    return [
        _row("embedding", look, ALL, shapes=tables, order=2, graded=((3, 2),), label=label),
        _row("embedding_gradient", gradient_of(look), FRACTIONAL, shapes=tables, label=label),
        _row("embedding_limit_norms", lambda x: _limited(x, index()), REAL, shapes=tables, label=label),
    ]


ROWS: Final[list[Row]] = [
    Row("to_device", _there_and_back, lambda x: x, ALL, order=2),
    # Orders
    Row("argsort", lambda x: x.argsort(stable=True), _sorted_places, ORDERED, "int64"),
    Row(
        "topk",
        lambda x: x.topk(2, 0).values,
        lambda x: np.flip(np.sort(x, 0), 0)[:2],
        ORDERED,
        shapes=(((5,),), ((3, 4),), ((2, 3, 4),), ((3, 0),)),
    ),
    Row("topk", lambda x: x.topk(1).indices, np.zeros_like, ORDERED, "int64", shapes=(((1, 1),), ((),)), label="-0"),
    Row(
        "element_of_rank",
        lambda x: x.median(),
        lambda x: np.sort(x, None)[(x.size - 1) // 2],
        ORDERED,
        shapes=(((5,),), ((),), ((3, 4),)),
    ),
    Row(
        "element_of_rank",
        lambda x: x.median(-1).values,
        lambda x: np.sort(x, -1)[..., (x.shape[-1] - 1) // 2] if x.ndim else x,
        ORDERED,
        shapes=(((5,),), ((),), ((3, 4),), ((0, 4),)),
        label="-last",
    ),
    Row("mode", lambda x: x.mode().values, _commonest, ORDERED, shapes=(((5,),), ((),), ((3, 4),), ((2, 0, 3),))),
    Row(
        "histogram",
        lambda x: x.histc(4, -3, 3),
        lambda x: np.histogram(x, 4, (-3, 3))[0],
        REAL,
        shapes=(((5,),), ((),), ((0,),), ((3, 4),)),
    ),
    # Backward passes
    _row("recurrence", gradient_of(lambda x: x.cumprod(-1)), FRACTIONAL, shapes=VECTORS, domain=((0.5, 1.5),)),
    _row("strided_get", gradient_of(_assigned), FRACTIONAL, shapes=VECTORS),
    # Losses
    _row(
        "binary_cross_entropy",
        lambda x: F.binary_cross_entropy(x, _probable(x), reduction="none"),
        REAL,
        domain=((0.1, 0.9),),
        order=2,
    ),
    _row(
        "binary_cross_entropy_with_logits",
        lambda x: F.binary_cross_entropy_with_logits(x, _probable(x), reduction="none"),
        REAL,
        order=2,
    ),
    _row("nll_loss", lambda x: nll_loss(x, _classes(x), reduction="none"), REAL, shapes=VECTORS, order=2),
    _row("nll_loss_gradient", gradient_of(lambda x: nll_loss(x, _classes(x), reduction="none")), REAL, shapes=VECTORS),
    _row("cross_entropy", lambda x: F.cross_entropy(x, _classes(x), reduction="none"), REAL, shapes=VECTORS, order=2),
    _row(
        "cross_entropy_gradient",
        gradient_of(lambda x: F.cross_entropy(x, _classes(x), reduction="none")),
        REAL,
        shapes=VECTORS,
    ),
    # Layers
    _row(
        "linear",
        F.linear,
        NUMBERS,
        shapes=(((3, 4), (2, 4)), ((4,), (2, 4)), ((0, 4), (2, 4)), ((2, 3, 4), (1, 4))),
        order=2,
    ),
    _row(
        "linear_gradient", gradient_of(F.linear, 1), REAL, shapes=(((3, 4), (2, 4)), ((0, 4), (2, 4)), ((4,), (2, 4)))
    ),
    *_lookups("", _found),
    *_lookups("-line", lambda: flow.tensor([2, 0, 2])),
    *_lookups("-one", lambda: flow.tensor(1)),
    _row("dropout", _kept, FRACTIONAL, order=2),
    _row("dropout_gradient", gradient_of(_kept), FRACTIONAL),
    _row("pad", lambda x: F.pad(x, (1, 2)), ALL, shapes=ONE[1:], order=2),
    _row(
        "batch_norm",
        lambda x: F.batch_norm(x, None, None, training=True),
        REAL,
        shapes=(PLANES[0], ((2, 0, 3),)),
        order=1,
    ),
    _row(
        "batch_norm_gradient",
        gradient_of(lambda x: F.batch_norm(x, None, None, training=True) * x),
        REAL,
        shapes=(PLANES[0], ((2, 0, 3),)),
        tolerance=0.1,
    ),
    _row("batch_norm_inference", lambda x: F.batch_norm(x, *_statistics(x)), REAL, shapes=PLANES, order=2),
    _row("layer_norm", lambda x: F.layer_norm(x, (4,)), REAL, shapes=VECTORS, order=1, graded=((2, 4),)),
    _row("layer_norm_gradient", gradient_of(lambda x: F.layer_norm(x, (4,)) * x), REAL, shapes=VECTORS),
    _row("conv2d", F.conv2d, REAL, shapes=IMAGES, order=2, graded=((1, 1, 3, 3), (2, 1, 2, 2))),
    _row("conv2d_with_columns", lambda x, y: F.conv2d(x, y.clone().requires_grad_()), REAL[:2], shapes=IMAGES),
    _row("conv2d_gradient", gradient_of(F.conv2d, 1), REAL, shapes=IMAGES, tolerance=0.1),
    _row("conv2d_input_gradient", gradient_of(F.conv2d, 0, smooth=True), REAL, shapes=IMAGES, tolerance=0.1),
    _row("conv2d_weight_gradient", gradient_of(F.conv2d, 1, smooth=True), REAL, shapes=IMAGES, tolerance=0.1),
    _row("max_pool2d", lambda x: F.max_pool2d(x, 2), _POOLED, shapes=PLANES),
    _row(
        "max_pool2d_with_indices", lambda x: F.max_pool2d(x, 2, return_indices=True)[0], _POOLED, shapes=PLANES, order=2
    ),
    _row("plane_scatter", gradient_of(lambda x: F.max_pool2d(x, 2)), REAL, shapes=PLANES),
    _row("plane_gather", gradient_of(_pooled_gradient), REAL, shapes=PLANES),
    _row("avg_pool2d", lambda x: F.avg_pool2d(x, 2), REAL, shapes=PLANES, order=2),
    _row("avg_pool2d_gradient", gradient_of(lambda x: F.avg_pool2d(x, 2)), REAL, shapes=PLANES),
    _row("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 2), REAL, shapes=PLANES, order=2),
    _row("adaptive_avg_pool2d_gradient", gradient_of(lambda x: F.adaptive_avg_pool2d(x, 2)), REAL, shapes=PLANES),
]
