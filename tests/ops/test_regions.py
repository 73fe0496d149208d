"""Pooled regions and deformed convolutions: against loops, their gradients, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.names import loops
from tests.support import check_gradients

from .oracle import KernelContract, check, sample

deform_conv2d = flow.nn.functional.deform_conv2d

REGIONS = np.array([[0, 0.3, 0.4, 5.1, 6.3], [1, -2.0, 1.0, 9.0, 20.0], [1, 3.0, 3.0, 3.2, 2.0], [0, 7, 7, 40, 40]])


@pytest.mark.parametrize("ratio", [-1, 1, 2])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (2, 1, 1, 4)], ids=str)
def test_regions_pooled(ratio: int, aligned: bool, shape: tuple[int, ...], contract: KernelContract) -> None:
    images = sample(shape, "float64")
    found = flow.roi_align(flow.tensor(images), flow.tensor(REGIONS), 0.9, 2, 3, ratio, aligned)
    check(found, loops.roi_align(images, REGIONS, 0.9, 2, 3, ratio, aligned), "float64", tolerance=1e-12)


def test_gradients_of_regions(contract: KernelContract) -> None:
    check_gradients(
        lambda x: flow.roi_align(x, flow.tensor(REGIONS), 0.5, 2, 2).square(),
        sample((2, 2, 4, 5), "float64"),
        second=True,
    )


def test_no_regions_and_half_precision(contract: KernelContract) -> None:
    images = flow.tensor(sample((2, 3, 7, 9), "float32"))
    for ratio in (-1, 2):
        assert tuple(flow.roi_align(images, flow.zeros(0, 5), 1.0, 2, 3, ratio).shape) == (0, 3, 2, 3)
    rois = flow.tensor(REGIONS.astype("float32"))
    found = flow.roi_align(images.half(), rois.half(), 1.0, 2, 2)
    wanted = flow.roi_align(images.half().float(), rois.half().float(), 1.0, 2, 2)
    check(found, wanted.numpy(), "float16", tolerance=2e-3)
    with flow.autocast(images.device.type, dtype=flow.bfloat16):
        assert flow.roi_align(images.bfloat16(), rois, 1.0, 2, 2).dtype is flow.float32


def test_a_region_of_a_sample_that_is_not_there(contract: KernelContract) -> None:
    found = flow.roi_align(flow.ones(1, 1, 4, 4), flow.tensor([[1.0, 0, 0, 2, 2]]), 1.0, 2, 2, 1)
    with pytest.raises(IndexError):
        found.numpy()


def _operands(own: int, groups: int, kernel: tuple[int, int], count: tuple[int, int]) -> list[Any]:
    taps = kernel[0] * kernel[1]
    return [
        sample((2, 4, 6, 5), "float64"),
        sample((2, 2 * own * taps, *count), "float64", 1) * 2,
        sample((6, 4 // groups, *kernel), "float64", 2),
        sample((6,), "float64", 3),
        np.abs(sample((2, own * taps, *count), "float64", 4)),
    ]


@pytest.mark.parametrize(("own", "groups"), [(1, 1), (2, 1), (1, 2), (4, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_deformed_convolutions(own: int, groups: int, masked: bool, contract: KernelContract) -> None:
    images, offset, weight, bias, mask = _operands(own, groups, (3, 2), (3, 6))
    how = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 3)}
    expected = loops.deform_conv2d(images, offset, weight, bias, mask=mask if masked else None, **how)
    found = deform_conv2d(
        flow.tensor(images),
        flow.tensor(offset),
        flow.tensor(weight),
        flow.tensor(bias),
        mask=flow.tensor(mask) if masked else None,
        **how,
    )
    check(found, expected, "float64", tolerance=1e-12)


def test_without_offsets_it_is_a_convolution(contract: KernelContract) -> None:
    images, offset, weight, bias, _ = [flow.tensor(operand) for operand in _operands(1, 1, (3, 3), (6, 5))]
    plain = flow.nn.functional.conv2d(images, weight, bias, padding=1)
    check(deform_conv2d(images, offset * 0, weight, bias, padding=1), plain.numpy(), "float64", tolerance=1e-12)
    # Moved by one pixel to the right: the window of the place before.
    shifted = offset * 0 + flow.tensor([0.0, 1.0] * 9, dtype=flow.float64).reshape(-1, 1, 1)
    found = deform_conv2d(images, shifted, weight, bias, padding=1)
    check(found[..., :-1], plain[..., 1:].numpy(), "float64", tolerance=1e-12)
    half = deform_conv2d(images.half(), offset.half(), weight.half(), bias.half(), padding=1)
    images, offset, weight, bias = [value.half().double() for value in (images, offset, weight, bias)]
    wide = deform_conv2d(images, offset, weight, bias, padding=1)
    check(half, wide.numpy(), "float16", tolerance=2e-2)


def test_no_samples(contract: KernelContract) -> None:
    images, offset, mask = flow.ones(0, 1, 2, 3), flow.ones(0, 2, 2, 3), flow.ones(0, 1, 2, 3)
    found = deform_conv2d(images, offset, flow.ones(4, 1, 1, 1), mask=mask)
    assert found.shape == (0, 4, 2, 3)


def test_gradients_of_deformed_convolutions(contract: KernelContract) -> None:
    images, offset, weight, bias, mask = _operands(2, 2, (2, 2), (2, 2))
    check_gradients(
        lambda x, o, w, b, m: deform_conv2d(x, o, w, b, stride=(4, 3), mask=m),
        images[:1, :, :, :],
        offset[:1],
        weight,
        bias,
        mask[:1],
        second=False,
    )
    check_gradients(lambda x, o: deform_conv2d(x, o, flow.tensor(weight), stride=(4, 3)), images[:1], offset[:1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.roi_align(x[0], flow.ones(1, 5), 1.0, 2, 2), ValueError, r"regions \(regions, 5\)"),
        (lambda x: flow.roi_align(x, flow.ones(1, 4), 1.0, 2, 2), ValueError, r"regions \(regions, 5\)"),
        (lambda x: flow.roi_align(x, flow.ones(1, 5).double(), 1.0, 2, 2), TypeError, "expected one dtype"),
        (lambda x: flow.roi_align(x.long(), flow.ones(1, 5), 1.0, 2, 2), TypeError, "not defined for int64"),
        (lambda x: flow.roi_align(x, flow.ones(1, 5), 1.0, 0, 2), ValueError, "positive sizes"),
        (lambda x: deform_conv2d(x, flow.ones(1, 8, 3, 3), flow.ones(2, 3, 2, 2)), ValueError, "does not fit 4"),
        (lambda x: deform_conv2d(x, flow.ones(1, 8, 2, 3), flow.ones(2, 4, 2, 2)), ValueError, "expected an offset"),
        (lambda x: deform_conv2d(x, flow.ones(1, 24, 3, 3), flow.ones(2, 4, 2, 2)), ValueError, "expected an offset"),
        (lambda x: deform_conv2d(x, flow.ones(1, 8, 3, 3), flow.ones(2, 4, 5, 5)), ValueError, "do not fit into"),
        (
            lambda x: deform_conv2d(x, flow.ones(1, 8, 3, 3), flow.ones(2, 4, 2, 2), mask=flow.ones(1, 8, 3, 3)),
            ValueError,
            "expected a mask",
        ),
        (
            lambda x: deform_conv2d(x, flow.ones(1, 8, 3, 3), flow.ones(2, 4, 2, 2), flow.ones(3)),
            ValueError,
            "expected a bias",
        ),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(1, 4, 4, 4))
