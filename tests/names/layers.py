"""Names of layers and of their functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from .case import Case


def _floats(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def _integers(values: Any) -> np.ndarray:
    return np.array(values, np.int32)


_RNG = np.random.default_rng(3)
_X, _Y, _Z = (_RNG.uniform(0.1, 0.9, (4, 3)) for _ in range(3))
_SIGNS = np.sign(_RNG.standard_normal((4, 3)))
_CLASSES = np.array([0, 2, 1, 2])


def _quietly(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A call of a deprecated name, without its warning."""

    def called(library: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(library)

    return called


def _dropped(library: Any) -> Any:
    """Two layers draw alike from generators in the same state, and add what they are given."""
    source, addend = library.ones(50), library.full((50,), 7.0)
    layers = [library.nn.Dropout(0.5, generator=library.Generator().manual_seed(3)) for _ in range(2)]
    return [bool((layers[0](source, addend) - 7 == layers[1](source)).all()), layers[0].eval()(source, addend)]


def _mixed(name: str, *arrays: np.ndarray, **settings: Any) -> list[Case]:
    """A loss of float64 predictions and float32 targets, and the other way."""

    def case(first: str, second: str) -> Case:
        def call(library: Any) -> Any:
            kinds = [getattr(library, first)] + [getattr(library, second)] * (len(arrays) - 1)
            operands = [library.tensor(array, dtype=kind) for array, kind in zip(arrays, kinds, strict=True)]
            operands[0].requires_grad_()
            loss = getattr(library.nn.functional, name)(*operands, **settings)
            # PyTorch's huber_loss of two dtypes has no gradient.
            if name != "huber_loss":
                loss.sum().backward()
            return loss, operands[0].grad

        # PyTorch rounds to half precision in between.
        return Case(f"nn.functional.{name}", _quietly(call), None, 5e-3 if first == "float16" else 1e-5)

    return [case("float64", "float32"), case("float32", "float64"), case("float16", "float32")]


def _old_names(name: str, *arrays: np.ndarray) -> list[Case]:
    """The deprecated arguments of a loss, as a function and as a layer."""

    def case(size_average: bool | None, reduce: bool | None) -> Case:
        def call(library: Any) -> Any:
            operands = [library.tensor(array) for array in arrays]
            old = {"size_average": size_average, "reduce": reduce}
            layer = getattr(library.nn, _LAYERS[name])(**old)
            return getattr(library.nn.functional, name)(*operands, **old), layer(*operands), layer.reduction

        return Case(f"nn.functional.{name}", _quietly(call))

    return [case(False, None), case(True, None), case(None, False), case(False, True)]


_LAYERS: Final = {
    "mse_loss": "MSELoss",
    "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss",
    "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "kl_div": "KLDivLoss",
    "poisson_nll_loss": "PoissonNLLLoss",
    "margin_ranking_loss": "MarginRankingLoss",
    "cosine_embedding_loss": "CosineEmbeddingLoss",
    "hinge_embedding_loss": "HingeEmbeddingLoss",
    "soft_margin_loss": "SoftMarginLoss",
    "triplet_margin_loss": "TripletMarginLoss",
    "multi_margin_loss": "MultiMarginLoss",
    "multilabel_margin_loss": "MultiLabelMarginLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss",
    "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
}

_OPERANDS: Final[dict[str, tuple[np.ndarray, ...]]] = {
    "mse_loss": (_X, _Y),
    "l1_loss": (_X, _Y),
    "smooth_l1_loss": (_X, _Y),
    "binary_cross_entropy": (_X, _Y),
    "binary_cross_entropy_with_logits": (_X, _Y),
    "kl_div": (np.log(_X), _Y),
    "poisson_nll_loss": (_X, _Y * 3),
    "margin_ranking_loss": (_X, _Y, _SIGNS),
    "cosine_embedding_loss": (_X, _Y, _SIGNS[:, 0]),
    "hinge_embedding_loss": (_X, _SIGNS),
    "soft_margin_loss": (_X, _SIGNS),
    "triplet_margin_loss": (_X, _Y, _Z),
    "multi_margin_loss": (_X, _CLASSES),
    "multilabel_margin_loss": (_X, np.array([[0, 2, -1]] * 4)),
    "multilabel_soft_margin_loss": (_X, (_SIGNS > 0) * 1.0),
    "cross_entropy": (_X, _CLASSES),
    "nll_loss": (np.log(_X), _CLASSES),
}

_OF_ONE_DTYPE: Final = {"binary_cross_entropy", "multi_margin_loss", "multilabel_margin_loss", "nll_loss"}

_LOSSES: Final = [
    *[case for name, arrays in _OPERANDS.items() for case in _old_names(name, *arrays)],
    *[
        case
        for name, arrays in _OPERANDS.items()
        if name not in _OF_ONE_DTYPE | {"cross_entropy"}
        for case in _mixed(name, *arrays)
    ],
    *_mixed("cross_entropy", _X, _Y),
    *_mixed("cross_entropy", _X, _Y, _X[0], label_smoothing=0.1),
    *_mixed("poisson_nll_loss", _X, _Y * 3, full=True),
    *_mixed("huber_loss", _X, _Y, delta=0.3),
    *_mixed("gaussian_nll_loss", _X, _Y, _Z),
    *_mixed("cosine_similarity", _X, _Y),
    Case(
        "nn.functional.binary_cross_entropy_with_logits",
        lambda t: t.nn.functional.binary_cross_entropy_with_logits(
            t.tensor(_X), t.tensor(_Y).float(), t.tensor(_Z), pos_weight=t.tensor(_X[0])
        ),
    ),
    Case(
        "nn.functional.binary_cross_entropy",
        lambda t: t.nn.functional.binary_cross_entropy(
            t.tensor(_X).float(), t.tensor(_Y).float(), t.tensor(_Z), reduction="none"
        ),
    ),
    *[
        Case(
            f"nn.functional.{name}",
            partial(
                lambda name, reduction, t: getattr(t.nn.functional, name)(
                    t.tensor(_X), t.tensor(_Y), reduction=reduction, weight=t.tensor(_Z)
                ),
                name,
                reduction,
            ),
        )
        for name in ("mse_loss", "l1_loss", "huber_loss")
        for reduction in ("mean", "sum", "none")
    ],
    Case("nn.functional.mse_loss", lambda t: t.nn.functional.mse_loss(t.tensor(_X), t.tensor(_Y) > 0.5)),
    Case(
        "nn.NLLLoss2d",
        _quietly(lambda t: t.nn.NLLLoss2d(reduction="sum")(t.tensor(_X)[None, :, :, None], t.tensor([[[1]] * 3]))),
    ),
]

_DROPOUTS: Final = [
    Case("nn.Dropout", _dropped, lambda: [True, np.full(50, 8.0, np.float32)]),
    Case(
        "nn.functional.dropout",
        lambda t: t.nn.functional.dropout(t.ones(3), 0.5, False, addend=t.tensor([1.0, 2, 3])),
        lambda: np.array([2, 3, 4], np.float32),
    ),
    *[
        Case(
            f"nn.functional.{name}",
            _quietly(
                partial(
                    lambda name, rank, t: getattr(t.nn.functional, name)(t.ones((2,) * rank), 1.0, True), name, rank
                ),
            ),
        )
        for name, ranks in (("dropout1d", (2, 3)), ("dropout2d", (2, 3, 4, 5)), ("dropout3d", (1, 2, 3, 4, 5)))
        for rank in ranks
    ],
]


def _looked_up(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The result of a look-up of row 3, which gets no gradient, and others, with the gradient of the table."""

    def call(library: Any) -> Any:
        layer = make(library)
        layer.weight.data.copy_(library.arange(8.0).reshape(4, 2))
        found = layer(library.tensor([[0, 3, 3], [1, 3, 0]]))
        found.sum().backward()
        return found, layer.weight.grad, layer.padding_idx

    return call


def _function_looked_up(name: str) -> Callable[[Any], Any]:
    def call(library: Any) -> Any:
        table = library.arange(8.0).reshape(4, 2).requires_grad_()
        found = getattr(library.nn.functional, name)(library.tensor([[0, 3, 3], [1, 3, 0]]), table, padding_idx=-1)
        found.sum().backward()
        return found, table.grad

    return call


_EMBEDDINGS: Final = [
    Case("nn.Embedding", _looked_up(lambda t: t.nn.Embedding(4, 2, padding_idx=-1))),
    Case(
        "nn.Embedding.from_pretrained",
        _looked_up(lambda t: t.nn.Embedding.from_pretrained(t.ones(4, 2), freeze=False, padding_idx=-1)),
    ),
    *[
        Case(
            "nn.EmbeddingBag",
            _looked_up(partial(lambda mode, t: t.nn.EmbeddingBag(4, 2, mode=mode, padding_idx=-1), mode)),
        )
        for mode in ("sum", "mean", "max")
    ],
    Case(
        "nn.EmbeddingBag.from_pretrained",
        _looked_up(lambda t: t.nn.EmbeddingBag.from_pretrained(t.ones(4, 2), freeze=False, padding_idx=-1)),
    ),
    Case("nn.functional.embedding", _function_looked_up("embedding")),
    Case("nn.functional.embedding_bag", _function_looked_up("embedding_bag")),
]


def _laid(library: Any, shape: tuple[int, ...]) -> Any:
    """Numbers that lie in memory with the channels last."""
    sizes = (shape[0], *shape[2:], shape[1])
    return library.arange(float(np.prod(shape))).reshape(sizes).movedim(-1, 1)


def _strides(call: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The values and strides of what a call makes in each format, of an image, a volume and a matrix."""

    def called(library: Any) -> Any:
        found = []
        for name, shape in (
            ("contiguous_format", (2, 3, 4, 5)),
            ("channels_last", (2, 3, 4, 5)),
            ("preserve_format", (2, 3, 4, 5)),
            ("channels_last_3d", (2, 3, 4, 1, 5)),
            ("preserve_format", (3, 4, 2)),
        ):
            made = call(_laid(library, shape), getattr(library, name))
            found.append([made * 1, list(made.stride()), str(made.dtype).split(".")[-1]])
        return found

    return called


_FORMATS: Final = [
    Case("Tensor.clone", _strides(lambda x, format: x.clone(memory_format=format))),
    Case("Tensor.to", _strides(lambda x, format: x.to(memory_format=format, copy=True))),
    *[
        Case(
            f"{name}_like",
            partial(
                lambda name, t: _strides(
                    lambda x, format: getattr(t, f"{name}_like")(x, memory_format=format, dtype=t.float64).fill_(3)
                )(t),
                name,
            ),
        )
        for name in ("empty", "zeros", "ones", "rand", "randn")
    ],
    Case("full_like", lambda t: _strides(lambda x, format: t.full_like(x, 2, memory_format=format))(t)),
    *[
        Case(
            name,
            partial(
                lambda name, rank, t: [
                    list(made.stride())
                    for made in (
                        t.empty((2, 3, 4, 5, 6)[:rank], memory_format=getattr(t, name)),
                        t.ones((2, 3, 4, 5, 6)[:rank]).contiguous(memory_format=getattr(t, name)),
                        t.nn.Module.to(
                            getattr(t.nn, f"Conv{rank - 2}d")(2, 3, 2), memory_format=getattr(t, name)
                        ).weight,
                    )
                ],
                name,
                rank,
            ),
        )
        for name, rank in (("channels_last", 4), ("channels_last_3d", 5), ("contiguous_format", 3))
    ],
    Case("memory_format", lambda t: [isinstance(t.preserve_format, t.memory_format), str(t.channels_last)[-13:]]),
    Case("preserve_format", lambda t: list(t.ones(3, 4).t().clone(memory_format=t.preserve_format).stride())),
    Case(
        "Tensor.is_contiguous",
        lambda t: [
            _laid(t, (2, 3, 4, 5)).is_contiguous(memory_format=getattr(t, name))
            for name in ("channels_last", "channels_last_3d", "contiguous_format", "preserve_format")
        ],
    ),
]


_POINTS: Final = np.array([[-3, -1.05, 0.05], [0.15, 0.25, 2]], np.float32)


def _fake_quantized(name: str, dtype: str, *settings: Any) -> Case:
    """The values and the gradient."""

    def call(library: Any) -> Any:
        kind = getattr(library, dtype)
        operand = library.tensor(_POINTS, dtype=kind, requires_grad=True)
        given = [library.tensor(each) if isinstance(each, np.ndarray) else each for each in settings]
        result = getattr(library, name)(operand, *given)
        (result * library.tensor(np.arange(6).reshape(2, 3)).to(kind)).sum().backward()
        return result, operand.grad

    return Case(name, call)


_QUANTIZED: Final = [
    *[
        _fake_quantized("fake_quantize_per_tensor_affine", dtype, 0.1, 3, -8, 7)
        for dtype in ("float16", "bfloat16", "float32", "float64")
    ],
    _fake_quantized("fake_quantize_per_tensor_affine", "float32", _floats([0.25]), _integers([-2]), -8, 7),
    *[
        _fake_quantized(
            "fake_quantize_per_channel_affine", dtype, _floats([0.1, 0.2]), np.array([1, -2], kind), 0, -8, 7
        )
        for dtype, kind in (("float16", np.int32), ("float32", np.float32), ("float64", np.int32))
    ],
    _fake_quantized(
        "fake_quantize_per_channel_affine", "float32", _floats([0.1, 0.2, 1]), _integers([1, 0, 0]), 1, -8, 7
    ),
    Case(
        "nn.MinMaxObserver",
        lambda t: [
            t.nn.MinMaxObserver("google", 4)(t.tensor(_POINTS)),
            t.nn.MinMaxObserver("google", 4, "affine")(t.tensor(_POINTS)),
            t.nn.MinMaxObserver("cambricon", 4)(t.tensor(_POINTS)),
            t.nn.MinMaxObserver(quantization_bit=3, per_layer_quantization=False)(t.tensor(_POINTS)),
        ],
        lambda: [
            [_floats([3 / 7]), _floats([0])],
            [_floats([1 / 3]), _floats([9])],
            [_floats([-1]), _floats([0])],
            [_floats([1, 2 / 3]), _floats([0, 0])],
        ],
    ),
    Case(
        "nn.MovingAverageMinMaxObserver",
        lambda t: [
            observer(t.tensor(_POINTS * factor), t.tensor([step]))
            for observer in [t.nn.MovingAverageMinMaxObserver(True, stop_update_after_iters=1, momentum=0.5)]
            for step, factor in enumerate((1, 3, 9))
        ],
        lambda: [[_floats([value / 127]), _floats([0])] for value in (3, 6, 6)],
    ),
    Case(
        "nn.FakeQuantization",
        lambda t: t.nn.FakeQuantization("google", 3, "affine")(t.tensor(_POINTS), t.tensor([0.5]), t.tensor([3.0])),
        lambda: _floats([[-1.5, -1, 0], [0, 0.5, 2]]),
    ),
    Case(
        "nn.Quantization",
        lambda t: t.nn.Quantization("cambricon", 4)(t.tensor(_POINTS), t.tensor([-1.0]), t.tensor([0.0])),
        lambda: _floats([[-6, -2, 0], [0, 0, 4]]),
    ),
    Case(
        "nn.qat.QatLinear",
        lambda t: _ones(t, t.nn.qat.QatLinear(3, 1, quantization_bit=3))(t.tensor(_POINTS)),
        # The scale is one: what is not an integer is rounded.
        lambda: _floats([[-3], [3]]),
    ),
    *[
        Case(
            f"nn.{name}",
            partial(
                lambda name, rank, t: _ones(t, getattr(t.nn, name)(1, 1, 2))(t.ones(1, 1, *(3,) * rank)), name, rank
            ),
            partial(lambda rank: np.full((1, 1, *(2,) * rank), 2.0**rank + 1, np.float32), rank),
        )
        for name, rank in (("QatConv1d", 1), ("QatConv2d", 2), ("QatConv3d", 3))
    ],
]


def _ones(library: Any, layer: Any) -> Any:
    """The layer with parameters that are all one."""
    with library.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1)
    return layer


_SAMPLES: Final = _RNG.random((2, 3, 3)).astype(np.float32)
_VOLUME: Final = _RNG.standard_normal((2, 3, 5, 6, 7)).astype(np.float32)


def _with_gradient(call: Callable[[Any, Any], Any], array: np.ndarray) -> Callable[[Any], Any]:
    """The results of a call with a tensor, and the gradient of the first result by the tensor."""

    def called(library: Any) -> Any:
        operand = library.tensor(array, requires_grad=True)
        found = call(library, operand)
        first = found[0] if isinstance(found, tuple) else found
        (first * library.arange(float(first.numel())).reshape(first.shape)).sum().backward()
        return found, operand.grad

    return _quietly(called)


def _attended(**settings: Any) -> Callable[[Any], Any]:
    """Attention of given parameters; settings that are arrays become tensors."""

    def call(library: Any) -> Any:
        random = np.random.default_rng(4)

        def drawn(*shape: int) -> Any:
            return library.tensor(random.standard_normal(shape).astype(np.float32))

        alike = settings.get("alike", True)
        query, key, value = drawn(5, 2, 4), drawn(3, 2, 4 if alike else 6), drawn(3, 2, 4 if alike else 3)
        given = {
            "in_proj_weight": drawn(12, 4) if alike else None,
            "in_proj_bias": drawn(12),
            "bias_k": None,
            "bias_v": None,
            "add_zero_attn": False,
            "dropout_p": 0.5,
            "out_proj_weight": drawn(4, 4),
            "out_proj_bias": drawn(4),
            "training": False,
        }
        if not alike:
            parts = {"q_proj_weight": drawn(4, 4), "k_proj_weight": drawn(4, 6), "v_proj_weight": drawn(4, 3)}
            given.update(parts, use_separate_proj_weight=True)
        for name, setting in settings.items():
            if name != "alike":
                given[name] = library.tensor(setting) if isinstance(setting, np.ndarray) else setting
        if settings.get("single"):
            given.pop("single")
            query, key, value = query[:, 0], key[:, 0], value[:, 0]
        return library.nn.functional.multi_head_attention_forward(query, key, value, 4, 2, **given)

    return call


_ROW: Final = _RNG.standard_normal((1, 1, 4)).astype(np.float32)
_STATIC: Final = _RNG.standard_normal((4, 3, 2)).astype(np.float32)

_FUNCTIONS: Final = [
    *[
        Case(
            f"nn.functional.{kind}max_pool{rank}d_with_indices",
            _with_gradient(
                partial(
                    lambda kind, rank, t, x: getattr(t.nn.functional, f"{kind}max_pool{rank}d_with_indices")(
                        x.reshape(2, 3, *x.shape[2 : rank + 1], -1), 2
                    ),
                    kind,
                    rank,
                ),
                _VOLUME,
            ),
        )
        for kind in ("", "adaptive_")
        for rank in (1, 2, 3)
    ],
    *[
        Case(
            f"nn.functional.fractional_max_pool{rank}d{suffix}",
            _with_gradient(
                partial(
                    lambda rank, suffix, t, x: getattr(t.nn.functional, f"fractional_max_pool{rank}d{suffix}")(
                        x.reshape(2, 3, *x.shape[2 : rank + 1], -1),
                        2,
                        **({"output_size": 3} if suffix else {"output_ratio": (0.5,) * rank}),
                        return_indices=True,
                        _random_samples=t.tensor(_SAMPLES[..., :rank]),
                    ),
                    rank,
                    suffix,
                ),
                _VOLUME,
            ),
        )
        for rank in (2, 3)
        for suffix in ("", "_with_indices")
    ],
    *[
        Case(
            f"nn.FractionalMaxPool{rank}d",
            partial(
                lambda rank, t: getattr(t.nn, f"FractionalMaxPool{rank}d")(
                    (1, 2, 3)[:rank], output_size=2, return_indices=True, _random_samples=t.tensor(_SAMPLES[..., :rank])
                )(t.tensor(_VOLUME).reshape(2, 3, *_VOLUME.shape[2 : rank + 1], -1)),
                rank,
            ),
        )
        for rank in (2, 3)
    ],
    *[
        Case(
            f"nn.functional.{name}",
            _with_gradient(
                partial(
                    lambda name, settings, t, x: getattr(t.nn.functional, name)(x[:, :, 0], **settings), name, settings
                ),
                _VOLUME,
            ),
        )
        for name, settings in (
            ("upsample", {"size": (3, 9)}),
            ("upsample", {"scale_factor": 2.0, "mode": "bilinear", "align_corners": False}),
            ("upsample_nearest", {"scale_factor": 2}),
            ("upsample_bilinear", {"size": (4, 9)}),
        )
    ],
    *[
        Case(name, _with_gradient(partial(lambda p, t, x: t.pdist(x, p), p), array))
        for name in ("pdist", "nn.functional.pdist")
        for p, array in ((1, np.round(_X * 5)), (2, np.round(_X * 5)), (2.5, _X), (float("inf"), _X))
    ],
    Case("pdist", lambda t: t.pdist(t.tensor(np.round(_X * 5)), 0)),
    *[Case("pdist", partial(lambda rows, t: t.pdist(t.ones(rows, 3)), rows)) for rows in (0, 1)],
    Case(
        "nn.functional.conv_tbc",
        _with_gradient(
            lambda t, x: t.nn.functional.conv_tbc(
                x[:, 0, 0].contiguous(),
                t.tensor(_VOLUME[0, :2, :4, :, 0].transpose(0, 2, 1)[:, :, :3]).repeat(1, 2, 1)[:, :7],
                t.ones(3),
                1,
            ),
            _VOLUME,
        ),
    ),
    Case(
        "nn.functional.native_channel_shuffle",
        lambda t: t.nn.functional.native_channel_shuffle(t.arange(48.0).reshape(2, 6, 2, 2), 3),
    ),
    Case(
        "nn.functional.normalize",
        lambda t: [
            made := t.zeros(4, 3, dtype=t.float64),
            t.nn.functional.normalize(t.tensor(_X), 1.0, 0, out=made) is made,
        ],
    ),
    *[
        Case("nn.functional.multi_head_attention_forward", _attended(**settings))
        for settings in (
            {},
            {"need_weights": False},
            {"average_attn_weights": False, "in_proj_bias": None, "out_proj_bias": None},
            {"alike": False, "key_padding_mask": np.array([[False, True, False], [False, False, True]])},
            {"bias_k": _ROW, "bias_v": -_ROW, "add_zero_attn": True, "attn_mask": np.eye(5, 3) > 0},
            {"static_k": _STATIC, "static_v": _STATIC * 2},
            {"single": True, "attn_mask": np.triu(np.full((5, 3), -1e9, np.float32), 1)},
        )
    ],
    *[
        Case(
            "nn.SyncBatchNorm",
            partial(lambda shape, t: _normalized(t, shape), shape),
            partial(lambda shape: _mean_free(shape), shape),
        )
        for shape in ((4, 3), (4, 3, 2), (4, 3, 2, 2), (2, 3, 2, 2, 2))
    ],
    Case(
        "nn.SyncBatchNorm.convert_sync_batchnorm",
        lambda t: [
            str(t.nn.SyncBatchNorm.convert_sync_batchnorm(t.nn.Sequential(t.nn.BatchNorm2d(3), t.nn.ReLU()))),
            str(t.nn.SyncBatchNorm.convert_sync_batchnorm(t.nn.BatchNorm1d(3, affine=False))),
        ],
    ),
]


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)


def _normalized(library: Any, shape: tuple[int, ...]) -> Any:
    """In training, and the running mean."""
    layer = library.nn.SyncBatchNorm(3)
    return layer(library.tensor(_numbers(shape))), layer.running_mean


def _mean_free(shape: tuple[int, ...]) -> Any:
    array = _numbers(shape)
    axes = (0, *range(2, len(shape)))
    mean, variance = array.mean(axes, keepdims=True), array.var(axes, keepdims=True)
    return [(array - mean) / np.sqrt(variance + np.float32(1e-5)), mean.reshape(3) / 10]


CASES: Final = [*_FUNCTIONS, *_QUANTIZED, *_LOSSES, *_DROPOUTS, *_EMBEDDINGS, *_FORMATS]
