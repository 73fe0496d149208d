"""Rows for ops without a row in a family's own file: layers, losses, orders, and the ops of backward passes.

The files of their families compare results in float64 with numpy or with loops.  Here the other dtypes, shapes and
layouts are compared with float64, so that an op is right in all of them if it is in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import vmflow as flow
import vmflow.nn.functional as F
from vmflow import interpreter
from vmflow.kernels.native.loading import LOADER
from vmflow.ops.loss.class_loss import nll_loss
from vmflow.ops.nn.recurrent import GATES, Layer, composed_layer, recurrent_layer
from vmflow.ops.table import OPS

from .oracle import ALL, FRACTIONAL, INTEGERS, NUMBERS, ONE, ORDERED, REAL, Array, Row, Shapes

# By the number of spatial dimensions: inputs of pooling, inputs and weights of convolutions, and both for gradients.
POOLED: Final[dict[int, tuple[Shapes, ...]]] = {
    1: (((2, 3, 7),), ((0, 3, 7),), ((1, 1, 6),), ((3, 5),)),
    2: (((2, 3, 6, 5),), ((0, 3, 6, 5),), ((1, 1, 6, 6),), ((3, 6, 5),)),
    3: (((2, 2, 4, 5, 3),), ((0, 2, 4, 5, 3),), ((1, 1, 4, 4, 4),), ((2, 4, 5, 3),)),
}
POOLED_SMALL: Final[dict[int, Shapes]] = {1: ((1, 2, 5),), 2: ((1, 1, 3, 4),), 3: ((1, 1, 3, 2, 3),)}
CONVOLVED: Final[dict[int, tuple[Shapes, ...]]] = {
    1: (((2, 2, 6), (3, 2, 3)), ((0, 2, 6), (3, 2, 3)), ((2, 6), (3, 2, 1))),
    2: (((2, 2, 5, 4), (3, 2, 2, 3)), ((0, 2, 5, 4), (3, 2, 2, 3)), ((2, 5, 4), (3, 2, 1, 1))),
    3: (((2, 2, 4, 3, 3), (3, 2, 2, 2, 3)), ((0, 2, 4, 3, 3), (3, 2, 2, 2, 3)), ((2, 4, 3, 3), (3, 2, 1, 1, 1))),
}
CONVOLVED_SMALL: Final[dict[int, Shapes]] = {
    1: ((1, 2, 4), (2, 2, 2)),
    2: ((1, 1, 3, 3), (2, 1, 2, 2)),
    3: ((1, 1, 2, 3, 2), (1, 1, 2, 2, 1)),
}
PLANES: Final = POOLED[2][:3]
VECTORS: Final[tuple[Shapes, ...]] = (((3, 4),), ((0, 4),), ((1, 4),), ((4,),))
BATCHES: Final = VECTORS[:3]
DENSE: Final[tuple[Shapes, ...]] = (((3, 4), (2, 4)), ((0, 4), (2, 4)), ((4,), (2, 4)))
COLUMNS: Final[tuple[Shapes, ...]] = (((2, 12, 6),), ((0, 12, 6),), ((4, 6),))
LOGARITHMS: Final[tuple[Shapes, ...]] = (((5, 2, 4),), ((5, 0, 4),), ((5, 4),), ((5, 1, 3),))
ATTENDED: Final[tuple[Shapes, ...]] = (
    ((2, 3, 4), (2, 5, 4), (2, 5, 2)),
    ((3, 4), (2, 5, 4), (5, 2)),
    ((0, 3, 4), (0, 5, 4), (0, 5, 2)),
    ((3, 4), (0, 4), (0, 2)),
    ((0, 4), (5, 4), (5, 2)),
)
MASKED: Final[tuple[Shapes, ...]] = tuple([(*value, (value[0][-2], value[1][-2])) for value in ATTENDED])


def _gelu_gradient(gradient: Array, x: Array) -> Array:
    chance = np.vectorize(math.erfc, otypes=[np.float64])(-x / math.sqrt(2)) / 2
    return np.asarray(gradient * (chance + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)))


def widely(call: Callable[..., flow.Tensor]) -> Callable[..., Array]:
    """The call's result in the widest dtype, as an oracle for the others."""

    def oracle(*arrays: Array) -> Array:
        return np.asarray(call(*[flow.tensor(array) for array in arrays]).detach().numpy())

    return oracle


def _row(op: str, call: Callable[..., flow.Tensor], *rest: Any, **options: Any) -> Row:
    options.setdefault("tolerance", 3e-2)
    return Row(op, call, widely(call), *rest, **options)


def gradient_of(call: Callable[..., flow.Tensor], place: int = 0, smooth: bool = False) -> Callable[..., flow.Tensor]:
    """From tensors to the gradient of one of them, for a result weighted by the squares of its elements.

    With `smooth`, the gradient is made of ops that have gradients of their own.
    """

    def gradient(*tensors: flow.Tensor) -> flow.Tensor:
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
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


def _gathered(x: flow.Tensor) -> flow.Tensor:
    """The largest elements, from where they were found to be."""
    _, places = F.max_pool2d(x.detach(), 2, return_indices=True)
    return interpreter.dispatch(OPS["plane_gather"], (x, places))


def _lookups(label: str, index: Callable[[], flow.Tensor]) -> list[Row]:
    def look(x: flow.Tensor) -> flow.Tensor:
        return F.embedding(index(), x)

    tables: tuple[Shapes, ...] = (((3, 4),), ((3, 0),))
    return [
        _row("embedding", look, ALL, shapes=tables, order=2, graded=((3, 2),), label=label),
        _row("embedding_gradient", gradient_of(look), FRACTIONAL, shapes=tables, label=label),
        _row("embedding_limit_norms", lambda x: _limited(x, index()), REAL, shapes=tables, label=label),
    ]


def _convolutions(rank: int, function: Callable[..., flow.Tensor], label: str = "", **options: int) -> list[Row]:
    name = f"conv{rank}d"
    given: dict[str, Any] = {"shapes": CONVOLVED[rank], "label": label}
    # Products of products cancel out, which half precision bears for small numbers only.
    narrow: dict[str, Any] = {**given, "domain": ((-1.0, 1.0),), "tolerance": 0.1}

    def call(x: flow.Tensor, weight: flow.Tensor) -> flow.Tensor:
        return function(x, weight, **options)

    def recorded(x: flow.Tensor, weight: flow.Tensor) -> flow.Tensor:
        # Kernels in C keep no columns.
        before, LOADER.mode = LOADER.mode, "off"
        try:
            return call(x, weight.clone().requires_grad_())
        finally:
            LOADER.mode = before

    return [
        _row(name, call, REAL, order=2, graded=CONVOLVED_SMALL[rank], **given),
        _row(f"{name}_with_columns", recorded, REAL[:2], **given),
        _row(f"{name}_gradient", gradient_of(call, 1), REAL, **narrow),
        _row(f"{name}_input_gradient", gradient_of(call, 0, smooth=True), REAL, **narrow),
        _row(f"{name}_weight_gradient", gradient_of(call, 1, smooth=True), REAL, **narrow),
    ]


def _poolings(
    rank: int, largest: Callable[..., Any], mean: Callable[..., flow.Tensor], label: str, *window: int
) -> list[Row]:
    shapes, whole = POOLED[rank], (*REAL, *INTEGERS)
    graded: dict[str, Any] = {"order": 2, "graded": POOLED_SMALL[rank], "label": label}

    def average(x: flow.Tensor) -> flow.Tensor:
        return mean(x, *window)

    def indexed(x: flow.Tensor) -> flow.Tensor:
        found: flow.Tensor = largest(x, *window, return_indices=True)[0]
        return found

    return [
        _row(f"max_pool{rank}d", lambda x: largest(x, *window), whole, shapes=shapes, label=label),
        _row(f"max_pool{rank}d_with_indices", indexed, whole, shapes=shapes, **graded),
        _row(f"avg_pool{rank}d", average, REAL, shapes=shapes, **graded),
        _row(f"avg_pool{rank}d_gradient", gradient_of(average), REAL, shapes=shapes, label=label),
    ]


def _adaptive(rank: int, largest: Callable[..., Any], mean: Callable[..., flow.Tensor]) -> list[Row]:
    """Rows for sizes that two does not divide; other sizes run the ordinary ops."""
    name, shapes = f"pool{rank}d", POOLED[rank]
    graded: dict[str, Any] = {"order": 2, "graded": POOLED_SMALL[rank]}
    return [
        _row(f"adaptive_max_{name}", lambda x: largest(x, 2), (*REAL, *INTEGERS), shapes=shapes, **graded),
        _row(f"adaptive_avg_{name}", lambda x: mean(x, 2), REAL, shapes=shapes, **graded),
        _row(f"adaptive_avg_{name}_gradient", gradient_of(lambda x: mean(x, 2)), REAL, shapes=shapes),
    ]


def _unfolded(x: flow.Tensor) -> flow.Tensor:
    return F.unfold(x, 2, padding=1, stride=(1, 2))


def _folded(x: flow.Tensor) -> flow.Tensor:
    return F.fold(x, (3, 4), 2)


def _borders(mode: str) -> list[Row]:
    def call(x: flow.Tensor) -> flow.Tensor:
        return F.pad(x, (2, 1), mode)

    shapes: tuple[Shapes, ...] = (((3, 4),), ((1, 4),), ((0, 4),), ((2, 3, 4),))
    label = f"-{mode}"
    return [
        Row("pad_borders", call, widely(call), ALL, shapes=shapes, order=2, graded=((2, 3),), label=label),
        _row("pad_borders_gradient", gradient_of(call), FRACTIONAL, shapes=shapes, label=label),
    ]


def _resampled(mode: str, rank: int) -> list[Row]:
    def call(x: flow.Tensor) -> flow.Tensor:
        return F.interpolate(x, (4, 3, 5)[:rank], mode=mode)

    return [
        _row("resample", call, REAL, shapes=POOLED[rank][:3], order=2, graded=POOLED_SMALL[rank], label=f"-{mode}"),
        _row("resample", gradient_of(call), REAL, shapes=POOLED[rank][:3], label=f"-{mode}-gradient"),
    ]


def _recurrent_shapes(layer: Layer, steps: int, batch: int, features: int, hidden: int) -> Shapes:
    gates = GATES[layer.kind] * hidden
    state = ((batch, hidden),) * layer.states
    return ((steps, batch, features), *state, (gates, features), (gates, hidden), (gates,), (gates,))


def _recurrences(kind: str) -> list[Row]:
    """All results of a layer as one vector, and its gradient by each operand, against a layer of plain ops."""
    layer = Layer(kind, False, True, False)
    family, _, activation = kind.partition("_")
    name, label = f"{family}_layer", f"-{activation}" if activation else ""

    def call(*operands: flow.Tensor) -> flow.Tensor:
        return flow.cat([tensor.reshape(-1) for tensor in recurrent_layer(layer, *operands)])

    def composed(*operands: flow.Tensor) -> flow.Tensor:
        return flow.cat([tensor.reshape(-1) for tensor in composed_layer(layer, *operands)])

    shapes = tuple([_recurrent_shapes(layer, *value) for value in ((3, 2, 3, 2), (3, 0, 3, 2), (1, 1, 1, 1))])
    options: dict[str, Any] = {"shapes": shapes, "domain": ((-1.0, 1.0),), "tolerance": 3e-2}
    small = _recurrent_shapes(layer, 2, 1, 2, 1)
    return [
        Row(name, call, widely(composed), REAL, order=2, graded=small, label=label, **options),
        *[
            Row(
                f"{name}_gradient",
                gradient_of(call, place),
                widely(gradient_of(composed, place)),
                REAL,
                label=f"{label}-{place}",
                **options,
            )
            for place in range(5 + layer.states)
        ],
    ]


def _causal(query: flow.Tensor, key: flow.Tensor, value: flow.Tensor) -> flow.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _attentions(label: str, call: Callable[..., flow.Tensor], shapes: tuple[Shapes, ...]) -> list[Row]:
    name = "scaled_dot_product_attention"
    small: Shapes = ((2, 2), (3, 2), (3, 2))
    graded = small if len(shapes[0]) == 3 else (*small, (2, 3))
    gradients = [
        _row(f"{name}_gradient", gradient_of(call, place), REAL, shapes=shapes, tolerance=0.1, label=f"{label}-{place}")
        for place in range(len(shapes[0]))
    ]
    return [_row(name, call, REAL, shapes=shapes, order=2, graded=graded, label=label), *gradients]


def _aligned(x: flow.Tensor) -> flow.Tensor:
    batch = x.shape[1] if x.ndim == 3 else 1
    targets = flow.tensor([[1, 2], [1, 1]])[:batch]
    return F.ctc_loss(x, targets, [5, 4][:batch], [2, 2][:batch], reduction="none")


# The last bag is empty, and so is one in between.
_BAGS: Final = ((2, 0), (), (1,), (0, 1, 2), ())


def _largest_of_bags(weight: flow.Tensor) -> flow.Tensor:
    named = flow.tensor([value for bag in _BAGS for value in bag])
    starts = flow.tensor([sum([len(bag) for bag in _BAGS[:number]]) for number in range(len(_BAGS))])
    return F.embedding_bag(named, weight, starts, mode="max")


def _largest_of_each(weight: Array) -> Array:
    return np.stack([weight[list(bag)].max(0) if bag else np.zeros(weight.shape[1]) for bag in _BAGS])


def _empty_bags(offsets: flow.Tensor) -> flow.Tensor:
    return interpreter.dispatch(OPS["checked_offsets"], (flow.zeros_like(offsets),), (4,))


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
    _row("relu_gradient", gradient_of(lambda x: flow.relu(x) * x), REAL),
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
    *_convolutions(1, F.conv1d),
    *_convolutions(1, F.conv1d, "-strided", stride=2, padding=1),
    *_convolutions(1, F.conv1d, "-dilated", dilation=2, padding=1),
    *_convolutions(2, F.conv2d),
    *_convolutions(2, F.conv2d, "-strided", stride=2, padding=1),
    *_convolutions(2, F.conv2d, "-dilated", dilation=2, padding=1),
    *_convolutions(3, F.conv3d),
    *_convolutions(3, F.conv3d, "-strided", stride=2, padding=1),
    *_convolutions(3, F.conv3d, "-dilated", dilation=2, padding=1),
    *_poolings(1, F.max_pool1d, F.avg_pool1d, "", 2),
    *_poolings(1, F.max_pool1d, F.avg_pool1d, "-overlapping", 2, 1, 1),
    *_adaptive(1, F.adaptive_max_pool1d, F.adaptive_avg_pool1d),
    *_poolings(2, F.max_pool2d, F.avg_pool2d, "", 2),
    *_poolings(2, F.max_pool2d, F.avg_pool2d, "-overlapping", 2, 1, 1),
    *_adaptive(2, F.adaptive_max_pool2d, F.adaptive_avg_pool2d),
    *_poolings(3, F.max_pool3d, F.avg_pool3d, "", 2),
    *_poolings(3, F.max_pool3d, F.avg_pool3d, "-overlapping", 2, 1, 1),
    *_adaptive(3, F.adaptive_max_pool3d, F.adaptive_avg_pool3d),
    _row("plane_scatter", gradient_of(lambda x: F.max_pool2d(x, 2)), REAL, shapes=PLANES),
    Row(
        "plane_gather",
        _gathered,
        widely(lambda x: F.max_pool2d(x, 2)),
        (*REAL, *INTEGERS),
        shapes=PLANES,
        order=2,
        graded=POOLED_SMALL[2],
    ),
    _row("im2col", _unfolded, REAL, shapes=POOLED[2], order=2, graded=POOLED_SMALL[2]),
    _row("col2im", _folded, REAL, shapes=COLUMNS, order=2, graded=((1, 4, 6),)),
    *_borders("reflect"),
    *_borders("replicate"),
    *_borders("circular"),
    _row(
        "resample",
        lambda x: F.interpolate(x, (4, 3)),
        ORDERED,
        shapes=POOLED[2][:3],
        order=2,
        graded=POOLED_SMALL[2],
        label="-nearest",
    ),
    *_resampled("linear", 1),
    *_resampled("bilinear", 2),
    *_resampled("bicubic", 2),
    *_resampled("trilinear", 3),
    # Sequences
    *_recurrences("rnn_tanh"),
    *_recurrences("rnn_relu"),
    *_recurrences("lstm"),
    *_recurrences("gru"),
    *_attentions("", F.scaled_dot_product_attention, ATTENDED),
    *_attentions("-causal", _causal, ATTENDED),
    *_attentions("-masked", F.scaled_dot_product_attention, MASKED),
    _row("ctc_loss", _aligned, REAL, shapes=LOGARITHMS, domain=((-3.0, -0.5),)),
    _row("ctc_loss_gradient", gradient_of(_aligned), REAL, shapes=LOGARITHMS, domain=((-3.0, -0.5),), tolerance=0.1),
    Row(
        "gelu_gradient",
        lambda x, y: interpreter.dispatch(OPS["gelu_gradient"], (x, y)),
        _gelu_gradient,
        REAL,
        shapes=(((3, 4), (3, 4)), ((5,), (5,)), ((2, 0, 3), (2, 0, 3)), ((), ()), ((2, 1), (3,))),
        order=2,
    ),
    Row("checked_offsets", _empty_bags, np.zeros_like, INTEGERS, result="int64", shapes=(((5,),), ((0,),))),
    Row("largest_of_bag", _largest_of_bags, _largest_of_each, REAL, shapes=(((3, 4),), ((3, 0),), ((5, 1),))),
]
