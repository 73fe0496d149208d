"""Kernels that go through rows and channels: losses of classes, normalization, reductions, attention, likelihoods."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import vmflow as flow
from vmflow import interpreter
from vmflow.nn import functional as F
from vmflow.ops.table import OPS

from .comparing import compare, equal, on_cpu, results, values
from .compiling import ARCHITECTURES, check_usage, loaded_kernels
from .emulated import emulated

pytestmark = pytest.mark.emulated


def _run(op: str, tensors: tuple[flow.Tensor, ...], attributes: Any = (), scalars: tuple[Any, ...] = ()) -> Any:
    return interpreter.dispatch_several(OPS[op], tensors, attributes, scalars)


# Losses of class indices: ignored class, reduction, smoothing


class _Options(NamedTuple):
    """As the ops have them."""

    ignored: int = -100
    reduction: str = "mean"
    smoothing: float = 0.0


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_may_be_of_any_integers(dtype: str, reduction: str) -> None:
    scores, target = values(0, (5, 3), "float32"), on_cpu(np.array([2, 0, 1, 1, 2], dtype))
    for op in ("nll_loss", "cross_entropy"):
        compare(op, (scores, target), _Options(1, reduction))


@pytest.mark.parametrize("op", ["nll_loss", "cross_entropy"])
@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (3,), (0, 3, 2)])
def test_losses_of_no_rows_and_of_one(shape: tuple[int, ...], op: str) -> None:
    target = on_cpu(np.ones(shape[:1] + shape[2:] if len(shape) > 1 else (), np.int64))
    for reduction in ("sum", "none"):
        compare(op, (values(0, shape, "float32"), target), _Options(reduction=reduction))
    (loss, *_) = results(
        op, (values(0, (0, 3), "float32").to("cuda"), on_cpu(np.ones(0, int)).to("cuda")), _Options(), ()
    )
    assert np.isnan(loss)


def test_a_row_that_does_not_count_may_be_nan() -> None:
    scores = on_cpu(np.array([[np.nan, 1.0], [0.5, 2.0]], np.float32))
    for op in ("nll_loss", "cross_entropy"):
        for reduction in ("mean", "none"):
            compare(op, (scores, on_cpu([1, 0])), _Options(1, reduction))


@pytest.mark.parametrize("laid", ["apart", "transposed"])
def test_scores_and_classes_lie_as_they_like(laid: str) -> None:
    scores, target = values(0, (4, 3, 5), "float32"), on_cpu(np.arange(20).reshape(4, 5) % 3)
    if laid == "apart":
        given = [flow.stack([value, value], -1).to("cuda")[..., 1] for value in (scores, target)]
    else:
        given = [value.transpose(0, -1).contiguous().to("cuda").transpose(0, -1) for value in (scores, target)]
    for op in ("nll_loss", "cross_entropy"):
        expected = results(op, (scores, target), _Options(), ())
        for have, want in zip(results(op, tuple(given), _Options(), ()), expected, strict=True):
            equal(have, want)


@pytest.mark.parametrize("wrong", [3, -1])
@pytest.mark.parametrize("loss", [F.nll_loss, F.cross_entropy])
def test_a_class_that_does_not_exist_is_reported(loss: Any, wrong: int) -> None:
    scores, target = values(0, (4, 3), "float32").to("cuda"), on_cpu([0, wrong, 2, 1]).to("cuda")
    with pytest.raises(IndexError, match=f"{loss.__name__}: class index {wrong} is out of range for 3 classes"):
        loss(scores, target).item()
    assert np.isfinite(loss(scores, target, ignore_index=wrong).item())


def test_many_losses_are_added_up_in_parts() -> None:
    target = on_cpu(np.arange(40000) % 2)
    logs = values(0, (40000, 2), "float64")
    for reduction in ("mean", "sum"):
        compare("nll_loss", (logs, target), _Options(reduction=reduction))


def test_a_loss_is_two_launches_and_its_gradient_one() -> None:
    with emulated("lazy") as devices:
        scores = flow.rand(6, 5, device="cuda").requires_grad_()
        target = flow.tensor([0, 1, 2, 3, 4, 0], device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        loss = F.cross_entropy(scores, target)
        flow.synchronize()
        assert devices.driver.launches == before + 2
        one = flow.ones((), device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        loss.backward(one)
        flow.synchronize()
        assert devices.driver.launches == before + 1


# Normalization


@pytest.mark.parametrize("parameters", [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("shape", [(3, 2, 3001), (2100, 3, 2), (5000, 2), (1, 1, 9000)])
def test_channels_are_cut_into_parts(shape: tuple[int, ...], parameters: tuple[bool, bool]) -> None:
    options: Any = (1e-3, *parameters)
    array = values(1, shape, "float64")
    given = tuple([values(30 + place, shape[1:2], "float64") for place in range(sum(parameters))])
    compare("batch_norm", (array, *given), options)
    _, mean, variance = results("batch_norm", (array, *given), options, ())
    operands = values(2, shape, "float64"), array, on_cpu(mean), on_cpu(variance), *given[: parameters[0]]
    compare("batch_norm_gradient", operands, options)


@pytest.mark.parametrize("shape", [(5000, 3), (70, 2), (33, 300), (4, 700)])
def test_parameters_of_many_rows_are_added_up_in_parts(shape: tuple[int, int]) -> None:
    attributes: Any = (shape[1:], (1e-3, True, True))
    array, parameters = values(1, shape, "float64"), tuple([values(2, shape[1:], "float64") for _ in range(2)])
    compare("layer_norm", (array, *parameters), attributes)
    _, mean, scale = results("layer_norm", (array, *parameters), attributes, ())
    operands = values(3, shape, "float64"), array, on_cpu(mean), on_cpu(scale), parameters[0]
    compare("layer_norm_gradient", operands, attributes)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_normalization_of_nothing(shape: tuple[int, ...]) -> None:
    array = values(1, shape, "float32")
    rows: Any = (shape[2:], (1e-3, False, False))
    _, mean, scale = results("layer_norm", (array,), rows, ())
    compare("layer_norm", (array,), rows)
    compare("layer_norm_gradient", (array, array, on_cpu(mean), on_cpu(scale)), rows)
    if 0 not in (shape[0], shape[2]):
        compare("batch_norm", (array,), (1e-3, False, False))
    ones = flow.ones(shape[1], device="cpu")
    compare("batch_norm_inference", (array, ones, ones), (1e-3, False, False))


def test_normalized_arrays_and_parameters_lie_as_they_like() -> None:
    array, weight = values(1, (4, 3, 5), "float32"), values(2, (5,), "float32")
    gapped = [flow.stack([value, value], -1).to("cuda")[..., 1] for value in (array, weight)]
    turned = [array.transpose(0, 2).contiguous().to("cuda").transpose(0, 2), weight.to("cuda").flip(0).flip(0)]
    for op, attributes in (("layer_norm", ((5,), (1e-3, True, False))), ("batch_norm", (1e-3, False, False))):
        operands = (array, weight)[: 2 if op == "layer_norm" else 1]
        expected = results(op, operands, attributes, ())
        for given in (gapped, turned):
            for have, want in zip(results(op, tuple(given[: len(operands)]), attributes, ()), expected, strict=True):
                equal(have, want)


def test_small_norms_are_one_launch() -> None:
    with emulated("lazy") as devices:
        x, weight = flow.rand(6, 4, 5, device="cuda"), flow.ones(5, device="cuda")
        flow.synchronize()
        for op, operands, attributes in (
            ("batch_norm", (x,), (1e-3, False, False)),
            ("layer_norm", (x, weight), ((5,), (1e-3, True, False))),
        ):
            before = devices.driver.launches
            found = _run(op, operands, attributes)
            flow.synchronize()
            assert devices.driver.launches == before + 1
            assert len(found) == 3


# Places of extrema


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_first_of_equal_ones_is_found_and_nan_before_all(op: str, dtype: str) -> None:
    rows = np.array([[1, 3, 3, 1, 1], [np.inf, -np.inf, np.inf, -np.inf, 0], [0.0, -0.0, -0.0, 0.0, 0.0]])
    with_nan = np.array([[1, np.nan, 9, np.nan, -9], [np.nan] * 5, [0, 0, 0, 0, np.nan]])
    tensor = on_cpu(np.concatenate([rows, with_nan])).to(getattr(flow, dtype))
    for dim in (0, 1, None):
        compare(op, (tensor,), (dim, False))
        compare(op, (tensor,), (dim, True))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_long_rows_are_searched_in_parts(op: str) -> None:
    tensor = values(0, (2, 40000), "float32").round()
    for dim in (1, None):
        compare(op, (tensor,), (dim, False))
    compare(op, (flow.ones(40000, device="cpu", dtype=flow.int8),), (0, False))


def test_long_rows_of_complex_numbers_are_reduced_in_parts() -> None:
    tensor = values(0, (2, 20000), "complex128")
    for op in ("sum", "mean", "norm", "all", "any"):
        compare(op, (tensor,), ((1,), False))


def _exercise_normalization() -> None:
    for dtype in (flow.float32, flow.float64, flow.bfloat16):
        for shape in ((4, 2, 5), (3, 1, 3000)):
            x = flow.rand(*shape, device="cuda").to(dtype)
            channels, features = (flow.ones(size, device="cuda", dtype=dtype) for size in shape[1:])
            out, mean, variance = _run("batch_norm", (x, channels, channels), (1e-3, True, True))
            _run("batch_norm_gradient", (out, x, mean, variance, channels), (1e-3, True, True))
            _run("batch_norm_inference", (x, mean, variance, channels, channels), (1e-3, True, True))
            attributes = shape[2:], (1e-3, True, True)
            out, mean, scale = _run("layer_norm", (x, features, features), attributes)
            _run("layer_norm_gradient", (out, x, mean, scale, features), attributes)
        flow.rand(100, 3, device="cuda").to(dtype).argmax(0)
        flow.rand(20000, device="cuda").to(dtype).argmin()


def _exercise_losses() -> None:
    target = flow.tensor([0, 1, 2, 0], device="cuda")
    for dtype in (flow.float32, flow.float64, flow.bfloat16):
        scores = values(0, (4, 3), "float32").to("cuda").to(dtype).requires_grad_()
        weight = flow.ones(3, device="cuda", dtype=dtype)
        for loss in (F.nll_loss, partial(F.cross_entropy, label_smoothing=0.1), F.cross_entropy):
            for reduction in ("mean", "none"):
                found = loss(scores, target, weight, reduction=reduction)
                found.sum().backward()


# Attention: factor, causal, probability of dropping, whether weights are kept

_PLACE = 5, 12


def _attention_operands(dtype: str, mask: str = "") -> tuple[flow.Tensor, ...]:
    operands = [values(seed, shape, dtype) for seed, shape in enumerate([(2, 1, 4, 5), (3, 7, 5), (2, 1, 7, 3)])]
    if mask == "flags":
        flags = np.arange(28).reshape(4, 7) % 3 > 0
        flags[1] = False
        operands.append(on_cpu(flags))
    elif mask:
        numbers = np.where(np.arange(28).reshape(4, 7) % 5 > 0, 0.5, -np.inf)
        numbers[2] = -np.inf
        operands.append(on_cpu(numbers.astype(np.float32)).to(getattr(flow, dtype)))
    return tuple(operands)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("mask", ["", "flags", "numbers"])
@pytest.mark.parametrize(("p", "keeps"), [(0.0, False), (0.0, True), (0.4, True), (1.0, True)])
def test_attention_and_its_gradients(p: float, keeps: bool, mask: str, dtype: str) -> None:
    operands = _attention_operands(dtype, mask)
    place = _PLACE if p else ()
    for causal in (False, True) if not mask else (False,):
        options: Any = (0.4, causal, p, keeps)
        compare("scaled_dot_product_attention", operands, options, place)
        out, kept = results("scaled_dot_product_attention", operands, options, place)
        gradients = values(7, out.shape, dtype), values(8, (2, 3, 4, 7), dtype)
        for present in ((True, False), (True, True), (False, True)):
            given = [gradient for gradient, there in zip(gradients, present, strict=True) if there]
            rest = operands[:3] if keeps else operands
            wanted = (True, True, True, mask == "numbers")[: len(operands)]
            attributes = options, present, wanted
            compare("scaled_dot_product_attention_gradient", (*given, on_cpu(kept), *rest), attributes, place)


def test_attention_to_and_of_nothing() -> None:
    for shapes in ([(2, 0, 5), (2, 4, 5), (2, 4, 3)], [(2, 4, 5), (2, 0, 5), (2, 0, 3)], [(0, 4, 5)] * 3):
        operands = tuple([values(0, shape, "float32") for shape in shapes])
        for keeps in (True, False):
            options: Any = (0.4, False, 0.0, keeps)
            compare("scaled_dot_product_attention", operands, options)
            out, kept = results("scaled_dot_product_attention", operands, options, ())
            attributes = options, (True, False), (True, True, True)
            compare("scaled_dot_product_attention_gradient", (on_cpu(out), on_cpu(kept), *operands), attributes)


def test_queries_and_keys_lie_as_they_like() -> None:
    operands = tuple([values(seed, (2, 4, 3, 5), "float32") for seed in range(3)])
    turned = [operand.transpose(1, 2).contiguous().to("cuda").transpose(1, 2) for operand in operands]
    options: Any = (0.4, True, 0.3, True)
    expected = results("scaled_dot_product_attention", operands, options, _PLACE)
    for have, want in zip(
        results("scaled_dot_product_attention", tuple(turned), options, _PLACE), expected, strict=True
    ):
        equal(have, want)


def _exercise_attention() -> None:
    for dtype in (flow.float32, flow.float64, flow.bfloat16):
        for causal, p, keeps, masked in (
            (False, 0.0, False, False),
            (True, 0.3, True, False),
            (True, 0.0, False, False),
            (False, 0.3, False, True),
        ):
            operands = [flow.rand(2, 4, 5, device="cuda").to(dtype) for _ in range(3)]
            if masked:
                operands.append(flow.ones(4, 4, device="cuda", dtype=flow.bool))
            place, options = _PLACE if p else (), (0.4, causal, p, keeps)
            out, kept = _run("scaled_dot_product_attention", tuple(operands), options, place)
            given = (out, kept, *operands[:3]) if keeps else (out, kept, *operands)
            attributes = options, (True, False), (True,) * 3 + (False,) * masked
            _run("scaled_dot_product_attention_gradient", given, attributes, place)


# Likelihoods of sequences: blank, whether infinite losses count as 0


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize(("targets", "lengths"), [
    ([[1, 1, 2, 1], [3, 0, 1, 3], [2, 9, 9, 9], [0, 0, 0, 0]], [4, 3, 1, 0]),
    ([1, 1, 2, 1, 3, 0, 1, 2], [4, 3, 1, 0]),
    ([], [0, 0, 0, 0]),
])  # fmt: skip
def test_ctc_loss_of_classes_that_come_again(targets: Any, lengths: list[int], zero_infinity: bool) -> None:
    logs = F.log_softmax(values(0, (6, 4, 5), "float64"), -1)
    given = on_cpu(np.array(targets, np.int32)), on_cpu(np.array([6, 5, 0, 3], np.int32)), on_cpu(lengths)
    for blank in (0, 4):
        compare("ctc_loss", (logs, *given), (blank, zero_infinity))
        compare("ctc_loss_gradient", (logs, *given, values(1, (4,), "float64")), (blank, zero_infinity))


@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (3, 0)])
def test_ctc_loss_of_no_time_and_of_no_cases(steps: int, batch: int) -> None:
    logs, zeros = values(0, (steps, batch, 5), "float32"), on_cpu(np.zeros(batch, np.int64))
    targets = on_cpu(np.ones((batch, 2), np.int64))
    for lengths in (zeros, zeros + 1):
        compare("ctc_loss", (logs, targets, zeros, lengths), (0, False))
        compare("ctc_loss_gradient", (logs, targets, zeros, lengths, values(1, (batch,), "float32")), (0, False))


@pytest.mark.parametrize(("targets", "times", "lengths", "error", "message"), [
    ([[1, 2], [3, 1]], [5, 2], [2, 2], ValueError, "input lengths must be within 0 and 4"),
    ([[1, 2], [3, 1]], [4, 2], [2, -1], ValueError, "target lengths cannot be negative"),
    ([[1, 2], [3, 1]], [4, 2], [2, 3], ValueError, r"some target lengths are beyond targets of shape \[2, 2\]"),
    ([1, 2, 3], [4, 2], [2, 2], ValueError, "the target lengths must add up to the 3 targets"),
    ([[1, 2], [5, 1]], [4, 2], [2, 2], IndexError, "class index 5 is out of range for 5 classes"),
    ([1, 2, -3], [4, 2], [2, 1], IndexError, "class index -3 is out of range for 5 classes"),
])  # fmt: skip
def test_wrong_operands_of_ctc_loss_are_reported(
    targets: Any, times: list[int], lengths: list[int], error: type[Exception], message: str
) -> None:
    logs = F.log_softmax(values(0, (4, 2, 5), "float32"), -1).to("cuda")
    with pytest.raises(error, match=message):
        F.ctc_loss(logs, on_cpu(targets).to("cuda"), on_cpu(times).to("cuda"), on_cpu(lengths).to("cuda")).item()


def _exercise_likelihoods() -> None:
    for dtype in ("float32", "float64"):
        logs, ones = values(0, (3, 2, 5), dtype).to("cuda"), flow.ones(2, device="cuda", dtype=flow.int64)
        for targets in (flow.ones(2, 1, device="cuda", dtype=flow.int64), ones):
            for zero_infinity in (False, True):
                loss = _run("ctc_loss", (logs, targets, ones * 3, ones), (0, zero_infinity))
                _run("ctc_loss_gradient", (logs, targets, ones * 3, ones, *loss), (0, zero_infinity))


@pytest.mark.slow
def test_kernels_need_few_registers() -> None:
    with emulated("lazy"):
        _exercise_losses()
        _exercise_normalization()
        _exercise_attention()
        _exercise_likelihoods()
        flow.rand(20000, device="cuda").to(flow.complex64).norm()
        flow.rand(200, 3, device="cuda").to(flow.complex128).sum(0)
        flow.synchronize()
        kernels = loaded_kernels()
    for architecture in ARCHITECTURES:
        check_usage(kernels, architecture)
