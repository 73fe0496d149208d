"""The layers of lines, images and volumes: results, gradients, states and reprs are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.nn.test_layers import check_results, pair_of_layers
from tests.support import named
from vmflow import nn

LINE, IMAGE, VOLUME = (2, 4, 9), (2, 4, 7, 6), (2, 4, 5, 4, 6)

# name, arguments, shape of the input
LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Conv1d", (4, 6, 3), {}, LINE),
    ("Conv1d", (4, 6, (3,)), {"stride": 2, "padding": 1, "groups": 2, "bias": False}, LINE),
    ("Conv1d", (4, 2, 4), {"padding": "same", "dilation": 2, "padding_mode": "circular"}, LINE),
    ("Conv1d", (4, 2, 3), {}, (4, 9)),
    ("Conv2d", (4, 6, (3, 2)), {"padding": (2, 1), "padding_mode": "reflect"}, IMAGE),
    ("Conv2d", (4, 6, 3), {"padding": 1, "stride": 2, "padding_mode": "replicate", "bias": False}, IMAGE),
    ("Conv2d", (4, 6, 2), {"padding": "valid", "padding_mode": "circular"}, IMAGE),
    ("Conv2d", (4, 6, (4, 3)), {"padding": "same", "padding_mode": "reflect"}, IMAGE),
    ("Conv3d", (4, 2, 3), {}, VOLUME),
    ("Conv3d", (4, 4, (2, 3, 1)), {"stride": (1, 2, 3), "padding": (1, 0, 1), "groups": 4}, VOLUME),
    ("Conv3d", (4, 2, 2), {"padding": "same", "padding_mode": "replicate"}, VOLUME),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, LINE),
    ("ConvTranspose2d", (4, 6, (3, 2)), {"stride": 2, "padding": (1, 0), "groups": 2, "bias": False}, IMAGE),
    ("ConvTranspose2d", (4, 3, 3), {"dilation": 2, "output_padding": 1}, IMAGE),
    ("ConvTranspose3d", (4, 2, 2), {"stride": (1, 2, 3), "output_padding": (0, 1, 2)}, VOLUME),
    ("Unfold", ((2, 3),), {"stride": 2, "padding": 1}, IMAGE),
    ("Unfold", (2,), {"dilation": 2}, (4, 5, 6)),
    ("Fold", ((5, 6), 2), {"stride": (1, 2), "dilation": (2, 1)}, (2, 8, 9)),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, LINE),
    ("MaxPool1d", ((2,),), {"dilation": 3, "ceil_mode": True}, LINE),
    ("MaxPool3d", (2,), {}, VOLUME),
    ("MaxPool3d", ((2, 3, 1),), {"stride": 1, "padding": (1, 1, 0), "dilation": (2, 1, 1)}, VOLUME),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, LINE),
    ("AvgPool1d", (2,), {"padding": 1, "count_include_pad": False}, LINE),
    ("AvgPool3d", (2,), {"stride": 1, "padding": 1, "count_include_pad": False}, VOLUME),
    ("AvgPool3d", ((1, 2, 3),), {"ceil_mode": True, "divisor_override": 5}, VOLUME),
    ("AdaptiveAvgPool1d", (4,), {}, LINE),
    ("AdaptiveAvgPool3d", ((1, 3, None),), {}, VOLUME),
    ("AdaptiveAvgPool3d", (2,), {}, (4, 5, 4, 6)),
    ("AdaptiveMaxPool1d", (4,), {}, LINE),
    ("AdaptiveMaxPool2d", ((2, None),), {}, IMAGE),
    ("AdaptiveMaxPool2d", (3,), {}, (4, 6, 6)),
    ("AdaptiveMaxPool3d", ((2, 4, 5),), {}, VOLUME),
    ("LPPool1d", (2, 3), {"stride": 2}, LINE),
    ("LPPool2d", (3, (2, 3)), {"ceil_mode": True}, IMAGE),
    ("LPPool3d", (2, 2), {}, VOLUME),
    ("BatchNorm3d", (4,), {}, VOLUME),
    ("BatchNorm3d", (4,), {"track_running_stats": False, "affine": False}, VOLUME),
    ("InstanceNorm1d", (4,), {}, LINE),
    ("InstanceNorm1d", (4,), {"affine": True, "track_running_stats": True}, (4, 9)),
    ("InstanceNorm2d", (4,), {"affine": True, "eps": 1e-3}, IMAGE),
    ("InstanceNorm2d", (4,), {"track_running_stats": True, "momentum": 0.3}, IMAGE),
    ("InstanceNorm2d", (4,), {"track_running_stats": True, "momentum": None}, IMAGE),
    ("InstanceNorm3d", (4,), {"affine": True, "track_running_stats": True}, VOLUME),
    ("GroupNorm", (2, 4), {}, IMAGE),
    ("GroupNorm", (4, 4), {"affine": False, "eps": 1e-3}, LINE),
    ("RMSNorm", (6,), {}, IMAGE),
    ("RMSNorm", ((7, 6),), {"eps": 1e-3, "elementwise_affine": False}, IMAGE),
    ("LocalResponseNorm", (3,), {}, IMAGE),
    ("LocalResponseNorm", (2,), {"alpha": 0.5, "beta": 0.5, "k": 2.0}, LINE),
    ("LocalResponseNorm", (5,), {"alpha": 0.5}, VOLUME),
    ("Upsample", ((5, 9),), {}, IMAGE),
    ("Upsample", (), {"scale_factor": 2, "mode": "bilinear"}, IMAGE),
    ("Upsample", (), {"scale_factor": (2.0, 1.5, 1.0), "mode": "trilinear", "align_corners": True}, VOLUME),
    ("UpsamplingNearest2d", (), {"scale_factor": 2}, IMAGE),
    ("UpsamplingBilinear2d", ((9, 3),), {}, IMAGE),
    ("PixelShuffle", (2,), {}, IMAGE),
    ("PixelUnshuffle", (2,), {}, (4, 6, 8)),
    ("ChannelShuffle", (2,), {}, IMAGE),
    ("ConstantPad1d", (2, 1.5), {}, LINE),
    ("ConstantPad2d", ((1, 2, 0, -1), -3.0), {}, IMAGE),
    ("ConstantPad3d", (1, 0.5), {}, VOLUME),
    *[
        (f"{kind}Pad{rank}d", (padding,), {}, shape[without:])
        for kind in ("Zero", "Reflection", "Replication", "Circular")
        for rank, shape in ((1, LINE), (2, IMAGE), (3, VOLUME))
        for padding, without in ((2, 0), ((1, 2, 0, 1, 2, 0)[: 2 * rank], 1))
    ],
]
IDS = [f"{name}-{number}" for number, (name, *_) in enumerate(LAYERS)]


@pytest.mark.parametrize(("name", "arguments", "keywords", "shape"), LAYERS, ids=IDS)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
def test_results_are_those_of_pytorch(
    name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], shape: tuple[int, ...]
) -> None:
    check_results(*pair_of_layers(name, arguments, keywords), shape, positive=name.startswith("LPPool"))


@pytest.mark.parametrize(("name", "arguments", "keywords", "shape"), LAYERS, ids=IDS)
def test_reprs_are_those_of_pytorch(
    name: str, arguments: tuple[Any, ...], keywords: dict[str, Any], shape: tuple[int, ...]
) -> None:
    ours, theirs, _ = pair_of_layers(name, arguments, keywords)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unpooling_undoes_pooling(rank: int) -> None:
    torch = pytest.importorskip("torch")
    shape = (2, 3, 5, 6, 4)[: rank + 2]
    x = np.random.default_rng(3).permutation(np.prod(shape)).reshape(shape).astype(np.float64)
    for size in (None, shape):
        results = []
        for lib in (flow, torch):
            pool = getattr(lib.nn, f"MaxPool{rank}d")(2, return_indices=True)
            unpool = getattr(lib.nn, f"MaxUnpool{rank}d")(2)
            given = lib.tensor(x)
            given.requires_grad_()
            values, indices = pool(given)
            result = unpool(values, indices, output_size=size)
            (result * result).sum().backward()
            results.append([result.detach().numpy(), given.grad.numpy(), repr(unpool)])
        for have, want in zip(*results, strict=True):
            np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_take_an_output_size(rank: int) -> None:
    torch = pytest.importorskip("torch")
    layer, other, _ = pair_of_layers(f"ConvTranspose{rank}d", (2, 3, 3), {"stride": 2, "padding": 1})
    x = np.random.default_rng(4).normal(size=(2, 2, 4, 5, 3)[: rank + 2])
    for size in ([7, 10, 6][:rank], [2, 3, 8, 9, 5][: rank + 2]):
        result, expected = layer(flow.tensor(x), size), other(torch.tensor(x), size)
        np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match=rf"ConvTranspose{rank}d: .* the output can be from"):
        layer(flow.tensor(x), [9] * rank)
    with pytest.raises(ValueError, match="output_size must have"):
        layer(flow.tensor(x), [7] * (rank + 1))
    with pytest.raises(ValueError, match=rf"ConvTranspose{rank}d: expected an input \(samples, channels, "):
        layer(flow.zeros(3), [7] * rank)
    with pytest.raises(TypeError, match=f"ConvTranspose{rank}d: expected tensors, got list"):
        layer([1.0], [7] * rank)


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, r"Conv1d: 3 input and 4 output channels cannot", lambda: nn.Conv1d(3, 4, 1, groups=2)),
        (ValueError, r"Conv3d: padding_mode must be one of", lambda: nn.Conv3d(1, 1, 1, padding_mode="mirror")),
        (ValueError, r"Conv2d: padding must be a size, 'same'", lambda: nn.Conv2d(1, 1, 1, padding="full")),
        (ValueError, r"Conv2d: padding='same' needs", lambda: nn.Conv2d(1, 1, 1, 2, padding="same")),
        (TypeError, r"Conv3d: kernel_size must be an integer or three", lambda: nn.Conv3d(1, 1, (1, 2))),
        (TypeError, r"Conv1d: stride must be an integer or a tuple of one", lambda: nn.Conv1d(1, 1, 1, (1, 2))),
        (ValueError, r"ConvTranspose1d: padding_mode", lambda: nn.ConvTranspose1d(1, 1, 1, padding_mode="reflect")),
        (TypeError, r"1d: padding must be", lambda: nn.ConvTranspose1d(1, 1, 1, 1, "same")),  # type: ignore[arg-type]
        (ValueError, r"GroupNorm: 3 channels cannot", lambda: nn.GroupNorm(2, 3)),
        (ValueError, r"ReflectionPad2d: expected one number or 4", lambda: nn.ReflectionPad2d((1, 2))),
        (ValueError, r"InstanceNorm1d: expected 2 or 3", lambda: nn.InstanceNorm1d(2)(flow.zeros(1, 3, 4))),
        (ValueError, r"InstanceNorm2d: expected 3 or 4", lambda: nn.InstanceNorm2d(2)(flow.zeros(2, 3))),
        (ValueError, r"BatchNorm3d: expected 5 dimensions", lambda: nn.BatchNorm3d(2)(flow.zeros(2, 2, 2, 2))),
    ],
    ids=named,
)
def test_bad_arguments(error: type[Exception], message: str, make: Any) -> None:
    with pytest.raises(error, match=message):
        make()
