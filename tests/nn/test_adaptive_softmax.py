"""`AdaptiveLogSoftmaxWithLoss`, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn

TARGETS = np.array([0, 4, 5, 9, 10, 19])


def pair(**keywords: Any) -> tuple[Any, Any, Any]:
    torch = pytest.importorskip("torch")
    arguments = (8, 20, [5, 10])
    ours = nn.AdaptiveLogSoftmaxWithLoss(*arguments, div_value=2.0, **keywords).double()
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(*arguments, div_value=2.0, **keywords).double()
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    return torch, ours, theirs


@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize("batch", [True, False])
def test_results_and_gradients(head_bias: bool, batch: bool) -> None:
    torch, ours, theirs = pair(head_bias=head_bias)
    values = np.random.default_rng(0).normal(size=(len(TARGETS), 8))
    targets = TARGETS
    if not batch:
        values, targets = values[3], TARGETS[3]
    found = []
    for lib, layer in ((flow, ours), (torch, theirs)):
        x = lib.tensor(values).requires_grad_()
        output, loss = layer(x, lib.tensor(targets))
        loss.backward()
        result = [
            output,
            loss,
            x.grad,
            *[parameter.grad for parameter in layer.parameters() if parameter.grad is not None],
        ]
        rows = x if batch else x.unsqueeze(0)  # which PyTorch's wants
        result += [layer.log_prob(rows), layer.predict(rows)]
        found.append([tensor.detach().numpy() for tensor in result])
    # PyTorch leaves out clusters without rows, whose gradients are zero here.
    places = range(len(found[1])) if batch else (0, 1, 2, 3, -2, -1)
    for one, other in [(found[0][place], found[1][place]) for place in places]:
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_in_a_graph() -> None:
    _, layer, _ = pair()
    x, targets = flow.rand(6, 8, dtype=flow.float64), flow.tensor(TARGETS)
    graph = nn.Graph.trace(lambda x, targets: layer(x, targets).loss)
    assert graph(x, targets).item() == pytest.approx(layer(x, targets).loss.item())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "uint32", "uint64"])
def test_targets_of_small_and_unsigned_dtypes(dtype: str) -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 510, [10, 300, 400])
    x, targets = flow.rand(3, 4), flow.tensor([5, 50, 101])
    found = layer(x, targets.to(getattr(flow, dtype))).output
    np.testing.assert_array_equal(found.detach().numpy(), layer(x, targets).output.detach().numpy())


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_targets_that_are_no_integers(dtype: str) -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 20, [5, 10])
    with pytest.raises(TypeError, match=f"AdaptiveLogSoftmaxWithLoss: class indices must be integers, not {dtype}"):
        layer(flow.ones(1, 4), flow.ones(1, dtype=getattr(flow, dtype)))


@pytest.mark.parametrize("target", [-1, 20])
def test_a_target_out_of_range(target: int) -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 20, [5, 10])
    with pytest.raises(IndexError, match="out of range"):
        layer(flow.ones(1, 4), flow.tensor([target])).loss.item()


@pytest.mark.parametrize("cutoffs", [[], [0, 5], [5, 5], [7, 3], [5, 20], [2.5], [10.0], ["a"], [True]])
def test_bad_cutoffs(cutoffs: list[Any]) -> None:
    with pytest.raises(ValueError, match="cutoffs must be integers"):
        nn.AdaptiveLogSoftmaxWithLoss(4, 20, cutoffs)


def test_bad_sizes() -> None:
    for arguments, error, match in (
        ((4.0, 20, [5]), TypeError, "in_features must be an integer, not 4.0"),
        ((4, 20.0, [5]), TypeError, "n_classes must be an integer, not 20.0"),
        ((4, 20, 5), TypeError, "cutoffs must be a list of integers, got 5"),
        ((4, 20, [5], 0), ValueError, "div_value must be above 0, got 0"),
    ):
        given: Any = arguments
        with pytest.raises(error, match=match):
            nn.AdaptiveLogSoftmaxWithLoss(*given)
    assert nn.AdaptiveLogSoftmaxWithLoss(4, 20, np.array([5, 10])).cutoffs == [5, 10, 20]  # type: ignore[arg-type]


def test_shapes_that_do_not_fit() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 20, [5, 10])
    with pytest.raises(ValueError, match="expected an input"):
        layer(flow.ones(2, 4), flow.tensor([1]))
