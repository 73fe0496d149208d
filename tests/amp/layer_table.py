"""Every layer of `vmflow.nn`, made to fit the shape of its input, and the losses that end a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import vmflow as flow
from vmflow import nn

Shape = tuple[int, ...]
functional = nn.functional

# The shapes of a model's input: rows of features, lines, images and volumes with channels, all of even sizes.
INPUTS: Final[tuple[Shape, ...]] = ((6, 8), (2, 4, 8), (2, 4, 6, 6), (2, 4, 4, 4, 4))
# Rows of numbers of words.
TOKENS: Final[Shape] = (3, 8)
WORDS: Final = 11


def _called(module: Any, x: flow.Tensor) -> flow.Tensor:
    found: flow.Tensor = module(x)
    return found


class Layer(nn.Module):
    """A layer of any signature as a module from one tensor to one tensor."""

    def __init__(self, inner: Any, call: Callable[[Any, flow.Tensor], flow.Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.call = call

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return self.call(self.inner, x)


@dataclass(frozen=True)
class Entry:
    """A layer, or a loss of a model's prediction.

    Attributes:
        name: of the class.
        make: from the shape of the input to the module.
        ranks: of the inputs that it takes, empty for all.
        call: from the module and the input to one tensor.
        words: whether the input is of numbers of words, so that it can only come first.
        least: how many spatial elements it needs.
        label: distinguishes it from others of the class.
    """

    name: str
    make: Callable[[Shape], Any]
    ranks: tuple[int, ...] = ()
    call: Callable[[Any, flow.Tensor], flow.Tensor] = _called
    words: bool = False
    least: int = 0
    label: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.label}"

    def fits(self, shape: Shape, words: bool = False) -> bool:
        """Whether there is such a layer for inputs of this shape."""
        if words is not self.words or (self.ranks and len(shape) not in self.ranks):
            return False
        return math.prod(shape[2:]) >= self.least

    def build(self, shape: Shape) -> Layer:
        """The layer for inputs of this shape.

        Raises:
            ValueError, RuntimeError, TypeError: if there is none after all.
        """
        return Layer(self.make(shape), self.call)


def _of(name: str, make: Callable[[Any, Shape], Any]) -> Callable[[Shape], Any]:
    """From a shape to a layer, by a function of the class and the shape."""
    return lambda shape: make(getattr(nn, name), shape)


def _plain(*names: str, **settings: Any) -> list[Entry]:
    """Layers that take any shape and no arguments that matter."""
    return [Entry(name, _of(name, lambda k, s: k(**settings))) for name in names]


def _spatial(name: str, make: Callable[[Any, Shape], Any], **options: Any) -> list[Entry]:
    """The forms of a layer for lines, images and volumes."""
    found: list[Entry] = []
    for rank in (1, 2, 3):
        kind = f"{name}{rank}d"
        found.append(Entry(kind, _of(kind, make), ranks=(rank + 2,), **options))
    return found


def _first(module: Any, x: flow.Tensor) -> flow.Tensor:
    found: flow.Tensor = module(x)[0]
    return found


def _flat(module: Any, x: flow.Tensor) -> flow.Tensor:
    return _called(module, x.flatten(1))


def _cell(module: Any, x: flow.Tensor) -> flow.Tensor:
    """Two steps of a cell: its output and its state."""
    state = module(x, module(x))
    return flow.cat(list(state), -1) if isinstance(state, tuple) else state


def _attention(module: Any, x: flow.Tensor) -> flow.Tensor:
    result, weights = module(x, x, x)
    both: flow.Tensor = result + weights.sum()
    return both


def _twice(module: Any, x: flow.Tensor) -> flow.Tensor:
    return _called_with(module, x, x * 0.5 + 0.25)


def _called_with(module: Any, *operands: flow.Tensor) -> flow.Tensor:
    found: flow.Tensor = module(*operands)
    return found


class Unpooled(nn.Module):
    """Pooling and its inverse, which needs the indices."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.pool = getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)
        self.unpool = getattr(nn, f"MaxUnpool{rank}d")(2)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        found: flow.Tensor = self.unpool(*self.pool(x), output_size=tuple(x.shape))
        return found


def _unpooled() -> list[Entry]:
    found: list[Entry] = []
    for rank in (1, 2, 3):
        found.append(Entry(f"MaxUnpool{rank}d", partial(_unpooled_of, rank), ranks=(rank + 2,), least=2**rank))
    return found


def _unpooled_of(rank: int, shape: Shape) -> Unpooled:
    return Unpooled(rank)


def _weighted_bag(module: Any, words: flow.Tensor) -> flow.Tensor:
    """A bag whose weights are activations of another dtype than the table's."""
    scores = module.scores(module.bag.weight)[:, 0]
    found: flow.Tensor = module.bag(words, None, scores[words])
    return found


class WeightedBag(nn.Module):
    """A bag of words and the scores of each."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, 8, mode="sum")
        self.scores = nn.Linear(8, 1)


class CrossAttention(nn.Module):
    """Attention of a 16-bit query to keys that were not projected, with a mask of numbers."""

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        places = flow.linspace(-1, 1, x.shape[-2], dtype=flow.float32)
        return functional.scaled_dot_product_attention(x, x.float() * 0.5, x.float(), places - places.unsqueeze(-1))


class Warped(nn.Module):
    """An image looked at through a grid of float32, and distances of its rows."""

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        turned = functional.affine_grid(flow.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.9, 0.1]]] * x.shape[0]), list(x.shape))
        return functional.grid_sample(x, turned, align_corners=False)


class Distances(nn.Module):
    """The distances of rows from others of float32."""

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return flow.cdist(x, flow.linspace(-2, 3, 4 * x.shape[-1]).reshape(4, x.shape[-1]))


def _transformer(kind: str) -> Callable[[Shape], Any]:
    def make(shape: Shape) -> Any:
        width = shape[-1]
        if kind == "Transformer":
            return nn.Transformer(width, 2, 1, 1, 8, dropout=0.0)
        layer = getattr(nn, f"{kind}Layer" if not kind.endswith("Layer") else kind)(width, 2, 8, dropout=0.0)
        return layer if kind.endswith("Layer") else getattr(nn, kind)(layer, 1)

    return make


LAYERS: Final[list[Entry]] = [
    Entry("Linear", lambda s: nn.Linear(s[-1], 8)),
    Entry("QatLinear", lambda s: nn.QatLinear(s[-1], 8)),
    *_spatial("QatConv", lambda k, s: k(s[1], 4, 3, padding=1, per_layer_quantization=False)),
    Entry("Bilinear", lambda s: nn.Bilinear(s[-1], s[-1], 8), call=_twice),
    *_spatial("Conv", lambda k, s: k(s[1], 4, 3, padding=1)),
    *_spatial("Conv", lambda k, s: k(s[1], 4, 3, padding=1, padding_mode="circular", bias=False), label="-circular"),
    *_spatial("ConvTranspose", lambda k, s: k(s[1], 4, 2, stride=2)),
    Entry("Unfold", lambda s: nn.Unfold(2), ranks=(4,)),
    Entry("Fold", lambda s: nn.Fold((3, 5), 2), ranks=(3,)),
    *_spatial("MaxPool", lambda k, s: k(2)),
    *_spatial("AvgPool", lambda k, s: k(2)),
    Entry("FractionalMaxPool2d", lambda s: nn.FractionalMaxPool2d(2, 2), ranks=(4,)),
    Entry("FractionalMaxPool3d", lambda s: nn.FractionalMaxPool3d(2, 2), ranks=(5,)),
    *_spatial("LPPool", lambda k, s: k(2, 2)),
    *_spatial("AdaptiveAvgPool", lambda k, s: k(2)),
    *_spatial("AdaptiveMaxPool", lambda k, s: k(2)),
    *_unpooled(),
    Entry("BatchNorm1d", lambda s: nn.BatchNorm1d(s[1]), ranks=(2, 3)),
    Entry("BatchNorm2d", lambda s: nn.BatchNorm2d(s[1]), ranks=(4,)),
    Entry("BatchNorm3d", lambda s: nn.BatchNorm3d(s[1]), ranks=(5,)),
    Entry("SyncBatchNorm", lambda s: nn.SyncBatchNorm(s[1])),
    *_spatial("InstanceNorm", lambda k, s: k(s[1], affine=True, track_running_stats=True), least=4),
    Entry("GroupNorm", lambda s: nn.GroupNorm(2, s[1])),
    Entry("LayerNorm", lambda s: nn.LayerNorm(s[-1])),
    Entry("RMSNorm", lambda s: nn.RMSNorm(s[-1])),
    Entry("LocalResponseNorm", lambda s: nn.LocalResponseNorm(3), ranks=(3, 4, 5)),
    *_plain("ReLU", "ReLU6", "GELU", "QuickGELU", "SiLU", "Mish", "ELU", "CELU", "SELU", "LeakyReLU", "SquareReLU"),
    *_plain("Tanh", "Sigmoid", "Hardtanh", "Hardsigmoid", "Hardswish", "Hardshrink", "Softshrink", "Tanhshrink"),
    *_plain("LogSigmoid", "Softplus", "Softsign", "RReLU", "Identity", "Flatten"),
    Entry("GELU", lambda s: nn.GELU("tanh"), label="-tanh"),
    Entry("Threshold", lambda s: nn.Threshold(0.1, 0.5)),
    *[Entry(name, _of(name, lambda k, s: k(1))) for name in ("Softmax", "LogSoftmax", "Softmin", "GLU")],
    Entry("Softmax2d", lambda s: nn.Softmax2d(), ranks=(4,)),
    Entry("PReLU", lambda s: nn.PReLU()),
    Entry("PReLU", lambda s: nn.PReLU(s[1], 0.1), label="-channels"),
    *_plain("Dropout", "AlphaDropout", "FeatureAlphaDropout", p=0.3),
    *_spatial("Dropout", lambda k, s: k(0.3)),
    *[
        entry
        for kind in ("Zero", "Reflection", "Replication", "Circular")
        for entry in _spatial(f"{kind}Pad", lambda k, s: k(1))
    ],
    *_spatial("ConstantPad", lambda k, s: k(1, 0.5)),
    Entry("Upsample", lambda s: nn.Upsample(scale_factor=2), ranks=(3, 4, 5)),
    Entry("Upsample", lambda s: nn.Upsample(scale_factor=2, mode="linear"), ranks=(3,), label="-linear"),
    Entry("Upsample", lambda s: nn.Upsample(scale_factor=2, mode="bicubic"), ranks=(4,), label="-bicubic"),
    Entry("Upsample", lambda s: nn.Upsample(scale_factor=2, mode="trilinear"), ranks=(5,), label="-trilinear"),
    Entry("UpsamplingNearest2d", lambda s: nn.UpsamplingNearest2d(scale_factor=2), ranks=(4,)),
    Entry("UpsamplingBilinear2d", lambda s: nn.UpsamplingBilinear2d(scale_factor=2), ranks=(4,)),
    Entry("PixelShuffle", lambda s: nn.PixelShuffle(2), ranks=(4,)),
    Entry("PixelUnshuffle", lambda s: nn.PixelUnshuffle(2), ranks=(4,)),
    Entry("ChannelShuffle", lambda s: nn.ChannelShuffle(2), ranks=(4,)),
    Entry("Unflatten", lambda s: nn.Unflatten(1, (2, s[1] // 2)), ranks=(2, 3, 4)),
    *[
        Entry(name, _of(name, lambda k, s: k(s[-1], 8, 2, bidirectional=True)), ranks=(3,), call=_first)
        for name in ("RNN", "LSTM", "GRU")
    ],
    Entry("LSTM", lambda s: nn.LSTM(s[-1], 8, proj_size=4), ranks=(3,), call=_first, label="-projected"),
    *[
        Entry(name, _of(name, lambda k, s: k(s[-1], s[-1])), ranks=(2,), call=_cell)
        for name in ("RNNCell", "GRUCell", "LSTMCell")
    ],
    Entry("MultiheadAttention", lambda s: nn.MultiheadAttention(s[-1], 2), ranks=(3,), call=_attention),
    *[Entry(name, _transformer(name), ranks=(3,)) for name in ("TransformerEncoderLayer", "TransformerEncoder")],
    *[
        Entry(name, _transformer(name), ranks=(3,), call=_twice)
        for name in ("TransformerDecoderLayer", "TransformerDecoder", "Transformer")
    ],
    *[Entry(name, _of(name, lambda k, s: k()), call=_twice) for name in ("CosineSimilarity", "PairwiseDistance")],
    Entry("scaled_dot_product_attention", lambda s: CrossAttention(), ranks=(3, 4)),
    Entry("grid_sample", lambda s: Warped(), ranks=(4,)),
    Entry("cdist", lambda s: Distances(), ranks=(2, 3)),
    Entry("Embedding", lambda s: nn.Embedding(WORDS, 8), words=True),
    Entry("EmbeddingBag", lambda s: nn.EmbeddingBag(WORDS, 8), words=True),
    Entry("EmbeddingBag", lambda s: WeightedBag(), call=_weighted_bag, words=True, label="-weighted"),
]


# Losses: the targets and the weights are of float32


def _numbers(x: flow.Tensor) -> flow.Tensor:
    """Targets of the shape of `x`, from -1 to 1."""
    return flow.linspace(-1, 1, x.numel(), dtype=flow.float32).reshape(x.shape)


def _shares(x: flow.Tensor) -> flow.Tensor:
    """Targets within [0, 1]."""
    return _numbers(x) * 0.4 + 0.5


def _signs(x: flow.Tensor) -> flow.Tensor:
    return flow.where(flow.arange(x.numel()) % 3 == 0, -1.0, 1.0).reshape(x.shape)


def _classes(x: flow.Tensor) -> flow.Tensor:
    """A class for each place, of those in dimension 1."""
    shape = (x.shape[0], *x.shape[2:])
    return (flow.arange(math.prod(shape)) % x.shape[1]).reshape(shape)


def _per_class(shape: Shape) -> flow.Tensor:
    return flow.linspace(0.5, 2, shape[1], dtype=flow.float32)


def _to(target: Callable[[flow.Tensor], flow.Tensor]) -> Callable[[Any, flow.Tensor], flow.Tensor]:
    return lambda module, x: _called_with(module, x, target(x))


def _probabilities(module: Any, x: flow.Tensor) -> flow.Tensor:
    """Not by a sigmoid, which in 16 bits comes to 0 and 1, where this loss has no slope to compare."""
    return _called_with(module, x.tanh() * 0.3 + 0.5, _shares(x))


def _of_logs(module: Any, x: flow.Tensor) -> flow.Tensor:
    logs = functional.log_softmax(x, 1)
    return _called_with(module, logs, _classes(x) if isinstance(module, nn.NLLLoss) else _shares(x))


def _gaussian(module: Any, x: flow.Tensor) -> flow.Tensor:
    return _called_with(module, x, _numbers(x), _shares(x))


def _pairs(module: Any, x: flow.Tensor) -> flow.Tensor:
    rows = x.flatten(1)
    return _called_with(module, rows, _numbers(rows), _signs(rows[:, 0]))


def _triplet(module: Any, x: flow.Tensor) -> flow.Tensor:
    rows = x.flatten(1)
    return _called_with(module, rows, _numbers(rows), _shares(rows))


def _sets(module: Any, x: flow.Tensor) -> flow.Tensor:
    rows = x.flatten(1)
    members = flow.full(tuple(rows.shape), -1, dtype=flow.int64)
    members[:, 0] = 1
    return _called_with(module, rows, members)


def _ranking(module: Any, x: flow.Tensor) -> flow.Tensor:
    return _called_with(module, x, _numbers(x), _signs(x))


def _sequences(module: Any, x: flow.Tensor) -> flow.Tensor:
    steps, batch, _ = x.shape
    targets = flow.ones((batch, 1), dtype=flow.int64)
    lengths = flow.full((batch,), steps, dtype=flow.int64), flow.ones((batch,), dtype=flow.int64)
    return _called_with(module, functional.log_softmax(x, 2), targets, *lengths)


def _margins(module: Any, x: flow.Tensor) -> flow.Tensor:
    rows = functional.normalize(x.flatten(1)) * 0.9
    return functional.cross_entropy(_called_with(module, rows, _classes(rows)), _classes(rows))


LOSSES: Final[list[Entry]] = [
    *[
        Entry(name, _of(name, lambda k, s: k()), call=_to(_numbers))
        for name in ("MSELoss", "L1Loss", "HuberLoss", "SmoothL1Loss")
    ],
    Entry("PoissonNLLLoss", lambda s: nn.PoissonNLLLoss(), call=_to(_shares)),
    Entry("GaussianNLLLoss", lambda s: nn.GaussianNLLLoss(), call=_gaussian),
    Entry(
        "BCELoss",
        lambda s: nn.BCELoss(flow.linspace(0.5, 2, s[-1])),
        call=_probabilities,
    ),
    Entry("BCEWithLogitsLoss", lambda s: nn.BCEWithLogitsLoss(), call=_to(_shares)),
    Entry(
        "BCEWithLogitsLoss",
        lambda s: nn.BCEWithLogitsLoss(flow.linspace(0.5, 2, s[-1]), pos_weight=flow.linspace(2, 0.5, s[-1])),
        call=_to(_shares),
        label="-weighted",
    ),
    Entry("KLDivLoss", lambda s: nn.KLDivLoss(reduction="batchmean"), call=_of_logs),
    Entry("NLLLoss", lambda s: nn.NLLLoss(_per_class(s)), call=_of_logs),
    Entry("CrossEntropyLoss", lambda s: nn.CrossEntropyLoss(), call=_to(_classes)),
    Entry(
        "CrossEntropyLoss",
        lambda s: nn.CrossEntropyLoss(_per_class(s), label_smoothing=0.1),
        call=_to(_classes),
        label="-weighted",
    ),
    Entry("CrossEntropyLoss", lambda s: nn.CrossEntropyLoss(_per_class(s)), call=_to(_shares), label="-shares"),
    Entry("HingeEmbeddingLoss", lambda s: nn.HingeEmbeddingLoss(), call=_to(_signs)),
    Entry("SoftMarginLoss", lambda s: nn.SoftMarginLoss(), call=_to(_signs)),
    Entry(
        "MultiLabelSoftMarginLoss",
        lambda s: nn.MultiLabelSoftMarginLoss(flow.linspace(0.5, 2, s[-1])),
        call=_to(_shares),
    ),
    Entry("MultiLabelMarginLoss", lambda s: nn.MultiLabelMarginLoss(), call=_sets),
    Entry(
        "MultiMarginLoss",
        lambda s: nn.MultiMarginLoss(weight=flow.linspace(0.5, 2, math.prod(s[1:]))),
        call=lambda m, x: _called_with(m, x.flatten(1), _classes(x.flatten(1))),
    ),
    Entry("CosineEmbeddingLoss", lambda s: nn.CosineEmbeddingLoss(0.1), call=_pairs),
    Entry("MarginRankingLoss", lambda s: nn.MarginRankingLoss(0.1), call=_ranking),
    Entry("TripletMarginLoss", lambda s: nn.TripletMarginLoss(), call=_triplet),
    Entry("TripletMarginWithDistanceLoss", lambda s: nn.TripletMarginWithDistanceLoss(), call=_triplet),
    Entry("CTCLoss", lambda s: nn.CTCLoss(), ranks=(3,), call=_sequences),
    Entry("CombinedMarginLoss", lambda s: nn.CombinedMarginLoss(1.0, 0.1, 0.1), call=_margins),
]

# Names that cannot stand between two layers: containers, and names that are no modules.
NOT_LAYERS: Final = (
    "AdaptiveLogSoftmaxWithLoss",  # which needs the classes to compute its output
    "Buffer",
    "FakeQuantization",  # of numbers and their scales, as are the other three
    "MinMaxObserver",
    "Graph",
    "Module",
    "NLLLoss2d",  # an older name
    "ModuleDict",
    "ModuleList",
    "MovingAverageMinMaxObserver",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RNNBase",  # of layers that are in the table
    "RNNCellBase",
    "Quantization",
    "Sequential",
    "UninitializedBuffer",
    "UninitializedParameter",
)
