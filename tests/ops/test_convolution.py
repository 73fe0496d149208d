"""Convolution against loops over every output pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, check_gradients
from vmflow.kernels.generation import GENERATION
from vmflow.kernels.numpy import columns, convolution as kernels
from vmflow.kernels.problems.convolution import Geometry
from vmflow.ops.nn.convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from vmflow.ops.nn.layer_operands import Sizes

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]
Pair = tuple[int, int]


def looped(
    x: Array, w: Array, b: Array | None, stride: Pair, before: Pair, behind: Pair, dilation: Pair, groups: int
) -> Array:
    """Each output pixel as one sum of products."""
    samples, channels, height, width = x.shape
    filters, fan, taps_down, taps_across = w.shape
    padded = np.zeros((samples, channels, height + before[0] + behind[0], width + before[1] + behind[1]))
    padded[:, :, before[0] : before[0] + height, before[1] : before[1] + width] = x
    rows = (padded.shape[2] - dilation[0] * (taps_down - 1) - 1) // stride[0] + 1
    columns = (padded.shape[3] - dilation[1] * (taps_across - 1) - 1) // stride[1] + 1
    result = np.zeros((samples, filters, rows, columns))
    for n, f, r, c in np.ndindex(result.shape):
        first = f // (filters // groups) * fan
        total = 0.0 if b is None else float(b[f])
        for k, i, j in np.ndindex(fan, taps_down, taps_across):
            pixel = padded[n, first + k, r * stride[0] + i * dilation[0], c * stride[1] + j * dilation[1]]
            total += float(pixel) * float(w[f, k, i, j])
        result[n, f, r, c] = total
    return result


CASES: list[tuple[Any, ...]] = [
    # samples, channels, height, width, filters, kernel, stride, padding, dilation, groups
    (2, 3, 5, 4, 4, (3, 3), 1, 1, 1, 1),
    (9, 2, 5, 6, 4, (3, 2), (2, 1), (1, 0), (1, 2), 2),
    (2, 4, 3, 3, 2, (1, 1), 1, 0, 1, 2),
    (2, 4, 5, 5, 2, (1, 1), 2, 0, 1, 1),
    (8, 2, 4, 4, 2, (1, 1), 1, 1, 1, 1),
    (2, 1, 3, 40, 2, (2, 3), 1, (0, 1), 1, 1),
    (1, 6, 4, 4, 6, (3, 3), 1, 1, 1, 6),
    (0, 2, 4, 4, 3, (3, 3), 1, 1, 1, 1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv2d(case: tuple[Any, ...]) -> None:
    samples, channels, height, width, filters, kernel, stride, padding, dilation, groups = case
    x, w, b = arrays_for(1, (samples, channels, height, width), (filters, channels // groups, *kernel), (filters,))
    step, margin, spread = [
        value if isinstance(value, tuple) else (value, value) for value in (stride, padding, dilation)
    ]
    expected = looped(x, w, b, step, margin, margin, spread, groups)
    result = conv2d(flow.tensor(x), flow.tensor(w), flow.tensor(b), stride, padding, dilation, groups)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)
    without = conv2d(flow.tensor(x), flow.tensor(w), None, stride, padding, dilation, groups)
    expected = looped(x, w, None, step, margin, margin, spread, groups)
    np.testing.assert_allclose(without.numpy(), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=40)
@given(data=st.data())
def test_any_geometry(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    groups, samples = draw(1, 2), draw(0, 9)
    kernel, dilation = (draw(1, 3), draw(1, 3)), (draw(1, 2), draw(1, 2))
    stride, padding = (draw(1, 3), draw(1, 3)), (draw(0, 2), draw(0, 2))
    size = [max(1, dilation[number] * (kernel[number] - 1) + 1 - 2 * padding[number]) + draw(0, 3) for number in (0, 1)]
    x, w = arrays_for(3, (samples, groups * draw(1, 2), *size), (groups * draw(1, 2), 1, *kernel))
    w = np.repeat(w, x.shape[1] // groups, axis=1)
    result = conv2d(flow.tensor(x), flow.tensor(w), None, stride, padding, dilation, groups)
    expected = looped(x, w, None, stride, padding, padding, dilation, groups)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [(3, 3), (2, 4), (1, 2)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_keeps_the_size(kernel: Pair, dilation: int) -> None:
    x, w = arrays_for(2, (2, 2, 5, 6), (3, 2, *kernel))
    result = conv2d(flow.tensor(x), flow.tensor(w), padding="same", dilation=dilation)
    total = [dilation * (value - 1) for value in kernel]
    before, behind = (total[0] // 2, total[1] // 2), (-(-total[0] // 2), -(-total[1] // 2))
    assert result.shape == (2, 3, 5, 6)
    expected = looped(x, w, None, (1, 1), before, behind, (dilation, dilation), 1)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)


def test_valid_is_no_padding() -> None:
    x, w = (flow.tensor(value) for value in arrays_for(2, (2, 2, 5, 6), (3, 2, 3, 3)))
    np.testing.assert_array_equal(conv2d(x, w, padding="valid").numpy(), conv2d(x, w).numpy())


def test_one_image_without_a_batch() -> None:
    x, w = arrays_for(4, (2, 4, 4), (3, 2, 3, 3))
    result = conv2d(flow.tensor(x), flow.tensor(w))
    assert result.shape == (3, 2, 2)
    np.testing.assert_allclose(result.numpy(), conv2d(flow.tensor(x[None]), flow.tensor(w)).numpy()[0])


def test_strided_operands() -> None:
    x, w = arrays_for(5, (5, 4, 2, 9), (3, 2, 3, 2))
    expected = looped(x.transpose(3, 2, 1, 0), w[::2], None, (1, 1), (0, 0), (0, 0), (1, 1), 1)
    result = conv2d(flow.tensor(x).permute(3, 2, 1, 0), flow.tensor(w)[::2])
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)
    pointwise = flow.tensor(w[:, :, :1, :1])
    result = conv2d(flow.tensor(x).permute(3, 2, 1, 0), pointwise)
    expected = looped(x.transpose(3, 2, 1, 0), w[:, :, :1, :1], None, (1, 1), (0, 0), (0, 0), (1, 1), 1)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("samples", [3, 10])
def test_a_small_buffer_gives_the_same(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are made in pieces; each way of cutting the batch must give the same three products."""

    def products() -> list[Array]:
        x, w = (flow.tensor(value, requires_grad=True) for value in arrays_for(6, (samples, 2, 5, 5), (3, 2, 3, 3)))
        y = conv2d(x, w, padding=1)
        (y * y).sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        return [y.detach().numpy(), x.grad.numpy(), w.grad.numpy()]

    whole = products()
    for samples_each in (1, 4, 9):
        monkeypatch.setattr(columns, "COLUMN_BYTES", samples_each * 2 * 9 * 25 * 8)
        GENERATION.advance()
        for have, want in zip(products(), whole, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-12)
    GENERATION.advance()


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_computes_in_single(dtype: flow.dtype) -> None:
    x, w, b = (flow.tensor(value, dtype=dtype) for value in arrays_for(7, (8, 16, 5, 5), (2, 16, 3, 3), (2,)))
    result = conv2d(x, w, b)
    assert result.dtype is dtype
    single = conv2d(x.float(), w.float(), b.float())
    np.testing.assert_array_equal(result.float().numpy(), single.to(dtype).float().numpy())


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 2, 4, 3), {"padding": 1}),
        ((9, 2, 3, 3), {"stride": 2, "padding": 1}),
        ((2, 2, 5, 5), {"groups": 2, "dilation": 2}),
        ((1, 2, 6, 4), {"stride": (2, 1), "padding": "valid"}),
    ],
    ids=str,
)
def test_gradients(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    x, w, b = arrays_for(8, shape, (2, 2 // options.get("groups", 1), 3, 2), (2,))
    check_gradients(lambda x, w, b: conv2d(x, w, b, **options), x, w, b, second=shape[0] < 9)


def test_pointwise_gradients() -> None:
    x, w = arrays_for(9, (2, 4, 2, 3), (2, 2, 1, 1))
    check_gradients(lambda x, w: conv2d(x, w, groups=2), x, w, second=True)


def test_third_derivative() -> None:
    """The third derivative of sum(conv(x t, w t) ** 2) by t is 24 t sum(conv ** 2)."""
    x, w = (flow.tensor(entry) for entry in arrays_for(10, (2, 2, 4, 4), (2, 2, 3, 3)))
    t = flow.tensor(1.5, dtype=flow.float64, requires_grad=True)
    y = conv2d(x * t, w * t, padding=1, stride=2)
    value = (y * y).sum()
    for _ in range(3):
        (found,) = flow.autograd.grad(value, t, create_graph=True)
        assert found is not None
        value = found
    plain = conv2d(x, w, padding=1, stride=2)
    np.testing.assert_allclose(value.item(), 24 * 1.5 * (plain * plain).sum().item(), rtol=1e-10)


def test_only_the_gradients_asked_for() -> None:
    x, w = (flow.tensor(value) for value in arrays_for(11, (2, 2, 4, 4), (2, 2, 3, 3)))
    w.requires_grad_()
    conv2d(x, w).sum().backward()
    assert x.grad is None
    assert w.grad is not None
    assert w.grad.shape == w.shape


@pytest.mark.parametrize("samples", [1, 8])
def test_conv1d(samples: int) -> None:
    x, w, b = arrays_for(12, (samples, 4, 9), (6, 2, 3), (6,))
    result = conv1d(flow.tensor(x), flow.tensor(w), flow.tensor(b), 2, 1, 2, 2)
    expected = looped(x[:, :, None], w[:, :, None], b, (1, 2), (0, 1), (0, 1), (1, 2), 2)[:, :, 0]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)
    assert conv1d(flow.tensor(x[0]), flow.tensor(w), groups=2).shape == (6, 7)
    assert conv1d(flow.tensor(x), flow.tensor(w), padding="same", groups=2).shape == (samples, 6, 9)


def looped_transposed(
    x: Array, w: Array, stride: Pair, padding: Pair, extra: Pair, dilation: Pair, groups: int
) -> Array:
    """Each input pixel added to its window."""
    samples, channels, height, width = x.shape
    _, fan, taps_down, taps_across = w.shape
    whole = np.zeros(
        (
            samples,
            fan * groups,
            (height - 1) * stride[0] + dilation[0] * (taps_down - 1) + 1 + extra[0],
            (width - 1) * stride[1] + dilation[1] * (taps_across - 1) + 1 + extra[1],
        )
    )
    for n, c, r, s in np.ndindex(x.shape):
        first = c // (channels // groups) * fan
        for k, i, j in np.ndindex(fan, taps_down, taps_across):
            whole[n, first + k, r * stride[0] + i * dilation[0], s * stride[1] + j * dilation[1]] += (
                x[n, c, r, s] * w[c, k, i, j]
            )
    return whole[
        :, :, padding[0] : whole.shape[2] - padding[0] or None, padding[1] : whole.shape[3] - padding[1] or None
    ]


@pytest.mark.parametrize(
    ("stride", "padding", "extra", "dilation", "groups"),
    [
        ((1, 1), (0, 0), (0, 0), (1, 1), 1),
        ((2, 2), (1, 1), (1, 1), (1, 1), 2),
        ((2, 1), (0, 1), (1, 1), (1, 3), 1),
    ],
)
def test_conv_transpose2d(stride: Pair, padding: Pair, extra: Pair, dilation: Pair, groups: int) -> None:
    x, w, b = arrays_for(13, (2, 2, 3, 3), (2, 2, 3, 2), (2 * groups,))
    result = conv_transpose2d(flow.tensor(x), flow.tensor(w), flow.tensor(b), stride, padding, extra, groups, dilation)
    expected = looped_transposed(x, w, stride, padding, extra, dilation, groups) + b[:, None, None]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)
    check_gradients(
        lambda x, w, b: conv_transpose2d(x, w, b, stride, padding, extra, groups, dilation), x, w, b, second=True
    )


def test_kernel_failures_do_not_hide() -> None:
    """A bad operand of an earlier op arrives here as that op's error."""
    rows = flow.tensor([[5]])
    broken = flow.zeros(1, 3).gather(1, rows).reshape(1, 1, 1, 1).expand(1, 1, 3, 3)
    with pytest.raises(IndexError, match="index 5"):
        conv2d(broken, flow.ones(1, 1, 3, 3)).numpy()


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, r"\[2, 3, 5, 5\].*\[4, 2, 3, 3\]", {"weight": (4, 2, 3, 3)}),
        (ValueError, r"groups=2", {"groups": 2}),
        (ValueError, r"filters a multiple", {"weight": (4, 1, 3, 3), "groups": 3}),
        (ValueError, r"bias of shape \[3\]", {"bias": (3,)}),
        (ValueError, r"does not fit into an input", {"weight": (4, 3, 6, 3)}),
        (ValueError, r"does not fit into an input", {"dilation": 3}),
        (ValueError, r"kernel .* is empty", {"weight": (4, 3, 0, 3)}),
        (ValueError, r"expected an input", {"weight": (4, 3, 3)}),
        (ValueError, r"expected an input", {"input": (5, 5)}),
        (ValueError, r"stride must be at least 1", {"stride": 0}),
        (ValueError, r"padding must be at least 0", {"padding": (1, -1)}),
        (ValueError, r"'same' or 'valid'", {"padding": "full"}),
        (ValueError, r"needs stride 1", {"padding": "same", "stride": 2}),
        (ValueError, r"groups must be at least 1", {"groups": 0}),
        (TypeError, r"groups must be an integer", {"groups": 1.0}),
        (TypeError, r"dilation must be an integer or a pair", {"dilation": (1, 2, 3)}),
        (TypeError, r"stride must be an integer or a pair", {"stride": 1.5}),
    ],
    ids=str,
)
def test_bad_arguments(error: type[Exception], message: str, arguments: dict[str, Any]) -> None:
    given = {"input": (2, 3, 5, 5), "weight": (4, 3, 3, 3), **arguments}
    for name in ("input", "weight", "bias"):
        if name in given:
            given[name] = flow.zeros(given[name])
    with pytest.raises(error, match=message) as caught:
        conv2d(**given)
    assert "conv2d" in str(caught.value)


def test_dtypes_must_agree_and_be_floating() -> None:
    x, w = flow.ones(1, 1, 3, 3), flow.ones(1, 1, 3, 3)
    with pytest.raises(TypeError, match="float32 and float64"):
        conv2d(x, w.double())
    with pytest.raises(TypeError, match="not defined for int64"):
        conv2d(x.long(), w.long())
    with pytest.raises(TypeError, match="not defined for bool"):
        conv_transpose2d(x.bool(), w.bool())
    with pytest.raises(TypeError, match="conv_transpose2d: expected one dtype, got float32 and float32 and float64"):
        conv_transpose2d(x, w, flow.ones(1).double())


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"output_padding", {"output_padding": 1}),
        (r"\[1, 2, 3, 3\] does not fit a weight of shape \[3, 1, 3, 3\]", {"weight": (3, 1, 3, 3)}),
        (r"leave an output", {"padding": 3}),
        (r"bias of shape \[1\]", {"bias": (2,)}),
    ],
    ids=str,
)
def test_bad_arguments_of_conv_transpose2d(message: str, arguments: dict[str, Any]) -> None:
    given = {"input": (1, 2, 3, 3), "weight": (2, 1, 3, 3), **arguments}
    for name in ("input", "weight", "bias"):
        if name in given:
            given[name] = flow.zeros(given[name])
    with pytest.raises(ValueError, match=message):
        conv_transpose2d(**given)


def test_bad_arguments_of_conv1d() -> None:
    with pytest.raises(ValueError, match="conv1d: expected an input"):
        conv1d(flow.zeros(2, 3, 5, 5), flow.zeros(4, 3, 3))


# Other numbers of dimensions, against PyTorch: image, filters, kernel, options; many samples are laid out differently.
VOLUMES: list[tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), 4, (3,), {}),
    ((9, 4, 11), 6, (4,), {"stride": 3, "padding": 2, "dilation": 2, "groups": 2}),
    ((2, 2, 40), 3, (5,), {"padding": "same"}),
    ((3, 2, 7), 3, (1,), {}),
    ((2, 7), 3, (2,), {"stride": (2,)}),
    ((2, 3, 4, 5, 6), 4, (3, 2, 1), {"padding": (1, 0, 0)}),
    ((9, 4, 3, 4, 4), 4, (2, 3, 2), {"stride": (1, 2, 1), "padding": 1, "dilation": (2, 1, 1), "groups": 4}),
    ((1, 2, 3, 3, 40), 2, (1, 2, 3), {"padding": "same"}),
    ((2, 2, 2, 3, 4), 3, (1, 1, 1), {}),
    ((2, 4, 5, 6), 2, (2, 2, 2), {"stride": 2}),
]
FORWARD: dict[int, Any] = {1: conv1d, 2: conv2d, 3: conv3d}
BACKWARD: dict[int, Any] = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize(("shape", "filters", "kernel", "options"), VOLUMES, ids=str)
def test_lines_and_volumes_are_pytorchs(
    shape: tuple[int, ...], filters: int, kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    rank = len(kernel)
    channels = shape[-rank - 1]
    x, w, b = arrays_for(1, shape, (filters, channels // options.get("groups", 1), *kernel), (filters,))
    ours, theirs = FORWARD[rank], getattr(torch.nn.functional, f"conv{rank}d")
    same_as_torch(lambda *it: ours(*it, **options), lambda *it: theirs(*it, **options), x, w, b)


@pytest.mark.parametrize(
    ("shape", "filters", "kernel", "options"),
    [
        ((2, 4, 5), 3, (3,), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((9, 4, 5), 3, (2,), {"stride": 2, "dilation": 3, "groups": 2, "output_padding": 2}),
        ((4, 5), 2, (4,), {"padding": 1}),
        ((9, 2, 3, 4), 2, (3, 2), {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)}),
        ((2, 4, 2, 3, 4), 2, (3, 2, 1), {"stride": (1, 2, 3), "padding": (1, 0, 0), "groups": 4}),
        ((2, 2, 3, 2), 2, (2, 2, 2), {"stride": 2, "output_padding": 1}),
        ((1, 2, 2, 2, 40), 1, (2, 1, 3), {}),
    ],
    ids=str,
)
def test_transposed_convolutions_are_pytorchs(
    shape: tuple[int, ...], filters: int, kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    rank = len(kernel)
    x, w, b = arrays_for(2, shape, (shape[-rank - 1], filters, *kernel), (filters * options.get("groups", 1),))
    ours, theirs = BACKWARD[rank], getattr(torch.nn.functional, f"conv_transpose{rank}d")
    same_as_torch(lambda *it: ours(*it, **options), lambda *it: theirs(*it, **options), x, w, b)


@pytest.mark.parametrize("rank", [1, 3])
def test_second_gradients_of_lines_and_volumes(rank: int) -> None:
    x, w, b = arrays_for(3, (1, 2, 3, 3, 2)[: rank + 2], (2, 2, 2, 1, 2)[: rank + 2], (2,))
    check_gradients(lambda x, w, b: FORWARD[rank](x, w, b, padding=1, stride=2), x, w, b, second=True)
    check_gradients(
        lambda x, w, b: BACKWARD[rank](x, w, b, padding=1, stride=2, output_padding=1), x, w, b, second=True
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_an_empty_batch_of_any_dimension(rank: int) -> None:
    x = flow.zeros((0, 2, 3, 3, 3)[: rank + 2], requires_grad=True)
    w = flow.ones((2, 2, 2, 2, 2)[: rank + 2], requires_grad=True)
    for function in (FORWARD[rank], BACKWARD[rank]):
        result = function(x, w)
        assert result.shape[:2] == (0, 2)
        result.sum().backward()
        assert w.grad is not None
        assert not w.grad.numpy().any()


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("taps", [1, 2])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_layer_without_filters(rank: int, taps: int, recorded: bool) -> None:
    x = flow.ones(2, 3, *(4,) * rank, requires_grad=True)
    w = flow.ones(0, 3, *(taps,) * rank, requires_grad=True)
    with flow.no_grad():
        assert FORWARD[rank](x, w).numpy().shape == (2, 0, *(5 - taps,) * rank)
    by_input, by_weight = flow.autograd.grad(FORWARD[rank](x, w).sum(), (x, w), create_graph=recorded)
    assert by_weight is not None
    assert by_weight.shape == w.shape
    assert by_input is not None
    np.testing.assert_array_equal(by_input.detach().numpy(), np.zeros(tuple(x.shape)))


def test_bad_arguments_of_volumes() -> None:
    with pytest.raises(ValueError, match=r"conv3d: expected an input \(samples, channels, depth, height, width\)"):
        conv3d(flow.zeros(2, 3, 5), flow.zeros(4, 3, 3, 3, 3))
    with pytest.raises(TypeError, match="conv3d: stride must be an integer or three integers"):
        conv3d(flow.zeros(1, 1, 3, 3, 3), flow.zeros(1, 1, 1, 1, 1), stride=(1, 2))
    with pytest.raises(ValueError, match=r"conv_transpose3d: .* does not fit a weight"):
        conv_transpose3d(flow.zeros(1, 2, 3, 3, 3), flow.zeros(1, 1, 1, 1, 1))
    with pytest.raises(ValueError, match=r"conv_transpose1d: .* leave an output"):
        conv_transpose1d(flow.zeros(1, 1, 2), flow.zeros(1, 1, 1), padding=1)


@pytest.mark.parametrize(
    ("shape", "filters", "kernel", "before", "behind", "dilation", "groups"),
    [
        ((2, 4, 6, 5), 4, (3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((2, 4, 6, 5), 6, (3, 2), (0, 1), (2, 0), (1, 1), 2),
        ((9, 6, 9, 7), 4, (2, 3), (1, 0), (0, 2), (3, 2), 2),
        ((3, 4, 8), 3, (5,), (4,), (2,), (1,), 1),
        ((1, 2, 4, 5, 3), 2, (2, 1, 3), (1, 0, 1), (0, 0, 1), (1, 1, 1), 1),
    ],
    ids=str,
)
def test_both_ways_to_the_gradient_by_the_input(
    shape: Sizes, filters: int, kernel: Sizes, before: Sizes, behind: Sizes, dilation: Sizes, groups: int
) -> None:
    """By columns that are added up, and as a convolution of the gradient."""
    ones = (1,) * len(kernel)
    reach = [spread * (taps - 1) for spread, taps in zip(dilation, kernel, strict=True)]
    sizes = zip(shape[2:], before, behind, reach, strict=True)
    output = tuple([size + first + last - most for size, first, last, most in sizes])
    it = Geometry(shape[0], shape[1], shape[2:], filters, kernel, output, ones, dilation, before, behind, groups)
    weight, gradient = arrays_for(0, (filters, shape[1] // groups, *kernel), (shape[0], filters, *output))
    turned = kernels._turned(it)
    assert turned is not None
    expected = np.zeros(shape)
    for piece, layout in columns.pieces(it, 8):
        pixels = layout.pixels(gradient[piece])
        steps = np.matmul(kernels._matrices(weight, it).swapaxes(1, 2), pixels)
        expected[piece] = layout.from_columns(steps)
    out = np.empty(shape)
    gradients = kernels._gradients_by_columns(it, (True, False, False), gradient.dtype)
    (found,) = gradients(gradient, None, None, weight, out)
    assert found is out
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_a_gradient_is_no_convolution_where_that_would_be_dearer() -> None:
    it = Geometry(2, 4, (8, 8), 4, (3, 3), (8, 8), (1, 1), (1, 1), (1, 1), (1, 1), 1)
    assert kernels._turned(it) is not None
    assert kernels._turned(it._replace(filters=8)) is None
    assert kernels._turned(it._replace(stride=(2, 1), output=(4, 8))) is None
    assert kernels._turned(it._replace(before=(3, 1), output=(10, 8))) is None


def test_memory_is_used_again_only_if_it_fits() -> None:
    like = np.zeros(1, np.float32)
    room = np.empty((2, 3), np.float32)
    assert columns.memory_for(room, (2, 3), like) is room
    for other in (None, np.empty((3, 2), np.float32), np.empty((2, 3)), np.empty((3, 2), np.float32).T):
        found = columns.memory_for(other, (2, 3), like)
        assert found is not other
        assert (found.shape, found.dtype, found.flags.c_contiguous) == ((2, 3), like.dtype, True)
