"""Kernels of sequences against those of the CPU: recurrent layers, the loss of unaligned sequences, half spectra."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import interpreter
from vmflow.kernels.problems.recurrent import GATES, Layer
from vmflow.nn import functional as F
from vmflow.ops.nn.recurrent import recurrent_layer
from vmflow.ops.table import OPS
from vmflow.streams.cuda.emulation.driver import EmulatedDriver

from .comparing import FLOATS, compare, equal, on_cpu, results, values
from .compiling import ARCHITECTURES, check_usage, loaded_kernels
from .emulated import emulated

pytestmark = pytest.mark.emulated

LAYERS = [
    Layer("rnn_tanh", False, True, False),
    Layer("rnn_relu", True, False, False),
    Layer("lstm", False, True, False),
    Layer("lstm", True, True, True, (3, 2, 1)),
    Layer("gru", False, True, False),
    Layer("gru", True, False, False, (3, 3, 1)),
]


def _operands(layer: Layer, dtype: str, steps: int = 3, batch: int = 3, features: int = 4) -> list[flow.Tensor]:
    hidden, gates, shown = 3, 3 * GATES[layer.kind], 2 if layer.projected else 3
    source = (sum(layer.sizes), features) if layer.sizes else (steps, batch, features)
    shapes: list[tuple[int, ...]] = [source, (batch, shown)]
    shapes += [(batch, hidden)] * (layer.kind == "lstm")
    shapes += [(gates, features), (gates, shown)]
    shapes += [(gates,), (gates,)] * layer.biased + [(shown, hidden)] * layer.projected
    return [values(seed, shape, dtype, -1.0, 1.0) for seed, shape in enumerate(shapes)]


def _outcome(layer: Layer, operands: list[flow.Tensor], device: str) -> list[NDArray[Any]]:
    """The results of a layer, and the gradients by its operands."""
    given = [operand.to(device).requires_grad_() for operand in operands]
    shown = recurrent_layer(layer, *given)
    slopes = [values(9, tuple(each.shape), each.dtype.name).to(device) for each in shown]
    gradients = [gradient for gradient in flow.autograd.grad(shown, given, slopes) if gradient is not None]
    return [each.detach().to("cpu").numpy() for each in (*shown, *gradients)]


# Recurrent layers


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_a_step_is_one_launch_and_one_product(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one of each more for a projection, of whose result the ended sequences are copied."""
    counts: Counter[str] = Counter()
    multiply = EmulatedDriver.multiply

    def count(driver: EmulatedDriver, *arguments: Any) -> None:
        counts["products"] += 1
        multiply(driver, *arguments)

    monkeypatch.setattr(EmulatedDriver, "multiply", count)

    def found(steps: int) -> tuple[int, int]:
        sizes = (3, *[2] * (steps - 2), 1) if layer.sizes else ()
        longer = layer._replace(sizes=sizes)
        with emulated("lazy") as devices:
            given = [operand.to("cuda").requires_grad_() for operand in _operands(longer, "float32", steps)]
            flow.synchronize()
            before = devices.driver.launches, counts["products"]
            shown = recurrent_layer(longer, *given)
            flow.autograd.grad(shown, given, [each.detach() for each in shown])
            flow.synchronize()
            return devices.driver.launches - before[0], counts["products"] - before[1]

    short, long = found(4), found(9)
    launches, products = (3, 4) if layer.projected else (2, 2)
    assert long == (short[0] + 5 * launches, short[1] + 5 * products)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_nan_spreads_as_on_the_cpu(layer: Layer, dtype: str) -> None:
    operands = _operands(layer, dtype)
    source = operands[0].numpy().copy()
    source.reshape(-1)[[0, 9, 14]] = np.nan, np.inf, -np.inf
    operands[0] = on_cpu(source)
    with np.errstate(all="ignore"):
        expected = _outcome(layer, operands, "cpu")
        for have, want in zip(_outcome(layer, operands, "cuda"), expected, strict=True):
            equal(have, want, tolerance=1e-2 if dtype == "float16" else 1e-4)


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 3, 0)], ids=["no batch", "no features", "a batch"])
@pytest.mark.parametrize("kind", GATES)
def test_operands_without_elements(kind: str, sizes: tuple[int, int, int]) -> None:
    batch, features, _ = sizes
    layer = Layer(kind, False, True, False)
    operands = _operands(layer, "float32", 3, batch, features)
    for have, want in zip(_outcome(layer, operands, "cuda"), _outcome(layer, operands, "cpu"), strict=True):
        equal(have, want)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_operands_and_gradients_in_any_layout(layer: Layer) -> None:
    operands = _operands(layer, "float64")
    contiguous = [operand.to("cuda") for operand in operands]
    spread = [flow.stack([operand, operand], -1).to("cuda")[..., 0] for operand in operands]
    options = tuple(layer)
    op = OPS[f"{layer.kind.split('_')[0]}_layer"]
    expected, found = (interpreter.dispatch_several(op, tuple(given), options) for given in (contiguous, spread))
    for have, want in zip(found, expected, strict=True):
        equal(have.to("cpu").numpy(), want.to("cpu").numpy(), exact=True)
    shown = 1 + layer.states
    saved = [result for place, result in enumerate(expected) if place == 0 or place >= shown]
    slopes = [flow.ones_like(result) for result in expected[:shown]]
    attributes = options, (True,) * shown, (True,) * len(operands)
    gradient = OPS[f"{op.name}_gradient"]
    expected = interpreter.dispatch_several(gradient, (*slopes, *saved, *contiguous), attributes)
    slopes = [flow.stack([slope, slope], -1)[..., 0] for slope in slopes]
    found = interpreter.dispatch_several(gradient, (*slopes, *saved, *spread), attributes)
    for have, want in zip(found, expected, strict=True):
        equal(have.to("cpu").numpy(), want.to("cpu").numpy(), exact=True)


# The loss of unaligned sequences


def _cases(dtype: str, seed: int = 0) -> tuple[flow.Tensor, flow.Tensor, flow.Tensor, flow.Tensor]:
    logs = F.log_softmax(values(seed, (6, 4, 5), dtype), -1)
    targets = on_cpu([[1, 1, 2], [3, 0, 3], [2, 2, 2], [4, 0, 0]])
    return logs, targets, on_cpu([6, 4, 2, 5]), on_cpu([3, 3, 3, 0])


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("blank", [0, 3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_ctc_loss_with_blanks_in_its_targets(dtype: str, blank: int, zero_infinity: bool) -> None:
    operands = _cases(dtype)
    compare("ctc_loss", operands, (blank, zero_infinity))
    compare("ctc_loss_gradient", (*operands, values(1, (4,), dtype)), (blank, zero_infinity))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_ctc_loss_of_nan_and_infinity(number: float) -> None:
    logs, *rest = _cases("float64")
    for time, kind in ((0, 0), (0, 3), (2, 1), (5, 1), (5, 2), (5, 0)):
        wrong = logs.numpy().copy()
        wrong[time, :, kind] = number
        with np.errstate(all="ignore"):
            compare("ctc_loss", (on_cpu(wrong), *rest), (0, False))
            compare("ctc_loss_gradient", (on_cpu(wrong), *rest, values(1, (4,), "float64")), (0, True))


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_ctc_loss_of_operands_in_any_layout(dtype: str) -> None:
    operands = _cases("float32")
    expected = results("ctc_loss", operands, (0, False), ())
    logs, *rest = operands
    turned = [logs.permute(2, 1, 0).contiguous().to("cuda").permute(2, 1, 0)]
    turned += [flow.stack([each, each], -1).to("cuda").to(getattr(flow, dtype))[..., 1] for each in rest]
    equal(results("ctc_loss", tuple(turned), (0, False), ())[0], expected[0])


@pytest.mark.parametrize("shape", [(0, 2, 3), (3, 0, 3), (3, 2, 1)])
def test_ctc_loss_of_nothing(shape: tuple[int, ...]) -> None:
    times, batch, _ = shape
    nothing = on_cpu(np.zeros((batch, 0), np.int64))
    lengths = on_cpu(np.full(batch, times)), on_cpu(np.zeros(batch, np.int64))
    operands = F.log_softmax(values(0, shape, "float32"), -1), nothing, *lengths
    compare("ctc_loss", operands, (0, False))
    compare("ctc_loss_gradient", (*operands, values(1, (batch,), "float32")), (0, False))


def test_ctc_loss_of_more_cases_and_states_than_a_block_has_threads() -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 2, 300)
    logs = F.log_softmax(values(0, (2, 300, 3), "float32"), -1)
    joined = on_cpu(generator.integers(1, 3, lengths.sum()))
    compare("ctc_loss", (logs, joined, on_cpu(np.full(300, 2)), on_cpu(lengths)), (0, False))
    long = on_cpu(generator.integers(1, 3, (1, 140)))
    logs = F.log_softmax(values(0, (3, 1, 3), "float64"), -1)
    operands = logs, long, on_cpu([3]), on_cpu([140])
    compare("ctc_loss", operands, (0, True))
    compare("ctc_loss_gradient", (*operands, values(1, (1,), "float64")), (0, False))


@pytest.mark.parametrize(
    ("targets", "times", "lengths", "complaint"),
    [
        ([[1, 9], [1, 1]], [5, 3], [2, -1], "input lengths must be within 0 and 4"),
        ([[1, 9], [1, 1]], [4, -1], [2, 3], "input lengths must be within 0 and 4"),
        ([[1, 9], [1, 1]], [4, 4], [3, -1], "target lengths cannot be negative"),
        ([[1, 9], [1, 1]], [4, 4], [1, 3], "some target lengths are beyond targets of shape"),
        ([1, 9, 1], [4, 4], [9, -1], "target lengths cannot be negative"),
        ([1, 9, 1], [4, 4], [2, 2], "must add up to the 3 targets"),
        ([1, 9, 1], [4, 4], [1, 1], "must add up to the 3 targets"),
        ([1, 9, 1], [4, 4], [2, 1], "class index 9 is out of range for 3 classes"),
        ([[1, -1], [1, 1]], [4, 4], [2, 1], "class index -1 is out of range for 3 classes"),
    ],
)
def test_the_first_thing_that_is_wrong_with_a_ctc_loss(
    targets: Any, times: list[int], lengths: list[int], complaint: str
) -> None:
    operands = [on_cpu(each).to("cuda") for each in (np.zeros((4, 2, 3)), targets, times, lengths)]
    with pytest.raises((ValueError, IndexError), match=complaint):
        interpreter.dispatch(OPS["ctc_loss"], tuple(operands), (0, False)).to("cpu").numpy()


# Half spectra


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("length", [1, 2, 6, 7])
@pytest.mark.parametrize("dim", [0, 1])
def test_weights_of_half_spectra(dim: int, length: int, dtype: str) -> None:
    assert flow.fft  # which declares the op
    shape = (length // 2 + 1, 3) if dim == 0 else (3, length // 2 + 1)
    compare("weighted_half", (values(0, shape, dtype),), (dim, length, 0.3), exact=True)


# All of them


def _exercise(dtype: str) -> None:
    for layer in LAYERS:
        for had in ((True,) * (1 + layer.states), (False, *(True,) * layer.states)):
            given = [operand.to("cuda").requires_grad_() for operand in _operands(layer, dtype)]
            shown = [each for each, there in zip(recurrent_layer(layer, *given), had, strict=True) if there]
            flow.autograd.grad(shown, given, [each.detach() for each in shown])
    operands = [each.to("cuda") for each in (*_cases(dtype), values(1, (4,), dtype))]
    interpreter.dispatch(OPS["ctc_loss"], tuple(operands[:4]), (0, False))
    interpreter.dispatch(OPS["ctc_loss_gradient"], tuple(operands), (0, False))
    flow.fft.fftfreq(5, dtype=getattr(flow, dtype), device="cuda")
    for complex_ in (flow.complex64, flow.complex128):
        half = flow.ones(3, 4, device="cuda", dtype=complex_)
        interpreter.dispatch(OPS["weighted_half"], (half,), (1, 6, 2.0))
    flow.synchronize()


@pytest.mark.parametrize("dtype", FLOATS)
def test_no_op_calls_functions_of_the_array_module(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(EmulatedDriver, "call", lambda driver, name, *arguments: called.append(name))
    with emulated("lazy") as devices:
        _exercise(dtype)
        assert devices.driver.launches
    assert called == []


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_kernels_compile_for_gpus_without_spills(dtype: str, architecture: int) -> None:
    with emulated("lazy"):
        _exercise(dtype)
        kernels = loaded_kernels()
    check_usage(kernels, architecture)
